"""How the papers build teachers (S0 sec 3 and app F), and which of S0's assumptions a teacher meets on given inputs.

A network is built from its own seed alone, in float64, and cast at the end: it is the same network, bit for bit,
whether built alone or among others. With the same seed and input size, a teacher of fewer nodes is the beginning of
one of more. `crossing` is ours: two nodes in the plane, for the figures of moving boundaries.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor

from understudy._assumptions import Assumptions as Assumptions
from understudy._assumptions import LayerAssumptions as LayerAssumptions
from understudy._assumptions import assumptions as assumptions
from understudy._assumptions import double, indices, listed, one_by_one
from understudy._assumptions import strengths as strengths
from understudy._errors import UserError
from understudy._random import Stream, integers, normal, words
from understudy.nets import Layer, Population, activate, stack

_TRIES = 100
_SAME_LINE = 1e-12


def separated(
    sizes: Sequence[int],
    *,
    seeds: int | Iterable[int],
    polarity: float | Sequence[float] = 0.0,
    choices: Sequence[float] = (-0.5, -0.25, 0.0, 0.25, 0.5),
    bias: float = -0.1,
    slope: float = 0.0,
    output_bias: float | None = None,
    dtype: torch.dtype = torch.float32,
) -> Population:
    """Teachers whose hidden weight vectors are made of a few values, no two on one line, scaled to length 1 (S0 app F).

    The paper asks for distinct rows; Assumption 1 (2) for weights that are not co-linear, and under Definition 3, which
    looks at sin θ, opposite directions with one bias are aligned. So a row is redrawn when it is zero or on the line of
    an earlier one, in either direction. Output weights are made of the same values (a node whose whole fan-out is zero
    is redrawn); the fan-out of node j = 1, 2, … is then divided by j^p, p the polarity: one number, or one per seed.
    """
    values = torch.tensor([float(c) for c in choices], dtype=torch.float64)
    if not values.isfinite().all() or not values.any():
        raise UserError(f"choices must be finite numbers, at least one of them not 0; got {tuple(choices)}")
    return _assembled(
        _checked_sizes(sizes),
        seeds,
        polarity,
        lambda seed, layer, rows, width: _distinct_rows(seed, layer, rows, width, values),
        lambda seed, nodes, outputs: _fan_outs(seed, nodes, outputs, values),
        (bias, bias if output_bias is None else output_bias),
        slope,
        dtype,
    )


def regular(
    sizes: Sequence[int],
    *,
    seeds: int | Iterable[int],
    polarity: float | Sequence[float] = 0.0,
    bias: float = -0.1,
    slope: float = 0.0,
    output_bias: float | None = None,
    dtype: torch.dtype = torch.float32,
) -> Population:
    """Teachers with weights of length 1 (S0 Definition 1) in Gaussian directions.

    Each node's fan-out is a Gaussian direction of length 1, divided by j^p as in `separated`.
    """
    return _assembled(
        _checked_sizes(sizes),
        seeds,
        polarity,
        lambda seed, layer, rows, width: _unit(normal(seed, Stream.TEACHER, layer, rows * width).view(rows, width)),
        lambda seed, nodes, out: _unit(normal(seed, Stream.TEACHER_OUTPUT, 0, nodes * out).view(nodes, out)),
        (bias, bias if output_bias is None else output_bias),
        slope,
        dtype,
    )


def crossing(
    seeds: int | Iterable[int], *, outputs: int, angle: float, bias: float = -0.1, dtype: torch.dtype = torch.float32
) -> Population:
    """Teachers of two nodes in the plane, whose weights stand at an angle, in degrees, so that their boundaries cross.

    The papers give no teacher for their two-dimensional figures. Node 0 points in a random direction, node 1 is turned
    from it by the angle; fan-outs as in `separated`. Both boundaries w·x + b = 0 lie |b| from the origin, on the sides
    that the weights point to when b < 0.
    """
    names = [seeds] if isinstance(seeds, int) else list(seeds)
    first = regular((2, 2, outputs), seeds=names, bias=bias, dtype=torch.float64).layers[0]
    top = separated((2, 2, outputs), seeds=names, dtype=torch.float64).layers[1]
    turn = math.radians(angle)
    rotation = torch.tensor([[math.cos(turn), math.sin(turn)], [-math.sin(turn), math.cos(turn)]], dtype=torch.float64)
    weight = torch.stack((first.weight[:, 0], first.weight[:, 0] @ rotation), dim=1)
    return Population((Layer(weight, first.bias), top), torch.tensor(names), 0.0).to(dtype=dtype)


def half_active(teacher: Population, x: Float[Tensor, "sample in"] | Float[Tensor, "net sample in"]) -> Population:
    """Hidden biases moved, from the lowest layer up, so that each node is active on half of x (S0 app F).

    A bias becomes minus the median of what comes into its node: the middle of the two middle values.
    """
    return stack([_half_active(network, inputs) for network, inputs in one_by_one(teacher, x)])


def standardised(teacher: Population, x: Float[Tensor, "sample in"] | Float[Tensor, "net sample in"]) -> Population:
    """The output layer scaled and shifted so that each output has mean 0 and standard deviation 1 on x."""
    return stack([_standardised(network, inputs) for network, inputs in one_by_one(teacher, x)])


def _half_active(network: Population, x: Float[Tensor, "sample in"]) -> Population:
    h, layers = x, []
    for layer in network.layers[:-1]:
        incoming = h @ layer.weight[0].double().T
        ordered = incoming.sort(dim=0).values
        middle = (ordered[(len(x) - 1) // 2] + ordered[len(x) // 2]) / 2
        bias = -middle.to(network.dtype)
        layers.append(Layer(layer.weight, bias.unsqueeze(0)))
        h = activate(incoming + bias.double(), network.slope)
    top = network.layers[-1]
    layers.append(Layer(top.weight, top.weight.new_zeros(top.weight.shape[:2]) if top.bias is None else top.bias))
    return Population(tuple(layers), network.seeds, network.slope)


def _standardised(network: Population, x: Float[Tensor, "sample in"]) -> Population:
    outputs = network.to(dtype=torch.float64)(x)[0]
    mean, std = outputs.mean(0), outputs.std(0, correction=0)
    if constant := indices(std <= 1e-12 * outputs.abs().amax(0)):
        raise UserError(
            f"outputs {listed(constant)} of the teacher of seed {int(network.seeds[0])} are constant on these "
            f"{len(x)} samples and cannot be scaled to standard deviation 1: use more samples or another teacher"
        )
    weight, bias = double(network.layers[-1])
    top = Layer(*(t.to(network.dtype).unsqueeze(0) for t in (weight / std.unsqueeze(1), (bias - mean) / std)))
    return Population((*network.layers[:-1], top), network.seeds, network.slope)


def _assembled(
    sizes: tuple[int, ...],
    seeds: int | Iterable[int],
    polarity: float | Sequence[float],
    hidden: Callable[[int, int, int, int], Tensor],
    fan_outs: Callable[[int, int, int], Tensor],
    biases: tuple[float, float],
    slope: float,
    dtype: torch.dtype,
) -> Population:
    """Networks of hidden(seed, layer, rows, width) and fan_outs(seed, nodes, outputs) divided by j^p."""
    names = [int(seeds)] if isinstance(seeds, int) else [int(s) for s in seeds]
    if not names:
        raise UserError("seeds is empty: give at least one whole number")
    powers = _polarities(polarity, len(names))
    if not all(math.isfinite(v) for v in (*biases, slope)):
        raise UserError(f"bias, output_bias and slope must be finite, got {biases[0]}, {biases[1]} and {slope}")
    *_, nodes, outputs = sizes
    place = torch.arange(1, nodes + 1, dtype=torch.float64).unsqueeze(1)
    hidden, fan_outs = cache(hidden), cache(fan_outs)  # a seed may come once a polarity
    weights = [
        torch.stack([hidden(seed, i, rows, width) for seed in names])
        for i, (width, rows) in enumerate(pairwise(sizes[:-1]))
    ]
    top = [fan_outs(seed, nodes, outputs) / place**p for seed, p in zip(names, powers, strict=True)]
    weights.append(torch.stack([fan.T for fan in top]))
    layers = [
        Layer(w.to(dtype).contiguous(), torch.full(w.shape[:2], biases[w is weights[-1]], dtype=dtype)) for w in weights
    ]
    return Population(tuple(layers), torch.tensor(names, dtype=torch.int64), float(slope))


def _checked_sizes(sizes: Sequence[int]) -> tuple[int, ...]:
    given = tuple(sizes)
    if len(given) < 3 or any(not isinstance(n, int) or n < 1 for n in given):
        raise UserError(f"sizes must be (inputs, hidden nodes, …, outputs), whole numbers of at least 1; got {given}")
    return given


def _polarities(polarity: float | Sequence[float], networks: int) -> list[float]:
    powers = [float(polarity)] * networks if isinstance(polarity, int | float) else [float(p) for p in polarity]
    if len(powers) != networks:
        raise UserError(f"polarity must be one number or one per seed ({networks} seeds), got {len(powers)} numbers")
    if not all(math.isfinite(p) for p in powers):
        raise UserError(f"polarity must be finite, got {polarity}")
    return powers


def _drawn(
    seed: int, stream: Stream, steps: Int[Tensor, "row"], width: int, values: Float[Tensor, "choice"]
) -> Float[Tensor, "row width"]:
    return values[integers(words(seed, stream, steps, width), len(values))]


def _distinct_rows(
    seed: int, layer: int, rows: int, width: int, values: Float[Tensor, "choice"]
) -> Float[Tensor, "rows width"]:
    """The first rows of an endless sequence of draws that are neither zero nor on the line of an earlier one."""
    kept = values.new_empty(0, width)
    for start in range(0, _TRIES * rows, rows):
        steps = (layer << 32) + torch.arange(start, start + rows)
        candidates = torch.cat((kept, _drawn(seed, Stream.TEACHER, steps, width, values)))
        kept = _no_two_on_a_line(candidates)[:rows]
        if len(kept) == rows:
            return _unit(kept)
    raise UserError(
        f"hidden layer {layer + 1} asks for {rows} nodes of {width} weights from {values.tolist()}, no two on a line, "
        f"but {_TRIES * rows} draws gave {len(kept)}: ask for fewer nodes, or give more inputs or more choices"
    )


def _no_two_on_a_line(rows: Float[Tensor, "row width"]) -> Float[Tensor, "kept width"]:
    rows = rows[rows.any(dim=1)]
    unit = _unit(rows)
    repeats = ((unit @ unit.T).abs() > 1.0 - _SAME_LINE).tril(-1).any(dim=1)
    return rows[~repeats]


def _fan_outs(seed: int, nodes: int, outputs: int, values: Float[Tensor, "choice"]) -> Float[Tensor, "nodes outputs"]:
    """Each node's output weights; one that is all zero is drawn again."""
    place = torch.arange(nodes)
    fan = _drawn(seed, Stream.TEACHER_OUTPUT, place, outputs, values)
    for again in range(1, _TRIES):
        empty = ~fan.any(dim=1)
        if not empty.any():
            return fan
        fan[empty] = _drawn(seed, Stream.TEACHER_OUTPUT, (again << 32) + place[empty], outputs, values)
    raise UserError(
        f"{_TRIES} draws of {outputs} output weights from {values.tolist()} were all zero: give fewer zeros"
    )


def _unit(rows: Float[Tensor, "row width"]) -> Float[Tensor, "row width"]:
    lengths: Tensor = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return rows / lengths
