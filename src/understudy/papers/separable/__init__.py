"""What networks become on orthogonally separable data.

M. Phuong and C. Lampert, "The Inductive Bias of ReLU Networks on Orthogonally Separable Data", ICLR 2021; chapter 3 of
M. Phuong's thesis (S3).

`theory/` has the max-margin directions, the sectors of two-layer networks and their training; the studies are
`mnist_classifier`, `orthogonal` and `orthogonal_mnist`.
"""
