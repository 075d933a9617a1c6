"""Construction of teachers, and the assumptions that they meet."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from support.kinds import KINDS, made
from understudy import teachers
from understudy._errors import UserError
from understudy._random import Stream, normal
from understudy.nets import Layer, Population, fresh_norm

pytestmark = pytest.mark.usefixtures("one_thread")
some = settings(deadline=None, max_examples=25)
a_seed = st.integers(0, 2**40)


def by_hand(weight, bias, top, seed=0):
    """Build one two-layer network in float64."""
    w, b, v = (torch.tensor([t], dtype=torch.float64) for t in (weight, bias, top))
    return Population((Layer(w, b), Layer(v, None)), torch.tensor([seed]))


def same(a, b):
    return all(
        torch.equal(p.weight, q.weight) and torch.equal(p.bias, q.bias) for p, q in zip(a.layers, b.layers, strict=True)
    )


@some
@given(a_seed, st.integers(2, 8), st.integers(1, 6), st.integers(1, 6), st.integers(1, 4), st.booleans())
def test_hidden_weights_are_unit_vectors_on_distinct_lines(seed, d, m1, m2, outputs, distinct):
    build = teachers.distinct_rows if distinct else teachers.regular
    teacher = build((d, m1 + 1 if d > 2 else 2, m2, outputs), seeds=seed, dtype=torch.float64)
    assert teacher.sizes[0] == d and teacher.sizes[-1] == outputs
    for weight, bias in teacher.layers[:-1]:
        assert torch.allclose(weight.norm(dim=2), torch.ones((), dtype=torch.float64), atol=1e-14)
        assert (bias == -0.1).all()
        cosines = (weight[0] @ weight[0].T).fill_diagonal_(0)
        assert (cosines.abs() < 1 - 1e-9).all() or (not distinct and weight.shape[2] == 1)
    assert (teachers.strengths(teacher) > 0).all()


@pytest.mark.parametrize("build", [teachers.distinct_rows, teachers.regular])
def test_a_network_does_not_depend_on_the_others(build):
    among = build((7, 5, 4, 3), seeds=[4, 9, 4, 2**35], polarity=[0.0, 1.5, 2.0, 0.5])
    for n, (seed, p) in enumerate([(4, 0.0), (9, 1.5), (4, 2.0), (2**35, 0.5)]):
        alone = build((7, 5, 4, 3), seeds=seed, polarity=p)
        assert same(alone, among[n]) and int(alone.seeds) == seed
    assert not torch.equal(among.layers[0].weight[0], among.layers[0].weight[1])


def test_crossing_teachers_have_the_requested_angle():
    teacher = teachers.crossing(range(1, 8), outputs=5, angle=120, bias=-0.1, dtype=torch.float64)
    first, second = teacher.layers[0].weight.unbind(1)
    assert torch.allclose((first * second).sum(1), torch.full((7,), -0.5, dtype=torch.float64))
    assert torch.allclose(second.norm(dim=1), torch.ones(7, dtype=torch.float64))
    assert (teacher.layers[0].bias == -0.1).all()
    alone = teachers.crossing([3], outputs=5, angle=120, bias=-0.1, dtype=torch.float64)
    assert torch.equal(alone.layers[0].weight[0], teacher.layers[0].weight[2])


@pytest.mark.parametrize("build", [teachers.distinct_rows, teachers.regular])
def test_a_smaller_teacher_has_the_first_nodes_of_a_larger_one(build):
    few, many = (build((3, m, 2), seeds=5, dtype=torch.float64) for m in (4, 9))
    assert torch.equal(few.layers[0].weight, many.layers[0].weight[:, :4])
    assert torch.equal(few.layers[1].weight, many.layers[1].weight[..., :4])


@some
@given(a_seed, st.floats(-1.0, 3.0))
def test_polarity_divides_the_fan_out_of_node_j_by_j_to_the_p(seed, p):
    plain, polar = (
        teachers.distinct_rows((10, 6, 4), seeds=seed, polarity=power, dtype=torch.float64) for power in (0.0, p)
    )
    assert torch.equal(plain.layers[0].weight, polar.layers[0].weight)
    place = torch.arange(1, 7, dtype=torch.float64)
    assert torch.equal(polar.layers[1].weight, plain.layers[1].weight / place**p)
    assert torch.equal(polar.layers[1].bias, plain.layers[1].bias)


def test_separated_values_and_their_frequencies():
    teacher = teachers.distinct_rows((100, 20, 50), seeds=range(1, 33), dtype=torch.float64)
    top = teacher.layers[1].weight
    for value in (-0.5, -0.25, 0.0, 0.25, 0.5):
        share = (top == value).double().mean().item()
        assert abs(share - 0.2) < 4 * math.sqrt(0.2 * 0.8 / top.numel())
    # Rows of the first layer are integer multiples of a quarter, up to their length.
    smallest = torch.where(teacher.layers[0].weight == 0, 9.0, teacher.layers[0].weight.abs()).amin(2, keepdim=True)
    ratios = teacher.layers[0].weight.abs() / smallest
    assert (ratios - ratios.round()).abs().max() < 1e-9 and ratios.max() < 2.1


def test_all_eight_directions_in_the_plane_are_found():
    # Rows of two of the five values lie on eight lines: (1,0) (0,1) (1,±1) (1,±2) (2,±1).
    teacher = teachers.distinct_rows((2, 8, 1), seeds=range(20), dtype=torch.float64)
    angles = torch.atan2(teacher.layers[0].weight[..., 1], teacher.layers[0].weight[..., 0]).remainder(math.pi)
    whole = [0.0, math.atan2(1, 2), math.pi / 4, math.atan2(2, 1), math.pi / 2]
    expected = torch.tensor(sorted({*whole, *(math.pi - a for a in whole[1:4])}), dtype=torch.float64)
    for found in angles:
        distance = (found.unsqueeze(1) - expected).abs()
        distance = torch.minimum(distance, math.pi - distance)
        assert (distance.amin(0) < 1e-9).all()
    with pytest.raises(UserError, match="needs 9 nodes of 2 weights"):
        teachers.distinct_rows((2, 9, 1), seeds=1)


def test_regular_directions_are_isotropic():
    weight = teachers.regular((4, 50, 3), seeds=range(200), dtype=torch.float64).layers[0].weight.flatten(0, 1)
    n = len(weight)
    assert (weight.mean(0).abs() < 4 * 0.5 / math.sqrt(n)).all()
    second = weight.pow(2)  # for a uniform direction: mean 1/d, variance 2 (d − 1) / (d² (d + 2))
    assert ((second.mean(0) - 0.25).abs() < 4 * math.sqrt(2 * 3 / (16 * 6) / n)).all()


def test_regular_fan_outs_have_length_one_before_polarity():
    teacher = teachers.regular((5, 4, 3), seeds=[1, 2], polarity=2.0, dtype=torch.float64)
    assert torch.allclose(teachers.strengths(teacher), 1.0 / torch.arange(1, 5, dtype=torch.float64) ** 2)


def test_biases_slope_and_dtype_are_as_requested():
    teacher = teachers.distinct_rows((5, 4, 3, 2), seeds=[1], bias=0.25, output_bias=0.5, slope=0.1)
    assert [set(b.flatten().tolist()) for _, b in teacher.layers] == [{0.25}, {0.25}, {0.5}]
    assert teacher.slope == 0.1 and teacher.dtype == torch.float32


@some
@given(a_seed, st.integers(2, 60), st.booleans())
def test_half_active_is_active_on_half(seed, samples, own):
    teacher = teachers.distinct_rows((6, 5, 4, 3), seeds=[seed, seed + 1], slope=0.1)
    count = samples * 6 * (2 if own else 1)
    x = normal(seed, Stream.TRAIN, 0, count).view(*((2,) if own else ()), samples, 6).float()
    moved = teachers.half_active(teacher, x)
    for hidden in moved.activations(x).hidden:
        assert ((hidden >= 0).sum(1) - samples / 2).abs().max() <= 1
    assert all(torch.equal(a.weight, b.weight) for a, b in zip(teacher.layers, moved.layers, strict=True))
    assert same(teachers.half_active(teacher[1], x[1] if own else x), moved[1])


def test_half_active_by_hand():
    x = torch.tensor([[1.0], [2.0], [4.0], [10.0]])
    teacher = teachers.half_active(by_hand([[1.0], [-2.0]], [7.0, 7.0], [[1.0, 1.0]]), x)
    assert teacher.layers[0].bias.tolist() == [[-3.0, 6.0]]


def test_standardised_outputs():
    teacher = teachers.distinct_rows((6, 5, 4), seeds=[1, 2, 3], dtype=torch.float64)
    x = normal(0, Stream.TRAIN, 0, 3 * 500 * 6).view(3, 500, 6)
    y = teachers.standardised(teacher, x)(x)
    assert y.mean(1).abs().max() < 1e-12 and (y.std(1, correction=0) - 1).abs().max() < 1e-12
    before = teacher(x)
    assert torch.allclose(y, (before - before.mean(1, keepdim=True)) / before.std(1, correction=0, keepdim=True))
    with pytest.raises(UserError, match=r"outputs 0, 1, 2, 3 of the teacher of seed 1 are constant on these 1 samples"):
        teachers.standardised(teacher, x[0, :1])


def test_strengths_by_hand():
    assert teachers.strengths(by_hand([[1.0], [1.0]], [0.0, 0.0], [[3.0, 0.0], [4.0, 1.0]])).tolist() == [[5.0, 1.0]]


def test_assumptions_by_hand():
    # Boundaries x = 0.5 and y = 0; the third has a bias gap of 0.1 and sin θ = 0.6 to the first.
    teacher = by_hand([[1.0, 0.0], [0.0, 1.0], [0.8, 0.6]], [-0.5, 0.0, -0.4], [[2.0, 1.0, 0.5]])
    x = torch.tensor([[0.45, 1.0], [0.55, 1.0], [3.0, -1.0], [0.5, 0.05]])
    (found,) = teachers.assumptions(teacher, x, eps=0.1)
    layer = found.layers[0]
    assert layer.closest == (0, 2)
    assert layer.sin_angle == pytest.approx(0.6) and layer.bias_gap == pytest.approx(0.1)
    assert layer.eps0 == pytest.approx(0.6)
    assert layer.active.tolist() == [0.75, 0.75, 1.0]
    assert layer.band.tolist() == [3, 1, 1]
    assert layer.tau.tolist() == pytest.approx([7.5, 2.5, 2.5])
    assert layer.unseen == (2,) and layer.colinear == () and layer.irregular == ()
    assert float(found.strengths.max() / found.strengths.min()) == 4.0 and not found.holds
    assert found.failures == ["layer 1: the data never crosses the boundary of nodes 2 (Assumption 1)"]
    assert str(found).splitlines() == [
        "teacher of seed 0: the assumptions fail at ε = 0.1 on 4 samples",
        "  layer 1: closest nodes 0 and 2 (sin 0.6, bias gap 0.1): ε0 = 0.6; active on 75% to 100%; "
        "1 to 3 samples per band (τ = 2.5)",
        "  strengths 0.5 to 2",
        "  fails: layer 1: the data never crosses the boundary of nodes 2 (Assumption 1)",
    ]


def test_assumptions_name_every_failure():
    weight = [[1.0, 0.0], [-1.0, 0.0], [0.0, 2.0], [math.cos(1e-4), math.sin(1e-4)]]
    teacher = by_hand(weight, [0.0, 0.0, 50.0, 0.01], [[1.0, 0.0, 1.0, 1.0]])
    x = normal(1, Stream.TRAIN, 0, 400).view(200, 2)
    (found,) = teachers.assumptions(teacher, x)
    assert found.layers[0].colinear == ((0, 1),) and found.layers[0].eps0 == 0.0
    assert found.failures == [
        "layer 1: weights of nodes 2 do not have length 1 (Definition 1)",
        "layer 1: nodes (0, 1) are collinear (Assumption 1)",
        "layer 1: nodes 0 and 1 are aligned at ε = 0, not above 0.1 (Assumption 3a)",
        "layer 1: the data never crosses the boundary of nodes 2 (Assumption 1)",
        "layer 1: no sample within 0.1 of the boundary of nodes 2 (Assumption 3b)",
        "nodes 1 of the last hidden layer have no fan-out",
    ]


@pytest.mark.parametrize("angle", [1.0, 1e-3, 1e-7, 1e-11])
def test_small_angles_are_accurate(angle):
    teacher = by_hand([[1.0, 0.0], [math.cos(angle), math.sin(angle)]], [0.0, 0.0], [[1.0, 1.0]])
    (found,) = teachers.assumptions(teacher, torch.randn(10, 2, generator=torch.Generator().manual_seed(0)))
    assert found.layers[0].eps0 == pytest.approx(math.sin(angle), rel=1e-9)


def test_a_single_node_is_aligned_with_none():
    (found,) = teachers.assumptions(by_hand([[1.0]], [0.0], [[1.0]]), torch.tensor([[-0.05], [0.05]]))
    assert found.layers[0].closest is None and found.layers[0].eps0 == math.inf and found.holds
    assert "one node" in str(found)


def test_bands_and_sides_have_their_gaussian_shares():
    teacher = teachers.distinct_rows((20, 10, 5), seeds=range(8))
    x = 1.5 * normal(3, Stream.EVALUATION, 0, 4000 * 20).view(4000, 20)
    band = (math.erf(0.2 / 1.5 / math.sqrt(2)) - 0.0) / 2  # w̃ᵀx − 0.1 within ±0.1: w̃ᵀx in [0, 0.2]
    above = (1 - math.erf(0.1 / 1.5 / math.sqrt(2))) / 2
    for found in teachers.assumptions(teacher, x, eps=0.1):
        assert found.holds, found
        layer = found.layers[0]
        assert ((layer.band / 4000 - band).abs() < 4.5 * math.sqrt(band * (1 - band) / 4000)).all()
        assert ((layer.active - above).abs() < 4.5 * math.sqrt(above * (1 - above) / 4000)).all()


def test_the_papers_deep_teacher_meets_the_assumptions():
    x = 10 * normal(1, Stream.EVALUATION, 0, 1000 * 30).view(1000, 30)
    quarters = tuple(q / 4 for q in range(-4, 5))
    teacher = teachers.half_active(teachers.distinct_rows((30, 15, 20, 10), seeds=[1, 2], choices=quarters), x)
    for found in teachers.assumptions(teacher, x, eps=0.3):
        assert len(found.layers) == 2 and found.holds, found
        assert all((layer.active == 0.5).all() for layer in found.layers)


@pytest.mark.parametrize(
    ("sizes", "options", "text"),
    [
        ((5, 3), {}, r"sizes must be \(inputs, hidden nodes, …, outputs\), whole numbers of at least 1; got \(5, 3\)"),
        ((5, 0, 3), {}, r"sizes must be .* got \(5, 0, 3\)"),
        ((5, 4, 3), {"seeds": []}, "seeds is empty: give at least one whole number"),
        ((5, 4, 3), {"polarity": [1.0]}, r"polarity must be one number or one per seed \(2 seeds\), got 1 numbers"),
        ((5, 4, 3), {"polarity": math.nan}, "polarity must be finite, got nan"),
        ((5, 4, 3), {"choices": (0, 0)}, r"choices must be finite numbers, at least one of them not 0; got \(0, 0\)"),
        ((5, 4, 3), {"bias": math.inf}, "bias, output_bias and slope must be finite, got inf, inf and 0.0"),
        (
            (1, 20, 5),
            {},
            r"hidden layer 1 needs 20 nodes of 1 weights from \[-0.5, -0.25, 0.0, 0.25, 0.5\], no two collinear, "
            "but 2,000 draws gave 1: choose fewer nodes, or more inputs or choices",
        ),
    ],
)
def test_bad_values_are_rejected(sizes, options, text):
    with pytest.raises(UserError, match=text):
        teachers.distinct_rows(sizes, **{"seeds": [1, 2], **options})


def test_bad_inputs_are_rejected():
    teacher = teachers.distinct_rows((5, 4, 3), seeds=[1, 2])
    with pytest.raises(UserError, match=r"inputs must be \[sample, 5\] for this teacher, got \[10, 4\]"):
        teachers.half_active(teacher, torch.zeros(10, 4))
    with pytest.raises(UserError, match=r"give one set of inputs per teacher \(2\), got 3"):
        teachers.assumptions(teacher, torch.zeros(3, 10, 5))
    with pytest.raises(UserError, match="eps must be a positive number, got 0"):
        teachers.assumptions(teacher, torch.zeros(10, 5), eps=0)


def images(*shape):
    return normal(7, Stream.TRAIN, 0, math.prod(shape)).view(shape)


def test_filters_are_unit_rows_on_distinct_lines():
    teacher = teachers.distinct_rows((2, 6, 5, 3), seeds=[1, 2], image=(8, 7), dtype=torch.float64)
    assert teacher.shape.image == (8, 7) and teacher.sizes == (2, 6, 5, 3)
    assert teacher.layers[2].weight.shape == (2, 3, 5 * 4 * 3)
    for weight, bias in teacher.layers[:-1]:
        filters = weight.flatten(2)
        assert torch.allclose(filters.norm(dim=2), torch.ones((), dtype=torch.float64), atol=1e-14)
        cosines = filters @ filters.transpose(1, 2) - torch.eye(filters.shape[1], dtype=torch.float64)
        assert (cosines.abs() < 1 - 1e-9).all() and (bias == -0.1).all()
    top = teacher.layers[2].weight
    assert set(top.unique().tolist()) == {-0.5, -0.25, 0.0, 0.25, 0.5}
    lines = top / top.norm(dim=2, keepdim=True)
    assert ((lines @ lines.transpose(1, 2)).triu(1).abs() < 1 - 1e-9).all()


def test_filters_equal_the_nodes_of_a_dense_teacher_with_as_many_inputs():
    convolutional = teachers.distinct_rows((2, 6, 5), seeds=3, image=(4, 4)).layers[0]
    flat = teachers.distinct_rows((18, 6, 5), seeds=3).layers[0]
    assert torch.equal(convolutional.weight.flatten(2), flat.weight)


def test_a_convolutional_teacher_does_not_depend_on_the_others_or_on_further_channels():
    options = {"image": (6, 6), "bias_spread": 0.5, "unit": False}
    among = teachers.distinct_rows((1, 5, 4, 3), seeds=[4, 9, 4], polarity=[0.0, 1.5, 2.0], **options)
    for n, (seed, p) in enumerate([(4, 0.0), (9, 1.5), (4, 2.0)]):
        assert same(teachers.distinct_rows((1, 5, 4, 3), seeds=seed, polarity=p, **options), among[n])
    fewer = teachers.distinct_rows((1, 2, 4, 3), seeds=[4, 9, 4], **options)
    assert torch.equal(fewer.layers[0].weight, among.layers[0].weight[:, :2])
    assert torch.equal(fewer.layers[0].bias, among.layers[0].bias[:, :2])


def test_polarity_divides_all_positions_of_a_channel():
    plain, polar = (
        teachers.distinct_rows((1, 3, 4, 2), seeds=6, polarity=p, image=(7, 6), dtype=torch.float64) for p in (0.0, 2.0)
    )
    ratio = plain.layers[2].weight.unflatten(2, (4, 6)) / polar.layers[2].weight.unflatten(2, (4, 6))
    for channel, expected in enumerate((1.0, 4.0, 9.0, 16.0)):
        found = ratio[:, :, channel]
        assert torch.allclose(found[~found.isnan()], torch.tensor(expected, dtype=torch.float64), rtol=1e-14)


@pytest.mark.parametrize("image", [None, (5, 5)])
def test_rows_without_scaling_and_random_biases(image):
    sizes = (2, 7, 6, 40)
    unit = teachers.distinct_rows(sizes, seeds=range(30), image=image, dtype=torch.float64)
    raw = teachers.distinct_rows(sizes, seeds=range(30), image=image, unit=False, bias_spread=0.5, dtype=torch.float64)
    for a, b in zip(unit.layers[:-1], raw.layers[:-1], strict=True):
        rows = b.weight.flatten(2)
        assert set(rows.unique().tolist()) <= {-0.5, -0.25, 0.0, 0.25, 0.5}
        assert torch.allclose(rows / rows.norm(dim=2, keepdim=True), a.weight.flatten(2), atol=1e-14)
    assert torch.equal(unit.layers[-1].weight, raw.layers[-1].weight)
    for _, bias in raw.layers:  # U[−1/2, 1/2] has variance 1/12 and fourth moment 1/80
        assert 0.4 < bias.abs().max() < 0.5 and len(bias.unique()) == bias.numel()
        assert abs(bias.mean()) < 4.5 * math.sqrt(1 / 12 / bias.numel())
        assert abs(bias.square().mean() - 1 / 12) < 4.5 * math.sqrt((1 / 80 - 1 / 144) / bias.numel())
    assert not (raw.layers[0].bias[:, :6] == raw.layers[1].bias).any()
    given = teachers.distinct_rows(
        sizes, seeds=range(30), image=image, bias_spread=0.5, output_bias=2.0, dtype=torch.float64
    )
    assert (given.layers[-1].bias == 2).all() and torch.equal(given.layers[0].bias, raw.layers[0].bias)


def test_no_spread_is_no_bias():
    teacher = teachers.distinct_rows((5, 4, 3), seeds=1, bias_spread=0.0)
    assert not any(bias.any() for _, bias in teacher.layers)


@pytest.mark.parametrize("kind", ["conv", "conv-after", "conv-one", "fc-after"])
@pytest.mark.parametrize("own", [False, True], ids=["shared", "own"])
def test_half_active_channels_are_active_on_half_of_all_positions(kind, own):
    shape = replace(KINDS[kind], slope=0.1)  # an invertible activation
    teacher = made(shape, 2, dtype=torch.float32)
    x = images(*((2,) if own else ()), 9, teacher.inputs).float()
    moved = teachers.half_active(teacher, x)
    bare = replace(moved, norms=())
    found = moved.activations(x).hidden
    for i, norm in enumerate(moved.norms or [None] * len(found)):
        h = found[i].double()
        if norm is not None:  # invert BatchNorm
            scale, shift = (1.0, 0.0) if norm.scale is None else (norm.scale.unsqueeze(1), norm.shift.unsqueeze(1))
            h = (h - shift) / scale * (norm.variance.unsqueeze(1) + 1e-5).sqrt() + norm.mean.unsqueeze(1)
        # The middle rows lie within rounding of the boundary.
        assert ((h > 1e-5).sum(1) - h.shape[1] / 2).abs().max() <= 1
    assert all(torch.equal(a.weight, b.weight) for a, b in zip(teacher.layers, moved.layers, strict=True))
    assert moved.shape == replace(teacher.shape, bias=True) and bare.shape.norm is None
    assert same(teachers.half_active(teacher[1], x[1] if own else x), moved[1])


def test_half_active_rejects_batch_norm_before_the_activation():
    with pytest.raises(UserError, match="BatchNorm before the activation cancels them"):
        teachers.half_active(made(KINDS["fc-before"], 1), torch.zeros(5, 4))


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_standardised_outputs_of_every_kind(kind):
    teacher = made(KINDS[kind], 2)
    x = images(2, 40, teacher.inputs)
    y = teachers.standardised(teacher, x)(x)
    assert y.mean(1).abs().max() < 1e-10 and (y.std(1, correction=0) - 1).abs().max() < 1e-10
    before = teacher(x)
    assert torch.allclose(y, (before - before.mean(1, keepdim=True)) / before.std(1, correction=0, keepdim=True))


def test_norms_are_kept():
    teacher = teachers.distinct_rows((5, 4, 3), seeds=[1, 2])
    normed = replace(teacher, norms=(fresh_norm(2, 4, True, teacher.layers[0].weight),))
    for changed in (teachers.half_active, teachers.standardised):
        assert changed(normed, images(20, 5)).shape.norm == "after"


@pytest.mark.parametrize(
    ("sizes", "options", "text"),
    [
        ((1, 4, 4, 3), {"image": (4, 8)}, "images of 4 × 8 are too small for 2 convolutions"),
        ((5, 4, 3), {"bias_spread": -1.0}, "bias_spread must be a finite number of at least 0, got -1"),
        ((5, 4, 3), {"bias_spread": math.nan}, "bias_spread must be a finite number of at least 0, got nan"),
        (
            (1, 1, 3),
            {"image": (3, 3), "choices": (0.5,)},
            "the output layer needs 3 nodes of 1 weights from .* no two collinear",
        ),
    ],
)
def test_bad_values_of_further_options_are_rejected(sizes, options, text):
    with pytest.raises(UserError, match=text):
        teachers.distinct_rows(sizes, seeds=[1, 2], **options)


@pytest.mark.wrong_shapes
def test_images_of_another_size_are_rejected():
    teacher = teachers.distinct_rows((3, 4, 2), seeds=[1], image=(5, 5))
    for changed in (teachers.half_active, teachers.standardised):
        with pytest.raises(UserError, match=r"inputs must be \[sample, 75\] for this teacher, got \[10, 3\]"):
            changed(teacher, torch.zeros(10, 3))


def test_the_former_name_of_distinct_rows_works_with_a_notice():
    with pytest.warns(FutureWarning, match=r"now called us\.teachers\.distinct_rows"):
        former = teachers.separated
    assert former is teachers.distinct_rows
    with pytest.raises(AttributeError, match="no attribute 'separate'"):
        _ = teachers.separate
