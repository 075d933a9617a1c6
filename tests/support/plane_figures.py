"""Synthetic nodes that move in the plane."""

import numpy as np

from understudy.report.figures import PlaneTrajectories, Trajectories


def trajectories(panels=3, times=40, seed=0, students=20, **_):
    """Students that turn towards the nearest of three lines; the norms of some go to zero."""
    rng = np.random.default_rng(seed)
    lines = np.array([0.2, 1.3, 2.4])
    teacher = np.stack([np.cos(lines), np.sin(lines)], 1)
    left = np.exp(-5 * np.linspace(0, 1, times))[:, None]
    planes = []
    for p in range(panels):
        start = rng.uniform(0, 2 * np.pi, students)
        goal = np.pi * np.round((start - lines[0]) / np.pi * 3) / 3 + lines[0]
        length = np.where(np.arange(students) % 5 == 0, 0.5 * left, 0.5) * (1 + 0.2 * rng.random(students))
        angle = goal + left * (start - goal)
        weights = length[..., None] * np.stack([np.cos(angle), np.sin(angle)], -1)
        planes.append(PlaneTrajectories(("lazy", "mean field", "local")[p % 3], teacher, weights, network=p))
    return Trajectories(tuple(planes), np.arange(times), note=f"{students} students, seed 1")
