"""Orthogonally separable points, networks that learn them, and Phuong 2021, theorem 3.1."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from understudy._errors import UserError
from understudy._random import Stream, normal
from understudy.data import separable as points
from understudy.data.separable import orthogonally_separable, separability, similarities, two_classes
from understudy.papers.separable.theory import training, two_neurons
from understudy.papers.separable.theory.max_margin import margins, max_margins
from understudy.papers.separable.theory.sectors import extremal_directions

F = torch.float64
pytestmark = pytest.mark.usefixtures("one_thread")


@given(st.integers(0, 10**6), st.integers(2, 30), st.integers(60, 90), st.booleans())
def test_drawn_points_are_orthogonally_separable(seed, dim, count, tilt):
    x, y = orthogonally_separable(dim, count, [seed], tilt=tilt)
    found = separability(x[0], y[0])
    assert found.holds and found.violation is None
    assert found.same.product > 0 >= found.different.product
    assert ((y.unsqueeze(-1) * x) > 0).all()
    if tilt:
        z = torch.tensor([1.0, -1.0] * dim, dtype=F)[:dim]
        assert (x @ z >= 0).all()


@pytest.mark.parametrize("dim", [2, 3, 4])
def test_drawn_points_have_the_distribution_of_gaussians_that_pass_the_filter(dim):
    g = normal(5, Stream.EVALUATION, 0, 400_000 * dim).view(-1, dim)
    z = torch.tensor([1.0, -1.0] * dim, dtype=F)[:dim]
    kept = g[((g > 0).all(1) | (g < 0).all(1)) & (g @ z >= 0)]
    x = orthogonally_separable(dim, 20_000, [3]).x[0]
    # Share of class 1 (above a half in odd dimensions), products with z, and moments of each class.
    for statistic in (lambda v: (v[:, 0] > 0).double(), lambda v: v @ z, lambda v: (v @ z).square()):
        one, other = statistic(x), statistic(kept)
        error = math.sqrt(one.var() / len(one) + other.var() / len(other))
        assert abs(one.mean() - other.mean()) < 4 * error
    for sign in (1, -1):
        one, other = x[x[:, 0] * sign > 0], kept[kept[:, 0] * sign > 0]
        error = (one.var(0) / len(one) + other.var(0) / len(other)).sqrt()
        assert ((one.mean(0) - other.mean(0)).abs() < 4 * error).all()
        together = [(v.unsqueeze(2) * v.unsqueeze(1)).flatten(1) for v in (one, other)]
        error = sum(t.var(0) / len(t) for t in together).sqrt()
        assert ((together[0].mean(0) - together[1].mean(0)).abs() < 4.5 * error).all()


def test_a_set_depends_on_its_own_seed_only():
    both = orthogonally_separable(4, 30, [7, 8])
    assert torch.equal(both.x[1], orthogonally_separable(4, 30, [8]).x[0])
    assert not torch.equal(both.x[0], both.x[1])


@given(st.integers(0, 10**6), st.integers(2, 8), st.booleans())
def test_spanning_points_have_as_many_supports_as_dimensions_in_each_class(seed, dim, tilt):
    x, y = orthogonally_separable(dim, 80, [seed], tilt=tilt, spanning=True)
    assert separability(x[0], y[0]).holds
    found = margins(x[0], y[0])
    assert found.spans
    assert found.positive.supports.sum() == found.negative.supports.sum() == dim
    before = orthogonally_separable(dim, 80, [seed], tilt=tilt).x
    torch.testing.assert_close(x / x.norm(dim=-1, keepdim=True), before / before.norm(dim=-1, keepdim=True))


def test_the_pair_that_violates_separability_is_named():
    x = torch.tensor([[1.0, 0.2], [1.0, 1.0], [-1.0, -1.0], [-1.0, 0.5]])
    found = separability(x, torch.tensor([7, 7, 3, 3]))
    # Between classes: (0, 3) −0.9, (1, 3) −0.5; within: (2, 3) 0.5, (0, 1) 1.2. No violation.
    assert found.holds and found.pairs == 10
    assert (found.same.first, found.same.second, found.same.classes) == (2, 3, (3.0, 3.0))
    assert found.same.product == pytest.approx(0.5) and found.different.product == pytest.approx(-0.5)
    x[3] = torch.tensor([-1.0, 2.0])
    found = separability(x, torch.tensor([7, 7, 3, 3]))
    # Now (1, 3) is 1, (2, 3) is −1 and (0, 3) is −0.6: two violations.
    assert found.wrong == 2 and not found.holds
    assert found.different[:3] == (1, 3, (7.0, 3.0)) and found.same[:3] == (2, 3, (3.0, 3.0))
    message = str(found.different)
    assert "points 1 and 3, of classes 7 and 3, have the inner product 1" in message
    assert "orthogonal separability requires a product of at most 0" in message
    assert "both of class 3" in str(found.same) and "above 0" in str(found.same)
    assert found.violation in (found.same, found.different)


def test_right_angles_are_allowed_between_classes_only():
    axes = torch.eye(2)
    assert separability(axes, torch.tensor([0, 1])).holds
    found = separability(torch.cat((axes, -axes[:1])), torch.tensor([1, 1, 0]))
    assert found.wrong == 1 and found.violation == found.same
    assert separability(torch.zeros(2, 2), torch.tensor([0, 1])).wrong == 2  # each point with itself
    turned = torch.tensor([[1.0, 1e-9], [0.0, 1.0]])
    assert not separability(turned, torch.tensor([0, 1])).holds
    assert separability(turned, torch.tensor([0, 1]), tolerance=1e-8).holds


@given(st.integers(0, 10**6), st.integers(2, 40), st.integers(1, 7))
def test_tiles_cover_every_pair(seed, count, tile):
    x, labels = normal(seed, Stream.TRAIN, 0, count * 3).view(count, 3), torch.arange(count) % 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(points, "_TILE", tile)
        found, counted = separability(x, labels), similarities(x, labels, 10)
    products, alike = x @ x.T, labels[:, None] == labels
    assert found.same.product == pytest.approx(float(products[alike].min()))
    assert found.different.product == pytest.approx(float(products[~alike].max()))
    once = torch.ones(count, count).triu().bool()
    assert found.wrong == int(((products > 0) != alike)[once].sum())
    assert found.pairs == int(once.sum())
    between = torch.histogram(products[~alike & once], counted.edges).hist
    assert (counted.between - between).abs().sum() <= 2  # rounding at the edges of bins
    assert counted.between.sum() + counted.within.sum() == count * (count - 1) // 2
    distinct = once & ~torch.eye(count, dtype=torch.bool)
    assert counted.within[1].sum() == int((alike & distinct & (labels == 1)).sum())


def test_a_round_cone_is_orthogonally_separable_and_fits_in_no_orthant():
    turn = torch.arange(24) * 2 * math.pi / 24
    angle = math.radians(44)
    cone = torch.stack((math.sin(angle) * turn.cos(), math.sin(angle) * turn.sin(), 0 * turn + math.cos(angle)), 1)
    axis = torch.tensor([[0.0, 0.0, -1.0]])
    assert separability(torch.cat((cone, axis)), torch.tensor([1] * 24 + [0])).holds
    # An orthant that contains the cone has u_k·axis ≥ sin(angle) for its axes u_k: no three orthogonal axes do.
    assert 3 * math.sin(angle) ** 2 > 1


@pytest.mark.parametrize("labels", [[1, 1, 1], [0, 1, 2]])
def test_one_or_three_classes_are_refused(labels):
    with pytest.raises(UserError, match="labels must have two classes"):
        separability(torch.rand(3, 2), torch.tensor(labels))


def test_invalid_points_and_options_are_refused():
    with pytest.raises(UserError, match="are in class 1: two classes are needed, so choose 2 or more dimensions"):
        orthogonally_separable(1, 50, [1])
    with pytest.raises(UserError, match="more points"):
        orthogonally_separable(3, 1, [1])
    with pytest.raises(UserError, match="fewer than the 20 that span the space"):
        orthogonally_separable(20, 30, [1], spanning=True)
    with pytest.raises(UserError, match="dim must be a whole number"):
        orthogonally_separable(0, 10, [1])
    with pytest.raises(UserError, match="point 1 has numbers that are not finite"):
        separability(torch.tensor([[1.0], [math.nan]]), torch.tensor([0, 1]))
    with pytest.raises(UserError, match="tolerance must be at least 0 and below 1, got 1"):
        separability(torch.rand(2, 2), torch.tensor([0, 1]), tolerance=1)
    with pytest.raises(UserError, match="the points of network 1 are all in one class"):
        two_classes(torch.tensor([[0, 1], [1, 1]]))


# Networks


@given(st.integers(0, 10**6), st.integers(2, 4), st.booleans())
def test_gradients_equal_autograd(seed, depth, mean):
    x, y = orthogonally_separable(4, 40, [seed, seed + 1])
    weights = tuple(w.requires_grad_() for w in training.small_linear(4, 5, depth, 2.0, [seed, seed + 1]))
    h = x @ weights[0].mT
    for w in weights[1:-1]:
        h = h + torch.relu(h) @ w.mT
    out = (torch.relu(h) @ weights[-1].mT).squeeze(-1)
    losses = torch.log1p(torch.exp(-y * out))
    total = losses.mean(-1) if mean else losses.sum(-1)
    torch.testing.assert_close(training.logistic_loss(weights, x, y), losses.mean(-1))
    wanted = torch.autograd.grad(total.sum(), weights)
    for one, other in zip(training.logistic_gradient(weights, x, y, mean=mean), wanted, strict=True):
        torch.testing.assert_close(one.detach(), other, rtol=1e-11, atol=1e-13)


def test_a_step_by_hand():
    # At x = 1, y = −1: h = a ρ(w x) = 2·3 and ℓ' = σ(6), so that a loses η σ(6) w and w loses η σ(6) a. At x = −1 the
    # neuron is inactive.
    x, y = torch.tensor([[[1.0], [-1.0]]], dtype=F), torch.tensor([[-1.0, 1.0]], dtype=F)
    weights = (torch.tensor([[[3.0]]], dtype=F), torch.tensor([[[2.0]]], dtype=F))
    pull = 1 / (1 + math.exp(-6))
    w, a = training.descend(weights, x, y, 2 * 0.1, [0, 1], 2, [1])  # the loss is the mean of two
    assert w.flatten().tolist() == pytest.approx([3, 3 - 0.1 * pull * 2])
    assert a.flatten().tolist() == pytest.approx([2, 2 - 0.1 * pull * 3])


def test_an_epoch_sees_every_example_once():
    x, y = orthogonally_separable(3, 23, [1])
    weights = training.small_linear(3, 4, 2, 0.05, [1])
    # At this small rate all gradients are those at the start; the batches have 5, 5, 5, 5 and 3 examples.
    path = training.descend(weights, x, y, 1e-9, [0, 4, 5], 5, [1])
    whole = training.logistic_gradient(weights, x, y)
    for (start, before, end), gradient in zip(path, whole, strict=True):
        torch.testing.assert_close((5 * (start - before) + 3 * (before - end)) / 1e-9, gradient, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("batch", "depth"), [(150, 2), (47, 2), (47, 4)])
def test_other_probes_and_networks_change_no_bit(batch, depth):
    x, y = orthogonally_separable(20, 150, [1, 2, 3])
    weights = training.small_linear(20, 100, depth, 0.5, [1, 2, 3])
    whole = training.descend(weights, x, y, 0.1, [0, 8, 20], batch, [1, 2, 3])
    alone = training.descend(tuple(w[1:2] for w in weights), x[1:2], y[1:2], 0.1, [20], batch, [2])
    for a, b, start in zip(whole, alone, weights, strict=True):
        assert torch.equal(a[2, 1], b[0, 0])
        assert torch.equal(a[0], start)


def test_a_network_that_diverges_is_marked_and_the_others_continue():
    x, y = orthogonally_separable(3, 20, [1, 2])
    weights = tuple(w.clone() for w in training.small_linear(3, 4, 2, 0.5, [1, 2]))
    weights[1][0] = math.inf
    path = training.descend(weights, x, y, 0.1, [3], 20, [1, 2])
    assert all(part[0, 0].isnan().all() and part[0, 1].isfinite().all() for part in path)


def test_flow_is_the_limit_of_descent_and_conserves_the_balance_of_lemma_b4():
    x, y = orthogonally_separable(3, 20, [1, 2])
    weights = training.balanced(3, 6, 0.3, [1, 2])
    times = [0.0, 0.1, 0.4]
    exact = training.logistic_flow(weights, x, y, times)
    gaps = []
    for steps in (400, 800):
        path = training.descend(weights, x, y, 20 * 0.4 / steps, [0, steps // 4, steps], 20, [1, 2])
        gaps.append(max(float((one - other).abs().max()) for one, other in zip(path, exact, strict=True)))
    assert gaps[0] / gaps[1] == pytest.approx(2, rel=0.3)
    w, a = training.neurons(exact)
    assert (w.square().sum(-1) - a.square()).abs().max() < 1e-6
    assert torch.equal(a[0].sign(), a[-1].sign())
    losses = torch.stack([training.logistic_loss(tuple(w[i] for w in exact), x, y) for i in range(3)])
    assert (losses.diff(dim=0) < 0).all()


def test_a_balanced_start_is_balanced_and_a_linear_one_within_its_bounds():
    w, a = training.neurons(training.balanced(5, 400, 1e-3, [1, 2]))
    torch.testing.assert_close(w.norm(dim=-1), torch.full((2, 400), 1e-3, dtype=F))
    assert (a.abs() == 1e-3).all() and abs(float((a > 0).double().mean()) - 0.5) < 4 * 0.5 / math.sqrt(800)
    first, middle, last = training.small_linear(20, 50, 3, 0.05, [1])
    assert (first.shape, middle.shape, last.shape) == ((1, 50, 20), (1, 50, 50), (1, 1, 50))
    for each, into in ((first, 20), (middle, 50)):
        limit = 0.05 / math.sqrt(into)
        assert 0.95 * limit < each.abs().max() < limit
        assert float(each.std()) == pytest.approx(limit / math.sqrt(3), rel=0.05)


def test_invalid_arguments_are_refused():
    x, y = orthogonally_separable(3, 20, [1])
    weights = training.small_linear(3, 4, 2, 0.5, [1])
    for change, words in (
        ({"rate": 0.0}, "rate must be finite and above 0.*got 0.0"),
        ({"probes": [2, 1]}, "probes must be in ascending order"),
        ({"batch": 21}, r"batch must be from 1 to the number of examples \(20\), got 21"),
        ({"seeds": []}, r"one seed per network is needed \(1\), got 0"),
        ({"y": y + 1}, "classes must be −1 and 1, got"),
        ({"x": x[..., :2]}, "take 3 inputs, but the examples have 2"),
    ):
        arguments = {"x": x, "y": y, "rate": 0.1, "probes": [1], "batch": 5, "seeds": [1]} | change
        with pytest.raises(UserError, match=words):
            training.descend(weights, **arguments)
    with pytest.raises(UserError, match="needs 2 or more layers"):
        training.small_linear(3, 4, 1, 0.5, [1])
    with pytest.raises(UserError, match="a finite scale above 0"):
        training.balanced(3, 4, 0.0, [1])
    with pytest.raises(UserError, match="times must be finite"):
        training.logistic_flow(weights, x, y, [1.0, 0.5])
    with pytest.raises(UserError, match="two layers is needed, got 4 layers"):
        training.neurons(training.small_linear(3, 4, 4, 0.5, [1]))


# Theorem 3.1


def test_correlations_by_hand():
    margins = torch.tensor([[2.0, 0.0], [0.0, -1.0]], dtype=F)
    w = torch.tensor([[3.0, 4.0], [3.0, -4.0], [0.0, 0.0]], dtype=F)
    assert two_neurons.own_correlation(w, torch.tensor([1.0, -1.0, 1.0], dtype=F), margins).tolist() == pytest.approx(
        [0.6, 0.8, 0]
    )
    assert two_neurons.correlations(w, margins).flatten().tolist() == pytest.approx([0.6, -0.8, 0.6, 0.8, 0, 0])


def test_the_share_and_the_mass_of_aligned_neurons_by_hand():
    x, y = torch.tensor([[[1.0, 0.1], [-1.0, -0.1]]], dtype=F), torch.tensor([[1.0, -1.0]], dtype=F)
    margins = torch.tensor([[[1.0, 0.0], [0.0, -1.0]]], dtype=F)
    w, a = torch.tensor([[[[3.0, 0.0], [0.0, 1.0]]]], dtype=F), torch.ones(1, 1, 1, 2, dtype=F)
    shallow = two_neurons.probe_path((w, a), x, y, margins)
    assert shallow.correlation.tolist() == [[[1.0, 0.0]]] and shallow.values["aligned"] == 0.5
    assert float(shallow.values["aligned mass"]) == pytest.approx(0.9)
    # In deep networks the nearer of the two vectors counts.
    deep = two_neurons.probe_path((-w, torch.zeros(1, 1, 2, 2, dtype=F), a), x, y, margins)
    assert deep.correlation.tolist() == [[[0.0, 1.0]]] and float(deep.values["aligned mass"]) == pytest.approx(0.1)


def test_rank_two_is_recognised_and_the_projection_keeps_inner_products():
    u, v = normal(1, Stream.TRAIN, 0, 16).view(8, 2), normal(2, Stream.TRAIN, 0, 10).view(2, 5)
    w = (u @ v).expand(3, 8, 5)
    assert (two_neurons.third_over_first(w) < 1e-14).all()
    flat = two_neurons.singular_coordinates(w)
    torch.testing.assert_close(flat @ flat.mT, w @ w.mT)
    values = torch.linalg.svdvals(w)
    torch.testing.assert_close(flat.norm(dim=-2), values[:, :2])
    assert two_neurons.third_over_first(torch.rand(4, 2, dtype=F)) == 0
    assert two_neurons.singular_coordinates(torch.rand(4, 1, dtype=F)).shape == (4, 2)


def test_sgd_adds_rank_two_to_small_weights_and_turns_them_to_the_max_margin_directions():
    seeds = [1, 2]
    x, y = orthogonally_separable(10, 100, seeds)
    w, a = training.neurons(training.descend(training.balanced(10, 20, 0.01, seeds), x, y, 0.1, [0, 2_000], 20, seeds))
    added, values = w[1] - w[0], torch.linalg.svdvals(w)
    assert (two_neurons.third_over_first(added) < 0.005).all()
    assert (torch.linalg.svdvals(added)[:, 1] > 0.1).all()
    assert (values[1, :, 2] <= values[0, :, 0] + torch.linalg.svdvals(added)[:, 2] + 1e-12).all()
    assert (two_neurons.third_over_first(w[1]) < 0.1 * two_neurons.third_over_first(w[0])).all()
    # Neurons first turn to the mean of their class (lemma 3.2), then at rate log t to its max-margin vector.
    targets = max_margins(x, y)
    means = two_neurons.correlations(extremal_directions(x, y), targets).diagonal(dim1=-2, dim2=-1)
    own = two_neurons.own_correlation(w[1], a[1], targets)
    assert (own > torch.where(a[1] > 0, means[:, :1], means[:, 1:])).all()
    assert (own > two_neurons.own_correlation(w[0], a[0], targets)).all()


def test_only_canonical_networks_have_distance_0_from_the_limit():
    margins = torch.tensor([[2.0, 1.0, 0.0], [-1.0, 0.0, -3.0]], dtype=F)
    lengths = torch.tensor([1.0, 2.0, 0.5, 3.0], dtype=F)
    a = lengths * torch.tensor([1, -1, -1, 1])
    w = lengths.unsqueeze(1) * torch.nn.functional.normalize(margins, dim=1)[[0, 1, 1, 0]]
    assert all(at < 1e-15 for at in two_neurons.limit_distance(w, a, margins))
    # For a neuron orthogonal to its target, u_j = 0 is nearest, and the distance is its share of the length.
    w[0] = lengths[0] * torch.tensor([0.0, 0.0, 1.0])
    share = float(lengths[0] / lengths.norm())
    assert [float(at) for at in two_neurons.limit_distance(w, a, margins)] == pytest.approx([share] * 2)


def test_flow_from_a_small_balanced_start_goes_to_the_limit_of_theorem_3_1():
    x, y = orthogonally_separable(2, 20, [1, 2], spanning=True)
    targets = max_margins(x, y)
    weights = training.balanced(2, 12, 1e-3, [1, 2])
    w, a = training.neurons(training.logistic_flow(weights, x, y, [0, 10, 100]))
    hidden, output = two_neurons.limit_distance(w, a, targets)
    assert (hidden.diff(dim=0) < 0).all() and (hidden[-1] < 0.2).all()
    assert (output[-1] < 0.05).all()
    # Neurons of one sign become parallel.
    growing = w[-1].norm(dim=-1) > 0.01
    assert growing.any(-1).all()
    for net in range(2):
        for sign in (1, -1):
            some = torch.nn.functional.normalize(w[-1, net][growing[net] & (a[-1, net] * sign > 0)], dim=-1)
            assert (some @ some.T > 0.999).all()
