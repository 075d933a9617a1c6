"""Claim T7: students leave a stronger teacher node for a weaker one (Tian 2019, fig. 6)."""

import numpy as np
import torch

from understudy.claims import Claims, Verdict, every
from understudy.lab.recovery import strengths
from understudy.measures import FOLLOWS, THRESHOLD, focus_shifts
from understudy.papers.specialization.focus_shift.study import FocusShifting
from understudy.store import Run

POLARITY = 1.0
"""The polarity of Tian 2019, fig. 6."""


def shifted_students(run: Run, networks: np.ndarray) -> list[np.ndarray]:
    """Which students of each network left a stronger teacher node for a weaker one, as `focus_shifts` says."""
    strength = strengths(run)

    def shifted(network: int) -> np.ndarray:
        pairs, norms = (torch.from_numpy(each)[None] for each in (run.pairs(network), strength[network]))
        return focus_shifts(pairs, norms)[0].numpy()

    return [shifted(int(network)) for network in networks]


def _long_enough(study: FocusShifting) -> bool:
    """At least the 40 epochs of 1,000 steps that the paper's figure shows, probed as often."""
    return study.epochs * study.steps >= 40_000 and study.steps <= 1_000


claims = Claims(
    fixed="teacher_nodes batch lr dim outputs train input_std",
    when=_long_enough,
    tuned_on="an earlier trial, whose seeds are not recorded",
)


@claims.claim(
    "T7",
    "{k:g}×",
    statement=f"at least one student per network whose best teacher node (correlation above {FOLLOWS:g}) changes from "
    f"a stronger to a weaker one and that ends above {THRESHOLD:g}",
    paper="at least 1 (S1 fig. 6 shows one in each of 3 seeds)",
    values_are="students that shift, per network",
    cases=lambda study, run: [{"k": k} for k in run.select().values("multiple")],
)
def some_student_shifts(study: FocusShifting, run: Run, k: float) -> Verdict | None:
    networks = run.select(polarity=POLARITY, multiple=k)
    counts = [students.sum() for students in shifted_students(run, networks.index[networks.alive])]
    words = "{least:g} to {most:g} per network, median {median:g}; at least one in {count}"
    return every(counts, at_least=1.0, say=words) if counts else None
