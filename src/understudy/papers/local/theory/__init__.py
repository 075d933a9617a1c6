"""Theorems and closed forms of this paper, and simulators of the dynamics they describe."""
