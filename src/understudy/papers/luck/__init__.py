"""Training dynamics of deep ReLU networks, and why lucky initial weights win.

Y. Tian, T. Jiang, Q. Gong and A. Morcos, "Luck Matters: Understanding Training Dynamics of Deep ReLU Networks",
2019 (S2).

`theory/` has theorems 2 to 5 and simulators of their dynamics; the studies are `batchnorm_energy`, `bn_bias`,
`cifar_luck`, `flat_minima`, `gaus`, `irrelevant_nodes`, `lottery`, `lucky_init`, `matrix_dynamics` and
`over_parameterization`.
"""
