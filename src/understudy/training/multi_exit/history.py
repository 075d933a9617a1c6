"""What is measured while networks with several exits train, and what follows: model selection, budgets, ensembles."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields

import torch
from jaxtyping import Float, Int
from torch import Tensor

from understudy.training.multi_exit.plan import ExitPlan

TOPS = (1, 5)
"""Numbers k of the top-k accuracies that are measured."""


@dataclass(eq=False)
class ExitHistory:
    """What was measured during training; NaN where a network had diverged or an epoch has not come yet.

    Top-k accuracies have the axes [network, probe, mode, exit, k]: mode 0 are single exits and mode 1 the ensembles of
    the exits up to this one, whose probabilities are averaged; k is as in `TOPS`. Probes are those of the plan.

    Attributes:
        loss: Mean loss of each epoch.
        confidence: Mean confidence of the teachers in each epoch at temperature 1.
        adjusted: Mean confidence of the teachers at the temperature of each step.
        temperature: Temperature after each epoch.
        validation: Accuracy on the images for model selection.
        test: Accuracy on the test images.
        diverged: Epoch and step, both counted from 1, at which each network diverged; zeros if it has not.
        measures: What `on_probe` returned at each probe, by (epoch, name).
    """

    loss: Float[Tensor, "net epoch"]
    confidence: Float[Tensor, "net epoch"]
    adjusted: Float[Tensor, "net epoch"]
    temperature: Float[Tensor, "net epoch"]
    validation: Float[Tensor, "net probe mode exit top"]
    test: Float[Tensor, "net probe mode exit top"]
    diverged: Int[Tensor, "net 2"]
    measures: dict[tuple[int, str], Tensor] = field(default_factory=dict)

    @classmethod
    def empty(cls, plan: ExitPlan) -> ExitHistory:
        """The history before training.

        Args:
            plan: What is trained.
        """
        nets, exits = len(plan.networks), len(plan.grid.exits)
        epochs, probes = (nets, plan.epochs), (nets, len(plan.probes), 2, exits, len(TOPS))
        loss, confidence, adjusted, temperature, validation, test = (
            torch.full(shape, torch.nan, dtype=torch.float64) for shape in (*[epochs] * 4, *[probes] * 2)
        )
        diverged = torch.zeros(nets, 2, dtype=torch.int64)
        return cls(loss, confidence, adjusted, temperature, validation, test, diverged)

    @property
    def tensors(self) -> dict[str, Tensor]:
        """All but `measures`, by name."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name != "measures"}

    @property
    def alive(self) -> list[int]:
        """Networks that have not diverged."""
        return [i for i, (epoch, _) in enumerate(self.diverged.tolist()) if not epoch]

    def best(self) -> Int[Tensor, "net"]:
        """Choose the probe of each network by its validation accuracy.

        It is the one with the largest top-5 accuracy, averaged over all exits; among equal ones that with the largest
        mean top-1 accuracy, and then the last.

        Returns:
            Place among the probes of the plan; −1 where there is none.
        """
        chosen = []
        for means in self.validation[:, :, 0].mean(2).tolist():
            known = [(five, one, probe) for probe, (one, five) in enumerate(means) if not math.isnan(five)]
            chosen.append(max(known)[2] if known else -1)
        return torch.tensor(chosen)

    def at_best(self, accuracies: Float[Tensor, "net probe mode exit top"]) -> Float[Tensor, "net mode exit top"]:
        """Select the accuracies of each network at the probe that `best` chooses.

        Args:
            accuracies: `validation` or `test`.

        Returns:
            The accuracies; NaN for a network without a probe.
        """
        best = self.best()
        chosen = accuracies[torch.arange(len(best)), best.clamp(0)]
        return torch.where(best.view(-1, 1, 1, 1) < 0, torch.nan, chosen)

    def budget(self, top: int = 5) -> Float[Tensor, "net exit"]:
        """Test accuracy where the first exits fit a known budget (Phuong 2021, section 6.3.2).

        Of the first m exits that with the best validation accuracy is taken, the first of equal ones. Weights are those
        of the probe that `best` chooses.

        Args:
            top: k of the top-k accuracies, by which the exit is chosen too.

        Returns:
            The accuracy for each budget m; NaN for a network without a probe.
        """
        validation, test = (self.at_best(each)[:, 0, :, TOPS.index(top)] for each in (self.validation, self.test))
        exits = torch.stack([validation[:, : m + 1].argmax(1) for m in range(validation.shape[1])], dim=1)
        return test.gather(1, exits)

    def anytime(self, top: int = 5) -> Float[Tensor, "net exit"]:
        """Test accuracy of the ensembles of the first exits (Phuong 2021, section 6.3.3).

        Args:
            top: k of the top-k accuracies.

        Returns:
            The accuracy for each number of exits, with the weights of the probe that `best` chooses; NaN for a network
            without a probe.
        """
        return self.at_best(self.test)[:, 1, :, TOPS.index(top)]


def count_hits(
    logits: Float[Tensor, "net exit image class"], labels: Int[Tensor, "net image"]
) -> Float[Tensor, "net mode exit top"]:
    """Count the images whose class is among the k most probable ones.

    Of equally probable classes, the first is taken to be the most probable.

    Args:
        logits: Logits of every exit.
        labels: Class of each image.

    Returns:
        Counts for single exits and for the ensembles of the exits up to each, which average probabilities, and for each
        k of `TOPS`; NaN for a network whose logits are not all finite.
    """
    exits, classes = logits.shape[1], torch.arange(logits.shape[-1])
    ensembles = logits.softmax(-1).cumsum(1)  # sums rank classes as means do
    label = labels[:, None, :, None].expand(-1, exits, -1, 1)
    counts = torch.empty(len(logits), 2, exits, len(TOPS), dtype=torch.float64)
    for mode, scores in enumerate((logits, ensembles)):
        own = scores.gather(-1, label)
        rank = ((scores > own) | ((scores == own) & (classes < label))).sum(-1)
        for place, top in enumerate(TOPS):
            counts[:, mode, :, place] = (rank < top).sum(-1)
    counts[~logits.flatten(1).isfinite().all(1)] = torch.nan
    return counts
