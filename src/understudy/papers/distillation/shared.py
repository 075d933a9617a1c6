"""Shared by the studies of Phuong 2021, ch. 5: transfer sets, their risks with intervals, and a user's own data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from understudy._errors import UserError
from understudy.lab.options import Count, Share
from understudy.lab.study import ExactStudy
from understudy.store.units import read_units, unit_array

if TYPE_CHECKING:
    import xarray as xr
    from torch import Tensor

    from understudy.lab.study import Tables
    from understudy.papers.distillation.theory.risk import Estimate
    from understudy.papers.distillation.theory.tasks import GivenTask
    from understudy.report.figures import Series
    from understudy.store import Run

_Z = 1.96
"""Standard errors on either side of a mean that contain 95%."""


@dataclass(frozen=True)
class TransferStudy(ExactStudy):
    """Options of studies of linear students that learn from the soft labels of a linear teacher."""

    seeds: Count = 1_000
    """Number of transfer sets, counted from 1: each seed is one, and the initial weights of its students."""
    confidence: Share = 0.95
    """Confidence of intervals and bands, between 0 and 1."""


def read_data(file: str) -> GivenTask:
    """Read a user's task: inputs, split into parts, and a teacher, given or fitted to one of the parts."""
    import torch

    from understudy.data.input_files import read_inputs
    from understudy.papers.distillation.theory.tasks import given_task

    if Path(file).suffix.lower() != ".npz":
        raise UserError(f"--data must be a .npz of arrays x and y, or x and w (numpy.savez), got {file}")
    try:
        x = read_inputs(file, name="x").double()
        name, held = _read_target(file)
        if name == "w":
            return given_task(x, teacher=torch.from_numpy(held.astype(np.float64)))
        classes, labels = np.unique(held, return_inverse=True)
        return given_task(x, labels=torch.from_numpy(labels), names=classes.tolist())
    except UserError as error:
        raise UserError(f"--data: {error}") from None


def _read_target(file: str) -> tuple[str, np.ndarray]:
    """The name and the values of the array beside the inputs: labels `y`, or the teacher's weights `w`."""
    from understudy.data.input_files import read_named_array

    def choose(names: list[str]) -> str:
        found = [name for name in ("y", "w") if name in names]
        if len(found) != 1:
            holds = "both y and w" if found else "neither y nor w"
            raise UserError(
                f"{file}: x must be accompanied by either y (labels) or w (a teacher), but the file holds {holds}"
            )
        chosen.append(found[0])
        return found[0]

    chosen: list[str] = []
    held = read_named_array(Path(file), choose)
    name = chosen[0]
    if held.squeeze().ndim > 1:
        raise UserError(f"{file}: {name} must have one axis, got shape {held.shape}")
    held = held.ravel()
    if held.dtype.kind not in ("biuf" if name == "w" else "biufSU") or (
        held.dtype.kind == "f" and not np.isfinite(held).all()
    ):
        raise UserError(f"{file}: {name} holds {held.dtype} values that are not all finite numbers; convert them")
    return name, held


def set_tables(
    seeds: Sequence[int],
    parameters: Mapping[str, Any],
    values: Mapping[str, Tensor],
    means: Mapping[str, Estimate],
    once: Mapping[str, float] | None = None,
) -> Tables:
    """Tables `sets`, one row per seed, and `settings`, one row with means over sets and values that all sets share."""
    each = {name: [value] * len(seeds) for name, value in parameters.items()}
    own = {name: value.double().numpy() for name, value in values.items()}
    setting = dict(parameters) | estimate_columns(means) | {name: float(value) for name, value in (once or {}).items()}
    return {"sets": pa.table({"seed": list(seeds)} | each | own), "settings": pa.Table.from_pylist([setting])}


def estimate_columns(means: Mapping[str, Estimate]) -> dict[str, float]:
    """Columns `mean risk`, `low risk` and `high risk` of an estimate named `risk`."""
    return {
        f"{end} {name}": float(getattr(estimate, end))
        for name, estimate in means.items()
        for end in ("mean", "low", "high")
    }


def read_settings(run: Run, **where: Any) -> pa.Table:
    """One row per setting, with means over its transfer sets and what these share, such as bounds."""
    if "settings" in run.tables:
        return run.table("settings")
    sets = read_units(
        run, "sets", **where
    )  # runs that stored sets as networks have these at the first set of a setting
    return sets.filter(pc.is_finite(sets["mean risk"]))


def estimates(settings: pa.Table, name: str, dims: str, **where: Any) -> xr.Dataset:
    """Means over transfer sets with their intervals: `mean`, `low` and `high` by the parameters of settings."""
    import xarray as xr

    return xr.Dataset({end: unit_array(settings, f"{end} {name}", dims, **where) for end in ("mean", "low", "high")})


def mean_series(label: str, found: xr.Dataset, x: str, **style: Any) -> Series:
    """Means with their intervals along one parameter."""
    from understudy.report.figures import Series

    mean, low, high = (found[end].to_numpy() for end in ("mean", "low", "high"))
    return Series(label, found[x].to_numpy().astype(float), mean, low, high, **style)


def line_series(label: str, values: xr.DataArray, **style: Any) -> Series:
    """Values along their one dimension."""
    from understudy.report.figures import Series

    return Series(label, values[values.dims[0]].to_numpy().astype(float), values.to_numpy(), **style)


def estimate_words(found: xr.Dataset) -> str:
    """One mean with its interval in words."""
    mean, low, high = (found[end].item() for end in ("mean", "low", "high"))
    return f"{mean:.3g} ({low:.3g} to {high:.3g})"


def mean_difference(values: np.ndarray) -> tuple[float, float, float]:
    """The mean over sets of the difference of two learners, with its 95% interval by the central limit theorem."""
    mean = float(values.mean())
    wide = _Z * float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.inf
    return mean, mean - wide, mean + wide
