"""The study `lottery`: which students win, what is kept of them, claim D11, and its figures."""

import json
import shutil
from dataclasses import replace
from itertools import product

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import understudy as us
from support.curve_figures import labels, stacked, titles
from support.runs import made_run
from understudy._errors import UserError
from understudy.lab.execute import execute
from understudy.nets import with_nodes
from understudy.papers.luck.lottery.claims import claims, compared, final_losses
from understudy.papers.luck.lottery.story import pairs, story, won_again
from understudy.papers.luck.lottery.study import TICKETS, LotteryTickets, redrawn, winners
from understudy.papers.specialization.two_layer.study import TwoLayer
from understudy.report.terminal.tables import LiveDisplay
from understudy.store import Run

TEACHER = us.teachers.distinct_rows((6, 3, 4), seeds=[1, 2], dtype=torch.float64)
SOURCE = us.data.Gaussian(6, train=50, evaluation=400)
SMALL = {"seeds": 2, "teacher_nodes": 3, "multiple": (2.0, 3.0), "epochs": 2, "steps": 400, "dim": 6, "outputs": 4}
SMALL |= {"train": 40, "evaluation": 50, "device": "cpu"}
FIGURES = ["tickets", "loss-curves", "recovered", "layer-curves", "layer-specialization", "mean-rank"]
FIGURES += ["modulation-reset", "modulation-full"]


def with_copies(noise: float):
    """Students of 6 nodes; nodes 4, 0 and 2 start as the teacher's, up to noise, the others are drawn."""
    students = us.students.gaussian(TEACHER, multiple=2, scale=1.0)
    (weight, bias), top = students.layers
    theirs = TEACHER.layers[0]
    weight, bias = weight.clone(), bias.clone()
    for teacher, student in enumerate((4, 0, 2)):
        weight[:, student] = theirs.weight[:, teacher] + noise * weight[:, 5]
        bias[:, student] = theirs.bias[:, teacher]
    return replace(students, layers=(us.nets.Layer(weight, bias), top))


def test_winners_are_the_students_that_match():
    assert winners(TEACHER, with_copies(0.1), SOURCE).tolist() == [[4, 0, 2]] * 2


def test_a_student_wins_one_teacher_node_only():
    """Teacher nodes 0 and 1 are nearly one direction; student 0 is best for both, student 1 is the next best."""
    directions = torch.tensor([[1.0, 0.0], [1.0, 0.1]]).double()
    teacher = us.teachers.distinct_rows((2, 2, 1), seeds=1, bias=0.0, dtype=torch.float64)
    teacher = replace(teacher, layers=(teacher.layers[0]._replace(weight=directions[None]), teacher.layers[1]))
    near = torch.tensor([[1.0, 0.09], [1.0, -0.9], [-1.0, 0.3]]).double()
    students = us.students.gaussian(teacher, multiple=1.5)
    students = replace(students, layers=(students.layers[0]._replace(weight=near[None]), students.layers[1]))
    source = us.data.Gaussian(2, train=10, evaluation=2_000)
    assert winners(teacher, students, source).tolist() == [[1, 0]]


@given(which=st.permutations(range(6)), count=st.integers(1, 6))
def test_kept_and_dropped_nodes_add_up_to_the_network(which, count):
    students = with_copies(0.3)
    x = SOURCE.evaluating(1, dtype=torch.float64)[:20]
    some, others = (
        with_nodes(students, [torch.tensor([part, part], dtype=torch.long)]) for part in (which[:count], which[count:])
    )
    bias = students.layers[1].bias.unsqueeze(1)
    together = some.activations(x).output + (others.activations(x).output - bias if count < 6 else 0)
    assert torch.allclose(together, students.activations(x).output, rtol=0, atol=1e-12)
    mine, theirs = some.activations(x).hidden[0], students.activations(x).hidden[0][:, :, which[:count]]
    assert torch.allclose(mine, theirs, rtol=0, atol=1e-12)
    assert some.seeds.tolist() == students.seeds.tolist()


def test_each_network_keeps_its_own_nodes():
    students = us.students.gaussian(TEACHER, multiple=2)
    some = with_nodes(students, [torch.tensor([[0, 5], [3, 1]])])
    for net, nodes in enumerate(([0, 5], [3, 1])):
        assert torch.equal(some.layers[0].weight[net], students.layers[0].weight[net, nodes])
        assert torch.equal(some.layers[1].weight[net], students.layers[1].weight[net][:, nodes])


def test_redrawn_students_share_no_weight_with_the_given_ones_and_have_their_distribution():
    teacher = us.teachers.distinct_rows((40, 20, 30), seeds=range(1, 9), dtype=torch.float64)
    wide = {k: us.students.gaussian(teacher, multiple=k) for k in (1, 5, 10)}
    new = {k: redrawn(teacher, students) for k, students in wide.items()}
    for k, students in new.items():
        assert students.sizes == (40, 20, 30)
        assert students.seeds.tolist() == list(range(1, 9))
        for mine, theirs in zip(students.layers, wide[k].layers, strict=True):
            values = mine.weight.flatten()
            assert not torch.isin(values, theirs.weight.flatten()).any()
            assert abs(values.mean()) < 4 * 0.005 / len(values) ** 0.5
            assert values.std() == pytest.approx(0.005, rel=4 / (2 * len(values)) ** 0.5)
    assert not torch.equal(new[5].layers[0].weight, new[10].layers[0].weight)


def test_the_study_depends_on_the_same_students_trained_for_as_long():
    study = LotteryTickets(**SMALL, polarity=(0.5,), lr=0.02, input_std=1.0)
    (need,) = study.depends_on()
    assert type(need) is TwoLayer
    assert need.teacher_nodes == (3,)
    for name, value in study.options().items():
        assert name == "teacher_nodes" or getattr(need, name) == value


@pytest.fixture(scope="module")
def train(tmp_path_factory):
    """Trains and records without drawing the page."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("understudy.lab.execute.write_report", lambda *_: None)
        yield lambda study: execute(study, tmp_path_factory.mktemp("runs"), LiveDisplay("lottery"))


@pytest.fixture(scope="module")
def run(train):
    return train(LotteryTickets(**SMALL))


def test_tickets_start_from_the_run_they_depend_on_and_full_students_end_as_in_it(run):
    study = LotteryTickets(**SMALL)
    need = execute(study.depends_on()[0], run.folder.parents[1], LiveDisplay("lottery"))  # finished already
    begun, ended = (need.weights(f"epoch.{epoch}") for epoch in (0, 2))
    groups = run.weights("epoch.0")
    assert [group.sizes[1] for group in groups] == [3, 3, 6, 3, 3, 9]
    assert run.column("ticket").tolist() == [ticket for _ in (2, 3) for ticket in TICKETS for _ in (1, 2)]
    source, teacher = study.depends_on()[0].source(), need.weights("teacher")[0]
    for i, (first, last) in enumerate(zip(begun, ended, strict=True)):
        reset, _, full = groups[3 * i : 3 * i + 3]
        again = run.weights("epoch.2")[3 * i + 2]
        won = winners(teacher, last, source)
        for layer in range(2):
            assert torch.equal(full.layers[layer].weight, first.layers[layer].weight)
            assert torch.equal(again.layers[layer].weight, last.layers[layer].weight)
            assert torch.equal(reset.layers[layer].weight, with_nodes(first, [won]).layers[layer].weight)


def test_the_story_has_figures_of_every_network(run):
    study = LotteryTickets(**SMALL)
    found = story(study, run)
    assert [figure.name for figure in found.figures] == FIGURES
    assert "the 3 winners ended at a lower loss than as many re-initialised nodes in " in found.headline
    page = found.figures[0].kind.page()
    json.dumps(page, allow_nan=False)
    marked = [row[0] for trace in page["data"] if "customdata" in trace for row in trace["customdata"]]
    assert sorted(marked) == list(range(12))
    assert len(found.figures[0].kind.paper().axes) == 2
    assert claims(study, run) == []


# Every student of the one hidden layer


def drawn(run):
    return {figure.name: figure for figure in story(LotteryTickets(**SMALL), run).figures}


def measured_by_hand(run, network, epoch):
    """Correlations [teacher, student]; for teacher and student, activity [sample, node] and fan-out [output, node]."""
    seed = int(run.column("seed")[network])
    x = LotteryTickets(**SMALL).depends_on()[0].source().evaluating(seed).double().numpy()
    hidden, above = [], []
    for who in ("teacher", f"epoch.{epoch}"):
        (weight, bias), (top, _) = run.weights(who)[network // 2].layers
        net = network % 2
        hidden.append(np.maximum(x @ weight[net].double().numpy().T + bias[net].double().numpy(), 0))
        above.append(top[net].double().numpy())
    rho = np.corrcoef(*hidden, rowvar=False)[: above[0].shape[1], above[0].shape[1] :]
    return rho, [each > 0 for each in hidden], above


CELLS = list(product(range(2), range(3), range(2)))
"""(over-realization, ticket, seed), in the order of the networks."""


def test_curves_are_best_correlations_and_ranks_of_the_final_winners(run):
    found = drawn(run)
    rho, rank = found["layer-curves"].kind, found["mean-rank"].kind
    for kind in (rho, rank):
        assert (titles(kind), labels(kind)) == (("2×", "3×"), ("reset", "re-initialised", "full student"))
        assert (stacked(kind, "x") == [0, 1, 2]).all()  # also for ranks: all epochs of a run this short
        each = stacked(kind, "network_y")
        assert np.isfinite(each).all()
        np.testing.assert_allclose(stacked(kind, "y"), np.median(each, axis=2))
        band = [stacked(kind, "low"), stacked(kind, "high")]
        np.testing.assert_allclose(band, np.percentile(each, (25, 75), axis=2))
    for network, (k, ticket, seed) in enumerate(CELLS):
        first, last = (measured_by_hand(run, network, epoch)[0] for epoch in (0, 2))
        ours, ranks = (kind.panels[k].series[ticket] for kind in (rho, rank))
        assert ours.network[seed, 0] == ranks.network[seed, 0] == network
        wanted = [each.max(axis=1).mean() for each in (first, last)]
        np.testing.assert_allclose(ours.network_y[seed, [0, 2]], wanted, atol=1e-5)
        winner = last.argmax(axis=1)
        ahead = (first > first[np.arange(3), winner][:, None]).sum(axis=1)
        wanted = [(ahead / (first.shape[1] - 1)).mean(), 0]
        np.testing.assert_allclose(ranks.network_y[seed, [0, 2]], wanted)
    assert (stacked(rank, "y")[..., 0] > 0).any()


def test_every_student_is_shown_with_its_correlation_and_fan_out(run):
    figure = drawn(run)["layer-specialization"]
    kind = figure.kind
    assert (kind.groups, kind.layers) == (("reset", "re-initialised", "full student"), ("2×", "3×"))
    assert kind.epochs.tolist() == [0, 1, 2]
    for network, (k, ticket, seed) in enumerate(CELLS):
        cell = kind.cells[ticket][k]
        mine = cell.network == network
        assert set(cell.seed[mine]) == {seed + 1}
        assert cell.student[mine].tolist() == list(range(3 if ticket < 2 else (6, 9)[k]))
        for epoch in (0, 2):
            rho, _, (_, above) = measured_by_hand(run, network, epoch)
            np.testing.assert_allclose(cell.correlation[epoch, mine], rho.max(axis=0), atol=1e-5)
            np.testing.assert_allclose(cell.fan_out[epoch, mine], np.linalg.norm(above, axis=0), rtol=1e-5)
            np.testing.assert_array_equal(cell.teacher[epoch, mine], rho.argmax(axis=0))
    rho = run.series("rho_mean", 0).reshape(2, 3, 2, 3)
    np.testing.assert_allclose(kind.rho_mean, np.median(rho, axis=2).swapaxes(0, 1))
    page = kind.page()
    assert [words["text"] for words in page["layout"]["annotations"]][:2] == ["reset, 2×", "reset, 3×"]
    assert len(page["frames"]) == 3
    axes = kind.paper().axes
    assert [ax.get_title() for ax in axes] == ["2×", "3×", "", "", "", ""]
    assert [ax.get_ylabel() for ax in axes[::2]] == list(kind.groups)
    assert figure.caption.endswith("Reset and re-initialised networks have no node to spare.")


def test_students_of_one_polarity_are_shown(train):
    study = LotteryTickets(**SMALL, polarity=(1.0, 2.0))
    run = train(study)
    found = {figure.name: figure for figure in story(study, run).figures}
    assert found["layer-specialization"].kind.layers == ("2×, p = 2", "3×, p = 2")
    assert titles(found["layer-curves"].kind) == ("2×, p = 1", "3×, p = 1", "2×, p = 2", "3×, p = 2")
    shown = np.concatenate([cell.network for row in found["layer-specialization"].kind.cells for cell in row])
    assert set(run.column("polarity")[shown]) == {2.0}


@pytest.mark.parametrize(("ticket", "network", "words"), [("reset", 6, "reset winners"), ("full", 10, "full student")])
def test_matrices_are_of_the_first_network_with_the_widest_student(run, ticket, network, words):
    figure = drawn(run)[f"modulation-{ticket}"]
    assert figure.kind.network == network and f"network {network} ({words}, 3×), over 50 eval" in figure.caption
    assert figure.caption.endswith("% in β*.")  # no mean over layers: there is one layer
    assert figure.title.endswith(f": {words}")
    ((*h, before, after),) = figure.kind.cells
    for i, (epoch, beta) in enumerate(((0, before), (2, after))):
        _, (theirs, ours), (v_star, v) = measured_by_hand(run, network, epoch)
        plain = v.T @ v_star
        together = ours.astype(float).T @ theirs / len(ours)
        np.testing.assert_allclose(beta.values, plain[beta.student], rtol=1e-4, atol=1e-9)
        np.testing.assert_allclose(h[i].values, (plain * together)[h[i].student], rtol=1e-4, atol=1e-9)


def test_a_run_without_recorded_ranks_has_no_figure_of_them(run):
    older = Run(run.folder)
    older.__dict__["metrics"] = run.metrics.filter(pc.not_equal(run.metrics["metric"].cast(pa.string()), "mean_rank"))
    assert list(drawn(older)) == [name for name in FIGURES if name != "mean-rank"]


def without(run, lost, to):
    """The same run in which some networks diverged in their first epoch."""
    shutil.copytree(run.folder, to)
    alive = [5 if network in lost else None for network in range(12)]
    networks = run.networks.drop_columns(["diverged_at"]).append_column("diverged_at", pa.array(alive, pa.int64()))
    pq.write_table(networks, to / "networks.parquet")
    for name in ("metrics", "nodes"):
        table = pq.read_table(to / f"{name}.parquet")
        gone = np.isin(table["network"].to_numpy(), lost) & (table["epoch"].to_numpy() > 0)
        pq.write_table(table.filter(pa.array(~gone)), to / f"{name}.parquet")
    return Run(to)


def test_networks_that_diverged_are_left_out(run, tmp_path):
    left = without(run, [6, 10], tmp_path / "run")
    whole, found = drawn(run), drawn(left)
    assert list(found) == FIGURES
    assert [found[f"modulation-{ticket}"].kind.network for ticket in ("reset", "full")] == [7, 11]
    for ticket, other in ((0, 7), (2, 11)):
        assert set(found["layer-specialization"].kind.cells[ticket][1].network) == {other}
        for name in ("layer-curves", "mean-rank"):
            kind, before = found[name].kind, whole[name].kind
            series = kind.panels[1].series[ticket]
            assert series.network[0, 0] == -1
            np.testing.assert_allclose(series.y, before.panels[1].series[ticket].network_y[1])
            np.testing.assert_allclose(stacked(kind, "y")[0], stacked(before, "y")[0])


def test_if_all_full_students_diverged_their_panel_is_empty_and_they_have_no_matrices(run, tmp_path):
    found = drawn(without(run, [10, 11], tmp_path / "run"))
    assert list(found) == FIGURES[:-1]
    kind = found["layer-specialization"].kind
    assert kind.cells[2][1].network.size == 0
    assert np.isnan(kind.rho_mean[2, 1]).all()
    for figure in found.values():
        json.dumps(figure.kind.page(), allow_nan=False)
        assert figure.kind.paper().axes


# D11


def made(losses, diverged=(), nodes=None):
    """A run with given final log10 losses, seed by seed, by (polarity, multiple, ticket)."""
    names = ("polarity", "multiple", "ticket")
    rows = [
        dict(zip(names, key, strict=True)) | {"seed": seed}
        for key, each in losses.items()
        for seed, _ in enumerate(each, 1)
    ]
    for network in diverged:
        rows[network]["diverged_at"] = 3
    final = 10.0 ** np.concatenate([np.asarray(each, float) for each in losses.values()])
    final[list(diverged)] = np.nan
    return made_run(rows, range(2), {"eval_loss": np.stack([np.ones_like(final), final], axis=1)}, nodes)


def fake(reset, redrawn=None, full=None, others=(), **more):
    """A run with p = 1 and 10×, and the same losses in other settings."""
    n = len(reset)
    each = {"reset": reset, "redrawn": redrawn or [-3.0] * n, "full": full or [-6.0] * n}
    cells = [(1.0, 10.0), *others]
    return made({(p, k, ticket): each[ticket] for p, k in cells for ticket in TICKETS}, **more)


def study(n, **more):
    return LotteryTickets(**{"seeds": n, "multiple": (10.0,)} | more)


def test_d11_asks_for_four_fifths_of_the_seeds():
    lower, _ = claims(study(5), fake([-4, -4, -4, -4, -2.9]))
    assert (lower.id, lower.part, lower.n, lower.holds) == ("D11", "lower, 10×", 5, True)
    assert lower.values == pytest.approx([-1, -1, -1, -1, 0.1])
    assert "in 4 of 5 (80%); median log10 losses −4.00 against −3.00, full student −6.00" in lower.measured
    lower, _ = claims(study(5), fake([-4, -4, -4, -2.9, -2.9]))
    assert not lower.holds


@pytest.mark.parametrize(
    ("reset", "full", "holds"),
    [
        ([-4, -11.7], [-6, -6], True),
        ([-4, -10.9], [-6, -6], False),  # none is exact
        ([-4, -11.7], [-6, -11.1], False),  # a full student is exact, too
    ],
)
def test_d11_asks_for_an_exact_match_that_the_full_student_does_not_reach(reset, full, holds):
    _, exact = claims(study(2), fake(reset, full=full))
    assert (exact.part, exact.holds, exact.high) == ("exact, 10×", holds, -11.0)


def test_d11_is_decided_at_polarity_one_with_other_settings_beside_it():
    others = [(1.0, 5.0), (2.0, 5.0), (2.0, 10.0)]
    wide = study(2, multiple=(5.0, 10.0), polarity=(1.0, 2.0))
    found = claims(wide, fake([-4, -12], others=others))
    assert [claim.part for claim in found] == ["lower, 5×", "lower, 10×", "exact, 10×"]
    assert [b.where for b in found[0].variants] == ["p = 2, 5×"]
    assert [b.where for b in found[2].variants] == ["p = 1, 5×", "p = 2, 5×", "p = 2, 10×"]
    assert all(b.holds and b.measured == "1 of 2, full student 0" for b in found[2].variants)


def test_pairs_with_a_network_that_diverged_are_left_out():
    run = fake([-4, -2, -4], diverged={1, 2 * 3 + 2})
    lower, exact = claims(study(3), run)
    assert (lower.n, lower.holds, exact.n) == (2, True, 2)
    assert claims(study(3), fake([-4] * 3, diverged=range(3))) == []
    lower, exact = claims(study(2), fake([-4, -12], diverged={4, 5}))
    assert lower.measured.endswith("full student nan")
    assert exact.holds


@pytest.mark.parametrize("other", [{"epochs": 50}, {"lr": 0.02}, {"teacher_nodes": 10}, {"input_std": 10.0}])
def test_d11_is_decided_in_the_settings_of_the_paper_only(other):
    assert claims(study(2, **other), fake([-4, -12])) == []


def one_cell(run):
    (cell,) = compared(final_losses(run)).values()
    return cell


def test_winners_that_win_again_are_counted():
    best = np.array([[0, 1, 2, 3], [0, 0, 2, 3]] * 3, dtype=float)
    nodes = {("teacher", "student"): np.stack([np.zeros_like(best), best], axis=1)}
    run = made({(1.0, 10.0, ticket): [-4, -5] for ticket in TICKETS}, nodes=nodes)
    assert won_again(run, one_cell(run)).tolist() == [1.0, 0.75]


def test_lines_of_pairs_show_whether_reset_winners_end_lower():
    figure = pairs(final_losses(fake([-4, -12, -2.5])), {(1.0, 10.0): "10×"})
    page = figure.page()
    lines = [trace for trace in page["data"] if trace.get("hoverinfo") == "skip"]
    assert [trace["y"][:2] for trace in lines] == [[-3, -4], [-3, -2.5]]
    assert lines[0]["line"]["color"] != lines[1]["line"]["color"]
    assert page["layout"]["yaxis"]["range"][0] < -12
    (axes,) = figure.paper().axes
    assert axes.get_ylim()[0] < -12
    assert [label.get_text() for label in axes.get_xticklabels()] == ["re-initialised", "reset", "full student"]


def test_a_run_in_which_all_networks_diverged_names_the_rate_to_lower():
    found = story(study(2, lr=5.0), fake([-4, -4], diverged=range(6)))
    assert found.headline.startswith(
        "In every seed reset or re-initialised winners diverged: choose a smaller --lr than 5."
    )
    assert found.figures == ()


def test_students_with_fewer_nodes_than_the_teacher_are_refused():
    with pytest.raises(UserError, match=r"--multiple must be at least 1, got 0.5"):
        LotteryTickets(multiple=(0.5,))
