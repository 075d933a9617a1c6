"""Convolutional networks and BatchNorm: against torch's modules in evaluation and training, and by hand."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from support.kinds import KINDS, batch_norms, made, module, rows, same, tensors
from support.problems import gaussians
from understudy._errors import UserError
from understudy.nets import EPS, MOMENTUM, Convolution, Layer, Norm, Population, Shape, fresh_norm, stack, training_pass
from understudy.training.packing import ALIGN, Packing, State

pytestmark = pytest.mark.usefixtures("one_thread")
kinds = pytest.mark.parametrize("shape", KINDS.values(), ids=KINDS)
NORMED = {name: shape for name, shape in KINDS.items() if shape.norm}
normed_kinds = pytest.mark.parametrize("shape", NORMED.values(), ids=NORMED)
NETS, SAMPLES = 3, 6

shapes = st.builds(
    lambda sizes, image, norm, affine, slope, bias: Shape(
        tuple(sizes),
        slope,
        bias,
        image and (image[0] + 2 * len(sizes) - 4, image[1] + 2 * len(sizes) - 4),
        norm,
        affine or not norm,
    ),
    st.lists(st.integers(1, 4), min_size=3, max_size=5),
    st.none() | st.tuples(st.integers(1, 4), st.integers(1, 4)),
    st.sampled_from([None, "before", "after"]),
    st.booleans(),
    st.sampled_from([0.0, 0.1, -1.0]),
    st.booleans(),
)


def close(a, b, digits=11):
    torch.testing.assert_close(a, b, atol=10.0**-digits, rtol=10.0**-digits)


def inputs(networks, samples=SAMPLES, seed=5):
    return gaussians(seed, len(networks), samples, networks.inputs, dtype=networks.dtype)


def with_gradients(networks):
    """Copy the networks with parameters that require gradients."""
    leaves = [t.clone().requires_grad_() for t in tensors(networks)]
    spare = iter(leaves)
    parts = [
        [type(part)._make(None if t is None else next(spare) for t in part) for part in each]
        for each in (networks.layers, networks.norms)
    ]
    return replace(networks, layers=tuple(parts[0]), norms=tuple(parts[1]))


def steps_of(network, x):
    """Outputs of each part of a module."""
    found = []
    for part in network:
        x = part(x)
        found.append(x)
    return found


class TestAgainstTorch:
    @kinds
    def test_evaluation_mode(self, shape):
        networks = made(shape, NETS)
        x = inputs(networks)
        own, shared = networks.activations(x), networks.activations(x[0])
        for which in range(NETS):
            plain = module(networks, which).eval()
            for found, given_to in ((own, x[which]), (shared, x[0])):
                *hidden, output = steps_of(plain, given_to)
                close(found.output[which], output)
                for h, expected in zip(found.hidden, hidden, strict=True):
                    close(h[which], rows(expected))

    @kinds
    def test_training_mode(self, shape):
        networks = with_gradients(made(shape, NETS))
        x = inputs(networks)
        found, statistics = training_pass(networks, x)
        weights = [gaussians(30 + i, *t.shape) for i, t in enumerate((*found.hidden, found.output))]
        parameters = [t for part in networks.layers for t in part if t is not None]
        parameters += [t for norm in networks.norms for t in norm[2:] if t is not None]
        loss = sum((w * t).sum() for w, t in zip(weights, (*found.hidden, found.output), strict=True))
        gradients = torch.autograd.grad(loss, parameters)
        assert len(statistics) == len(networks.norms)
        assert not any(part.requires_grad for pair in statistics for part in pair)
        for which in range(NETS):
            plain = module(networks, which).train()
            *hidden, output = steps_of(plain, x[which])
            close(found.output[which], output)
            for h, expected in zip(found.hidden, hidden, strict=True):
                close(h[which], rows(expected))
            pairs = zip(weights, (*map(rows, hidden), output), strict=True)
            sum((w[which] * t).sum() for w, t in pairs).backward()
            linear = [m for m in plain.modules() if isinstance(m, nn.Linear | nn.Conv2d)]
            expected = [p.grad for m in (*linear, *batch_norms(plain)) for p in m.parameters()]
            for gradient, theirs in zip(gradients, expected, strict=True):
                close(gradient[which], theirs)

    @normed_kinds
    def test_running_statistics_after_several_steps(self, shape):
        networks = made(shape, NETS)
        plain = [module(networks, which).train() for which in range(NETS)]
        for step in range(4):
            x = inputs(networks, seed=step)
            _, statistics = training_pass(networks, x)
            norms = [
                norm._replace(
                    mean=norm.mean.lerp(of.mean, MOMENTUM), variance=norm.variance.lerp(of.variance, MOMENTUM)
                )
                for norm, of in zip(networks.norms, statistics, strict=True)
            ]
            networks = replace(networks, norms=tuple(norms))
            for which, network in enumerate(plain):
                network(x[which])
        for which, network in enumerate(plain):
            for norm, theirs in zip(networks.norms, batch_norms(network), strict=True):
                close(norm.mean[which], theirs.running_mean)
                close(norm.variance[which], theirs.running_var)
                assert theirs.eps == EPS and theirs.momentum == MOMENTUM
            close(networks(inputs(networks))[which], network.eval()(inputs(networks)[which]))

    @kinds
    def test_in_single_precision(self, shape):
        networks = with_gradients(made(shape, NETS, dtype=torch.float32))
        x = inputs(networks, 20)
        outside, (inside, _) = networks(x), training_pass(networks, x)
        inside.output.square().mean((1, 2)).sum().backward()
        for which in range(NETS):
            plain = module(networks, which)
            close(outside[which], plain.eval()(x[which]), digits=4)
            output = plain.train()(x[which])
            close(inside.output[which], output, digits=4)
            output.square().mean().backward()
            weights = [m.weight for m in plain.modules() if isinstance(m, nn.Linear | nn.Conv2d)]
            for layer, theirs in zip(networks.layers, weights, strict=True):
                close(layer.weight.grad[which], theirs.grad, digits=4)


@given(shapes, st.integers(1, 4), st.integers(2, 5))
def test_a_population_equals_its_networks_one_by_one(shape, nets, samples):
    networks = made(shape, nets)
    x = inputs(networks, samples)
    together, (trained, statistics) = networks.activations(x), training_pass(networks, x)
    assert together.output.shape == (nets, samples, shape.sizes[-1])
    for i in range(nets):
        alone, (alone_trained, alone_statistics) = (
            networks[i].activations(x[i]),
            training_pass(networks[i], x[i : i + 1]),
        )
        # In training, BatchNorm of nearly equal samples multiplies rounding by up to 1/√ε = 316, layer by layer.
        for many, one, digits in ((together, alone, 11), (trained, alone_trained, 9 if shape.norm else 11)):
            for a, b in zip((*many.hidden, many.output), (*one.hidden, one.output), strict=True):
                close(a[i : i + 1], b, digits)
        for many, one in zip(statistics, alone_statistics, strict=True):
            close(many.mean[i], one.mean[0])
            close(many.variance[i], one.variance[0])


@given(shapes)
def test_activations_have_one_row_per_sample_and_position(shape):
    networks = made(shape, 2)
    found = networks.activations(inputs(networks, 3))
    positions = [h * w for h, w in shape.maps] or [1] * (len(shape.sizes) - 2)
    assert [h.shape for h in found.hidden] == [
        (2, 3 * places, nodes) for places, nodes in zip(positions, shape.sizes[1:-1], strict=True)
    ]


@pytest.mark.parametrize("kind", [name for name, shape in KINDS.items() if shape.image])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_channels_are_contiguous_so_that_rows_and_images_are_views(kind, dtype):
    networks = made(KINDS[kind], NETS, dtype=dtype)
    for found in (networks.activations(inputs(networks)), training_pass(networks, inputs(networks))[0]):
        for h in found.hidden[: len(networks.shape.resolved_convolutions)]:
            assert h.stride() == (h.shape[2], NETS * h.shape[2], 1)


class TestByHand:
    def test_one_filter_on_one_image(self):
        kernel = torch.arange(9.0).view(1, 1, 1, 3, 3)
        top = torch.tensor([[[1.0, 10.0]]])
        network = Population(
            (Layer(kernel, torch.tensor([[-50.0]])), Layer(top, None)), torch.tensor([0]), image=(3, 4)
        )
        # The left window covers columns 0 to 2 of rows of 4, the right one columns 1 to 3.
        x = torch.arange(12.0).unsqueeze(0)
        left = sum(k * p for k, p in zip(range(9), (0, 1, 2, 4, 5, 6, 8, 9, 10), strict=True)) - 50
        right = left + 36
        found = network.activations(x)
        assert found.hidden[0].tolist() == [[[left], [right]]]
        assert found.output.tolist() == [[[left + 10 * right]]]

    def test_maps_are_flattened_channel_by_channel(self):
        kernel = torch.zeros(1, 2, 1, 3, 3)
        kernel[0, :, 0, 1, 1] = torch.tensor([1.0, 100.0])  # the middle pixel, and a hundred times it
        top = torch.eye(4).unsqueeze(0)
        network = Population((Layer(kernel, None), Layer(top, None)), torch.tensor([0]), image=(3, 4))
        x = torch.arange(12.0).unsqueeze(0)
        assert network.activations(x).hidden[0].tolist() == [[[5, 500], [6, 600]]]
        assert network(x).tolist() == [[[5, 6, 500, 600]]]

    def test_batch_norm_of_two_samples(self):
        norm = Norm(*(torch.tensor([[v]], dtype=torch.float64) for v in (7.0, 4.0, 3.0, 0.5)))
        layers = (Layer(torch.ones(1, 1, 1), None), Layer(torch.ones(1, 1, 1), None))
        network = Population(layers, torch.tensor([0]), norms=(norm,)).to(dtype=torch.float64)
        x = torch.tensor([[[1.0], [3.0]]], dtype=torch.float64)
        found, ((mean, variance),) = training_pass(network, x)
        assert mean.tolist() == [[2.0]] and variance.tolist() == [[2.0]]
        close(found.output[0, :, 0], torch.tensor([-3.0, 3.0], dtype=torch.float64) / math.sqrt(1 + EPS) + 0.5)
        running = torch.tensor([-18.0, -12.0], dtype=torch.float64) / math.sqrt(4 + EPS) + 0.5
        close(network(x)[0, :, 0], running)

    def test_the_two_orders_of_batch_norm(self):
        norm = Norm(*(torch.tensor([[v]]) for v in (1.0, 1.0 - EPS, 2.0, -1.0)))
        layers = (Layer(torch.ones(1, 1, 1), None), Layer(torch.ones(1, 1, 1), None))
        after = Population(layers, torch.tensor([0]), norms=(norm,))
        before = replace(after, norm_first=True)
        x = torch.tensor([[-3.0], [0.0], [2.0]])
        assert after(x).flatten().tolist() == [-3, -3, 1]  # 2 (relu(x) − 1) − 1
        assert before(x).flatten().tolist() == [0, 0, 1]  # relu(2 (x − 1) − 1)


class TestStrideAndPadding:
    def test_by_hand(self):
        """Convolve a row of three pixels with a 2 × 2 kernel, stride 2 and padding 1."""
        weight = torch.tensor([[1.0, 2.0], [3.0, 4.0]]).view(1, 1, 1, 2, 2)
        above = (Layer(torch.ones(1, 1, 2), None), Layer(torch.full((1, 1, 1), 10.0), None))
        networks = Population(
            (Layer(weight, None), *above), torch.tensor([0]), image=(1, 3), convolutions=(Convolution(2, 2, 1),)
        )
        found = networks.activations(torch.tensor([[1.0, -5.0, 7.0]]))
        # Padding adds rows of zeros above and below: the lower row of the kernel covers (0, 1) and (−5, 7).
        assert found.hidden[0].flatten().tolist() == [4.0, 13.0]
        assert found.hidden[1].flatten().tolist() == [17.0] and found.output.flatten().tolist() == [170.0]

    def test_stride_2_gives_every_second_position_of_stride_1(self):
        networks = made(Shape((2, 3, 2), image=(7, 8), convolutions=((3, 1, 1),)), 2)
        x = inputs(networks)
        every = networks.activations(x).hidden[0].unflatten(1, (SAMPLES, 7, 8))
        shape = Shape((2, 3, 2), image=(7, 8), convolutions=((3, 2, 1),))
        other = replace(made(shape, 2), layers=(networks.layers[0], made(shape, 2).layers[1]))
        close(other.activations(x).hidden[0].unflatten(1, (SAMPLES, 4, 4)), every[:, :, ::2, ::2])


class TestIdentities:
    @given(st.integers(1, 3), st.integers(1, 4), st.sampled_from([None, "before", "after"]))
    def test_a_convolution_of_an_image_of_its_own_size_is_a_fully_connected_layer(self, channels, nodes, norm):
        networks = made(Shape((channels, nodes, 2), 0.1, image=(3, 3), norm=norm), 2)
        flat = tuple(Layer(weight.flatten(2), bias) for weight, bias in networks.layers)
        x = inputs(networks)
        close(networks(x), replace(networks, layers=flat, image=None)(x))

    def test_a_shifted_image_shifts_the_map(self):
        networks = made(Shape((2, 3, 2), image=(6, 9)), 2)
        picture = gaussians(3, 5, 2, 6, 10)
        low, high = (
            networks.activations(part.flatten(1)).hidden[0].unflatten(1, (5, 4, 7))
            for part in (picture[..., :-1], picture[..., 1:])
        )
        close(low[:, :, :, 1:], high[:, :, :, :-1])

    @pytest.mark.parametrize("kind", [name for name in KINDS if KINDS[name].norm == "after"])
    def test_in_training_nodes_get_mean_shift_and_deviation_scale(self, kind):
        networks = made(KINDS[kind], NETS)
        found, _ = training_pass(networks, 5 * inputs(networks, 50))
        for h, norm in zip(found.hidden, networks.norms, strict=True):
            scale, shift = (1.0, 0.0) if norm.scale is None else (norm.scale.abs(), norm.shift)
            close(h.mean(1), torch.zeros_like(h[:, 0]) + shift, digits=10)
            close(h.std(1, correction=0), torch.ones_like(h[:, 0]) * scale, digits=3)

    @normed_kinds
    def test_evaluation_with_batch_statistics_equals_training(self, shape):
        networks = made(shape, NETS)
        x = inputs(networks)
        trained, statistics = training_pass(networks, x)
        norms = []
        for norm, of, h in zip(networks.norms, statistics, trained.hidden, strict=True):
            norms.append(norm._replace(mean=of.mean, variance=of.variance * (1 - 1 / h.shape[1])))
        close(replace(networks, norms=tuple(norms))(x), trained.output)

    def test_a_fresh_norm_is_almost_the_identity(self):
        plain = made(replace(KINDS["conv"], slope=0.1), NETS)
        like = plain.layers[0].weight
        norms = tuple(fresh_norm(NETS, nodes, True, like) for nodes in plain.sizes[1:-1])
        x = inputs(plain)
        for first in (True, False):
            close(replace(plain, norms=norms, norm_first=first)(x), plain(x), digits=4)

    def test_batch_statistics_are_unbiased(self):
        networks = made(Shape((3, 4, 2), norm="before"), 2)
        mean, square, batches = 0.0, 0.0, 400
        for step in range(batches):
            _, (of,) = training_pass(networks, inputs(networks, 16, seed=100 + step))
            mean, square = mean + of.mean / batches, square + of.variance / batches
        (weight, bias) = networks.layers[0]
        exact = weight.square().sum(2)  # of standard normal inputs
        assert ((mean - bias).abs() < 4.5 * (exact / (16 * batches)).sqrt()).all()
        # The unbiased variance of 16 normal numbers has the variance 2 v² / 15.
        assert ((square - exact).abs() < 4.5 * exact * math.sqrt(2 / 15 / batches)).all()


class TestWithoutNorm:
    @pytest.mark.parametrize("kind", ["fc", "conv", "conv-one"])
    def test_training_equals_evaluation(self, kind):
        networks = made(KINDS[kind], NETS)
        x = inputs(networks)
        found, statistics = training_pass(networks, x)
        assert statistics == () and torch.equal(found.output, networks(x))


class TestShape:
    def test_of_images(self):
        shape = Shape((3, 64, 32, 16, 10), image=(32, 20))
        assert shape.inputs == 3 * 32 * 20
        assert shape.maps == ((30, 18), (28, 16), (26, 14))
        assert shape.weights == ((64, 3, 3, 3), (32, 64, 3, 3), (16, 32, 3, 3), (10, 16 * 26 * 14))

    def test_of_the_network_of_phuong_2021_table_3_1(self):
        convolutions = ((3, 1, 1), (3, 1, 1), (5, 2, 2)) * 2
        shape = Shape((1, 32, 32, 32, 64, 64, 64, 128, 1), image=(28, 28), convolutions=convolutions)
        assert shape.spatial_sizes == ((28, 28),) * 3 + ((14, 14),) * 3 + ((7, 7),) and shape.inputs == 784
        assert shape.weights[2:4] == ((32, 32, 5, 5), (64, 32, 3, 3))
        assert shape.weights[-3:] == ((64, 64, 5, 5), (128, 3136), (1, 128))
        assert shape.positions == (784, 784, 196, 196, 196, 49, 1)
        assert shape.products == (225_792, 7_225_344, 5_017_600, 3_612_672, 7_225_344, 5_017_600, 401_408, 128)
        assert shape.activations == 2 * 32 * 784 + 32 * 196 + 2 * 64 * 196 + 64 * 49 + 128 + 1

    def test_equal_shapes_compare_as_equal(self):
        usual = Shape((2, 4, 3, 5), image=(7, 6))
        assert Shape((2, 4, 3, 5), image=(7, 6), convolutions=((3, 1, 0), (3, 1, 0))) == usual
        other = Shape((2, 4, 3, 5), image=(7, 6), convolutions=((3, 1, 0),))
        assert other != usual and other.weights == ((4, 2, 3, 3), (3, 4 * 5 * 4), (5, 3))
        assert usual.resolved_convolutions == (Convolution(),) * 2 and Shape((4, 5, 6)).resolved_convolutions == ()

    @given(side=st.integers(1, 12), given=st.tuples(st.integers(1, 5), st.integers(1, 3), st.integers(0, 3)))
    def test_output_side_equals_torch(self, side, given):
        kernel, stride, padding = given
        left, _ = Convolution(*given)((side, 9))
        if side + 2 * padding >= kernel:
            x = torch.zeros(1, 1, side, side)
            assert nn.functional.conv2d(x, torch.zeros(1, 1, kernel, kernel), None, stride, padding).shape[-1] == left
        else:
            assert left < 1

    def test_of_plain_inputs(self):
        shape = Shape((20, 50, 75, 10))
        assert shape.inputs == 20 and shape.maps == () and shape.weights == ((50, 20), (75, 50), (10, 75))

    @kinds
    def test_shape_of_a_population(self, shape):
        networks = made(shape, NETS)
        assert networks.shape == shape and networks.sizes == shape.sizes and networks.inputs == shape.inputs

    @pytest.mark.parametrize(
        ("options", "text"),
        [
            ({"sizes": (3, 8, 8, 10), "image": (4, 9)}, "images of 4 × 9 are too small for 2 convolutions, .*5 × 5"),
            ({"sizes": (3, 10), "image": (4, 4)}, r"needs at least three sizes .* got \(3, 10\)"),
            (
                {"sizes": (3, 8, 8, 10), "image": (9, 4), "convolutions": ((3, 2, 0), (5, 1, 1))},
                "images of 9 × 4 are too small for convolution 2: a 5 × 5 kernel with stride 1 and padding 1 on a "
                "map of 4 × 1",
            ),
            (
                {"sizes": (3, 8, 10), "image": (9, 4), "convolutions": ((3, 1, 1),) * 2},
                "give 1 to 1 convolutions for 1 hidden layers, got 2",
            ),
            (
                {"sizes": (3, 8, 10), "image": (9, 4), "convolutions": ()},
                "give 1 to 1 convolutions for 1 hidden layers, got 0",
            ),
            ({"sizes": (3, 8, 10), "convolutions": ((3, 1, 1),)}, "need an image: give its height and width"),
            (
                {"sizes": (3, 8, 10), "image": (9, 4), "convolutions": ((3, 0, 1),)},
                r"a convolution is \(kernel, stride, padding\), .* got \(3, 0, 1\)",
            ),
            pytest.param(
                {"sizes": (3, 4, 10), "image": (3, 32, 32)},
                r"an image is \(height, width\), .* got \(3, 32, 32\)",
                marks=pytest.mark.wrong_shapes,
            ),
        ],
    )
    def test_impossible_shapes_are_rejected(self, options, text):
        with pytest.raises(UserError, match=text):
            Shape(**options)


class TestPopulations:
    @kinds
    def test_indexing_and_stacking(self, shape):
        networks = made(shape, 5)
        assert same(stack([networks[:2], networks[2], networks[[3, 4]]]), networks)
        some = networks[[4, 0, 4]]
        assert some.seeds.tolist() == [4, 0, 4] and some.shape == shape
        assert all(torch.equal(a, b[[4, 0, 4]]) for a, b in zip(tensors(some), tensors(networks), strict=True))

    @kinds
    def test_to(self, shape):
        networks = made(shape, 2)
        single = networks.to("cpu", torch.float32)
        assert single.shape == shape and {t.dtype for t in tensors(single)} == {torch.float32}
        assert all(torch.equal(a, b.float()) for a, b in zip(tensors(single), tensors(networks), strict=True))

    @pytest.mark.parametrize("other", ["fc", "fc-before", "conv"])
    def test_other_kinds_do_not_stack(self, other):
        shape = replace(KINDS["fc-after"], slope=KINDS[other].slope)
        with pytest.raises(ValueError, match="only networks of one shape stack"):
            stack([made(shape, 1), made(KINDS[other], 1)])

    def test_tensors_that_do_not_fit_are_rejected(self):
        plain, normed = made(KINDS["conv"], 2), made(KINDS["conv-before"], 2)
        first, second, third, top = normed.layers
        cut = Norm._make(part[:, 1:] for part in normed.norms[0])
        bare = normed.norms[0]._replace(scale=None, shift=None)
        for wrong, text in (
            (lambda: replace(plain, image=None), r"a weight must have shape \(2, 4, 2\)"),
            (lambda: replace(plain, image=(8, 6)), r"must have shape \(2, 5, 24\), got \(2, 5, 18\)"),
            (
                lambda: replace(normed, layers=(first, third, second, top)),
                r"must have shape \(2, 2, 4, 3, 3\), got \(2, 2, 3, 3, 3\)",
            ),
            (lambda: replace(normed, norms=normed.norms[:2]), r"one per hidden layer \(3\), got 2"),
            (lambda: replace(normed, norms=(cut, *normed.norms[1:])), r"a norm must have shape \(2, 4\), got \(2, 3\)"),
            (lambda: replace(normed, norms=(*normed.norms[:2], bare)), "a norm must have shape|either all norms have"),
            (lambda: replace(normed, norms=(bare, *normed.norms[1:])), "either all norms have a scale and a shift"),
        ):
            with pytest.raises(ValueError, match=text):
                wrong()

    @pytest.mark.wrong_shapes
    def test_images_of_the_wrong_size_are_rejected(self):
        networks = made(Shape((3, 2, 5), image=(32, 32)), 2)
        text = r"take 3 · 32 · 32 = 3,072 inputs, but the data has 784 per sample: choose networks and data of one size"
        for x in (torch.zeros(2, 784), torch.zeros(2, 2, 784)):
            for run in (networks, networks.activations, lambda x: training_pass(networks, x)):
                with pytest.raises(UserError, match=text):
                    run(x)
        with pytest.raises(UserError, match="the networks take 4 inputs, but the data has 5 per sample"):
            made(KINDS["fc"], 1)(torch.zeros(2, 5))

    def test_a_batch_of_one_row_is_rejected_in_training(self):
        networks = made(KINDS["fc-before"], 2)
        with pytest.raises(UserError, match=r"BatchNorm needs batches of 2 or more samples in training"):
            training_pass(networks, inputs(networks, 1))
        assert networks(inputs(networks, 1)).isfinite().all()
        convolutional = made(KINDS["conv-before"], 2)  # whose maps have several positions
        assert training_pass(convolutional, inputs(convolutional, 1))[0].output.isfinite().all()


class TestPacking:
    @kinds
    def test_blocks_contain_a_complete_population(self, shape):
        networks, packing = made(shape, NETS), Packing(shape)
        state = packing.state(networks)
        blocks, running = state.blocks, state.running
        assert same(packing.population(blocks, networks.seeds, running), networks)
        assert packing.numbers == sum(block.shape[1] for block in blocks)
        assert all(block.shape[1] % ALIGN == 0 for block in (*blocks, *running))
        used = sum(math.prod(size) for size in (*packing.sizes, *packing.buffers))
        assert used == sum(t[0].numel() for t in tensors(networks))
        for block, size in zip((*blocks, *running), (*packing.sizes, *packing.buffers), strict=True):
            assert not block[:, math.prod(size) :].any()

    def test_the_order_of_blocks_by_hand(self):
        assert Packing(Shape((4, 3, 2))).sizes == ((3, 4), (3,), (2, 3), (2,))
        assert Packing(Shape((4, 3, 2), bias=False)).sizes == ((3, 4), (2, 3))
        packing = Packing(Shape((2, 5, 3, 4), image=(6, 7), norm="after"))
        assert packing.sizes[:6] == ((5, 2, 3, 3), (5,), (3, 5, 3, 3), (3,), (4, 3 * 2 * 3), (4,))
        assert packing.sizes[6:] == packing.buffers == ((5,), (5,), (3,), (3,))
        plain = Packing(Shape((4, 3, 2), norm="before", affine=False))
        assert plain.sizes == Packing(Shape((4, 3, 2))).sizes and plain.buffers == ((3,), (3,))

    @kinds
    def test_networks_are_views_of_the_blocks(self, shape):
        networks, packing = made(shape, NETS), Packing(shape)
        state, again = packing.state(networks), packing.state(networks)
        blocks, running = state.blocks, state.running
        views = packing.population(blocks, networks.seeds, running)
        for t in tensors(views):
            t.mul_(2)
        for block, before in zip((*blocks, *running), (*again.blocks, *again.running), strict=True):
            assert torch.equal(block, 2 * before)

    @kinds
    def test_gradients_reach_every_block(self, shape):
        networks, packing = made(shape, NETS), Packing(shape)
        state = packing.state(networks)
        blocks = tuple(block.requires_grad_() for block in state.blocks)
        views = packing.population(blocks, networks.seeds, state.running)
        found, _ = training_pass(views, inputs(networks))
        gradients = torch.autograd.grad(found.output.square().sum(), blocks)
        direct = with_gradients(networks)
        training_pass(direct, inputs(networks))[0].output.square().sum().backward()
        parameters = [t for layer in direct.layers for t in layer if t is not None]
        parameters += [t for norm in direct.norms for t in norm[2:] if t is not None]
        for gradient, size, leaf in zip(gradients, packing.sizes, parameters, strict=True):
            close(gradient[:, : math.prod(size)].unflatten(1, size), leaf.grad)

    @kinds
    def test_a_state_is_selected_written_back_and_loaded(self, shape):
        networks, packing = made(shape, 4), Packing(shape)
        slots = (packing.state(made(shape, 4, seed=2)).blocks,)
        state = replace(packing.state(networks), slots=slots)
        which = torch.tensor([2, 0])
        some = state.pick(which)
        assert same(packing.population(some.blocks, networks.seeds[which], some.running), networks[which])
        for tensor in some.tensors().values():
            tensor.add_(1)
        state.put(which, some)
        changed = packing.population(state.blocks, networks.seeds, state.running)
        for now, before in zip(tensors(changed), tensors(networks), strict=True):
            assert torch.equal(now[[1, 3]], before[[1, 3]])
            assert torch.equal(now[[2, 0]], before[[2, 0]] + 1)
        assert len(state.tensors()) == 2 * len(packing.sizes) + len(packing.buffers)
        again = State(
            *(packing.empty(4, slots[0][0]), (packing.empty(4, slots[0][0]),)), state.pick(which[[0, 0, 0, 0]]).running
        )
        again.load(state.tensors())
        assert all(torch.equal(a, b) for a, b in zip(again.tensors().values(), state.tensors().values(), strict=True))
