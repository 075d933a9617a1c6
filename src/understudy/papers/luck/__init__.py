"""Training dynamics of deep ReLU networks, and why lucky initial weights win.

Y. Tian, T. Jiang, Q. Gong and A. Morcos, "Luck Matters: Understanding Training Dynamics of Deep ReLU Networks",
2019 (S2).
"""
