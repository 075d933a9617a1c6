"""Output of `understudy check` in the terminal: the verdict first, then what it rests on."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from statistics import median_low

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from understudy._citations import cite
from understudy._numbers import number
from understudy.report.check.view import ChecksView, CheckView, FindingView, NodeView, describe_factor, widths
from understudy.report.terminal.tables import plain_table
from understudy.theory.summary import NetworkCheck, common_failures

MOST_NETWORKS, MOST_NODES = 20, 40
"""Rows that are readable in a terminal."""
_STYLES = {"sure": "green", "bad": "bold red", "open": "dim"}


def as_text(networks: Sequence[NetworkCheck], of: int) -> str:
    """Format the report as plain text.

    Args:
        networks: Checks of the networks that were selected.
        of: Number of networks there are.

    Returns:
        Lines of at most 120 characters.
    """
    console = Console(file=io.StringIO(), width=120, no_color=True, highlight=False, markup=False, emoji=False)
    print_checks(console, networks, of)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().rstrip("\n")


def print_checks(console: Console, networks: Sequence[NetworkCheck], of: int) -> None:
    """Print the whole report of one network, or one line per network for several."""
    view = ChecksView.of(networks, of)
    console.print(Text(view.headline, style="bold"), soft_wrap=True)
    (_, first), *others = view.networks
    if not others and first:
        _print_check(console, view, first)
        return
    if len(networks) < of:
        console.print(f"{len(networks)} of {of:,} networks were checked; --network selects others")
    _print_samples(console, view)
    table = _table("network", "certified", "ε", "aligned students", "what most nodes lack")
    for each in networks[:MOST_NETWORKS]:
        table.add_row(*_row(each))
    console.print(table)
    if len(networks) > MOST_NETWORKS:
        console.print(f"and {len(networks) - MOST_NETWORKS} more")
    _print_lines(console, view.failures)


def _row(each: NetworkCheck) -> tuple[Text | str, ...]:
    if (check := each.check) is None:
        return str(each.network), "", "", "", Text(each.why, style="dim")
    eps = [node.certificate.eps or 0.0 for node in check.nodes if node.certificate]
    lacking = common_failures(check.nodes)
    return (
        str(each.network),
        f"{check.certified} of {len(check.nodes)}" if check.nodes else "",
        number(max(eps)) if eps else "",
        f"{sum(p.aligned for p in check.partners)} of {check.student_sizes[1]}" if check.partners else "",
        f"{lacking[0].name}{describe_factor(lacking[0])}" if lacking else Text(check.why_no_nodes, style="dim"),
    )


def _print_check(console: Console, view: ChecksView, of: CheckView) -> None:
    console.print(of.networks)
    _print_samples(console, view)
    if of.identities:
        _print_heading(console, "Identities", "hold at every sample, for all weights")
        _print_findings(console, of.identities)
    if of.data:
        _print_heading(console, "The data")
        _print_grid(console, of.data)
        _print_bands(console, of)
    if of.classes:
        _print_heading(console, "Classes", "labelled samples, and the network as a classifier of them")
        _print_findings(console, of.classes)
    if of.teacher:
        _print_heading(console, "The teacher")
        _print_lines(console, of.teacher)
    if of.nodes:
        _print_heading(
            console, "Teacher nodes", "guarantee, samples needed (approximately), best observer, nearest student"
        )
        _print_nodes(console, of.nodes)
        _print_lines(console, of.failures)
    if of.students or of.other_student_findings:
        _print_heading(console, "Students")
        _print_lines(console, of.students)
        _print_findings(console, of.other_student_findings)
    if of.dynamics:
        _print_heading(console, "Dynamics")
        _print_findings(console, of.dynamics)
    if of.parameters:
        _print_heading(console, "Parameters", "what the function says about the weights behind it")
        _print_findings(console, of.parameters)
    if of.silent:
        _print_heading(console, "Stated for other networks")
        for names, why in of.silent:
            _print_lines(console, [names, f"  {why}"])


def _print_samples(console: Console, view: ChecksView) -> None:
    console.print(f"samples: {view.samples}", soft_wrap=True)
    if view.contradicted:
        words = f"{view.contradicted} findings contradict a result: please report them"
        console.print(Text(words, style="bold red"))


def _print_findings(console: Console, findings: Iterable[FindingView]) -> None:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    for finding, state, sign, summary in findings:
        grid.add_row(
            Text(f"  {sign}", style=_STYLES[state]),
            f"{cite(finding.result)}: {finding.about}",
            finding.measured if finding.applies else Text(summary, style="dim"),
        )
    console.print(grid)


def _print_grid(console: Console, rows: Iterable[tuple[str, str]], style: str = "") -> None:
    grid = Table.grid(padding=(0, 2))
    for name, value in rows:
        grid.add_row(f"  {name}", Text(value, style=style))
    console.print(grid)


def _print_bands(console: Console, view: CheckView) -> None:
    """Print the node with the fewest samples near its boundary, and the median of all nodes."""
    if not view.bands:
        return
    table = _table("  samples within ε", *widths())
    name, fewest = min(view.bands, key=lambda band: band[1][len(band[1]) // 2])
    table.add_row(f"  teacher {name}, fewest", *(f"{count:,}" for count in fewest))
    if len(view.bands) > 1:
        middle = (median_low(column) for column in zip(*(counts for _, counts in view.bands), strict=True))
        table.add_row("  median of all nodes", *(f"{count:,}" for count in middle))
    console.print(table)


def _print_nodes(console: Console, nodes: Sequence[NodeView]) -> None:
    table = _table("  node", "verdict", "by", "needed", "observer", "κ", "α", "nearest", "sin θ", "|b − b'|")
    for node in nodes[:MOST_NODES]:
        table.add_row(
            f"  {node.check.node}",
            Text(f"{node.sign} {node.verdict}", style=_STYLES[node.state] if node.state != "open" else ""),
            node.by,
            node.needed or "–",
            *(node.observer or ("none", "", "")),
            *(node.nearest or ("none", "", "")),
        )
    console.print(table)
    if len(nodes) > MOST_NODES:
        console.print(f"  and {len(nodes) - MOST_NODES} more; --html and --json contain all")


def _print_lines(console: Console, lines: Iterable[str]) -> None:
    """Print lines with their indentation, also where they are folded."""
    for line in lines:
        words = line.lstrip()
        console.print(Padding(Text(words), (0, 0, 0, 2 + len(line) - len(words))))


def _print_heading(console: Console, title: str, about: str = "") -> None:
    console.print()
    console.print(Text.assemble((title, "bold"), (f"  {about}" if about else "", "dim")))


def _table(*columns: str) -> Table:
    table = plain_table(*columns)
    for column in table.columns[1:]:
        if column.header not in ("verdict", "what most nodes lack"):
            column.justify = "right"
            column.no_wrap = True
    table.columns[0].no_wrap = True
    return table
