"""Distillation in linear networks.

M. Phuong and C. Lampert, "Towards Understanding Knowledge Distillation", ICML 2019; chapter 5 of
M. Phuong's thesis (S3).
"""
