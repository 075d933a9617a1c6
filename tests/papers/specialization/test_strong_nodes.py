"""The study of strong teacher nodes: what it records, and its claims on made runs."""

import numpy as np
import pytest
import torch

import understudy as us
from support.commands import Said
from support.runs import made_run
from understudy import measures
from understudy.lab.execute import execute
from understudy.lab.recovery import strengths
from understudy.papers.specialization.strong_nodes.claims import claims, gradients, student_counts
from understudy.papers.specialization.strong_nodes.story import story
from understudy.papers.specialization.strong_nodes.study import StrongNodes

SMALL = StrongNodes(
    seeds=2,
    device="cpu",
    teacher_nodes=3,
    polarity=(1.0,),
    multiple=(4.0,),
    dim=5,
    outputs=4,
    epochs=6,
    steps=400,
    train=1_000,
    evaluation=200,
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return execute(SMALL, tmp_path_factory.mktemp("runs"), Said())


def test_the_gradient_at_recovery_and_the_students_are_those_of_the_measures(run):
    networks = run.select()
    norms, counts = gradients(networks), student_counts(networks)
    order = np.argsort(-strengths(run), axis=1)
    assert np.isfinite(norms).any() and counts.sum() > 3
    for i, seed in enumerate((1, 2)):
        student, teacher = (each[i].to(dtype=torch.float64) for each in (run.students, run.teacher))
        x = SMALL.source().evaluating(seed, dtype=torch.float32).double()
        hidden = (each.activations(x).hidden[0] for each in (teacher, student))
        best = measures.best_teachers(measures.correlation(*hidden))
        assert counts[i].tolist() == measures.students_per_teacher(best, 3)[0][order[i]].tolist()
        end = measures.gradient_norm(student, x, teacher(x)[0]).item()
        assert run.series("gradient_norm")[i, -1] == pytest.approx(end, rel=1e-6)
        best = run.matched("teacher", "correlation")[i]
        for place, node in enumerate(order[i]):
            over = np.flatnonzero(best[:, node] > 0.95)
            expected = run.series("gradient_norm")[i, over[0]] if len(over) else np.nan
            np.testing.assert_equal(norms[i, place], expected)


def test_the_report_states_both_numbers(run):
    told = story(SMALL, run)
    assert [figure.name for figure in told.figures] == ["gradients", "students", "norms"]
    counts = student_counts(run.select())[:, 0]
    assert f"learned by {np.median(counts):g} students" in told.headline


def decided(norms=(1.0, 0.5, 0.2, 0.05), students=(5, 3, 2, 1), strongest=None, diverged=()):
    """Claims on ten seeds with four teacher nodes, the strongest recovered first, one per epoch, by their part.

    `norms` are the gradients at these epochs, `students` how many each teacher node has; `strongest` replaces the
    number of the strongest one in seed 1.
    """
    study = StrongNodes()
    seeds = range(1, 11)
    teacher = us.teachers.distinct_rows((3, 4, 2), polarity=1.0, seeds=seeds)
    networks = [{"polarity": 1.0, "multiple": 5.0, "seed": seed} for seed in seeds]
    for i in diverged:
        networks[i]["diverged_at"] = 7
    order = np.argsort(-us.teachers.strengths(teacher).numpy(), axis=1)
    rank = np.argsort(order, axis=1)  # of each teacher node, 0 for the strongest
    best = np.where(np.arange(5)[None, :, None] > rank[:, None, :], 0.99, 0.1)
    partner, rho = np.full((10, 5, 12), 3.0), np.full((10, 5, 12), 0.5)
    for i in range(10):
        counts = (strongest, *students[1:]) if strongest is not None and i == 0 else students
        nodes = np.repeat(order[i], counts)
        partner[i, :, : len(nodes)], rho[i, :, : len(nodes)] = nodes, 0.99
    made = made_run(
        networks,
        range(5),
        {"gradient_norm": np.tile((2.0, *norms), (10, 1))},
        {
            ("teacher", "correlation"): best,
            ("teacher", "student"): np.zeros((10, 5, 4)),
            ("student", "teacher"): partner,
            ("student", "correlation"): rho,
        },
        weights={"teacher": [teacher]},
    )
    return {claim.part: claim for claim in claims(study, made)}


def test_all_parts_hold_where_strong_nodes_come_first_and_have_most_students(monkeypatch):
    monkeypatch.setattr("understudy.papers.specialization.strong_nodes.claims._ENDS", (slice(2), slice(-2, None)))
    found = decided()
    parts = {part.removeprefix("p = 1, 5×, "): claim for part, claim in found.items()}
    assert {part: claim.holds for part, claim in parts.items()} == {
        "order": True,
        "size": True,
        "strongest": True,
        "strong and weak": True,
    }
    assert parts["order"].measured.startswith("1.00 (seeds ")
    assert parts["size"].values == (20.0,) * 10


@pytest.mark.parametrize(
    ("change", "failing"),
    [
        ({"norms": (0.05, 0.2, 0.5, 1.0)}, {"order", "size"}),
        ({"norms": (0.2, 0.5, 1.0, 0.05)}, {"order", "size"}),
        ({"norms": (1.0, 0.5, 0.4, 0.2)}, {"size"}),
        ({"strongest": 1}, {"strongest"}),
        ({"students": (2, 3, 4, 3)}, {"strong and weak"}),
    ],
)
def test_parts_do_not_hold_where_a_value_is_not_as_claimed(change, failing, monkeypatch):
    monkeypatch.setattr("understudy.papers.specialization.strong_nodes.claims._ENDS", (slice(2), slice(-2, None)))
    parts = {part.removeprefix("p = 1, 5×, "): claim.holds for part, claim in decided(**change).items()}
    assert {part for part, holds in parts.items() if not holds} == failing


def test_networks_that_diverged_are_left_out():
    assert decided(diverged=(0,), strongest=1)["p = 1, 5×, strongest"].n == 9
    assert decided(diverged=range(10)) == {}


def test_claims_are_decided_on_the_default_settings_only(run):
    assert claims(SMALL, run) == []
