"""Tian et al. 2019, assumption 1 and theorem 2: by hand, by definition in plain loops, and where they are exact."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import understudy as us
from support.kinds import KINDS, made
from support.problems import gaussians, population
from understudy._errors import UserError
from understudy.measures.sample_modulation import absorb_biases
from understudy.nets import Layer, Population, activate
from understudy.papers.luck.theory import factorisation, matrix_dynamics
from understudy.papers.luck.theory.factorisation import factorisation_gaps
from understudy.papers.luck.theory.matrix_dynamics import compare_velocities, matrix_gradient, probe_descent
from understudy.theory import gradient_flow, results

pytestmark = pytest.mark.usefixtures("one_thread")

THEOREM = next(result for result in results() if result.name == "S2 theorem 2")
DEPTHS = {depth: (4, 3, 5, 2, 4, 3)[-depth - 1 :] for depth in range(2, 5)}
every_depth = pytest.mark.parametrize("sizes", DEPTHS.values(), ids=[f"{d} layers" for d in DEPTHS])
slopes = st.sampled_from((0.0, 0.1, 0.5))


def pair(sizes, nets=2, slope=0.0, bias=True):
    wider = (sizes[0], *(n + 2 for n in sizes[1:-1]), sizes[-1])
    return (
        population(sizes, nets, slope=slope, bias=bias),
        population(wider, nets, slope=slope, bias=bias, first_seed=110),
    )


def net(*weights, biases=None, slope=0.0):
    biases = biases or [None] * len(weights)
    layers = tuple(
        Layer(torch.tensor([w]).double(), None if b is None else torch.tensor([b]).double())
        for w, b in zip(weights, biases, strict=True)
    )
    return Population(layers, torch.tensor([1]), slope)


def flat(layer):
    return torch.cat([part.flatten(1) for part in layer if part is not None], 1)


def positive(network):
    """Make all weights and biases positive: on positive inputs no gate closes."""
    return Population(
        tuple(Layer(w.abs(), None if b is None else b.abs()) for w, b in network.layers), network.seeds, network.slope
    )


def by_definition(teacher, student, x):
    """Both sides of eqns 4 and 5 at every hidden layer of one pair, term by term: [left, right] of [star, plain]."""

    def seen(network, sample):
        h, f, slopes = torch.cat((sample, torch.ones(1).double())), [], []
        wide = absorb_biases(network).layers
        for i, (weight, _) in enumerate(wide):
            f.append(h)
            z = weight[0] @ h
            if i < len(wide) - 1:
                slopes.append(torch.where(z >= 0, 1.0, network.slope).double())
                h = activate(z, network.slope)
        v = [wide[-1].weight[0]]
        for (weight, _), slope in zip(wide[-2:0:-1], slopes[:0:-1], strict=True):
            v.insert(0, (v[0] * slope) @ weight[0])
        return f, slopes, v

    found = []
    for layer in range(len(student.layers) - 1):
        n = student.sizes[layer + 1]
        sides = []
        for other in (teacher, student):
            left = beta = d = low = 0.0
            for sample in x:
                f, s, v = seen(student, sample)
                g, t, u = seen(other, sample)
                b, gates = v[layer][:, :n].T @ u[layer], torch.outer(s[layer][:n], t[layer])
                products = torch.outer(f[layer], g[layer])
                left = left + torch.einsum("jq,kr->jqkr", b * gates, products) / len(x)
                beta, d, low = beta + b / len(x), d + gates / len(x), low + products / len(x)
            sides.append((left, torch.einsum("jq,kr->jqkr", beta * d, low)))
        found.append(sides)
    return found


# The velocity of eqn 6


def test_two_nodes_by_hand():
    # f = relu(x), output 2f; teacher 1·relu(x), without biases, on x = 1, −1, 2. L_0 = 2, d = d* = 2/3, β* = 2, β = 4.
    teacher, student = net([[1]], [[1]]), net([[1]], [[2]])
    x = torch.tensor([[1.0], [-1.0], [2.0]]).double()
    low, top = matrix_gradient(teacher, student, x).layers
    assert low.weight.item() == pytest.approx(2 * (2 / 3) * 2 - 4 * (2 / 3) * 2)
    # The gradient contains x² only where the gate is open: E[x² z] = 5/3, not 2 · 2/3.
    assert gradient_flow.velocity(teacher, student, x).layers[0].weight.item() == pytest.approx((2 - 4) * 5 / 3)
    assert top.weight.item() == pytest.approx((1 - 2) * 5 / 3)


def test_biases_are_weights_of_a_constant_node_by_hand():
    # Student relu(x + 1), output 3f + 5; teacher relu(x − 1), output f − 2; x = 0, 2. Both gates are open at x = 2.
    student, teacher = (net([[1]], [[3]], biases=[[1], [5]]), net([[1]], [[1]], biases=[[-1], [-2]]))
    x = torch.tensor([[0.0], [2.0]]).double()
    low, top = matrix_gradient(teacher, student, x).layers
    # Layers are (node, constant). L_0 = E[(x,1)(x,1)ᵀ]. The student's gate is always open, the teacher's on half of x.
    inputs = torch.tensor([[2.0, 1.0], [1.0, 1.0]]).double()
    h_star = torch.tensor([[3 * 1 * 0.5, 3 * -2 * 1.0]]).double()
    h = torch.tensor([[9.0, 15.0]]).double()
    wide_teacher, wide_student = (torch.tensor([[1.0, b], [0.0, 1.0]]).double() for b in (-1, 1))
    expected = h_star @ wide_teacher @ inputs - h @ wide_student @ inputs
    assert low.weight.item() == pytest.approx(expected[0, 0].item())
    assert low.bias.item() == pytest.approx(expected[0, 1].item())
    # Outputs: f = (1, 3), f* = (0, 1), so residuals −2 − 8 and −1 − 14.
    assert top.bias.item() == pytest.approx((-10 - 15) / 2)
    assert top.weight.item() == pytest.approx((-10 * 1 - 15 * 3) / 2)


@every_depth
@pytest.mark.parametrize("bias", [True, False], ids=["biases", "none"])
@given(slope=slopes, seed=st.integers(0, 10**6))
def test_eqn_6_is_the_negative_gradient_at_the_highest_layer(sizes, bias, slope, seed):
    found = compare_velocities(*pair(sizes, slope=slope, bias=bias), gaussians(seed, 2, 30, sizes[0]))
    assert found[-1].distance.max() < 1e-12
    assert found[-1].cosine.min() > 1 - 1e-12


@every_depth
@pytest.mark.parametrize("bias", [True, False], ids=["biases", "none"])
def test_eqn_6_is_the_negative_gradient_without_gates(sizes, bias):
    x = gaussians(3, 2, 30, sizes[0])
    assert all(layer.distance.max() < 1e-11 for layer in compare_velocities(*pair(sizes, slope=1.0, bias=bias), x))


@every_depth
def test_eqn_6_is_the_negative_gradient_inside_one_linear_region(sizes):
    teacher, student = map(positive, pair(sizes))
    x = gaussians(3, 2, 30, sizes[0]).abs()
    assert all(layer.distance.max() < 1e-11 for layer in compare_velocities(teacher, student, x))
    assert all(max(layer.star.max(), layer.plain.max()) < 1e-12 for layer in factorisation_gaps(teacher, student, x))


@every_depth
@given(slope=slopes, seed=st.integers(0, 10**6))
def test_eqn_6_is_the_negative_gradient_on_one_sample(sizes, slope, seed):
    teacher, student = pair(sizes, slope=slope)
    for layer in compare_velocities(teacher, student, gaussians(seed, 2, 1, sizes[0])):
        assert (layer.gap <= 1e-12 + 10 * layer.rounding).all()


def test_eqn_6_differs_from_the_gradient_elsewhere():
    found = compare_velocities(*pair((4, 3, 5, 2)), gaussians(3, 2, 200, 4))
    assert all(layer.distance.min() > 0.05 for layer in found[:-1])


def test_a_student_equal_to_its_teacher_does_not_move():
    teacher, _ = pair((4, 3, 5, 2))
    for layer in compare_velocities(teacher, teacher, gaussians(3, 2, 50, 4)):
        assert layer.distance.tolist() == [0.0, 0.0]
        assert layer.cosine.tolist() == [1.0, 1.0]
        assert (layer.gap <= layer.rounding).all()


def test_networks_of_a_population_are_independent():
    teacher, student = pair((4, 3, 5, 2), nets=3)
    x = gaussians(3, 3, 40, 4)
    together = matrix_gradient(teacher, student, x)
    for net in range(3):
        alone = matrix_gradient(teacher[net], student[net], x[net])
        for a, b in zip(together[net].layers, alone.layers, strict=True):
            torch.testing.assert_close(flat(a), flat(b), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("slope", [0.0, 0.2])
def test_absorbing_biases_keeps_the_function(slope):
    network = population((4, 3, 5, 2), 2, slope=slope)
    x = gaussians(5, 20, 4)
    ones = torch.cat((x, torch.ones(20, 1).double()), 1)
    torch.testing.assert_close(absorb_biases(network)(ones), network(x))
    assert all((hidden[..., -1] == 1).all() for hidden in absorb_biases(network).activations(ones).hidden)


# Assumption 1


@pytest.mark.parametrize("method", ["_over_nodes", "_over_samples"])
@pytest.mark.parametrize("slope", [0.0, 0.2])
def test_the_errors_of_assumption_1_equal_their_definition(method, slope, monkeypatch):
    for name in ("_over_nodes", "_over_samples"):
        monkeypatch.setattr(factorisation, name, getattr(factorisation, method))
    monkeypatch.setattr(factorisation, "_PIECE", 500)
    teacher, student = pair((3, 2, 4, 2), nets=1, slope=slope)
    x = gaussians(3, 12, 3)
    found = factorisation_gaps(teacher, student, x)
    wide = absorb_biases(teacher), absorb_biases(student)
    for i, (layer, sides) in enumerate(zip(found, by_definition(teacher, student, x), strict=True)):
        gaps = [(left - right).norm() for left, right in sides]
        for error, gap, (left, _) in zip((layer.star, layer.plain), gaps, sides, strict=True):
            assert error.item() == pytest.approx((gap / left.norm()).item(), rel=1e-7)
        bound = sum(w.layers[i].weight.norm() * gap for w, gap in zip(wide, gaps, strict=True))
        assert layer.bound.item() == pytest.approx(bound.item(), rel=1e-7)


@pytest.mark.parametrize("slope", [0.0, 0.2])
def test_gates_give_the_same_products_where_v_is_the_same_for_all_samples(slope):
    teacher, student = pair((3, 4, 2), nets=1, slope=slope)
    *networks, x = factorisation.without_biases(teacher, student, gaussians(3, 12, 3))
    theirs, ours = (factorisation._layer_signals(network, x)[0] for network in networks)
    assert factorisation._has_one_v(ours, theirs)
    slow, fast = (
        torch.cat([a for _, a in found])
        for found in (
            factorisation._products(ours.gated, theirs.gated),
            factorisation._products_of_gates(ours, theirs),
        )
    )
    torch.testing.assert_close(fast, slow, rtol=1e-12, atol=1e-13)


@every_depth
@given(slope=slopes, seed=st.integers(0, 10**6), samples=st.integers(1, 20))
def test_the_error_of_eqn_6_is_within_the_bound_of_assumption_1(sizes, slope, seed, samples):
    teacher, student = pair(sizes, slope=slope)
    x = gaussians(seed, 2, samples, sizes[0])
    for gap, found in zip(
        factorisation_gaps(teacher, student, x), compare_velocities(teacher, student, x), strict=False
    ):
        assert (found.gap <= gap.bound * (1 + 1e-9) + 10 * found.rounding).all()


# Descent


def test_a_step_of_descent_equals_sgd_of_torch():
    teacher, student = pair((4, 3, 5, 2), nets=1)
    x = gaussians(3, 1, 30, 4)
    modules = torch.nn.Sequential(
        *itertools.chain(*((torch.nn.Linear(*w.shape[:0:-1]), torch.nn.ReLU()) for w, _ in student.layers))
    )[:-1]
    for linear, (weight, bias) in zip(modules[::2], student.layers, strict=True):
        linear.weight.data, linear.bias.data = weight[0].clone(), bias[0].clone()
    optimiser = torch.optim.SGD(modules.parameters(), lr=0.1)
    ((teacher(x)[0] - modules(x[0])).square().sum(1).mean() / 2).backward()
    optimiser.step()
    (after,) = gradient_flow.descent(teacher, student, [x], 0.1)
    for linear, (weight, bias) in zip(modules[::2], after.layers, strict=True):
        torch.testing.assert_close(linear.weight.data, weight[0])
        torch.testing.assert_close(linear.bias.data, bias[0])


@pytest.mark.parametrize("kind", ["fc-before", "fc-after"])
def test_the_velocity_under_batchnorm_equals_finite_differences(kind):
    student, teacher = made(KINDS[kind], 1), population((4, 6, 3), 1)
    x = gaussians(3, 1, 12, 4)

    def loss(at):
        from understudy.nets import training_pass

        return ((teacher(x) - training_pass(at, x)[0].output).square().sum(2).mean() / 2).item()

    by = gradient_flow.velocity(teacher, student, x)
    speed = sum(
        (part**2).sum() for group in (by.layers, by.norms) for each in group for part in each if part is not None
    )
    h = 1e-6
    slope = (loss(gradient_flow.move(student, by, h)) - loss(gradient_flow.move(student, by, -h))) / (2 * h)
    assert -slope == pytest.approx(speed.item(), rel=1e-5)
    assert all((norm.mean == 0).all() and (norm.variance == 0).all() for norm in by.norms)


def test_batches_are_consecutive_and_never_drawn_twice():
    source = us.data.Gaussian(3, 1.0, train=40, evaluation=1, fresh=True)
    found = torch.stack(list(gradient_flow.batches(source, [1, 2], 10, 9)))
    assert found.shape == (9, 2, 10, 3)
    assert len(found.unique()) == found.numel()
    torch.testing.assert_close(found[4:8, 1].flatten(0, 1), source.training(2, 2, dtype=torch.float64))


def test_descent_is_probed_at_the_start_and_at_regular_steps():
    teacher, student = pair((4, 3, 2))
    source = us.data.Gaussian(4, 1.0, train=40, evaluation=50, fresh=True)
    x = torch.stack([source.evaluating(seed, dtype=torch.float64) for seed in (1, 2)])
    batches = list(gradient_flow.batches(source, [1, 2], 10, 6))
    readings = list(probe_descent(teacher, student, batches, 0.01, matrix_gradient, x, every=3, few=20))
    assert [reading.step for reading in readings] == [0, 3, 6]
    *_, last = gradient_flow.descent(teacher, student, batches, 0.01, matrix_gradient)
    torch.testing.assert_close(readings[-1].loss, (teacher(x) - last(x)).square().mean((1, 2)))
    torch.testing.assert_close(readings[-1].velocities[0].cosine, compare_velocities(teacher, last, x)[0].cosine)
    torch.testing.assert_close(readings[0].gaps[0].plain, factorisation_gaps(teacher, student, x[:, :20])[0].plain)
    torch.testing.assert_close(
        readings[0].rho[0], us.measures.correlation(teacher.activations(x).hidden[0], student.activations(x).hidden[0])
    )


def test_different_numbers_of_outputs_are_refused():
    with pytest.raises(UserError, match="the same number of outputs, got 2 and 3"):
        gradient_flow.velocity(population((4, 3, 2), 1), population((4, 3, 3), 1), gaussians(1, 5, 4))


# As a result


def test_the_result_has_one_finding_per_layer():
    teacher, student = pair((4, 3, 5, 2), nets=1)
    low, middle, top = THEOREM(teacher, student, gaussians(3, 100, 4))
    assert top.applies
    assert top.agrees
    for finding in (low, middle):
        assert not finding.applies
        assert finding.agrees
        assert [h.name for h in finding.failing] == ["Assumption 1, eq. 4", "Assumption 1, eq. 5"]
        assert all(h.factor > 1e3 and h.change for h in finding.failing)
    assert "layer 3 (the outputs)" in top.about


def test_a_student_whose_outputs_are_0_does_not_contradict_the_result():
    """LWH is then 0, and the rounding error that of L*W*H*."""
    teacher, student = pair((4, 3, 5, 2), nets=1, bias=False)
    top = student.layers[-1]
    student = Population((*student.layers[:-1], Layer(0 * top.weight, None)), student.seeds)
    *_, found = THEOREM(teacher, student, gaussians(3, 100, 4))
    assert found.applies
    assert found.agrees


@pytest.mark.parametrize(
    ("teacher", "student", "inputs", "words"),
    [
        ((4, 2), (4, 2), 4, "stated for networks with a hidden layer, and these have none"),
        ((4, 3, 2), (4, 3, 5), 4, "equally many layers and outputs"),
        ((4, 3, 2), (4, 5, 2), 7, "must have equally many inputs"),
    ],
)
def test_networks_to_which_the_result_does_not_apply_are_refused(teacher, student, inputs, words):
    with pytest.raises(UserError, match=words):
        THEOREM(population(teacher, 1), population(student, 1), gaussians(3, 20, inputs))


def test_the_result_applies_where_no_gate_changes():
    teacher, student = map(positive, pair((4, 3, 5, 2), nets=1))
    found = THEOREM(teacher, student, gaussians(3, 100, 4).abs())
    assert all(f.applies and f.agrees for f in found)
    numbers = ["the weights of layer 1", "the weights of layer 2", "the weights of layer 3 (the outputs)"]
    assert [f.about for f in found] == numbers


def test_the_result_uses_no_more_samples_than_affordable(monkeypatch):
    monkeypatch.setattr(matrix_dynamics, "_WORK", 1e3)
    teacher, student = pair((4, 3, 5, 2), nets=1)
    low, *_ = THEOREM(teacher, student, gaussians(3, 100, 4))
    # The widest layer has 7 nodes and the constant one, so that √(1000 / (2 · 8)) / 2 outputs = 3 samples.
    assert "on 3 samples" in low.hypotheses[0].value


def test_convolutions_are_refused():
    networks = made(KINDS["conv"], 2)
    x = gaussians(3, 10, networks.inputs)
    for function in (matrix_gradient, compare_velocities):
        with pytest.raises(UserError, match="defined for fully connected layers"):
            function(networks, networks, x)
