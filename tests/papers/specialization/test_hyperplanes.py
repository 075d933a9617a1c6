"""The study `hyperplanes`: what it trains, what it decides (T8), and what it reports."""

import dataclasses
import json

import numpy as np
import pytest
import torch

from support.commands import Said
from support.runs import made_run
from understudy._errors import UserError
from understudy.lab.discovery import studies
from understudy.lab.execute import execute
from understudy.nets import Layer, Population
from understudy.papers.specialization.hyperplanes.claims import settled
from understudy.papers.specialization.hyperplanes.study import MovingHyperplanes

ONE = MovingHyperplanes(scale=(5e-3,))
QUIET, LOUD = [2.0, 2.0, 2.0, 0.0, 0.0, 0.0], [2.0, 2.0, 2.0, 1.0, 0.0, 0.0]
TEACHER = (((1.0, 0.0), -0.1), ((0.0, 1.0), -0.1))
ALIGNED = (((3.0, 0.0), -0.3), ((0.0, 0.5), -0.05), ((-1.0, 0.0), 0.1))  # the last in reversed orientation
SEEN, LINEAR, DEAD = ((1.0, 1.0), 0.0), ((1.0, 1.0), 50.0), ((1.0, 1.0), -50.0)
STUDENTS = (*ALIGNED, SEEN, SEEN, SEEN)


def layer(nodes, nets):
    weight, bias = (torch.tensor(each).expand(nets, *np.shape(each)) for each in zip(*nodes, strict=True))
    return Layer(weight, bias)


def plane_run(*fanout, students=STUDENTS, scales=(5e-3,), diverged=()):
    """A run with the given fan-outs of six students per network at the end."""
    nets = len(fanout)
    parameters = [{"scale": scale, "seed": s + 1} for scale in scales for s in range(nets // len(scales))]
    networks = [row | {"diverged_at": 5 if i in diverged else None} for i, row in enumerate(parameters)]
    seeds = torch.tensor([row["seed"] for row in parameters])
    top = Layer(torch.zeros(nets, 1, 6), None)
    weights = {
        "teacher": [Population((layer(TEACHER, nets), Layer(torch.ones(nets, 1, 2), None)), seeds)],
        "epoch.0": [Population((layer(students, nets), top), seeds)],
    }
    return made_run(networks, (0,), nodes={("student", "fanout"): np.array(fanout, float)[:, None]}, weights=weights)


# Claim T8


def test_t8_holds_where_both_boundaries_are_covered_and_the_others_are_quiet():
    covered, others = ONE.claims(plane_run(*[[2.27, 2.19, 1.83, 0.01, 0.04, 0.0]] * 3))
    assert covered.holds
    assert covered.values == (2.0, 2.0, 2.0)
    assert others.holds
    assert others.values == pytest.approx([0.04 / 2.27] * 3)
    assert (others.id, others.high, others.n) == ("T8", 0.02, 3)
    assert others.tuned_on.startswith("seeds 101 to 132; seeds 1 to 10 of those that decide it")


def test_t8_requires_every_seed():
    covered, others = ONE.claims(plane_run(QUIET, [2.0, 2.0, 2.0, 0.041, 0.0, 0.0]))
    assert covered.holds
    assert not others.holds
    assert others.measured.startswith("under 2% in 1 of 2 seeds")


@pytest.mark.parametrize(
    "astray",
    [((0.0, 1.0), -0.16), ((0.06, 1.0), -0.1), ((0.0, -1.0), -0.1), ((0.0, 0.0), -0.1)],
    ids=["offset", "turned", "reversed with the wrong offset", "without a direction"],
)
def test_t8_detects_a_boundary_that_is_not_covered(astray):
    covered, _ = ONE.claims(plane_run(QUIET, students=(ALIGNED[0], astray, *STUDENTS[2:])))
    assert not covered.holds
    assert covered.values == (1.0,)


def test_t8_counts_a_boundary_in_reversed_orientation():
    covered, _ = ONE.claims(plane_run(QUIET, students=(ALIGNED[2], ALIGNED[1], *STUDENTS[2:])))
    assert covered.holds


@pytest.mark.parametrize("unseen", [LINEAR, DEAD], ids=["linear", "dead"])
def test_t8_shows_students_that_are_linear_or_dead_beside_the_others(unseen):
    _, others = ONE.claims(plane_run(LOUD, students=(*ALIGNED, unseen, SEEN, SEEN)))
    assert others.holds
    assert others.values == (0.0,)
    assert others.measured.endswith("students active on fewer or more inputs are above 2% in 1 of 1")
    _, others = ONE.claims(plane_run(LOUD))
    assert not others.holds
    assert others.values == (0.5,)


def test_t8_leaves_students_that_are_still_approaching_a_boundary_out():
    near = ((1.0, 0.2), -0.1)
    covered, others = ONE.claims(plane_run([2.0, 2.0, 0.0, 1.0, 0.0, 0.0], students=(*ALIGNED, near, SEEN, SEEN)))
    assert (covered.holds, others.holds, others.values) == (True, True, (0.0,))


def test_t8_is_decided_on_the_scale_of_the_legend_with_the_others_beside_it():
    study = MovingHyperplanes(scale=(1e-6, 5e-3))
    covered, others = study.claims(plane_run(LOUD, QUIET, scales=study.scale))
    assert others.holds
    (variant,) = others.variants
    assert (variant.where, variant.holds) == ("initial scale 10⁻⁶", False)
    assert variant.measured.startswith("under 2% in 0 of 1 seeds")
    (variant,) = covered.variants
    assert (variant.where, variant.holds) == ("initial scale 10⁻⁶", True)
    assert variant.measured == "both covered in 1 of 1 seeds"
    assert MovingHyperplanes(scale=(1e-6,)).claims(plane_run(QUIET, scales=(1e-6,))) == []


def test_t8_leaves_out_networks_that_diverged_and_runs_that_are_too_short():
    run = plane_run(QUIET, [np.nan] * 6, diverged={1})
    assert settled(ONE, run, 5e-3).networks.tolist() == [0]
    assert [claim.n for claim in ONE.claims(run)] == [1, 1]
    assert MovingHyperplanes(scale=(5e-3,), epochs=100).claims(run) == []
    assert ONE.claims(plane_run(QUIET, diverged={0})) == []


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
    assert {0, 1, 1_000} <= made.keep
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
