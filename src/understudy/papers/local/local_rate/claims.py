"""What a run of descent near teachers decides: Z2, Z3, Z4, Z8, Z10."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from understudy.papers.local.local_rate.study import CLAIMED, FROM, TO
from understudy.report.style import number, signed
from understudy.store import Claim, Run
from understudy.store.claims import Variant

if TYPE_CHECKING:
    from understudy.papers.local.local_rate.study import LocalRate

SLOPE = -1.0
"""Of the loss over steps, both as logarithms, at most."""
CONSTANT = 0.4
"""Of theorem 3, κ = CONSTANT / √(r w_max): the proof has ‖g‖² ≤ 2 Σ ‖w_j‖² + 4 Σ ‖w*_i‖, about 6 r w_max near zero."""
STEEP = 1.0
"""‖∇L‖²/L over w_min of one student of one teacher neuron, at least; at a solution it is 2."""
FALLS = 0.1
"""Power of the loss above which ‖∇L‖²/L counts as falling with it."""
LEMMAS = {"lemma 8": 1 / 3, "lemma 9": 3 / 8, "lemma 11": 3 / 4, "lemma C.3": 0.0, "lemma C.4": 1 / 2}
"""The power of the loss that each proves."""
RIGHT = {
    "lemma 8": "r w_max w_min^(−5/3) L^(1/3)",
    "lemma 9": "r^(11/4) w_max^(1/4) Δ^(−3/2) L^(3/8)",
    "lemma 11": "r^(5/2) w_max^(1/2) L^(3/4)",
    "lemma C.3": "r w_max",
    "lemma C.4": "L^(1/2)",
}
"""What C multiplies, as `local_geometry.sides` has it."""
NEAR = 4.0
"""Of lemma 8, with which the threshold is looked at besides: some students near one teacher neuron need 3.57."""
BELOW, LARGEST = 0.05, 4.0
"""How far below that a fitted exponent may be, and one constant for all lemmas."""
FACTOR = 1.2
"""Within which the end loss of the largest mini-batches is that of the exact loss."""
ROUNDING = 1e-20
"""Losses below this are not looked at: what is measured of them is rounding."""
FLAT = 0.1
"""Log-log slope of the loss over the last two thirds of the steps, either way, up to which a median is a floor."""
MULTIPLES, SEEDS, BATCH_STEPS = (1, 2, 5, 20), 10, 2_000
"""m / r that claims whatever m are decided on; at least, how many teachers of every kind, and steps by mini-batches."""
_FEW, _SPAN = 5, 10.0
"""Looks, and how far their losses have to be apart, for an exponent to be fitted."""


def label(multiple: int) -> str:
    return "m = r" if multiple == 1 else f"m = {multiple}r"


def exact(run: Run, **wanted: object) -> np.ndarray:
    """Networks that descended on the exact loss, such as those with one m / r."""
    return _chosen(run, part="exact", **wanted)


def batched(run: Run, batch: int) -> np.ndarray:
    """Networks that learned by mini-batches of that many samples; 0 is the exact loss beside them."""
    return _chosen(run, part="batch", batch=batch)


def _chosen(run: Run, **wanted: object) -> np.ndarray:
    which = np.ones(run.networks.num_rows, bool)
    for column, value in wanted.items():
        which &= np.array([v == value for v in run.networks[column].to_pylist()])
    return np.flatnonzero(which)


def below(run: Run, constant: float = 1.0) -> np.ndarray:
    """[network, look] where the angle of lemma 8, its constant 1, is no more than the teacher's separation.

    That is our threshold: the proof of lemma 8 asks for this, and that of lemma 7 for a loss that no descent reaches.
    """
    with np.errstate(invalid="ignore"):
        return (constant * run.series("lemma 8 right") <= run.column("delta")[:, None]) & (
            run.series("loss") > ROUNDING
        )


def at(run: Run, metric: str, networks: np.ndarray, step: int) -> np.ndarray:
    return run.series(metric)[networks, int(np.searchsorted(run.epochs, step))]


def slopes(run: Run, networks: np.ndarray, start: int, end: int) -> np.ndarray:
    """Of the loss between two steps, both as logarithms; of a loss that is rounding, as if it were 1e-30."""
    one, other = (np.maximum(at(run, "loss", networks, step), 1e-30) for step in (start, end))
    return np.log(other / one) / math.log(end / start)


def claimed(study: LocalRate, run: Run, multiple: int) -> np.ndarray:
    """The networks that the claim on the rate is of: r = 3, d = 5, teacher neurons of length 1."""
    return exact(run, r=CLAIMED[0], d=CLAIMED[1], multiple=multiple, w_min=1.0, w_max=1.0)


def lojasiewicz(run: Run) -> np.ndarray:
    """[network, look] of ‖∇L‖/L √(r w_max), w_max the longest neuron's length, below the threshold; NaN elsewhere."""
    scale = np.sqrt(run.column("r") * run.column("longest"))
    return np.where(below(run), run.series("ratio") * scale[:, None], np.nan)


def exponent(loss: np.ndarray, value: np.ndarray) -> float:
    """The power of the loss as which a value falls, by least squares of logarithms; NaN where there is too little."""
    there = np.isfinite(loss) & np.isfinite(value) & (loss > 0) & (value > 0)
    if there.sum() < _FEW or loss[there].max() < _SPAN * loss[there].min():
        return math.nan
    return float(np.polyfit(np.log(loss[there]), np.log(value[there]), 1)[0])


def exponents(run: Run, metric: str, networks: np.ndarray, constant: float = 1.0) -> np.ndarray:
    """A network each, below the threshold."""
    loss = np.where(below(run, constant), run.series("loss"), np.nan)
    return np.array([exponent(loss[i], run.series(metric)[i]) for i in networks])


class Lemma(NamedTuple):
    """A lemma along all runs that come below the threshold: fitted exponents, NaN where there is too little to fit, and
    the constant that each run needs."""

    proved: float
    exponents: np.ndarray
    constants: np.ndarray

    @property
    def fitted(self) -> np.ndarray:
        return self.exponents[np.isfinite(self.exponents)]

    @property
    def short(self) -> int:
        """Runs whose exponent is below the proved one."""
        return int((self.fitted < self.proved - BELOW).sum())

    @property
    def beyond(self) -> int:
        """Runs that need too large a constant."""
        return int((self.constants > LARGEST).sum())

    @property
    def holds(self) -> bool:
        return not self.short and not self.beyond

    def __str__(self) -> str:
        most = np.max(self.constants, initial=0.0, where=np.isfinite(self.constants))
        never = int(np.isinf(self.constants).sum())
        fitted = f"exponents {_span(self.fitted)}, median {np.median(self.fitted):.2f}"
        without = f", but in {never} runs no C does: the left side is infinite at some look" if never else ""
        return f"{fitted}, {self.short} of {len(self.fitted)} too low; C = {most:.2g}{without}"


def lemma(run: Run, name: str, constant: float = 1.0) -> Lemma:
    networks, where = exact(run), below(run, constant)
    networks = networks[where[networks].any(1)]
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(where, run.series(f"{name} left") / run.series(f"{name} right"), -np.inf)
    return Lemma(LEMMAS[name], exponents(run, f"{name} left", networks, constant), share[networks].max(1))


def claims(study: LocalRate, run: Run) -> list[Claim]:
    """Decided where the run has the claims' settings, on drawn teachers."""
    plain = type(study)()
    if any(getattr(study, name) != getattr(plain, name) for name in ("teacher", "by", "rate", "angle")):
        return []
    if study.seeds < SEEDS or study.steps < TO:
        return []
    found: list[Claim] = []
    wide = set(study.multiple) >= set(MULTIPLES)
    if wide and CLAIMED[0] in study.r and CLAIMED[1] in study.d and (1.0, 1.0) in study.lengths:
        found.append(_rate(study, run))
    if wide and len(study.r) > 1 and len(study.lengths) > 1:
        found.append(_ratio(run))
        found += [_lemma(run, name) for name in LEMMAS]
    if 1 in study.r and {1, 2} <= set(study.multiple) and max(study.d) > 2:
        found += _pl(run)
    long = study.batch_steps >= BATCH_STEPS
    if long and study.batch_multiple > 1 and max(study.batch) >= 64 * min(study.batch):
        found += _batches(study, run)
    return found


def _rate(study: LocalRate, run: Run) -> Claim:
    values, words = [], []
    for multiple in study.multiple:
        networks = claimed(study, run, multiple)
        early, late = slopes(run, networks, FROM, TO), slopes(run, networks, FROM, study.steps)
        values += [*early, *late]
        scaled = run.series("loss")[networks] * (study.rate * run.epochs / CLAIMED[0])
        gone = int((at(run, "loss", networks, study.steps) <= ROUNDING).sum())
        rounding = f", the end loss rounding in {gone} of {len(networks)} runs" if gone else ""
        words.append(
            f"{label(multiple)} {_span(early)} and to the end {_span(late)}{rounding}, L η t / (r w_max) at most "
            f"{np.nanmax(scaled):.2g}"
        )
    return Claim(
        id="Z2",
        statement=f"r = 3, d = 5, η = 0.05, begun near the teacher: log-log slope of the loss over steps {FROM:,} to {TO:,}, and "
        f"to the end at {study.steps:,}, at most −1 in every run, whatever m",
        paper="L = O(r w_max / ηt)",
        measured="; ".join(words),
        n=len(values) // 2,
        holds=bool((np.array(values) <= SLOPE).all()),
        values=tuple(map(float, values)),
        high=SLOPE,
    )


def _ratio(run: Run) -> Claim:
    networks = exact(run)
    values = lojasiewicz(run)[networks]
    there = np.isfinite(values).any(1)
    least = np.nanmin(values[there], axis=1)
    scale = (run.column("r") * run.column("longest"))[networks]
    return Claim(
        id="Z3",
        statement="‖∇L‖ ≥ κL, κ = C / √(r w_max), with one C at all looks of all runs below the threshold (the angle of lemma 8 "
        "with constant 1 no more than Δ)",
        paper="κ = Θ((r w_max)^−½)",
        measured=f"C = {least.min():.2f}, over {np.isfinite(values).sum():,} looks of {there.sum()} of {len(networks)} runs, "
        f"r w_max from {scale.min():.2g} to {scale.max():.2g}",
        n=int(there.sum()),
        holds=bool((least >= CONSTANT).all()),
        values=tuple(least.tolist()),
        low=CONSTANT,
    )


def _pl(run: Run) -> list[Claim]:
    one, two = (exact(run, r=1, multiple=m) for m in (1, 2))
    steep = np.where(below(run), run.series("squared_ratio") / run.column("shortest")[:, None], np.inf)
    plane = run.column("d")[two] == 2
    free, flat = _falling(run, steep, two[~plane]), _falling(run, steep, two[plane])
    aside = f"{flat.words}; two students at one angle have two places there, and where both begin at one they stay one"
    return [
        Claim(
            id="Z4",
            statement="m = r = 1: ‖∇L‖²/L over the length of the teacher neuron stays above a constant along all runs",
            paper="PL holds",
            measured=f"smallest {steep[one].min():.3f}, down to losses of {number(ROUNDING)}",
            n=len(one),
            holds=bool((steep[one] >= STEEP).all()),
            part="as many students",
            values=tuple(steep[one].min(1).tolist()),
            low=STEEP,
        ),
        Claim(
            id="Z4",
            statement="m = 2, r = 1, d > 2: ‖∇L‖²/L goes to 0 with the loss, along all runs",
            paper="PL fails",
            measured=free.words,
            n=len(free.powers),
            holds=free.holds,
            part="over-parameterised",
            values=tuple(free.powers.tolist()),
            low=FALLS,
            variants=(Variant("d = 2", aside, flat.holds),) if plane.any() else (),
        ),
    ]


class _Falling(NamedTuple):
    """‖∇L‖²/L of some networks: the power of the loss as which it falls, and whether by a factor of ten in all."""

    powers: np.ndarray
    words: str
    holds: bool


def _falling(run: Run, steep: np.ndarray, networks: np.ndarray) -> _Falling:
    powers = exponents(run, "squared_ratio", networks)
    first, last = (np.array([steep[i, np.isfinite(steep[i])][k] for i in networks]) for k in (0, -1))
    if not len(networks):
        return _Falling(powers, "no run", False)
    still = int((powers <= FALLS).sum())
    words = f"falls as the loss to the power {_span(powers)}, from {_span(first)} to {_span(last)} at the end"
    words += f"; in {still} of {len(powers)} runs it does not" if still else ""
    return _Falling(powers, words, bool((powers > FALLS).all() and (last < first / 10).all()))


def _lemma(run: Run, name: str) -> Claim:
    found, proved, lower = lemma(run, name), LEMMAS[name], lemma(run, name, NEAR)
    return Claim(
        id="Z8",
        statement=f"{name}, its left side at most C {RIGHT[name]}, along every run below the threshold: fitted exponent of L at "
        f"least the proved one less {BELOW:g}, a slack of ours, and C at most {LARGEST:g}, ours too",
        paper=f"exponent {proved:.3g}",
        measured=str(found),
        n=len(found.fitted),
        holds=found.holds,
        part=name,
        values=tuple(found.fitted.tolist()),
        low=proved - BELOW,
        variants=(Variant(f"threshold with C = {NEAR:g}", str(lower), lower.holds),) if len(lower.fitted) else (),
    )


def end_shares(study: LocalRate, run: Run, batch: int) -> np.ndarray:
    """The end loss by mini-batches over that on the exact loss, a seed each."""
    ends = [at(run, "loss", batched(run, b), study.batch_steps) for b in (batch, 0)]
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        return ends[0] / ends[1]


def _batches(study: LocalRate, run: Run) -> list[Claim]:
    shares = {batch: end_shares(study, run, batch) for batch in sorted(study.batch)}
    most = {batch: float(np.exp(np.abs(np.log(share)).max())) for batch, share in shares.items()}
    away = np.array([np.median(np.abs(share - 1)) for share in shares.values()])
    falls = float(np.polyfit(np.log(sorted(study.batch)), np.log(away), 1)[0])
    going = [slopes(run, batched(run, batch), study.batch_steps // 3, study.batch_steps) for batch in shares]
    flat = [bool(abs(np.median(each)) <= FLAT) for each in going]
    large = max(study.batch)
    enough = next((batch for batch in most if all(most[b] <= FACTOR for b in most if b >= batch)), None)
    setting = f"m = {study.batch_multiple}r, {study.batch_steps:,} steps"
    ends = [np.median(at(run, "loss", batched(run, batch), study.batch_steps)) for batch in shares]
    medians = ", ".join(f"{np.median(share):.2f} at {batch}" for batch, share in shares.items())
    return [
        Claim(
            id="Z10",
            statement=f"{setting} by fresh mini-batches: with the largest, the end loss is that of descent on the exact loss, up "
            f"to a factor of {FACTOR:g}, in every seed",
            paper="the same end loss once the batch is large enough",
            measured=f"within a factor of {most[large]:.3f} at {large:,} samples"
            + (f"; of {FACTOR:g} from {enough:,} on" if enough else ""),
            n=len(shares[large]),
            holds=most[large] <= FACTOR,
            part="end loss",
            values=tuple(shares[large].tolist()),
            low=1 / FACTOR,
            high=FACTOR,
        ),
        Claim(
            id="Z10",
            statement=f"{setting} by fresh mini-batches: the loss comes to a floor at every batch, a median log-log slope "
            f"within ±{FLAT:g} over the last two thirds of the steps, and the end loss falls with the batch",
            paper="the floor falls with the batch",
            measured=_floors(flat, np.concatenate(going)),
            n=study.seeds * len(shares),
            holds=all(flat) and bool((np.diff(ends) < 0).all()),
            part="floor",
            values=tuple(float(np.median(each)) for each in going),
            low=-FLAT,
            high=FLAT,
            variants=(
                Variant(
                    "how far the end loss is from that of descent on the exact loss",
                    f"end loss over the exact one {medians} (medians); the distance goes as the batch to the power "
                    f"{signed(round(falls, 2))}",
                    bool(falls < 0 and away[-1] < away[0]),
                ),
            ),
        ),
    ]


def _floors(flat: list[bool], going: np.ndarray) -> str:
    """Whether the loss stops at a level, and how it goes on where it does not."""
    slope = f"slopes of the loss over the last two thirds of the steps are {_span(going)}"
    if any(flat):
        return f"a floor at {sum(flat)} of {len(flat)} batches; {slope}"
    return f"no floor: labels have no noise, so that of the gradient goes with the loss; {slope}"


def _span(values: np.ndarray) -> str:
    low, high = (signed(float(f"{v:.2g}")) for v in (np.min(values), np.max(values)))
    return low if low == high else f"{low} to {high}"
