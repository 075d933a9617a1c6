"""The study `focus-shift`: what it trains, what it decides (T7), and what it reports."""

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
from understudy.papers.specialization.focus_shift.study import FocusShifting

STRENGTH = np.array([2.0, 1.0, 0.5])


def curves(*epochs):
    """[epoch, teacher, student] of the correlations of one student with each teacher node."""
    return np.array(epochs, dtype=float)[:, :, None]


# Claim T7


def focus_run(*moves):
    """A run at 2× with one student per network; `moves` states whether it shifts."""
    networks = [{"teacher_nodes": 5, "polarity": 1.0, "multiple": 2.0, "seed": s + 1} for s in range(len(moves))]
    end = {True: (0.1, 0, 0.99), False: (0.99, 0, 0.1)}
    pairs = np.stack([curves((0, 0, 0), (0.9, 0.1, 0), end[move]) for move in moves])
    strength = torch.tensor(STRENGTH).expand(len(moves), 1, 3)
    layers = (Layer(torch.zeros(len(moves), 3, 1), None), Layer(strength, None))
    teacher = Population(layers, torch.arange(len(moves)))
    return made_run(networks, range(3), nodes={("pair", "correlation"): pairs}, weights={"teacher": [teacher]})


def test_t7_requires_a_student_that_shifts_in_every_network():
    (claim,) = FocusShifting(seeds=2).claims(focus_run(True, True))
    assert (claim.id, claim.part, claim.holds, claim.n, claim.values) == ("T7", "2×", True, 2, (1.0, 1.0))
    (claim,) = FocusShifting(seeds=2).claims(focus_run(True, False))
    assert not claim.holds
    assert "at least one in 1 of 2" in claim.measured


@pytest.mark.parametrize("other", [{"epochs": 100}, {"lr": 0.02}, {"teacher_nodes": 6}, {"steps": 2_000}])
def test_t7_is_decided_only_in_the_settings_of_the_paper(other):
    assert FocusShifting(seeds=2, **other).claims(focus_run(True, True)) == []


# Options and training


def test_the_study_is_registered():
    assert studies()["focus-shift"] is FocusShifting


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"teacher_nodes": 1}, "--teacher-nodes must be at least 2, got 1"),
        ({"multiple": (2.5, 2.5)}, "--multiple takes each value once, got 2.5 2.5"),
        ({"multiple": (1.5,)}, "--multiple 1.5 × 5 teacher nodes = 7.5 student nodes; choose a multiple"),
        ({"steps": 0}, "--steps must be at least 1, got 0"),
        ({"train": 8}, "--batch must be at most the number of training samples (8), got 16"),
    ],
)
def test_invalid_options_are_refused(options, words):
    with pytest.raises(UserError) as error:
        FocusShifting(**options)
    assert str(error.value).startswith(words)


def test_the_experiment():
    made = FocusShifting(seeds=2).experiment()
    assert [g.students.sizes for g in made.groups] == [(100, 10, 50), (100, 25, 50)]
    assert made.pairs
    assert (made.epochs, made.steps, len(made.parameters)) == (200, 200, 4)


def test_the_quick_study_is_read_back_from_its_config():
    quick = FocusShifting.quick()
    assert FocusShifting.from_config(json.loads(json.dumps(quick.config()))) == quick
    assert FocusShifting().command() == "understudy run focus-shift"


# From training to report


TINY = FocusShifting(seeds=1, epochs=4, steps=50, dim=10, outputs=5, train=100, evaluation=100)


def test_from_training_to_report(tmp_path):
    run = execute(TINY, tmp_path, Said())
    story = TINY.story(run)
    assert story.headline.endswith(".")
    assert "nan" not in story.headline + "".join(n.value for n in story.numbers)
    assert 2 <= len(story.numbers) <= 4
    assert run.claims == []
    assert [figure.name for figure in story.figures] == ["focus-shift", "focus-shift-counts"]
    for figure in story.figures:
        assert (run.folder / "figures" / f"{figure.name}.pdf").exists()
    assert (run.folder / "report.html").stat().st_size > 10_000
    assert not (run.folder / "figures" / "hyperplanes.gif").exists()


def test_a_run_in_which_every_network_diverged(tmp_path):
    study = dataclasses.replace(TINY, lr=1e6)
    run = execute(study, tmp_path, Said())
    assert all(at is not None for at in run.column("diverged_at"))
    assert study.story(run).headline.startswith("All 2 networks diverged, the first at step ")
