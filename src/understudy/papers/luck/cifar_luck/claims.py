"""What a run of wide students of trained teachers on CIFAR-10 decides: D6."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from understudy.lab.images import layers_of, percent
from understudy.papers.specialization.deep.claims import at, laid_out
from understudy.store import Claim, Run

if TYPE_CHECKING:
    from understudy.papers.luck.cifar_luck.study import CifarLuck

KINDS = {"fc": "FC", "cnn": "ConvNet"}
NORMS = {"none": "no BatchNorm", "after": "BatchNorm"}
PAPERS = {"fc": 0.5495, "cnn": 0.864}
"""Accuracy of the paper's teachers (S2 sec 5.1)."""
BEHIND = 0.01


@dataclass(frozen=True, eq=False)
class Cells:
    """Networks [setting, seed] of a run, a setting a kind and BatchNorm, and what they did; NaN where one diverged."""

    settings: tuple[tuple[str, str], ...]
    network: np.ndarray
    rho: np.ndarray
    """Mean best correlation [setting, seed, layer, epoch], NaN beyond a network's layers."""
    rank: np.ndarray
    """Mean rank of the final winners, likewise; NaN at epochs at which it was not looked up."""
    accuracy: np.ndarray
    """[setting, seed, epoch]"""
    teacher: np.ndarray

    @classmethod
    def of(cls, study: CifarLuck, run: Run) -> Cells:
        axes = {"network_kind": np.array(study.networks), "norm": np.array(study.norm)}
        laid = laid_out(run, axes | {"seed": np.array(study.seed_names)})
        network = laid.reshape(-1, study.seeds)
        rho, rank = (at(network, layers_of(run, study.depth, metric)) for metric in ("rho_mean", "mean_rank"))
        accuracy, teacher = (at(network, run.series(metric)) for metric in ("accuracy", "teacher_accuracy"))
        settings = tuple((kind, norm) for kind in study.networks for norm in study.norm)
        return cls(settings, network, rho, rank, accuracy, teacher)

    @property
    def titles(self) -> tuple[str, ...]:
        return tuple(f"{KINDS[kind]}, {NORMS[norm]}" for kind, norm in self.settings)


def claims(study: CifarLuck, run: Run) -> list[Claim]:
    """Two parts of D6 for each setting with a network that did not diverge."""
    if not _papers_settings(study):
        return []
    cells, found = Cells.of(study, run), []
    for i, ((kind, _), title) in enumerate(zip(cells.settings, cells.titles, strict=True)):
        alive = cells.network[i] >= 0
        if not alive.any():
            continue
        rho = cells.rho[i][alive][:, : len(study.layers(kind))]
        grown = rho[..., -1] - rho[..., 0]
        ends = " to ".join(", ".join(f"{r:.2f}" for r in rho[..., e].mean(axis=0)) for e in (0, -1))
        found.append(
            Claim(
                id="D6",
                statement="mean best correlation is higher as training ended than before, at every layer of every network "
                "(below: by how much)",
                paper="grows",
                measured=f"{ends}, from the lowest layer up",
                n=int(alive.sum()),
                holds=bool((grown > 0).all()),
                part=f"{title}, correlation",
                values=tuple(grown.ravel().tolist()),
                low=0.0,
            )
        )
        ahead = (cells.accuracy[i] - cells.teacher[i])[alive, -1]
        taught = percent(float(cells.teacher[i][alive, -1].mean()))
        found.append(
            Claim(
                id="D6",
                statement=f"evaluation accuracy, mean over seeds: at most {100 * BEHIND:g} point below the teacher's (below: "
                "points above it, a network each)",
                paper=f"often about 1 point above; teacher {percent(PAPERS[kind])}",
                measured=f"{100 * ahead.mean():+.2f} points; teacher {taught}",
                n=len(ahead),
                holds=bool(ahead.mean() >= -BEHIND),
                part=f"{title}, accuracy",
                values=tuple((100 * ahead).tolist()),
                low=-100 * BEHIND,
            )
        )
    return found


def _papers_settings(study: CifarLuck) -> bool:
    """Neither rates nor epochs are in the paper."""
    return (
        (study.fc_layers, study.cnn_layers, study.over_realization) == ((50, 75, 100, 125), (64, 64, 64), 10)
        and (study.train, study.evaluation) == (50_000, 10_000)
        and study.epochs >= 10
        and study.teacher_epochs >= 10
    )
