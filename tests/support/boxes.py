"""Boxes of inputs: whether points are inside."""

import numpy as np


def contains(box, x, slack=0.0):
    """Whether each point is in the box, enlarged by `slack` of its edges on every side."""
    return (np.abs(x - box.centre) <= (1 + 2 * slack) * box.half).all(axis=-1)
