"""What a run of lottery tickets decides: D11."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from understudy.papers.luck.lottery.study import TICKETS
from understudy.papers.specialization.deep.claims import at, laid_out
from understudy.store import Claim, Run
from understudy.store.claims import Variant

if TYPE_CHECKING:
    from understudy.papers.luck.lottery.study import LotteryTickets

EXACT = -11.0
"""log10 loss under which a student is its teacher up to rounding: float32 leaves about −13."""
SHARE = 0.8
"""Of the seeds in which reset winners must end below redrawn ones."""
_PAPERS_POLARITY, _WIDE = 1.0, 10.0


class Cell(NamedTuple):
    """Networks of one polarity and over-realization, seed by seed: −1 and NaN where one diverged."""

    polarity: float
    multiple: float
    network: np.ndarray
    """[ticket, seed], tickets in their order."""
    loss: np.ndarray
    """[ticket, seed]: log10 evaluation loss at the end."""

    def of(self, ticket: str) -> np.ndarray:
        return self.loss[TICKETS.index(ticket)]

    def median(self, ticket: str) -> float:
        """NaN where every network diverged."""
        loss = self.of(ticket)[np.isfinite(self.of(ticket))]
        return float(np.median(loss)) if len(loss) else np.nan

    @property
    def gain(self) -> np.ndarray:
        """By how much reset winners end below redrawn ones, in powers of ten, where both came through."""
        both = self.of("reset") - self.of("redrawn")
        return both[np.isfinite(both)]

    @property
    def exact(self) -> dict[str, int]:
        return {ticket: int((self.of(ticket) < EXACT).sum()) for ticket in TICKETS}


def cells(study: LotteryTickets, run: Run) -> list[Cell]:
    """By polarity, then by over-realization, from small to large."""
    polarities, multiples = (sorted(map(float, values)) for values in (study.polarity, study.multiple))
    axes = {
        "polarity": np.array(polarities),
        "multiple": np.array(multiples),
        "ticket": np.array(TICKETS),
        "seed": np.arange(1, study.seeds + 1),
    }
    network = laid_out(run, axes)
    loss = np.log10(at(network, run.series("eval_loss")[:, -1]))
    return [Cell(p, k, network[i, j], loss[i, j]) for i, p in enumerate(polarities) for j, k in enumerate(multiples)]


class Finding(NamedTuple):
    """A claim as the networks of one cell decide it, and in few words what was measured."""

    claim: Claim
    brief: str


def claims(study: LotteryTickets, run: Run) -> list[Claim]:
    """Decided on p = 1; what other polarities gave, and how exact other widths became, stands beside it."""
    if not _papers_settings(study):
        return []
    alive = [cell for cell in cells(study, run) if len(cell.gain)]
    decided = []
    for cell in (each for each in alive if each.polarity == _PAPERS_POLARITY):
        same = [other for other in alive if other.multiple == cell.multiple]
        decided.append(_beside(_lower(cell), [(other, _lower(other)) for other in same if other is not cell]))
        if cell.multiple == _WIDE:
            decided.append(_beside(_exact(cell), [(other, _exact(other)) for other in alive if other is not cell]))
    return decided


def _papers_settings(study: LotteryTickets) -> bool:
    training = (study.epochs, study.steps, study.batch, study.lr)
    data = (study.dim, study.outputs, study.train, study.evaluation, study.input_std)
    return study.teacher_nodes == 20 and training == (100, 1_000, 16, 0.01) and data == (100, 50, 10_000, 10_000, 1.5)


def _beside(finding: Finding, others: list[tuple[Cell, Finding]]) -> Claim:
    beside = tuple(
        Variant(f"p = {cell.polarity:g}, {cell.multiple:g}×", found.brief, found.claim.holds) for cell, found in others
    )
    return replace(finding.claim, variants=beside)


def _lower(cell: Cell) -> Finding:
    gain = cell.gain
    share = float((gain < 0).mean())
    reset, redrawn, full = (cell.median(ticket) for ticket in TICKETS)
    brief = f"in {(gain < 0).sum()} of {len(gain)}"
    claim = Claim(
        id="D11",
        statement=f"winners reset to their first weights end below as many nodes drawn anew in at least {SHARE:.0%} of the seeds "
        "(below: log10 of the ratio of their evaluation losses)",
        paper=f"≥ {SHARE:.0%} of the seeds",
        measured=f"{brief} ({share:.0%}); median log10 losses {reset:.2f} against {redrawn:.2f}, full student {full:.2f}",
        n=len(gain),
        holds=share >= SHARE,
        part=f"lower, {cell.multiple:g}×",
        values=tuple(gain.tolist()),
        low=None,
        high=0.0,
    )
    return Finding(claim, brief)


def _exact(cell: Cell) -> Finding:
    found, reset = cell.exact, cell.of("reset")
    reset = reset[np.isfinite(reset)]
    full = cell.of("full")
    lowest = full[np.isfinite(full)].min(initial=np.inf)
    brief = f"{found['reset']} of {len(reset)}, full student {found['full']}"
    claim = Claim(
        id="D11",
        statement=f"some reset winners reach the teacher exactly, log10 evaluation loss below {EXACT:g}, which no full student "
        "does in as many steps (below: log10 loss of each network of reset winners)",
        paper="some, and no full student",
        measured=f"{found['reset']} of {len(reset)} reset, {found['redrawn']} redrawn, {found['full']} full; lowest reset "
        f"{reset.min():.2f}, lowest full {lowest:.2f}",
        n=len(reset),
        holds=found["reset"] > 0 and found["full"] == 0,
        part=f"exact, {cell.multiple:g}×",
        values=tuple(reset.tolist()),
        low=None,
        high=EXACT,
    )
    return Finding(claim, brief)
