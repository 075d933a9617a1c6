"""Claims K1 and K2: what linear students learn, and their risk under its bound (Phuong 2021, sec. 5.3)."""

from typing import Any, NamedTuple

import numpy as np

from understudy.claims import Claims, Verdict
from understudy.papers.distillation.linear_distillation.study import DESCENT, FLOW, LEARNED, MARGIN, LinearDistillation
from understudy.papers.distillation.shared import estimates, read_settings
from understudy.store import Run
from understudy.store.arrays import Networks
from understudy.store.units import read_units, unit_array

NEAR = 1e-6
"""Distance from ŵ at which it counts as learned."""
ROUNDING = 1e-12

claims = Claims(free="device probes steps rate scales seeds students", least={"seeds": 1_000, "students": 20})


def select_students(run: Run, **where: Any) -> Networks | None:
    """Students that were followed over training; None if the run has none, as with data of the user's."""
    if "networks" not in run.tables or LEARNED not in run.select().values("part"):
        return None
    return run.select(part=LEARNED, **where)


def at_start(students: Networks, metric: str) -> np.ndarray:
    """[network]: a value recorded at the first probe, also of students that diverged later."""
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


def ends(students: Networks, exact: bool) -> Ends:
    """The ends of students, which must be as near as `NEAR` if they are exact, else as the ε of theorem 5.2."""
    error = np.nan_to_num(students.end("error"), nan=np.inf)
    allowed = np.full_like(error, NEAR) if exact else at_start(students, "epsilon")
    return Ends(error, allowed, at_start(students, "hold") > 0)


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
    sizes, exact = [n for n in study.learned_inputs if (n >= study.dim) == many], many or depth == 1
    flows, steps = (select_students(run, depth=depth, by=by, inputs=sizes) for by in (FLOW, DESCENT))
    if flows is None or steps is None:
        return None
    flow, descent = ends(flows, exact), ends(steps, exact)
    counts = flow.allowed[flow.counted]
    epsilon = "" if exact or not len(counts) else f", ε {counts.min():.2g} to {counts.max():.2g}"
    measured = f"{flow.words}{epsilon}; within {at_start(flows, 'off').max():.1g} of the closed form of its end"
    verdict = Verdict(flow.holds, measured, len(flow.error)).show(flow.error / flow.allowed, high=1.0)
    return verdict.with_variants(
        {"gradient descent, so far": Verdict(descent.holds, descent.words, len(descent.error))}
    )


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


def _under(means: np.ndarray, bound: np.ndarray) -> Verdict:
    real = bound > 0
    share = float((means[real] / bound[real]).max())
    return Verdict(bool((means <= bound + ROUNDING).all()), f"mean risk up to {share:.2g} of the bound", len(means))
