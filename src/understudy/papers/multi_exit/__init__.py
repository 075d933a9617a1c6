"""Distillation-based training of networks with several exits.

M. Phuong and C. Lampert, "Distillation-Based Training for Multi-Exit Architectures", ICCV 2019; chapter 6 and
appendix E of M. Phuong's thesis (S3).

`published` has the numbers of the thesis' tables; the study is `multi_exit`.
"""
