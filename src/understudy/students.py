"""Initialisation of students: sizes from their teacher, weights from their own seeds.

A student depends only on its seed and is built in float64, then takes its teacher's dtype and device. With the same
seed, the first layer of a wider student begins with that of a narrower one. Students of a convolutional teacher have
more channels; BatchNorm starts with mean 0, variance 1, scale 1 and shift 0.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from understudy._errors import UserError
from understudy._random import Stream, normal, uniform
from understudy.nets import Layer, Population, Shape, fresh_norm, outgoing_weights
from understudy.nets.given_networks import Network, as_population

_BALANCED, _MOST_ROUNDS = 2.5e-7, 1_000
"""Logarithm of the largest factor after which lengths count as equal, and the most rounds over all layers."""

BatchNorm = Literal["same", "before", "after"] | None
"""Position of a student's BatchNorm: as in its teacher, before or after the activation, or none."""

_Draw = Callable[[int, int, int, int], Tensor]
"""Weights or biases of a layer from (seed, layer, nodes, fan-in)."""


def hidden_sizes(teacher_sizes: Sequence[int], multiple: float) -> tuple[int, ...]:
    """Hidden sizes of students `multiple` times as wide as a teacher of sizes (d, m_1, …, C): over-realization.

    Args:
        teacher_sizes: Sizes of the teacher.
        multiple: Over-realization.

    Raises:
        UserError: A size would not be a whole number of at least 1.
    """
    wanted = [multiple * m for m in teacher_sizes[1:-1]]
    whole = [round(n) if math.isfinite(n) else 0 for n in wanted]
    if any(n < 1 or abs(n - w) > 1e-9 * n for n, w in zip(whole, wanted, strict=True)):
        raise UserError(
            f"multiple {multiple:g} of the hidden sizes of a teacher {'-'.join(map(str, teacher_sizes))} gives "
            f"{', '.join(f'{w:g}' for w in wanted)} nodes: choose a multiple that gives whole numbers of at least 1"
        )
    return tuple(whole)


def gaussian(
    teacher: Network,
    *,
    multiple: float = 1,
    scale: float = 0.005,
    seeds: Iterable[int] | None = None,
    bias: float = 0.0,
    slope: float | None = None,
    norm: BatchNorm = "same",
    affine: bool | None = None,
) -> Population:
    """Students with weights from N(0, scale²) and equal biases (two-layer students of Tian 2020 and Tian 2019).

    Args:
        teacher: The teachers, one per student; or a single one for any number of students. A module of PyTorch is
            converted by `us.from_module`, and a file is read by `us.load`.
        multiple: Width of the hidden layers relative to the teacher.
        scale: Standard deviation of the weights.
        seeds: One seed per student, as many as there are teachers, or any number for a single teacher. Default: the
            teachers' own.
        bias: Value of every bias.
        slope: Slope of the activation below zero. Default: the teachers' own.
        norm: Position of BatchNorm; "same" as in the teachers.
        affine: Whether BatchNorm has a scale and a shift. Default: as in the teachers.

    Returns:
        One student per seed, with biases where the teacher has them.

    Raises:
        UserError: An option out of range, or a teacher that cannot be converted.
    """
    teacher = as_population("teacher", teacher)
    _require_nonnegative(scale=scale)

    return _assemble(
        teacher,
        _shape(teacher, multiple, slope, norm, affine),
        seeds,
        lambda seed, layer, out, into: scale * normal(seed, Stream.STUDENT, layer << 32, out * into).view(out, into),
        lambda seed, layer, out, into: torch.full((out,), float(bias), dtype=torch.float64),
    )


def like_linear(
    teacher: Network,
    *,
    multiple: float = 1,
    seeds: Iterable[int] | None = None,
    slope: float | None = None,
    norm: BatchNorm = "same",
    affine: bool | None = None,
) -> Population:
    """Students with weights and biases from U(±1/√fan-in), the default of torch's Linear and Conv2d.

    Used for the deep students of Tian 2020, Tian 2019 and Tian et al. 2019. The fan-in of a convolution is its number
    of input channels times the size of its kernel.

    Args:
        teacher: The teachers, one per student; or a single one for any number of students. A module of PyTorch is
            converted by `us.from_module`, and a file is read by `us.load`.
        multiple: Width of the hidden layers relative to the teacher.
        seeds: One seed per student, as in `gaussian`. Default: the teachers' own.
        slope: Slope of the activation below zero. Default: the teachers' own.
        norm: Position of BatchNorm; "same" as in the teachers.
        affine: Whether BatchNorm has a scale and a shift. Default: as in the teachers.

    Returns:
        One student per seed, with biases where the teacher has them.

    Raises:
        UserError: An option out of range.
    """
    teacher = as_population("teacher", teacher)

    def spread(seed: int, step: int, count: int, into: int) -> Float[Tensor, "count"]:
        return (2.0 * uniform(seed, Stream.STUDENT, step, count) - 1.0) / math.sqrt(into)

    return _assemble(
        teacher,
        _shape(teacher, multiple, slope, norm, affine),
        seeds,
        lambda seed, layer, out, into: spread(seed, layer << 32, out * into, into).view(out, into),
        lambda seed, layer, out, into: spread(seed, (layer << 32) + 1, out, into),
    )


def near(
    teacher: Network, *, multiple: float = 1, weights: float, fan_out: float, seeds: Iterable[int] | None = None
) -> Population:
    """Two-layer students whose first nodes start near the teacher's nodes (Tian et al. 2019, sec. 4.2, fig. 7).

    The first m of n nodes have [w, b] = p_W [w*, b*] + noise and fan-out p_V v* + noise, the others noise alone. The
    noise, and then the student, is normalised: [w, b] of each node and the weights into each output have length 1.
    Output biases, if the teacher has them, start at 0.

    Args:
        teacher: Fully connected two-layer teachers without BatchNorm, one per student or one for all, as in `gaussian`.
        multiple: Width of the hidden layer relative to the teacher.
        weights: p_W; 0 is pure noise, 10 is very near.
        fan_out: p_V, likewise.
        seeds: One seed per student, as in `gaussian`. Default: the teachers' own.

    Returns:
        One student per seed.

    Raises:
        UserError: Another kind of teacher, or a nearness below 0.
    """
    teacher = as_population("teacher", teacher)
    if len(teacher.layers) != 2 or teacher.image is not None or teacher.norms:
        raise UserError("near needs teachers of two fully connected layers without BatchNorm")
    _require_nonnegative(weights=weights, fan_out=fan_out)
    noise = gaussian(teacher, multiple=multiple, scale=1.0, seeds=seeds)
    ((w, b), (v, c)), ((their_w, their_b), (their_v, _)) = noise.layers, teacher.layers
    m = teacher.sizes[1]
    if b is not None and their_b is not None:
        # A bias is drawn as one more weight, since `gaussian` leaves biases at 0.
        extra = [normal(int(seed), Stream.STUDENT, (1 << 32) - 1, w.shape[1]) for seed in noise.seeds]
        w = torch.cat((w, torch.stack(extra).to(w).unsqueeze(2)), dim=2)
        their_w = torch.cat((their_w, their_b.unsqueeze(2)), dim=2)
    w, v = (each / each.norm(dim=2, keepdim=True) for each in (w, v))
    w[:, :m] += weights * their_w
    v[:, :, :m] += fan_out * their_v
    w, v = (each / each.norm(dim=2, keepdim=True) for each in (w, v))
    hidden = Layer(w, None) if b is None else Layer(w[:, :, :-1], w[:, :, -1])
    return replace(noise, layers=(hidden, Layer(v, c)))


def balanced(students: Population) -> Population:
    """Rescale every hidden node so that its incoming and outgoing weights have one length; the function is the same.

    ‖[w_k, b_k]‖ = ‖v_k‖. Gradient flow conserves ‖[w_k, b_k]‖² − ‖v_k‖² for activations with f(cx) = c f(x) for c > 0
    (Du, Hu & Lee 2018), so that students that start balanced stay so, and SGD with small steps nearly (Phuong 2021,
    ch. 3 assumes it). Nodes whose incoming or outgoing weights are all zero remain as they are.

    Args:
        students: Networks without BatchNorm.

    Returns:
        The balanced networks. With several hidden layers, whose scales depend on each other, lengths agree to 10⁻⁶.

    Raises:
        UserError: Networks with BatchNorm, which does not depend on the scale of the weights below it.
    """
    if students.norms:
        raise UserError("balanced needs networks without BatchNorm, behind which the scale of weights has no effect")
    layers = [Layer(weight.double(), None if bias is None else bias.double()) for weight, bias in students.layers]
    for _ in range(_MOST_ROUNDS):
        farthest = 0.0
        for i in range(len(layers) - 1):
            (weight, bias), (above, shift) = layers[i : i + 2]
            square = weight.flatten(2).square().sum(2) + (0.0 if bias is None else bias.square())
            away = outgoing_weights(replace(students, layers=tuple(layers)), i).flatten(3).square().sum((1, 3))
            by = torch.where((square > 0) & (away > 0), (away / square) ** 0.25, 1.0)
            farthest = max(farthest, float((by.log().abs()).max()))
            scaled = weight * by.view(*by.shape, *[1] * (weight.ndim - 2))
            layers[i] = Layer(scaled, None if bias is None else bias * by)
            by = by.repeat_interleave(above.shape[2] // by.shape[1], 1)  # a flattened channel has several positions
            layers[i + 1] = Layer(above / by.view(len(by), 1, -1, *[1] * (above.ndim - 3)), shift)
        if farthest < _BALANCED:
            break
    like = students.layers[0].weight
    each = (Layer(weight.to(like), None if bias is None else bias.to(like)) for weight, bias in layers)
    return replace(students, layers=tuple(each))


def _require_nonnegative(**fields: float) -> None:
    for field, value in fields.items():
        if not (math.isfinite(value) and value >= 0):
            raise UserError(f"{field} must be a finite number of at least 0, got {value}")


def _shape(teacher: Population, multiple: float, slope: float | None, norm: BatchNorm, affine: bool | None) -> Shape:
    """Shape of the teacher with the requested changes."""
    theirs, where = teacher.shape, ("same", "before", "after", None)
    if norm not in where:
        raise UserError(f"norm must be one of {', '.join(map(str, where))}, got {norm}")
    return replace(
        theirs,
        sizes=(theirs.sizes[0], *hidden_sizes(theirs.sizes, multiple), theirs.sizes[-1]),
        slope=theirs.slope if slope is None else float(slope),
        norm=theirs.norm if norm == "same" else norm,
        affine=theirs.affine if affine is None else affine,
    )


def _assemble(
    teacher: Population, shape: Shape, seeds: Iterable[int] | None, weights: _Draw, biases: _Draw
) -> Population:
    if seeds is not None and not isinstance(seeds, Iterable):
        raise UserError(f"seeds must be several whole numbers, such as range({seeds}), got {seeds}")
    names = [int(s) for s in (teacher.seeds if seeds is None else seeds)]
    if not names or len(teacher) not in (1, len(names)):
        expected = "one or more" if len(teacher) == 1 else f"one per teacher ({len(teacher)})"
        raise UserError(f"seeds must be {expected}, got {len(names)}")

    def draw(make: _Draw, layer: int) -> Tensor:
        out, *fan = shape.weights[layer]
        each = {seed: make(seed, layer, out, math.prod(fan)) for seed in dict.fromkeys(names)}
        return torch.stack([each[seed] for seed in names]).to(device=teacher.device, dtype=teacher.dtype)

    layers = tuple(
        Layer(draw(weights, i).unflatten(2, shape.weights[i][1:]), None if bias is None else draw(biases, i))
        for i, (_, bias) in enumerate(teacher.layers)
    )
    like = layers[0].weight
    norms = tuple(fresh_norm(len(names), nodes, shape.affine, like) for nodes in shape.sizes[1:-1])
    return Population(
        layers,
        torch.tensor(names, dtype=torch.int64, device=teacher.device),
        shape.slope,
        norms if shape.norm else (),
        shape.norm == "before",
        shape.image,
        shape.convolutions,
    )
