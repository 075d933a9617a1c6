"""Student specialization in two-layer, deep and convolutional networks.

Y. Tian, "Student Specialization in Deep Rectified Networks With Finite Width and Input Dimension", ICML 2020
(S0), and its earlier version of 2019 (S1).
"""
