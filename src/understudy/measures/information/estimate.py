"""`us.information`: how much the code of a variational autoencoder knows about the data."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from understudy._devices import resolve_device
from understudy._errors import UserError, kind_of
from understudy._numbers import number
from understudy.data.source import require_counts
from understudy.measures.information.nested import NestedEstimate, nested_information
from understudy.measures.information.scalars import (
    Quadrature,
    has_classes,
    has_number,
    integrate_classes,
    integrate_number,
)
from understudy.nets.latent.model import LatentModel

ACTIVE = 0.01
"""Variance over the data of the posterior mean above which a unit is active (Burda et al. 2016)."""
_ROWS_AT_ONCE = 4_096
_BIASED = (
    "The interval reaches from an estimate that is too small on average, where the code of each sample is among those "
    "that p(x) is averaged over, to one that is too large, where it is not; each is extended by 1.96 standard errors."
)


@dataclass(frozen=True)
class Information:
    """How much a code knows about the data, and what is often reported in its place; in nats.

    Attributes:
        value: I(z, x) under the model p(z) p(x|z).
        low: Lower end of its 95% interval; by quadrature, of the numerical error.
        high: Upper end of this interval.
        method: quadrature or nested Monte Carlo.
        bound: The infomax bound H(z) + E log r(z|x), which is never above the information (Phuong 2021, theorem 4.1);
            None without an inference network.
        bound_error: Its standard error; by quadrature, its numerical error.
        divergence: The KL term of the evidence lower bound: of the encoder from the prior, averaged over the data.
        active_units: Coordinates of the code whose posterior mean has a variance over the data above 0.01 (Burda et al.
            2016).
        notes: How the interval is to be read, and what else is assumed.
    """

    value: float
    low: float
    high: float
    method: Literal["quadrature", "nested Monte Carlo"]
    bound: float | None
    bound_error: float | None
    divergence: float
    active_units: int
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """The numbers in a few lines."""
        digits = ".3f" if self.method == "nested Monte Carlo" else ".6f"
        within = f"95% interval {number(self.low, digits)} to {number(self.high, digits)}"
        if self.method == "quadrature":
            within = f"numerical error {number(self.high - self.value, '.0e')}"
        rows = [("information", f"{number(self.value, digits)} nats ({self.method}, {within})")]
        if self.bound is not None and self.bound_error is not None:
            rows.append(("infomax bound", f"{number(self.bound, digits)} ± {number(self.bound_error, '.1g')} nats"))
        rows.append(("KL term", f"{number(self.divergence, '.3f')} nats"))
        rows.append(("active units", str(self.active_units)))
        return "\n".join([f"{name:<15}{text}" for name, text in rows] + [f"({each})" for each in self.notes])


@torch.no_grad()
def information(
    model: LatentModel,
    x: Tensor | np.ndarray,
    *,
    samples: int = 1_000,
    codes: int = 512,
    tolerance: float = 1e-6,
    seed: int = 0,
    device: torch.device | str = "auto",
) -> Information:
    """Measure how much information the code of a variational autoencoder has about the data.

    The mutual information I(z, x) under the model p(z) p(x|z) (Phuong 2021, eq. 4.6) is computed by quadrature if the
    code has one coordinate and a row of data is a single class or number; otherwise, or if this does not reach the
    tolerance, it is estimated by nested Monte Carlo. The model is measured in evaluation mode and left as it is.

    Args:
        model: Any variational autoencoder, as `LatentModel(encoder, decoder)`, or a `MutualAutoencoder`.
        x: Data, one row each: for the KL term and the active units, and for the shape of a row.
        samples: Samples of the model, for nested Monte Carlo.
        codes: Codes by which p(x) is estimated at each sample.
        tolerance: Numerical error that is accepted for quadrature.
        seed: Seed of the samples.
        device: auto (a CUDA GPU if there is one), cpu or cuda.

    Returns:
        The information with its interval, and the quantities that are often taken for it.

    Raises:
        UserError: Something else than a model, modules that do not fit the data, or a number out of range.
    """
    if not isinstance(model, LatentModel):
        raise UserError(
            f"must be a LatentModel, such as a MutualAutoencoder, got {kind_of(model)}; give "
            "LatentModel(encoder, decoder)",
            "model",
        )
    require_counts(samples=samples, codes=codes)
    if samples < 2:
        raise UserError(f"must be at least 2, which a standard error needs, got {samples}", "samples")
    if not (math.isfinite(tolerance) and tolerance > 0):
        raise UserError(f"must be a finite number above 0, got {number(tolerance)}", "tolerance")
    if not 0 <= seed < 2**63:
        raise UserError(f"must be between 0 and 2^63 − 1, got {seed}", "seed")
    model, data, precision = _in_float64(copy.deepcopy(model).to(resolve_device(device)).eval(), x)
    if len(data) < 2:
        raise UserError("must have at least two rows, between which posterior means vary, got 1", "data")
    about = _describe_codes(model, data)
    found, reached = _integrate(model, data.shape[1:], tolerance)
    notes = (*precision, *reached)
    if found is not None:
        return Information(
            found.information,
            max(found.information - found.error, 0.0),
            found.information + found.error,
            "quadrature",
            found.bound,
            None if found.bound is None else found.bound_error,
            *about[:2],
            (*notes, *about.notes),
        )
    estimate = nested_information(model, data.shape[1:], samples=samples, codes=codes, seed=seed)
    if not math.isfinite(estimate.value):
        raise UserError("has densities that are not finite at samples of its own; train it again", "model")
    return Information(
        estimate.value,
        estimate.low,
        estimate.high,
        "nested Monte Carlo",
        estimate.bound,
        estimate.bound_error,
        *about[:2],
        (*notes, _BIASED, *_advise(estimate, codes), *about.notes),
    )


def _in_float64(model: LatentModel, x: Tensor | np.ndarray) -> tuple[LatentModel, Tensor, tuple[str, ...]]:
    """The model and the data in float64, or with a note in the precision of the modules, if they take no other."""
    data = model.prepare(x)
    exact = copy.deepcopy(model).double()
    try:
        return exact, exact.prepare(x), ()
    except UserError as error:
        precision = str(model.dtype).removeprefix("torch.")
        return model, data, (f"Computed in {precision}, since the modules do not take float64 ({error}).",)


class _Codes(NamedTuple):
    """KL term and active units of the encoder on the data."""

    divergence: float
    active_units: int
    notes: tuple[str, ...]


def _describe_codes(model: LatentModel, data: Tensor) -> _Codes:
    each = [model.encode(few) for few in data.split(_ROWS_AT_ONCE)]
    variance = torch.cat([code.mean for code in each]).double().var(0, correction=0)
    divergence = torch.cat([code.divergence().double().sum(-1) for code in each]).mean()
    if not divergence.isfinite():
        raise UserError("returns codes that are not finite", "encoder")
    resampled = (
        f"KL term and active units are those of one code of the encoder, without the choice among {model.resamples}.",
    )
    return _Codes(float(divergence), int((variance > ACTIVE).sum()), resampled if model.resamples > 1 else ())


def _integrate(model: LatentModel, shape: torch.Size, tolerance: float) -> tuple[Quadrature | None, tuple[str, ...]]:
    """Information by quadrature where it applies and converges, and notes on it."""
    if model.latent != 1 or not (has_classes(model, shape) or has_number(model, shape)):
        return None, ()
    integrate = integrate_classes if has_classes(model, shape) else integrate_number
    like = torch.zeros(1, model.latent, dtype=model.dtype, device=model.device)
    found = integrate(model, shape, like, tolerance)
    if found.converged:
        return found, ()
    reached = f"reached an error of {number(found.error)}" if math.isfinite(found.error) else "did not settle"
    return None, (f"Quadrature {reached}, and the tolerance is {number(tolerance)}: estimated by nested Monte Carlo.",)


def _advise(estimate: NestedEstimate, codes: int) -> tuple[str, ...]:
    """Advice how to make a wide interval narrower."""
    bias, width = estimate.upper - estimate.lower, estimate.high - estimate.low
    if math.isfinite(bias) and bias <= width / 2:
        return ()
    return (f"More than half of the interval is bias: more codes than {codes:,} make it narrower.",)
