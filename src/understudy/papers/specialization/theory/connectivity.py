"""Low-loss paths of line segments between two students of one teacher (Tian 2020, appendix E).

Every segment moves either fan-outs alone, or weights of nodes whose fan-out is 0. Along the first kind the output is
linear in what moves, so the loss is convex and largest at an end; along the second kind nothing changes. The largest
loss on such a path is therefore that of its waypoints. No segment changes both weights and fan-out of an active node,
whatever the lengths of the weights: the contribution of a node is v ‖w̃‖, and v is set for the current weights.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from understudy._errors import UserError
from understudy._numbers import number
from understudy.measures import correlation
from understudy.nets import Layer, Population, stack
from understudy.theory.unexplained import unexplained, validate_pair

Move = Literal["fan-outs", "weights", "all"]
BELOW = 0.8
"""Correlation with every teacher node below which a student is unspecialised."""


@dataclass(frozen=True, eq=False)
class WeightPath:
    """Waypoints, as the networks of one population in float64, and what moves between consecutive ones."""

    points: Population
    moves: tuple[Move, ...]


_Representatives = tuple[dict[int, int], Tensor]
"""The student that represents each learned teacher node, and fan-outs [node, out] of all that learned it, on it."""


def straight_path(a: Population, b: Population) -> WeightPath:
    """The straight line from one network to another."""
    _validate_ends(a, b)
    return WeightPath(stack([a.to(dtype=torch.float64), b.to(dtype=torch.float64)]), ("all",))


@torch.no_grad()
def connecting_path(
    a: Population, b: Population, teacher: Population, x: Float[Tensor, "sample in"], below: float = BELOW
) -> WeightPath:
    """Build a path of line segments from a to b, two students of one teacher with one hidden layer.

    First, the students of a that learned the same teacher node pass their fan-outs to the best of them, scaled by the
    lengths of their weights, and unspecialised students lose theirs. Then each teacher node moves from its holder in a
    to its holder in b, as many at a time as there are idle nodes: an idle node takes the weights that b has for the
    teacher node, then the fan-out. Finally, idle nodes take b's weights, and fan-outs are distributed as in b. At least
    one node must be idle, like the unspecialised node in the paper.

    Args:
        a: The first student.
        b: The second student, of the same shape.
        teacher: Their teacher, of two layers.
        x: Inputs on which correlations are measured.
        below: Correlation below which a student is unspecialised.

    Returns:
        The waypoints, and what moves between them.

    Raises:
        UserError: The networks do not match, one of them learned no teacher node, or no node is idle.
    """
    _validate_ends(a, b)
    validate_pair(teacher, a, x)
    if len(teacher.layers) != 2:
        raise UserError(f"the teacher must have two layers, got {len(teacher.layers)}")
    start, end, wide = (network.to(dtype=torch.float64) for network in (a, b, teacher))
    ours, theirs = (
        _representatives(wide, each, x.double(), below, name) for each, name in ((start, "first"), (end, "second"))
    )
    points, moves = zip(*_steps(start, end, ours, theirs), strict=True)
    return WeightPath(stack([start, *points]), moves)


def losses_along(
    path: WeightPath, teacher: Population, x: Float[Tensor, "sample in"], per_segment: int = 9
) -> Float[Tensor, "segment point"]:
    """Loss as a share of the output variance at evenly spaced points of every segment, including both ends."""
    if per_segment < 2:
        raise UserError(f"per_segment must be at least 2, both ends of a segment, got {per_segment}")
    share = torch.linspace(0, 1, per_segment, dtype=torch.float64, device=path.points.device)

    def between(part: Tensor | None) -> Tensor | None:
        if part is None:
            return None
        at = share.view(1, -1, *[1] * (part.ndim - 1))
        return torch.lerp(part[:-1].unsqueeze(1), part[1:].unsqueeze(1), at).flatten(0, 1)

    layers = tuple(Layer._make(map(between, layer)) for layer in path.points.layers)
    seeds = path.points.seeds[:-1].repeat_interleave(per_segment)
    return unexplained(teacher, replace(path.points, layers=layers, seeds=seeds), x).view(-1, per_segment)


def _validate_ends(a: Population, b: Population) -> None:
    for network in (a, b):
        if len(network) != 1:
            raise UserError(f"each end of a path must be one network, got {len(network)}")
        if len(network.layers) != 2 or network.norms or network.image is not None:
            raise UserError(
                "paths connect fully connected networks of two layers without BatchNorm, got one of sizes "
                f"{'-'.join(map(str, network.sizes))}"
            )
    if a.shape != b.shape:
        raise UserError(
            f"networks of sizes {'-'.join(map(str, a.sizes))} and {'-'.join(map(str, b.sizes))} cannot be connected: "
            "give two of equal sizes and activation, both with biases or both without"
        )


def _representatives(teacher: Population, student: Population, x: Tensor, below: float, name: str) -> _Representatives:
    rho = correlation(teacher.activations(x).hidden[0], student.activations(x).hidden[0])[0]
    best, of = rho.max(0)
    length = torch.linalg.vector_norm(student.layers[0].weight[0], dim=1)
    fan_out = student.layers[1].weight[0].T
    gathered, holder = torch.zeros_like(fan_out), {}
    for j in range(len(rho)):
        group = ((of == j) & (best >= below)).nonzero().flatten()
        if len(group):
            k = holder[j] = int(group[best[group].argmax()])
            gathered[k] = (fan_out[group] * length[group].unsqueeze(1)).sum(0) / length[k]
    if not holder:
        raise UserError(
            f"no node of the {name} network correlates with a teacher node at {below:g} or above: the highest is "
            f"{number(float(best.max()))}; give trained students of this teacher, or choose a lower --below"
        )
    return holder, gathered


def _steps(
    start: Population, end: Population, ours: _Representatives, theirs: _Representatives
) -> Iterator[tuple[Population, Move]]:
    """Yield every waypoint after the first, and what moved."""
    to_weight, to_bias = end.layers[0]
    (place, fan_out), (home, end_fan_out) = ours, theirs
    carried: set[int] = set()  # teacher nodes that are held by b's weights
    now = _with_fan_outs(start, fan_out, start)
    yield now, "fan-outs"
    while any(place.get(j) != k or j not in carried for j, k in home.items()):
        idle = sorted(set(range(len(fan_out))) - set(place.values()))
        waiting = {j for j in place if j in home and (place[j] != home[j] or j not in carried)}
        arriving = {j: k for j, k in home.items() if k in idle and place.get(j) != k}
        # A teacher node that is new takes a place and frees none: it waits if the others need the last idle place.
        new = {k for j, k in arriving.items() if j not in place}
        going = arriving if not waiting or set(idle) - new else {j: k for j, k in arriving.items() if j in place}
        spare = [k for k in idle if k not in going.values()]
        blocked = [j for j in home if j in place and j not in going and j not in carried]
        going |= dict(zip(blocked, spare, strict=False))
        unlearned = [j for j in place if j not in home]  # teacher nodes that b did not learn
        if not going and not unlearned:
            raise UserError(
                f"all {len(fan_out)} nodes hold a teacher node, and one must be free to move them: the path of Tian "
                "2020, appendix E, needs an unspecialised node, or two that learned the same; give wider students"
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
            fan_out[k] = end_fan_out[home[j]]
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
