"""Modulation of channels: by hand, by autograd in torch, by identities and limits, and by simulation."""

import itertools
import math
import sys
from dataclasses import replace
from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import understudy.measures as measures
from measures.test_modulation import Largest
from support.kinds import KINDS, made, module, tensors
from support.measured_pairs import MEASURES, Pair
from support.problems import gaussians
from understudy._errors import UserError
from understudy.nets import Layer, Population, Shape
from understudy.training.objectives import SquaredError
from understudy.training.probes.reading import probe

MODULE = sys.modules["understudy.measures.modulation"]
CONVOLUTIONS = {name: shape for name, shape in KINDS.items() if shape.image}
EXACT = {"atol": 1e-12, "rtol": 1e-12}
OF_ROWS = ("beta", "d", "l")
pytestmark = pytest.mark.usefixtures("one_thread")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
kinds = pytest.mark.parametrize("kind", CONVOLUTIONS)
both = pytest.mark.parametrize("own", [True, False], ids=["own inputs", "shared inputs"])

convolutions = st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(0, 2))
shapes = st.builds(
    lambda sizes, image, convolutions, norm, slope, bias: Shape(
        tuple(sizes), slope, bias, image, norm, convolutions=tuple(convolutions[: len(sizes) - 2])
    ),
    st.lists(st.integers(1, 3), min_size=3, max_size=5),
    # Large enough for three 3 × 3 kernels, one of them with stride 2.
    st.tuples(st.integers(11, 12), st.integers(11, 12)),
    st.lists(convolutions, min_size=1, max_size=3).filter(
        lambda given: math.prod(stride for _, stride, _ in given) < 3
    ),
    st.sampled_from([None, "before", "after"]),
    st.sampled_from([0.0, 0.1, -1.0]),
    st.booleans(),
)


def pair(shape, nets=2, dtype=torch.float64):
    """Build teachers, and students with two more channels or nodes at every hidden layer."""
    wider = replace(shape, sizes=(shape.sizes[0], *(n + 2 for n in shape.sizes[1:-1]), shape.sizes[-1]))
    return made(shape, nets, dtype=dtype), made(wider, nets, seed=2, dtype=dtype)


def inputs(networks, samples=5, own=True, seed=3):
    return gaussians(seed, *([len(networks)] if own else []), samples, networks.inputs, dtype=networks.dtype)


class LayerValues(NamedTuple):
    """V, f' and f of one hidden layer of one network."""

    v: Tensor  # sample, output, channel, position
    slopes: Tensor  # sample, channel, position
    f: Tensor  # sample, channel, position


def by_torch(network, which, x):
    """Compute every hidden layer by autograd through torch's modules, the lowest first."""
    plain, found, h = module(network, which).eval(), [], x
    for i, part in enumerate(plain[:-1]):
        linear = next(k for k, step in enumerate(part) if isinstance(step, nn.Conv2d | nn.Linear))
        z = part[: linear + 1](h).detach().requires_grad_()
        h = part[linear + 1 :](z)
        (slopes,) = torch.autograd.grad(h.sum(), z)
        h = h.detach()
        above = plain[i + 1 :]
        v = [torch.autograd.functional.jacobian(lambda f, up=above: up(f.unsqueeze(0))[0], sample) for sample in h]
        samples, channels = h.shape[:2]
        found.append(
            LayerValues(
                torch.stack(v).reshape(samples, network.sizes[-1], channels, -1),
                slopes.reshape(samples, channels, -1),
                h.reshape(samples, channels, -1),
            )
        )
    return found


def by_definition(teacher, student, which, x):
    """Compute every part at every hidden layer by plain loops over samples and positions."""
    layers = []
    for ours, them in zip(by_torch(student, which, x), by_torch(teacher, which, x), strict=True):
        samples, _, _, positions = ours.v.shape
        sums = {}
        for side, theirs in (("_star", them), ("", ours)):
            beta, d, second = (torch.zeros(ours.f.shape[1], theirs.f.shape[1]).double() for _ in range(3))
            for s, p in itertools.product(range(samples), range(positions)):
                for v, v_star in zip(ours.v[s, ..., p], theirs.v[s, ..., p], strict=True):
                    beta += torch.outer(v, v_star)
                d += torch.outer(ours.slopes[s, :, p], theirs.slopes[s, :, p])
                second += torch.outer(ours.f[s, :, p], theirs.f[s, :, p])
            found = [part / (samples * positions) for part in (beta, d, second)]
            sums |= dict(zip((f"beta{side}", f"d{side}", f"l{side}"), found, strict=True))
            sums[f"h{side}"] = sums[f"beta{side}"] * sums[f"d{side}"]
            sums[f"v{side}"] = theirs.v.mean((0, 3))
        layers.append({**sums, "energy": sums["beta"].diagonal()})
    return layers


def agree(teacher, student, x):
    found = measures.modulation(teacher, student, x)
    assert len(found) == len(student.layers) - 1
    for e in range(len(student)):
        expected = by_definition(teacher, student, e, x[e] if x.ndim == 3 else x)
        for layer, parts in zip(found, expected, strict=True):
            assert parts.keys() == set(measures.PARTS)
            for name, value in parts.items():
                torch.testing.assert_close(getattr(layer, name)[e], value, **EXACT)
    for fan, layer in zip(measures.modulated_fan_out(student, x), found, strict=True):
        torch.testing.assert_close(fan.square(), layer.energy, **EXACT)


def same(found, expected, **near):
    for ours, theirs in zip(found, expected, strict=True):
        for part, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(part, other, **(near or EXACT))


def equal(found, expected):
    return all(torch.equal(a, b) for a, b in zip(itertools.chain(*found), itertools.chain(*expected), strict=True))


def pixel_network(weight, bias, top):
    """Build a network of two 1 × 1 convolutions, the second with stride 2, on an image of three pixels."""
    numbers = (torch.ones(1, 1, 1, 1, 1), torch.full((1, 1, 1, 1, 1), weight), torch.tensor([[top]]))
    biases = torch.zeros(1, 1), torch.full((1, 1), bias), torch.zeros(1, 1)
    layers = tuple(Layer(w.double(), b.double()) for w, b in zip(numbers, biases, strict=True))
    return Population(layers, torch.tensor([1]), image=(1, 3), convolutions=((1, 1, 0), (1, 2, 0)))


def test_by_hand():
    student, teacher = pixel_network(2.0, -1.0, [3.0, 5.0]), pixel_network(1.0, 0.0, [1.0, 1.0])
    # f = (1, 4, 0) in both. The student then has (1, 0) from (1, −1), so V = (3, 5), and (6, 0, 0) below. The teacher
    # has (1, 0) from (1, 0), where both gates are open, so V = (1, 1), and (1, 0, 1) below.
    low, high = measures.modulation(teacher, student, torch.tensor([[1.0, 4.0, -1.0]]).double())
    hand = {
        "v": (6 / 3, 8 / 2),
        "v_star": (2 / 3, 2 / 2),
        "beta": (36 / 3, 34 / 2),
        "energy": (36 / 3, 34 / 2),
        "beta_star": (6 / 3, 8 / 2),
        "d": (2 / 3, 1 / 2),
        "d_star": (2 / 3, 1 / 2),
        "h": (12 * 2 / 3, 17 / 2),
        "h_star": (2 * 2 / 3, 4 / 2),
        "l": (17 / 3, 1 / 2),
        "l_star": (17 / 3, 1 / 2),
    }
    assert hand.keys() == set(measures.PARTS)
    for part, values in hand.items():
        assert [getattr(layer, part).item() for layer in (low, high)] == pytest.approx(values)


@kinds
@both
def test_every_part_equals_its_definition(kind, own):
    teacher, student = pair(CONVOLUTIONS[kind])
    agree(teacher, student, inputs(student, own=own))


def test_teacher_and_student_may_have_other_kernels_and_only_one_batch_norm():
    teacher = made(Shape((2, 3, 4, 3), image=(5, 6), convolutions=((1, 1, 0), (4, 2, 1))), 2)
    student = made(Shape((2, 5, 4, 3), 0.1, False, (5, 6), "before", convolutions=((3, 1, 1), (3, 2, 0))), 2)
    assert teacher.shape.maps == ((5, 6), (2, 3)) != student.shape.maps
    with pytest.raises(UserError, match="feature maps of equal sizes"):
        measures.modulation(teacher, student, inputs(student))
    student = made(Shape((2, 5, 4, 3), 0.1, False, (5, 6), "before", convolutions=((3, 1, 1), (2, 2, 0))), 2)
    agree(teacher, student, inputs(student))


@given(shapes, st.integers(1, 2), st.integers(1, 3), st.booleans())
def test_any_shape(shape, nets, samples, own):
    teacher, student = pair(shape, nets)
    agree(teacher, student, inputs(student, samples, own))


@kinds
def test_v_is_backpropagated_by_sums_over_kernels(kind):
    """Compare V_{l−1} = V_l D_l W_l pixel by pixel with sums over the kernels that cover a pixel."""
    network = made(CONVOLUTIONS[kind], 1)
    shape, x = network.shape, inputs(network, 2)
    values, energies = by_torch(network, 0, x[0]), measures.modulated_fan_out(network, x)
    for i in range(1, len(shape.resolved_convolutions)):
        (height, width), (_, stride, padding, _), weight = (
            shape.maps[i],
            shape.resolved_convolutions[i],
            network.layers[i].weight[0],
        )
        gated = (values[i].v * values[i].slopes.unsqueeze(1)).unflatten(3, (height, width))
        rows, columns = shape.maps[i - 1]
        below = torch.zeros(*gated.shape[:2], weight.shape[1], rows, columns).double()
        places = itertools.product(range(height), range(width), range(weight.shape[2]), range(weight.shape[3]))
        for top, left, a, b in places:
            row, column = top * stride - padding + a, left * stride - padding + b
            if 0 <= row < rows and 0 <= column < columns:
                below[..., row, column] += gated[..., top, left] @ weight[:, :, a, b]
        torch.testing.assert_close(below.flatten(3), values[i - 1].v, **EXACT)
        square = below.square().sum((0, 1, 3, 4)) / (2 * rows * columns)
        torch.testing.assert_close(energies[i - 1][0].square(), square, **EXACT)


def unrolled(network):
    """Build the equivalent fully connected network: a node is a channel at a position, position varying fastest."""
    layers, shape = [], network.shape
    for i, (weight, bias) in enumerate(network.layers):
        if weight.ndim == 5:
            _, stride, padding, _ = shape.resolved_convolutions[i]
            pixels = weight.shape[2] * math.prod(shape.spatial_sizes[i])
            each = torch.eye(pixels).double().view(pixels, weight.shape[2], *shape.spatial_sizes[i])
            maps = [nn.functional.conv2d(each, w, stride=stride, padding=padding).flatten(1).mT for w in weight]
            weight = torch.stack(maps)
            bias = None if bias is None else bias.repeat_interleave(shape.positions[i], dim=1)
        layers.append(Layer(weight, bias))
    return Population(tuple(layers), network.seeds, network.slope)


@given(shapes.filter(lambda shape: not shape.norm))
def test_it_is_the_part_of_the_unrolled_network_with_equal_positions(shape):
    teacher, student = pair(shape)
    x = inputs(student, 3)
    wide = measures.modulation(unrolled(teacher), unrolled(student), x)
    for layer, whole, places in zip(measures.modulation(teacher, student, x), wide, shape.positions, strict=True):
        for part in [f"{name}{side}" for name in OF_ROWS for side in ("", "_star")]:
            matrix = getattr(whole, part).unflatten(2, (-1, places)).unflatten(1, (-1, places))
            torch.testing.assert_close(getattr(layer, part), torch.einsum("ejpkp->ejk", matrix) / places, **EXACT)


class TestIdentities:
    @pytest.mark.parametrize("norm", [None, "before", "after"])
    @pytest.mark.parametrize(
        ("image", "convolutions"),
        [((3, 3), ((3, 1, 0),)), ((4, 4), ((4, 2, 0), (1, 3, 0))), ((2, 2), ((2, 1, 0), (3, 1, 1), (1, 1, 0)))],
    )
    def test_kernels_as_large_as_the_image_equal_a_fully_connected_network(self, image, convolutions, norm):
        networks = pair(Shape((2, 3, 4, 2, 3), 0.1, True, image, norm, convolutions=convolutions))
        x = inputs(networks[0], 20)
        flat = []
        for network in networks:
            # On one pixel with padding only the centre of the kernel matters.
            layers = [
                layer._replace(weight=layer.weight[..., 1, 1] if convolution.padding else layer.weight.flatten(2))
                for layer, convolution in zip(network.layers, network.shape.resolved_convolutions, strict=False)
            ]
            layers += network.layers[len(layers) :]
            flat.append(replace(network, layers=tuple(layers), image=None, convolutions=None))
        same(measures.modulation(*networks, x), measures.modulation(*flat, x))
        same(measures.modulation(networks[0], flat[1], x), measures.modulation(*flat, x))

    @kinds
    def test_at_the_highest_layer_it_is_the_fan_out_over_the_root_of_the_positions(self, kind):
        _, student = pair(CONVOLUTIONS[kind])
        found, top = measures.modulated_fan_out(student, inputs(student)), len(student.layers) - 2
        expected = measures.fan_out(student, top) / math.sqrt(student.shape.positions[top])
        torch.testing.assert_close(found[top], expected, **EXACT)

    @kinds
    def test_energy_is_the_diagonal_of_beta_and_h_is_beta_where_both_are_active(self, kind):
        teacher, student = pair(CONVOLUTIONS[kind])
        for layer in measures.modulation(teacher, student, inputs(student)):
            torch.testing.assert_close(layer.energy, layer.beta.diagonal(dim1=1, dim2=2), **EXACT)
            assert torch.equal(layer.h, layer.beta * layer.d) and torch.equal(
                layer.h_star, layer.beta_star * layer.d_star
            )

    @kinds
    def test_a_student_equal_to_its_teacher_has_equal_sides(self, kind):
        teacher, _ = pair(CONVOLUTIONS[kind])
        for layer in measures.modulation(teacher, teacher, inputs(teacher)):
            for part in ("beta", "d", "h", "l"):
                assert torch.equal(getattr(layer, part), getattr(layer, f"{part}_star"))

    def test_scaling_a_channel_by_c_divides_its_row_by_c(self):
        teacher, student = pair(KINDS["conv"])
        x, c = inputs(student), torch.linspace(0.3, 3.0, student.sizes[1]).double()
        (w, b), (v, bias), top = student.layers
        layers = Layer(w * c[:, None, None, None], b * c), Layer(v / c[:, None, None], bias), top
        before, after = (measures.modulation(teacher, s, x)[0] for s in (student, replace(student, layers=layers)))
        torch.testing.assert_close(after.beta_star * c[:, None], before.beta_star)
        torch.testing.assert_close(after.h_star * c[:, None], before.h_star)
        torch.testing.assert_close(after.energy * c.square(), before.energy)
        torch.testing.assert_close(after.d_star, before.d_star)
        torch.testing.assert_close(after.l_star / c[:, None], before.l_star)

    @kinds
    def test_the_measures_of_a_pair_are_the_same_numbers(self, kind):
        teacher, student = pair(CONVOLUTIONS[kind])
        x = inputs(student)
        for i, layer in enumerate(measures.modulation(teacher, student, x)):
            at_layer = Pair(teacher, student, x, i)
            torch.testing.assert_close(MEASURES["beta_star"](at_layer), layer.beta_star, **EXACT)
            torch.testing.assert_close(MEASURES["h_star"](at_layer), layer.h_star, **EXACT)
            torch.testing.assert_close(MEASURES["modulated_fan_out"](at_layer).square(), layer.energy, **EXACT)


def test_energy_is_the_share_of_open_paths_within_four_standard_errors():
    # 2 σ(x) − 2 is active for x ≥ 1; at every other pixel V = 2 · 3 or 2 · 5 there.
    n, chance = 20_000, 0.5 * math.erfc(1 / math.sqrt(2))
    student = pixel_network(2.0, -2.0, [3.0, 5.0])
    energy = measures.modulation(student, student, gaussians(2, n, 3), ("energy",))[0].energy.item()
    error = math.sqrt((36**2 + 100**2) * chance * (1 - chance) / n) / 3
    assert abs(energy - (36 + 100) * chance / 3) < 4 * error


class TestPieces:
    @both
    @pytest.mark.parametrize("piece", [1, 1_000, 10_000])
    @pytest.mark.parametrize("kind", ["conv", "conv-strided", "conv-after"])
    def test_do_not_change_the_result(self, kind, piece, own, monkeypatch):
        teacher, student = pair(KINDS[kind], 3)
        x = inputs(student, 17, own)
        whole, fans = measures.modulation(teacher, student, x), measures.modulated_fan_out(student, x)
        monkeypatch.setattr(MODULE, "_CPU_PIECE", piece)
        same(measures.modulation(teacher, student, x), whole, atol=1e-13, rtol=1e-13)
        same([measures.modulated_fan_out(student, x)], [fans], atol=1e-13, rtol=1e-13)

    def test_memory_is_bounded_for_any_number_of_samples(self, monkeypatch):
        # V of all samples at the lowest layer would have 60 × 8 × 6 × 36 numbers.
        student = made(Shape((1, 6, 4, 8), image=(8, 8)), 1)
        x = inputs(student, 60)
        monkeypatch.setattr(MODULE, "_CPU_PIECE", 40_000)
        with Largest() as largest:
            measures.modulation(student, student, x)
        assert 8 * 6 * 36 <= largest.numbers <= 40_000

    @both
    @pytest.mark.parametrize("kind", ["conv", "conv-strided", "conv-before"])
    def test_of_several_networks_as_on_a_gpu_do_not_change_the_result(self, kind, own, monkeypatch):
        teacher, student = pair(KINDS[kind], 5)
        x = inputs(student, 7, own)
        whole = measures.modulation(teacher, student, x)
        monkeypatch.setattr(MODULE, "_piece_size", lambda *_: (3, 2))
        same(measures.modulation(teacher, student, x), whole, atol=1e-13, rtol=1e-13)

    @both
    @kinds
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_results_do_not_depend_on_the_batch_bit_for_bit(self, kind, dtype, own):
        teacher, student = pair(CONVOLUTIONS[kind], 3, dtype)
        x = inputs(student, 40, own)
        together = measures.modulation(teacher, student, x)
        for e in range(3):
            alone = measures.modulation(teacher[e], student[e], x[e] if own else x)
            assert equal(alone, [[part[e : e + 1] for part in layer] for layer in together])

    @kinds
    def test_shared_inputs_equal_repeated_inputs(self, kind):
        teacher, student = pair(CONVOLUTIONS[kind], 3)
        x = inputs(student, own=False)
        own = x.expand(3, *x.shape)
        same(measures.modulation(teacher, student, x), measures.modulation(teacher, student, own))

    @needs_gpu
    @kinds
    def test_gpu_agrees_with_cpu(self, kind, monkeypatch):
        teacher, student = pair(CONVOLUTIONS[kind], 5)
        x = inputs(student, 21)
        whole = measures.modulation(teacher, student, x)
        for piece in (1, 20_000, 1 << 28):
            monkeypatch.setattr(MODULE, "_GPU_PIECE", piece)
            found = measures.modulation(teacher.to("cuda"), student.to("cuda"), x.cuda())
            same([[part.cpu() for part in layer] for layer in found], whole)


@kinds
@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad, torch.inference_mode])
def test_gradients_are_neither_needed_nor_kept(kind, mode):
    teacher, student = pair(CONVOLUTIONS[kind])
    x = inputs(student)
    expected = measures.modulation(teacher, student, x)
    for tensor in tensors(student):
        tensor.requires_grad_()
    with mode():
        found = measures.modulation(teacher, student, x)
    assert equal(found, expected)
    assert not any(part.requires_grad for part in itertools.chain(*found))
    assert all(tensor.grad is None for tensor in tensors(student))


def test_single_precision_agrees_with_double():
    teacher, student = pair(KINDS["conv-before"], dtype=torch.float32)
    x = inputs(student, 50)
    wide = measures.modulation(teacher.to(dtype=torch.float64), student.to(dtype=torch.float64), x.double())
    found = measures.modulation(teacher, student, x)
    assert {part.dtype for part in itertools.chain(*found)} == {torch.float32}
    same([[part.double() for part in layer] for layer in found], wide, atol=1e-4, rtol=1e-4)


class TestRejects:
    @pytest.mark.parametrize(
        ("other", "words"),
        [
            ({"convolutions": ((3, 1, 1), (3, 1, 0))}, "7 × 6, 5 × 4 and 5 × 4, 3 × 2"),
            ({"convolutions": ((3, 1, 0),)}, "5 × 4, 1 × 1 and 5 × 4, 3 × 2"),
            ({"image": (6, 7)}, "4 × 5, 2 × 3 and 5 × 4, 3 × 2"),
            ({"image": None, "sizes": (84, 4, 3, 5)}, "1 × 1, 1 × 1 and 5 × 4, 3 × 2"),
        ],
    )
    def test_maps_of_different_sizes(self, other, words):
        student = made(KINDS["conv"], 2)
        with pytest.raises(UserError, match=f"modulation compares nodes at the same positions, .* got {words}$"):
            measures.modulation(made(replace(KINDS["conv"], **other), 2), student, inputs(student))

    def test_networks_and_data_that_do_not_pair(self):
        student = made(KINDS["conv"], 2)
        x = inputs(student)
        with pytest.raises(UserError, match="paired with teachers by index, got 1 teachers and 2 students"):
            measures.modulation(student[0], student, x)
        for sizes in ((2, 4, 5), (2, 4, 3, 4)):
            with pytest.raises(UserError, match="must have equally many layers and outputs"):
                measures.modulation(made(replace(KINDS["conv"], sizes=sizes), 2), student, x)
        with pytest.raises(UserError, match="equally many inputs, got 84, 84 and 83"):
            measures.modulated_fan_out(student, x[..., 1:])
        with pytest.raises(UserError, match="there are no samples to average over"):
            measures.modulated_fan_out(student, x[:, :0])

    def test_matrices_of_single_samples(self):
        student = made(KINDS["conv"], 2)
        with pytest.raises(UserError, match="not defined for convolutions, where the gradient at a position depends"):
            measures.sample_modulation(student, student, inputs(student))


@pytest.mark.parametrize(("outputs", "samples"), [(5, 64), (100, 8)])
def test_a_probe_of_channels_measures_their_modulation_on_the_first_samples(outputs, samples):
    teacher, student = pair(Shape((1, 2, 3, outputs), image=(5, 6)))
    x = inputs(student, 80)
    reading = probe(student, teacher, x, SquaredError())
    fans = measures.modulated_fan_out(student, x[:, :samples])
    for layer, fan, more in zip(reading.layers, fans, measures.modulated_fan_out(student, x), strict=True):
        assert torch.equal(layer.students.fan_out, fan)
        assert torch.equal(layer.teachers.fan_out, fan.gather(1, layer.teachers.partner))
        torch.testing.assert_close(fan, more, atol=0, rtol=0.3)
