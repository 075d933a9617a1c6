"""Runs of computed studies: every network is paired with its own teacher, inputs and start."""

from collections.abc import Sequence
from dataclasses import fields

import pytest
import torch

import understudy as us
from support.made import computed_run
from understudy.lab.check_runs import NetworkPair, _pairs_of_run
from understudy.lab.discovery import studies
from understudy.papers.distillation.theory.linear_students import end_to_end
from understudy.papers.distillation.theory.soft_labels import limit, loss
from understudy.papers.local.theory import gaussian
from understudy.papers.local.theory.setting import as_students, as_teachers
from understudy.store import Run

pytestmark = pytest.mark.usefixtures("one_thread")


def made(name: str, **options) -> tuple[Run, Sequence[NetworkPair]]:
    """The tables and weights of a study, and what is checked of them."""
    run = computed_run(studies()[name](**options))
    return run, _pairs_of_run(run, 100)


def test_students_of_linear_distillation_end_where_their_start_and_inputs_lead():
    sizes = {"seeds": 1, "dim": 3, "inputs": (2,), "depths": (1, 2), "students": 1, "learned_inputs": (2, 4)}
    run, pairs = made("linear-distillation", **sizes, steps=1_000, probes=3, scales=(0.1,))
    assert len(pairs) == run.networks.num_rows
    assert sum(not pair.why for pair in pairs) >= 8
    balanced = {row["network"] for row in run.networks.to_pylist() if row["by"] == "descent"}
    for number in balanced:
        pair = pairs[number]
        x, teacher, start, end = pair.inputs(), pair.teacher(), pair.start(), pair.student()
        wanted = end_to_end(teacher)[0]
        expected = limit(end_to_end(start), x[None], wanted, len(end.layers))
        torch.testing.assert_close(end_to_end(end), expected, atol=5e-2, rtol=0)
        assert float(loss(end_to_end(end)[0], x, wanted)) == pytest.approx(float(run.series("loss")[number, -1]))
    found = us.check(run, networks=sorted(balanced))
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
