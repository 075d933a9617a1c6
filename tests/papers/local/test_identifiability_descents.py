"""Recorded quantities of the descents of the study identifiability, with and without a fitted linear term."""

import numpy as np
import pytest
import torch

from understudy.lab.study import named_pieces
from understudy.papers.local.identifiability.study import Identifiability
from understudy.papers.local.theory import gaussian
from understudy.papers.local.theory.geometry import local_geometry, sides
from understudy.papers.local.theory.identifiability import linear_term, zero_sum_teachers
from understudy.papers.local.theory.teachers import random_teachers

SMALL = Identifiability(descents=2, teacher_nodes=(3,), dim=(4,), multiple=(2,), steps=30, batch=100)
KINDS = ("exact", "no", "fitted")
"""Descent on the exact loss, and on samples without and with a linear term."""


@pytest.fixture(scope="module")
def pieces():
    """Pieces with descents, by their kind."""
    made = [make() for name, make in named_pieces(SMALL).items() if name.startswith("descent")]
    return dict(zip(KINDS, made, strict=True))


def _series(piece, metric):
    """Values of a metric as [network, probe]."""
    rows = [row for row in piece["metrics"].to_pylist() if row["metric"] == metric]
    assert rows, metric
    return np.array([row["value"] for row in sorted(rows, key=lambda r: (r["network"], r["epoch"]))]).reshape(2, -1)


def _nodes(piece, which):
    return piece["weights"][which].layers[0].weight


@pytest.mark.parametrize("kind", KINDS)
def test_weights_and_slopes_of_networks_are_recorded(pieces, kind):
    kept = pieces[kind]["weights"]
    assert {population.slope for population in kept.values()} == {0.0}
    wanted = zero_sum_teachers(3, 4, (1, 2)) if kind == "exact" else random_teachers(3, 4, (1, 2), 0.5)
    assert torch.equal(kept["teacher"].layers[0].weight, wanted)


@pytest.mark.parametrize("kind", KINDS)
def test_quantities_of_the_proofs_are_those_of_the_absolute_value_part(pieces, kind):
    piece = pieces[kind]
    teachers = _nodes(piece, "teacher")
    found = local_geometry(_nodes(piece, "end"), teachers)
    for name in ("loss", "gradient_norm", "ratio", "squared_ratio"):
        assert _series(piece, f"absolute_{name}")[:, -1] == pytest.approx(getattr(found, name).numpy(), rel=1e-9), name
    for name in ("linear", "bent", "least_eigenvalue", "within"):
        assert _series(piece, name)[:, -1] == pytest.approx(getattr(found, name).numpy(), rel=1e-9), name
    for name, both in sides(found, teachers).items():
        assert _series(piece, f"{name} left")[:, -1] == pytest.approx(both.left.numpy(), rel=1e-9), name
    last = [row for row in piece["nodes"].to_pylist() if row["epoch"] == SMALL.steps]
    masses = [row["mass"] for row in last if row["role"] == "teacher"]
    assert masses == pytest.approx(found.mass.flatten().tolist(), rel=1e-9, abs=1e-15)
    assert [row["teacher"] for row in last if row["role"] == "student"] == found.assignment.flatten().tolist()


def test_losses_and_gradients_of_relu_students_are_those_of_the_relu_loss(pieces):
    piece, teachers = pieces["exact"], zero_sum_teachers(3, 4, (1, 2))
    loss, gradient = gaussian.loss_and_gradient(_nodes(piece, "end"), teachers, 0.0)
    norm = gradient.flatten(1).norm(dim=1)
    assert _series(piece, "loss")[:, -1] == pytest.approx(loss.numpy(), rel=1e-9)
    assert _series(piece, "gradient_norm")[:, -1] == pytest.approx(norm.numpy(), rel=1e-9)
    assert _series(piece, "ratio")[:, -1] == pytest.approx((norm / loss).numpy(), rel=1e-9)
    assert _series(piece, "squared_ratio")[:, -1] == pytest.approx((norm**2 / loss).numpy(), rel=1e-9)
    # The ReLU loss is a quarter of the |·| loss and half of the square of the linear term.
    line = linear_term(_nodes(piece, "end"), teachers).square().sum(-1) / 2
    assert loss.numpy() == pytest.approx(_series(piece, "absolute_loss")[:, -1] / 4 + line.numpy(), rel=1e-9)


def test_the_error_of_the_fitted_term_is_recorded(pieces):
    size, error = (_series(pieces["fitted"], name) for name in ("linear_term", "fit_error"))
    assert (error < 0.5 * size).all() and (error > 1e-6).all()
    metrics = pieces["no"]["metrics"]["metric"].to_pylist()
    assert "fit_error" not in metrics and "linear_term" not in metrics
