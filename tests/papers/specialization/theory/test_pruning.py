"""Pruned students: by hand, the rules and their limits, least squares, and trained students."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import understudy as us
from support.problems import population
from support.taught import inputs, network, solution, teacher, trained
from understudy._errors import UserError
from understudy.nets import Layer, Population
from understudy.papers.specialization.theory.prunable import residuals
from understudy.papers.specialization.theory.pruning import prune_student, pruning_losses, refit, remove_weakest
from understudy.theory.boundaries import ALIGNED
from understudy.theory.unexplained import output_variance, unexplained


@pytest.fixture(scope="module")
def taught():
    return trained(draws=1)


def two_nodes() -> tuple[Population, Population]:
    """A teacher with one node, and a student with two: a copy, and a weak node that is orthogonal to it."""
    of = network(torch.tensor([[1.0, 0.0]]), torch.zeros(1), torch.tensor([[2.0]]), torch.zeros(1))
    first, fan_out = torch.tensor([[4.0, 0.0], [0.0, 1.0]]), torch.tensor([[0.5], [0.1]])
    student = network(first, torch.zeros(2), fan_out, torch.ones(1))
    return of, student


def test_the_loss_is_a_share_of_the_variance_by_hand():
    of, student = two_nodes()
    x = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [1.0, 1.0], [-1.0, 1.0]]).double()
    assert of(x)[0, :, 0].tolist() == [2, 0, 2, 0]
    assert float(output_variance(of, x)) == 1
    # The student is 1 too high, and 0.1 more where the second input is 1.
    assert float(unexplained(of, student, x)) == pytest.approx((2 * 1 + 2 * 1.1**2) / 4)


@pytest.mark.parametrize("by", ["correlation", "theorem", "modulation", "weight-norm"])
def test_a_network_of_two_nodes_by_hand(by):
    of, student = two_nodes()
    x = inputs(dim=2)
    below = {"correlation": 0.8, "theorem": 0.1, "modulation": 0.05, "weight-norm": 0.06}[by]
    pruned = prune_student(of, student, x, below, by)
    assert pruned.network.sizes == (2, 1, 1)
    assert [(d.layer, d.node) for d in pruned.dropped] == [(0, 1)]
    assert pruned.kept[0].tolist() == [0]
    assert [layer.weight.tolist() for layer in pruned.network.layers] == [[[[4, 0]]], [[[0.5]]]]
    rms = x.clamp_min(0).square().mean(0).sqrt()
    expected = {"theorem": 0.1 / 2 * float(rms[1] / rms[0]), "modulation": 0.01 / 0.26, "weight-norm": 1 / 17}
    if by in expected:
        assert float(pruned.scores[0][1]) == pytest.approx(expected[by])
        assert prune_student(of, student, x, 0.9 * expected[by], by).dropped == ()
    again = refit(of, pruned.network, x)
    torch.testing.assert_close(again.layers[1].weight, torch.tensor([[[0.5]]]).double())
    torch.testing.assert_close(again.layers[1].bias, torch.zeros(1, 1).double(), rtol=0, atol=1e-12)
    losses = pruning_losses(of, student, pruned, again, x)
    assert losses.before > losses.after > 1e6 * losses.refitted


def test_idle_nodes_of_an_exact_student_are_removed_without_loss():
    of = teacher()
    student = solution(of, idle=4)
    idle = (student.layers[1].weight[0] == 0).all(0).nonzero().flatten().tolist()
    pruned = prune_student(of, student, inputs(), None, "theorem")
    assert [d.node for d in pruned.dropped] == idle
    assert float(unexplained(of, pruned.network, inputs())) < 1e-25
    assert {d.node for d in prune_student(of, student, inputs(), 0.0, "modulation").dropped} == set(idle)


def test_opposite_nodes_are_kept_although_their_sum_is_zero():
    of = teacher(inputs=2, outputs=1)
    (weight, bias), (out, output) = ((layer.weight[0], layer.bias[0]) for layer in of.layers)
    pair = torch.tensor([[0.5, 1.0], [-0.5, -1.0]]).double()
    fan_out = torch.cat((out.T, torch.tensor([[1.0], [-1.0]])))
    student = network(torch.cat((weight, pair)), torch.cat((bias, torch.zeros(2))), fan_out, output)
    assert prune_student(of, student, inputs(dim=2), None, "theorem").dropped == ()
    lost = prune_student(of, student, inputs(dim=2), 0.3, "modulation").network
    assert float(unexplained(of, student, inputs(dim=2))) > 0.01
    assert lost.sizes[1] < 5


@given(st.integers(0, 1000), st.floats(0, 0.9))
def test_modulation_removes_the_weakest_nodes_up_to_its_share(seed, below):
    deep = population((5, 8, 7, 3), 1, first_seed=seed)
    pruned = prune_student(deep, deep, inputs(200, 5), below, "modulation")
    for kept, score in zip(pruned.kept, pruned.scores, strict=True):
        gone = torch.ones_like(score, dtype=torch.bool)
        gone[kept] = False
        assert float(score[gone].sum()) <= below
        assert not gone.any() or float(score[gone].max()) <= float(score[kept].min())
        assert float(score[gone].sum() + score[kept].min()) > below
    assert pruned.network.sizes == (5, len(pruned.kept[0]), len(pruned.kept[1]), 3)


def test_a_share_of_the_nodes_is_removed_by_either_strength():
    """A node of short weights and a strong fan-out, one of long weights and a weak one, and one between them."""
    weight, fan_out = torch.diag(torch.tensor([1.0, 5.0, 2.0])), torch.tensor([[2.0], [0.1], [1.0]])
    student = network(weight, torch.zeros(3), fan_out, torch.zeros(1))
    for by, left in {"modulation": [0, 2], "weight-norm": [1, 2]}.items():
        kept = remove_weakest(student, inputs(50, 3), by, 0.4)
        assert torch.equal(kept.layers[0].weight[0], student.layers[0].weight[0, left])
    deep = population((5, 8, 7, 3), 1)
    assert remove_weakest(deep, inputs(200, 5), "modulation", 0.5).sizes == (5, 4, 4, 3)
    assert remove_weakest(deep, inputs(200, 5), "weight-norm", 0.0).sizes == deep.sizes
    with pytest.raises(UserError, match="at least 0 and below 1, got 1"):
        remove_weakest(deep, inputs(200, 5), "modulation", 1.0)
    with pytest.raises(UserError, match="one student, got 2"):
        remove_weakest(population((5, 3, 2), 2), inputs(200, 5), "modulation", 0.5)


def test_all_nodes_above_the_threshold_are_kept_unchanged(taught):
    of, (student,), data = taught
    x = data.evaluating(1)
    pruned = prune_student(of, student, x, 0.8)
    assert pruned.by == "correlation"
    assert torch.equal(pruned.scores[0] >= 0.8, torch.zeros(20).bool().index_fill(0, pruned.kept[0], True))
    assert torch.equal(pruned.network.layers[0].weight, student.layers[0].weight[:, pruned.kept[0]])
    assert torch.equal(pruned.network.layers[1].weight, student.layers[1].weight[:, :, pruned.kept[0]])
    assert pruned.network.dtype == torch.float32


def test_refitting_is_no_worse_on_its_own_inputs_and_an_optimum(taught):
    of, (student,), data = taught
    x = data.training(1)
    pruned = prune_student(of, student, x, 0.9)
    wide = pruned.network.to(dtype=torch.float64)
    fitted = refit(of, wide, x)
    losses = pruning_losses(of, student, pruned, fitted, x)
    assert losses.refitted <= losses.after
    # At a least-squares solution the error is orthogonal to every node and to a constant.
    error = (of.to(dtype=torch.float64)(x.double()) - fitted(x.double()))[0]
    (hidden,) = fitted.activations(x.double()).hidden
    assert float((hidden[0].T @ error).abs().max()) < 1e-8 * float(hidden[0].square().sum())
    assert float(error.mean(0).abs().max()) < 1e-10


def test_refitting_equivalent_nodes_gives_the_smallest_weights():
    of, _ = two_nodes()
    double = network(torch.tensor([[1.0, 0], [1.0, 0]]), torch.zeros(2), torch.zeros(2, 1), torch.zeros(1))
    fitted = refit(of, double, inputs(dim=2))
    torch.testing.assert_close(fitted.layers[1].weight, torch.ones(1, 1, 2).double())


def test_a_network_without_biases_gets_none():
    student = population((4, 6, 2), 1, bias=False)
    fitted = refit(teacher(), student, inputs())
    assert fitted.layers[1].bias is None
    assert float(unexplained(teacher(), fitted, inputs())) < float(unexplained(teacher(), student, inputs()))


def test_the_top_layer_of_a_convolutional_network_is_refitted_per_position():
    of = us.teachers.distinct_rows((1, 3, 2), image=(5, 5), seeds=[1], dtype=torch.float64)
    top = of.layers[1]
    student = replace(of, layers=(of.layers[0], Layer(torch.zeros_like(top.weight), torch.zeros_like(top.bias))))
    x = inputs(300, 25)
    fitted = refit(of, student, x)
    torch.testing.assert_close(fitted.layers[1].weight, top.weight)
    assert float(unexplained(of, fitted, x)) < 1e-20
    channels = prune_student(of, of, x, 0.99)
    assert channels.network.sizes == (1, 3, 2) and channels.dropped == ()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"student": population((5, 3, 2), 1)}, "same number of inputs, got 4 and 5"),
        ({"student": population((4, 3, 5), 1)}, "same number of outputs, got 2 and 5"),
        ({"student": population((4, 3, 2), 2)}, "one student and one teacher, got 2 and 1"),
        ({"x": inputs(10, 6)}, "take 4 inputs, and the data has 6 per sample"),
        ({"x": inputs(0)}, "at least one sample"),
        pytest.param(
            {"by": "luck"},
            "correlation, modulation, theorem|theorem, correlation, modulation, weight-norm",
            marks=pytest.mark.wrong_shapes,
        ),
        ({"below": 1.5}, "below must be between 0 and 1, got 1.5"),
        ({"below": 1.0, "by": "modulation"}, "all 3 nodes of hidden layer 1 would be removed"),
        ({"student": population((4, 3, 3, 2), 1)}, "2 hidden layers and the teacher 1"),
        ({"student": population((4, 3, 3, 2), 1), "by": "theorem"}, "equal depth, and these have 2 and 3"),
    ],
)
def test_invalid_arguments_are_refused(change, words):
    plain = {"teacher": teacher(), "student": population((4, 3, 2), 1), "x": inputs(50), "by": "correlation"}
    with pytest.raises(UserError, match=words):
        prune_student(**(plain | change))


@pytest.mark.parametrize("by", [None, "correlation", "theorem", "modulation", "weight-norm"])
def test_a_student_without_an_active_node_is_refused(by):
    dead = network(torch.zeros(3, 4), -torch.ones(3), torch.ones(3, 2), torch.zeros(2))
    with pytest.raises(
        UserError, match=r"no node of hidden layer 1 is active: each of the 3 is constant over all 1,000.*--input-std"
    ):
        prune_student(teacher(), dead, inputs(), None, by)


def test_a_student_without_fan_outs_is_refused_without_misleading_advice():
    silent = network(torch.eye(4)[:3], torch.zeros(3), torch.zeros(3, 2), torch.zeros(2))
    with pytest.raises(UserError, match=r"is at most 0, and the threshold is 0\.01; the student has learned nothing"):
        prune_student(teacher(), silent, inputs(), None, "modulation")


def test_the_default_rule_depends_on_the_networks_and_on_the_threshold():
    of, deep = teacher(), population((4, 5, 5, 2), 1)
    assert prune_student(of, solution(of), inputs()).by == "theorem"
    assert prune_student(of, solution(of), inputs(), 0.9).by == "correlation"
    assert prune_student(deep, deep, inputs()).by == "modulation"
    assert prune_student(of, deep, inputs()).by == "modulation"


def with_a_node(of: Population, weight: list[float], bias: float, fan_out: list[float], idle: int = 3) -> Population:
    """An exact student with one additional node."""
    (first, biases), (out, output) = ((layer.weight[0], layer.bias[0]) for layer in solution(of, idle).layers)
    more = [torch.tensor(part).double() for part in ([weight], [bias], [fan_out])]
    return network(torch.cat((first, more[0])), torch.cat((biases, more[1])), torch.cat((out.T, more[2])), output)


def test_a_small_fan_out_of_a_large_activation_is_kept():
    """Its share of the fan-outs is small, but not its contribution to the output."""
    of, x = teacher(inputs=2, outputs=1), 1.5 * inputs(5_000, 2)
    large = with_a_node(of, [0.6, 0.8], 200.0, [0.01])
    pruned = prune_student(of, large, x, None, "theorem")
    last = large.sizes[1] - 1
    assert last in pruned.kept[0].tolist()
    assert float(unexplained(of, pruned.network, x)) <= 1.001 * float(unexplained(of, large, x))
    assert any("are kept: they contribute more than 0.05 of the strongest" in note for note in pruned.notes)


def test_nodes_for_which_hypotheses_fail_are_kept_although_they_contribute_little():
    of = teacher(outputs=2)
    student = solution(of, idle=2)
    flat = student.layers[1].weight.clone()
    flat[:, 1] = flat[:, 0]
    student = replace(student, layers=(student.layers[0], Layer(flat, student.layers[1].bias)))
    pruned = prune_student(of, student, inputs(), None, "theorem")
    assert pruned.dropped == ()
    (note,) = pruned.notes
    assert note.startswith("2 nodes without a teacher node's boundary are kept") and "independent fan-outs" in note


@given(st.integers(0, 300), st.floats(-4, 0.5), st.floats(-2, 2))
def test_nodes_removed_by_the_theorem_contribute_at_most_their_share(seed, log_size, bias):
    """The change of the outputs is bounded by each group's share of the strongest."""
    of, x = teacher(seed=seed), inputs(400)
    student = with_a_node(of, [0.5, -1.0, 0.3, 0.8], bias, [10**log_size, -(10**log_size)])
    pruned = prune_student(of, student, x, None, "theorem")
    whole = residuals(of, student, x)
    change = (student(x) - pruned.network(x)).square().sum(2).mean().sqrt()
    assert float(change) <= len(pruned.dropped) * 0.05 * whole.strongest * (1 + 1e-9)
    last = student.sizes[1] - 1
    if float(whole.nearest[last]) > ALIGNED:
        hidden = student.activations(x).hidden[0][0, :, last]
        alone = float(hidden.square().mean().sqrt() * student.layers[1].weight[0, :, last].norm())
        assert float(whole.contribution[last]) == pytest.approx(alone)
        assert last in pruned.kept[0].tolist() or alone <= 0.05 * whole.strongest * (1 + 1e-9)
