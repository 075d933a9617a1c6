"""Initialisation of students."""

import math
from dataclasses import replace
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from support.kinds import KINDS, made, same, tensors
from understudy import GD, students, teachers, train
from understudy._errors import UserError
from understudy._random import Stream, normal, uniform
from understudy.data import Gaussian
from understudy.measures import fan_out
from understudy.nets import Layer, Population, Shape, from_module, save, stack

pytestmark = pytest.mark.usefixtures("one_thread")
TEACHER = teachers.distinct_rows((7, 4, 6, 3), seeds=[3, 8, 3], slope=0.1)
starts = pytest.mark.parametrize("start", [students.gaussian, students.like_linear])
kinds = pytest.mark.parametrize("shape", KINDS.values(), ids=KINDS)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(1, 300), min_size=1, max_size=4), st.integers(1, 50))
def test_whole_multiples_scale_the_hidden_sizes(hidden, multiple):
    assert students.hidden_sizes((9, *hidden, 5), multiple) == tuple(multiple * m for m in hidden)


def test_fractional_multiples_by_hand():
    assert students.hidden_sizes((100, 30, 50), 0.1) == (3,)
    assert students.hidden_sizes((100, 20, 40, 50), 1.25) == (25, 50)


@pytest.mark.parametrize("multiple", [0.33, 0.0, -1.0, math.inf, math.nan, 0.01])
def test_a_multiple_that_gives_no_whole_number_is_rejected(multiple):
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
def test_a_student_does_not_depend_on_the_others(start):
    among = start(TEACHER, multiple=3)
    for n in range(3):
        for one, many in zip(start(TEACHER[n], multiple=3).layers, among.layers, strict=True):
            assert torch.equal(one.weight[0], many.weight[n]) and torch.equal(one.bias[0], many.bias[n])
    assert torch.equal(among.layers[0].weight[0], among.layers[0].weight[2])
    assert not torch.equal(among.layers[0].weight[0], among.layers[0].weight[1])


@starts
def test_students_take_dtype_and_biases_of_their_teacher_and_their_own_seeds(start):
    double = TEACHER.to(dtype=torch.float64)
    made = start(double, seeds=[8, 1, 2], slope=0.0)
    assert made.dtype == torch.float64 and made.slope == 0.0
    assert torch.equal(made.layers[0].weight[0], start(double).layers[0].weight[1])
    bare = Population(tuple(Layer(w, None) for w, _ in TEACHER.layers), TEACHER.seeds)
    assert all(bias is None for _, bias in start(bare).layers)
    with pytest.raises(UserError, match=r"seeds must be one per teacher \(3\), got 2"):
        start(TEACHER, seeds=[1, 2])


@pytest.mark.parametrize(
    "start", [*(students.gaussian, students.like_linear), partial(students.near, weights=0.5, fan_out=2.0)]
)
@given(seeds=st.lists(st.integers(0, 2**40), min_size=1, max_size=6))
def test_one_teacher_serves_any_number_of_students(start, seeds):
    teacher = teachers.distinct_rows((7, 4, 3), seeds=[3], slope=0.1)
    by_hand = stack([teacher] * len(seeds))
    assert same(start(teacher, multiple=2, seeds=seeds), start(by_hand, multiple=2, seeds=seeds))


@pytest.mark.wrong_shapes
@starts
def test_seeds_that_give_no_student_are_rejected(start):
    with pytest.raises(UserError, match="seeds must be one or more, got 0"):
        start(TEACHER[0], seeds=[])
    with pytest.raises(UserError, match=r"seeds must be several whole numbers, such as range\(5\), got 5"):
        start(TEACHER[0], seeds=5)


def test_moments_of_both_starts():
    teacher = teachers.distinct_rows((100, 20, 50), seeds=range(8), dtype=torch.float64)
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


def test_scale_zero_is_the_zero_network_and_a_bad_scale_is_rejected():
    assert not students.gaussian(TEACHER, scale=0.0)(torch.ones(2, 7)).any()
    with pytest.raises(UserError, match="scale must be a finite number of at least 0, got -1"):
        students.gaussian(TEACHER, scale=-1)


@starts
@kinds
def test_students_have_the_kind_of_their_teacher(start, shape):
    teacher = made(shape, 2)
    made_of_it = start(teacher, multiple=3)
    sizes = (shape.sizes[0], *(3 * n for n in shape.sizes[1:-1]), shape.sizes[-1])
    assert made_of_it.shape == replace(shape, sizes=sizes) and made_of_it.seeds.tolist() == [0, 1]
    assert made_of_it(torch.ones(2, teacher.inputs, dtype=teacher.dtype)).shape == (2, 2, sizes[-1])


@starts
@kinds
def test_batch_norm_of_a_student_may_differ_from_its_teacher(start, shape):
    teacher, plain = made(shape, 2), start(made(replace(shape, norm=None, affine=True), 2))
    for norm in (None, "before", "after"):
        for affine in (True, False):
            student = start(teacher, norm=norm, affine=affine)
            assert student.shape == replace(shape, norm=norm, affine=affine or norm is None)
            assert same(replace(student, norms=(), norm_first=False), plain)


@starts
def test_batch_norm_starts_at_the_identity(start):
    teacher = made(KINDS["conv-after"], 2)
    student = start(teacher, multiple=2)
    for norm, nodes in zip(student.norms, (10, 6), strict=True):
        for part, value in zip(norm, (0, 1, 1, 0), strict=True):
            assert part.shape == (2, nodes) and (part == value).all()
    apart = {t.data_ptr() for t in tensors(student)}
    assert len(apart) == len(tensors(student)), "tensors that share memory would be trained together"


def test_convolutions_start_as_in_torch_by_hand():
    teacher = made(KINDS["conv"], 2, dtype=torch.float32)
    student = students.like_linear(teacher, multiple=2)
    weight = ((2 * uniform(1, Stream.STUDENT, 0, 8 * 2 * 9) - 1) / math.sqrt(18)).view(8, 2, 3, 3).float()
    bias = ((2 * uniform(1, Stream.STUDENT, 1, 8) - 1) / math.sqrt(18)).float()
    assert torch.equal(student.layers[0].weight[1], weight) and torch.equal(student.layers[0].bias[1], bias)
    features = 6 * 3 * 2  # twice 3 channels times the 3 × 2 map that two convolutions make of 7 × 6
    assert student.layers[2].weight.shape == (2, 5, features)
    assert 0.9 < student.layers[2].weight.abs().max() * math.sqrt(features) < 1


def test_moments_of_convolutions_equal_those_of_torch():
    torch.manual_seed(1)
    teacher = made(Shape((16, 20, 8), image=(3, 3)), 10)
    student = students.like_linear(teacher, multiple=4)
    theirs = torch.nn.Conv2d(16, 8000, 3, dtype=torch.float64)
    for ours, of_torch in ((student.layers[0].weight, theirs.weight), (student.layers[0].bias, theirs.bias)):
        bound = 1 / math.sqrt(16 * 9)
        for drawn in (ours, of_torch):
            z, n = drawn.detach() / bound, drawn.numel()
            assert 0.99 < z.abs().max() < 1 or n < 1000
            assert abs(z.mean()) < 4 * math.sqrt(1 / 3 / n)
            assert abs(z.pow(2).mean() - 1 / 3) < 4 * math.sqrt(4 / 45 / n)


def test_a_wider_student_begins_with_the_filters_of_a_narrower_one():
    teacher = made(KINDS["conv"], 2)
    narrow, wide = (students.like_linear(teacher, multiple=m).layers[0].weight for m in (1, 3))
    assert torch.equal(narrow, wide[:, :4])


@pytest.mark.wrong_shapes
@starts
def test_an_unknown_norm_is_rejected(start):
    with pytest.raises(UserError, match="norm must be one of same, before, after, None, got under"):
        start(TEACHER, norm="under")


def test_students_near_a_teacher_have_unit_columns_and_angles_that_fall_with_nearness():
    teacher = teachers.distinct_rows((4, 3, 5), seeds=[1, 2], dtype=torch.float64)
    found = []
    for p in (0.0, 1.0, 10.0, 1e6):
        student = students.near(teacher, multiple=2, weights=p, fan_out=p)
        v, c = student.layers[1]
        assert student.sizes == (4, 6, 5)
        wide, theirs = (
            torch.cat((net.layers[0].weight, net.layers[0].bias.unsqueeze(2)), 2) for net in (student, teacher)
        )
        assert (wide.norm(dim=2) - 1).abs().max() < 1e-12
        assert (v.norm(dim=2) - 1).abs().max() < 1e-12
        assert not c.any()
        cosine = torch.cosine_similarity(wide[:, :3], theirs, dim=2)
        found.append((cosine.mean().item(), wide[:, 3:]))
    assert found[0][0] < found[1][0] < found[2][0] < 1
    assert found[3][0] == pytest.approx(1, abs=1e-9)
    for _, others in found:
        assert torch.equal(others, found[0][1])


def test_a_student_near_a_teacher_by_hand():
    """Compare with p [w*, b*] + unit noise, scaled to length 1, and the same for weights into each output."""
    teacher = teachers.distinct_rows((2, 1, 1), seeds=[5], dtype=torch.float64)
    student = students.near(teacher, multiple=2, weights=3.0, fan_out=0.0)
    noise = torch.cat([normal(5, Stream.STUDENT, 0, 2), normal(5, Stream.STUDENT, (1 << 32) - 1, 1)])
    weight, bias = teacher.layers[0]
    wanted = 3.0 * torch.cat((weight[0, 0], bias[0])) + noise / noise.norm()
    wanted = wanted / wanted.norm()
    assert torch.allclose(student.layers[0].weight[0, 0], wanted[:2])
    assert torch.allclose(student.layers[0].bias[0, 0], wanted[2])
    drawn = normal(5, Stream.STUDENT, 1 << 32, 2)
    assert torch.allclose(student.layers[1].weight[0, 0], drawn / drawn.norm())


def test_a_wider_student_near_a_teacher_begins_with_a_narrower_one():
    teacher = teachers.distinct_rows((4, 3, 5), seeds=[1], dtype=torch.float64)
    narrow, wide = (students.near(teacher, multiple=k, weights=2.0, fan_out=1.0) for k in (2, 5))
    assert torch.equal(wide.layers[0].weight[:, :6], narrow.layers[0].weight)
    assert torch.equal(wide.layers[0].bias[:, :6], narrow.layers[0].bias)


def test_bad_nearness_is_rejected():
    teacher = teachers.distinct_rows((4, 3, 5), seeds=[1])
    with pytest.raises(UserError, match="weights must be a finite number of at least 0, got -1"):
        students.near(teacher, weights=-1.0, fan_out=0.0)
    with pytest.raises(UserError, match="near needs teachers of two fully connected layers"):
        students.near(TEACHER, weights=1.0, fan_out=0.0)


STARTS = (students.gaussian, students.like_linear, partial(students.near, weights=1, fan_out=1))


@pytest.mark.parametrize("start", STARTS)
def test_a_teacher_may_be_a_module_or_a_file(start, tmp_path):
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.ReLU(), torch.nn.Linear(4, 3))
    wanted = start(from_module(module), multiple=2, seeds=range(3))
    save(from_module(module), tmp_path / "teacher.safetensors")
    for teacher in (module, tmp_path / "teacher.safetensors", str(tmp_path / "teacher.safetensors")):
        assert same(start(teacher, multiple=2, seeds=range(3)), wanted)


@pytest.mark.wrong_shapes
@pytest.mark.parametrize("start", STARTS)
def test_another_teacher_is_refused(start):
    with pytest.raises(UserError, match="teacher must be a population, a module of PyTorch or a network file"):
        start({})


def test_a_balanced_student_by_hand():
    # ‖(3, 4)‖ = 5 and ‖12‖: both become √60; a node without fan-out stays as it is.
    layers = (
        Layer(torch.tensor([[[3.0], [2.0]]]), torch.tensor([[4.0, 0.0]])),
        Layer(torch.tensor([[[12.0, 0.0]]]), None),
    )
    found = students.balanced(Population(layers, torch.tensor([1])))
    by = math.sqrt(12 / 5)
    torch.testing.assert_close(found.layers[0].weight, torch.tensor([[[3 * by], [2.0]]]))
    torch.testing.assert_close(found.layers[0].bias, torch.tensor([[4 * by, 0.0]]))
    torch.testing.assert_close(found.layers[1].weight, torch.tensor([[[12 / by, 0.0]]]))


@kinds
def test_balancing_changes_lengths_and_not_the_function(shape):
    before = made(shape, 3)
    if shape.norm:
        with pytest.raises(UserError, match="balanced needs networks without BatchNorm"):
            students.balanced(before)
        return
    after = students.balanced(before)
    x = uniform(1, Stream.STUDENT, 0, 20 * before.inputs).view(20, -1)
    torch.testing.assert_close(after(x), before(x))
    for i in range(len(after.layers) - 1):
        weight, bias = after.layers[i]
        square = weight.flatten(2).square().sum(2) + (0 if bias is None else bias.square())
        torch.testing.assert_close(square.sqrt(), fan_out(after, i), rtol=1e-6, atol=0)
        assert not torch.allclose(before.layers[i].weight, weight, rtol=1e-3)
    for one, again in zip(tensors(after), tensors(students.balanced(after)), strict=True):
        torch.testing.assert_close(one, again, rtol=1e-6, atol=1e-6)


def test_gradient_descent_conserves_what_balanced_means():
    """‖[w, b]‖² − ‖v‖² moves by a square of the step, and with balanced students both lengths stay together."""
    teacher = teachers.distinct_rows((5, 3, 2), seeds=[1], dtype=torch.float64)
    start = students.gaussian(teacher, multiple=2, scale=0.5)
    for begin, balanced in ((start, False), (students.balanced(start), True)):
        drifts = []
        for lr in (0.02, 0.01):
            run = train(begin, teacher, Gaussian(5, train=50), GD(lr=lr), epochs=1, steps=round(1 / lr))
            gaps = []
            for population in (begin, run.students):
                (w, b), (v, _) = population.layers
                gaps.append(w.square().sum(2) + b.square() - v.square().sum(1))
            drifts.append((gaps[1] - gaps[0]).abs().max().item())
            assert (gaps[1].abs().max() < 0.05) == balanced
        assert 1.5 < drifts[0] / drifts[1] < 3
