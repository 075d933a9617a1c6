"""Claims B1 to B3: rank two, max-margin neurons and extremal sectors (Phuong 2021, ch. 3)."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from understudy.claims import Claims, Verdict, every, range_words
from understudy.papers.separable.orthogonal.study import DRAWN, FLOW, SGD, SPANNING, VALUES, Orthogonal
from understudy.store import Run
from understudy.store.arrays import Networks
from understudy.store.units import read_units

START, DEEP = 0.05, 4
"""Factor of the initial weights, and depth of the residual networks, in the thesis."""
THIRD, ALIGNED = 0.05, 0.75
"""W has rank two if σ₃/σ₁ is below THIRD; at least a share ALIGNED of the neurons must correlate above 0.9."""
_KINDS = {DRAWN: "points as drawn", SPANNING: "points whose support examples span the space"}
_TWO = {"start": START, "layers": 2}
_FOUR = {"start": START, "layers": DEEP}

claims = Claims(fixed="dim points tilt neurons rate batch epochs data", least={"seeds": 10})


def select_sgd(run: Run, layers: int, start: float = START) -> Networks:
    """Networks trained by SGD."""
    return run.select(part=SGD, layers=layers, start=start)


def select_flow(run: Run, kind: str, start: float) -> Networks:
    """Networks trained by gradient flow."""
    return run.select(part=FLOW, points=kind, start=start)


def read_sets(run: Run) -> pa.Table:
    """One row per set of points, with its properties and the results of searches on it."""
    return read_units(run, "sets", part="sets")


def singular_values(networks: Networks, layer: int, *, start: bool = False) -> np.ndarray:
    """[network, value]: the largest singular values of W1, W2, … at the end, or at the start."""
    read = networks.start if start else networks.end
    names = [f"W{layer} value {k}" for k in range(1, VALUES + 1)]
    found = np.stack([read(name) for name in names if name in networks.run.metric_names], -1)
    return found[:, ~np.isnan(found).all(0)]


def _other_starts(run: Run, layers: int, test: Callable[[Networks], Verdict]) -> dict[str, Verdict]:
    """Apply a test to the other factors of the initial weights, the largest first."""
    starts = run.select(part=SGD).values("start")[::-1]
    return {f"× {start:g}": test(select_sgd(run, layers, start)) for start in starts if start != START}


def _rank_two(networks: Networks, metric: str, say: str = "{range:.2g}") -> Verdict:
    return every(networks.end(metric), below=THIRD, say=say)


def _probed_enough(study: Orthogonal) -> bool:
    return study.probes >= type(study)().probes


@claims.claim(
    "B1",
    "rank of W",
    statement=f"two layers: the third singular value of W is under {THIRD:.0%} of the first, in every seed",
    paper="rank only two",
    needs=_TWO,
)
def rank(study: Orthogonal, run: Run) -> Verdict:
    networks = select_sgd(run, 2)
    others = _other_starts(run, 2, lambda some: _rank_two(some, "W1 third"))
    verdict = _rank_two(networks, "W1 third", "σ₃/σ₁ {range:.2g}")
    return verdict.with_variants({"W − W₀": _rank_two(networks, "W1 added third")} | others)


@claims.claim(
    "B1",
    "third value",
    statement="two layers: the third singular value of W is no larger than at the start, in every seed",
    paper="all but two effectively zero",
    needs=_TWO,
)
def third_value(study: Orthogonal, run: Run) -> Verdict:
    def test(networks: Networks, value: int = 2, say: str = "{range:.3g} times") -> Verdict:
        """Compare the third value at the end with a value at the start."""
        grown = singular_values(networks, 1)[:, 2] / singular_values(networks, 1, start=True)[:, value]
        return every(grown, at_most=1.0, say=say)

    networks = select_sgd(run, 2)
    verdict = test(networks, say="{range:.3g} times that of the start; no larger in {count} seeds")
    return verdict.with_variants({"σ₁ of W₀": test(networks, 0)} | _other_starts(run, 2, test))


@claims.claim(
    "B1",
    "alignment",
    statement=f"two layers: at least {ALIGNED:.0%} of the neurons correlate above 0.9 with the max-margin vector of "
    "their sign, in every seed",
    paper="above 0.9 for most neurons",
    needs=_TWO,
)
def alignment(study: Orthogonal, run: Run) -> Verdict:
    def test(networks: Networks, say: str = "{range:.2g}") -> Verdict:
        return every(networks.end("aligned"), at_least=ALIGNED, say=say)

    networks = select_sgd(run, 2)
    verdict = test(networks, f"{{range:.2g}}, {{mean:.3f}} of all; at least {ALIGNED:g} in {{count}} seeds")
    mass = range_words(networks.end("aligned mass"))
    return verdict.also(f"they hold {mass} of Σ ‖w‖²").with_variants(_other_starts(run, 2, test))


@claims.claim(
    "B2",
    "W{layer}",
    statement=f"{DEEP} layers: the third singular value of W{{layer}} is under {THIRD:.0%} of the first, in every seed",
    paper="rank two",
    needs=_FOUR,
    cases={"layer": range(1, DEEP)},
)
def deep_rank(study: Orthogonal, run: Run, layer: int) -> Verdict:
    networks = select_sgd(run, DEEP)
    values = singular_values(networks, layer)
    drop = range_words(values[:, 1] / values[:, 2], ".2g")
    words = f"the widest is after the second value in {{count}} seeds, where they fall {drop} times"
    beside = {
        "gap": every(widest_gaps(values), at_least=2, at_most=2, say=words),
        "W − W₀": _rank_two(networks, f"W{layer} added third"),
    }
    others = _other_starts(run, DEEP, lambda some: _rank_two(some, f"W{layer} third"))
    verdict = _rank_two(networks, f"W{layer} third", f"σ₃/σ₁ {{range:.3g}}; under {THIRD:g} in {{count}} seeds")
    return verdict.with_variants(beside | others)


def widest_gaps(values: np.ndarray) -> np.ndarray:
    """[network]: the number of the singular value after which the next is smaller by the largest factor."""
    return np.asarray(np.nanargmax(np.nan_to_num(values[:, :-1] / values[:, 1:]), -1) + 1)


def lemma_holds(sets: pa.Table) -> np.ndarray:
    """[set]: whether searches find one positive and one negative extremal direction, those of lemma 3.2."""
    positive, negative = (sets[f"{side} holds"].to_numpy() for side in ("positive", "negative"))
    return np.asarray((positive == 1) & (negative == 1))


@claims.claim(
    "B3",
    "extremal sectors",
    statement="on every set, {searches:,} searches up G and as many down end at one direction each, in the sectors of "
    "eqs. 3.13 and 3.14, or where no example is active",
    paper="exactly one positive and one negative extremal direction",
    when=lambda study: study.searches >= type(study)().searches,
)
def extremal_sectors(study: Orthogonal, run: Run) -> Verdict:
    sets = read_sets(run)
    found, separable = lemma_holds(sets), sets["wrong pairs"].to_numpy() == 0
    gap, off = (
        np.stack([sets[f"{side} {name}"].to_numpy() for side in ("positive", "negative")]) for name in ("gap", "off")
    )
    return Verdict(
        bool(found.all() and separable.all()),
        f"in {found.sum()} of {len(found)} sets; at most {gap.max():.1e} from the means of the classes; "
        f"{int(off.sum()):,} searches end where no example is active; {separable.sum()} sets are orthogonally "
        "separable",
        len(found),
    )


def _stay(networks: Networks) -> Verdict:
    """Every active neuron ends in the extremal sector of its sign, and none was seen to leave it."""
    inside, off = (range_words(100 * networks.end(name), spec) for name, spec in (("inside", ".4g"), ("off", ".3g")))
    # Rounded, as the difference of shares is not exact, and without a sign of zero.
    outside = np.round(1 - networks.end("inside") - networks.end("off"), 9) + 0.0
    words = f"{inside}% end in their own, {off}% are active for no example, {range_words(100 * outside)}% neither"
    return every(outside, at_most=0.0, say=words) & every(networks.end("left"), at_most=0.0, say="{sum:.0f} ever left")


_STAY = (
    "every neuron that is active for some example ends in the extremal sector of its sign, and none leaves it at any "
    "probe, in every seed"
)


@claims.claim(
    "B3",
    "flow, {kind}",
    statement=f"gradient flow from a balanced start of λ = {{least:g}}, {{points_words}}: {_STAY}",
    paper="converge to extremal sectors, and remain",
    values_are="share of neurons that end elsewhere, per seed",
    when=lambda study: (
        min(study.flow_start) <= min(type(study)().flow_start)
        and study.flow_time >= type(study)().flow_time
        and _probed_enough(study)
    ),
    cases=lambda study, run: [
        {"kind": kind, "points_words": _KINDS[kind], "least": min(study.flow_start)} for kind in study.kinds
    ],
)
def flow_stays(study: Orthogonal, run: Run, kind: str, least: float, points_words: str) -> Verdict:
    found = {start: _stay(select_flow(run, kind, start)) for start in sorted(study.flow_start)}
    return found.pop(least).with_variants({f"λ = {start:g}": verdict for start, verdict in found.items()})


@claims.claim(
    "B3",
    "SGD",
    statement=f"SGD, two layers: {_STAY}",
    paper="converge to extremal sectors, and remain",
    values_are="share of neurons that end elsewhere, per seed",
    needs=_TWO,
    when=_probed_enough,
)
def sgd_stays(study: Orthogonal, run: Run) -> Verdict:
    networks = select_sgd(run, 2)
    output, norm, inside, off = (
        networks.array(name, "network student").dropna("student", how="all").to_numpy()
        for name in ("output", "norm", "inside", "off")
    )
    weight = np.abs(output) * norm
    outside = np.where((inside == 0) & (off == 0), weight, 0.0).sum(-1) / weight.sum(-1)
    words = f"those that are neither hold {range_words(100 * outside, '.2g')}% of Σ |a|‖w‖"
    return _stay(networks).also(words).with_variants(_other_starts(run, 2, _stay))
