"""What a run of linear-distillation decides: K1 and K2."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from understudy.papers.distillation.linear_distillation.study import BOUNDS, DESCENT, FLOW, LEARNED, MARGIN, RISK
from understudy.papers.distillation.shared import Cell, cells
from understudy.store import Claim, Run
from understudy.store.claims import Variant

if TYPE_CHECKING:
    from understudy.papers.distillation.linear_distillation.study import LinearDistillation

NEAR = 1e-6
"""Distance from ŵ that counts as having learned it."""
_ROUNDING = 1e-12
_FREE = ("device", "looks", "steps", "rate", "scales", "seeds", "students")
_SETS, _STUDENTS = 1_000, 20


class Followed(NamedTuple):
    """Students of one task, depth, number of inputs and way of training."""

    task: str
    depth: int
    inputs: int
    by: str
    networks: np.ndarray
    time: np.ndarray
    """[net, look]."""
    error: np.ndarray
    """[net, look]: distance from ŵ."""
    loss: np.ndarray
    epsilon: np.ndarray
    """[net]: what theorem 5.2 allows at the end."""
    gain: np.ndarray
    imbalance: np.ndarray
    hold: np.ndarray
    """[net]: whether conditions 5.11 to 5.13 do; of one layer nothing is asked."""
    off: np.ndarray
    """[net]: distance of the end from the closed form of flow's."""

    @property
    def end(self) -> np.ndarray:
        """[net]: infinite where it is lost."""
        return np.nan_to_num(self.error[:, -1], nan=np.inf)


def followed(run: Run) -> list[Followed]:
    if LEARNED not in set(run.column("part")):
        return []
    once = ("epsilon", "gain", "imbalance", "hold", "off")
    found = []
    for cell in cells(run, values=(), means=(), part=LEARNED):
        of, there = cell.parameters, cell.networks
        looks = int(np.isfinite(run.series("time")[there[0]]).sum())
        courses = [run.series(name)[there, :looks] for name in ("time", "error", "loss")]
        ends = [run.series(name)[there, 0] for name in once]
        found.append(Followed(of["task"], int(of["depth"]), int(of["inputs"]), of["by"], there, *courses, *ends))
    return found


def risks(run: Run) -> dict[tuple[str, int], list[Cell]]:
    """Of every task and depth a cell for each number of inputs, in their order."""
    there = set(run.metrics["metric"].unique().to_pylist())
    once = tuple(name for name in BOUNDS if name in there)
    found: dict[tuple[str, int], list[Cell]] = {}
    for cell in cells(run, values=("risk", "error", "hold"), once=once, part=RISK):
        found.setdefault((cell.parameters["task"], int(cell.parameters["depth"])), []).append(cell)
    return found


def claims(study: LinearDistillation, run: Run) -> list[Claim]:
    """Decided on the settings as they are by default, with no fewer sets and students."""
    plain = type(study)()
    if any(getattr(study, f.name) != getattr(plain, f.name) for f in fields(study) if f.name not in _FREE):
        return []
    if study.seeds < _SETS or study.students < _STUDENTS:
        return []
    every = followed(run)
    decided = []
    for depth in sorted(study.depths):
        for many in (False, True):
            of = [f for f in every if f.depth == depth and (f.inputs >= study.dim) == many]
            flows, steps = ([f for f in of if f.by == by] for by in (FLOW, DESCENT))
            decided.append(_learned(flows, steps, depth, many))
    return decided + [_under(task, depth, found) for (task, depth), found in risks(run).items()]


class Ends(NamedTuple):
    """Where students of a kind ended, beside what is allowed."""

    error: np.ndarray
    allowed: np.ndarray
    counted: np.ndarray
    """Those whose start meets the conditions."""

    @property
    def within(self) -> np.ndarray:
        return self.error <= self.allowed * (1 + _ROUNDING)

    @property
    def holds(self) -> bool:
        return bool(self.counted.any() and self.within[self.counted].all())

    @property
    def words(self) -> str:
        some = self.counted.all()
        missing = "" if some else f"; conditions fail in {(~self.counted).sum()} more, which do not count"
        kept = self.error[self.counted]
        far = f", largest distance {kept.max():.2g}" if len(kept) else ""
        return f"{(self.within & self.counted).sum()} of {self.counted.sum()} networks{far}{missing}"


def ends(found: list[Followed], many: bool) -> Ends:
    error, epsilon, hold = (np.concatenate([getattr(f, name) for f in found]) for name in ("end", "epsilon", "hold"))
    exact = many or found[0].depth == 1
    return Ends(error, np.full_like(error, NEAR) if exact else epsilon, hold > 0)


def _learned(flows: list[Followed], steps: list[Followed], depth: int, many: bool) -> Claim:
    flow, descent = ends(flows, many), ends(steps, many)
    whom, size = ("the teacher", "n ≥ d") if many else ("its projection ŵ", "n < d")
    exact = many or depth == 1
    near = f"within {NEAR:g} of" if exact else "within theorem 5.2's ε of"
    rule = "" if depth == 1 else ", in every network whose start meets (5.11) to (5.13)"
    share = flow.error / flow.allowed
    counts = flow.allowed[flow.counted]
    eps = "" if exact or not len(counts) else f", ε {counts.min():.2g} to {counts.max():.2g}"
    latest = max(f.off.max() for f in flows)
    return Claim(
        id="K1",
        statement=f"L = {depth}, {size}: gradient flow ends {near} {whom}{rule} (below: the distance, in parts of that)",
        paper="ŵ = w* for n ≥ d, its projection for n < d" + ("" if exact else ", up to ε"),
        measured=f"{flow.words}{eps}; within {latest:.1g} of the closed form of its end",
        n=len(flow.error),
        holds=flow.holds,
        part=f"L = {depth}, {size}",
        values=tuple(share[np.isfinite(share)].tolist()),
        low=None,
        high=1.0,
        variants=(Variant("gradient descent, so far", descent.words, descent.holds),),
    )


def _under(task: str, depth: int, found: list[Cell]) -> Claim:
    every = [(cell.means["risk"].mean, cell.means["risk"].low, cell.once["bound"]) for cell in found]
    means, low, bound = np.array(every).T
    sizes = [cell.parameters["inputs"] for cell in found]
    over = [n for n, mean, most in zip(sizes, means, bound, strict=True) if mean > most + _ROUNDING]
    sure = [n for n, least, most in zip(sizes, low, bound, strict=True) if least > most + _ROUNDING]
    real = bound > 0
    shares = means[real] / bound[real]
    words = f"at all {len(sizes)} n" if not over else f"not at n = {', '.join(map(str, over))}"
    if over:
        chance = [n for n in over if n not in sure]
        words += f", of which the low limits are under it at {', '.join(map(str, chance)) or 'none'}"
    theorem = "theorem 5.3" if depth == 1 else "theorem D.4, and sets of which nothing is known as errors"
    return Claim(
        id="K2",
        statement=f"{task} task, L = {depth}: the mean risk over sets is at or under the bound of {theorem}, at the best β, at "
        "every n (below: in parts of the bound, where that is above 0)",
        paper="measured risk under the bound",
        measured=f"{words}; largest share of a bound {shares.max():.2g}; mean risk {means[0]:.2g} at n = {sizes[0]}, "
        f"{means[real][-1]:.2g} at n = {np.array(sizes)[real][-1]}",
        n=found[0].means["risk"].sets,
        holds=not over,
        part=f"{task}, L = {depth}",
        values=tuple(shares.tolist()),
        low=None,
        high=1.0,
        variants=_others(task, depth, means, found),
    )


def _others(task: str, depth: int, means: np.ndarray, found: list[Cell]) -> tuple[Variant, ...]:
    """The same with the bounds as they are printed; corollaries are of students that end in ŵ."""
    corollary = "corollary 5.1" if task == MARGIN else "corollary 5.2"
    each = []
    for name, words in (("printed bound", "as printed"), *((("corollary", corollary),) if depth == 1 else ())):
        bound = np.array([cell.once[name] for cell in found])
        real = bound > 0
        share = float((means[real] / bound[real]).max())
        under = bool((means <= bound + _ROUNDING).all())
        each.append(Variant(words, f"mean risk up to {share:.2g} of the bound", under))
    return tuple(each)
