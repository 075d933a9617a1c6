"""Residual ReLU networks trained with the logistic loss, by SGD or by gradient flow (Phuong 2021, ch. 3).

A network is a tuple of matrices (W_1, …, W_L). Following Phuong 2021, eq. 3.30, the first layer computes W_1 x, every
further hidden layer adds W_l ρ(·) to its input, and the output is W_L ρ(·). L = 2 is the two-layer network of eq. 3.2.
Every network has its own examples.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from understudy._errors import UserError
from understudy._random import Stream, normal, uniform, words
from understudy.theory.flows import follow_flows

Weights = tuple[Tensor, ...]
"""One matrix [net, out, in] per layer; a recorded path has a leading axis of probes."""

_RELATIVE = 1e-8
"""Tolerance of a step of gradient flow, relative to each weight and to the shortest neuron at the start."""


def small_linear(dim: int, width: int, depth: int, factor: float, seeds: Sequence[int]) -> Weights:
    """Draw weights as `torch.nn.Linear` does, U(±1/√fan-in), times a factor (Phuong 2021, sec. 3.4.1: 0.05)."""
    if min(dim, width) < 1 or depth < 2:
        raise UserError(
            f"a network needs 2 or more layers and a width and inputs of 1 or more, got {depth} layers of width "
            f"{width} on {dim} inputs"
        )
    if not 0 < factor < torch.inf:
        raise UserError(f"factor must be finite and above 0, got {factor}")
    sizes = (dim, *[width] * (depth - 1), 1)

    def drawn(seed: int, layer: int, into: int, out: int) -> Tensor:
        spread = 2 * uniform(seed, Stream.STUDENT, layer << 32, out * into).view(out, into) - 1
        return factor * spread / into**0.5

    pairs = list(enumerate(pairwise(sizes)))
    return tuple(torch.stack([drawn(seed, layer, *pair) for seed in seeds]) for layer, pair in pairs)


def balanced(dim: int, width: int, scale: float, seeds: Sequence[int]) -> Weights:
    """Draw two layers with ‖w_j‖ = |a_j| = scale, in random directions with random signs (Phuong 2021, sec. 3.1)."""
    if min(dim, width) < 1 or not 0 < scale < torch.inf:
        raise UserError(
            f"a balanced start needs 1 or more neurons and inputs and a finite scale above 0, got {width} neurons on "
            f"{dim} inputs at scale {scale}"
        )
    directions = torch.stack([normal(seed, Stream.STUDENT, 0, width * dim).view(width, dim) for seed in seeds])
    coins = torch.stack([uniform(seed, Stream.STUDENT, 1 << 32, width) < 0.5 for seed in seeds])
    directions = directions / torch.linalg.vector_norm(directions, dim=-1, keepdim=True)
    return scale * directions, scale * (2 * coins.double() - 1).unsqueeze(-2)


def outputs(weights: Weights, x: Float[Tensor, "*#net sample in"]) -> Float[Tensor, "*net sample"]:
    """Output h(x) of every network for each of its examples (Phuong 2021, eq. 3.30)."""
    return _through(weights, x)[0]


def logistic_loss(
    weights: Weights, x: Float[Tensor, "*#net sample in"], y: Float[Tensor, "*#net sample"], *, mean: bool = False
) -> Float[Tensor, "*net"]:
    """Logistic loss Σ log(1 + exp(−y h)) over the examples (Phuong 2021, eq. 3.3), or its mean."""
    losses = torch.nn.functional.softplus(-y * outputs(weights, x))
    return losses.mean(-1) if mean else losses.sum(-1)


def logistic_gradient(
    weights: Weights, x: Float[Tensor, "*#net sample in"], y: Float[Tensor, "*#net sample"], *, mean: bool = False
) -> Weights:
    """Gradient of `logistic_loss` with respect to every matrix; ρ′(0) = 0."""
    h, before = _through(weights, x)
    pull = (-y * torch.sigmoid(-y * h)).unsqueeze(-1)
    pull = pull / x.shape[-2] if mean else pull
    found = [pull.mT @ before[-1].relu()]
    back = (pull @ weights[-1]) * (before[-1] > 0)
    for weight, below in zip(weights[-2:0:-1], before[-2::-1], strict=True):
        found.append(back.mT @ below.relu())
        back = back + (back @ weight) * (below > 0)
    return back.mT @ x, *reversed(found)


def _through(weights: Weights, x: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Outputs, and the pre-activations of every hidden layer."""
    before = [x @ weights[0].mT]
    for weight in weights[1:-1]:
        before.append(before[-1] + before[-1].relu() @ weight.mT)
    return (before[-1].relu() @ weights[-1].mT).squeeze(-1), before


def descend(
    weights: Weights,
    x: Float[Tensor, "net sample in"],
    y: Float[Tensor, "net sample"],
    rate: float | Float[Tensor, "net"],
    probes: Sequence[int],
    *,
    batch: int | None = None,
    seeds: Sequence[int] | None = None,
    mean: bool = True,
    first: int = 0,
) -> Weights:
    """Take gradient steps W ← W − η ∇ℓ, and return the weights after the numbers of steps in `probes`.

    With `batch`, every epoch visits all examples once, in an order that depends on the network's seed and the epoch;
    its last batch has the remaining examples. Steps are counted from `first`: k steps, followed by k steps from
    `first` = k, equal 2k steps bit for bit. A network whose weights are no longer finite is NaN from that probe on.
    """
    _validate(weights, x, y)
    rates = torch.as_tensor(rate, dtype=x.dtype).reshape(-1)
    if not bool(((rates > 0) & rates.isfinite()).all()) or len(rates) not in (1, len(x)):
        raise UserError(f"rate must be finite and above 0, one number or one per network, got {rate}")
    if list(probes) != sorted(probes) or min(probes, default=0) < 0 or first < 0:
        raise UserError(f"probes must be in ascending order and at least 0, got {list(probes)} from step {first}")
    if batch is not None and not 1 <= batch <= x.shape[1]:
        raise UserError(f"batch must be from 1 to the number of examples ({x.shape[1]}), got {batch}")
    if batch is not None and (seeds is None or len(seeds) != len(x)):
        raise UserError(f"mini-batches need one seed per network ({len(x)}), got {0 if seeds is None else len(seeds)}")
    every = rates.expand(len(x)).tolist()
    orders = [None] * len(x) if batch is None else list(seeds or ())
    # One network at a time: its result then does not depend, even in the last bit, on which others are trained.
    paths = [
        _descend_one(tuple(w[i] for w in weights), x[i], y[i], every[i], probes, batch, orders[i], mean, first)
        for i in range(len(x))
    ]
    recorded = tuple(torch.stack(part, dim=1) for part in zip(*paths, strict=True))
    finite = torch.stack([part.isfinite().flatten(2).all(-1) for part in recorded]).all(0)
    return tuple(torch.where(finite[..., None, None], part, torch.nan) for part in recorded)


def _descend_one(
    weights: Weights,
    x: Float[Tensor, "sample in"],
    y: Float[Tensor, "sample"],
    rate: float,
    probes: Sequence[int],
    batch: int | None,
    seed: int | None,
    mean: bool,
    first: int,
) -> Weights:
    """Train one network and return its weights at every probe."""
    size = len(x) if batch is None else batch
    each = -(-len(x) // size)
    now, step, epoch = weights, first, -1
    recorded = tuple(w.new_empty(len(probes), *w.shape) for w in weights)
    mixed_x, mixed_y = x, y
    for i, probe in enumerate(probes):
        while step < first + probe:
            if seed is not None and step // each != epoch:
                epoch = step // each
                order = words(seed, Stream.BATCH, epoch, len(x)).argsort(stable=True)
                mixed_x, mixed_y = x[order], y[order]
            part = slice(step % each * size, (step % each + 1) * size)
            by = logistic_gradient(now, mixed_x[part], mixed_y[part], mean=mean)
            now, step = tuple(w - rate * g for w, g in zip(now, by, strict=True)), step + 1
        for path, w in zip(recorded, now, strict=True):
            path[i] = w
    return recorded


def logistic_flow(
    weights: Weights,
    x: Float[Tensor, "net sample in"],
    y: Float[Tensor, "net sample"],
    times: Sequence[float],
    *,
    mean: bool = False,
) -> Weights:
    """Follow gradient flow Ẇ = −∇ℓ (Phuong 2021, eq. 3.4) by an adaptive Runge-Kutta method; weights at `times`.

    ℓ is the sum of the losses (eq. 3.3), or with `mean` their mean, which is slower by the number of examples. The
    velocity jumps where an example becomes active or inactive, which leaves errors of about 1e−5 of the weights.
    """
    from scipy.integrate import solve_ivp

    _validate(weights, x, y)
    sizes = [w.shape[1:] for w in weights]

    def split(flat: Tensor) -> Weights:
        parts = flat.split([size.numel() for size in sizes], dim=-1)
        return tuple(part.unflatten(-1, size) for part, size in zip(parts, sizes, strict=True))

    def solve(i: int, start: np.ndarray, ahead: np.ndarray) -> np.ndarray:
        def velocity(_: float, flat: np.ndarray) -> np.ndarray:
            by = logistic_gradient(split(torch.from_numpy(flat)), x[i], y[i], mean=mean)
            return -torch.cat([part.ravel() for part in by]).numpy()

        # Order 5: a higher order gains nothing at the jumps. Weights near zero matter as long as they are not small
        # compared with a neuron at the start.
        least = _RELATIVE * float(torch.linalg.vector_norm(weights[0][i], dim=-1).min())
        tolerances = {"rtol": _RELATIVE, "atol": max(least, 1e-300)}
        return solve_ivp(velocity, (0, ahead[-1]), start, "RK45", ahead, **tolerances).y.T

    starts = torch.cat([w.detach().flatten(1) for w in weights], 1).numpy()
    return tuple(part.contiguous() for part in split(torch.from_numpy(follow_flows(starts, times, solve))))


def _validate(weights: Weights, x: Tensor, y: Tensor) -> None:
    if len(weights) < 2 or x.shape[:-1] != y.shape or {len(w) for w in weights} != {len(x)}:
        raise UserError(
            "two or more layers are needed, and examples with classes for every network, got weights "
            f"{[list(w.shape) for w in weights]}, examples {list(x.shape)} and classes {list(y.shape)}"
        )
    if weights[0].shape[-1] != x.shape[-1]:
        raise UserError(f"the networks take {weights[0].shape[-1]} inputs, but the examples have {x.shape[-1]}")
    if not bool((y.abs() == 1).all()):
        raise UserError(f"classes must be −1 and 1, got {sorted(set(y.flatten().tolist()))[:5]}")


class Balance(NamedTuple):
    """Distance of two layers from ‖w_j‖ = |a_j|, which gradient flow conserves (Phuong 2021, lemma B.4)."""

    gap: Float[Tensor, "*net node"]
    """‖w_j‖² − a_j², which gradient flow conserves for any start."""
    ratio: Float[Tensor, "*net node"]
    """|a_j| / ‖w_j‖."""


def balance(weights: Weights) -> Balance:
    """Compute the balance of two-layer networks, or of a recorded path of them."""
    w, a = neurons(weights)
    lengths = torch.linalg.vector_norm(w, dim=-1)
    return Balance(lengths.square() - a.square(), a.abs() / lengths)


def neurons(weights: Weights) -> tuple[Float[Tensor, "*net node in"], Float[Tensor, "*net node"]]:
    """Weights w_j and output weights a_j of two-layer networks, or of a recorded path of them."""
    if len(weights) != 2:
        raise UserError(f"a network of two layers is needed, got {len(weights)} layers")
    return weights[0], weights[1].squeeze(-2)
