"""The study of irrelevant nodes of deep students: lucky starts, the weights that are measured, and its claims."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import understudy as us
from support.commands import Said
from understudy.lab.execute import execute
from understudy.papers.luck.irrelevant_nodes import claims as decisions
from understudy.papers.luck.irrelevant_nodes.claims import IrrelevantWeights, claims, kept_epochs, weights_of
from understudy.papers.luck.irrelevant_nodes.story import story
from understudy.papers.luck.irrelevant_nodes.study import IrrelevantNodes, lucky

SMALL = IrrelevantNodes(
    seeds=2, device="cpu", hidden=(3, 4), dim=4, outputs=5, multiple=(3.0,), epochs=3, steps=400, evaluation=200
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return execute(SMALL, tmp_path_factory.mktemp("runs"), Said())


def test_lucky_starts_are_the_teacher_with_noise_and_all_other_weights_as_drawn():
    teacher = us.teachers.distinct_rows((4, 3, 4, 5), seeds=[1, 2], bias_spread=0.5)
    drawn = us.students.like_linear(teacher, multiple=3)
    started = lucky(teacher, drawn, 0.1)
    for theirs, before, after in zip(teacher.layers, drawn.layers, started.layers, strict=True):
        outs, ins = theirs.weight.shape[1:]
        near = theirs.weight + 0.1 * before.weight[:, :outs, :ins]
        torch.testing.assert_close(after.weight[:, :outs, :ins], near)
        torch.testing.assert_close(after.bias[:, :outs], theirs.bias + 0.1 * before.bias[:, :outs])
        changed = after.weight != before.weight
        changed[:, :outs, :ins] = False
        assert not changed.any() and torch.equal(after.bias[:, outs:], before.bias[:, outs:])
    exact = lucky(teacher, us.students.like_linear(teacher, multiple=1), 0.0)
    x = torch.randn(20, 4)
    torch.testing.assert_close(exact(x), teacher(x))


def test_weights_from_irrelevant_nodes_are_those_of_the_saved_students(run):
    start, end = (run.weights(f"epoch.{epoch}") for epoch in (0, 3))
    source = SMALL.source()
    for group, name in enumerate(SMALL.starts):
        for i, found in enumerate(weights_of(run, name, 3.0)):
            student, teacher = (each[group][i].to(dtype=torch.float64) for each in (end, run.weights("teacher")))
            x = source.evaluating(i + 1, dtype=torch.float64)
            ours, theirs = (each.activations(x).hidden for each in (student, teacher))
            rho = [us.measures.correlation(a, b)[0] for a, b in zip(theirs, ours, strict=True)]
            low = [(each.amax(0) < 0.8).numpy() for each in rho]
            active = [(each[0] > 0).double().mean(0).numpy() for each in ours]
            seen = [(each >= 0.02) & (each <= 0.98) for each in active]
            for layer in (0, 1):
                before, after = (each[group].layers[layer + 1].weight[i].double().numpy() for each in (start, end))
                rows = (rho[1].amax(0) > 0.95).numpy() if layer == 0 else np.ones(5, bool)
                columns = low[layer] & seen[layer]
                if rows.any() and columns.any():
                    block = [np.linalg.norm(each[np.ix_(rows, columns)]) for each in (before, after)]
                    assert found[layer].to_lucky[-1] == pytest.approx(block[1] / block[0])
                else:
                    assert np.isnan(found[layer].to_lucky).all()
                assert found[layer].left_out == (low[layer] & ~seen[layer]).sum()
            one, other = (
                each[group].layers[1].weight[i].double().numpy()[np.ix_(low[1], low[0] & seen[0])].ravel()
                for each in (start, end)
            )
            if one.size:
                assert found[0].cosine == pytest.approx(one @ other / np.linalg.norm(one) / np.linalg.norm(other))


def test_weights_relative_to_the_start_begin_at_one(run):
    assert kept_epochs(run) == [0, 1, 2, 3]
    for network in weights_of(run, "lucky", 3.0):
        for each in network:
            assert each.to_lucky.shape == (4,) and (np.isnan(each.to_lucky[0]) or each.to_lucky[0] == 1)


def test_the_report_shows_both_starts(run):
    told = story(SMALL, run)
    names = ["weights-lucky", "weights-random", "correlations-lucky", "correlations-random"]
    assert [figure.name for figure in told.figures] == names
    assert told.headline.startswith("With lucky starts, ")


def test_a_run_in_which_all_diverge_is_reported(tmp_path):
    fast = replace(SMALL, lr=1e9, seeds=1, starts=("random",))
    run = execute(fast, tmp_path, Said())
    assert weights_of(run, "random", 3.0) == []
    assert story(fast, run).headline.startswith("All 1 networks diverged")


def decided(monkeypatch, to_lucky=0.05, to_irrelevant=0.95, cosine=0.9, found=1.0):
    """Claims on ten networks per start with the same weights; with random starts nothing changes."""
    changes = {"lucky": IrrelevantWeights(np.array([1.0, to_lucky]), np.array([1.0, to_irrelevant]), cosine, 2, found)}
    changes["random"] = IrrelevantWeights(np.ones(2), np.ones(2), 1.0, 0, 0.5)
    monkeypatch.setattr(decisions, "weights_of", lambda run, start, multiple: [[changes[start]] * 3] * 10)
    return {claim.part: claim for claim in claims(IrrelevantNodes(), None)}


def test_all_parts_hold_where_weights_are_as_conjectured(monkeypatch):
    found = decided(monkeypatch)
    assert len(found) == 2 * (3 + 3 * 2) and all(claim.holds for claim in found.values())
    vanished = found["to lucky nodes, 2×, layer 3 to the outputs"]
    assert vanished.measured == "0.05 (seeds 0.05), 2 students left out"
    assert [variant.holds for variant in vanished.variants] == [False]


@pytest.mark.parametrize(
    ("change", "failing"),
    [
        ({"to_lucky": 0.2}, {"to lucky nodes"}),
        ({"to_lucky": 0.96}, {"to lucky nodes", "lucky against irrelevant"}),
        ({"to_irrelevant": 0.5}, {"to irrelevant nodes"}),
        ({"cosine": 0.5}, {"start decides"}),
    ],
)
def test_parts_do_not_hold_where_weights_are_not(monkeypatch, change, failing):
    found = decided(monkeypatch, **change)
    assert {part.partition(",")[0] for part, claim in found.items() if not claim.holds} == failing


def test_nothing_is_decided_unless_lucky_students_match(monkeypatch):
    assert {claim.holds for claim in decided(monkeypatch, found=0.8).values()} == {None}


def test_nothing_is_decided_without_irrelevant_students_that_are_partly_active(monkeypatch):
    found = decided(monkeypatch, to_lucky=np.nan)
    vanish = [claim for part, claim in found.items() if part.startswith("to lucky nodes")]
    assert {claim.holds for claim in vanish} == {None}
    assert all(claim.would_decide == "networks with such students" for claim in vanish)


def test_claims_are_decided_on_the_default_settings_only(run):
    assert claims(SMALL, run) == []
