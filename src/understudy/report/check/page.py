"""The page of `understudy check`: which teacher nodes are certified, and each finding with what it rests on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files as package_files
from string import Template

from understudy.report.check.terminal import (
    augmentation_in_words,
    in_words,
    inputs_in_words,
    networks_in_words,
    students_in_words,
    teacher_in_words,
    verdict,
)
from understudy.theory.check import Check, NodeCheck
from understudy.theory.conditions import WIDTHS
from understudy.theory.result import Finding, Hypothesis
from understudy.theory.summary import CommonFailure, NetworkCheck, summarise


def check_page(networks: Sequence[NetworkCheck], of: int, command: str) -> bytes:
    """The page as a file: one network with all that was found, several each folded under a line."""
    total = summarise(networks)
    (one, *_) = [each.check for each in networks if each.check]
    alone = len(networks) == 1
    headline = one.headline if alone else total.headline
    numbers = [
        (f"{total.certified:,} of {total.nodes:,}", "teacher nodes certified"),
        (f"{total.eps[1]:.3g}" if total.eps else "–", "median ε guaranteed"),
        (f"{one.samples:,}", "samples" if alone else "samples a network"),
        (f"{total.contradicted:,}", "findings against a theorem"),
    ]
    if not alone:
        numbers.insert(0, (f"{total.networks:,}" + (f" of {of:,}" if of > total.networks else ""), "networks"))
    body = _network(one) if alone else "".join(_folded_network(each) for each in networks)
    texts = {
        "title": escape(networks_in_words(one) if alone else f"{len(networks)} networks"),
        "headline": escape(headline),
        "inputs": escape(inputs_in_words([each.check for each in networks if each.check])),
        "numbers": "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for value, name in numbers),
        "lacking": _lacking(total.failing, total.nodes),
        "body": body,
        "command": escape(command),
        "css": _asset("page.css") + _asset("check.css"),
    }
    return Template(_asset("check.html")).substitute(texts).encode()


def _asset(name: str) -> str:
    return package_files("understudy.report.page").joinpath("assets", name).read_text(encoding="utf-8")


def _folded_network(each: NetworkCheck) -> str:
    if each.check is None:
        return f'<p class="row refused"><b>network {each.network}</b> <span class="note">{escape(each.why)}</span></p>'
    check = each.check
    return (
        f'<details class="network"><summary><b>network {each.network}</b>{_squares(check.nodes)}'
        f'<span class="note">{escape(check.headline)}</span></summary>{_network(check)}</details>'
    )


def _network(check: Check) -> str:
    parts = [
        _section("Teacher nodes", _nodes(check), "Each with what the theorems guarantee, and what is so. Open one for "
                 "its hypotheses."),
        _section("The data", _data(check)),
        _section("The teacher", _list(teacher_in_words(check))),
        _section("Students", _list(students_in_words(check)) + _by_result(check.students)),
        _section("Dynamics", _rows(check.dynamics)),
        _section("Identities", _rows(check.identities), "They hold at every sample, whatever the weights."),
        _section("Say nothing here", _facts(check.silent), "Results that are stated for other networks."),
    ]  # fmt: skip
    return "".join(parts)


def _section(title: str, body: str, lead: str = "") -> str:
    if not body:
        return ""
    said = f'<p class="lead">{escape(lead)}</p>' if lead else ""
    return f"<section><h2>{escape(title)}</h2>{said}{body}</section>"


def _squares(nodes: Iterable[NodeCheck]) -> str:
    """A square a teacher node, filled where it is certified: all of them at a glance."""
    each = "".join(
        f'<i class="{"sure" if node.certificate else "open"}" title="teacher node {node.node}: '
        f'{escape(node.verdict, quote=True)}"></i>'
        for node in nodes
    )
    return f'<span class="squares">{each}</span>'


def _nodes(check: Check) -> str:
    rows = "".join(_node(node) for node in check.nodes)
    return _squares(check.nodes) + f'<div class="rows">{rows}</div>' if rows else ""


def _node(node: NodeCheck) -> str:
    short, by = verdict(node)
    near, seen = node.nearest, node.observer
    facts = [
        "" if node.samples is None else f"about {node.samples:.2g} such samples needed",
        f"nearest: student {near.student}, sin θ {near.sin:.2g}, |b − b'| {near.gap:.2g}" if near else "",
        f"seen by student {seen.student}, κ {seen.kappa:.2g}, α {seen.alpha:.3g}" if seen else "seen by nobody",
    ]
    state = "sure" if node.certificate else "open"
    said = short.plain.lstrip("✓✗– ") + (f", by {by}" if by else "")
    head = (
        f'<span class="mark {state}">{"✓" if node.certificate else "✗"}</span><b>node {node.node}</b>'
        f'<span class="said">{escape(said)}</span>'
        f'<span class="note">{"<br>".join(escape(fact) for fact in facts if fact)}</span>'
    )
    return f'<details class="row node {state}"><summary>{head}</summary>{_bodies(node.findings)}</details>'


def _bodies(findings: Sequence[Finding]) -> str:
    return "".join(f"<h3>{escape(f.result)}{_state(f)}</h3>{_body(f)}" for f in findings)


def _state(finding: Finding) -> str:
    word = "applies" if finding.applies else "does not apply"
    return f' <span class="{"yes" if finding.applies else "no"}">{word}</span>'


def _by_result(findings: Sequence[Finding]) -> str:
    """Findings of many students under one line a result."""
    parts = []
    for name in dict.fromkeys(f.result for f in findings):
        of = [f for f in findings if f.result == name]
        if len(of) == 1:
            parts.append(_rows(of))
            continue
        count = f"{sum(f.applies for f in of)} of {len(of)} apply"
        parts.append(
            f'<div class="rows"><details class="row"><summary><b>{escape(name)}</b>'
            f'<span class="said">{len(of):,} students</span><span class="note">{count}</span></summary>'
            f"{_rows(of)}</details></div>"
        )
    return "".join(parts)


def _rows(findings: Sequence[Finding]) -> str:
    if not findings:
        return ""
    return f'<div class="rows">{"".join(_row(finding) for finding in findings)}</div>'


def _row(finding: Finding) -> str:
    against = finding.contradicted
    state, sign = ("bad", "✗") if against else ("sure", "✓") if finding.applies and finding.agrees else ("open", "–")
    head = (
        f'<span class="mark {state}">{sign}</span><b>{escape(finding.result)}</b>'
        f'<span class="said">{escape(finding.about)}</span><span class="note">{escape(in_words(finding))}</span>'
    )
    return f'<details class="row {state}"><summary>{head}</summary>{_body(finding)}</details>'


def _body(finding: Finding) -> str:
    """Its hypotheses, then what it says beside what was measured."""
    columns = ("", "hypothesis", "found", "needed", *(["what to change"] if finding.failing else []))
    head = "".join(f"<th>{name}</th>" for name in columns)
    hypotheses = "".join(_hypothesis(h, len(columns) == 5) for h in finding.hypotheses)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{hypotheses}</tbody></table>"
    says = "It says" if finding.applies else "It would say"
    return (
        f'<div class="finding">{table if hypotheses else ""}<dl class="sides">'
        f"<div><dt>{says}</dt><dd>{escape(finding.conclusion)}</dd></div>"
        f"<div><dt>Measured</dt><dd>{escape(finding.measured)}</dd></div></dl></div>"
    )


def _hypothesis(h: Hypothesis, change: bool) -> str:
    sign = '<td class="mark sure">✓</td>' if h.holds else '<td class="mark bad">✗</td>'
    cells = "".join(f"<td>{escape(text)}</td>" for text in (h.name, h.value, h.requirement))
    fails = "" if h.holds else escape(h.change) + (f" <b>({escape(h.by.strip())})</b>" if h.by else "")
    return f"<tr>{sign}{cells}{f'<td>{fails}</td>' if change else ''}</tr>"


def _data(check: Check) -> str:
    found = check.conditions
    least = int(found.tau.argmin()) if len(found.tau) else -1
    facts = [
        ("samples", inputs_in_words([check])),
        ("η, own boundaries", f"{found.eta_own.value:.3g}, at {found.eta_own.where}"),
        ("η, random planes", f"{found.eta_random.value:.3g}, at {found.eta_random.where}"),
        ("μ, own boundaries", f"{found.mu_own.value:.3g}, at {found.mu_own.where}"),
        ("μ, random planes", f"{found.mu_random.value:.3g}, at {found.mu_random.where}"),
        ("μ of any direction, at most", f"{found.mu_bound:.3g}"),
        ("augmentation", augmentation_in_words(check)),
    ]
    if least >= 0:
        facts.insert(6, ("τ, least", f"{float(found.tau[least]):.3g}, at teacher node {int(found.nodes[least])}"))
    head = "".join(f"<th>{width:g}</th>" for width in WIDTHS)
    rows = "".join(
        f"<tr><th>node {int(node)}</th>{''.join(f'<td>{int(count):,}</td>' for count in counts)}</tr>"
        for node, counts in zip(found.nodes, found.bands, strict=True)
    )
    bands = (
        '<details class="row"><summary><b>samples a band</b><span class="note">how many lie within ε of each teacher '
        f'node\'s boundary</span></summary><div class="scroll"><table class="bands"><thead><tr><th>ε</th>{head}</tr>'
        f"</thead><tbody>{rows}</tbody></table></div></details>"
    )
    return _facts(facts) + (f'<div class="rows">{bands}</div>' if rows else "")


def _facts(facts: Iterable[tuple[str, str]]) -> str:
    rows = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts)
    return f'<dl class="facts">{rows}</dl>' if rows else ""


def _list(lines: Iterable[str]) -> str:
    items = "".join(f'<li class="in-{len(line) - len(line.lstrip())}">{escape(line.strip())}</li>' for line in lines)
    return f'<ul class="plain">{items}</ul>'


def _lacking(found: Sequence[CommonFailure], nodes: int) -> str:
    return _list(
        f"{each.nodes:,} of {nodes:,} nodes lack most “{each.name}”" + (f": {each.change}" if each.change else "")
        for each in found[:3]
    )
