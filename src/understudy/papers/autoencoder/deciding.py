"""Claim M1 on runs of either study: the information is what was asked for, and nothing where nothing was."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from understudy.claims import Verdict, every, range_words
from understudy.papers.autoencoder.results import results, values_of
from understudy.papers.autoencoder.settings import BETA
from understudy.papers.autoencoder.shared import CodeStudy
from understudy.store import Run

NEAR = 0.1
"""Largest distance of the information from its target, in nats."""


def information_is_near(study: CodeStudy, run: Run, penalty: float, targets: Sequence[float]) -> Verdict:
    """Decide whether the information of mutual autoencoders is within `NEAR` of its targets, in every seed.

    Args:
        study: The study.
        run: The run.
        penalty: C.
        targets: Those of its targets that count.
    """
    found = results(run)
    settings = [setting for setting in study.mutual(penalty) if setting.strength in targets]
    reached = [values_of(found, setting, "information") for setting in settings]
    off = [values - setting.strength for values, setting in zip(reached, settings, strict=True)]
    words = ", ".join(
        f"{range_words(values, '.2f')} at M = {setting.strength:.4g}"
        for values, setting in zip(reached, settings, strict=True)
    )
    return every(np.concatenate(off), at_least=-NEAR, at_most=NEAR, n=study.seeds, say=words)


def code_collapses(study: CodeStudy, run: Run) -> Verdict:
    """Decide whether plain variational autoencoders, and models with M = 0, have at most `NEAR` nats, in every seed.

    Args:
        study: A study with both among its settings.
        run: The run.
    """
    found = results(run)
    plain = [setting for setting in study.remedies() if (setting.method, setting.strength) == (BETA, 1.0)]
    zero = [setting for setting in study.mutual() if setting.strength == 0]
    values = np.concatenate([values_of(found, setting, "information") for setting in plain + zero])
    return every(values, at_most=NEAR, n=study.seeds, say="{range:.4f} nats")
