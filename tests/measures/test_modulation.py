"""Modulation: by hand, by plain loops, by autograd, by identities and limits, and by simulation."""

import itertools
import math
import sys
from dataclasses import replace
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import understudy.measures as measures
from support.kinds import KINDS, made
from support.problems import SLOPES, gaussians, population
from understudy._errors import UserError
from understudy.nets import Layer, Population, Shape, activate, gate, incoming, outgoing

MODULE = sys.modules["understudy.measures.modulation"]
DEPTHS = {depth: (4, 3, 5, 2, 4, 3, 2)[-depth - 1 :] for depth in range(2, 7)}
slopes = st.sampled_from(tuple(SLOPES.values()))
widths = st.integers(1, 4)


def pair(sizes, nets=2, slope=0.0, bias=True, dtype=torch.float64, seed=10):
    """Build teachers, and students with two more nodes at every hidden layer."""
    wider = (sizes[0], *(n + 2 for n in sizes[1:-1]), sizes[-1])
    made = {"slope": slope, "bias": bias, "dtype": dtype}
    return population(sizes, nets, first_seed=seed, **made), population(wider, nets, first_seed=seed + 100, **made)


def net(*weights, biases=None, slope=0.0):
    """Build one network from nested lists."""
    biases = biases or [None] * len(weights)
    layers = tuple(
        Layer(torch.tensor([w]).double(), None if b is None else torch.tensor([b]).double())
        for w, b in zip(weights, biases, strict=True)
    )
    return Population(layers, torch.tensor([1]), slope)


def before(network, x):
    """Pre-activations of one network on one sample, the lowest layer first, then the outputs."""
    values, h = [], x
    for weight, bias in network.layers:
        z = weight[0] @ h + (0 if bias is None else bias[0])
        values.append(z)
        h = activate(z, network.slope)
    return values


def upper(network, layer, h):
    """Compute the outputs from the activations of hidden layer `layer`."""
    for i, (weight, bias) in enumerate(network.layers[layer + 1 :], layer + 1):
        z = weight[0] @ h + (0 if bias is None else bias[0])
        h = activate(z, network.slope) if i < len(network.layers) - 1 else z
    return h


def loops(left, right, z_left, z_right, layer):
    """β of Tian et al. 2019, eq. 3, between hidden layers of two networks on one sample, by plain sums."""
    outputs = left.sizes[-1]
    beta = [[float(c == d) for d in range(outputs)] for c in range(outputs)]
    for upper_layer in range(len(left.layers) - 1, layer, -1):
        (w, _), (v, _) = left.layers[upper_layer], right.layers[upper_layer]
        top = upper_layer == len(left.layers) - 1
        f = [1.0 if top or z >= 0 else left.slope for z in z_left[upper_layer].tolist()]
        g = [1.0 if top or z >= 0 else right.slope for z in z_right[upper_layer].tolist()]
        beta = [
            [
                sum(
                    w[0, j, k].item() * f[j] * beta[j][i] * g[i] * v[0, i, q].item()
                    for j in range(len(f))
                    for i in range(len(g))
                )
                for q in range(v.shape[2])
            ]
            for k in range(w.shape[2])
        ]
    return torch.tensor(beta, dtype=torch.float64)


def by_definition(teacher, student, x):
    """Compute every part at every hidden layer of one pair of networks."""
    layers = []
    for layer in range(len(student.layers) - 1):
        sums = dict.fromkeys(("beta_star", "beta", "d_star", "d", "l_star", "l"), 0.0)
        for sample in x:
            zs, zt = before(student, sample), before(teacher, sample)
            for side, other, z in (("_star", teacher, zt), ("", student, zs)):
                sums[f"beta{side}"] += loops(student, other, zs, z, layer) / len(x)
                ours, theirs = (gate(v[layer], student.slope).double() for v in (zs, z))
                sums[f"d{side}"] += torch.outer(ours, theirs) / len(x)
                ours, theirs = (activate(v[layer], student.slope) for v in (zs, z))
                sums[f"l{side}"] += torch.outer(ours, theirs) / len(x)
        for side, network in (("_star", teacher), ("", student)):
            sums[f"h{side}"] = sums[f"beta{side}"] * sums[f"d{side}"]
            hidden = [activate(before(network, sample)[layer], network.slope) for sample in x]
            up = partial(upper, network, layer)
            sums[f"v{side}"] = sum(torch.autograd.functional.jacobian(up, f) for f in hidden) / len(x)
        layers.append({**sums, "energy": sums["beta"].diagonal()})
    return layers


class Largest(TorchDispatchMode):
    """Record the size of the largest tensor that is created; views do not count."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        known = {arg.untyped_storage().data_ptr() for arg in args if isinstance(arg, Tensor)}
        if isinstance(out, Tensor) and out.untyped_storage().data_ptr() not in known:
            self.numbers = max(self.numbers, out.numel())
        return out


def test_by_hand():
    student = net([[1], [-1]], [[2, 3], [-1, 1]], [[1, 4], [0, 1]])
    teacher = net([[1]], [[1]], [[1], [1]], biases=[[0], [-0.5], [0, 0]])
    # At x = 1: f = (1, 0), then (2, 0) with gates (1, 0), so V = [[2, 3], [0, 0]]; the teacher's V is (1, 1).
    # At x = −1: f = (0, 1), then (3, 1) with gates (1, 1), so V = [[−2, 7], [−1, 1]]; the teacher's gate is closed.
    low, high = measures.modulation(teacher, student, torch.tensor([[1.0], [-1.0]]).double())
    assert low.v.tolist() == [[[0, 5], [-0.5, 0.5]]]
    assert low.v_star.tolist() == [[[0.5], [0.5]]]
    assert low.beta.tolist() == [[[4.5, -4.5], [-4.5, 29.5]]]
    assert low.energy.tolist() == [[4.5, 29.5]]
    assert low.beta_star.tolist() == [[[1.0], [1.5]]]
    assert low.d.tolist() == low.l.tolist() == [[[0.5, 0], [0, 0.5]]]
    assert low.d_star.tolist() == low.l_star.tolist() == [[[0.5], [0]]]
    assert low.h.tolist() == [[[2.25, 0], [0, 14.75]]]
    assert low.h_star.tolist() == [[[0.5], [0]]]
    assert high.v.tolist() == [[[1, 4], [0, 1]]]
    assert high.beta.tolist() == [[[1, 4], [4, 17]]]
    assert high.energy.tolist() == [[1, 17]]
    assert high.beta_star.tolist() == [[[1], [5]]]
    assert high.d.tolist() == [[[1, 0.5], [0.5, 0.5]]]
    assert high.h.tolist() == [[[1, 2], [2, 8.5]]]
    assert high.l.tolist() == [[[6.5, 1.5], [1.5, 0.5]]]
    assert high.l_star.tolist() == [[[0.5], [0]]]


def test_the_gate_is_open_at_zero():
    # Tian 2020, sec. 3: the gate is open at 0, as in training. The second node gets 0 if the first is inactive.
    low, high = measures.modulation(*[net([[1]], [[2]], [[3]])] * 2, torch.tensor([[-1.0], [0.0]]).double())
    assert (low.energy.item(), low.d.item(), high.d.item()) == (36, 0.5, 1)


@given(nodes=st.lists(widths, min_size=3, max_size=5), slope=slopes, bias=st.booleans(), own=st.booleans(), seed=widths)
def test_every_part_equals_plain_loops(nodes, slope, bias, own, seed):
    teacher, student = pair(nodes, slope=slope, bias=bias, seed=10 * seed)
    x = gaussians(seed, *([2] if own else []), 3, nodes[0])
    found = measures.modulation(teacher, student, x)
    assert len(found) == len(nodes) - 2
    for e in range(2):
        expected = by_definition(teacher[e], student[e], x[e] if own else x)
        for layer, parts in zip(found, expected, strict=True):
            for name, value in parts.items():
                torch.testing.assert_close(getattr(layer, name)[e], value, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("slope", SLOPES.values(), ids=SLOPES)
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no-bias"])
def test_v_is_the_jacobian_of_the_outputs_and_its_last_column_the_bias(slope, bias):
    teacher, student = pair(DEPTHS[4], slope=slope, bias=bias)
    x = gaussians(1, 6, 2 + DEPTHS[4][0])[:, : DEPTHS[4][0]]
    for layer, found in enumerate(measures.sample_modulation(teacher, student, x)):
        for side, v, f in ((student, found.v, found.f), (teacher, found.v_star, found.f_star)):
            hidden, output = side.activations(x).hidden[layer], side(x)
            torch.testing.assert_close(f, torch.nn.functional.pad(hidden, (0, 1), value=1.0))
            torch.testing.assert_close((v @ f.unsqueeze(3)).squeeze(3), output, atol=1e-12, rtol=0)
            for e, sample in itertools.product(range(2), range(6)):
                network = side[e]
                jacobian = torch.autograd.functional.jacobian(
                    lambda h, of=network, at=layer: upper(of, at, h), hidden[e, sample]
                )
                torch.testing.assert_close(v[e, sample, :, :-1], jacobian, atol=1e-12, rtol=0)
            if not bias:
                assert not v[..., -1].any()
        torch.testing.assert_close(found.a, torch.einsum("escj,esci->esji", found.v, found.v_star))
        torch.testing.assert_close(found.b, torch.einsum("escj,esci->esji", found.v, found.v))


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("slope", SLOPES.values(), ids=SLOPES)
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no-bias"])
def test_the_recursive_gradient_rule_is_backpropagation(depth, slope, bias):
    teacher, student = pair(DEPTHS[depth], slope=slope, bias=bias)
    x = gaussians(3, 20, DEPTHS[depth][0])
    layers = measures.sample_modulation(teacher, student, x)
    assert len(layers) == depth - 1
    for e, sample in itertools.product(range(2), range(20)):
        h, inner = x[sample], []
        for i, (weight, b) in enumerate(student[e].layers):
            z = weight[0] @ h + (0 if b is None else b[0])
            if i < depth - 1:
                inner.append(z.requires_grad_() if not i else z)
            h = activate(z, slope) if i < depth - 1 else z
        loss = 0.5 * (teacher[e](x[sample : sample + 1])[0, 0] - h).square().sum()
        for found, downhill in zip(layers, torch.autograd.grad(loss, inner), strict=True):
            torch.testing.assert_close(found.gradient[e, sample], -downhill, atol=1e-10, rtol=0)
    assert max(found.gradient.abs().max().item() for found in layers) > 1e-2


@pytest.mark.parametrize("slope", SLOPES.values(), ids=SLOPES)
def test_samples_of_one_region_share_a_and_b(slope):
    # Tian 2020, remark on Lemma 1: piece-wise constant. Two close points have the same gates, distant ones do not.
    teacher, student = pair(DEPTHS[4], slope=slope)
    near = gaussians(1, 1, DEPTHS[4][0]) * torch.tensor([[1.0], [1.0 + 1e-9], [-3.0]]).double()
    for found in measures.sample_modulation(teacher, student, near)[:-1]:
        assert torch.equal(found.a[:, 0], found.a[:, 1]) and torch.equal(found.b[:, 0], found.b[:, 1])
        assert not torch.equal(found.b[:, 0], found.b[:, 2])


@given(nodes=st.lists(widths, min_size=3, max_size=5), slope=slopes, seed=widths)
def test_averages_equal_means_over_single_samples(nodes, slope, seed):
    teacher, student = pair(nodes, slope=slope, seed=10 * seed)
    x = gaussians(seed, 2, 7, nodes[0])
    for mean, each in zip(
        measures.modulation(teacher, student, x), measures.sample_modulation(teacher, student, x), strict=True
    ):
        torch.testing.assert_close(mean.v_star, each.v_star.mean(1)[..., :-1])
        torch.testing.assert_close(mean.v, each.v.mean(1)[..., :-1])
        torch.testing.assert_close(mean.beta_star, each.a.mean(1)[:, :-1, :-1])
        torch.testing.assert_close(mean.beta, each.b.mean(1)[:, :-1, :-1])
        torch.testing.assert_close(mean.energy, each.b.mean(1).diagonal(dim1=1, dim2=2)[:, :-1])


class TestPieces:
    @pytest.mark.parametrize("own", [True, False], ids=["own inputs", "shared inputs"])
    @pytest.mark.parametrize("piece", [1, 700, 3_000])
    def test_do_not_change_the_result(self, piece, own, monkeypatch):
        teacher, student = pair(DEPTHS[4], nets=3)
        x = gaussians(1, *([3] if own else []), 101, DEPTHS[4][0])
        whole, fans = measures.modulation(teacher, student, x), measures.modulated_fan_out(student, x)
        monkeypatch.setattr(MODULE, "_CPU_PIECE", piece)
        for cut, layer in zip(measures.modulation(teacher, student, x), whole, strict=True):
            for ours, theirs in zip(cut, layer, strict=True):
                torch.testing.assert_close(ours, theirs, atol=1e-13, rtol=1e-13)
        for cut, fan in zip(measures.modulated_fan_out(student, x), fans, strict=True):
            torch.testing.assert_close(cut, fan, atol=1e-13, rtol=1e-13)

    def test_memory_is_bounded_for_any_number_of_samples(self, monkeypatch):
        # V of all samples would have 400 × 3 × 22 numbers, VᵀV of each sample 400 × 22².
        teacher, student = pair((4, 20, 20, 3))
        x = gaussians(1, 400, 4)
        monkeypatch.setattr(MODULE, "_CPU_PIECE", 5_000)
        with Largest() as largest:
            measures.modulation(teacher, student, x)
        assert 22**2 <= largest.numbers <= 5_000

    def test_energy_alone_needs_no_matrix_of_node_pairs(self, monkeypatch):
        student = population((4, 150, 200, 2), 1)
        x = gaussians(1, 30, 4)
        monkeypatch.setattr(MODULE, "_CPU_PIECE", 5_000)
        with Largest() as largest:
            measures.modulated_fan_out(student, x)
        assert largest.numbers < 150**2
        with Largest() as largest:
            measures.modulation(student, student, x, ("energy", "beta"))
        assert largest.numbers >= 200**2

    @pytest.mark.parametrize("own", [True, False], ids=["own inputs", "shared inputs"])
    def test_of_several_networks_as_on_a_gpu_do_not_change_the_result(self, own, monkeypatch):
        teacher, student = pair(DEPTHS[4], nets=5)
        x = gaussians(1, *([5] if own else []), 30, DEPTHS[4][0])
        whole = measures.modulation(teacher, student, x)
        monkeypatch.setattr(MODULE, "_piece_size", lambda *_: (7, 2))
        for ours, theirs in zip(measures.modulation(teacher, student, x), whole, strict=True):
            for part, expected in zip(ours, theirs, strict=True):
                torch.testing.assert_close(part, expected, atol=1e-13, rtol=1e-13)

    @pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
    def test_gpu_agrees_with_cpu(self, monkeypatch):
        teacher, student = pair(DEPTHS[4], nets=5)
        x = gaussians(1, 5, 101, DEPTHS[4][0])
        whole = measures.modulation(teacher, student, x)
        for piece in (20_000, 1 << 28):
            monkeypatch.setattr(MODULE, "_GPU_PIECE", piece)
            found = measures.modulation(teacher.to("cuda"), student.to("cuda"), x.cuda())
            for ours, theirs in zip(found, whole, strict=True):
                for part, expected in zip(ours, theirs, strict=True):
                    torch.testing.assert_close(part.cpu(), expected, atol=1e-12, rtol=1e-12)


class TestIdentities:
    def test_of_two_layers_is_the_norm_of_the_fan_out_weights(self):
        student = population((5, 7, 3), 4)
        (found,) = measures.modulated_fan_out(student, gaussians(1, 9, 5))
        torch.testing.assert_close(found, measures.fan_out(student), atol=1e-14, rtol=0)

    @pytest.mark.parametrize("depth", DEPTHS)
    def test_at_the_highest_layer_it_does_not_depend_on_the_data(self, depth):
        student = population(DEPTHS[depth], 3)
        found = measures.modulated_fan_out(student, gaussians(1, 9, DEPTHS[depth][0]))
        torch.testing.assert_close(found[-1], measures.fan_out(student, depth - 2), atol=1e-14, rtol=0)

    def test_energy_is_the_diagonal_of_beta(self):
        teacher, student = pair(DEPTHS[5])
        x = gaussians(1, 40, DEPTHS[5][0])
        for layer, fan in zip(
            measures.modulation(teacher, student, x), measures.modulated_fan_out(student, x), strict=True
        ):
            torch.testing.assert_close(layer.energy, layer.beta.diagonal(dim1=1, dim2=2))
            torch.testing.assert_close(fan.square(), layer.energy)

    @pytest.mark.parametrize("slope", SLOPES.values(), ids=SLOPES)
    def test_below_the_highest_layer_beta_is_h_between_the_weights(self, slope):
        # β of the layer above is the same for every sample, so that E[β ∘ f'f'ᵀ] is H itself.
        teacher, student = pair(DEPTHS[4], slope=slope)
        *_, low, high = measures.modulation(teacher, student, gaussians(1, 50, DEPTHS[4][0]))
        w, w_star = student.layers[-2].weight, teacher.layers[-2].weight
        torch.testing.assert_close(low.beta, w.mT @ high.h @ w)
        torch.testing.assert_close(low.beta_star, w.mT @ high.h_star @ w_star)

    def test_a_student_equal_to_its_teacher_has_no_gradient_and_equal_sides(self):
        teacher, _ = pair(DEPTHS[4])
        x = gaussians(1, 30, DEPTHS[4][0])
        for layer, each in zip(
            measures.modulation(teacher, teacher, x), measures.sample_modulation(teacher, teacher, x), strict=True
        ):
            for part in ("beta", "d", "h", "l"):
                assert torch.equal(getattr(layer, part), getattr(layer, f"{part}_star"))
            assert each.gradient.abs().max() < 1e-13

    def test_scaling_a_node_by_c_divides_its_row_by_c(self):
        teacher, student = pair(DEPTHS[4])
        x, c = gaussians(1, 30, DEPTHS[4][0]), torch.linspace(0.3, 3.0, student.sizes[2]).double()
        layers = list(student.layers)
        layers[1] = Layer(layers[1].weight * c[:, None], layers[1].bias * c)
        layers[2] = Layer(layers[2].weight / c, layers[2].bias)
        before_, after = (
            measures.modulation(teacher, s, x)[1] for s in (student, replace(student, layers=tuple(layers)))
        )
        torch.testing.assert_close(after.beta_star * c[:, None], before_.beta_star)
        torch.testing.assert_close(after.h_star * c[:, None], before_.h_star)
        torch.testing.assert_close(after.energy * c.square(), before_.energy)
        torch.testing.assert_close(after.d_star, before_.d_star)
        torch.testing.assert_close(after.l_star / c[:, None], before_.l_star)

    @pytest.mark.parametrize("depth", DEPTHS)
    def test_linear_networks_follow_theorem_2_of_tian_et_al_2019(self, depth):
        # With slope 1 every gate is 1 and β is constant, so that expectations factorise exactly at all layers.
        teacher, student = pair(DEPTHS[depth], slope=1.0, bias=False)
        x = gaussians(1, 30, DEPTHS[depth][0])
        found = measures.modulation(teacher, student, x)
        inputs = (x.mT @ x / len(x)).expand(2, -1, -1)
        ours, theirs = [inputs, *(layer.l for layer in found)], [inputs, *(layer.l_star for layer in found)]
        top = torch.eye(student.sizes[-1], dtype=torch.float64).expand(2, -1, -1)
        h, h_star = [*(layer.h for layer in found), top], [*(layer.h_star for layer in found), top]
        moving = [layer.weight.clone().requires_grad_() for layer in student.layers]
        output = replace(student, layers=tuple(Layer(w, None) for w in moving))(x)
        loss = 0.5 * (teacher(x) - output).square().sum() / len(x)
        for i, downhill in enumerate(torch.autograd.grad(loss, moving)):
            w, w_star = student.layers[i].weight, teacher.layers[i].weight
            velocity = theirs[i] @ w_star.mT @ h_star[i].mT - ours[i] @ w.mT @ h[i]
            torch.testing.assert_close(velocity.mT, -downhill, atol=1e-11, rtol=1e-11)

    def test_output_weights_move_by_l_alone(self):
        # Tian et al. 2019, Theorem 2 at the highest layer, where H = I: exact for ReLU too.
        teacher, student = pair(DEPTHS[4], bias=False)
        x = gaussians(1, 30, DEPTHS[4][0])
        high = measures.modulation(teacher, student, x, ("l", "l_star"))[-1]
        v = student.layers[-1].weight.clone().requires_grad_()
        output = replace(student, layers=(*student.layers[:-1], Layer(v, None)))(x)
        (downhill,) = torch.autograd.grad(0.5 * (teacher(x) - output).square().sum() / len(x), v)
        velocity = high.l_star @ teacher.layers[-1].weight.mT - high.l @ v.mT
        torch.testing.assert_close(velocity.mT, -downhill, atol=1e-12, rtol=0)


def test_gaussian_inputs_give_the_angles_in_closed_form_within_four_standard_errors():
    # Without biases E[f'_j f'*_i] = (π − θ) / 2π and E[f_j f*_i] = (sin θ + (π − θ) cos θ) / 2π for unit weights.
    n, angles = 40_000, torch.tensor([0.0, 0.7, 1.9, 3.0]).double()
    student = net(torch.stack((angles.cos(), angles.sin()), 1).tolist(), [[1, 1, 1, 1]])
    (found,) = measures.modulation(net([[1, 0]], [[1]]), student, gaussians(1, n, 2), ("d_star", "l_star"))
    both = (math.pi - angles) / (2 * math.pi)
    error = (both * (1 - both) / n).sqrt()
    assert ((found.d_star[0, :, 0] - both).abs() < 4 * error).all()
    product = (angles.sin() + (math.pi - angles) * angles.cos()) / (2 * math.pi)
    # E[(f_j f*_i)²] ≤ E[x⁴] / 2 = 3/2.
    assert ((found.l_star[0, :, 0] - product).abs() < 4 * math.sqrt(1.5 / n)).all()


def test_energy_is_the_share_of_open_paths_within_four_standard_errors():
    # f = 3 σ(2 σ(x) − 2): the second node is active for x ≥ 1, where V = 6.
    n, chance = 40_000, 0.5 * math.erfc(1 / math.sqrt(2))
    student = net([[1]], [[2]], [[3]], biases=[[0], [-2], [0]])
    energy = measures.modulation(student, student, gaussians(2, n, 1), ("energy",))[0].energy.item()
    assert abs(energy / 36 - chance) < 4 * math.sqrt(chance * (1 - chance) / n)


class TestParts:
    def test_only_requested_parts_are_computed(self):
        teacher, student = pair((4, 3, 3, 2))
        x = gaussians(1, 9, 4)
        whole = measures.modulation(teacher, student, x)
        for count in (0, 1, 2):
            for parts in itertools.combinations(measures.PARTS, count):
                for found, layer in zip(measures.modulation(teacher, student, x, parts), whole, strict=True):
                    assert {name for name, value in found._asdict().items() if value is not None} == set(parts)
                    for part in parts:
                        torch.testing.assert_close(getattr(found, part), getattr(layer, part))

    def test_have_the_precision_of_the_networks_and_no_gradients(self):
        teacher, student = pair((4, 3, 3, 2), dtype=torch.float32)
        for weight, _ in student.layers:
            weight.requires_grad_()
        x = gaussians(1, 500, 4, dtype=torch.float32)
        narrow = measures.modulation(teacher, student, x)
        wide = measures.modulation(teacher.to(dtype=torch.float64), student.to(dtype=torch.float64), x.double())
        for ours, theirs in zip(itertools.chain(*narrow), itertools.chain(*wide), strict=True):
            assert ours.dtype == torch.float32 and not ours.requires_grad
            torch.testing.assert_close(ours.double(), theirs, atol=1e-5, rtol=1e-5)

    def test_an_unknown_part_is_rejected(self):
        teacher, student = pair((4, 3, 2))
        with pytest.raises(
            UserError, match=r"parts must be among v_star, v, energy, beta_star, beta, .*, got alpha, w"
        ):
            measures.modulation(teacher, student, gaussians(1, 3, 4), ("w", "beta", "alpha"))


@pytest.mark.parametrize("measure", [measures.modulation, measures.sample_modulation])
class TestRejects:
    def test_networks_that_do_not_pair(self, measure):
        teacher, student = pair((4, 3, 2))
        x = gaussians(1, 5, 4)
        with pytest.raises(UserError, match="paired with teachers by index, got 1 teachers and 2 students"):
            measure(teacher[0], student, x)
        for other in (population((4, 3, 3, 2), 2), population((4, 3, 1), 2)):
            with pytest.raises(UserError, match=r"equally many layers and outputs, got sizes .* and \(4, 5, 2\)"):
                measure(other, student, x)
        with pytest.raises(UserError, match="no nodes to compare"):
            measure(population((4, 2), 2), population((4, 2), 2), x)

    def test_data_that_does_not_fit(self, measure):
        teacher, student = pair((4, 3, 2))
        with pytest.raises(UserError, match="equally many inputs, got 4, 4 and 5"):
            measure(teacher, student, gaussians(1, 5, 5))
        with pytest.raises(UserError, match=r"give one set of inputs, or one per network \(2\), got 3"):
            measure(teacher, student, gaussians(1, 3, 5, 4))
        with pytest.raises(UserError, match="there are no samples to average over: give at least one"):
            measure(teacher, student, gaussians(1, 5, 4)[:0])

    @pytest.mark.parametrize("side", [0, 1])
    def test_convolutions_beside_fully_connected_networks(self, measure, side):
        networks = [made(Shape((84, 4, 3, 5)), 2), made(Shape((84, 6, 5, 5)), 2)]
        networks[side] = made(KINDS["conv"], 2)
        with pytest.raises(UserError, match=r"feature maps of equal sizes at each layer|not defined for convolutions"):
            measure(*networks, gaussians(1, 5, 84))


@pytest.mark.parametrize("kind", ["fc-before", "fc-after"])
def test_with_batch_norm_v_equals_autograd_in_evaluation_mode(kind):
    student, x = made(KINDS[kind], 2), gaussians(4, 2, 6, 4)
    energies, hidden = measures.modulated_fan_out(student, x), student.activations(x).hidden
    for layer, (energy, h) in enumerate(zip(energies, hidden, strict=True)):

        def outputs(h, layer=layer):
            for i in range(layer + 1, len(student.layers)):
                h = incoming(student, i, h)
                h = outgoing(student, i, h)[0] if i < len(student.layers) - 1 else h
            return h.sum(1)  # samples are independent

        v = torch.autograd.functional.jacobian(outputs, h)  # net, out, net, sample, node
        for e in range(2):
            torch.testing.assert_close(energy[e].square(), v[e, :, e].square().sum(0).mean(0), atol=1e-12, rtol=1e-10)


def test_sample_modulation_rejects_batch_norm():
    with pytest.raises(UserError, match="not defined with BatchNorm: give networks without it"):
        measures.sample_modulation(made(KINDS["fc-before"], 2), made(KINDS["fc-before"], 2), gaussians(1, 5, 4))


class TestReordered:
    # Both teacher nodes have student 2 as best match; the second has the higher correlation and takes it.
    rho = torch.tensor([[[0.1, 0.3, 0.8, 0.2], [0.6, 0.0, 0.9, 0.5]]])

    def test_by_hand(self):
        matrix = torch.arange(8.0).view(1, 4, 2)
        found = measures.reorder_students(matrix, self.rho)
        assert found.order.tolist() == [[1, 2, 0, 3]]
        assert found.matrix.tolist() == [[[2, 3], [4, 5], [0, 1], [6, 7]]]
        # 2² and 5² of 0² + … + 7².
        assert measures.diagonal_mass(matrix, found.order).item() == pytest.approx(29 / 140)

    def test_of_ties_the_lowest_come_first(self):
        assert measures.reorder_students(torch.zeros(1, 5, 3), torch.zeros(1, 3, 5)).order.tolist() == [[0, 1, 2, 3, 4]]

    @given(nets=widths, m=widths, more=st.integers(0, 4), levels=st.integers(1, 50), seed=st.integers(0, 99))
    def test_is_a_greedy_matching_of_each_network_alone(self, nets, m, more, levels, seed):
        n = m + more
        rho = (levels * gaussians(seed, nets, m, n).tanh()).round() / levels
        matrix = gaussians(seed + 100, nets, n, m)
        found = measures.reorder_students(matrix, rho)
        for e in range(nets):
            entries = sorted(itertools.product(range(m), range(n)), key=lambda pair: (-rho[e][pair].item(), pair))
            chosen = {}
            for j, k in entries:
                if j not in chosen and k not in chosen.values():
                    chosen[j] = k
            rest = sorted(set(range(n)) - set(chosen.values()), key=lambda k: (-rho[e, :, k].max().item(), k))
            assert found.order[e].tolist() == [*(chosen[j] for j in range(m)), *rest]
            assert torch.equal(found.matrix[e], matrix[e, found.order[e]])
            diagonal = sum(found.matrix[e, j, j].item() ** 2 for j in range(m))
            share = measures.diagonal_mass(matrix, found.order)[e].item()
            assert share == pytest.approx(diagonal / matrix[e].square().sum().item())

    def test_a_permuted_copy_is_restored(self):
        teacher = population((4, 6, 2), 1)
        order = torch.tensor([4, 0, 5, 2, 1, 3])
        (w, b), (v, c) = teacher.layers
        student = replace(teacher, layers=(Layer(w[:, order], b[:, order]), Layer(v[:, :, order], c)))
        x = gaussians(1, 300, 4)
        rho = measures.correlation(teacher.activations(x).hidden[0], student.activations(x).hidden[0])
        (layer,) = measures.modulation(teacher, student, x, ("beta_star", "beta"))
        found = measures.reorder_students(layer.beta_star, rho)
        assert found.order[0].tolist() == order.argsort().tolist()
        (own,) = measures.modulation(teacher, teacher, x, ("beta",))
        torch.testing.assert_close(found.matrix, own.beta)

    def test_the_order_of_students_does_not_change_the_mass(self):
        rho, matrix = gaussians(1, 3, 4, 9), gaussians(2, 3, 9, 4)
        turn = gaussians(3, 9).argsort()
        masses = [
            measures.diagonal_mass(m, measures.reorder_students(m, r).order)
            for m, r in ((matrix, rho), (matrix[:, turn], rho[..., turn]))
        ]
        torch.testing.assert_close(*masses)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_limits(self, dtype):
        order = torch.tensor([[2, 0, 1]])
        only = torch.zeros(1, 3, 2, dtype=dtype)
        only[0, 2, 0], only[0, 0, 1] = -4.0, -4.0
        for matrix, share in ((only, 1.0), (torch.ones_like(only), 1 / 3), (torch.zeros_like(only), 0.0)):
            found = measures.diagonal_mass(matrix, order)
            assert found.dtype == dtype and found.item() == pytest.approx(share)
        only[0, 1, 0] = 4.0
        assert measures.diagonal_mass(only, order).item() == pytest.approx(2 / 3)

    def test_fewer_students_than_teacher_nodes_are_rejected(self):
        with pytest.raises(
            UserError, match="2 students cannot match 3 teacher nodes one to one: give at least as many"
        ):
            measures.reorder_students(torch.zeros(1, 2, 3), torch.zeros(1, 3, 2))
