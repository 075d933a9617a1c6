"""Every kind of figure is held to one contract; what a single kind promises beyond it follows below."""

import base64
import dataclasses
import json
import re
from typing import Any

import matplotlib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.text import Text
from PIL import Image

from understudy.report import figures, style

MULTIPLES = np.array([1, 2, 5, 10])


def _polarities(panels):
    return np.arange(panels) * 0.5 + 0.5


def _learning(panels, teachers, times, rng, lanes=0):
    """Sigmoid curves, the later the weaker the teacher node is."""
    start = 2 + 3.5 * np.arange(teachers) ** (0.4 + 0.3 * _polarities(panels))[:, None]
    t = np.linspace(0, 100, times)
    wide = np.broadcast_to(start[:, None], (panels, max(1, lanes), teachers))
    late = wide * np.exp(0.2 * rng.standard_normal(wide.shape))
    curve = 0.35 + 0.64 / (1 + np.exp(-(t - late[..., None]) / (0.12 * late[..., None] + 0.5)))
    return t, curve, late


def recovery_rate(panels=5, seed=0, **_):
    rng = np.random.default_rng(seed)
    index, p = np.arange(20), _polarities(panels)[:, None, None]
    reach = np.array([5, 9, 16, 24])[None, :, None] * 1.6 / np.sqrt(p)
    late = np.round(32 / (1 + np.exp((index - reach) / 1.3)) + rng.uniform(-1, 1, (panels, 4, 20))).clip(0, 32) / 32
    early = np.round(32 / (1 + np.exp((index - reach / 3) / 1.3))) / 32
    return figures.RecoveryRate(_polarities(panels), MULTIPLES, early, late, 5, 100, 32)


def best_correlation(panels=5, times=101, seed=0, **_):
    rng = np.random.default_rng(seed)
    t, curves, _ = _learning(panels, 20, times, rng, lanes=12)
    low, middle, high = np.quantile(curves, [0.25, 0.5, 0.75], axis=1)
    notes = tuple(f"log₁₀ loss −{6.5 - i * 0.25:.2f}" for i in range(panels))
    own = {"network": np.arange(panels * 12), "network_panel": np.repeat(np.arange(panels), 12)}
    own["network_correlation"] = curves.reshape(-1, 20, times)
    return figures.BestCorrelation(_polarities(panels), t, middle, low, high, notes, 12, **own)


def specialization(panels=3, times=4, seeds=32, seed=0, multiples=MULTIPLES, **_):
    rng = np.random.default_rng(seed)
    rows, number = [], 0
    for p in range(panels):
        row = []
        for m in multiples:
            count = 10 * m * seeds
            good = rng.random(count) < 0.75 / m + 0.12
            corr = np.where(good, 1 - 0.004 * rng.exponential(1, count), rng.uniform(0.2, 0.97, count))
            norm = np.where(good, rng.uniform(0.3, 3.0, count) / (1 + rng.integers(0, 10, count)) ** (p * 0.5), 0)
            norm = norm + 0.03 * rng.exponential(1, count)
            grow = np.linspace(0.4, 1, times)[:, None]
            teacher = np.broadcast_to(rng.integers(0, 10, count), (times, count))
            network = number + np.repeat(np.arange(seeds), 10 * m)
            number += seeds
            student = np.tile(np.arange(10 * m), seeds)
            ids = np.repeat(np.arange(seeds) + 1, 10 * m)
            row.append(figures.StudentNodes(grow * corr, grow * norm, teacher, network, student, ids))
        rows.append(tuple(row))
    losses = np.geomspace(0.4, 2e-7, panels * len(multiples)).reshape(panels, len(multiples))
    return figures.Specialization(
        np.arange(panels), np.asarray(multiples), np.geomspace(1, 100, times).round(), tuple(rows), losses
    )


def loss_curves(panels=6, times=101, seed=0, **_):
    rng = np.random.default_rng(seed)
    t = np.linspace(0, 100, times)
    floor = np.array([-1.6, -2.8, -5.5, -6.8])[None, :, None] * (1 + 0.05 * np.arange(panels))[:, None, None]
    runs = 0.2 + (floor + 0.5 * rng.standard_normal((8, panels, 4, 1)) - 0.2) * (1 - np.exp(-t / 22))
    runs = runs + 0.04 * rng.standard_normal(runs.shape)
    low, middle, high = np.quantile(runs, [0.25, 0.5, 0.75], axis=0)
    own = {"network": np.arange(8 * panels * 4), "network_panel": np.tile(np.repeat(np.arange(panels), 4), 8)}
    own["network_loss"] = runs.reshape(-1, times)
    return figures.LossCurves(np.arange(panels) * 0.5, MULTIPLES, t, middle, low, high, 32, **own)


def focus_shift(panels=3, times=41, seed=0, teachers=5, **_):
    rng = np.random.default_rng(seed)
    t = np.linspace(0, 40, times)
    students = 10
    curves = 0.15 * rng.standard_normal((panels, teachers, students, 1)) + 0.02 * np.cumsum(
        rng.standard_normal((panels, teachers, students, times)), -1
    ) / np.sqrt(times / 40 + 1)

    def rise(at, top):
        return top / (1 + np.exp(-(t - at) / 1.3))

    for net in range(panels):
        for s in range(students):
            first, at = (0 if s % 2 else rng.integers(teachers)), rng.uniform(1, 5)
            curves[net, first, s] = 0.1 + rise(at, 0.85)
            if s % 3 == 1 and teachers > 1:
                last, turn = rng.integers(1, teachers), rng.uniform(10, 28)
                curves[net, first, s] -= rise(turn, 0.9)
                curves[net, last, s] = 0.05 + rise(turn, 0.94)
    return figures.FocusShift(t, curves.clip(-0.5, 1), np.arange(panels) + 7, np.arange(panels) + 1)


def hyperplanes(panels=4, times=60, seed=0, **_):
    rng = np.random.default_rng(seed)
    teacher_w, teacher_b = np.array([[1.0, 0.4], [-0.5, 1.0]]), np.array([0.1, -0.12])
    start_w, start_b = rng.standard_normal((6, 2)), 0.3 * rng.standard_normal(6)
    goal_w, goal_b = start_w + 0.2, start_b + 0.1
    for k, j in ((0, 0), (1, 0), (4, 1), (5, 1)):
        goal_w[k], goal_b[k] = teacher_w[j] * 1.7, teacher_b[j] * 1.7
    way = (1 - np.exp(-4 * np.linspace(0, 1, times)))[:, None]
    weights = start_w + way[..., None] * (goal_w - start_w)
    biases = start_b + way * (goal_b - start_b)
    norms = 0.6 + way * (np.array([2.27, 0.66, 0.01, 0.0, 2.19, 1.83]) - 0.6)
    loss = 0.5 * np.exp(-12 * np.linspace(0, 1, times))
    epochs = np.arange(times)
    moments = tuple(np.linspace(0, times - 1, panels).round().astype(int).tolist())
    return figures.Hyperplanes(epochs, teacher_w, teacher_b, weights, biases, norms, loss, moments=moments, network=3)


def sample_curves(panels=2, times=7, seed=0, **_):
    rng = np.random.default_rng(seed)
    samples = np.array([150, 300, 1000, 3000, 10_000, 30_000, 100_000])[:times]
    train = np.full((panels, 2, len(samples)), 1e-5) * np.array([1, 1.5])[None, :, None] * (samples / 150) ** 0.2
    evaluation = np.array([0.006, 0.05])[None, :, None] * (samples / 150) ** np.array([-0.8, -1.1])[None, :, None]
    evaluation = evaluation * np.exp(0.1 * rng.standard_normal((panels, 2, len(samples)))) + 2e-5
    titles = tuple(f"p = {p:g}" for p in range(panels))
    sides = [a for part in (train, evaluation) for a in (part, part * 0.7, part * 1.5)]
    return figures.SampleCurves(titles, ("teacher-aware", "teacher-agnostic"), samples, *sides, 10)


def correlation_matrix(panels=2, seed=0, **_):
    rng = np.random.default_rng(seed)
    layers = []
    for i in range(panels):
        teachers, students = 20 + 10 * i, 60 + 40 * i
        matrix = 0.15 * rng.standard_normal((teachers, students))
        matrix[rng.integers(0, teachers, students), np.arange(students)] = rng.uniform(0.5, 1, students)
        layers.append(matrix.clip(-1, 1))
    return figures.CorrelationMatrix(tuple(f"layer {i + 1}" for i in range(panels)), tuple(layers), network=12)


def recovery_time(panels=5, times=2, seed=0, strength=False, **_):
    rng = np.random.default_rng(seed)
    nets = 32 if times > 1 else 1
    _, _, late = _learning(panels, 20, 2, rng, lanes=nets)
    first = np.where(late > 100, np.inf, np.ceil(late))
    powers = (np.arange(20) + 1.0) ** -_polarities(panels)[:, None] if strength else None
    network = np.arange(panels * nets).reshape(panels, nets)
    notes = tuple(f"rank corr. −0.{96 - p}" for p in range(panels))
    return figures.RecoveryTime(_polarities(panels), first, network, 100, powers, notes)


EXAMPLES = {
    figures.RecoveryRate: recovery_rate,
    figures.BestCorrelation: best_correlation,
    figures.Specialization: specialization,
    figures.LossCurves: loss_curves,
    figures.FocusShift: focus_shift,
    figures.Hyperplanes: hyperplanes,
    figures.SampleCurves: sample_curves,
    figures.CorrelationMatrix: correlation_matrix,
    figures.RecoveryTime: recovery_time,
}
