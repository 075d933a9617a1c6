"""Triples of a teacher, a student and data that try to make a certificate lie: random ones, and ones made for it.

A triple is a function of its number alone. The kinds come in turn; within a kind sizes, slopes, distances and data are
drawn. A theorem that certifies a teacher node must find a student there, whatever the kind.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from understudy._random import Stream, normal, uniform
from understudy.nets import Layer, Population, activate
from understudy.papers.specialization.theory.induced import TooMany, induced
from understudy.papers.specialization.theory.sampled import Trial, trials
from understudy.theory.gradient_flow import descent
from understudy.theory.scene import Scene

DISTANCES = (0.0, 1e-12, 1e-10, 1e-8, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1)
"""How far a student may be from its teacher, relative to the length of its weights."""
BEYOND = 1.01
"""Times the guaranteed distance at which a student is just outside."""
_SAMPLES = {1: (300, 3_000), 2: (3_000, 20_000, 40_000), 3: (20_000, 60_000), 4: (60_000,)}
"""Numbers of samples by the number of inputs: with few inputs, few samples certify."""

_Choice = TypeVar("_Choice")


class Triple(NamedTuple):
    number: int
    kind: str
    teacher: Population
    student: Population
    x: Float[Tensor, "sample in"]


class _Net(NamedTuple):
    """One network without the axis of networks: weights and biases of its lowest layer, and of those above."""

    weight: Float[Tensor, "node in"]
    bias: Float[Tensor, "node"]
    upper: tuple[tuple[Tensor, Tensor], ...]
    slope: float

    @property
    def fan_out(self) -> Float[Tensor, "out node"]:
        return self.upper[0][0]

    def with_lowest(
        self, weight: Float[Tensor, "new in"], bias: Float[Tensor, "new"], fan_out: Float[Tensor, "out new"]
    ) -> _Net:
        return _Net(weight, bias, ((fan_out, self.upper[0][1]), *self.upper[1:]), self.slope)

    def population(self, name: int) -> Population:
        layers = ((self.weight, self.bias), *self.upper)
        stacked = tuple(Layer(w.unsqueeze(0), b.unsqueeze(0)) for w, b in layers)
        return Population(stacked, torch.tensor([name]), self.slope)


Made = tuple[_Net, _Net, Float[Tensor, "sample in"]]
"""Teacher, student and data."""


class _Draws:
    """The random numbers of one triple, one after the other."""

    def __init__(self, number: int) -> None:
        self.number, self._step = number, 0

    def _next(self) -> int:
        self._step += 1
        return self._step

    def normal(self, *shape: int) -> Tensor:
        return normal(self.number, Stream.TRIPLES, self._next(), math.prod(shape)).view(shape)

    def uniform(self, *shape: int) -> Tensor:
        return uniform(self.number, Stream.TRIPLES, self._next(), math.prod(shape)).view(shape)

    def one(self) -> float:
        return float(self.uniform(1)[0])

    def choose(self, *of: _Choice) -> _Choice:
        return of[int(self.one() * len(of))]

    def sign(self) -> float:
        return self.choose(-1.0, 1.0)


def triple(number: int) -> Triple:
    """The triple of that number, from 0."""
    kind = KINDS[number % len(KINDS)]
    teacher, student, x = _MAKERS[kind](_Draws(number))
    return Triple(number, kind, teacher.population(number), student.population(number), x)


def copied(teacher: Population, idle: int, distance: float, number: int) -> Population:
    """A student with the nodes of one teacher and idle ones, all weights off by a relative distance."""
    return _copy(_Draws(number), _taken(teacher), idle, distance).population(number)


def _taken(network: Population) -> _Net:
    (weight, bias), *upper = ((w[0], torch.zeros_like(w[0, :, 0]) if b is None else b[0]) for w, b in network.layers)
    return _Net(weight, bias, tuple(upper), network.slope)


# Parts that kinds are made of


def _teacher(
    draws: _Draws,
    dims: Sequence[int] = (1, 2, 2, 2, 3, 4),
    nodes: Sequence[int] = (1, 2, 3, 4),
    deep: Sequence[bool] = (False, False, False, True),
) -> _Net:
    """Weights of length 1; a deep one has a second hidden layer."""
    dim, m, out = draws.choose(*dims), draws.choose(*nodes), draws.choose(1, 2, 3)
    above = (draws.choose(1, 2, 3),) if draws.choose(*deep) else ()
    weight = _unit(draws.normal(m, dim))
    upper, below = [], m
    for size in (*above, out):
        upper.append((draws.normal(size, below), 0.3 * draws.normal(size)))
        below = size
    return _Net(weight, 0.3 * draws.normal(m), tuple(upper), draws.choose(0.0, 0.0, 0.2))


def _inputs(draws: _Draws, dim: int, samples: int | None = None) -> Float[Tensor, "sample in"]:
    count = draws.choose(*_SAMPLES[dim]) if samples is None else samples
    shape = draws.choose("normal", "normal", "uniform", "one-sided")
    x = 4.0 * (draws.uniform(count, dim) - 0.5) if shape == "uniform" else draws.normal(count, dim)
    if shape == "one-sided":
        x[:, 0] = x[:, 0].abs()
    return x


def _unit(rows: Float[Tensor, "row in"]) -> Float[Tensor, "row in"]:
    lengths: Tensor = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return rows / lengths


def _copy(draws: _Draws, teacher: _Net, idle: int, distance: float) -> _Net:
    fan_out = torch.cat((teacher.fan_out, teacher.fan_out.new_zeros(len(teacher.fan_out), idle)), 1)
    weight = torch.cat((teacher.weight, _unit(draws.normal(idle, teacher.weight.shape[1]))))
    bias = torch.cat((teacher.bias, 0.3 * draws.normal(idle)))
    return _off(draws, teacher.with_lowest(weight, bias, fan_out), distance)


def _off(draws: _Draws, net: _Net, distance: float) -> _Net:
    """All weights of the two lowest layers moved by a relative distance."""
    length = torch.linalg.vector_norm(net.weight, dim=1, keepdim=True)
    weight = net.weight + distance * length * draws.normal(*net.weight.shape)
    bias = net.bias + distance * length[:, 0] * draws.normal(*net.bias.shape)
    largest = net.fan_out.abs().max()
    return net.with_lowest(weight, bias, net.fan_out + distance * largest * draws.normal(*net.fan_out.shape))


def _into(net: _Net, x: Float[Tensor, "sample in"]) -> Float[Tensor, "sample node"]:
    return torch.addmm(net.bias, x, net.weight.T)


def _refitted(net: _Net, teacher: _Net, x: Float[Tensor, "sample in"]) -> _Net:
    """The output layer by least squares on the data: its gradients are as small as they get with such nodes."""
    h = activate(_into(net, x), net.slope)
    for weight, bias in net.upper[:-1]:
        h = activate(torch.addmm(bias, h, weight.T), net.slope)
    aim = teacher.population(0)(x)[0]
    fit = torch.linalg.lstsq(torch.cat((h, torch.ones_like(h[:, :1])), 1), aim, driver="gelsd").solution
    return net._replace(upper=(*net.upper[:-1], (fit[:-1].T.contiguous(), fit[-1])))


# Kinds


def _same(draws: _Draws) -> Made:
    """The teacher's nodes, idle ones beside them, all off by a little."""
    teacher = _teacher(draws)
    x = _inputs(draws, teacher.weight.shape[1])
    return teacher, _copy(draws, teacher, draws.choose(0, 1, 2, 3), draws.choose(*DISTANCES)), x


def _split(draws: _Draws) -> Made:
    """Two students of other lengths share a teacher node."""
    teacher = _teacher(draws)
    m, length, share = len(teacher.weight), 0.3 + 2 * draws.one(), draws.one()
    student = _copy(draws, teacher, draws.choose(1, 2), 0.0)
    student.weight[m], student.bias[m] = length * teacher.weight[0], length * teacher.bias[0]
    student.fan_out[:, 0], student.fan_out[:, m] = (
        part * teacher.fan_out[:, 0] for part in (share, (1 - share) / length)
    )
    return teacher, _off(draws, student, draws.choose(*DISTANCES)), _inputs(draws, teacher.weight.shape[1])


def _opposite(draws: _Draws) -> Made:
    """A student that points the other way: σ(z) = σ(−z) + (1 + slope) z, the linear part by a node active anywhere."""
    teacher = _teacher(draws)
    x = _inputs(draws, teacher.weight.shape[1])
    m, far = len(teacher.weight), 2 * float(_into(teacher, x)[:, 0].abs().max())
    student, linear = _copy(draws, teacher, 1, 0.0), (1 + teacher.slope) * teacher.fan_out[:, 0]
    student.weight[0], student.bias[0] = -teacher.weight[0], -teacher.bias[0]
    student.weight[m], student.bias[m] = teacher.weight[0], teacher.bias[0] + far
    student.fan_out[:, m] = linear
    above = (student.fan_out, student.upper[0][1] - far * linear)
    return teacher, _off(draws, student._replace(upper=(above, *student.upper[1:])), draws.choose(*DISTANCES)), x


def _duplicate(draws: _Draws) -> Made:
    """Two teacher nodes on one boundary, or nearly; the student has both, or one for both."""
    teacher = _teacher(draws, nodes=(2, 3, 4))
    apart = draws.choose(0.0, 1e-13, 1e-11, 1e-9, 1e-6, 1e-3, 1e-2)
    teacher.weight[1] = teacher.weight[0] + apart * draws.normal(teacher.weight.shape[1])
    teacher.bias[1] = teacher.bias[0] + apart * float(draws.normal(1)[0])
    student = _copy(draws, teacher, draws.choose(0, 1, 2), 0.0)
    if draws.choose(False, True):
        student.fan_out[:, 0] += student.fan_out[:, 1]
        student.fan_out[:, 1] = 0.0
        student.weight[1] = _unit(draws.normal(1, teacher.weight.shape[1]))[0]
    return teacher, _off(draws, student, draws.choose(*DISTANCES)), _inputs(draws, teacher.weight.shape[1])


def _random(draws: _Draws) -> Made:
    """A student that knows nothing of its teacher, but has its number of layers."""
    teacher = _teacher(draws)
    dim, m = teacher.weight.shape[1], len(teacher.weight) + draws.choose(0, 1, 3)
    upper = [(draws.normal(*w.shape), 0.3 * draws.normal(len(w))) for w, _ in teacher.upper]
    upper[0] = draws.normal(len(teacher.fan_out), m), upper[0][1]
    student = _Net(_unit(draws.normal(m, dim)), 0.3 * draws.normal(m), tuple(upper), teacher.slope)
    return teacher, student, _inputs(draws, dim)


def _missing(draws: _Draws) -> Made:
    """All nodes but one."""
    teacher = _teacher(draws)
    student = _copy(draws, teacher, draws.choose(0, 1, 2), 0.0)
    student.weight[0] = _unit(draws.normal(1, teacher.weight.shape[1]))[0]
    x = _inputs(draws, teacher.weight.shape[1])
    student = _off(draws, student, draws.choose(*DISTANCES))
    return teacher, _refitted(student, teacher, x) if draws.choose(False, True) else student, x


def _hidden(draws: _Draws) -> Made:
    """A kink where hardly a sample lies: two students before and behind it give the same function everywhere else."""
    teacher = _teacher(draws)
    x, gap = _inputs(draws, teacher.weight.shape[1]), draws.choose(1e-4, 1e-3, 1e-2, 0.1, 0.3)
    inside = _into(teacher, x)[:, 0].abs() < gap
    left = inside & (inside.cumsum(0) <= draws.choose(0, 0, 1, 3, 30))
    student = _copy(draws, teacher, draws.choose(1, 2), 0.0)
    m, aside = len(teacher.weight), draws.choose(0.1, 0.5, 0.99) * gap
    student.weight[m] = teacher.weight[0]
    student.bias[0], student.bias[m] = teacher.bias[0] - aside, teacher.bias[0] + aside
    student.fan_out[:, m] = student.fan_out[:, 0] = teacher.fan_out[:, 0] / 2
    return teacher, student, x[~inside | left]


def _fitted(draws: _Draws) -> Made:
    """Nodes anywhere, or the teacher's moved by much, whose outputs fit the data as well as such nodes can."""
    teacher = _teacher(draws)
    dim, x = teacher.weight.shape[1], _inputs(draws, teacher.weight.shape[1], draws.choose(30, 300, 3_000, 20_000))
    student = _copy(draws, teacher, draws.choose(2, 6, 14), draws.choose(0.01, 0.03, 0.1, 0.3))
    if draws.choose(False, True):
        weight = _unit(draws.normal(len(student.weight), dim))
        student = student.with_lowest(weight, 0.5 * draws.normal(len(weight)), draws.normal(*student.fan_out.shape))
    return teacher, _refitted(student, teacher, x), x


def _trained(draws: _Draws) -> Made:
    """A few steps of gradient descent on the data, from near the teacher or from anywhere."""
    teacher, start, x = draws.choose(_same, _random, _missing)(draws)
    some, steps, rate = x[:2_000].unsqueeze(0), draws.choose(3, 10, 30), draws.choose(0.03, 0.1)
    *_, end = descent(teacher.population(0), start.population(0), [some] * steps, rate)
    finite = all(bool(part.isfinite().all()) for layer in end.layers for part in layer if part is not None)
    return teacher, _taken(end) if finite else start, x


def _scaled(draws: _Draws) -> Made:
    """Weights, inputs and outputs far from 1."""
    teacher = _teacher(draws)
    powers = (1e-6, 1e-3, 1.0, 1e3, 1e6)
    wide, strong, steep = draws.choose(*powers), draws.choose(*powers), draws.choose(*powers)
    dim = teacher.weight.shape[1]
    teacher = teacher.with_lowest(teacher.weight * strong, teacher.bias * strong * wide, teacher.fan_out * steep)
    x = wide * _inputs(draws, dim)
    m, idle = len(teacher.weight), draws.choose(0, 1, 2)
    student = _copy(draws, teacher, idle, draws.choose(*DISTANCES))
    length = 10 ** (6 * draws.uniform(m + idle) - 3)
    return teacher, student.with_lowest(*_lengthened(student, length)), x


def _lengthened(net: _Net, by: Float[Tensor, "node"]) -> tuple[Tensor, Tensor, Tensor]:
    """The same function by nodes of other lengths."""
    return net.weight * by.unsqueeze(1), net.bias * by, net.fan_out / by


def _ties(draws: _Draws) -> Made:
    """Data on a grid, many samples in one place, boundaries through grid points among them."""
    teacher, student, x = _same(draws)
    decimals = draws.choose(0, 1, 2)
    if draws.choose(False, True):
        teacher = teacher.with_lowest(teacher.weight, torch.zeros_like(teacher.bias), teacher.fan_out)
        student = _copy(draws, teacher, draws.choose(0, 1, 2), draws.choose(*DISTANCES))
    return teacher, student, x.round(decimals=decimals)


def _deep(draws: _Draws) -> Made:
    """Three layers, and samples enough for the boundaries of all."""
    teacher = _teacher(draws, dims=(1, 1, 2), nodes=(1, 2), deep=(True,))
    x = _inputs(draws, teacher.weight.shape[1], {1: 20_000, 2: 100_000}[teacher.weight.shape[1]])
    return teacher, _copy(draws, teacher, draws.choose(0, 1), draws.choose(*DISTANCES)), x


def _few(draws: _Draws) -> Made:
    """Fewer samples than any certificate could need, or just as many."""
    teacher = _teacher(draws)
    x = _inputs(draws, teacher.weight.shape[1], 1 + int(300 * draws.one() ** 2))
    return teacher, _copy(draws, teacher, draws.choose(0, 1, 2), draws.choose(*DISTANCES)), x


def _certified(draws: _Draws) -> Made:
    """Networks small enough, and samples enough, that a certificate is usual."""
    teacher = _teacher(draws, dims=(1, 2, 2, 3), nodes=(1, 2))
    dim = teacher.weight.shape[1]
    x = _inputs(draws, dim, {1: 2_000, 2: 40_000, 3: 100_000}[dim])
    return teacher, _copy(draws, teacher, draws.choose(0, 1), draws.choose(0.0, 1e-10, 1e-6)), x


def _inside(draws: _Draws) -> Made:
    """Students of a certified node moved to a part of the guaranteed distance."""
    return _moved(draws, 10 ** (-4 * draws.one()))


def _outside(draws: _Draws) -> Made:
    """Students of a certified node moved to just outside the guaranteed distance."""
    return _moved(draws, BEYOND)


def _moved(draws: _Draws, times: float) -> Made:
    teacher, student, x = _certified(draws)
    sight, aware = Scene(teacher.population(0), student.population(0), x), draws.choose(False, True)
    refit, turned = draws.choose(False, True), draws.choose(False, True)
    for j in range(len(teacher.weight)):
        held = [trial for trial in _trials(sight, j, aware) if trial.holds]
        if held:
            trial = min(held, key=lambda t: t.eps)
            student = _away(draws, student, sight, j, trial, times, turned)
            return teacher, _refitted(student, teacher, x) if refit else student, x
    return teacher, student, x


def _trials(sight: Scene, j: int, aware: bool) -> Iterator[Trial]:
    try:
        yield from trials(sight, j, aware) if len(sight.teacher.layers) == 2 else trials(sight, j, False, induced)
    except TooMany:
        return


def _away(draws: _Draws, student: _Net, sight: Scene, j: int, trial: Trial, times: float, turned: bool) -> _Net:
    """All students within the guarantee, turned or shifted until they are at so many times its distance."""
    sin, gap = (trial.guarantee.m1 * trial.e, trial.guarantee.m2 * trial.e)
    near, one = sight.nearest(j), sight.one(j)
    weight, bias = student.weight.clone(), student.bias.clone()
    for k in sight.students[(near.sin <= sin) & (near.gap <= gap)].tolist():
        length = float(torch.linalg.vector_norm(student.weight[k]))
        normal_, offset = one.normal[0], float(one.offset[0])
        across = draws.normal(len(normal_))
        across = across - (across @ normal_) * normal_
        if turned and times * sin < 1 and len(normal_) > 1:
            angle = math.asin(times * sin)
            across = across / torch.linalg.vector_norm(across)
            # About the point of the boundary that is nearest to the origin, where the data lies.
            weight[k] = length * (math.cos(angle) * normal_ + math.sin(angle) * across)
            bias[k] = length * math.cos(angle) * offset
        else:
            weight[k] = length * normal_
            bias[k] = length * (offset + draws.sign() * times * gap)
    return student.with_lowest(weight, bias, student.fan_out)


_MAKERS: dict[str, Callable[[_Draws], Made]] = {
    "same": _same,
    "split": _split,
    "opposite": _opposite,
    "duplicate": _duplicate,
    "random": _random,
    "missing": _missing,
    "hidden": _hidden,
    "fitted": _fitted,
    "trained": _trained,
    "scaled": _scaled,
    "ties": _ties,
    "few": _few,
    "deep": _deep,
    "inside": _inside,
    "outside": _outside,
}
KINDS = tuple(_MAKERS)
"""Kinds of triples, in the order in which they come."""
