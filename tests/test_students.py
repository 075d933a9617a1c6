"""How students start."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy import students, teachers
from understudy._errors import UserError
from understudy._random import Stream, normal, uniform
from understudy.nets import Layer, Population

TEACHER = teachers.separated((7, 4, 6, 3), seeds=[3, 8, 3], slope=0.1)
starts = pytest.mark.parametrize("start", [students.gaussian, students.like_linear])


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(1, 300), min_size=1, max_size=4), st.integers(1, 50))
def test_whole_multiples_scale_the_hidden_sizes(hidden, multiple):
    assert students.hidden_sizes((9, *hidden, 5), multiple) == tuple(multiple * m for m in hidden)


def test_parts_of_a_teacher_by_hand():
    assert students.hidden_sizes((100, 30, 50), 0.1) == (3,)
    assert students.hidden_sizes((100, 20, 40, 50), 1.25) == (25, 50)


@pytest.mark.parametrize("multiple", [0.33, 0.0, -1.0, math.inf, math.nan, 0.01])
def test_a_multiple_that_gives_no_whole_number_is_refused(multiple):
    with pytest.raises(UserError, match=f"multiple {multiple:g} of the hidden sizes of a teacher 100-20-50 gives"):
        students.hidden_sizes((100, 20, 50), multiple)


def test_gaussian_students_by_hand():
    made = students.gaussian(TEACHER, multiple=2, scale=0.5, bias=0.25)
    assert made.sizes == (7, 8, 12, 3) and made.slope == 0.1 and made.seeds.tolist() == [3, 8, 3]
    expected = (0.5 * normal(8, Stream.STUDENT, 1 << 32, 12 * 8)).view(12, 8).float()
    assert torch.equal(made.layers[1].weight[1], expected)
    assert all((bias == 0.25).all() for _, bias in made.layers)


def test_like_linear_by_hand():
    made = students.like_linear(TEACHER)
    weight = ((2 * uniform(3, Stream.STUDENT, 0, 28) - 1) / math.sqrt(7)).view(4, 7).float()
    bias = ((2 * uniform(3, Stream.STUDENT, 1, 4) - 1) / math.sqrt(7)).float()
    assert torch.equal(made.layers[0].weight[0], weight) and torch.equal(made.layers[0].bias[0], bias)


@starts
def test_a_student_is_the_same_alone_and_in_company(start):
    among = start(TEACHER, multiple=3)
    for n in range(3):
        for one, many in zip(start(TEACHER[n], multiple=3).layers, among.layers, strict=True):
            assert torch.equal(one.weight[0], many.weight[n]) and torch.equal(one.bias[0], many.bias[n])
    assert torch.equal(among.layers[0].weight[0], among.layers[0].weight[2])
    assert not torch.equal(among.layers[0].weight[0], among.layers[0].weight[1])


@starts
def test_students_follow_their_teacher_and_their_seeds(start):
    double = TEACHER.to(dtype=torch.float64)
    made = start(double, seeds=[8, 1, 2], slope=0.0)
    assert made.dtype == torch.float64 and made.slope == 0.0
    assert torch.equal(made.layers[0].weight[0], start(double).layers[0].weight[1])
    bare = Population(tuple(Layer(w, None) for w, _ in TEACHER.layers), TEACHER.seeds)
    assert all(bias is None for _, bias in start(bare).layers)
    with pytest.raises(UserError, match=r"seeds must be one per teacher \(3\), got 2"):
        start(TEACHER, seeds=[1, 2])


def test_moments_of_both_starts():
    teacher = teachers.separated((100, 20, 50), seeds=range(8), dtype=torch.float64)
    drawn = students.gaussian(teacher, multiple=5)
    for layer in drawn.layers:
        z, n = layer.weight / 0.005, layer.weight.numel()
        assert abs(z.mean()) < 4 / math.sqrt(n)
        assert abs(z.pow(2).mean() - 1) < 4 * math.sqrt(2 / n)
        assert abs(z.pow(4).mean() - 3) < 4 * math.sqrt(96 / n)
    linear = students.like_linear(teacher, multiple=5)
    for layer in linear.layers:
        for part in layer:
            z, n = part * math.sqrt(layer.weight.shape[2]), part.numel()
            assert z.abs().max() < 1
            assert abs(z.mean()) < 4 * math.sqrt(1 / 3 / n)
            assert abs(z.pow(2).mean() - 1 / 3) < 4 * math.sqrt(4 / 45 / n)


def test_a_start_of_scale_zero_is_the_zero_network_and_a_bad_scale_is_refused():
    assert not students.gaussian(TEACHER, scale=0.0)(torch.ones(2, 7)).any()
    with pytest.raises(UserError, match="scale must be a finite number of at least 0, got -1"):
        students.gaussian(TEACHER, scale=-1)
