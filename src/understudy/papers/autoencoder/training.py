"""What studies of Phuong 2021, ch. 4, compute: models trained side by side, their curves and files, exact values."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from understudy.lab.pieces import network_rows, table_rows
from understudy.nets.latent.files import load_codes, save_codes
from understudy.papers.autoencoder.settings import CodeMember
from understudy.training.latent.history import CodeHistory
from understudy.training.latent.plan import CodePlan
from understudy.training.latent.population import TrainedCodes, train_codes

if TYPE_CHECKING:
    from understudy.lab.study import Tables, Workplace
    from understudy.papers.autoencoder.shared import CodeStudy

MODELS = "models"
"""Folder of a run with the trained networks."""
_SPEAK = 15.0
"""Seconds from one line of progress to the next."""


def train_members(study: CodeStudy, members: Sequence[CodeMember], first: int, place: Workplace) -> Tables:
    """Train networks side by side, save each, and return their curves.

    Args:
        study: The study.
        members: The networks.
        first: Number of the first network.
        place: Where the state of the training is saved, and the networks.
    """
    plan = study.code_plan(members)
    trained = train_codes(
        plan,
        study.build,
        study.draw,
        folder=place.state,
        device=study.device,
        save_every=1,
        say=TrainingSpeaker(plan, place),
    )
    facts = [{"setting": each.setting.label, "seed": each.seed} for each in members]
    save_models(trained, place.run, [each.file for each in members], facts)
    return code_tables(first, members, trained)


def measure_exactly(study: CodeStudy, numbers: range, first: int, place: Workplace) -> Tables:
    """Measure trained networks exactly, except those that diverged, which have no file.

    Args:
        study: The study.
        numbers: Numbers of the networks.
        first: Number of the first network that is not trained yet, which is not used.
        place: The run, in which the networks are.
    """
    members = study.members()
    found: dict[str, list[pa.Table]] = {}
    for i in numbers:
        if not (file := place.run / MODELS / members[i].file).exists():
            continue
        model = load_codes(file).model
        values, tables = study.measure(model, members[i])
        kept = {name: value for name, value in values.items() if math.isfinite(value)}
        names, each = np.array(list(kept), object), np.array(list(kept.values()), float)
        found.setdefault("metrics", []).append(table_rows([i] * len(kept), study.steps, -1, metric=names, value=each))
        for name, table in tables.items():
            numbered = table.add_column(0, "network", pa.array(np.full(len(table), i, np.int32)))
            found.setdefault(name, []).append(numbered)
        place.say("")
    return {name: pa.concat_tables(parts) for name, parts in found.items()}


class TrainingSpeaker:
    """Reports the progress of a training.

    Args:
        plan: What is trained.
        place: Where lines are shown.
    """

    def __init__(self, plan: CodePlan, place: Workplace) -> None:
        self._plan, self._place = plan, place
        self._last, self._start, self._first = -math.inf, time.monotonic(), -1

    def __call__(self, step: int, history: CodeHistory) -> None:
        """Show a line if the last one is long ago.

        Args:
            step: Step of the training.
            history: What was measured so far.
        """
        now = time.monotonic()
        if self._first < 0:
            self._first, self._start = step, now
        if now - self._last < _SPEAK and step < self._plan.steps:
            return self._place.say("")
        self._last = now
        words = ""
        if lost := int((history.diverged > 0).sum()):
            words += f", {lost} of {len(self._plan.networks)} networks diverged"
        if step > self._first:
            left = (now - self._start) / (step - self._first) * (self._plan.steps - step)
            words += f", about {left / 60:.1f} min left"
        return self._place.say(f"training: step {step:,} of {self._plan.steps:,}{words}")


def save_models(
    trained: TrainedCodes,
    run: Path,
    names: Sequence[str],
    facts: Sequence[Mapping[str, Any]],
    vocabulary: Sequence[str] = (),
) -> None:
    """Write trained networks to the folder `models` of a run, except those that diverged.

    Args:
        trained: The population.
        run: Folder of the run.
        names: Name of the file of each.
        facts: What is known about each, by name.
        vocabulary: The words of models of sentences.
    """
    folder = run / MODELS
    folder.mkdir(exist_ok=True)
    for unfinished in folder.glob(".*"):  # left by a process that was killed while it wrote
        unfinished.unlink()
    for model, name, known, lost in zip(trained.models, names, facts, trained.history.diverged.tolist(), strict=True):
        if not lost:
            save_codes(model, folder / name, vocabulary=vocabulary, facts=known)


def code_tables(first: int, members: Sequence[CodeMember], trained: TrainedCodes) -> Tables:
    """Tables of a training: one row per network, and its curves, whose epochs are steps.

    Args:
        first: Number of the first network.
        members: The networks.
        trained: The population.
    """
    settings, diverged = [each.setting for each in members], trained.history.diverged.tolist()
    rows = network_rows(
        first,
        [each.seed for each in members],
        [step or None for step in diverged],
        setting=[each.label for each in settings],
        method=[each.method for each in settings],
        strength=[each.strength for each in settings],
        target=[math.nan if each.target is None else each.target for each in settings],
        penalty=[each.penalty for each in settings],
        resamples=[each.resamples for each in settings],
        start=[each.start for each in settings],
        model=["" if lost else f"{MODELS}/{each.file}" for each, lost in zip(members, diverged, strict=True)],
    )
    probes, parts = np.array(trained.plan.probes), []
    for name, values in ((name, each.numpy()) for name, each in trained.history.curves.items()):
        net, at = np.nonzero(np.isfinite(values))
        parts.append(table_rows(first + net, probes[at], -1, metric=f"training {name}", value=values[net, at]))
    return {"networks": rows, "metrics": pa.concat_tables(parts)}
