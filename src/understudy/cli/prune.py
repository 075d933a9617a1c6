"""`understudy prune`: a student without the nodes that learned nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from understudy._numbers import number
from understudy.cli import inputs
from understudy.cli.networks import GivenNetworks, NetworkOptions
from understudy.cli.parsing import emit

if TYPE_CHECKING:
    from understudy.papers.specialization.theory.pruning import Pruning, PruningLosses

_MOST = 20
"""Number of pruned nodes that are listed one by one."""


@dataclass(frozen=True, kw_only=True)
class Prune(NetworkOptions, inputs.TeacherOptions):
    """Remove the nodes of a student that learned none of the teacher's, and report what that costs.

    Files: safetensors, .pt2, .onnx, or state dicts written by torch.save.
    """

    roles: ClassVar[tuple[str, ...]] = ("teacher", "student")

    student: Path
    """File of the student."""
    by: Literal["theorem", "modulation", "weight-norm", "correlation"] | None = None
    """Criterion. theorem: Tian 2020, theorem 2, for two layers. modulation: what the layers above make of a node (Tian
    et al. 2019, sec. 3.3). weight-norm: length of a node's incoming weights. correlation: the best correlation with a
    teacher node. By default theorem for two layers and modulation for others; with --below, correlation."""
    below: float | None = None
    """Threshold below which nodes are removed. theorem: share of the output of the strongest group over the inputs (by
    default 0.05). modulation and weight-norm: share of its layer that all removed nodes may hold together (0.01).
    correlation: best correlation (0.8)."""
    refit: bool = False
    """Fit the output weights and biases again by least squares, and save these."""
    student_network: int = 0
    """Index of the network to use, if the student's file contains several."""
    save: Path | None = None
    """Write the smaller student to this file (.safetensors)."""


def run_prune(options: Prune) -> None:
    """Remove student nodes by a rule, and print the cost."""
    inputs.validate_ending("--save", options.save, (".safetensors",))
    from understudy.papers.specialization.prune import prune

    networks = GivenNetworks(options)
    teacher = inputs.read_teacher(networks, options)
    student = networks.read("student", options.student, options.student_network)
    chosen = {name: getattr(options, name) for name in ("by", "below", "refit")}
    pruned = prune(student, teacher, **inputs.drawing(options), **chosen)
    pruning, losses = pruned.pruning, {"given": pruned.given, "held_out": pruned.held_out}
    if options.save is not None:
        inputs.write_networks(pruned.network, options.save)
    if options.json:
        emit(
            {
                "assumed": networks.assumed,
                "sizes": {"before": student.sizes, "after": pruning.network.sizes},
                "losses": {where: found._asdict() for where, found in losses.items()},
                "by": pruning.by,
                "kept": [nodes.tolist() for nodes in pruning.kept],
                "dropped": [dropped._asdict() for dropped in pruning.dropped],
                "notes": pruning.notes,
                "saved": None if options.save is None else str(options.save),
            }
        )
        return
    networks.show()
    _show(student.sizes, pruning, losses)
    if options.save is not None:
        print(f"saved {'with refitted output weights' if options.refit else 'as pruned'}: {options.save}")


def _show(before: tuple[int, ...], pruning: Pruning, losses: dict[str, PruningLosses]) -> None:
    from understudy.report.terminal.tables import output, plain_table

    console, after = output(), pruning.network.sizes
    sizes = " became ".join("-".join(map(str, each)) for each in (before, after))
    console.print(f"{sizes}: {sum(before) - sum(after)} of {sum(before[1:-1])} nodes removed by {pruning.by}")
    for dropped in pruning.dropped[:_MOST]:
        console.print(f"  layer {dropped.layer + 1}, node {dropped.node}: {dropped.why}")
    if len(pruning.dropped) > _MOST:
        console.print(f"  and {len(pruning.dropped) - _MOST} more")
    for note in pruning.notes:
        console.print(f"  {note}")
    table = plain_table("loss / output variance", "on the given inputs", "on held-out inputs")
    given, held_out = losses.values()
    for name in given._fields:
        table.add_row(name, *(number(getattr(each, name), ".2e") for each in (given, held_out)))
    console.print(table)
