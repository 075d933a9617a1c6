"""Local convergence of mildly over-parameterized two-layer networks.

M. Zhou, R. Ge and C. Jin, "A Local Convergence Theory for Mildly Over-Parameterized Two-Layer Neural Network", COLT
2021 (S4).

`theory/` has losses in closed form, the lemmas and gradient descent; the studies are `identifiability`,
`initialisation`, `local_rate`, `regimes` and `warm_up`.
"""
