"""Theorems of Tian 2020 and Tian 2019 on student specialization, and simulators of the dynamics they describe.

- `exact`, `sampled`, `induced`, `noisy`: certificates that a teacher node has a student (theorems 1, 3, 4 and 5)
- `prunable`, `pruning`, `connectivity`, `student_pairs`: nodes that are not needed (theorem 2), low-loss paths
- `identities`: identities that hold at every sample, and from batches to samples
- `spherical`, `norm_growth`: the pull of a teacher node, and the growth of norms (Tian 2019, theorems 6 and 7)
"""
