"""Students with two inputs that are trained against one teacher, and how their folds approach the teacher's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from understudy import students
from understudy.data import Uniform
from understudy.nets import Population
from understudy.papers.equivalence.fold_sets import Folds, folds
from understudy.papers.equivalence.theory.relu_network import random_network
from understudy.training import Adam, Group, SquaredError, Training
from understudy.training.group import share

if TYPE_CHECKING:
    from understudy.papers.equivalence.folds.study import FoldStudy

SIZES, SEED = (2, 4, 3, 1), 1
"""Units and seed of the teacher."""
NEAR = 0.05
"""Distance within which a fold of a student is on one of the teacher."""
VISIBLE = 0.02
"""Least jump of the gradient at folds that are drawn, as a share of the largest gradient."""
_ALONG = np.linspace(0.05, 0.95, 10)
"""Points of a segment at which its distance is measured, as shares of its length."""
_STD = 2 / 3**0.5
"""Standard deviation of inputs that are uniform on [−2, 2]²."""
_FRAMES = 25
"""Most epochs whose weights are saved."""
_BATCH = 200


@dataclass(frozen=True, eq=False)
class Trained:
    """Losses and shares of folds on the teacher's, [epoch, student], and weights by name, at the saved epochs."""

    epochs: list[int]
    values: dict[str, np.ndarray]
    weights: dict[str, Population]


def train_students(study: FoldStudy) -> Trained:
    """Train the students of a study, and compare their folds with the teacher's at several epochs."""
    seeds = study.student_seeds
    teacher = share(random_network(SIZES, SEED).population(), len(seeds))
    first = students.like_linear(teacher, multiple=study.multiple, seeds=seeds).to("cpu", torch.float64)
    data = Uniform(2, std=_STD, train=_BATCH * 40, evaluation=2_000)
    rate = Adam(lr=study.rate, batch=_BATCH, schedule=_schedule(study.epochs))
    training = Training([Group(first, teacher, data, SquaredError())], rate, steps=study.steps)
    # Closer together at the beginning, where folds move fast.
    epochs = np.unique((study.epochs * np.linspace(0, 1, _FRAMES) ** 1.5).round().astype(int)).tolist()
    theirs = folds(teacher)
    weights, losses, near = {"teacher": teacher}, [], []
    for epoch in range(study.epochs + 1):
        if epoch in epochs:
            now = training.populations()[0][list(range(len(seeds)))]  # a copy: training changes its weights in place
            weights[f"epoch.{epoch}"] = now
            losses.append(_losses(now, teacher, data))
            near.append([share_on_teacher(theirs, folds(now, which=i)) for i in range(len(seeds))])
        if epoch < study.epochs:
            training.advance()
    return Trained(epochs, {"loss": np.array(losses), "on_teacher": np.array(near)}, weights)


def _schedule(epochs: int) -> tuple[tuple[int, float], ...]:
    """Factors of the learning rate: 0.3 from the middle of training on, 0.05 in its last quarter."""
    starts = {max(1, epochs // 2): 0.3, max(1, epochs * 3 // 4): 0.05}
    return tuple(starts.items())


def _losses(now: Population, teacher: Population, data: Uniform) -> list[float]:
    """Mean squared error of each student, as a share of the variance of the teacher's output."""
    found = []
    for i, seed in enumerate(now.seeds.tolist()):
        x = data.evaluating(seed, dtype=torch.float64)
        with torch.no_grad():
            own, wanted = (_output(each[i], x) for each in (now, teacher))
        found.append(float((own - wanted).square().mean() / wanted.var()))
    return found


def _output(network: Population, x: torch.Tensor) -> torch.Tensor:
    from understudy.papers.equivalence.theory.relu_network import as_relu_network

    made, _ = as_relu_network("network", network)
    return torch.from_numpy(made(x.numpy()))


def share_on_teacher(teacher: Folds, student: Folds) -> float:
    """Share of the student's folds that are within 0.05 of one of the teacher, by length × jump of the gradient."""
    theirs, ours = teacher.subdivision, student.subdivision
    segments = theirs.points[theirs.edges[teacher.folds_function]]
    here = student.folds_function
    start, end = ours.points[ours.edges[here]].swapaxes(0, 1)
    strength = ours.lengths[here] * ours.jumps[here]
    if not (len(segments) and len(strength)):
        return 0.0
    points = start[:, None] + _ALONG[:, None] * (end - start)[:, None]
    near = (distances(points.reshape(-1, 2), segments) <= NEAR).reshape(len(start), -1).mean(axis=1)
    return float((near * strength).sum() / strength.sum())


def distances(points: np.ndarray, segments: np.ndarray) -> np.ndarray:
    """Distance of each point from the nearest of several segments."""
    start, along = segments[:, 0], segments[:, 1] - segments[:, 0]
    squares = np.maximum((along**2).sum(axis=1), 1e-300)
    to = points[:, None] - start
    share = np.clip((to * along).sum(axis=-1) / squares, 0, 1)
    found: np.ndarray = np.linalg.norm(to - share[..., None] * along, axis=-1).min(axis=1)
    return found
