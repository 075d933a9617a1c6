"""What `understudy check` prints: the answer first, then what it rests on, a line each."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from understudy.report.terminal.tables import plain_table
from understudy.theory.boundaries import ALIGNED
from understudy.theory.check import Check, NodeCheck
from understudy.theory.conditions import WIDTHS
from understudy.theory.result import PRUNABLE, Finding, format_factor, prunable
from understudy.theory.summary import CommonFailure, NetworkCheck, common_failures, summarise

MOST_NETWORKS, MOST_NODES, MOST_STUDENTS = 20, 40, 12
"""Lines that a terminal still shows."""


def as_text(networks: Sequence[NetworkCheck], of: int) -> str:
    """The same as plain text."""
    console = Console(file=io.StringIO(), width=120, no_color=True, highlight=False)
    print_checks(console, networks, of)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().rstrip("\n")


def print_checks(console: Console, networks: Sequence[NetworkCheck], of: int) -> None:
    """One network with all that was found, several with a line each."""
    if len(networks) == 1 and networks[0].check:
        print_check(console, networks[0].check)
        return
    total = summarise(networks)
    console.print(Text(total.headline, style="bold"), soft_wrap=True)
    if len(networks) < of:
        console.print(f"{len(networks)} of {of:,} networks were looked at; --network names which")
    console.print(f"samples: {inputs_in_words([each.check for each in networks if each.check])}", soft_wrap=True)
    _contradicted(console, total.contradicted)
    table = _table("network", "certified", "ε", "aligned students", "what most nodes lack")
    for each in networks[:MOST_NETWORKS]:
        table.add_row(*_line(each))
    console.print(table)
    if len(networks) > MOST_NETWORKS:
        console.print(f"and {len(networks) - MOST_NETWORKS} more")
    _lacking(console, total.failing, total.nodes)


def _line(each: NetworkCheck) -> tuple[Text | str, ...]:
    if (check := each.check) is None:
        return str(each.network), "", "", "", Text(each.why, style="dim")
    eps = [node.certificate.eps or 0.0 for node in check.nodes if node.certificate]
    lacking = common_failures(check.nodes)
    return (
        str(each.network),
        f"{check.certified} of {len(check.nodes)}",
        f"{max(eps):.3g}" if eps else "",
        f"{sum(p.aligned for p in check.partners)} of {check.student_sizes[1]}",
        f"{lacking[0].name}{_by(lacking[0])}" if lacking else "",
    )


def print_check(console: Console, check: Check) -> None:
    """All that was found of one pair of networks."""
    console.print(Text(check.headline, style="bold"), soft_wrap=True)
    console.print(networks_in_words(check))
    console.print(f"samples: {inputs_in_words([check])}", soft_wrap=True)
    _contradicted(console, len(check.contradicted))
    if check.identities:
        _heading(console, "Identities", "hold at every sample, whatever the weights")
        _findings(console, check.identities)
    _heading(console, "The data", "")
    _data(console, check)
    _heading(console, "The teacher", "")
    _lines(console, teacher_in_words(check))
    _heading(
        console,
        "Teacher nodes",
        "what is guaranteed, about how many samples are needed, who sees it best, who is nearest",
    )
    _nodes(console, check.nodes)
    _lacking(console, common_failures(check.nodes), len(check.nodes))
    _heading(console, "Students", "")
    _lines(console, students_in_words(check))
    _findings(console, [f for f in check.students if f.result != "S0 theorem 2"])
    if check.dynamics:
        _heading(console, "Dynamics", "")
        _findings(console, check.dynamics)
    if check.silent:
        _heading(console, "Say nothing here", "")
        grid = Table.grid(padding=(0, 2))
        for name, why in check.silent:
            grid.add_row(f"  {name}", Text(why, style="dim"))
        console.print(grid)


def networks_in_words(check: Check) -> str:
    """Sizes and activations, once where both are the same."""
    teacher, student = ("-".join(map(str, sizes)) for sizes in (check.teacher_sizes, check.student_sizes))
    theirs, ours = (
        {0.0: "ReLU", -1.0: "|·|"}.get(slope, f"leaky ReLU of slope {slope:g}")
        for slope in (check.teacher_slope, check.slope)
    )
    return f"teacher {teacher}{f', {theirs}' * (theirs != ours)}, student {student}, {ours}"


def inputs_in_words(checks: Sequence[Check]) -> str:
    """How many samples, and what they are; of several networks the first one's."""
    first, kinds = checks[0], {(check.samples, check.inputs) for check in checks}
    more = f", and {len(kinds) - 1} other{'s' * (len(kinds) > 2)}" if len(kinds) > 1 else ""
    return f"{first.samples:,}{' a network' * (len(checks) > 1)}, {first.inputs}{more}"


def teacher_in_words(check: Check) -> list[str]:
    """Whether its lowest layer is as S0 assumes, and what would have to change."""
    layer = check.assumptions.layers[0]
    lengths = f"{float(layer.lengths.min()):.3g} to {float(layer.lengths.max()):.3g}"
    regular = (
        "weights of length 1" if not layer.irregular else f"weights of length {lengths}: looked at as if of length 1"
    )
    lines = [regular]
    if layer.closest:
        one, other = layer.closest
        lines.append(f"closest nodes {one} and {other}: ε0 = {layer.eps0:.3g}, below which no two nodes are aligned")
    never = [str(node.node) for node in check.nodes if not node.crossed]
    if never:
        lines.append(
            f"the data never crosses the boundary of {_several('node', never)}: add samples on the other side, or move "
            "the bias"
        )
    else:
        lines.append("the data crosses every boundary")
    higher = [failure for failure in check.assumptions.failures if not failure.startswith("layer 1:")]
    return lines + higher


def students_in_words(check: Check) -> list[str]:
    """Who has a teacher node's boundary, and which of the others S0 theorem 2 shows to give nothing on."""
    aligned = [p for p in check.partners if p.aligned]
    lines = [f"{len(aligned)} of {check.student_sizes[1]} have the boundary of a teacher node, to ε = {ALIGNED:g}"]
    for p in sorted(aligned, key=lambda p: p.eps)[:MOST_STUDENTS]:
        lines.append(f"  student {p.student} that of node {p.teacher}, to ε = {p.eps:.2g}")
    if len(aligned) > MOST_STUDENTS:
        lines.append(f"  and {len(aligned) - MOST_STUDENTS} more")
    groups = _theorem_2(check)
    if groups:
        small, strong, unknown = groups
        lines.append(
            f"of the others {len(small)} are prunable: S0 theorem 2 applies, and on the data they give on under "
            f"{PRUNABLE:.0%} of the strongest" + _named(small)
        )
        if strong:
            lines.append(
                f"  {len(strong)} give on {min(f.amount or 0 for f in strong):.2g} to "
                f"{max(f.amount or 0 for f in strong):.2g} of the strongest, which is not little"
            )
        if unknown:
            first = unknown[0].failing[0]
            lines.append(f"  of {len(unknown)} it says nothing, as of {unknown[0].about}: {first}")
    return lines


def _theorem_2(check: Check) -> tuple[list[Finding], list[Finding], list[Finding]] | None:
    """Students that are prunable by it, that give on too much, and that it says nothing of."""
    of = [f for f in check.students if f.result == "S0 theorem 2"]
    sure = [f for f in of if f.applies]
    small = [f for f in sure if prunable(f)]
    return (small, [f for f in sure if f not in small], [f for f in of if f not in sure]) if of else None


def in_words(finding: Finding) -> str:
    """Whether what was measured is as the result says; or what keeps it from applying."""
    if finding.contradicted:
        return "AGAINST the result"
    if finding.applies:
        return "as the result says" if finding.agrees else "not measured"
    worst = finding.failing[0]
    return f"does not apply: {worst}"


def _findings(console: Console, findings: Iterable[Finding]) -> None:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    for finding in findings:
        grid.add_row(
            _sign(finding),
            f"{finding.result}, {finding.about}",
            finding.measured if finding.applies else Text(in_words(finding), style="dim"),
        )
    console.print(grid)


def _sign(finding: Finding) -> Text:
    if finding.contradicted:
        return Text("  ✗", style="bold red")
    return Text("  ✓", style="green") if finding.applies and finding.agrees else Text("  –", style="dim")


def _data(console: Console, check: Check) -> None:
    found = check.conditions
    grid = Table.grid(padding=(0, 2))
    for name, own, random, more in (
        ("  η", found.eta_own, found.eta_random, ""),
        ("  μ", found.mu_own, found.mu_random, f"; at most {found.mu_bound:.3g} in any direction"),
    ):
        grid.add_row(name, f"{own.value:.3g} at {own.where}; {random.value:.3g} at {random.where}{more}")
    if len(found.tau):
        least = int(found.tau.argmin())
        grid.add_row("  τ", f"{float(found.tau[least]):.3g} at teacher node {int(found.nodes[least])}, the least")
    grid.add_row("  augmentation", augmentation_in_words(check))
    console.print(grid)
    if len(found.bands):
        table = _table("  samples within ε", *(f"{width:g}" for width in WIDTHS))
        counts = found.bands
        thinnest = int(counts[:, len(WIDTHS) // 2].argmin())
        rows = [(f"  teacher node {int(found.nodes[thinnest])}, fewest", counts[thinnest])]
        if len(counts) > 1:
            rows.append(("  median of all nodes", counts.median(0).values))
        for label, row in rows:
            table.add_row(label, *(f"{int(count):,}" for count in row))
        console.print(table)


def augmentation_in_words(check: Check) -> str:
    """Whether the data holds the points that the theorems look at; they look at them in any case."""
    found = check.conditions
    near = float(found.aware.max()) if len(found.aware) else 0.0
    if not near and not found.agnostic:
        return "none in the data; the theorems' points are made and looked at"
    along = f"along the teacher's weights for up to {near:.0%} of the samples near a boundary"
    return f"{along}, along the axes for {found.agnostic:.0%} of all"


def _nodes(console: Console, nodes: Sequence[NodeCheck]) -> None:
    table = _table("  node", "verdict", "by", "needed", "seen by", "κ", "α", "nearest", "sin θ", "|b − b'|")
    for node in nodes[:MOST_NODES]:
        seen, near = node.observer, node.nearest
        table.add_row(
            f"  {node.node}",
            *verdict(node),
            "–" if node.samples is None else f"{node.samples:.2g}",
            *((str(seen.student), f"{seen.kappa:.2g}", f"{seen.alpha:.3g}") if seen else ("nobody", "", "")),
            *((str(near.student), f"{near.sin:.2g}", f"{near.gap:.2g}") if near else ("none", "", "")),
        )
    console.print(table)
    if len(nodes) > MOST_NODES:
        console.print(f"  and {len(nodes) - MOST_NODES} more; --html and --json have all")


def verdict(node: NodeCheck) -> tuple[Text, str]:
    """Of one teacher node, short enough for a line: what is guaranteed, or what it lacks most, and by how much."""
    if sure := node.certificate:
        return Text(f"✓ ε = {sure.eps:.3g} by {sure.result}", style="green"), ""
    if not node.crossed:
        return Text("✗ the data never crosses its boundary"), ""
    if any(finding.contradicted for finding in node.findings):
        return Text("✗ measured against a theorem", style="bold red"), ""
    if (lacking := node.closest) is None:
        return Text("– no theorem for such networks", style="dim"), ""
    return Text(f"✗ {lacking[0].name}"), lacking[0].by.removeprefix(" by ")


def _lacking(console: Console, found: Sequence[CommonFailure], nodes: int) -> None:
    changes = [f": {each.change}" if each.change else "" for each in found]
    _lines(
        console,
        [
            f"{each.nodes:,} of {nodes:,} nodes lack most “{each.name}”{_by(each)}{change}"
            for each, change in zip(found[:3], changes, strict=False)
        ],
    )


def _lines(console: Console, lines: Iterable[str]) -> None:
    """Each as far in as it begins, and where it is folded too."""
    for line in lines:
        words = line.lstrip()
        console.print(Padding(Text(words), (0, 0, 0, 2 + len(line) - len(words))))


def _by(found: CommonFailure) -> str:
    return f", by {format_factor(found.factor)}" if 1 < found.factor < math.inf else ""


def _contradicted(console: Console, count: int) -> None:
    if count:
        console.print(Text(f"{count} findings are against what a result says: please report them", style="bold red"))


def _heading(console: Console, title: str, about: str) -> None:
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


def _several(one: str, names: Sequence[str]) -> str:
    shown = ", ".join(names[:MOST_STUDENTS]) + (
        f" and {len(names) - MOST_STUDENTS} more" * (len(names) > MOST_STUDENTS)
    )
    return f"{one}{'s' * (len(names) > 1)} {shown}"


def _named(findings: Sequence[Finding]) -> str:
    names = [finding.about.removeprefix("student node ") for finding in findings]
    return f": {_several('node', names)}" if names else ""
