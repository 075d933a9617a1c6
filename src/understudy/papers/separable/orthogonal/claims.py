"""What a run of orthogonal decides: B1, B2 and B3."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow.compute as pc

from understudy.papers.separable.orthogonal.study import DRAWN, FLOW, SETS, SGD, SPANNING, VALUES
from understudy.papers.specialization.dynamics.claims import part
from understudy.store import Claim, Run
from understudy.store.claims import Variant

if TYPE_CHECKING:
    from understudy.papers.separable.orthogonal.study import Orthogonal

START, DEEP = 0.05, 4
"""The factor at the start, and the depth of the residual networks, in the thesis."""
THIRD, ALIGNED = 0.05, 0.75
"""Of rank 2 is what has σ3 under this share of σ1; so many neurons have a correlation above 0.9."""
FEWEST = 10
_SETTING = ("dim", "points", "tilt", "neurons", "rate", "batch", "epochs", "data")


class Group(NamedTuple):
    """Networks that differ in their seeds alone, and their looks among those of the run."""

    run: Run
    networks: np.ndarray
    looks: np.ndarray

    def course(self, name: str) -> np.ndarray:
        """[seed, look] of a metric."""
        return self.run.series(name)[np.ix_(self.networks, self.looks)]

    def end(self, name: str) -> np.ndarray:
        return self.course(name)[:, -1]

    @property
    def first(self) -> int | None:
        """Of the seeds whose network did not diverge; none if all did."""
        alive = np.flatnonzero(np.isfinite(self.end("loss")))
        return int(alive[0]) if len(alive) else None

    def values(self, layer: int, look: int = -1) -> np.ndarray:
        """[seed, value] of the largest singular values of W1, W2, …, at the last look or the first."""
        there = [f"W{layer} value {k}" for k in range(1, VALUES + 1)]
        every = np.stack([self.course(name)[:, look] for name in there], -1)
        return every[:, ~np.isnan(every).all(0)]

    def nodes(self, column: str, look: int = -1, layer: int = 0) -> np.ndarray:
        """[seed, neuron] of a column of `nodes`, at the last look or the first."""
        epoch = int(self.run.epochs[self.looks[look]])
        found = self.run.matched("student", column, layer, epoch)[self.networks]
        return found[:, ~np.isnan(self.run.matched("student", "norm", layer, epoch)[self.networks]).all(0)]

    @property
    def undecided(self) -> np.ndarray:
        """[seed, look]: share of neurons that are active for some example and not in their extremal sector."""
        return np.round(1 - self.course("inside") - self.course("off"), 9) + 0.0  # rounding is no neuron, nor −0


def group(run: Run, name: str, **wanted: object) -> Group:
    networks = part(run, name, **wanted)
    rows = run.metrics.filter((pc.field("metric") == "loss") & pc.field("network").isin(networks[:1].tolist()))
    return Group(run, networks, np.searchsorted(run.epochs, np.unique(rows["epoch"].to_numpy())))


def spread(values: np.ndarray, digits: int = 2) -> str:
    """From the least to the largest; one number where they are the same."""
    there = values[np.isfinite(values)]
    if not len(there):
        return "none is finite"
    low, high = (f"{value:.{digits}g}" for value in (there.min(), there.max()))
    return low if low == high else f"{low} to {high}"


def claims(study: Orthogonal, run: Run) -> list[Claim]:
    """Decided on the thesis' settings, from 10 seeds on."""
    plain = type(study)()
    if study.seeds < FEWEST or any(getattr(study, name) != getattr(plain, name) for name in _SETTING):
        return []
    found: list[Claim] = []
    if START in study.start and 2 in study.layers:
        found += [_rank(study, run), _third(study, run), _aligned(study, run)]
    if START in study.start and DEEP in study.layers:
        found += [_deep(study, run, layer) for layer in range(1, DEEP)]
    if study.searches >= plain.searches:
        found.append(_sectors(study, run))
    small = min(study.flow_start) <= min(plain.flow_start) and study.flow_time >= plain.flow_time
    if small and study.looks >= plain.looks:
        found += [_flow(study, run, kind) for kind in study.kinds]
    if START in study.start and 2 in study.layers and study.looks >= plain.looks:
        found.append(_sgd(study, run))
    return found


def _sure(values: np.ndarray) -> np.ndarray:
    """What diverged is far from everything."""
    return np.nan_to_num(values, nan=np.inf)


def _others(study: Orthogonal, run: Run, layers: int, say: Callable[[Group], tuple[str, bool]]) -> tuple[Variant, ...]:
    """The same from other starts."""
    rest = [start for start in study.start if start != START]
    return tuple(
        Variant(f"× {start:g}", *say(group(run, SGD, layers=layers, start=start))) for start in sorted(rest)[::-1]
    )


def _of_rank_two(name: str) -> Callable[[Group], tuple[str, bool]]:
    def say(found: Group) -> tuple[str, bool]:
        third = found.end(name)
        return spread(third), bool((_sure(third) < THIRD).all())

    return say


def _rank(study: Orthogonal, run: Run) -> Claim:
    found = group(run, SGD, layers=2, start=START)
    third = found.end("W1 third")
    beside = Variant("W − W₀", *_of_rank_two("W1 added third")(found))
    return Claim(
        id="B1",
        statement=f"two layers: the third singular value of W is under {THIRD:.0%} of the first, in every seed",
        paper="rank only two",
        measured=f"σ₃/σ₁ {spread(third)}",
        n=len(third),
        holds=bool((_sure(third) < THIRD).all()),
        part="rank of W",
        values=tuple(third[np.isfinite(third)].tolist()),
        low=None,
        high=THIRD,
        variants=(beside, *_others(study, run, 2, _of_rank_two("W1 third"))),
    )


def _grown(found: Group) -> np.ndarray:
    """The third singular value at the end over that at the start."""
    return found.values(1)[:, 2] / found.values(1, 0)[:, 2]


def _third(study: Orthogonal, run: Run) -> Claim:
    def say(some: Group) -> tuple[str, bool]:
        return f"{spread(_grown(some), 3)} times", bool((_sure(_grown(some)) <= 1).all())

    found = group(run, SGD, layers=2, start=START)
    times = _grown(found)
    largest = found.values(1)[:, 2] / found.values(1, 0)[:, 0]
    weyl = Variant("σ₁ of W₀", f"{spread(largest, 3)} times", bool((_sure(largest) <= 1).all()))
    return Claim(
        id="B1",
        statement="two layers: the third singular value of W is no larger than at the start, in every seed",
        paper="all but two effectively zero",
        measured=f"{spread(times, 3)} times that of the start; no larger in {(_sure(times) <= 1).sum()} of {len(times)} seeds",
        n=len(times),
        holds=bool((_sure(times) <= 1).all()),
        part="third value",
        values=tuple(times[np.isfinite(times)].tolist()),
        low=None,
        high=1.0,
        variants=(weyl, *_others(study, run, 2, say)),
    )


def _aligned(study: Orthogonal, run: Run) -> Claim:
    def say(some: Group) -> tuple[str, bool]:
        share = some.end("aligned")
        return spread(share), bool((share >= ALIGNED).all())

    found = group(run, SGD, layers=2, start=START)
    share, mass = found.end("aligned"), found.end("aligned mass")
    return Claim(
        id="B1",
        statement=f"two layers: at least {ALIGNED:.0%} of the neurons correlate above 0.9 with the max-margin vector of their "
        "sign, in every seed",
        paper="above 0.9 for most neurons",
        measured=f"{spread(share)}, {np.mean(share):.3f} of all; at least {ALIGNED:g} in {(share >= ALIGNED).sum()} of "
        f"{len(share)} seeds; they hold {spread(mass, 3)} of Σ ‖w‖²",
        n=len(share),
        holds=bool((share >= ALIGNED).all()),
        part="alignment",
        values=tuple(share[np.isfinite(share)].tolist()),
        low=ALIGNED,
        high=None,
        variants=_others(study, run, 2, say),
    )


def gaps(found: Group, layer: int) -> np.ndarray:
    """[seed]: after which singular value the next is smaller by the largest factor."""
    values = found.values(layer)
    return np.nanargmax(np.nan_to_num(values[:, :-1] / values[:, 1:]), -1) + 1


def _deep(study: Orthogonal, run: Run, layer: int) -> Claim:
    found = group(run, SGD, layers=DEEP, start=START)
    third, after = found.end(f"W{layer} third"), gaps(found, layer)
    two = int((after == 2).sum())
    drop = found.values(layer)[:, 1] / found.values(layer)[:, 2]
    words = f"the widest is after the second value in {two} of {len(after)} seeds, where they fall {spread(drop)} times"
    added = Variant("W − W₀", *_of_rank_two(f"W{layer} added third")(found))
    return Claim(
        id="B2",
        statement=f"{DEEP} layers: the third singular value of W{layer} is under {THIRD:.0%} of the first, in every seed",
        paper="rank two",
        measured=f"σ₃/σ₁ {spread(third, 3)}; under {THIRD:g} in {(_sure(third) < THIRD).sum()} of {len(third)} seeds",
        n=len(third),
        holds=bool((_sure(third) < THIRD).all()),
        part=f"W{layer}",
        values=tuple(third[np.isfinite(third)].tolist()),
        low=None,
        high=THIRD,
        variants=(
            Variant("gap", words, two == len(after)),
            added,
            *_others(study, run, DEEP, _of_rank_two(f"W{layer} third")),
        ),
    )


def lemma(run: Run) -> np.ndarray:
    """[set]: whether searches find one positive and one negative extremal direction, those of lemma 3.2."""
    positive, negative = (run.series(f"{side} holds")[part(run, SETS), 0] for side in ("positive", "negative"))
    return np.asarray((positive == 1) & (negative == 1))


def _sectors(study: Orthogonal, run: Run) -> Claim:
    sets, holds = part(run, SETS), lemma(run)
    gap = max(float(run.series(f"{side} gap")[sets, 0].max()) for side in ("positive", "negative"))
    off = sum(int(run.series(f"{side} off")[sets, 0].sum()) for side in ("positive", "negative"))
    wrong = int((run.series("wrong pairs")[sets, 0] > 0).sum())
    return Claim(
        id="B3",
        statement=f"on every set, {study.searches:,} searches up G and as many down end at one direction each, in the sectors of "
        "eqs. 3.13 and 3.14, or where no example is active",
        paper="exactly one positive and one negative extremal direction",
        measured=f"in {holds.sum()} of {len(holds)} sets; at most {gap:.1e} from the means of the classes; {off:,} searches end "
        f"where no example is active; {len(holds) - wrong} sets are orthogonally separable",
        n=len(holds),
        holds=bool(holds.all()) and not wrong,
        part="extremal sectors",
    )


def _stays(found: Group) -> tuple[str, bool]:
    astray, left = found.undecided[:, -1], found.end("left")
    inside, off = found.end("inside"), found.end("off")
    none = bool((_sure(astray) == 0).all() and (_sure(left) == 0).all())
    words = (
        f"{spread(100 * inside, 4)}% end in their own, {spread(100 * off, 3)}% are active for no example, "
        f"{spread(100 * astray, 3)}% neither; {np.nansum(left):.0f} ever left"
    )
    return words, none


def _stay_claim(found: Group, where: str, who: str, beside: tuple[Variant, ...]) -> Claim:
    words, holds = _stays(found)
    astray = found.undecided[:, -1]
    return Claim(
        id="B3",
        statement=f"{where}: every neuron that is active for some example ends in the extremal sector of its sign, and none "
        "leaves it at any look, in every seed (below: the share that ends elsewhere)",
        paper="converge to extremal sectors, and remain",
        measured=words,
        n=len(found.networks),
        holds=holds,
        part=who,
        values=tuple(astray[np.isfinite(astray)].tolist()),
        low=None,
        high=0.0,
        variants=beside,
    )


def _flow(study: Orthogonal, run: Run, kind: str) -> Claim:
    starts = sorted(study.flow_start)
    groups = {start: group(run, FLOW, points=kind, start=start) for start in starts}
    beside = tuple(Variant(f"λ = {start:g}", *_stays(groups[start])) for start in starts[1:])
    points = {DRAWN: "points as drawn", SPANNING: "points whose support examples span the space"}[kind]
    where = f"gradient flow from a balanced start of λ = {starts[0]:g}, {points}"
    return _stay_claim(groups[starts[0]], where, f"flow, {kind}", beside)


def _sgd(study: Orthogonal, run: Run) -> Claim:
    found = group(run, SGD, layers=2, start=START)
    claim = _stay_claim(found, "SGD, two layers", "SGD", _others(study, run, 2, _stays))
    held = carried(found)
    return replace(claim, measured=f"{claim.measured}; those that are neither hold {spread(100 * held)}% of Σ |a|‖w‖")


def carried(found: Group) -> np.ndarray:
    """[seed]: what neurons that are active and not in their sector have of Σ |a|‖w‖ at the end."""
    weight = np.abs(found.nodes("output")) * found.nodes("norm")
    astray = (found.nodes("inside") == 0) & (found.nodes("off") == 0)
    return np.where(astray, weight, 0.0).sum(-1) / weight.sum(-1)
