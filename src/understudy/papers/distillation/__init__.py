"""Distillation in linear networks.

M. Phuong and C. Lampert, "Towards Understanding Knowledge Distillation", ICML 2019; chapter 5 of
M. Phuong's thesis (S3).

`theory/` has closed forms and simulators of linear students, their risk and the transfer tasks; the studies are
`data_geometry`, `linear_distillation`, `monotonicity` and `optimisation_bias`.
"""
