"""`us.recover`: the parameters of a ReLU network from the function alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from understudy._errors import UserError
from understudy._numbers import number
from understudy._progress import steps
from understudy._random import Stream, generator
from understudy.nets import Population
from understudy.papers.equivalence.theory.domain import Bounds, Box, as_box
from understudy.papers.equivalence.theory.recovery import Recovered, recover_network
from understudy.papers.equivalence.theory.recovery.oracle import Function
from understudy.papers.equivalence.theory.recovery.recover import MOST_EVALUATIONS, validate_evaluations
from understudy.papers.equivalence.theory.recovery.search import Search
from understudy.papers.equivalence.theory.relu_network import ReluNetwork, as_relu_network

_TRIED = 16
"""Inputs at which a function is tried out."""
_SAME = 1e-13
"""Relative difference of two evaluations of the same inputs from which a function is not deterministic."""
_DISTINCT = 5
"""Distinct values of an output that show float32, if all its values are rounded to it: constants may be by chance."""


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
        most_evaluations: Maximum number of inputs at which the function may be evaluated.
        checkpoint: File to which the state is saved during the recovery. Called again with the same arguments, an
            interrupted recovery continues from it.

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
    validate_evaluations(most_evaluations, sizes, inputs)
    if checkpoint is not None and not Path(checkpoint).absolute().parent.is_dir():
        raise UserError(f"must be a file in an existing folder, got {checkpoint}: create the folder", "checkpoint")
    function, spent = _tried(evaluated, box, sizes)
    with steps("recovering the network") as step:

        def after(search: Search) -> None:
            step()

        return recover_network(
            function,
            box,
            sizes,
            seed=seed,
            most_evaluations=most_evaluations,
            spent=spent,
            checkpoint=None if checkpoint is None else Path(checkpoint),
            after=after,
        )


def _validated(sizes: Sequence[int]) -> tuple[int, ...]:
    try:
        found = tuple(int(size) for size in sizes)
        whole = all(size == given for size, given in zip(found, sizes, strict=True))
    except (TypeError, ValueError):
        found, whole = (), False
    if len(found) < 3 or not whole or min(found) < 1:
        raise UserError(
            f"must be the units from the inputs to the outputs, with at least one hidden layer, as in (20, 10, 1), got "
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


def _tried(f: Callable[..., Any], box: Box, sizes: tuple[int, ...] | None) -> tuple[Function, int]:
    """Wrap a function so that it takes and returns float64 arrays; refuse one that is not deterministic.

    Returns:
        The function, and the number of inputs at which it was evaluated.
    """
    x = box.draw(generator(1, Stream.RECOVERY, 1 << 30), _TRIED)
    call, attempts = _calling(f, x)
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
    difference = np.abs(first - again).max()
    if difference > _SAME * np.abs(first).max():
        raise UserError(
            f"f must be deterministic: two evaluations of the same inputs differ by {number(difference, '.1e')}; turn "
            "off dropout and noise (module.eval())"
        )
    if _is_float32(first):
        raise UserError(
            "f must compute in float64: its outputs are float32 numbers, which are too coarse to locate folds, even if "
            "they are converted; convert its weights and inputs instead, as with module.double()"
        )
    return function, (attempts + 3) * _TRIED


def _is_float32(values: np.ndarray) -> bool:
    """Whether an output was rounded to float32: it has several values, and each is a float32 number."""
    with np.errstate(over="ignore"):
        rounded = (values.astype(np.float32) == values).all(axis=0)
    whole = (values == np.round(values)).all(axis=0)
    return any(len(np.unique(values[:, i])) >= _DISTINCT for i in np.flatnonzero(rounded & ~whole))


def _calling(f: Callable[..., Any], x: np.ndarray) -> tuple[Callable[[np.ndarray], Any], int]:
    """Call a function with arrays where it takes them, otherwise with tensors; copies, since it may change them.

    Returns:
        The call, and the number of attempts to find out.
    """

    def with_arrays(points: np.ndarray) -> Any:
        return f(points.copy())

    def with_tensors(points: np.ndarray) -> Any:
        with torch.no_grad():
            return f(torch.from_numpy(points.copy()))

    try:
        with_arrays(x)
    except Exception as array_error:
        try:
            with_tensors(x)
        except Exception as tensor_error:
            raise UserError(
                f"f must be a function of arrays or tensors [sample, in]; with {len(x)} inputs of {x.shape[1]} numbers "
                f"it raised {type(array_error).__name__}: {array_error}; with a tensor {type(tensor_error).__name__}: "
                f"{tensor_error}"
            ) from tensor_error
        return with_tensors, 2
    return with_arrays, 1


def _outputs(values: Any, x: np.ndarray) -> np.ndarray:
    if isinstance(values, Tensor):
        values = values.detach().cpu().to(torch.float32 if values.dtype == torch.bfloat16 else values.dtype).numpy()
    if isinstance(values, np.ndarray) and values.dtype in (np.float16, np.float32):
        raise UserError(
            f"f must compute in float64, got outputs in {values.dtype}, which is too coarse to locate folds: convert "
            "its weights, as with module.double(), and do not round its outputs"
        )
    try:
        found = np.array(values, dtype=np.float64)  # a copy: the function may write the next outputs to the same array
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
