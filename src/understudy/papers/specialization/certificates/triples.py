"""Triples of a teacher, a student and data that try to make a certificate wrong: random ones, and adversarial ones.

A triple is a function of its number alone. The kinds alternate; within a kind, sizes, slopes, distances and data are
random. If a theorem certifies a teacher node, a student must be there, whatever the kind.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from understudy._random import Stream, normal, uniform
from understudy.nets import Layer, Population, activate
from understudy.papers.specialization.theory.induced import TooManyBoundaries, induced_planes
from understudy.papers.specialization.theory.sampled import BandTrial, trials
from understudy.theory.gradient_flow import descent
from understudy.theory.pair_geometry import PairGeometry

DISTANCES = (0.0, 1e-12, 1e-10, 1e-8, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1)
"""Distances of a student from its teacher, relative to the length of its weights."""
BEYOND = 1.01
"""Multiple of the guaranteed distance at which a student is just outside."""
_SAMPLES = {1: (300, 3_000), 2: (3_000, 20_000, 40_000), 3: (20_000, 60_000), 4: (60_000,)}
"""Numbers of samples per number of inputs: with few inputs, few samples suffice for a certificate."""

_Choice = TypeVar("_Choice")


class Triple(NamedTuple):
    """A teacher, a student and data."""

    number: int
    kind: str
    teacher: Population
    student: Population
    x: Float[Tensor, "sample in"]


class _Net(NamedTuple):
    """One network without the network axis: weights and biases of its lowest layer, and of the layers above."""

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

    def population(self, seed: int) -> Population:
        layers = ((self.weight, self.bias), *self.upper)
        stacked = tuple(Layer(w.unsqueeze(0), b.unsqueeze(0)) for w, b in layers)
        return Population(stacked, torch.tensor([seed]), self.slope)


Parts = tuple[_Net, _Net, Float[Tensor, "sample in"]]
"""Teacher, student and data."""


class _Draws:
    """Random numbers of one triple, in sequence."""

    def __init__(self, number: int) -> None:
        self.number, self._step = number, 0

    def _next(self) -> int:
        self._step += 1
        return self._step

    def normal(self, *shape: int) -> Tensor:
        return normal(self.number, Stream.TRIPLES, self._next(), math.prod(shape)).view(shape)

    def uniform(self, *shape: int) -> Tensor:
        return uniform(self.number, Stream.TRIPLES, self._next(), math.prod(shape)).view(shape)

    def unit(self) -> float:
        return float(self.uniform(1)[0])

    def choose(self, *options: _Choice) -> _Choice:
        return options[int(self.unit() * len(options))]


def triple(number: int) -> Triple:
    """Make the triple of a number, counted from 0."""
    kind = KINDS[number % len(KINDS)]
    teacher, student, x = _MAKERS[kind](_Draws(number))
    return Triple(number, kind, teacher.population(number), student.population(number), x)


def perturbed_copy(teacher: Population, idle: int, distance: float, number: int) -> Population:
    """Make a student with the nodes of one teacher and idle ones, all weights moved by a relative distance."""
    return _copy(_Draws(number), _from_population(teacher), idle, distance).population(number)


def _from_population(network: Population) -> _Net:
    (weight, bias), *upper = ((w[0], torch.zeros_like(w[0, :, 0]) if b is None else b[0]) for w, b in network.layers)
    return _Net(weight, bias, tuple(upper), network.slope)


def _teacher(
    draws: _Draws,
    dims: Sequence[int] = (1, 2, 2, 2, 3, 4),
    nodes: Sequence[int] = (1, 2, 3, 4),
    deep: Sequence[bool] = (False, False, False, True),
) -> _Net:
    """Make a teacher with unit weights; a deep teacher has a second hidden layer."""
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
    return _perturb(draws, teacher.with_lowest(weight, bias, fan_out), distance)


def _perturb(draws: _Draws, net: _Net, distance: float) -> _Net:
    """Move all weights of the two lowest layers by a relative distance."""
    length = torch.linalg.vector_norm(net.weight, dim=1, keepdim=True)
    weight = net.weight + distance * length * draws.normal(*net.weight.shape)
    bias = net.bias + distance * length[:, 0] * draws.normal(*net.bias.shape)
    largest = net.fan_out.abs().max()
    return net.with_lowest(weight, bias, net.fan_out + distance * largest * draws.normal(*net.fan_out.shape))


def _pre_activations(net: _Net, x: Float[Tensor, "sample in"]) -> Float[Tensor, "sample node"]:
    return torch.addmm(net.bias, x, net.weight.T)


def _refit(net: _Net, teacher: _Net, x: Float[Tensor, "sample in"]) -> _Net:
    """Fit the output layer by least squares on the data, which makes the gradients as small as possible."""
    h = activate(_pre_activations(net, x), net.slope)
    for weight, bias in net.upper[:-1]:
        h = activate(torch.addmm(bias, h, weight.T), net.slope)
    aim = teacher.population(0)(x)[0]
    fit = torch.linalg.lstsq(torch.cat((h, torch.ones_like(h[:, :1])), 1), aim, driver="gelsd").solution
    return net._replace(upper=(*net.upper[:-1], (fit[:-1].T.contiguous(), fit[-1])))


def _same(draws: _Draws) -> Parts:
    """The teacher's nodes and idle ones, all slightly moved."""
    teacher = _teacher(draws)
    x = _inputs(draws, teacher.weight.shape[1])
    return teacher, _copy(draws, teacher, draws.choose(0, 1, 2, 3), draws.choose(*DISTANCES)), x


def _split(draws: _Draws) -> Parts:
    """Two students of different lengths share a teacher node."""
    teacher = _teacher(draws)
    m, length, share = len(teacher.weight), 0.3 + 2 * draws.unit(), draws.unit()
    student = _copy(draws, teacher, draws.choose(1, 2), 0.0)
    student.weight[m], student.bias[m] = length * teacher.weight[0], length * teacher.bias[0]
    student.fan_out[:, 0], student.fan_out[:, m] = (
        part * teacher.fan_out[:, 0] for part in (share, (1 - share) / length)
    )
    return teacher, _perturb(draws, student, draws.choose(*DISTANCES)), _inputs(draws, teacher.weight.shape[1])


def _opposite(draws: _Draws) -> Parts:
    """A student of opposite weights: σ(z) = σ(−z) + (1 + slope) z, the linear part by a node that is always active."""
    teacher = _teacher(draws)
    x = _inputs(draws, teacher.weight.shape[1])
    m, far = len(teacher.weight), 2 * float(_pre_activations(teacher, x)[:, 0].abs().max())
    student, linear = _copy(draws, teacher, 1, 0.0), (1 + teacher.slope) * teacher.fan_out[:, 0]
    student.weight[0], student.bias[0] = -teacher.weight[0], -teacher.bias[0]
    student.weight[m], student.bias[m] = teacher.weight[0], teacher.bias[0] + far
    student.fan_out[:, m] = linear
    above = (student.fan_out, student.upper[0][1] - far * linear)
    return teacher, _perturb(draws, student._replace(upper=(above, *student.upper[1:])), draws.choose(*DISTANCES)), x


def _duplicate(draws: _Draws) -> Parts:
    """Two teacher nodes on nearly the same boundary; the student has both, or one for both."""
    teacher = _teacher(draws, nodes=(2, 3, 4))
    gap = draws.choose(0.0, 1e-13, 1e-11, 1e-9, 1e-6, 1e-3, 1e-2)
    teacher.weight[1] = teacher.weight[0] + gap * draws.normal(teacher.weight.shape[1])
    teacher.bias[1] = teacher.bias[0] + gap * float(draws.normal(1)[0])
    student = _copy(draws, teacher, draws.choose(0, 1, 2), 0.0)
    if draws.choose(False, True):
        student.fan_out[:, 0] += student.fan_out[:, 1]
        student.fan_out[:, 1] = 0.0
        student.weight[1] = _unit(draws.normal(1, teacher.weight.shape[1]))[0]
    return teacher, _perturb(draws, student, draws.choose(*DISTANCES)), _inputs(draws, teacher.weight.shape[1])


def _random(draws: _Draws) -> Parts:
    """A random student of the teacher's depth."""
    teacher = _teacher(draws)
    dim, m = teacher.weight.shape[1], len(teacher.weight) + draws.choose(0, 1, 3)
    upper = [(draws.normal(*w.shape), 0.3 * draws.normal(len(w))) for w, _ in teacher.upper]
    upper[0] = draws.normal(len(teacher.fan_out), m), upper[0][1]
    student = _Net(_unit(draws.normal(m, dim)), 0.3 * draws.normal(m), tuple(upper), teacher.slope)
    return teacher, student, _inputs(draws, dim)


def _missing(draws: _Draws) -> Parts:
    """A student without one of the teacher's nodes."""
    teacher = _teacher(draws)
    student = _copy(draws, teacher, draws.choose(0, 1, 2), 0.0)
    student.weight[0] = _unit(draws.normal(1, teacher.weight.shape[1]))[0]
    x = _inputs(draws, teacher.weight.shape[1])
    student = _perturb(draws, student, draws.choose(*DISTANCES))
    return teacher, _refit(student, teacher, x) if draws.choose(False, True) else student, x


def _hidden(draws: _Draws) -> Parts:
    """A kink with hardly any samples: two students, one on either side, give the same function everywhere else."""
    teacher = _teacher(draws)
    x, gap = _inputs(draws, teacher.weight.shape[1]), draws.choose(1e-4, 1e-3, 1e-2, 0.1, 0.3)
    inside = _pre_activations(teacher, x)[:, 0].abs() < gap
    left = inside & (inside.cumsum(0) <= draws.choose(0, 0, 1, 3, 30))
    student = _copy(draws, teacher, draws.choose(1, 2), 0.0)
    m, aside = len(teacher.weight), draws.choose(0.1, 0.5, 0.99) * gap
    student.weight[m] = teacher.weight[0]
    student.bias[0], student.bias[m] = teacher.bias[0] - aside, teacher.bias[0] + aside
    student.fan_out[:, m] = student.fan_out[:, 0] = teacher.fan_out[:, 0] / 2
    return teacher, student, x[~inside | left]


def _fitted(draws: _Draws) -> Parts:
    """Random nodes, or the teacher's nodes moved far, with the output layer fitted to the data."""
    teacher = _teacher(draws)
    dim, x = teacher.weight.shape[1], _inputs(draws, teacher.weight.shape[1], draws.choose(30, 300, 3_000, 20_000))
    student = _copy(draws, teacher, draws.choose(2, 6, 14), draws.choose(0.01, 0.03, 0.1, 0.3))
    if draws.choose(False, True):
        weight = _unit(draws.normal(len(student.weight), dim))
        student = student.with_lowest(weight, 0.5 * draws.normal(len(weight)), draws.normal(*student.fan_out.shape))
    return teacher, _refit(student, teacher, x), x


def _trained(draws: _Draws) -> Parts:
    """A few steps of gradient descent on the data, from near the teacher or from random weights."""
    teacher, start, x = draws.choose(_same, _random, _missing)(draws)
    some, steps, rate = x[:2_000].unsqueeze(0), draws.choose(3, 10, 30), draws.choose(0.03, 0.1)
    *_, end = descent(teacher.population(0), start.population(0), [some] * steps, rate)
    finite = all(bool(part.isfinite().all()) for layer in end.layers for part in layer if part is not None)
    return teacher, _from_population(end) if finite else start, x


def _scaled(draws: _Draws) -> Parts:
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
    # Scaling weights and fan-outs of nodes in opposite ways does not change the function.
    weight, bias, fan_out = student.weight * length.unsqueeze(1), student.bias * length, student.fan_out / length
    return teacher, student.with_lowest(weight, bias, fan_out), x


def _ties(draws: _Draws) -> Parts:
    """Data on a grid: many samples coincide, and some boundaries pass through grid points."""
    teacher, student, x = _same(draws)
    decimals = draws.choose(0, 1, 2)
    if draws.choose(False, True):
        teacher = teacher.with_lowest(teacher.weight, torch.zeros_like(teacher.bias), teacher.fan_out)
        student = _copy(draws, teacher, draws.choose(0, 1, 2), draws.choose(*DISTANCES))
    return teacher, student, x.round(decimals=decimals)


def _deep(draws: _Draws) -> Parts:
    """Three layers, and enough samples for the boundaries of all layers."""
    teacher = _teacher(draws, dims=(1, 1, 2), nodes=(1, 2), deep=(True,))
    x = _inputs(draws, teacher.weight.shape[1], {1: 20_000, 2: 100_000}[teacher.weight.shape[1]])
    return teacher, _copy(draws, teacher, draws.choose(0, 1), draws.choose(*DISTANCES)), x


def _few(draws: _Draws) -> Parts:
    """The first samples, at most as many as a certificate could need."""
    teacher = _teacher(draws)
    x = _inputs(draws, teacher.weight.shape[1], 1 + int(300 * draws.unit() ** 2))
    return teacher, _copy(draws, teacher, draws.choose(0, 1, 2), draws.choose(*DISTANCES)), x


def _certified(draws: _Draws) -> Parts:
    """Networks that are small enough, and samples that are numerous enough, for a certificate in most cases."""
    teacher = _teacher(draws, dims=(1, 2, 2, 3), nodes=(1, 2))
    dim = teacher.weight.shape[1]
    x = _inputs(draws, dim, {1: 2_000, 2: 40_000, 3: 100_000}[dim])
    return teacher, _copy(draws, teacher, draws.choose(0, 1), draws.choose(0.0, 1e-10, 1e-6)), x


def _at_distance(draws: _Draws, times: float) -> Parts:
    """Students of a certified node, moved to a multiple of the guaranteed distance."""
    teacher, student, x = _certified(draws)
    pair, aware = PairGeometry(teacher.population(0), student.population(0), x), draws.choose(False, True)
    refit, turned = draws.choose(False, True), draws.choose(False, True)
    deep = len(teacher.upper) > 1
    for j in range(len(teacher.weight)):
        held: list[BandTrial] = []
        with suppress(TooManyBoundaries):
            tried = trials(pair, j, aware and not deep, induced_planes if deep else None)
            held.extend(trial for trial in tried if trial.holds)
        if held:
            trial = min(held, key=lambda t: t.eps)
            student = _move_students(draws, student, pair, j, trial, times, turned)
            return teacher, _refit(student, teacher, x) if refit else student, x
    return teacher, student, x


def _move_students(
    draws: _Draws, student: _Net, pair: PairGeometry, j: int, trial: BandTrial, times: float, turned: bool
) -> _Net:
    """Turn or shift all students within the guarantee to a multiple of its distance."""
    near, one = pair.student_distances(j), pair.teacher_plane(j)
    weight, bias = student.weight.clone(), student.bias.clone()
    for k in pair.student_nodes[(near.sin <= trial.sin) & (near.gap <= trial.gap)].tolist():
        length = float(torch.linalg.vector_norm(student.weight[k]))
        normal_, offset = one.normal[0], float(one.offset[0])
        across = draws.normal(len(normal_))
        across = across - (across @ normal_) * normal_
        if turned and times * trial.sin < 1 and len(normal_) > 1:
            angle = math.asin(times * trial.sin)
            across = across / torch.linalg.vector_norm(across)
            # Turn about the point of the boundary that is nearest to the origin, where the data lies.
            weight[k] = length * (math.cos(angle) * normal_ + math.sin(angle) * across)
            bias[k] = length * math.cos(angle) * offset
        else:
            weight[k] = length * normal_
            bias[k] = length * (offset + draws.choose(-1.0, 1.0) * times * trial.gap)
    return student.with_lowest(weight, bias, student.fan_out)


_MAKERS: dict[str, Callable[[_Draws], Parts]] = {
    make.__name__.removeprefix("_"): make
    for make in (
        *(_same, _split, _opposite, _duplicate, _random, _missing, _hidden, _fitted),
        *(_trained, _scaled, _ties, _few, _deep),
    )
} | {
    "inside": lambda draws: _at_distance(draws, 10 ** (-4 * draws.unit())),
    "outside": lambda draws: _at_distance(draws, BEYOND),
}
KINDS = tuple(_MAKERS)
"""Kinds of triples, in the order in which they alternate."""
