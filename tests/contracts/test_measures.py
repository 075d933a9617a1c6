"""Contract of every measure: shape, finiteness, independence of the batch, its symmetries and only those."""

import functools
import inspect
import itertools
import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import understudy.measures as measures
from support.measured_pairs import MEASURES, OTHERS, Measure, Pair
from understudy._random import Stream, normal
from understudy.nets import Layer, Population

NETS, SAMPLES, SIZES, WIDER = 3, 600, (4, 3, 5, 2), (4, 6, 7, 2)
every = pytest.mark.parametrize("subject", MEASURES.values(), ids=MEASURES)
both = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


@functools.cache
def numbers(count: int, seed: int) -> Tensor:
    return normal(seed, Stream.EVALUATION, 0, count)


def gaussian(*shape: int, seed: int) -> Tensor:
    return numbers(math.prod(shape), seed).clone().view(shape)


def population(sizes: tuple[int, ...], seed: int) -> Population:
    layers = tuple(
        Layer(gaussian(NETS, out, into, seed=seed + i), gaussian(NETS, out, seed=seed + 10 + i) / 2)
        for i, (into, out) in enumerate(itertools.pairwise(sizes))
    )
    return Population(layers, torch.arange(NETS))


def generic(layer: int = 0) -> Pair:
    """Build a pair in which two students are near their teachers, so that no measure is constant."""
    teacher, student = population(SIZES, 100), population(WIDER, 200)
    student.layers[0].weight[:, :2] = teacher.layers[0].weight[:, :2] + 0.05 * gaussian(NETS, 2, 4, seed=300)
    student.layers[0].bias[:, :2] = teacher.layers[0].bias[:, :2]  # type: ignore[index]
    return Pair(teacher, student, gaussian(SAMPLES, 4, seed=400), layer)


def layers_of(subject: Measure) -> range:
    return range(2 if subject.deep else 1)


def permuted(net: Population, layer: int, order: Tensor) -> Population:
    layers = list(net.layers)
    (w, b), (v, c) = layers[layer], layers[layer + 1]
    layers[layer], layers[layer + 1] = Layer(w[:, order], None if b is None else b[:, order]), Layer(v[:, :, order], c)
    return replace(net, layers=tuple(layers))


def rescaled(net: Population, layer: int, by: Tensor) -> Population:
    layers = list(net.layers)
    (w, b), (v, c) = layers[layer], layers[layer + 1]
    layers[layer] = Layer(w * by.unsqueeze(1), None if b is None else b * by)
    layers[layer + 1] = Layer(v / by, c)
    return replace(net, layers=tuple(layers))


def permuted_student(pair: Pair) -> tuple[Pair, Tensor]:
    order = torch.arange(pair.student.sizes[pair.layer + 1]).roll(2)
    return replace(pair, student=permuted(pair.student, pair.layer, order)), order


def permuted_teacher(pair: Pair) -> tuple[Pair, Tensor]:
    order = torch.arange(pair.teacher.sizes[pair.layer + 1]).roll(1)
    return replace(pair, teacher=permuted(pair.teacher, pair.layer, order)), order


def rescaled_student(pair: Pair) -> tuple[Pair, Tensor]:
    nodes = pair.student.sizes[pair.layer + 1]
    by = torch.linspace(0.3, 4.0, nodes, dtype=torch.float64)
    return replace(pair, student=rescaled(pair.student, pair.layer, by)), torch.arange(nodes)


SYMMETRIES: dict[str, tuple[str, Callable[[Pair], tuple[Pair, Tensor]]]] = {
    "student permutation": ("student", permuted_student),
    "teacher permutation": ("teacher", permuted_teacher),
    "positive rescaling": ("student", rescaled_student),
}


def same(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a, b, rtol=1e-9, atol=1e-12) if a.is_floating_point() else torch.equal(a, b)


@every
@both
def test_shape_is_as_declared_and_all_is_finite(subject: Measure, dtype: torch.dtype) -> None:
    for layer in layers_of(subject):
        pair = generic(layer)
        pair = Pair(pair.teacher.to(dtype=dtype), pair.student.to(dtype=dtype), pair.x.to(dtype), layer)
        axes = {"net": NETS, "teacher": SIZES[layer + 1], "student": WIDER[layer + 1]}
        value = subject(pair)
        assert value.shape == tuple(axes[axis] for axis in subject.shape)
        assert value.isfinite().all()
        assert value.dtype in (dtype, torch.bool, torch.int64)


@every
def test_float32_gives_what_float64_does(subject: Measure) -> None:
    pair = generic()
    narrow = Pair(pair.teacher.to(dtype=torch.float32), pair.student.to(dtype=torch.float32), pair.x.float())
    torch.testing.assert_close(subject(narrow).double(), subject(pair).double(), rtol=1e-4, atol=1e-5)


@every
def test_is_not_constant(subject: Measure) -> None:
    values = subject(generic()).double().flatten()
    other = subject(replace(generic(), student=population(WIDER, 500))).double().flatten()
    assert len(set(torch.cat((values, other)).tolist())) > 1


@every
@both
def test_results_do_not_depend_on_the_batch(subject: Measure, dtype: torch.dtype) -> None:
    for layer in layers_of(subject):
        pair = generic(layer)
        teacher, student, x = pair.teacher.to(dtype=dtype), pair.student.to(dtype=dtype), pair.x.to(dtype)
        together = subject(Pair(teacher, student, x, layer))
        for e in range(NETS):
            assert torch.equal(subject(Pair(teacher[e], student[e], x, layer))[0], together[e])


@every
def test_each_network_may_have_its_own_inputs(subject: Measure) -> None:
    pair = generic()
    own = gaussian(NETS, SAMPLES, 4, seed=600)
    together = subject(replace(pair, x=own))
    for e in range(NETS):
        assert torch.equal(subject(Pair(pair.teacher[e], pair.student[e], own[e]))[0], together[e])


@every
@pytest.mark.parametrize("symmetry", SYMMETRIES)
def test_declared_symmetries_hold_and_the_others_do_not(subject: Measure, symmetry: str) -> None:
    axis, change = SYMMETRIES[symmetry]
    for layer in layers_of(subject):
        pair = generic(layer)
        changed, order = change(pair)
        before, after = subject(pair), subject(changed)
        expected = before.index_select(subject.shape.index(axis), order) if axis in subject.shape else before
        assert same(after, expected) == (symmetry in subject.invariant)


@every
def test_a_permutation_moves_the_result_along_its_axis(subject: Measure) -> None:
    # Without this, a measure that ignores its nodes would pass as symmetric.
    for axis, change in (("student", permuted_student), ("teacher", permuted_teacher)):
        if axis in subject.shape:
            changed, _ = change(generic())
            assert not same(subject(changed), subject(generic()))


@every
@both
@pytest.mark.parametrize("kind", ["never active", "zero weights", "constant"])
def test_dead_nodes_never_give_nan(subject: Measure, dtype: torch.dtype, kind: str) -> None:
    for layer in layers_of(subject):
        pair = generic(layer)
        clean = subject(Pair(pair.teacher.to(dtype=dtype), pair.student.to(dtype=dtype), pair.x.to(dtype), layer))
        for weight, bias in (pair.teacher.layers[layer], pair.student.layers[layer]):
            assert bias is not None
            bias[:, 0] = {"never active": -1e6, "zero weights": 0.0, "constant": 0.1}[kind]
            if kind != "never active":
                weight[:, 0] = 0.0
        dead = subject(Pair(pair.teacher.to(dtype=dtype), pair.student.to(dtype=dtype), pair.x.to(dtype), layer))
        assert not dead.isnan().any()
        if subject.shape == ("net", "teacher", "student"):
            torch.testing.assert_close(dead[:, 1:, 1:], clean[:, 1:, 1:])


@every
def test_the_docstring_cites_a_paper(subject: Measure) -> None:
    text = inspect.getdoc(subject.function) or ""
    assert "Tian 20" in text or "Tian et al. 2019" in text
    assert "Args:" in text and "Returns:" in text and text.splitlines()[0].endswith(".")


def test_every_function_of_the_package_is_covered() -> None:
    public = {name for name, value in vars(measures).items() if inspect.isfunction(value)}
    assert {subject.function.__name__ for subject in MEASURES.values()} | OTHERS.keys() == public
