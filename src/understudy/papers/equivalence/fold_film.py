"""Films of fold-sets: how the folds of a network move during training."""

from __future__ import annotations

from collections.abc import Sequence

from understudy._errors import UserError
from understudy.nets.given_networks import Network
from understudy.papers.equivalence.fold_sets import folds
from understudy.papers.equivalence.theory.plane import Window
from understudy.papers.equivalence.theory.relu_network import ReluNetwork
from understudy.report.figures import FoldSets


def film(
    networks: Sequence[Network | ReluNetwork],
    times: Sequence[int],
    window: Window | None = None,
    *,
    teacher: Network | ReluNetwork | None = None,
    which: int = 0,
    time_name: str = "epoch",
    least: float = 0.0,
) -> FoldSets:
    """Show how the folds of a network with two inputs move during training.

    Args:
        networks: The network at several times.
        times: The times.
        window: The window, as for `folds`.
        teacher: The teacher, whose folds are drawn behind those of the network.
        which: Index of the network in populations.
        time_name: What the times are.
        least: Least jump of the gradient at folds that are shown, as a share of the largest gradient.

    Returns:
        A figure: a film on the page, and up to four times on paper.

    Raises:
        UserError: No network, another number of times, or what `folds` raises.
    """
    if not networks:
        raise UserError("must contain at least one network, got none", "networks")
    if len(networks) != len(times):
        raise UserError(f"must have one time for each of the {len(networks)} networks, got {len(times)}", "times")
    found = [folds(network, window, which=which) for network in networks]
    behind = None if teacher is None else folds(teacher, window, which=which).panel(least=least).segments
    panels = tuple(each.panel(f"{time:,}", least=least) for each, time in zip(found, times, strict=True))
    plane = found[0].subdivision.plane
    note = f"n = {found[0].cells:,} to {found[-1].cells:,} cells"
    return FoldSets(panels, plane.lower, plane.upper, note, behind, time_name)
