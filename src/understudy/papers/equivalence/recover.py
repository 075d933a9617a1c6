"""`us.recover`: the parameters of a ReLU network from the function alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from understudy._errors import UserError
from understudy._progress import steps
from understudy._random import Stream, generator
from understudy.nets import Population
from understudy.papers.equivalence.theory.domain import Bounds, Box, as_box
from understudy.papers.equivalence.theory.recovery import Recovered, recover_network
from understudy.papers.equivalence.theory.recovery.oracle import Function
from understudy.papers.equivalence.theory.recovery.recover import MOST_EVALUATIONS
from understudy.papers.equivalence.theory.recovery.search import Search
from understudy.papers.equivalence.theory.relu_network import ReluNetwork, as_relu_network

_TRIED = 16
"""Inputs at which a function is tried out."""
_TRIED_OUT = 4 * _TRIED
"""Evaluations by which a function is tried out."""
_SAME = 1e-13
"""Relative difference of two evaluations of the same inputs from which a function is not deterministic."""


def recover(
    f: Callable[..., Any] | ReluNetwork | Population | nn.Module | str | os.PathLike[str],
    domain: Box | Bounds | None = None,
    sizes: Sequence[int] | None = None,
    *,
    seed: int = 1,
    most_evaluations: int = MOST_EVALUATIONS,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Recovered:
    """Recover the parameters of a ReLU or leaky ReLU network from the function alone.

    The function is only evaluated, at points of the box: folds are located along lines, followed through the cells of
    the layers already known, and give one layer after the other up to permutation and positive scaling of its units
    (Phuong & Lampert 2020, theorem 2.1).

    Args:
        f: A function of arrays of NumPy or tensors of PyTorch, [sample, in] to [sample, out], in float64; or a module,
            a population or a network file, which is evaluated in float64.
        domain: Lower and upper ends of the inputs, each one number or one for every input. Default: [−2, 2].
        sizes: Units from the inputs to the outputs, such as (20, 10, 1). Default: for a network its own, of which
            nothing else is used; for a function they are found too, as far as possible.
        seed: Seed of the lines along which folds are searched.
        most_evaluations: Most inputs at which the function may be evaluated.
        checkpoint: File to which the state is written as the recovery goes on. Called again with the same arguments,
            an interrupted recovery goes on from there.

    Returns:
        The network, and whether it is complete, with the residual on fresh inputs and what is missing.

    Raises:
        UserError: Sizes or a domain that do not fit; a function that returns something else than numbers of this
            shape, is not deterministic, or rounds more than float64; or a checkpoint of another recovery.
    """
    evaluated: Callable[..., Any]
    network = None
    if isinstance(f, ReluNetwork | Population | nn.Module | str | os.PathLike):
        evaluated = network = as_relu_network("f", f)[0]
        sizes = network.sizes if sizes is None else sizes
    elif callable(f):
        evaluated = f
    else:
        raise UserError(f"must be a function, a module, a population or a network file, got {type(f).__name__}", "f")
    if sizes is not None:
        sizes = _validated(sizes)
    inputs = sizes[0] if sizes is not None else _inputs_of(domain)
    if network is not None and network.sizes[0] != inputs:
        raise UserError(f"must begin with the number of inputs of f, {network.sizes[0]}, got {inputs}", "sizes")
    box = as_box(domain, inputs)
    function = _checked(evaluated, box, sizes)
    with steps("recovering the network") as step:

        def after(search: Search) -> None:
            step()

        found = recover_network(
            function,
            box,
            sizes,
            seed=seed,
            most_evaluations=most_evaluations - _TRIED_OUT,
            checkpoint=None if checkpoint is None else Path(checkpoint),
            after=after,
        )
    return replace(found, evaluations=found.evaluations + _TRIED_OUT)


def _validated(sizes: Sequence[int]) -> tuple[int, ...]:
    try:
        found = tuple(int(size) for size in sizes)
        whole = all(size == given for size, given in zip(found, sizes, strict=True))
    except (TypeError, ValueError):
        found, whole = (), False
    if len(found) < 3 or not whole or min(found) < 1:
        raise UserError(
            f"must be the units from the inputs to the outputs with a hidden layer at least, as in (20, 10, 1), got "
            f"{sizes!r}",
            "sizes",
        )
    return found


def _inputs_of(domain: Box | Bounds | None) -> int:
    """Number of inputs that a domain states."""
    if isinstance(domain, Box):
        return domain.inputs
    lengths = {np.size(end) for end in domain if np.ndim(end)} if domain is not None else set()
    if len(lengths) != 1:
        raise UserError(
            "is needed for a function, whose number of inputs is not known otherwise: give sizes, or a domain with one "
            "interval for each input",
            "sizes",
        )
    return int(lengths.pop())


def _checked(f: Callable[..., Any], box: Box, sizes: tuple[int, ...] | None) -> Function:
    """Wrap a function so that it takes and returns float64 arrays, and refuse what is no deterministic function."""
    x = box.draw(generator(1, Stream.RECOVERY, 1 << 30), _TRIED)
    call = _calling(f, x)
    found = _outputs(call(x), x).shape[1]
    outputs = sizes[-1] if sizes is not None else found

    def function(points: np.ndarray) -> np.ndarray:
        values = _outputs(call(points), points)
        if values.shape[1] != outputs:
            raise UserError(f"f must return {outputs} outputs, the last of sizes, got {values.shape[1]}")
        if not np.isfinite(values).all():
            bad = points[int(np.argmin(np.isfinite(values).all(1)))]
            raise UserError(
                f"f must return finite numbers on the domain, got {values[~np.isfinite(values)][0]} at {bad}"
            )
        return values

    first, again = function(x), function(x)
    if np.abs(first - again).max() > _SAME * np.abs(first).max():
        raise UserError(
            f"f must be deterministic: two evaluations of the same inputs differ by {np.abs(first - again).max():.1e}; "
            "turn off dropout and noise (module.eval())"
        )
    return function


def _calling(f: Callable[..., Any], x: np.ndarray) -> Callable[[np.ndarray], Any]:
    """Call a function with arrays where it takes them, otherwise with tensors."""
    try:
        f(x.copy())
    except Exception as with_array:
        try:
            with torch.no_grad():
                f(torch.from_numpy(x.copy()))
        except Exception as with_tensor:
            raise UserError(
                f"f must be a function of arrays or tensors [sample, in]; with {len(x)} inputs of {x.shape[1]} numbers "
                f"it raised {type(with_array).__name__}: {with_array}; with a tensor {type(with_tensor).__name__}: "
                f"{with_tensor}"
            ) from with_tensor
    else:
        return f

    def call(points: np.ndarray) -> Any:
        with torch.no_grad():
            return f(torch.from_numpy(np.ascontiguousarray(points)))

    return call


def _outputs(values: Any, x: np.ndarray) -> np.ndarray:
    if isinstance(values, Tensor):
        values = values.detach().cpu().to(torch.float32 if values.dtype == torch.bfloat16 else values.dtype).numpy()
    if isinstance(values, np.ndarray) and values.dtype in (np.float16, np.float32):
        raise UserError(
            f"f must compute in float64, got outputs in {values.dtype}, which is too coarse to locate folds: convert "
            "its weights, as with module.double(), and do not round its outputs"
        )
    try:
        found = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise UserError(f"f must return an array [sample, out], got {type(values).__name__}") from None
    if found.shape == (len(x),):
        found = found[:, None]
    if found.ndim != 2 or len(found) != len(x):
        raise UserError(
            f"f must return outputs [sample, out] for inputs [sample, in], got shape {list(np.shape(values))} for "
            f"{len(x)} inputs"
        )
    return found
