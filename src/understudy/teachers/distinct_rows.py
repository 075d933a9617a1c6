"""Random teachers (Tian 2020, sec. 3 and app. F).

A network depends only on its own seed and is built in float64, then converted: it is bit for bit the same alone or
among others. With the same seed and input size, a teacher of fewer nodes has the first nodes of a larger one.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cache

import torch
from jaxtyping import Float, Int
from torch import Tensor

from understudy._errors import UserError
from understudy._random import Stream, integers, normal, uniform, words
from understudy.nets import Layer, Population, Shape

_TRIES = 100
_SAME_LINE = 1e-12
_BIASES = 1 << 31
"""Random step at which a layer's biases are drawn; its rows are drawn at steps counted from 0."""


def distinct_rows(
    sizes: Sequence[int],
    *,
    seeds: int | Iterable[int],
    polarity: float | Sequence[float] = 0.0,
    choices: Sequence[float] = (-0.5, -0.25, 0.0, 0.25, 0.5),
    bias: float = -0.1,
    slope: float = 0.0,
    output_bias: float | None = None,
    dtype: torch.dtype = torch.float32,
    image: tuple[int, int] | None = None,
    unit: bool = True,
    bias_spread: float | None = None,
) -> Population:
    """Teachers whose hidden weight vectors have entries from a few values, no two collinear (Tian 2020, app. F).

    The paper asks for distinct rows, Assumption 1 (2) for weights that are not collinear; under Definition 3, which is
    in terms of sin θ, opposite directions with the same bias are aligned. So a row is redrawn if it is zero, or
    collinear with an earlier one in either direction. Output weights have entries from the same values; a node whose
    fan-out is all zero is redrawn.

    With an `image`, teachers are convolutional: a filter is a row of nine weights per channel, and the rows of the
    output layer, over all channels and positions, are drawn like filters. The teachers of Tian et al. 2019, sec. 5.1
    have `unit=False` and `bias_spread`.

    Args:
        sizes: (inputs, hidden nodes, …, outputs); channels for images.
        seeds: One seed per network, or a single one.
        polarity: p: the fan-out of node j = 1, 2, … is divided by j^p. One number, or one per seed.
        choices: Values from which entries are drawn.
        bias: Bias of every node.
        slope: Slope of the activation below zero.
        output_bias: Bias of the outputs. Default: as `bias`.
        dtype: Precision of the result.
        image: Height and width of the inputs of convolutional teachers.
        unit: Whether hidden rows are scaled to length 1.
        bias_spread: a: draw all biases from U[−a, a] instead, except an `output_bias` that is given.

    Returns:
        One teacher per seed.

    Raises:
        UserError: An option out of range, or more nodes than there are distinct directions.
    """
    values = torch.tensor([float(c) for c in choices], dtype=torch.float64)
    if not values.isfinite().all() or not values.any():
        raise UserError(f"choices must be finite numbers, at least one of them not 0; got {tuple(choices)}")
    if bias_spread is not None and not (math.isfinite(bias_spread) and bias_spread >= 0):
        raise UserError(f"bias_spread must be a finite number of at least 0, got {bias_spread}")

    shape = Shape(_validate_sizes(sizes), slope, image=image)

    def hidden(seed: int, layer: int, rows: int, width: int) -> Tensor:
        found = _draw_distinct(seed, layer, rows, width, values)
        return _unit(found) if unit else found

    def fan_outs(seed: int, nodes: int, outputs: int) -> Tensor:
        if image is None:
            return _fan_outs(seed, nodes, outputs, values)
        return _draw_distinct(seed, len(shape.weights) - 1, outputs, nodes, values, "the output layer").T

    return _assemble(shape, seeds, polarity, hidden, fan_outs, (bias, output_bias), dtype, bias_spread)


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
    """Teachers with weights and fan-outs of length 1 in uniformly random directions (Tian 2020, Definition 1).

    Args:
        sizes: (inputs, hidden nodes, …, outputs).
        seeds: One seed per network, or a single one.
        polarity: p: the fan-out of node j = 1, 2, … is divided by j^p. One number, or one per seed.
        bias: Bias of every node.
        slope: Slope of the activation below zero.
        output_bias: Bias of the outputs. Default: as `bias`.
        dtype: Precision of the result.

    Returns:
        One teacher per seed.

    Raises:
        UserError: An option out of range.
    """
    return _assemble(
        Shape(_validate_sizes(sizes), slope),
        seeds,
        polarity,
        lambda seed, layer, rows, width: _unit(normal(seed, Stream.TEACHER, layer, rows * width).view(rows, width)),
        lambda seed, nodes, out: _unit(normal(seed, Stream.TEACHER_OUTPUT, 0, nodes * out).view(nodes, out)),
        (bias, output_bias),
        dtype,
    )


def crossing(
    seeds: int | Iterable[int], *, outputs: int, angle: float, bias: float = -0.1, dtype: torch.dtype = torch.float32
) -> Population:
    """Two-node teachers with two inputs, whose boundaries cross at a given angle.

    For figures of moving boundaries, for which the papers do not specify a teacher. The weight of node 0 has a random
    direction, that of node 1 is rotated from it; fan-outs are those of `distinct_rows`. Both boundaries w·x + b = 0
    have distance |b| from the origin, in the direction of the weights if b < 0.

    Args:
        seeds: One seed per network, or a single one.
        outputs: Number of outputs.
        angle: Angle between the two weights, in degrees.
        bias: Bias of both nodes.
        dtype: Precision of the result.

    Returns:
        One teacher per seed, with ReLU.
    """
    names = [seeds] if isinstance(seeds, int) else list(seeds)
    first = regular((2, 2, outputs), seeds=names, bias=bias, dtype=torch.float64).layers[0]
    top = distinct_rows((2, 2, outputs), seeds=names, dtype=torch.float64).layers[1]
    turn = math.radians(angle)
    rotation = torch.tensor([[math.cos(turn), math.sin(turn)], [-math.sin(turn), math.cos(turn)]], dtype=torch.float64)
    weight = torch.stack((first.weight[:, 0], first.weight[:, 0] @ rotation), dim=1)
    return Population((Layer(weight, first.bias), top), torch.tensor(names), 0.0).to(dtype=dtype)


def _assemble(
    shape: Shape,
    seeds: int | Iterable[int],
    polarity: float | Sequence[float],
    hidden: Callable[[int, int, int, int], Tensor],
    fan_outs: Callable[[int, int, int], Tensor],
    biases: tuple[float, float | None],
    dtype: torch.dtype,
    bias_spread: float | None = None,
) -> Population:
    """Build networks from hidden(seed, layer, rows, width) and fan_outs(seed, nodes, outputs), divided by j^p.

    In a convolutional network, fan-outs are those of a channel at a position, and j is the channel.
    """
    names = [int(seeds)] if isinstance(seeds, int) else [int(s) for s in seeds]
    if not names:
        raise UserError("seeds is empty: give at least one whole number")
    powers = _polarities(polarity, len(names))
    bias, output_bias = biases[0], biases[0] if biases[1] is None else biases[1]
    if not all(math.isfinite(v) for v in (bias, output_bias, shape.slope)):
        raise UserError(f"bias, output_bias and slope must be finite, got {bias}, {output_bias} and {shape.slope}")
    *below, (outputs, features) = shape.weights
    place = torch.arange(1, shape.sizes[-2] + 1, dtype=torch.float64)
    place = place.repeat_interleave(features // shape.sizes[-2]).unsqueeze(1)
    hidden, fan_outs = cache(hidden), cache(fan_outs)  # a seed may occur with several polarities
    weights = [
        torch.stack([hidden(seed, i, rows, math.prod(width)) for seed in names]).unflatten(2, width)
        for i, (rows, *width) in enumerate(below)
    ]
    top = [fan_outs(seed, features, outputs) / place**p for seed, p in zip(names, powers, strict=True)]
    weights.append(torch.stack([fan.T for fan in top]))

    def layer_bias(seed: int, layer: int, nodes: int) -> Tensor:
        last = layer == len(below)
        if bias_spread is None or (last and biases[1] is not None):
            return torch.full((nodes,), output_bias if last else bias, dtype=torch.float64)
        return bias_spread * (2.0 * uniform(seed, Stream.TEACHER, (layer << 32) + _BIASES, nodes) - 1.0)

    layers = [
        Layer(w.to(dtype).contiguous(), torch.stack([layer_bias(seed, i, w.shape[1]) for seed in names]).to(dtype))
        for i, w in enumerate(weights)
    ]
    return Population(tuple(layers), torch.tensor(names, dtype=torch.int64), float(shape.slope), image=shape.image)


def _validate_sizes(sizes: Sequence[int]) -> tuple[int, ...]:
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


def _draw(
    seed: int, stream: Stream, steps: Int[Tensor, "row"], width: int, values: Float[Tensor, "choice"]
) -> Float[Tensor, "row width"]:
    return values[integers(words(seed, stream, steps, width), len(values))]


def _draw_distinct(
    seed: int, layer: int, rows: int, width: int, values: Float[Tensor, "choice"], which: str = ""
) -> Float[Tensor, "rows width"]:
    """First rows of an endless sequence of draws that are neither zero nor collinear with an earlier one."""
    kept = values.new_empty(0, width)
    for start in range(0, _TRIES * rows, rows):
        steps = (layer << 32) + torch.arange(start, start + rows)
        candidates = torch.cat((kept, _draw(seed, Stream.TEACHER, steps, width, values)))
        kept = _remove_collinear(candidates)[:rows]
        if len(kept) == rows:
            return kept
    raise UserError(
        f"{which or f'hidden layer {layer + 1}'} needs {rows} nodes of {width} weights from {values.tolist()}, no two "
        f"collinear, but {_TRIES * rows:,} draws gave {len(kept)}: choose fewer nodes, or more inputs or choices"
    )


def _remove_collinear(rows: Float[Tensor, "row width"]) -> Float[Tensor, "kept width"]:
    rows = rows[rows.any(dim=1)]
    unit = _unit(rows)
    repeats = ((unit @ unit.T).abs() > 1.0 - _SAME_LINE).tril(-1).any(dim=1)
    return rows[~repeats]


def _fan_outs(seed: int, nodes: int, outputs: int, values: Float[Tensor, "choice"]) -> Float[Tensor, "nodes outputs"]:
    """Output weights of each node; a node whose weights are all zero is drawn again."""
    place = torch.arange(nodes)
    fan = _draw(seed, Stream.TEACHER_OUTPUT, place, outputs, values)
    for again in range(1, _TRIES):
        empty = ~fan.any(dim=1)
        if not empty.any():
            return fan
        fan[empty] = _draw(seed, Stream.TEACHER_OUTPUT, (again << 32) + place[empty], outputs, values)
    raise UserError(
        f"{_TRIES} draws of {outputs} output weights from {values.tolist()} were all zero: give fewer zeros"
    )


def _unit(rows: Float[Tensor, "row width"]) -> Float[Tensor, "row width"]:
    lengths: Tensor = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return rows / lengths
