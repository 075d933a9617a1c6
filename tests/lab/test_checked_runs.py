"""Runs of computed studies: every network is paired with its own teacher, inputs and start."""

from collections.abc import Sequence
from dataclasses import fields, replace
from itertools import product

import numpy as np
import pytest
import torch

import understudy as us
from support.made import computed_run, run_of_pieces
from understudy.lab.check_runs import NetworkPair, _pairs_of_run
from understudy.lab.discovery import studies
from understudy.lab.pieces import network_tables
from understudy.nets import Layer, Population
from understudy.papers.distillation.theory.linear_students import balanced, end_to_end
from understudy.papers.distillation.theory.soft_labels import limit, loss
from understudy.papers.local.theory import gaussian
from understudy.papers.local.theory.setting import as_students, as_teachers
from understudy.store import Run

pytestmark = pytest.mark.usefixtures("one_thread")


def made(name: str, **options) -> tuple[Run, Sequence[NetworkPair]]:
    """The tables and weights of a study, and what is checked of them."""
    run = computed_run(studies()[name](**options))
    return run, _pairs_of_run(run, 100)


def with_product(students: Population, w: torch.Tensor) -> Population:
    """Linear students of the same shape whose end-to-end weights are given."""
    low, *above = (torch.zeros_like(layer.weight) for layer in students.layers)
    low[:, 0] = w
    for weight in above:
        weight[:, 0, 0] = 1
    return replace(students, layers=tuple(Layer(weight, None) for weight in (low, *above)))


def test_students_of_linear_distillation_end_where_their_start_and_inputs_lead():
    study = studies()["linear-distillation"](dim=3)
    task, seeds, pieces, losses = study.tasks()["polynomial"], [1, 2], [], []
    for n, depth, by in product((2, 4), (1, 2), ("flow", "descent")):
        x = task.inputs(seeds, n)
        start = balanced(x, task.teacher, depth, 1e-3 if depth > 1 else 0.0, seeds, 4)
        end = with_product(start, limit(end_to_end(start), x, task.teacher, depth))
        losses += loss(end_to_end(end), x, task.teacher).tolist()
        parameters = {"task": "polynomial", "depth": depth, "inputs": n, "by": by}
        kept = {"start": start, "end": end} if by == "descent" else None
        values = {"loss": np.array([losses[-2:]])}
        pieces.append(network_tables(2 * len(pieces), seeds, parameters, (0,), values, weights=kept))
    run = run_of_pieces(pieces, study.config())
    pairs = _pairs_of_run(run, 100)
    descents = [i for i, row in enumerate(run.networks.to_pylist()) if row["by"] == "descent"]
    assert [i for i, pair in enumerate(pairs) if not pair.why] == descents
    for number in descents:
        pair = pairs[number]
        x, start, end = pair.inputs(), pair.start(), pair.student()
        wanted = end_to_end(pair.teacher())[0]
        expected = limit(end_to_end(start), x[None], wanted, len(end.layers))
        torch.testing.assert_close(end_to_end(end), expected)
        assert float(loss(end_to_end(end)[0], x, wanted)) == pytest.approx(losses[number])
    found = us.check(run, networks=descents)
    applied = {finding.result for each in found for finding in each.findings if finding.applies}
    assert {"S3 theorem 5.1", "S3 theorem 5.2", "S3 theorem 5.3"} <= applied
    assert not found.summary.contradicted


def test_students_of_regimes_have_the_loss_that_their_run_recorded():
    study = studies()["regimes"]
    options = study.quick().options() | {"seeds": 1, "steps": 20}
    run, pairs = made("regimes", **{field.name: options[field.name] for field in fields(study)})
    losses = run.series("loss")
    assert [row["regime"] == "lazy" for row in run.networks.to_pylist()] == [bool(pair.why) for pair in pairs]
    for number, pair in enumerate(pairs):
        if pair.why:
            continue
        teachers = as_teachers(pair.teacher())
        for student, at in ((pair.start(), 0), (pair.student(), -1)):
            exact = float(gaussian.loss(as_students(student), teachers))
            assert exact == pytest.approx(float(losses[number, at]))
        assert float(pair.inputs().std()) == pytest.approx(1, rel=0.2)


def test_a_study_is_registered_once():
    from understudy.lab.check_runs import pairs_of

    with pytest.raises(ValueError, match="the networks of regimes are registered already"):
        pairs_of("regimes", "another")(lambda run, samples: [])
