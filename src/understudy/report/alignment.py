"""The page of `us.align` for two modules: which layer matches which layer, and which node which node."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from understudy.measures.layer_pairs import LayerAlignment
from understudy.report.figures import CorrelationMatrix, LayerMatrix
from understudy.report.page.document import page
from understudy.report.story import Figure, Number, Story, counted
from understudy.report.style import evenly
from understudy.store.environment import environment

_MOST_LAYERS, _MOST_NODES = 12, 96
"""Heat maps on the page, and teacher nodes in each."""


def node_table(alignment: LayerAlignment) -> pa.Table:
    """One row per pair of layers and teacher node: its best student node, which is null for a constant node."""
    return _nodes(alignment, [(t, s) for t in alignment.teacher_layers for s in alignment.student_layers])


def layer_table(alignment: LayerAlignment) -> pa.Table:
    """One row per pair of layers, with its similarities and how many teacher nodes correlate above 0.95."""
    pairs = [pair for row in alignment.pairs for pair in row]
    return pa.table(
        {
            "teacher_layer": [t for t in alignment.teacher_layers for _ in alignment.student_layers],
            "student_layer": [s for _ in alignment.teacher_layers for s in alignment.student_layers],
            "mean_best_correlation": alignment.mean_best_correlation.ravel(),
            "cka": alignment.cka.ravel(),
            "recovered": [pair.recovered for pair in pairs],
            "teacher_nodes": [pair.correlation.shape[0] for pair in pairs],
            "student_nodes": [pair.correlation.shape[1] for pair in pairs],
            "at_positions": [pair.at_positions for pair in pairs],
        }
    )


def _nodes(alignment: LayerAlignment, pairs: list[tuple[str, str]]) -> pa.Table:
    found = [alignment[pair] for pair in pairs]
    sizes = [len(pair.best) for pair in found]
    student = np.concatenate([pair.best.numpy() for pair in found])
    return pa.table(
        {
            "teacher_layer": np.repeat([t for t, _ in pairs], sizes),
            "teacher": np.concatenate([np.arange(n) for n in sizes]),
            "student_layer": np.repeat([s for _, s in pairs], sizes),
            "student": pa.array(student, mask=student < 0),
            "correlation": np.concatenate([pair.best_correlation.double().numpy() for pair in found]),
        }
    )


def alignment_page(alignment: LayerAlignment, command: str) -> bytes:
    """Write the page of an alignment.

    Args:
        alignment: Pairs of layers.
        command: Python call that made it.

    Returns:
        The HTML file.
    """
    pairs = list(alignment.best_layers.items())
    found = [alignment[pair] for pair in pairs]
    nodes, recovered = sum(len(pair.best) for pair in found), sum(pair.recovered for pair in found)
    mean = float(np.mean([pair.mean_best_correlation for pair in found]))
    clear = max(range(len(found)), key=lambda i: found[i].mean_best_correlation)
    headline = (
        f"{recovered:,} of {counted(nodes, 'teacher node')} have a student node that correlates above 0.95; the "
        f"teacher's layer {pairs[clear][0]} is matched best, by the student's {pairs[clear][1]} (mean best correlation "
        f"{found[clear].mean_best_correlation:.2f})"
    )
    numbers = (
        Number(f"{recovered:,} of {nodes:,}", "teacher nodes recovered in the best-matching student layer"),
        Number(f"{mean:.2f}", "mean best correlation, averaged over teacher layers"),
        Number(f"{len(alignment.teacher_layers)} × {len(alignment.student_layers)}", "layers of teacher and student"),
        Number(f"{alignment.samples:,}", "samples"),
    )
    layers = Figure(
        "layers",
        "Which layer learned which layer",
        "Mean best correlation: each node of a teacher layer with the student node that matches it best, averaged; "
        "a wider student layer has more nodes to match with. Linear CKA compares whole layers, whatever their bases."
        f"{_averaged(alignment)}",
        "",
        LayerMatrix(
            ("mean best correlation", "linear CKA"),
            alignment.teacher_layers,
            alignment.student_layers,
            np.stack([alignment.mean_best_correlation, alignment.cka]),
        ),
    )
    settings = {f"note {i}": note for i, note in enumerate(alignment.notes, start=1)}
    return page(
        title="align: which node of the student matches which node of the teacher",
        story=Story(headline, numbers, (layers, _heat_maps(alignment, pairs))),
        table=_nodes(alignment, pairs),
        table_lead="Each teacher node with the node that correlates best with it in the student layer that matches "
        "its layer best.",
        claims=None,
        settings={"samples": alignment.samples, **settings},
        environment=environment("cpu"),
        command=command,
        files=[],
    )


def _averaged(alignment: LayerAlignment) -> str:
    """How pairs of layers are compared, where not all are at every position."""
    pairs = [pair for row in alignment.pairs for pair in row]
    averaged = sum(not pair.at_positions for pair in pairs)
    return f" {averaged} of {len(pairs)} pairs are compared after averaging over positions." if averaged else ""


def _heat_maps(alignment: LayerAlignment, pairs: list[tuple[str, str]]) -> Figure:
    """Correlations of the nodes of teacher layers with those of the student layers that match them best."""
    titles, values, nodes = [], [], []
    shown = [pairs[i] for i in evenly(len(pairs), min(len(pairs), _MOST_LAYERS))]
    for teacher, student in shown:
        pair = alignment[teacher, student]
        rows = evenly(len(pair.best), min(len(pair.best), _MOST_NODES))
        width = pair.correlation.shape[1]
        # Of wide layers only the students that match a row are shown.
        columns = np.arange(width) if width <= 2 * _MOST_NODES else np.unique(pair.best.numpy()[rows].clip(0))
        titles.append(f"{teacher} by {student}")
        values.append(pair.correlation.numpy()[np.ix_(rows, columns)])
        nodes.append((rows, columns))
    some = f" {len(shown)} of {len(pairs)} teacher layers are shown." if len(shown) < len(pairs) else ""
    large = any(len(r) < len(alignment[p].best) for p, (r, _) in zip(shown, nodes, strict=True))
    large |= any(len(c) < alignment[p].correlation.shape[1] for p, (_, c) in zip(shown, nodes, strict=True))
    thinned = " Of large layers some teacher nodes are shown, with the students that match them." if large else ""
    return Figure(
        "nodes",
        "Which node learned which node",
        "Each teacher layer with the student layer that matches it best. Students are ordered by the teacher node they "
        f"match: nodes that came across form a staircase.{some}{thinned}",
        "",
        CorrelationMatrix(tuple(titles), tuple(values), nodes=tuple(nodes)),
    )
