"""Claim L1: most directions are flat for wide students of small teachers (Tian et al. 2019, sec. 1 and 3.3)."""

from collections.abc import Sequence
from functools import reduce
from operator import and_

import numpy as np
import xarray as xr

from understudy.claims import Claims, Verdict, every, mean_above, median, number, ordered, range_words
from understudy.papers.luck.flat_minima.study import FLAT, MATCHED, OTHERS, FlatMinima
from understudy.papers.luck.shared import ERRORS
from understudy.papers.specialization.shared import SEEN
from understudy.store import Run

WIDE, MOST, LOW = 5.0, 0.5, 0.1
"""Least width of the students whose irrelevant nodes are compared; a majority; a small share of the curvature."""
TRAINED = 1e-4
"""Median evaluation loss below which over-realized students count as trained."""

_NOISE_TUNED = "seeds 101 and 102; standard errors were required after seeds 1 to 10, which decide it, had been seen"

claims = Claims(free="seeds dtype device", least={"seeds": 10}, tuned_on="seeds 101 and 102")


def by_width(study: FlatMinima, run: Run, metric: str) -> xr.DataArray:
    """A metric of students of the first teacher, by width, seed and epoch."""
    first = study.teacher_nodes[0]
    found = run.array(metric, "student_nodes seed epoch", teacher_nodes=first)
    return found.rename(student_nodes="multiple").assign_coords(multiple=found["student_nodes"].to_numpy() / first)


def by_teacher(study: FlatMinima, run: Run, metric: str) -> xr.DataArray:
    """A metric of the widest students, by the number of teacher nodes, seed and epoch."""
    widest = max(n for _, n in study.groups)
    return run.array(metric, "teacher_nodes seed epoch", student_nodes=widest)


def ends(values: xr.DataArray) -> np.ndarray:
    """Values after training, [group, seed]."""
    return values.transpose(..., "seed", "epoch").isel(epoch=-1).to_numpy()


def _in_order(values: np.ndarray, names: Sequence[str], *, rising: bool = True, digits: str = ".3g") -> Verdict:
    """The mean over seeds rises, or falls, from each group to the next, by more than its noise; medians are shown."""
    medians = ordered(values, names, digits=digits)
    steps = np.diff(values, axis=0) * (1 if rising else -1)
    found = reduce(and_, (mean_above(step, errors=ERRORS) for step in steps))
    return found.say(f"medians {medians.measured}; {found.measured}").show(medians.values)


def _is_trained(study: FlatMinima, run: Run) -> bool:
    loss = by_width(study, run, "eval_loss")
    wide = loss.sel(multiple=loss["multiple"] > 1)
    return bool((wide.isel(epoch=-1).median("seed") < TRAINED).all())


def _provided(verdict: Verdict, study: FlatMinima, run: Run) -> Verdict:
    until = f"training until the median loss of over-realized students is below {number(TRAINED, 'g')}"
    return verdict.provided(_is_trained(study, run), until)


@claims.claim(
    "L1",
    "width",
    statement=f"share of the eigenvalues of the Hessian whose size is below {FLAT:g} of the largest, after training, "
    f"5 teacher nodes: rises with every width from 1× to 10×, mean over seeds by more than {ERRORS} standard errors",
    paper="over-parameterization yields flat minima",
    values_are="share of flat directions, median per width",
    tuned_on=_NOISE_TUNED,
)
def flatter_with_width(study: FlatMinima, run: Run) -> Verdict:
    share, first = by_width(study, run, "flat_share"), by_width(study, run, "hessian_eigenvalue_1")
    names = [f"{k:g}×" for k in share["multiple"].to_numpy()]
    start = ", ".join(number(v, ".2f") for v in share.isel(epoch=0).median("seed").to_numpy())
    largest = ordered(ends(first), names, rising=False)
    found = _in_order(ends(share), names, digits=".2f").also(f"before training {start}")
    return _provided(found.with_variants({"largest eigenvalue falls": largest}), study, run)


@claims.claim(
    "L1",
    "most directions",
    statement=f"share of the eigenvalues of the Hessian whose size is below {FLAT:g} of the largest, after training, "
    "5 teacher nodes, 10×: above one half in every seed",
    paper="movement along most dimensions changes little",
    values_are="share of flat directions, per seed",
)
def mostly_flat(study: FlatMinima, run: Run) -> Verdict:
    share = by_width(study, run, "flat_share")
    return _provided(every(ends(share)[-1], above=MOST, say="{range:.2f}"), study, run)


@claims.claim(
    "L1",
    "irrelevant nodes, {k:g}×",
    statement=f"curvature along the incoming weights of students below correlation {OTHERS:g} that are active on "
    f"{SEEN[0]:.0%} to {SEEN[1]:.0%} of the inputs, mean per student, against that of students above {MATCHED:g}, "
    f"after training, 5 teacher nodes: median over seeds at most {LOW:g}",
    paper="W_r can be changed without affecting the outputs",
    values_are="ratio of curvatures, per seed",
    cases=lambda study, run: [{"k": k} for k in study.multiple if k >= WIDE],
    tuned_on="seeds 101 and 102; that only students active on part of the inputs count: seeds 1 to 10, which decide it",
)
def irrelevant_nodes_are_flat(study: FlatMinima, run: Run, k: float) -> Verdict:
    names = ("curvature_matched", "curvature_others", "curvature_all_others", "others", "unseen")
    matched, seen, everyone, count, unseen = (ends(by_width(study, run, name).sel(multiple=k)) for name in names)

    def test(curvature: np.ndarray, counted: np.ndarray) -> Verdict:
        words = f"{{median:.3f}} (seeds {{range:.3f}}), {range_words(counted)} such students"
        return median(curvature / matched, at_most=LOW, say=words)

    beside = {"those active on all or no inputs included": test(everyone, count)}
    return _provided(test(seen, count - unseen).with_variants(beside), study, run)


@claims.claim(
    "L1",
    "{part}",
    statement="{words}, after training, 50 student nodes: {moves} from 5 to 25 to 50 teacher nodes, mean over seeds by "
    f"more than {ERRORS} standard errors",
    paper="sharp minima come with large teachers",
    values_are="median per teacher",
    tuned_on=_NOISE_TUNED,
    cases=lambda study, run: [
        {
            "part": "teacher size, flat directions",
            "words": f"share of the eigenvalues of the Hessian whose size is below {FLAT:g} of the largest",
            "moves": "falls",
            "metric": "flat_share",
        },
        {
            "part": "teacher size, largest eigenvalue",
            "words": "largest eigenvalue of the Hessian",
            "moves": "rises",
            "metric": "hessian_eigenvalue_1",
        },
    ],
)
def sharper_with_the_teacher(study: FlatMinima, run: Run, part: str, words: str, moves: str, metric: str) -> Verdict:
    values, loss = by_teacher(study, run, metric), by_teacher(study, run, "eval_loss")
    names = [f"{m} teacher nodes" for m in values["teacher_nodes"].to_numpy()]
    losses = ", ".join(number(v, ".1e") for v in loss.isel(epoch=-1).median("seed").to_numpy())
    return _provided(_in_order(ends(values), names, rising=moves == "rises").also(f"losses {losses}"), study, run)
