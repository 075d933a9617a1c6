"""What networks become on orthogonally separable data.

M. Phuong and C. Lampert, "The Inductive Bias of ReLU Networks on Orthogonally Separable Data", ICLR 2021; chapter 3 of
M. Phuong's thesis (S3).
"""
