"""Student specialization in two-layer, deep and convolutional networks.

Y. Tian, "Student Specialization in Deep Rectified Networks With Finite Width and Input Dimension", ICML 2020
(S0), and its earlier version of 2019 (S1).

`prune.py` (`us.prune`) and `connect.py` (`us.connect`) are for users. `theory/` has the theorems; the studies are
`certificates`, `cifar`, `cifar_teacher`, `deep`, `deep_samples`, `dynamics`, `focus_shift`, `hyperplanes`,
`prune_and_connect`, `second_draw`, `strong_nodes`, `teacher_aware` and `two_layer`.
"""
