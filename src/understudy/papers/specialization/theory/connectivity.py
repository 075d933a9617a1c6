"""Two students of one teacher joined by line segments on which the loss stays low: S0 appendix E.

Every segment moves either fan-outs alone, or weights of nodes whose fan-out is 0. Along the first the output is linear
in what moves, so that the loss is convex and largest at an end; along the second nothing changes. The largest loss on
such a path is that of its way points. No segment changes both of a node that is live, whatever the lengths of weights:
what a node gives on is v ‖w̃‖, and v is set for the weights that are there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from understudy.errors import UserError
from understudy.measures import correlation
from understudy.nets import Layer, Population, stack
from understudy.theory.unexplained import check_pair, unexplained

Move = Literal["fan-outs", "weights", "all"]
BELOW = 0.8
"""Correlation with every teacher node under which a student is unspecialised."""


@dataclass(frozen=True, eq=False)
class Path:
    """Way points, networks of one population in float64, and what moves between each two."""

    points: Population
    moves: tuple[Move, ...]


class _Gathered(NamedTuple):
    """One student for each teacher node that was learned, with the fan-outs of all that learned it."""

    holder: dict[int, int]
    """Of each teacher node learned."""
    fan_out: Float[Tensor, "node out"]


def straight(a: Population, b: Population) -> Path:
    """The line from one network to another."""
    _check_alike(a, b)
    return Path(stack([a.to(dtype=torch.float64), b.to(dtype=torch.float64)]), ("all",))


@torch.no_grad()
def joined(
    a: Population, b: Population, teacher: Population, x: Float[Tensor, "sample in"], below: float = BELOW
) -> Path:
    """A path of line segments from a to b, two students of one teacher with one hidden layer.

    First the students of a that learned the same teacher node hand their fan-outs to the best of them, scaled by the
    lengths of their weights, and unspecialised ones lose theirs. Then teacher nodes go from their holders in a to
    those in b, as many at a time as places are idle: an idle node takes the weights that b has for a teacher node,
    then the fan-out. At last idle nodes take b's weights, and fan-outs spread as they are in b. At least one node must
    be idle, as the paper's unspecialised one is.
    """
    _check_alike(a, b)
    check_pair(teacher, a, x)
    if len(teacher.layers) != 2:
        raise UserError(f"a teacher of two layers is needed, and this one has {len(teacher.layers)}")
    start, end, wide = (network.to(dtype=torch.float64) for network in (a, b, teacher))
    ours, theirs = (
        _gathered(wide, each, x.double(), below, name) for each, name in ((start, "first"), (end, "second"))
    )
    points, moves = [start], list[Move]()
    for point, move in _steps(start, end, ours, theirs):
        points.append(point)
        moves.append(move)
    return Path(stack(points), tuple(moves))


def losses_along(
    path: Path, teacher: Population, x: Float[Tensor, "sample in"], per_segment: int = 9
) -> Float[Tensor, "segment point"]:
    """Loss as a share of the output variance at evenly spaced points of every segment, both ends among them."""
    if per_segment < 2:
        raise UserError(f"per_segment must be 2 or more, both ends of a segment among them, got {per_segment}")
    share = torch.linspace(0, 1, per_segment, dtype=torch.float64, device=path.points.device)
    segments = len(path.points) - 1

    def between(part: Tensor | None) -> Tensor | None:
        if part is None:
            return None
        at = share.view(1, -1, *[1] * (part.ndim - 1))
        return torch.lerp(part[:-1].unsqueeze(1), part[1:].unsqueeze(1), at).flatten(0, 1)

    layers = tuple(Layer._make(map(between, layer)) for layer in path.points.layers)
    seeds = path.points.seeds[:-1].repeat_interleave(per_segment)
    along = replace(path.points, layers=layers, seeds=seeds)
    return unexplained(teacher, along, x).view(segments, per_segment)


def _check_alike(a: Population, b: Population) -> None:
    for network in (a, b):
        if len(network) != 1:
            raise UserError(f"{len(network)} networks were given as one end of a path; give one")
        if len(network.layers) != 2 or network.norms or network.image is not None:
            raise UserError(
                "paths are built between fully connected networks of two layers without BatchNorm; this one is of "
                f"sizes {'-'.join(map(str, network.sizes))}"
            )
    if a.shape != b.shape:
        raise UserError(
            f"networks of sizes {'-'.join(map(str, a.sizes))} and {'-'.join(map(str, b.sizes))} cannot be joined: "
            "give two of equal sizes and activation, both with biases or both without"
        )


def _gathered(teacher: Population, student: Population, x: Tensor, below: float, name: str) -> _Gathered:
    rho = correlation(teacher.activations(x).hidden[0], student.activations(x).hidden[0])[0]
    best, of = rho.max(0)
    length = torch.linalg.vector_norm(student.layers[0].weight[0], dim=1)
    fan_out = student.layers[1].weight[0].T
    gathered, holder = torch.zeros_like(fan_out), {}
    for j in range(len(rho)):
        those = ((of == j) & (best >= below)).nonzero().flatten()
        if len(those):
            k = holder[j] = int(those[best[those].argmax()])
            gathered[k] = (fan_out[those] * length[those].unsqueeze(1)).sum(0) / length[k]
    if not holder:
        raise UserError(
            f"no node of the {name} network correlates with a teacher node at {below:g} or above: the highest is "
            f"{float(best.max()):.3g}; give trained students of this teacher, or a lower level"
        )
    return _Gathered(holder, gathered)


def _steps(start: Population, end: Population, ours: _Gathered, theirs: _Gathered) -> Iterator[tuple[Population, Move]]:
    """Every way point after the first."""
    to_weight, to_bias = end.layers[0]
    place, home = dict(ours.holder), theirs.holder
    carried: set[int] = set()  # teacher nodes that are held by b's weights
    now = _with_fan_outs(start, ours.fan_out, start)
    yield now, "fan-outs"
    fan_out = ours.fan_out.clone()
    while any(place.get(j) != k or j not in carried for j, k in home.items()):
        idle = sorted(set(range(len(fan_out))) - set(place.values()))
        waiting = {j for j in place if j in home and (place[j] != home[j] or j not in carried)}
        homely = {j: k for j, k in home.items() if k in idle and place.get(j) != k}
        # Who takes a place and leaves none waits where it would take the last: the others need one to move.
        new = {k for j, k in homely.items() if j not in place}
        going = homely if not waiting or set(idle) - new else {j: k for j, k in homely.items() if j in place}
        spare = [k for k in idle if k not in going.values()]
        blocked = [j for j in home if j in place and j not in going and j not in carried]
        going |= dict(zip(blocked, spare, strict=False))
        unlearned = [j for j in place if j not in home]  # by b: they go, too
        if not going and not unlearned:
            raise UserError(
                f"all {len(fan_out)} nodes hold a teacher node, and one must be free to move them: the path of S0 "
                "app E needs an unspecialised node, or two that learned the same; give wider students"
            )
        if not going:
            for j in unlearned:
                fan_out[place.pop(j)] = 0.0
            now = _with_fan_outs(now, fan_out, start)
            yield now, "fan-outs"
            continue
        weight, bias = now.layers[0].weight.clone(), None if now.layers[0].bias is None else now.layers[0].bias.clone()
        for j, k in going.items():
            weight[0, k] = to_weight[0, home[j]]
            if bias is not None and to_bias is not None:
                bias[0, k] = to_bias[0, home[j]]
        now = replace(now, layers=(Layer(weight, bias), now.layers[1]))
        yield now, "weights"
        for j in [*unlearned, *(j for j in place if j in going)]:
            fan_out[place.pop(j)] = 0.0
        for j, k in going.items():
            fan_out[k] = theirs.fan_out[home[j]]
        place |= going
        carried |= set(going)
        now = _with_fan_outs(now, fan_out, end)
        yield now, "fan-outs"
    now = replace(now, layers=(end.layers[0], now.layers[1]))
    yield now, "weights"
    yield end, "fan-outs"


def _with_fan_outs(network: Population, fan_out: Float[Tensor, "node out"], biases_of: Population) -> Population:
    weight = fan_out.T.unsqueeze(0).clone()
    return replace(network, layers=(network.layers[0], Layer(weight, biases_of.layers[1].bias)))
