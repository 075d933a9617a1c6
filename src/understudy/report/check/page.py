"""The page of `understudy check`: which teacher nodes are certified, and each finding with what it rests on."""

from __future__ import annotations

from collections.abc import Sequence

from understudy.report.check.view import ChecksView, widths
from understudy.report.page.templates import asset, render
from understudy.theory.summary import NetworkCheck


def check_page(networks: Sequence[NetworkCheck], of: int, command: str, notes: Sequence[str] = ()) -> bytes:
    """Write the report as an HTML file: one network in full, several folded under one line each.

    Args:
        networks: Checks of the networks that were selected.
        of: Number of networks there are.
        command: Command line that repeats the check.
        notes: How the files of the networks were read, and what was assumed about them.

    Returns:
        The HTML file.
    """
    view = ChecksView.of(networks, of)
    (_, first), *others = view.networks
    return render(
        "check.html",
        title=f"{len(networks)} networks" if others or not first else first.networks,
        view=view,
        alone=not others,
        widths=widths(),
        command=command,
        notes=notes,
        css=asset("page.css") + asset("check.css"),
    )
