"""The study `hyperplanes`: what it trains, what it decides (T8), and what it reports."""

import dataclasses
import json

import numpy as np
import pytest

from support.commands import Said
from support.runs import made_run
from understudy._errors import UserError
from understudy.lab.discovery import studies
from understudy.lab.execute import execute
from understudy.papers.specialization.hyperplanes.claims import settled
from understudy.papers.specialization.hyperplanes.study import MovingHyperplanes

SMALLEST = MovingHyperplanes(scale=(1e-6,))
QUIET, LOUD = [2.0, 2.0, 2.0, 0.0, 0.0, 0.0], [2.0, 2.0, 2.0, 1.0, 0.0, 0.0]


def plane_run(*fanout, correlation=None, gap=None, teacher=None, scales=(1e-6,), diverged=()):
    """A run with the given fan-outs of six students per network at the end, of which three have teacher boundaries."""
    seeds = len(fanout) // len(scales)
    parameters = [{"scale": scale, "seed": s + 1} for scale in scales for s in range(seeds)]
    networks = [row | {"diverged_at": 5 if i in diverged else None} for i, row in enumerate(parameters)]
    columns = {
        "fanout": fanout,
        "correlation": [correlation or [1.0, 1.0, 1.0, 0.3, -0.2, 0.0]] * len(fanout),
        "sin_angle": [[0.001] * 6] * len(fanout),
        "bias_gap": [gap or [0.001] * 6] * len(fanout),
        "teacher": [teacher or [0, 1, 0, 1, 0, 0]] * len(fanout),
    }
    nodes = {("student", name): np.array(values, float)[:, None] for name, values in columns.items()}
    return made_run(networks, (0,), nodes=nodes)


# Claim T8


def test_t8_holds_where_both_boundaries_are_covered_and_the_others_are_quiet():
    covered, others = SMALLEST.claims(plane_run(*[[2.27, 2.19, 1.83, 0.01, 0.04, 0.0]] * 3))
    assert covered.holds
    assert covered.values == (2.0, 2.0, 2.0)
    assert others.holds
    assert others.values == pytest.approx([0.04 / 2.27] * 3)
    assert (others.id, others.high, others.n) == ("T8", 0.02, 3)


def test_t8_requires_every_seed():
    covered, others = SMALLEST.claims(plane_run(QUIET, [2.0, 2.0, 2.0, 0.041, 0.0, 0.0]))
    assert covered.holds
    assert not others.holds
    assert others.measured.startswith("under 2% in 1 of 2 seeds")


@pytest.mark.parametrize(
    "astray",
    [
        {"correlation": [1.0, 0.98, 1.0, 0.3, -0.2, 0.0]},
        {"gap": [0.001, 0.06, 0.001, 0.001, 0.001, 0.001]},
        {"teacher": [0, 0, 0, 1, 0, 0]},
    ],
)
def test_t8_detects_a_boundary_that_is_not_covered(astray):
    covered, _ = SMALLEST.claims(plane_run(QUIET, **astray))
    assert not covered.holds
    assert covered.values == (1.0,)


def test_t8_is_decided_on_the_smallest_initial_scale_with_the_others_beside_it():
    study = MovingHyperplanes(scale=(5e-3, 1e-6))
    covered, others = study.claims(plane_run(LOUD, QUIET, scales=study.scale))
    assert others.holds
    (variant,) = others.variants
    assert (variant.where, variant.holds) == ("initial scale 0.005", False)
    assert variant.measured.startswith("under 2% in 0 of 1 seeds")
    (variant,) = covered.variants
    assert (variant.where, variant.holds) == ("initial scale 0.005", True)
    assert variant.measured == "both covered in 1 of 1 seeds"


def test_t8_leaves_out_networks_that_diverged_and_runs_that_are_too_short():
    run = plane_run(QUIET, [np.nan] * 6, diverged={1})
    assert settled(run, 1e-6).networks.tolist() == [0]
    assert [claim.n for claim in SMALLEST.claims(run)] == [1, 1]
    assert MovingHyperplanes(scale=(1e-6,), epochs=100).claims(run) == []
    assert SMALLEST.claims(plane_run(QUIET, diverged={0})) == []


# Options and training


def test_the_study_is_registered():
    assert studies()["hyperplanes"] is MovingHyperplanes


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"angle": 180.0}, "--angle must be above 0 and below 180, got 180"),
        ({"scale": ()}, "--scale needs at least one value"),
        ({"scale": (0.0,)}, "--scale must be above 0, got 0"),
        ({"students": 1}, "--students must be at least 2, got 1"),
        ({"bias": float("nan")}, "--bias must be a finite number, got nan"),
    ],
)
def test_invalid_options_are_refused(options, words):
    with pytest.raises(UserError) as error:
        MovingHyperplanes(**options)
    assert str(error.value).startswith(words)


def test_the_experiment():
    made = MovingHyperplanes(seeds=2).experiment()
    assert [g.students.sizes for g in made.groups] == [(2, 6, 50)] * 3
    assert {0, 1, 600} <= made.keep
    assert 40 <= len(made.keep) <= 61
    assert made.parameters[2] == {"scale": 1e-4, "seed": 1}


def test_the_quick_study_is_read_back_from_its_config():
    quick = MovingHyperplanes.quick()
    assert MovingHyperplanes.from_config(json.loads(json.dumps(quick.config()))) == quick
    assert MovingHyperplanes().command() == "understudy run hyperplanes"


# From training to report


TINY = MovingHyperplanes(seeds=2, epochs=4, steps=25, outputs=5, train=100, evaluation=100, scale=(0.1, 0.01))


def test_from_training_to_report(tmp_path):
    run = execute(TINY, tmp_path, Said())
    story = TINY.story(run)
    assert story.headline.endswith(".")
    assert "nan" not in story.headline + "".join(n.value for n in story.numbers)
    assert 2 <= len(story.numbers) <= 4
    assert run.claims == []
    assert [figure.name for figure in story.figures] == ["hyperplanes", "others-fan-out"]
    for figure in story.figures:
        assert (run.folder / "figures" / f"{figure.name}.pdf").exists()
    assert (run.folder / "report.html").stat().st_size > 10_000
    assert (run.folder / "figures" / "hyperplanes.gif").exists()


def test_a_run_in_which_every_network_diverged(tmp_path):
    study = dataclasses.replace(TINY, lr=1e6)
    run = execute(study, tmp_path, Said())
    assert all(at is not None for at in run.column("diverged_at"))
    assert study.story(run).headline == "Every network diverged; choose a smaller --lr."
