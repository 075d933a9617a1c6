"""Residual ReLU networks trained with the logistic loss, by SGD or by gradient flow (Phuong 2021, ch. 3).

A network is a tuple of matrices (W_1, …, W_L). Following Phuong 2021, eq. 3.30, the first layer computes W_1 x, every
further hidden layer adds W_l ρ(·) to its input, and the output is W_L ρ(·). L = 2 is the two-layer network of eq. 3.2.
Every network has its own examples.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from understudy._errors import UserError
from understudy._random import Stream, normal, uniform, words
from understudy.theory.follow_flows import follow_flows

Weights = tuple[Tensor, ...]
"""One matrix [net, out, in] per layer; a recorded path has a leading axis of probes."""
Examples = Float[Tensor, "*#net sample in"]
Classes = Float[Tensor, "*#net sample"]
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


def equalised(weights: Weights) -> Weights:
    """Change the length of every w_j of two-layer networks to |a_j|, which balances them (Phuong 2021, sec. 3.1)."""
    w, a = neurons(weights)
    return torch.nn.functional.normalize(w, dim=-1) * a.abs().unsqueeze(-1), weights[1]


def outputs(weights: Weights, x: Examples) -> Float[Tensor, "*net sample"]:
    """Outputs h(x) of networks of any depth (Phuong 2021, eq. 3.30)."""
    return _through(weights, x)[0]


def logistic_loss(weights: Weights, x: Examples, y: Classes) -> Float[Tensor, "*net"]:
    """Mean logistic loss log(1 + exp(−y h)) over the examples (Phuong 2021, eq. 3.3, divided by their number)."""
    return torch.nn.functional.softplus(-y * outputs(weights, x)).mean(-1)


def logistic_gradient(
    weights: Weights, x: Examples, y: Classes, *, mean: bool = False, weighted_by: Tensor | None = None
) -> Weights:
    """Gradient of the sum of logistic losses, or of their mean, with respect to every matrix; ρ′(0) = 0.

    With `weighted_by`, one number λ_i per example, the gradient of −Σ λ_i y_i h(x_i).
    """
    h, before = _through(weights, x)
    pull = (-y * (torch.sigmoid(-y * h) if weighted_by is None else weighted_by)).unsqueeze(-1)
    pull = pull / x.shape[-2] if mean else pull
    found = [pull.mT @ before[-1].relu()]
    back = (pull @ weights[-1]) * (before[-1] > 0)
    for weight, below in zip(weights[-2:0:-1], before[-2::-1], strict=True):
        found.append(back.mT @ below.relu())
        back = back + (back @ weight) * (below > 0)
    return back.mT @ x, *reversed(found)


def _through(weights: Weights, x: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Outputs h(x) (Phuong 2021, eq. 3.30), and the pre-activations of every hidden layer."""
    before = [x @ weights[0].mT]
    for weight in weights[1:-1]:
        before.append(before[-1] + before[-1].relu() @ weight.mT)
    return (before[-1].relu() @ weights[-1].mT).squeeze(-1), before


def descend(
    weights: Weights, x: Examples, y: Classes, rate: float, probes: Sequence[int], batch: int, seeds: Sequence[int]
) -> Weights:
    """Take gradient steps W ← W − η ∇ℓ on the mean loss; weights after the numbers of steps in `probes`.

    Every epoch visits all examples once, in an order that depends on the network's seed and the epoch; its last batch
    has the remaining examples. A network whose weights are no longer finite is NaN from that probe on.
    """
    _validate(weights, x, y)
    if not 0 < rate < torch.inf:
        raise UserError(f"rate must be finite and above 0, got {rate}")
    if list(probes) != sorted(probes) or min(probes, default=0) < 0:
        raise UserError(f"probes must be in ascending order and at least 0, got {list(probes)}")
    samples = x.shape[1]
    if not 1 <= batch <= samples:
        raise UserError(f"batch must be from 1 to the number of examples ({samples}), got {batch}")
    if len(seeds) != len(x):
        raise UserError(f"one seed per network is needed ({len(x)}), got {len(seeds)}")
    each = -(-samples // batch)
    recorded = tuple(w.new_empty(len(probes), *w.shape) for w in weights)
    # One network at a time: its result then does not depend, even in the last bit, on which others are trained.
    for net, seed in enumerate(seeds):
        now, step = tuple(w[net] for w in weights), 0
        for i, probe in enumerate(probes):
            while step < probe:
                epoch, part = divmod(step, each)
                if part == 0:
                    order = words(seed, Stream.BATCH, epoch, samples).argsort(stable=True)
                    mixed_x, mixed_y = x[net][order], y[net][order]
                some = slice(part * batch, (part + 1) * batch)
                by = logistic_gradient(now, mixed_x[some], mixed_y[some], mean=True)
                now, step = tuple(w - rate * g for w, g in zip(now, by, strict=True)), step + 1
            for path, w in zip(recorded, now, strict=True):
                path[i, net] = w
    finite = torch.stack([part.isfinite().flatten(2).all(-1) for part in recorded]).all(0)
    return tuple(torch.where(finite[..., None, None], part, torch.nan) for part in recorded)


def logistic_flow(weights: Weights, x: Examples, y: Classes, times: Sequence[float]) -> Weights:
    """Follow gradient flow Ẇ = −∇ℓ (Phuong 2021, eq. 3.4) by an adaptive Runge-Kutta method; weights at `times`.

    ℓ is the sum of the losses (eq. 3.3). The velocity jumps where an example becomes active or inactive, which leaves
    errors of about 10⁻⁵ of the weights.
    """
    from scipy.integrate import solve_ivp

    _validate(weights, x, y)
    sizes = [w.shape[1:] for w in weights]

    def split(flat: Tensor) -> Weights:
        parts = flat.split([size.numel() for size in sizes], dim=-1)
        return tuple(part.unflatten(-1, size) for part, size in zip(parts, sizes, strict=True))

    def solve(i: int, start: np.ndarray, ahead: np.ndarray) -> np.ndarray:
        def velocity(_: float, flat: np.ndarray) -> np.ndarray:
            by = logistic_gradient(split(torch.from_numpy(flat)), x[i], y[i])
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


def neurons(weights: Weights) -> tuple[Float[Tensor, "*net node in"], Float[Tensor, "*net node"]]:
    """Weights w_j and output weights a_j of two-layer networks, or of a recorded path of them."""
    if len(weights) != 2:
        raise UserError(f"a network of two layers is needed, got {len(weights)} layers")
    return weights[0], weights[1].squeeze(-2)
