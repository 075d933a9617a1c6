"""The study `random-labels`: what it trains, what it decides (P4), and what it reports."""

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
from understudy.papers.specialization.random_labels.study import LabelledStudents

FULL = LabelledStudents(seeds=8)
TINY = LabelledStudents(
    seeds=2, dim=6, teacher_nodes=2, outputs=3, multiple=(1.0, 4.0), train=30, evaluation=40, epochs=2, steps=20
)
LOSS = {"structured": (0.15, 0.003, 0.002, 0.002), "random": (1.9, 0.8, 0.01, 0.006)}
ACCURACY = {"structured": 0.71, "random": 0.1}
RISE = {"structured": 0.35, "random": 0.0}


def labels_run(loss=LOSS, accuracy=ACCURACY, rise=RISE, diverged=()):
    """Students with these values at the end; the seeds differ a little."""
    rows, values = [], {"train_loss": [], "accuracy": [], ("rho_mean", 0): []}
    for kind in ("structured", "random"):
        for place, multiple in enumerate(FULL.multiple):
            for seed in FULL.seed_names:
                off = 0.004 * (-1) ** seed
                rows.append({"labels": kind, "multiple": multiple, "seed": seed})
                rows[-1] |= {"diverged_at": 5 if len(rows) - 1 in diverged else None}
                values["train_loss"].append((np.nan, loss[kind][place]))
                values["accuracy"].append((0.1, accuracy[kind] + off))
                values["rho_mean", 0].append((0.48, 0.48 + rise[kind] + off))
    return made_run(rows, (0, 20), {key: np.array(value) for key, value in values.items()})


def decided(study, run):
    found = study.claims(run)
    json.dumps([claim.as_dict() for claim in found], allow_nan=False)
    return {claim.part: claim for claim in found}


# Claim P4

PARTS = (
    "both are fitted",
    "random labels need more nodes",
    "structured labels generalise",
    "random labels do not",
    "specialization",
)


@pytest.mark.parametrize(
    ("changed", "fails"),
    [
        ({}, None),
        ({"loss": LOSS | {"random": (1.9, 0.8, 0.06, 0.006)}}, PARTS[0]),
        ({"loss": LOSS | {"random": (1.9, 0.04, 0.01, 0.006)}}, PARTS[1]),
        ({"loss": LOSS | {"structured": (0.15, 0.06, 0.002, 0.002)}}, PARTS[1]),
        ({"accuracy": ACCURACY | {"structured": 0.5}}, PARTS[2]),
        ({"accuracy": ACCURACY | {"random": 0.11}}, PARTS[3]),
        ({"rise": RISE | {"random": 0.15}}, PARTS[4]),
    ],
)
def test_each_part_of_p4_can_fail(changed, fails):
    claims = decided(FULL, labels_run(**changed))
    assert tuple(claims) == PARTS
    assert {part for part, claim in claims.items() if not claim.holds} == ({fails} if fails else set())


def test_what_p4_states():
    claims = decided(FULL, labels_run())
    assert claims["both are fitted"].n == 2 * 2 * 8
    assert claims["specialization"].measured.startswith("rises 0.350 and 0.000; difference 0.35")
    assert claims["structured labels generalise"].n == 8
    assert claims["structured labels generalise"].tuned_on == "seeds 101 to 104"


@pytest.mark.parametrize("other", [{"train": 1_000}, {"seeds": 4}, {"labels": ("random",)}, {"lr": 0.2}])
def test_nothing_is_decided_in_other_settings(other):
    assert not dataclasses.replace(FULL, **other).claims(labels_run())


# What is trained


def test_groups_learn_labels_of_the_teacher_or_random_ones():
    made = TINY.experiment()
    assert [row["labels"] for row in made.parameters] == ["structured"] * 4 + ["random"] * 4
    assert all(group.labelled for group in made.groups)
    structured, _, random, _ = made.groups
    for n, seed in enumerate((1, 2)):
        x = structured.data.training(seed)
        assert torch.equal(x, random.data.training(seed))
        assert torch.equal(structured.data.training_labels(seed), structured.teacher[n](x)[0].argmax(1))
        assert not torch.equal(structured.data.training_labels(seed), random.data.training_labels(seed))
    assert structured.students.layers[0].weight.equal(random.students.layers[0].weight)


def test_options_are_validated():
    assert studies()["random-labels"] is LabelledStudents
    assert list(LabelledStudents(seeds=2, first_seed=101).seed_names) == [101, 102]
    with pytest.raises(UserError, match="--outputs must be at least 2, got 1"):
        LabelledStudents(outputs=1)
    with pytest.raises(UserError, match="--labels must be one of structured, random, got noisy"):
        LabelledStudents(labels=("noisy",))


# Report


def test_from_training_to_report(tmp_path):
    run = execute(TINY, tmp_path, Said())
    assert run.claims == []
    assert {path.stem for path in (run.folder / "figures").glob("*.pdf")} == {
        *("training-loss", "accuracy", "correlation")
    }
    story = TINY.story(run)
    assert story.headline.startswith("At 4× training loss and evaluation accuracy end at ")
    assert "nan" not in story.headline
    panel = story.figures[1].kind.panels[1]
    random = run.array("accuracy", "seed epoch", labels="random", multiple=4.0).to_numpy()
    np.testing.assert_allclose(panel.series[1].y, np.median(random, axis=0))


def test_a_run_in_which_every_network_diverged(tmp_path):
    study = dataclasses.replace(TINY, lr=1e9, epochs=1)
    run = execute(study, tmp_path, Said())
    assert study.story(run).headline.startswith("All 8 networks diverged")
