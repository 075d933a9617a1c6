"""Reads the tables of a run of `multi-exit`: accuracies with their spread over seeds, beside the thesis' numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from jaxtyping import Float, Int

from understudy.papers.multi_exit.published import ANYTIME, BUDGET, Published
from understudy.store import Run

if TYPE_CHECKING:
    from understudy.papers.multi_exit.multi_exit.study import MultiExitStudy

Mode = Literal["budget", "anytime"]
MODES: tuple[Mode, ...] = ("budget", "anytime")
STANDARD_ERRORS = 1.96
"""Standard errors on each side of a mean that the thesis' tables give."""


class Accuracies(NamedTuple):
    """Test accuracies in % of the networks of one setting, or their differences from those of another, in points.

    Attributes:
        values: Accuracy for each number of exits that can be computed; NaN for a network that diverged at the start.
        network: Number of each network.
    """

    values: Float[np.ndarray, "net exit"]
    network: Int[np.ndarray, "net"]

    @property
    def mean(self) -> Float[np.ndarray, "exit"]:
        """Mean over networks; NaN where there is none."""
        return np.array([column.mean() if len(column) else np.nan for column in self._finite])

    @property
    def spread(self) -> Float[np.ndarray, "exit"]:
        """1.96 standard errors of the mean; NaN for fewer than two networks."""
        return np.array(
            [
                STANDARD_ERRORS * column.std(ddof=1) / np.sqrt(len(column)) if len(column) > 1 else np.nan
                for column in self._finite
            ]
        )

    @property
    def networks(self) -> int:
        """Number of networks with accuracies."""
        return int(np.isfinite(self.values).all(1).sum())

    def minus(self, other: Accuracies) -> Accuracies:
        """Subtract the accuracies of another setting, seed by seed.

        Args:
            other: The accuracies of networks with the same seeds.
        """
        return Accuracies(self.values - other.values, self.network)

    @property
    def _finite(self) -> list[np.ndarray]:
        return [column[np.isfinite(column)] for column in self.values.T]


def accuracies(run: Run, images: int, setting: str, mode: Mode, top: int = 5) -> Accuracies:
    """Select the test accuracies of the networks of a setting.

    Args:
        run: The run.
        images: Labelled images of each class.
        setting: Label of the setting, such as `distillation, T = 2`.
        mode: `budget`: of the exits that can be computed, the one with the best validation accuracy; `anytime`: the
            ensemble of these exits.
        top: k of the top-k accuracy, 1 or 5.

    Returns:
        The accuracies, one row per network.
    """
    networks = run.networks.to_pandas()
    chosen = networks[(networks["images"] == images) & (networks["setting"] == setting)]["network"]
    found = run.table("budgets").to_pandas()
    found = found[found["network"].isin(chosen)].sort_values(["network", "exit"])
    exits = int(found["exit"].max()) if len(found) else 0
    values = found[f"{mode}_top{top}"].to_numpy(float).reshape(-1, exits) if exits else np.zeros((0, 0))
    return Accuracies(100 * values, found["network"].to_numpy(int)[:: exits or 1])


def published(images: int, loss: str, mode: Mode) -> tuple[Published, ...]:
    """The thesis' top-5 accuracies in % for each number of exits (tables 6.2 and 6.4).

    Args:
        images: Labelled images of each class.
        loss: Name of the loss, as in `published.LOSSES`.
        mode: `budget` or `anytime`.

    Returns:
        One number per exit; empty where the thesis has none.
    """
    return (BUDGET if mode == "budget" else ANYTIME).get((images, loss), ())


def differences(run: Run, images: int, loss: str, mode: Mode) -> Float[np.ndarray, "exit"]:
    """Mean top-5 accuracy minus the thesis', in points, for each number of exits.

    Args:
        run: The run.
        images: Labelled images of each class.
        loss: Name of the loss; the setting with the paper's temperature and teachers has the same label.
        mode: `budget` or `anytime`.
    """
    theirs = np.array([each.value for each in published(images, loss, mode)])
    ours = accuracies(run, images, loss, mode).mean
    return ours - theirs if len(ours) == len(theirs) else np.full(len(theirs), np.nan)


def curves(run: Run, metric: str, networks: Sequence[int]) -> pd.DataFrame:
    """Values of a metric that is measured in every epoch, one row per epoch and one column per network.

    Args:
        run: The run.
        metric: Name of the metric, such as `confidence`.
        networks: Numbers of the networks.
    """
    found = run.metrics.to_pandas()
    found = found[(found["metric"] == metric) & found["network"].isin(networks)]
    return found.pivot(index="epoch", columns="network", values="value")


def accuracy_table(study: MultiExitStudy, run: Run) -> pa.Table:
    """Arrange the accuracies of all settings for a reader, beside the thesis' numbers.

    Args:
        study: The study.
        run: The run.

    Returns:
        One row per number of images, setting, mode and number of exits; accuracies in %.
    """
    rows: list[dict[str, object]] = []
    for images in study.images:
        for setting in study.settings(images):
            for mode in MODES:
                five, one = (accuracies(run, images, setting.label, mode, top) for top in (5, 1))
                theirs = published(images, setting.label, mode) if study.architecture_of_the_paper else ()
                for at, layer in enumerate(study.exits[: len(five.mean)]):
                    row = {"images": images, "setting": setting.label, "mode": mode, "exit": at + 1, "layer": layer}
                    row |= {"networks": five.networks, "top_5": five.mean[at], "top_5 ±": five.spread[at]}
                    row |= {"top_1": one.mean[at], "top_1 ±": one.spread[at]}
                    if theirs:
                        known = theirs[at]
                        row |= {
                            "thesis": known.value,
                            "thesis ±": known.spread,
                            "difference": five.mean[at] - known.value,
                        }
                    rows.append(row)
    columns = dict.fromkeys(name for row in rows for name in row)
    return pa.table({name: pa.array([row.get(name) for row in rows], from_pandas=True) for name in columns})
