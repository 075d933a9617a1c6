"""Claims K1 and K2: what linear students learn, how fast, and their risk under its bound (Phuong 2021, sec. 5.3)."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from understudy.claims import Claims, Verdict, every, range_words
from understudy.papers.distillation.linear_distillation.study import (
    APPROXIMATE,
    DESCENT,
    FLOW,
    LEARNED,
    MARGIN,
    NEAR,
    LinearDistillation,
)
from understudy.papers.distillation.shared import estimates, read_settings
from understudy.store import Run
from understudy.store.arrays import Networks
from understudy.store.units import read_units, unit_array

ROUNDING = 1e-12
ERRORS, FEWEST = 2.0, 30
"""Standard errors by which the risk must fall, if at least FEWEST of the sets before have a risk above 0."""
LAST = 0.95
"""Share of the limit's rate that the last fitted rate of the loss must reach."""

claims = Claims(
    free="device probes steps rate noise scales seeds students",
    least={"seeds": 1_000, "students": 20},
    tuned_on="20 other sets in 20 dimensions",
)


def select_students(run: Run, **where: Any) -> Networks | None:
    """Students that were followed over training; None if the run has none, as with data of the user's."""
    if "networks" not in run.tables or LEARNED not in run.select().values("part"):
        return None
    return run.select(part=LEARNED, **where)


def at_start(students: Networks, metric: str) -> np.ndarray:
    """Value recorded at the first probe, [network], also of students that diverged later."""
    return students.array(metric, diverged=True).isel(epoch=0).to_numpy()


class Ends(NamedTuple):
    """Distances of students from ŵ at the end, and what the theorems allow."""

    error: np.ndarray
    """Infinite for students that diverged."""
    allowed: np.ndarray
    counted: np.ndarray
    """Which students meet the conditions of theorem 5.2 at the start."""

    @property
    def within(self) -> np.ndarray:
        return self.error <= self.allowed * (1 + ROUNDING)

    @property
    def holds(self) -> bool:
        return bool(self.counted.any() and self.within[self.counted].all())

    @property
    def words(self) -> str:
        counted = self.error[self.counted]
        far = f", largest distance {counted.max():.2g}" if len(counted) else ""
        failing = int((~self.counted).sum())
        missing = f"; conditions fail in {failing} more, which do not count" if failing else ""
        return f"{(self.within & self.counted).sum()} of {len(counted)} networks{far}{missing}"


def ends(students: Networks) -> Ends:
    """The ends of students, which must be as near as `NEAR`, or for deep ones of n < d as the ε of theorem 5.2."""
    error = np.nan_to_num(students.end("error"), nan=np.inf)
    return Ends(error, at_start(students, "allowed"), at_start(students, "hold") > 0)


def arrivals(students: Networks, most: int) -> Verdict:
    """Whether descent came as near to ŵ as allowed; not decided while some students have not within the steps taken."""
    steps, found = at_start(students, "steps"), ends(students)
    there = np.isfinite(steps)
    words = f"{there.sum()} of {len(steps)} networks"
    words += f", after {range_words(steps[there], ',.0f')} steps" if there.any() else ""
    if not there.all():
        words += f"; the others at {range_words((found.error / found.allowed)[~there])} times the distance"
    return Verdict(True, words, len(steps)).provided(there.all(), f"more than {most:,} steps")


def _cases(study: LinearDistillation, run: Run) -> list[dict[str, Any]]:
    """Every depth with fewer inputs than dimensions, and with at least as many."""
    cases = []
    for depth in sorted(study.depths):
        for many in (False, True):
            exact = many or depth == 1
            words = {
                "size": "n ≥ d" if many else "n < d",
                "near": f"within {NEAR:g} of" if exact else "within theorem 5.2's ε of",
                "target": "the teacher" if many else "its projection ŵ",
                "rule": "" if depth == 1 else ", in every network whose start meets (5.11) to (5.13)",
                "up_to": "" if exact else ", up to ε",
            }
            cases.append({"depth": depth, "many": many} | words)
    return cases


@claims.claim(
    "K1",
    "L = {depth}, {size}",
    statement="L = {depth}, {size}: gradient flow ends {near} {target}{rule}",
    paper="ŵ = w* for n ≥ d, its projection for n < d{up_to}",
    values_are="distance over the allowed distance, per network",
    cases=_cases,
)
def students_learn(study: LinearDistillation, run: Run, depth: int, many: bool, **words: str) -> Verdict | None:
    sizes = [n for n in study.learned_inputs if (n >= study.dim) == many]
    flows = select_students(run, depth=depth, by=FLOW, inputs=sizes)
    if flows is None:
        return None
    flow, exact = ends(flows), many or depth == 1
    counts = flow.allowed[flow.counted]
    epsilon = "" if exact or not len(counts) else f", ε {counts.min():.2g} to {counts.max():.2g}"
    measured = f"{flow.words}{epsilon}; within {at_start(flows, 'off').max():.1g} of the closed form of its end"
    verdict = Verdict(flow.holds, measured, len(flow.error)).show(flow.error / flow.allowed, high=1.0)
    beside = {"gradient descent, as near as that": DESCENT}
    if depth > 1:
        beside[f"and from starts balanced only to within noise of {study.noise:.0%}"] = APPROXIMATE
    return verdict.with_variants(
        {
            name: arrivals(run.select(part=LEARNED, depth=depth, inputs=sizes, by=by), study.steps)
            for name, by in beside.items()
        }
    )


@claims.claim(
    "K1",
    "L = {depth}, rate",
    statement="L = {depth}: along gradient flow ℓ(t) ≤ ℓ(0) e^(−ct) with the c of the proof, in every set, and at the "
    f"end the loss decays at {LAST:g} times the rate of the linearised flow or faster",
    paper="ℓ(t) ≤ ℓ(0) e^(−ct) for some c > 0 (theorems D.3, 5.1, 5.2)",
    values_are="least fitted rate over c, per network",
    cases=lambda study, run: [{"depth": depth} for depth in sorted(study.depths)],
    tuned_on="seeds 101 to 120",
)
def loss_decays(study: LinearDistillation, run: Run, depth: int) -> Verdict | None:
    flows = select_students(run, depth=depth, by=FLOW)
    if flows is None:
        return None
    slowest, proved, last, limit = (at_start(flows, f"{name} rate") for name in ("slowest", "proved", "last", "limit"))
    met = at_start(flows, "hold") > 0
    ratios = np.where(proved > 0, slowest / np.where(proved > 0, proved, 1.0), 0.0)[met]
    verdict = every(ratios, at_least=1.0, say="the slowest fitted rate is {least:.2g} to {most:.2g} times c")
    words = "the last rate {median:.3g} times that of the linearised flow (median; {range:.3g})"
    return verdict & every((last / limit)[met], at_least=LAST, say=words)


@claims.claim(
    "K2",
    "{task}, L = {depth}",
    statement="{task} task, L = {depth}: the mean risk over sets is at most the bound of {theorem}, at the best β, at "
    "every n",
    paper="measured risk under the bound",
    values_are="mean risk over the bound where that is above 0, per n",
    cases=lambda study, run: [
        {
            "task": task,
            "depth": depth,
            "theorem": "theorem 5.3" if depth == 1 else "theorem D.4, with sets of which nothing is known as errors",
        }
        for task in study.tasks()
        for depth in sorted(study.depths)
    ],
)
def risk_under_bound(study: LinearDistillation, run: Run, task: str, depth: int, theorem: str) -> Verdict:
    settings, where = read_settings(run, part="risk"), {"task": task, "depth": depth}
    found = estimates(settings, "risk", "inputs", **where)
    means, low, sizes = (found[name].to_numpy() for name in ("mean", "low", "inputs"))
    bound = unit_array(settings, "bound", "inputs", **where).to_numpy()
    over, sure = means > bound + ROUNDING, low > bound + ROUNDING
    real = bound > 0
    shares = means[real] / bound[real]
    words = f"at all {len(sizes)} n"
    if over.any():
        chance = ", ".join(map(str, sizes[over & ~sure])) or "none"
        words = f"not at n = {', '.join(map(str, sizes[over]))}, of which the low limits are under it at {chance}"
    words += (
        f"; largest share of a bound {shares.max():.2g}; mean risk {means[0]:.2g} at n = {sizes[0]}, "
        f"{means[real][-1]:.2g} at n = {sizes[real][-1]}"
    )
    others = {"printed bound": "as printed"}
    if depth == 1:  # corollaries are about students that end in ŵ
        others["corollary"] = "corollary 5.1" if task == MARGIN else "corollary 5.2"
    beside = {
        label: _under(means, unit_array(settings, name, "inputs", **where).to_numpy()) for name, label in others.items()
    }
    sets = unit_array(read_units(run, "sets", part="risk"), "risk", "inputs seed", **where).sizes["seed"]
    return Verdict(not over.any(), words, sets).show(shares, high=1.0).with_variants(beside)


def _corollaries(study: LinearDistillation, run: Run) -> list[Mapping[str, Any]]:
    names = {False: "(1 + (log n)^κ)/n^κ, the bound of corollary 5.2", True: "γⁿ, the bound of corollary 5.1"}
    return [{"task": task, "corollary": names[task == MARGIN]} for task in study.tasks()]


@claims.claim(
    "K2",
    "{task}, decay",
    statement="{task} task, L = 1: up to n = d − 1 the mean risk decays at least as fast as {corollary}: their ratio "
    f"falls from each n to the next by more than {ERRORS:g} standard errors",
    paper="the risk decays at the rate of the bound or faster",
    values_are="fall of the ratio in standard errors, per step of n",
    cases=_corollaries,
    when=lambda study: 1 in study.depths and len(study.inputs) > 2 and not study.data,
    tuned_on="seeds 100,001 to 110,000",
)
def risk_decays(study: LinearDistillation, run: Run, task: str, corollary: str) -> Verdict:
    where = {"task": task, "depth": 1}
    sets = unit_array(read_units(run, "sets", part="risk"), "risk", "inputs seed", **where)
    sets = sets.sel(inputs=sets["inputs"] < study.dim)
    bound = unit_array(read_settings(run, part="risk"), "corollary", "inputs", **where).sel(inputs=sets["inputs"])
    risk, sizes = sets.to_numpy() / bound.to_numpy()[:, None], sets["inputs"].to_numpy().astype(int)
    known = (risk[:-1] > 0).sum(1) >= FEWEST
    means, errors = risk.mean(1), risk.std(1, ddof=1) / math.sqrt(risk.shape[1])
    falls = -np.diff(means)[known] / np.hypot(errors[:-1], errors[1:])[known]
    shown = np.append(np.flatnonzero(known), np.flatnonzero(known)[-1] + 1) if known.any() else np.arange(0)
    words = ", ".join(f"{means[i]:.2g} at n = {sizes[i]}" for i in shown)
    verdict = every(falls, above=ERRORS, say=f"{words}; falls by {{range:.2g}} standard errors", n=risk.shape[1])
    verdict = verdict.provided(known.sum() > 1, f"{FEWEST} sets or more with a risk above 0 at several n")
    least = float(falls.min()) if len(falls) else 0.0
    # A fall within the errors cannot be told from none.
    return verdict.provided(abs(least) > ERRORS, f"more sets, until every step is beyond {ERRORS:g} standard errors")


def _under(means: np.ndarray, bound: np.ndarray) -> Verdict:
    real = bound > 0
    share = float((means[real] / bound[real]).max())
    return Verdict(bool((means <= bound + ROUNDING).all()), f"mean risk up to {share:.2g} of the bound", len(means))
