"""What a two-layer run decides, on runs made by hand whose answer is known: T1 to T6, T10 and T11."""

import dataclasses
import json
import shutil
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch

from support.commands import TINY, understudy
from support.runs import made_run
from understudy._errors import UserError
from understudy.lab.recovery import active_shares, first_epochs, strengths
from understudy.lab.write_report import write_report
from understudy.nets import Layer, Population
from understudy.papers.specialization.two_layer.claims import (
    best_correlations,
    by_size,
    rank_correlations,
    recovery_rates,
)
from understudy.papers.specialization.two_layer.claims import claims as decide
from understudy.papers.specialization.two_layer.story import story
from understudy.papers.specialization.two_layer.study import TwoLayer
from understudy.store import Run

EPOCHS = np.array([0, 5, 100])


class ByHand:
    """A run of given losses [network, epoch], best correlations of teachers and students, fan-outs and strengths.

    The arrays may be changed until the run is read. Students are active on half of the inputs, those in
    `given_linear` on all.
    """

    def __init__(self, networks, loss, teacher, student=None, fanout=None, strength=None):
        self.__dict__.update(
            given_networks=networks,
            given_loss=loss,
            given_teacher=teacher,
            given_student=student,
            given_fanout=fanout,
            given_strength=strength,
            given_linear=None if student is None else np.zeros(student[:, 0].shape, bool),
            given_epochs=EPOCHS,
        )

    def read(self) -> Run:
        names = ("teacher_nodes", "polarity", "multiple", "seed", "diverged_at")
        rows = [dict(zip(names, row, strict=True)) for row in self.given_networks]
        sizes = np.array([row["teacher_nodes"] for row in rows])
        recovered = (self.given_teacher > 0.95).sum(2) / sizes[:, None]
        nodes = {("teacher", "correlation"): self.given_teacher}
        if self.given_student is not None:
            nodes |= {("student", "correlation"): self.given_student, ("student", "fanout"): self.given_fanout}
        metrics = {"eval_loss": self.given_loss, ("recovered", 0): recovered}
        groups = []
        for m in dict.fromkeys(sizes.tolist()):
            strength = torch.from_numpy(np.asarray(self.given_strength, dtype=float)[sizes == m][:, :m])
            layers = (Layer(torch.zeros(*strength.shape, 1), None), Layer(strength[:, None, :], None))
            groups.append(Population(layers, torch.arange(len(strength))))
        weights = {"teacher": groups}
        if self.given_student is not None:
            weights |= {f"epoch.{epoch}": [self.students(len(rows))] for epoch in self.given_epochs}
        return made_run(rows, self.given_epochs, metrics, nodes, weights)

    def students(self, networks: int) -> Population:
        if self.given_linear is None:  # students given after the run was made
            self.given_linear = np.zeros(self.given_student[:, 0].shape, bool)
        bias = torch.from_numpy(np.where(self.given_linear, 1e3, 0.0)).float()
        weight = torch.ones(*bias.shape, 100)
        seeds = torch.ones(networks, dtype=torch.long)  # so that inputs are drawn once
        return Population((Layer(weight, bias), Layer(torch.zeros(networks, 1, bias.shape[1]), None)), seeds)


def run(settings, *, seeds=4, nodes=20, sizes=None, recovered=None, first=None, loss=None, diverged=()):
    """Networks of each (polarity, multiple), of one size of teacher or of several.

    `recovered` and `loss` are given by setting; `first` [node] is each node's epoch.
    """
    sizes = sizes or (nodes,)
    networks = [(m, float(p), float(k), s) for m in sizes for p, k in settings for s in range(1, seeds + 1)]
    networks = [(*net, 7 if i in diverged else None) for i, net in enumerate(networks)]
    count, nodes = len(networks), max(sizes)
    teacher = np.zeros((count, 3, nodes))
    final = np.ones((count, 3))
    for i, (m, p, k, *_) in enumerate(networks):
        if recovered is not None:
            teacher[i, 2, : recovered(p, k)] = 1
        if first is not None:
            teacher[i] = np.where(EPOCHS[:, None] >= first[None, :], 1.0, 0.0)
        if loss is not None:
            final[i, 2] = 10 ** loss(p, k)
        teacher[i, :, m:] = np.nan
    for i in diverged:
        teacher[i, 1:], final[i, 1:] = np.nan, np.nan
    return ByHand(networks, final, teacher, strength=np.tile(np.arange(nodes, 0, -1.0), (count, 1)))


FULL = TwoLayer()


def claims(study, made):
    return decide(study, made.read())


def decided(made: Run, id: str, study: TwoLayer = FULL) -> dict[str, bool]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return {claim.part: claim.holds for claim in claims(study, made) if claim.id == id}


PAPER = {0.5: -6.45, 1.0: -6.50, 1.5: -6.50, 2.0: -5.09, 2.5: -5.30}


@pytest.mark.parametrize("off", [-0.5, -0.39, 0.0, 0.39, 0.5])
def test_t1_holds_within_four_tenths_of_the_paper(off):
    made = run([(p, 5) for p in PAPER], loss=lambda p, k: PAPER[p] + off)
    assert decided(made, "T1") == {f"p = {p:g}": abs(off) < 0.4 for p in PAPER}


def test_t1_is_the_median_over_seeds():
    made = run([(0.5, 5)], seeds=5, loss=lambda p, k: -6.45)
    made.given_loss[:2, 2] = 1e3
    (claim,) = [claim for claim in claims(FULL, made) if claim.id == "T1"]
    assert claim.holds
    assert claim.n == 5
    assert claim.measured.startswith("−6.45 (quartiles −6.45 to 3.00)")


def test_t2_order_holds_where_stronger_nodes_come_first_and_not_where_weaker_ones_do():
    assert decided(run([(1, 5)], seeds=32, recovered=lambda p, k: 8), "T2") == {"order": True}
    turned = run([(1, 5)], seeds=32)
    turned.given_teacher[:, 2, 12:] = 1
    assert decided(turned, "T2") == {"order": False}


def test_t2_allows_what_seeds_do_by_chance():
    made = run([(1, 5)], seeds=32, recovered=lambda p, k: 8)
    made.given_teacher[0, 2, 15] = 1  # one weak node, in one seed of 32
    assert decided(made, "T2") == {"order": True}


@pytest.mark.parametrize(("count", "holds"), [(5, False), (6, True), (9, True), (10, False)])
def test_t2_at_high_polarity_wants_the_strongest_six_and_none_from_the_tenth_on(count, holds):
    made = run([(2.5, 5)], recovered=lambda p, k: count)
    assert decided(made, "T2")["p = 2.5, 5×"] is holds


def test_t3_holds_where_wider_students_recover_no_fewer():
    wide = run([(1, 1), (1, 5), (2, 1), (2, 5)], recovered=lambda p, k: 20 if k == 5 else 7)
    assert decided(wide, "T3") == {"p = 1": True, "p = 2": True, "p = 1, all nodes": True}
    narrow = run([(1, 1), (1, 5)], recovered=lambda p, k: 19 if k == 5 else 20)
    assert decided(narrow, "T3") == {"p = 1": False, "p = 1, all nodes": False}


def test_t3_wants_one_times_to_fall_short_somewhere():
    every = run([(1, 1), (1, 5)], recovered=lambda p, k: 20)
    assert decided(every, "T3") == {"p = 1": True, "p = 1, all nodes": False}


def test_t3_says_nothing_below_polarity_one_or_of_one_width():
    assert decided(run([(0.5, 1), (0.5, 5)]), "T3") == {}
    assert "p = 2" not in decided(run([(2, 5)]), "T3")


def _silent(share: float, seeds: int = 12) -> ByHand:
    """Students of which the last matches nobody and holds a share of the squared fan-out."""
    made = run([(1, 2)], seeds=seeds, nodes=10)
    made.given_student = np.ones((seeds, 3, 20))
    made.given_student[:, :, -1] = 0.3
    made.given_linear = np.zeros((seeds, 20), bool)
    made.given_fanout = np.ones((seeds, 3, 20))
    made.given_fanout[:, :, -1] = np.sqrt(19 * share / (1 - share))
    return made


@pytest.mark.parametrize(
    ("share", "below_8", "below_5"), [(1e-6, True, True), (0.019, True, False), (0.021, False, False)]
)
def test_t4_holds_where_students_that_match_nobody_are_silent(share, below_8, below_5):
    assert decided(_silent(share), "T4") == {"p = 1, 2×": below_8, "below 0.5": below_5}


def test_t4_counts_linear_students_beside_those_whose_boundary_the_inputs_see():
    made = _silent(0.3)
    made.given_linear[:2, -1] = True
    claim, below = (claim for claim in claims(FULL, made) if claim.id == "T4")
    assert not claim.holds  # ten networks have a student that the inputs see
    assert claim.values == pytest.approx([0.0] * 2 + [0.3] * 10)
    assert [str(variant) for variant in claim.variants] == [
        "with students active on fewer or more: largest 30.00%, median 30.00%; under 2% in 0 of 12; "
        "2 of these in 2 of 12 networks (does not hold)"
    ]
    assert (below.measured, below.holds) == ("median 100.0% over 10 students (quartiles 100.0%)", False)
    assert below.variants[0].measured.startswith("median 100.0% over 12 students")
    made.given_linear[:, -1], made.given_linear[:, 0] = False, True
    assert decided(made, "T4") == {"p = 1, 2×": False, "below 0.5": False}


def test_t4_takes_no_median_of_few_students():
    made = _silent(0.3)
    made.given_linear[:3, -1] = True
    assert decided(made, "T4") == {"p = 1, 2×": False, "below 0.5": None}
    made.given_linear[:, -1] = True
    assert decided(made, "T4") == {"p = 1, 2×": True}


def test_shares_of_inputs_on_which_students_of_several_widths_and_seeds_are_active():
    made = _silent(0.3, seeds=3)
    made.given_linear[:, :10] = True
    three = dataclasses.replace(made.students(3), seeds=torch.tensor([1, 2, 3]))
    wide = Population(
        (Layer(torch.zeros(1, 30, 100), torch.ones(1, 30)), Layer(torch.zeros(1, 1, 30), None)), three.seeds[:1]
    )
    several = made_run([{"seed": seed} for seed in (1, 1, 2, 3)], weights={"epoch.100": [wide, three]})
    found = active_shares(several, FULL.source(), 100)
    assert found.shape == (4, 30)
    assert (found[0] == 1).all()
    assert np.isnan(found[1:, 20:]).all()
    assert (found[1:, :10] == 1).all()
    for seed, row in enumerate(found[1:], 1):
        x = FULL.source().evaluating(seed)
        np.testing.assert_allclose(row[10:20], (x.sum(1) > 0).double().mean())
    assert len(set(found[1:, 10])) == 3


def test_t5_holds_where_stronger_nodes_are_recovered_earlier():
    order = np.repeat([0.0, 5.0, 100.0, np.inf], 5)
    good = run([(1, 5), (2, 5)], first=order)
    assert decided(good, "T5") == {"p = 1": True, "p = 2": True}
    turned = run([(1, 5)], first=order[::-1])
    assert decided(turned, "T5") == {"p = 1": False}


def test_t5_leaves_out_runs_in_which_nothing_is_recovered():
    assert decided(run([(1, 5)]), "T5") == {}


def test_rank_correlations_are_over_the_nodes_that_were_recovered():
    first = np.array([[1.0, 2.0, 3.0, np.inf], [3.0, 2.0, 1.0, np.inf], [1.0, 1.0, np.inf, np.inf]])
    np.testing.assert_allclose(rank_correlations(first, np.tile([4.0, 3.0, 2.0, 9.0], (3, 1))), [-1, 1])


def test_first_epochs_and_strengths_of_a_run():
    made = run([(1, 5)], seeds=2, nodes=4, first=np.array([0.0, 5.0, 100.0, np.inf]))
    np.testing.assert_array_equal(first_epochs(made.read()), [[0, 5, 100, np.inf]] * 2)
    np.testing.assert_allclose(strengths(made.read()), [[4, 3, 2, 1]] * 2)


def test_recovery_rates_are_over_the_networks_that_are_left():
    made = run([(1, 1), (1, 5)], seeds=3, nodes=4, recovered=lambda p, k: 2, diverged=(0, 3, 4, 5))
    made.given_teacher[1, 2, 1] = 0.95
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rates = recovery_rates(made.read().select(), 4, 100)
        np.testing.assert_array_equal(rates, [[[1, 0.5, 0, 0], [np.nan] * 4]])


def test_t6_holds_where_the_loss_falls_with_width():
    settings = [(p, k) for p in (1, 2) for k in (1, 2, 5)]
    falls = run(settings, loss=lambda p, k: -k)
    assert decided(falls, "T6") == {"1× worst, p = 1": True, "1× worst, p = 2": True, "order, p = 2": True}
    rises = run(settings, loss=lambda p, k: -3 if k == 5 else -2 * k)
    assert decided(rises, "T6") == {"1× worst, p = 1": True, "1× worst, p = 2": True, "order, p = 2": False}
    best = run(settings, loss=lambda p, k: -1 if k == 5 else -2 * k)
    assert decided(best, "T6") == {"1× worst, p = 1": False, "1× worst, p = 2": False, "order, p = 2": False}


def test_t6_shows_the_strict_order_beside_where_it_is_not_claimed():
    made = run([(1, 1), (1, 2), (1, 5)], loss=lambda p, k: -3 if k == 5 else -2 * k)
    (claim,) = [claim for claim in claims(FULL, made) if claim.id == "T6"]
    assert [(variant.where, variant.holds) for variant in claim.variants] == [("strictly ordered by width", False)]


@pytest.mark.parametrize(("noise", "holds"), [(0.5, True), (2.0, False)])
def test_t6_allows_for_the_noise_of_seeds(noise, holds):
    made = run([(1, 1), (1, 2)], seeds=4, loss=lambda p, k: -k)
    made.given_loss[4:, 2] *= 10 ** (noise * np.array([-1.0, 1.0, -1.0, 1.0]))
    # Differences 1 ± noise of four seeds: a standard error of noise / √3, so 1 / (noise / √3) of them above 0.
    assert decided(made, "T6") == {"1× worst, p = 1": holds}


def test_t6_needs_a_student_of_the_teachers_size():
    assert decided(run([(1, 2), (1, 5)], loss=lambda p, k: -k), "T6") == {}


def _longer(made: ByHand) -> ByHand:
    """The run trained for 300 epochs, with the same values at the end as at epoch 100."""
    made.given_epochs = np.array([0, 5, 100, 300])
    for name in ("given_loss", "given_teacher", "given_student", "given_fanout"):
        if (values := getattr(made, name)) is not None:
            setattr(made, name, np.concatenate([values, values[:, -1:]], axis=1))
    return made


def test_longer_runs_are_decided_at_epoch_100_with_the_end_beside_it():
    longer = dataclasses.replace(FULL, epochs=300)
    made = _longer(run([(1, 1), (1, 2)], loss=lambda p, k: -k))
    made.given_loss[:, 3] = made.given_loss[::-1, 2]
    (claim,) = claims(longer, made)  # T1 to T5 are decided by runs of 100 epochs
    assert (claim.id, claim.part, claim.holds) == ("T6", "1× worst, p = 1", True)
    assert [(v.where, v.holds) for v in claim.variants] == [
        ("strictly ordered by width", True),
        ("after 300 epochs", False),
    ]
    assert claim.measured.startswith("1×: −1.00 (−1.00 to −1.00), 2×: −2.00")
    assert claim.variants[1].measured.startswith("1×: −2.00 (−2.00 to −2.00), 2×: −1.00")


def test_students_too_are_read_at_epoch_100():
    made = _longer(_silent(0.3))
    made.given_student[:, 2] = 1.0
    parts = claims(dataclasses.replace(FULL, epochs=300, leaky=0.2), made)
    (claim,) = [claim for claim in parts if claim.part.startswith("leaky 0.2, T4")]
    assert (claim.holds, claim.variants[-1].where, claim.variants[-1].holds) == (True, "after 300 epochs", False)


def test_runs_that_are_longer_keep_the_weights_of_epoch_100():
    small = TwoLayer(seeds=1, polarity=(1.0,), multiple=(1.0,), dim=8, outputs=4)
    assert small.experiment().keep == frozenset()
    assert dataclasses.replace(small, epochs=300).experiment().keep == {100}


@pytest.mark.parametrize("change", [{"leaky": 0.2}, {"inputs": "uniform"}], ids=["leaky", "uniform"])
def test_t10_decides_t2_and_t4_for_other_activations_and_inputs(change):
    variant = "leaky 0.2" if "leaky" in change else "uniform ±2.6"
    good = run([(3, 5)], seeds=32, recovered=lambda p, k: 8)
    assert decided(good, "T10", dataclasses.replace(FULL, **change)) == {f"{variant}, T2, order": True}
    turned = run([(3, 5)], seeds=32)
    turned.given_teacher[:, 2, 12:] = 1
    assert decided(turned, "T10", dataclasses.replace(FULL, **change)) == {f"{variant}, T2, order": False}
    for share, holds in ((1e-6, True), (0.3, False)):
        parts = decided(_silent(share), "T10", dataclasses.replace(FULL, **change))
        assert parts == {f"{variant}, T4, p = 1, 2×": holds, f"{variant}, T4, below 0.5": holds}


def test_t10_holds_uniform_inputs_of_the_figures_spread_to_the_losses_of_t1():
    uniform = dataclasses.replace(FULL, inputs="uniform")
    for loss, holds in ((-6.4, True), (-5.5, False)):
        made = run([(1, 5)], loss=lambda p, k, loss=loss: loss)
        assert decided(made, "T10", uniform)["uniform ±2.6, T1, p = 1"] is holds


def test_t10_reads_t1_and_t2_on_the_uniform_inputs_of_the_text_too():
    narrow = dataclasses.replace(FULL, inputs="uniform", input_std=3**-0.5)
    for nodes, holds in ((4, False), (6, True)):
        made = run([(2.5, 5)], seeds=32, recovered=lambda p, k, nodes=nodes: nodes, loss=lambda p, k: -5.3)
        parts = {"uniform ±1, T1, p = 2.5": True, "uniform ±1, T2, order": True, "uniform ±1, T2, p = 2.5, 5×": holds}
        assert decided(made, "T10", narrow) == parts


WIDE = dataclasses.replace(FULL, input_std=10.0)


def test_t11_counts_the_networks_that_diverge_at_the_rate_of_the_text():
    made = run([(1, 1), (1, 5)], seeds=2, diverged=(0, 1, 2, 3))
    (claim,) = claims(WIDE, made)
    assert (claim.id, claim.part, claim.holds, claim.n) == ("T11", "rate 0.01", False, 4)
    assert claim.measured == "4 of 4 diverged, the first at step 7, the last at step 7"
    (claim,) = claims(WIDE, run([(1, 1), (1, 5)], seeds=2))
    assert claim.holds
    assert claim.measured == "0 of 4 diverged"


def test_t11_reads_the_other_claims_at_another_rate():
    made = run([(2.5, 5)], seeds=32, recovered=lambda p, k: 8, loss=lambda p, k: -4.5)
    assert decided(made, "T11", dataclasses.replace(WIDE, lr=0.001)) == {
        "rate 0.001": True,
        "std 10, rate 0.001, T1, p = 2.5": False,
        "std 10, rate 0.001, T2, order": True,
        "std 10, rate 0.001, T2, p = 2.5, 5×": True,
    }
    assert all("seeds 101 to 104" in claim.tuned_on for claim in claims(dataclasses.replace(WIDE, lr=0.001), made))
    assert decided(_silent(1e-6), "T11", dataclasses.replace(WIDE, lr=0.001)) == {
        "rate 0.001": True,
        "std 10, rate 0.001, T4, p = 1, 2×": True,
        "std 10, rate 0.001, T4, below 0.5": True,
    }


def test_t10_names_every_departure():
    both = dataclasses.replace(FULL, inputs="uniform", leaky=0.2)
    assert list(decided(run([(3, 5)], seeds=32), "T10", both)) == ["leaky 0.2, uniform ±2.6, T2, order"]


@pytest.mark.parametrize("change", [{"epochs": 99}, {"evaluation": 20}, {"lr": 0.02}, {"input_std": 1.0}])
def test_nothing_is_decided_away_from_the_papers_settings(change):
    made = run([(1, 1), (1, 5)], recovered=lambda p, k: 20)
    assert claims(dataclasses.replace(FULL, **change), made) == []


# Several sizes of teacher.


def test_nothing_is_decided_on_teachers_of_another_size():
    made = run([(1, 1), (1, 5)], sizes=(5, 15), recovered=lambda p, k: 15)
    assert claims(FULL, made) == []


def _said(made: Run, id: str, part: str) -> tuple[bool, str]:
    (claim,) = [claim for claim in claims(FULL, made) if (claim.id, claim.part) == (id, part)]
    return claim.holds, "; ".join((claim.measured, *map(str, claim.variants)))


def _sweep(**given) -> ByHand:
    """5, 10 and 20 teacher nodes, with students to look at."""
    made = run([(1, 1), (1, 5)], sizes=(5, 10, 20), seeds=2, **given)
    made.given_student, made.given_fanout = np.ones((12, 3, 100)), np.ones((12, 3, 100))
    return made


def test_the_papers_size_decides_and_the_others_stand_beside_it():
    made = _sweep(loss=lambda p, k: -k)
    small = [i for i, (m, p, k, *_) in enumerate(made.given_networks) if m == 5 and k == 5]
    made.given_loss[small, 2] = 0.1
    falls = (
        "1×: −1.00 (−1.00 to −1.00), 5×: −5.00 (−5.00 to −5.00); 1× above 5× by 4.00, 4 (all equal) above 0 (required: "
        "more than 2)"
    )
    equal = (
        "1×: −1.00 (−1.00 to −1.00), 5×: −1.00 (−1.00 to −1.00); 1× above 5× by 0.00, 0 (all equal) above 0 (required: "
        "more than 2)"
    )
    assert _said(made, "T6", "1× worst, p = 1") == (
        True,
        f"{falls}; strictly ordered by width: {falls} (holds); 5 nodes: {equal} (does not hold); 10 nodes: {falls} "
        "(holds)",
    )


def test_t3_and_t5_count_the_nodes_of_each_size():
    first = np.array([0.0, 5.0, 5.0, 100.0, 100.0, *[np.inf] * 15])
    made = _sweep(first=first)
    holds, measured = _said(made, "T3", "p = 1, all nodes")
    assert not holds
    assert "all 20 in 0 of 2 seeds at 5×, in 0 of 2 at 1×" in measured
    assert "5 nodes: all 5 in 2 of 2 seeds at 5×, in 2 of 2 at 1× (does not hold)" in measured
    holds, measured = _said(made, "T5", "p = 1")
    assert holds
    assert "; 5 nodes: −0.949 (quartiles −0.95) over 5.0 nodes; −0.949 over all" in measured
    assert "; 10 nodes: −0.949 (quartiles −0.95) over 5.0 nodes; " in measured


def test_t2_counts_no_node_that_a_teacher_has_not():
    holds, measured = _said(_sweep(recovered=lambda p, k: 5), "T2", "order")
    assert holds
    assert measured == (
        "largest lead of a weaker node 0.0 standard errors; "
        "5 nodes: largest lead of a weaker node 0.0 standard errors (holds); "
        "10 nodes: largest lead of a weaker node 0.0 standard errors (holds)"
    )


def test_t4_is_decided_on_ten_nodes_in_the_same_sweep():
    made = _sweep()
    large = [i for i, (m, *_) in enumerate(made.given_networks) if m == 20]
    made.given_student[large, :, :50] = 0.3
    holds, measured = _said(made, "T4", "p = 1, 5×")
    assert holds
    assert measured == (
        "largest 0.00%, median 0.00%; under 2% in 2 of 2; "
        "with students active on fewer or more: largest 0.00%, median 0.00%; under 2% in 2 of 2; "
        "0 of these in 0 of 2 networks (holds); "
        "5 nodes: largest 0.00%, median 0.00%; under 2% in 2 of 2 (holds); "
        "20 nodes: largest 50.00%, median 50.00%; under 2% in 0 of 2 (does not hold)"
    )


def test_t10_too_is_decided_at_both_sizes():
    made = _sweep(recovered=lambda p, k: 5)
    parts = decided(made, "T10", dataclasses.replace(FULL, leaky=0.2))
    assert list(parts) == ["leaky 0.2, T2, order", "leaky 0.2, T4, p = 1, 1×", "leaky 0.2, T4, p = 1, 5×"]


def test_t1_is_of_twenty_nodes_alone():
    made = _sweep(loss=lambda p, k: -6.5)
    assert _said(made, "T1", "p = 1") == (True, "−6.50 (quartiles −6.50)")


def test_a_sweep_of_one_size_holds_its_networks_alone():
    sizes = by_size(_sweep().read())
    assert list(sizes) == [5, 10, 20]
    assert sizes[10].array("eval_loss", "polarity multiple seed")["network"].to_numpy().tolist() == [[[4, 5], [6, 7]]]
    assert best_correlations(sizes[10], 10, "polarity multiple seed epoch").shape == (1, 2, 2, 3, 10)


def test_strengths_of_smaller_teachers_end_where_they_do():
    strength = strengths(_sweep().read())
    assert strength.shape == (12, 20)
    assert (~np.isnan(strength)).sum(1).tolist() == [5] * 4 + [10] * 4 + [20] * 4


def test_every_size_is_trained_on_the_same_data():
    study = TwoLayer(seeds=2, polarity=(1.0,), dim=8, outputs=4)
    experiment = study.experiment()
    shapes = [(m, m * k) for m in (5, 10, 20) for k in (1, 2, 5, 10)]
    assert [(g.teacher.sizes[1], g.students.sizes[1]) for g in experiment.groups] == shapes
    assert len({id(group.data) for group in experiment.groups}) == 1
    assert experiment.parameters[2] == {"teacher_nodes": 5, "multiple": 2.0, "polarity": 1.0, "seed": 1}


def test_a_width_that_is_no_whole_node_is_refused_at_any_size():
    with pytest.raises(UserError) as error:
        TwoLayer(multiple=(1.0, 1.5))
    assert str(error.value) == (
        "--multiple 1.5 × 5 teacher nodes = 7.5 student nodes; choose a multiple that gives a whole number of at "
        "least 1"
    )
    TwoLayer(teacher_nodes=(10, 20), multiple=(1.0, 1.5))


def test_several_sizes_go_from_training_to_report(tmp_path):
    words = [*TINY, "--teacher-nodes", "2", "3", "--device", "cpu", "--json"]
    told = json.loads(understudy("run", "two-layer", *words, cwd=tmp_path).stdout)
    made = Run(tmp_path / told["run"])
    assert made.column("teacher_nodes").tolist() == [2] * 4 + [3] * 4
    figures = {path.stem for path in (made.folder / "figures").glob("*.pdf")}
    assert {"recovery-rate", "recovery-rate-2", "loss-curves", "loss-curves-2", "specialization"} <= figures
    assert made.matched("teacher", "correlation", epoch=3).shape == (8, 3)
    page = (made.folder / "report.html").read_text(encoding="utf-8")
    assert "Which teacher nodes are recovered, with 2 teacher nodes" in page
    sizes = "--epochs 3 --steps 20 --outputs 4 --evaluation 64 --teacher-nodes 2 3 --polarity 1 "
    assert f"understudy run two-layer --seeds 2 --device cpu {sizes}" in page


def test_the_configuration_of_a_run_of_one_size_is_read_as_it_was_written():
    config = TwoLayer(teacher_nodes=(20,)).config()
    config["options"]["teacher_nodes"] = 20
    assert TwoLayer.from_config(config) == TwoLayer(teacher_nodes=(20,))


# Networks that are missing or diverged.


def test_claims_are_decided_on_the_networks_that_are_left():
    made = run(
        [(1, 1), (1, 5)], seeds=4, recovered=lambda p, k: 20 if k == 5 else 7, loss=lambda p, k: -k, diverged=(0, 5)
    )
    assert decided(made, "T3") == {"p = 1": True, "p = 1, all nodes": True}
    assert decided(made, "T6") == {"1× worst, p = 1": True}
    (all_20,) = [claim for claim in claims(FULL, made) if claim.part == "p = 1, all nodes"]
    assert all_20.n == 3


def test_nothing_is_decided_where_a_whole_setting_diverged():
    made = run([(1, 1), (1, 5)], seeds=2, recovered=lambda p, k: 20, loss=lambda p, k: -k, diverged=(2, 3))
    assert [claim.id for claim in claims(FULL, made)] == ["T2"]
    assert claims(FULL, run([(1, 1), (1, 5)], seeds=2, diverged=(0, 1, 2, 3))) == []


def test_no_claim_holds_a_number_that_json_has_not():
    made = run(
        [(p, k) for p in (0.5, 1, 2.5) for k in (1, 5)], seeds=2, recovered=lambda p, k: 9, diverged=(0, 1, 6, 7, 11)
    )
    json.dumps([claim.as_dict() for claim in claims(FULL, made)], allow_nan=False)


def test_headline_and_numbers_count_the_nodes_of_each_seed_and_take_the_median(tiny, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(tiny[1], folder)
    metrics = pq.read_table(folder / "metrics.parquet").to_pandas()
    shares = {0: 1 / 3, 1: 1.0, 2: 2 / 3, 3: 1 / 3}
    last = (metrics["metric"] == "recovered") & (metrics["epoch"] == metrics["epoch"].max())
    metrics.loc[last, "value"] = metrics.loc[last, "network"].map(shares)
    schema = pq.read_schema(folder / "metrics.parquet")
    pq.write_table(pa.Table.from_pandas(metrics, schema, preserve_index=False), folder / "metrics.parquet")
    made = Run(folder)
    found = story(TwoLayer.from_config(made.config), made)
    assert "with 2 times the teacher's nodes 1.5 of 3 were recovered" in found.headline.lower()
    assert "with as many nodes as the teacher 2 of 3 were recovered" in found.headline
    assert "1.5 of 3" in [number.value for number in found.numbers]


def test_a_run_whose_wide_networks_diverged_is_told_in_full(tiny, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(tiny[1], folder)
    tables = {table: pq.read_table(folder / f"{table}.parquet") for table in ("networks", "metrics", "nodes")}
    wide = pc.field("network") >= 2
    networks = tables["networks"].drop_columns(["diverged_at"])
    pq.write_table(networks.append_column("diverged_at", pa.array([None, None, 5, 6])), folder / "networks.parquet")
    for table in ("metrics", "nodes"):
        pq.write_table(tables[table].filter(~wide | (pc.field("epoch") == 0)), folder / f"{table}.parquet")
    made = Run(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write_report(TwoLayer.from_config(made.config), made)
    headline = (folder / "headline.txt").read_text(encoding="utf-8").strip()
    assert headline.startswith("With 2 times the teacher's nodes every network diverged; with as many nodes as ")
    assert headline.endswith(" 2 of 4 networks diverged.")
    assert {path.stem for path in folder.glob("figures/*.pdf")} == {path.stem for path in tiny[1].glob("figures/*.pdf")}
    assert made.matched("student", "correlation", epoch=3).shape == (4, 6)
    assert "NaN" not in (folder / "claims.json").read_text()
