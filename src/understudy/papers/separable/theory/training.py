"""Residual ReLU networks under the logistic loss: steps of SGD and gradient flow, whole populations at once (S3 ch 3).

A network is its matrices (W_1, …, W_L) of eq. 3.30: W_1 x, to which every further layer adds W_l ρ(·), and W_L ρ(·) at
the end. With L = 2 this is the two-layer network of eq. 3.2. Examples are each network's own, or shared.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from understudy._random import Stream, normal, uniform, words
from understudy.errors import UserError

Weights = tuple[Tensor, ...]
"""One [net, out, in] a layer; a recorded path has a leading axis of looks."""

_RELATIVE = 1e-8
"""Error that a step of gradient flow may make, in units of a number and of the least length at the start."""


def small_linear(dim: int, width: int, depth: int, factor: float, seeds: Sequence[int]) -> Weights:
    """Torch's own start of linear layers, U(±1/√fan-in), times a factor: secs 3.4.1 and 3.4.2 have 0.05."""
    if min(dim, width) < 1 or depth < 2:
        raise UserError(
            f"{depth} layers of width {width} on {dim} inputs were asked for; allowed is 2 layers or more, and 1 or "
            "more of the others"
        )
    if not 0 < factor < torch.inf:
        raise UserError(f"factor {factor} was given; allowed is a finite number above 0")
    sizes = (dim, *[width] * (depth - 1), 1)

    def drawn(seed: int, layer: int, into: int, out: int) -> Tensor:
        spread = 2 * uniform(seed, Stream.STUDENT, layer << 32, out * into).view(out, into) - 1
        return factor * spread / into**0.5

    pairs = list(enumerate(pairwise(sizes)))
    return tuple(torch.stack([drawn(seed, layer, *pair) for seed in seeds]) for layer, pair in pairs)


def balanced(dim: int, width: int, scale: float, seeds: Sequence[int]) -> Weights:
    """Two layers with ‖w_j‖ = |a_j| = λ, the scale: random directions, random signs (S3 sec 3.1)."""
    if min(dim, width) < 1 or not 0 < scale < torch.inf:
        raise UserError(
            f"{width} neurons of {dim} inputs at scale {scale} were asked for; allowed is 1 or more, and a finite "
            "scale above 0"
        )
    ways = torch.stack([normal(seed, Stream.STUDENT, 0, width * dim).view(width, dim) for seed in seeds])
    coins = torch.stack([uniform(seed, Stream.STUDENT, 1 << 32, width) < 0.5 for seed in seeds])
    ways = ways / torch.linalg.vector_norm(ways, dim=-1, keepdim=True)
    return scale * ways, scale * (2 * coins.double() - 1).unsqueeze(-2)


def outputs(weights: Weights, x: Float[Tensor, "*#net sample in"]) -> Float[Tensor, "*net sample"]:
    """h of eq. 3.30 for every sample."""
    return _through(weights, x)[0]


def logistic_loss(
    weights: Weights, x: Float[Tensor, "*#net sample in"], y: Float[Tensor, "*#net sample"], *, mean: bool = False
) -> Float[Tensor, "*net"]:
    """Σ log(1 + exp(−y h)) of eq. 3.3, or its mean, which is what torch's SGD descends."""
    losses = torch.nn.functional.softplus(-y * outputs(weights, x))
    return losses.mean(-1) if mean else losses.sum(-1)


def logistic_gradient(
    weights: Weights, x: Float[Tensor, "*#net sample in"], y: Float[Tensor, "*#net sample"], *, mean: bool = False
) -> Weights:
    """The gradient by every matrix; an example at w·x = 0 exactly does not count as active."""
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
    """Outputs, and what comes to each activation."""
    before = [x @ weights[0].mT]
    for weight in weights[1:-1]:
        before.append(before[-1] + before[-1].relu() @ weight.mT)
    return (before[-1].relu() @ weights[-1].mT).squeeze(-1), before


def descend(
    weights: Weights,
    x: Float[Tensor, "net sample in"],
    y: Float[Tensor, "net sample"],
    rate: float | Float[Tensor, "net"],
    looks: Sequence[int],
    *,
    batch: int | None = None,
    seeds: Sequence[int] | None = None,
    mean: bool = True,
    first: int = 0,
) -> Weights:
    """The weights after as many steps W ← W − η ∇ℓ as each of `looks` says, with a leading axis of looks.

    With `batch`, an epoch goes through all examples in an order that its number and the network's seed of `seeds` make;
    its last batch has what is left. Steps count from `first`, so that k steps, and k more from `first` = k, are 2k
    steps bit for bit. A network whose weights stop being finite is NaN from there on.
    """
    _check(weights, x, y)
    rates = torch.as_tensor(rate, dtype=x.dtype).reshape(-1)
    if not bool(((rates > 0) & rates.isfinite()).all()) or len(rates) not in (1, len(x)):
        raise UserError(f"rate {rate} was given; allowed is a finite number above 0, or one for every network")
    if list(looks) != sorted(looks) or min(looks, default=0) < 0 or first < 0:
        raise UserError(f"looks must be in order and from 0 on, got {list(looks)} from step {first}")
    if batch is not None and (not 1 <= batch <= x.shape[1] or seeds is None or len(seeds) != len(x)):
        raise UserError(
            f"batches of {batch} of {x.shape[1]} examples, {len(x)} networks and {0 if seeds is None else len(seeds)} "
            "seeds were given; allowed are batches from 1 to all examples, with a seed for every network"
        )
    every = rates.expand(len(x)).tolist()
    orders = [None] * len(x) if batch is None else list(seeds or ())
    # One by one: a network then has the same bits in any company.
    paths = [
        _steps(tuple(w[i] for w in weights), x[i], y[i], every[i], looks, batch, orders[i], mean, first)
        for i in range(len(x))
    ]
    found = tuple(torch.stack(part, dim=1) for part in zip(*paths, strict=True))
    sound = torch.stack([part.isfinite().flatten(2).all(-1) for part in found]).all(0)
    return tuple(torch.where(sound[..., None, None], part, torch.nan) for part in found)


def _steps(
    weights: Weights,
    x: Float[Tensor, "sample in"],
    y: Float[Tensor, "sample"],
    rate: float,
    looks: Sequence[int],
    batch: int | None,
    seed: int | None,
    mean: bool,
    first: int,
) -> Weights:
    """Those of one network."""
    size = len(x) if batch is None else batch
    each = -(-len(x) // size)
    now, step, epoch = weights, first, -1
    found = tuple(w.new_empty(len(looks), *w.shape) for w in weights)
    mixed_x, mixed_y = x, y
    for place, look in enumerate(looks):
        while step < first + look:
            if seed is not None and step // each != epoch:
                epoch = step // each
                order = words(seed, Stream.BATCH, epoch, len(x)).argsort(stable=True)
                mixed_x, mixed_y = x[order], y[order]
            part = slice(step % each * size, (step % each + 1) * size)
            by = logistic_gradient(now, mixed_x[part], mixed_y[part], mean=mean)
            now, step = tuple(w - rate * g for w, g in zip(now, by, strict=True)), step + 1
        for path, w in zip(found, now, strict=True):
            path[place] = w
    return found


def flow(
    weights: Weights,
    x: Float[Tensor, "net sample in"],
    y: Float[Tensor, "net sample"],
    times: Sequence[float],
    *,
    mean: bool = False,
) -> Weights:
    """The weights at each of `times` along Ẇ = −∇ℓ (eq. 3.4), by an adaptive Runge-Kutta method.

    Of the sum of losses (eq. 3.3) unless `mean`, which is slower by the number of examples. Where examples go on or off
    the velocity jumps, which leaves errors of the order of 1e-5 of the weights.
    """
    from scipy.integrate import solve_ivp

    _check(weights, x, y)
    until = np.asarray(times, dtype=float)
    if not np.isfinite(until).all() or (until < 0).any() or (np.diff(until) < 0).any():
        raise UserError(f"times must be finite, from 0 on and in order, got {list(times)}")
    sizes = [w.shape[1:] for w in weights]
    found = [np.full((len(until), *w.shape), np.nan) for w in weights]
    for i in range(len(x)):
        start = np.concatenate([w[i].detach().numpy().ravel() for w in weights])

        def parted(flat: Tensor) -> Weights:
            cut = flat.split([size.numel() for size in sizes], dim=-1)
            return tuple(part.unflatten(-1, size) for part, size in zip(cut, sizes, strict=True))

        def downhill(_: float, flat: np.ndarray, examples: Tensor = x[i], classes: Tensor = y[i]) -> np.ndarray:
            by = logistic_gradient(parted(torch.from_numpy(flat)), examples, classes, mean=mean)
            return -torch.cat([part.ravel() for part in by]).numpy()

        path = np.repeat(start[None], len(until), 0)
        ahead = until[until > 0]
        if len(ahead):
            # Of order 5: kinks, where examples go on or off, take from higher orders what they gain. Numbers near zero
            # matter as long as they are not small beside a neuron at the start.
            least = _RELATIVE * float(torch.linalg.vector_norm(weights[0][i], dim=-1).min())
            solved = solve_ivp(downhill, (0, ahead[-1]), start, "RK45", ahead, rtol=_RELATIVE, atol=max(least, 1e-300))
            path[len(until) - len(ahead) :] = np.nan
            path[len(until) - len(ahead) :][: len(solved.t)] = solved.y.T
        for whole, part in zip(found, parted(torch.from_numpy(path)), strict=True):
            whole[:, i] = part.numpy()
    return tuple(torch.from_numpy(part) for part in found)


def _check(weights: Weights, x: Tensor, y: Tensor) -> None:
    if len(weights) < 2 or x.shape[:-1] != y.shape or {len(w) for w in weights} != {len(x)}:
        raise UserError(
            f"weights {[list(w.shape) for w in weights]}, examples {list(x.shape)} and classes {list(y.shape)} were "
            "given; allowed are two layers or more, and examples with classes for every network"
        )
    if weights[0].shape[-1] != x.shape[-1]:
        raise UserError(f"the networks take {weights[0].shape[-1]} inputs, and the examples have {x.shape[-1]}")
    if not bool((y.abs() == 1).all()):
        raise UserError("classes other than −1 and 1 were given; allowed are these")


class Balance(NamedTuple):
    """How far two layers are from ‖w_j‖ = |a_j|, which gradient flow keeps (lemma B.4)."""

    gap: Float[Tensor, "*net node"]
    """‖w_j‖² − a_j², which gradient flow keeps whatever it is."""
    ratio: Float[Tensor, "*net node"]
    """|a_j| over ‖w_j‖."""


def balance(weights: Weights) -> Balance:
    """Of two-layer networks, or of a recorded path of them."""
    w, a = neurons(weights)
    lengths = torch.linalg.vector_norm(w, dim=-1)
    return Balance(lengths.square() - a.square(), a.abs() / lengths)


def neurons(weights: Weights) -> tuple[Float[Tensor, "*net node in"], Float[Tensor, "*net node"]]:
    """w_j and a_j of two-layer networks, or of a recorded path of them."""
    if len(weights) != 2:
        raise UserError(f"networks of {len(weights)} layers were given; allowed are those of two")
    return weights[0], weights[1].squeeze(-2)
