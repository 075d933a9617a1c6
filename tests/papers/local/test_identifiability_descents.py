"""Recorded quantities of the descents of the study identifiability, with and without a fitted linear term."""

import numpy as np
import pytest
import torch

from understudy.lab.study import named_pieces
from understudy.papers.local.identifiability.study import Identifiability
from understudy.papers.local.theory import gaussian
from understudy.papers.local.theory.geometry import local_geometry, sides
from understudy.papers.local.theory.identifiability import zero_sum_teachers

SMALL = Identifiability(descents=2, teacher_nodes=(3,), dim=(4,), multiple=(2,), steps=30)


@pytest.fixture(scope="module")
def pieces():
    """Pieces with small initial weights, by whether the linear term is fitted first."""
    made = {
        name: make for name, make in named_pieces(SMALL).items() if name.startswith("descent") and "anywhere" in name
    }
    return {"linear term" in name: make() for name, make in made.items()}


def _series(piece, metric):
    """Values of a metric as [network, probe]."""
    rows = [row for row in piece["metrics"].to_pylist() if row["metric"] == metric]
    assert rows, metric
    return np.array([row["value"] for row in sorted(rows, key=lambda r: (r["network"], r["epoch"]))]).reshape(2, -1)


def _students(piece, which):
    return piece["weights"][which].layers[0].weight


@pytest.mark.parametrize("linear", [False, True])
def test_weights_and_slopes_of_networks_are_recorded(pieces, linear):
    kept = pieces[linear]["weights"]
    assert {population.slope for population in kept.values()} == {-1.0 if linear else 0.0}
    teachers = zero_sum_teachers(3, 4, (1, 2))
    assert torch.equal(kept["teacher"].layers[0].weight, teachers / 2 if linear else teachers)


@pytest.mark.parametrize("linear", [False, True])
def test_quantities_of_the_proofs_are_those_of_the_absolute_value_part(pieces, linear):
    piece = pieces[linear]
    teachers = piece["weights"]["teacher"].layers[0].weight
    found = local_geometry(_students(piece, "end"), teachers)
    of = "" if linear else "absolute_"
    for name in ("loss", "gradient_norm", "ratio", "squared_ratio"):
        assert _series(piece, f"{of}{name}")[:, -1] == pytest.approx(getattr(found, name).numpy(), rel=1e-9), name
    for name in ("linear", "bent", "least_eigenvalue", "within"):
        assert _series(piece, name)[:, -1] == pytest.approx(getattr(found, name).numpy(), rel=1e-9), name
    for name, both in sides(found, teachers).items():
        assert _series(piece, f"{name} left")[:, -1] == pytest.approx(both.left.numpy(), rel=1e-9), name
    last = [row for row in piece["nodes"].to_pylist() if row["epoch"] == SMALL.steps]
    masses = [row["mass"] for row in last if row["role"] == "teacher"]
    assert masses == pytest.approx(found.mass.flatten().tolist(), rel=1e-9, abs=1e-15)
    assert [row["teacher"] for row in last if row["role"] == "student"] == found.assignment.flatten().tolist()


def test_losses_and_gradients_of_relu_students_are_those_of_the_relu_loss(pieces):
    piece, teachers = pieces[False], zero_sum_teachers(3, 4, (1, 2))
    loss, gradient = gaussian.loss_and_gradient(_students(piece, "end"), teachers, 0.0)
    norm = gradient.flatten(1).norm(dim=1)
    assert _series(piece, "loss")[:, -1] == pytest.approx(loss.numpy(), rel=1e-9)
    assert _series(piece, "gradient_norm")[:, -1] == pytest.approx(norm.numpy(), rel=1e-9)
    assert _series(piece, "ratio")[:, -1] == pytest.approx((norm / loss).numpy(), rel=1e-9)
    assert _series(piece, "squared_ratio")[:, -1] == pytest.approx((norm**2 / loss).numpy(), rel=1e-9)
    # The ReLU loss is a quarter of the sum of the |·| loss and the linear loss ½ ‖Σ ‖w‖w − Σ w*‖².
    students = _students(piece, "end")
    line = ((students.norm(dim=-1, keepdim=True) * students).sum(1) - teachers.sum(1)).square().sum(-1) / 2
    assert loss.numpy() == pytest.approx((_series(piece, "absolute_loss")[:, -1] + line.numpy()) / 4, rel=1e-9)
