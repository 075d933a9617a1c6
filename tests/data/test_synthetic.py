"""Sources of inputs: synthetic, arrays, and teacher-aware sets."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy import data, teachers
from understudy._errors import UserError
from understudy._random import Stream, normal
from understudy.data.augmentation import _move_to_distance
from understudy.nets import Layer, Population

TEACHER = teachers.distinct_rows((6, 4, 3), seeds=[5, 2, 5], polarity=[0.0, 1.0, 2.0], dtype=torch.float64)
some = settings(deadline=None, max_examples=20)
a_seed = st.integers(0, 2**40)


@pytest.fixture
def sources(tmp_path):
    np.save(tmp_path / "rows.npy", np.arange(60, dtype=np.float32).reshape(20, 3))
    rows = torch.arange(24.0).view(8, 3)
    return [
        data.Gaussian(3, train=8, evaluation=7),
        data.Gaussian(3, train=8, evaluation=7, fresh=True),
        data.Uniform(3, train=8, evaluation=7),
        data.Uniform.within(1.0, 3, train=8, evaluation=7, fresh=True),
        data.File(tmp_path / "rows.npy", train=8, evaluation=7),
        data.Fixed(rows, rows[:7] + 100),
        data.TeacherAware(teachers.distinct_rows((3, 2, 1), seeds=[1, 2]), train=8, evaluation=7),
        data.TeacherAware(teachers.distinct_rows((3, 2, 1), seeds=[1, 2]), train=8, evaluation=7, fresh=True),
    ]


def test_every_source_satisfies_the_contract(sources):
    for source in sources:
        first = source.training(1, dtype=torch.float64)
        assert first.shape == (source.train, source.dim) == (8, 3) and first.dtype == torch.float64
        evaluation = source.evaluating(1)
        assert evaluation.shape == (source.evaluation, 3) and evaluation.dtype == torch.float32
        assert torch.equal(first, source.training(1, 1, dtype=torch.float64))
        assert torch.equal(evaluation, source.evaluating(1))
        assert torch.equal(first, source.training(1, 2, dtype=torch.float64)) != source.fresh
        assert not (first.unsqueeze(1).float() == evaluation).all(2).any()
        assert torch.equal(first, source.training(2, dtype=torch.float64)) == isinstance(source, data.Fixed)


def test_gaussian_by_hand():
    source = data.Gaussian(4, std=2.0, train=3, evaluation=5, fresh=True)
    assert torch.equal(source.training(9, 6), (2.0 * normal(9, Stream.TRAIN, 6, 12)).view(3, 4).float())
    assert torch.equal(source.evaluating(9), (2.0 * normal(9, Stream.EVALUATION, 0, 20)).view(5, 4).float())


@pytest.mark.parametrize(("kind", "kurtosis"), [(data.Gaussian, 3.0), (data.Uniform, 1.8)])
def test_moments_within_four_standard_errors(kind, kurtosis):
    source = kind(20, train=5_000, evaluation=5_000)
    draws = {"train": source.training(3, dtype=torch.float64), "evaluation": source.evaluating(3, dtype=torch.float64)}
    for x in draws.values():
        z, n = x / 1.5, x.numel()
        assert abs(z.mean()) < 4 / math.sqrt(n)
        assert abs(z.pow(2).mean() - 1) < 4 * math.sqrt((kurtosis - 1) / n)
        between = (z.T @ z / len(z)).fill_diagonal_(0)
        assert between.abs().max() < 4.5 / math.sqrt(len(z))
    across = draws["train"].T @ draws["evaluation"] / (2.25 * 5_000)
    assert across.abs().max() < 4.5 / math.sqrt(5_000)


@some
@given(a_seed, st.floats(1e-3, 1e3))
def test_uniform_fills_its_interval(seed, half_width):
    source = data.Uniform.within(half_width, 10, train=100, evaluation=100)
    assert source.half_width == pytest.approx(half_width)
    for x in (source.training(seed, dtype=torch.float64), source.evaluating(seed, dtype=torch.float64)):
        assert 0.97 * half_width < x.abs().max() <= half_width * (1 + 1e-12)


@some
@given(a_seed, st.integers(1, 12), st.integers(1, 12))
def test_file_rows_are_split_without_overlap(tmp_path_factory, seed, train, evaluation):
    path = tmp_path_factory.mktemp("rows") / "rows.npy"
    np.save(path, np.arange(48.0).reshape(24, 2))
    source = data.File(path, train, evaluation)
    chosen = torch.cat((source.training(seed), source.evaluating(seed)))[:, 0].tolist()
    assert len(set(chosen)) == train + evaluation and set(chosen) <= set(range(0, 48, 2))


def test_every_row_of_a_file_is_equally_likely(tmp_path):
    np.save(tmp_path / "rows.npy", np.arange(10.0).reshape(10, 1))
    source = data.File(tmp_path / "rows.npy", train=3, evaluation=7)
    counts = torch.bincount(torch.cat([source.training(s) for s in range(2_000)]).long().flatten(), minlength=10)
    assert ((counts / 2_000 - 0.3).abs() < 4 * math.sqrt(0.3 * 0.7 / 2_000)).all()


def test_a_file_that_is_too_short_is_rejected(tmp_path):
    np.save(tmp_path / "rows.npy", np.zeros((10, 2)))
    with pytest.raises(
        UserError, match=r"train 8 \+ evaluation 3 is more than the 10 rows of .*rows.npy: choose fewer"
    ):
        data.File(tmp_path / "rows.npy", train=8, evaluation=3)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: data.Gaussian(0), "dim must be a whole number of at least 1, got 0"),
        (lambda: data.Gaussian(3, train=-1), "train must be a whole number of at least 1, got -1"),
        (lambda: data.Uniform(3, evaluation=0), "evaluation must be a whole number of at least 1, got 0"),
        (lambda: data.Gaussian(3, std=0.0), "std must be a finite number above 0, got 0"),
        (lambda: data.Uniform(3, std=math.inf), "std must be a finite number above 0, got inf"),
        (lambda: data.Uniform.within(-1.0, 3), "half_width must be a finite number above 0, got -1"),
        (lambda: data.File("x.npy", 0, 1), "train must be a whole number of at least 1, got 0"),
        (lambda: data.TeacherAware(TEACHER, train=0), "train must be a whole number of at least 1, got 0"),
        (lambda: data.TeacherAware(TEACHER, moved=(2.0, 1.0)), r"moved must be two distances .* got \(2.0, 1.0\)"),
        (
            lambda: data.TeacherAware(TEACHER).training(7),
            "no teacher has seed 7: choose one .*, 2 to 5",
        ),
        (lambda: data.teacher_aware(TEACHER, 5, 10), r"seeds must be one per teacher \(3\), got 1"),
        (lambda: data.aware(torch.zeros(1, 6), TEACHER, 0.1, 5), "takes one teacher, got 3"),
        (lambda: data.agnostic(torch.zeros(1, 6), -0.1, 5), "eps must be a finite number above 0, got -0.1"),
        (lambda: data.agnostic(torch.zeros(1, 6), 0.1, 0), "nodes must be a whole number of at least 1, got 0"),
    ],
)
def test_bad_values_are_rejected(make, text):
    with pytest.raises(UserError, match=text):
        make()


@pytest.mark.wrong_shapes
@pytest.mark.parametrize(
    ("train", "words"),
    [
        ((3,), "train_x: the array must be 2-D .* got 1-D"),
        ((3, 2), "equally many columns, got 2 and 1"),
    ],
)
def test_tensors_that_do_not_fit_are_rejected(train, words):
    with pytest.raises(UserError, match=words):
        data.Fixed(torch.zeros(train), torch.zeros(3, 1))


@pytest.mark.parametrize("kind", [torch.Tensor.numpy, lambda x: pd.DataFrame(x.numpy()), lambda x: x.bfloat16()])
def test_arrays_and_frames_are_inputs_too(kind):
    x = torch.arange(12.0).view(6, 2)
    fixed = data.Fixed(kind(x[:4]), kind(x[4:]))
    assert torch.equal(fixed.training(1), x[:4]) and torch.equal(fixed.evaluating(1), x[4:])
    assert repr(fixed) == "Fixed(4 training and 2 evaluation inputs of 2 numbers)"


def test_inputs_that_are_not_finite_are_rejected():
    with pytest.raises(UserError, match="evaluation_x: all values must be finite, but 1 of 2 are NaN"):
        data.Fixed(torch.zeros(3, 1), torch.tensor([[0.0], [torch.nan]]))


def test_agnostic_by_hand():
    x = torch.tensor([[1.0, 2.0]])
    # 2 ε / (c K^{3/2}) with ε = 4, K = 4, c = 2: 0.5.
    expected = [[1.0, 2.0], [1.5, 2.0], [0.5, 2.0], [1.0, 2.5], [1.0, 1.5]]
    assert data.agnostic(x, 4.0, 4, c=2.0).tolist() == expected


@some
@given(a_seed, st.integers(1, 10), st.integers(1, 10), st.floats(1e-3, 2.0), st.integers(1, 40))
def test_agnostic_counts_and_distances(seed, samples, d, eps, nodes):
    x = normal(seed, Stream.TRAIN, 0, samples * d).view(samples, d)
    made = data.agnostic(x, eps, nodes)
    assert len(made) == (2 * d + 1) * samples and torch.equal(made[:samples], x)
    moves = made[samples:].view(2 * d, samples, d) - x
    assert torch.allclose(moves.norm(dim=2), torch.tensor(2 * eps / nodes**1.5, dtype=x.dtype), rtol=1e-6, atol=1e-12)
    assert torch.allclose(made.view(2 * d + 1, samples, d).mean(0), x)


def test_aware_by_hand():
    weight = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    layers = (Layer(weight, torch.tensor([[-1.0, 0.0]])), Layer(torch.ones(1, 1, 2), None))
    teacher = Population(layers, torch.tensor([0]))
    x = torch.tensor([[1.25, 5.0], [1.0, 0.0], [9.0, -0.5]])
    # ε = 0.5, K = 1: points within 0.5 of x = 1 move by ±1 along x, points within 0.5 of y = 0 by ±1 along y.
    expected = [[2.25, 5], [2, 0], [0.25, 5], [0, 0], [1, 1], [9, 0.5], [1, -1], [9, -1.5]]
    assert data.aware(x, teacher, 0.5, 1).tolist() == x.tolist() + expected


@some
@given(a_seed, st.floats(0.05, 1.0))
def test_aware_moves_the_points_of_its_bands_by_its_step(seed, eps):
    teacher = TEACHER[0]
    x = normal(seed, Stream.TRAIN, 0, 50 * 6).view(50, 6)
    made = data.aware(x, teacher, eps, 3)
    (found,) = teachers.assumptions(teacher, x, eps=eps)
    assert torch.equal(made[:50], x) and len(made) == 50 + 2 * int(found.layers[0].band.sum())
    step = 2 * eps / 3**1.5
    gaps = torch.cdist(made[50:], x) - step
    assert (gaps.abs().amin(1) < 1e-9).all()


@some
@given(a_seed, st.integers(1, 30), st.sampled_from([(10.0, 11.0), (1.0, 2.0), (0.0, 0.0)]))
def test_teacher_aware_points_have_one_norm_and_their_distance(seed, samples, moved):
    x = data.teacher_aware(TEACHER, [seed, seed + 1, seed + 2], samples, moved=moved)
    assert x.shape == (3, samples, 6)
    assert torch.allclose(x.norm(dim=2), torch.tensor(1.5 * math.sqrt(6), dtype=x.dtype))
    # Before rescaling a sample was λx, with signed distance w̃ᵀλx + b and the same component along the plane as its
    # point. Each point has three samples: on the plane, in front of it and behind it.
    w, b = (t[0] for t in TEACHER.layers[0])
    points = -(-samples // 3)
    point = torch.arange(samples) // 3
    node = point % 4
    drawn = 1.5 * normal(seed, Stream.TRAIN, 0, points * 6).view(points, 6)[point]
    along = (x[0] * w[node]).sum(1, keepdim=True) * w[node]
    inside = drawn - (drawn * w[node]).sum(1, keepdim=True) * w[node]
    stretch = inside.norm(dim=1) / (x[0] - along).norm(dim=1)
    distance = stretch * (x[0] * w[node]).sum(1) + b[node]
    side = torch.tensor([0.0, 1.0, -1.0])[torch.arange(samples) % 3]
    assert (distance[side == 0].abs() < 1e-9).all()
    off = (distance * side)[side != 0]
    assert ((off > moved[0] - 1e-9) & (off < moved[1] + 1e-9)).all()


def test_points_at_a_distance_by_hand():
    x, w = torch.tensor([[3.0, 4.0], [1.0, 1.0]]), torch.tensor([[2.0, 0.0], [0.0, 1.0]])
    made = _move_to_distance(x, w, torch.tensor([2.0, -1.0]), torch.tensor([5.0, -3.0]))
    assert made.tolist() == [[4.0, 4.0], [1.0, -2.0]]


def test_teacher_aware_moves_points_symmetrically_by_uniform_distances():
    teacher = teachers.distinct_rows((40, 1, 1), seeds=1, dtype=torch.float64, bias=0.0)
    n = 10_000
    x = data.teacher_aware(teacher, 1, 3 * n)[0].view(n, 3, 40)
    w = teacher.layers[0].weight[0, 0]
    inside = (1.5 * normal(1, Stream.TRAIN, 0, n * 40)).view(n, 1, 40)
    inside = inside - (inside @ w).unsqueeze(2) * w
    distance = (x @ w) * inside.norm(dim=2) / (x - (x @ w).unsqueeze(2) * w).norm(dim=2)
    assert torch.allclose(distance[:, 1], -distance[:, 2])
    assert abs(distance[:, 1].mean() - 10.5) < 4 * math.sqrt(1 / 12 / n)
    assert abs((distance[:, 1] - 10.5).pow(2).mean() - 1 / 12) < 4 * math.sqrt(1 / 180 / n)


def test_the_teacher_aware_source_finds_the_teacher_of_its_seed():
    source = data.TeacherAware(TEACHER, train=12, evaluation=9, moved=(1.0, 2.0))
    both = data.teacher_aware(TEACHER[:2], [5, 2], 12, moved=(1.0, 2.0))
    assert torch.equal(source.training(5, dtype=torch.float64), both[0])
    assert torch.equal(source.training(2, dtype=torch.float64), both[1])
    plain = data.Gaussian(6, evaluation=9)
    assert torch.equal(source.evaluating(2), plain.evaluating(2))
    other = Population(teachers.distinct_rows((6, 4, 3), seeds=[1, 2]).layers, torch.tensor([5, 5]))
    with pytest.raises(UserError, match="teachers of seed 5 differ in their first layer: give each its own seed"):
        data.TeacherAware(other).training(5)


def test_an_augmented_source_has_the_samples_of_definition_7():
    plain = data.Gaussian(6, std=1.0, train=40, evaluation=9)
    blind = data.Augmented(plain, eps=0.2, nodes=12, c=2.0)
    x = plain.training(5, dtype=torch.float64)
    assert torch.equal(blind.training(5, dtype=torch.float64), data.agnostic(x, 0.2, 12, 2.0))
    assert (blind.dim, blind.train, blind.evaluation, blind.fresh) == (6, 13 * 40, 9, False)
    assert torch.equal(blind.evaluating(5), plain.evaluating(5))
    teacher = TEACHER[1]
    near = data.Augmented(plain, eps=0.2, nodes=12, teacher=teacher)
    seed = int(teacher.seeds[0])
    expected = data.aware(plain.training(seed, dtype=torch.float64), teacher, 0.2, 12)
    assert torch.equal(near.training(seed, dtype=torch.float64), expected)
    assert near.train == len(expected) > 40
    with pytest.raises(UserError, match=f"made for the teacher of seed {seed}, got a network of seed 99"):
        near.training(99)


def test_an_augmented_source_of_fresh_samples_is_teacher_agnostic():
    fresh = data.Gaussian(6, train=10, fresh=True)
    first, second = (data.Augmented(fresh, eps=0.2, nodes=12).training(1, epoch) for epoch in (1, 2))
    assert not torch.equal(first, second)
    with pytest.raises(UserError, match="give a source without fresh"):
        data.Augmented(fresh, eps=0.2, nodes=12, teacher=TEACHER[0])
    with pytest.raises(UserError, match="takes one teacher, got 3"):
        data.Augmented(data.Gaussian(6), eps=0.2, nodes=12, teacher=TEACHER)
    with pytest.raises(UserError, match="eps must be a finite number above 0, got 0"):
        data.Augmented(data.Gaussian(6), eps=0.0, nodes=12)


def test_labels_of_a_teacher_are_its_largest_outputs():
    plain = data.Gaussian(6, train=40, evaluation=9)
    several = teachers.distinct_rows((6, 4, 3), seeds=[7, 2], dtype=torch.float64)
    labelled = data.TeacherLabels(plain, several)
    assert isinstance(labelled, data.Labelled) and labelled.classes == 3
    for n, seed in enumerate((7, 2)):
        x = plain.training(seed, dtype=torch.float64)
        assert torch.equal(labelled.training(seed), plain.training(seed))
        assert torch.equal(labelled.training_labels(seed), several[n](x)[0].argmax(1))
        assert len(labelled.evaluation_labels(seed)) == 9
    with pytest.raises(UserError, match="labels need one teacher of seed 99, got 0"):
        labelled.training_labels(99)
    single = data.TeacherLabels(data.Gaussian(6), teachers.distinct_rows((6, 4, 1), seeds=[1]))
    assert single.classes == 2 and set(single.training_labels(1).tolist()) == {0, 1}


def test_random_labels_do_not_depend_on_the_samples():
    few, many = (data.RandomLabels(data.Gaussian(6, std=std, train=3_000, evaluation=50), 4) for std in (1.0, 2.0))
    assert isinstance(few, data.Labelled)
    labels = few.training_labels(1)
    assert torch.equal(labels, many.training_labels(1)) and torch.equal(few.training(1), few.source.training(1))
    counts = labels.bincount(minlength=4)
    assert (counts - 750).abs().max() < 4 * math.sqrt(3_000 * 0.25 * 0.75)
    assert not torch.equal(labels, few.training_labels(2))
    assert not torch.equal(labels[:50], few.evaluation_labels(1))
    assert torch.equal(labels, few.training_labels(1, 2))
    fresh = data.RandomLabels(data.Gaussian(6, train=50, fresh=True), 4)
    assert not torch.equal(fresh.training_labels(1, 1), fresh.training_labels(1, 2))
    with pytest.raises(UserError, match="classes must be at least 2, got 1"):
        data.RandomLabels(data.Gaussian(6), 1)
