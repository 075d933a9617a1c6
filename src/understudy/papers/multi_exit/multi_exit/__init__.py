"""The study `multi-exit`: what early exits gain from learning from later ones, on CIFAR-100 (Phuong 2021, ch. 6)."""
