"""Training of models with latent codes: variational and mutual autoencoders (Phuong 2021, ch. 4)."""
