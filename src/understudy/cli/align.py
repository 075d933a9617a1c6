"""`understudy align`: which student node matches which teacher node, in two network files."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from understudy._errors import UserError
from understudy.cli import inputs
from understudy.cli.networks import GivenNetworks, NetworkOptions
from understudy.cli.parsing import emit

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from understudy.lab.align import Alignment
    from understudy.measures import LayerMatch
    from understudy.nets import Population
    from understudy.nets.files.loading import NotAStack


@dataclass(frozen=True, kw_only=True)
class Align(NetworkOptions, inputs.InputOptions):
    """Match student nodes with teacher nodes, layer by layer, in two network files of equal input size.

    Files: safetensors, .pt2, .onnx, or state dicts written by torch.save. With --model also state dicts of models that
    are not stacks of layers, such as a ResNet: every layer is then compared with every layer, on the inputs of --data.
    """

    roles: ClassVar[tuple[str, ...]] = ("teacher", "student")

    teacher: Path
    """File of the teacher."""
    student: Path
    """File of the student."""
    teacher_network: int = 0
    """Index of the network to use, if the teacher's file contains several."""
    student_network: int = 0
    """Index of the network to use, if the student's file contains several."""
    figure: Path | None = None
    """Draw the heat map of correlations to this file (.pdf, .svg or .png)."""
    html: Path | None = None
    """Write the page of all pairs of layers to this file (.html)."""


def run_align(options: Align) -> None:
    """Print which student node matches which teacher node of two network files."""
    inputs.validate_ending("--figure", options.figure, (".pdf", ".svg", ".png"))
    inputs.validate_ending("--html", options.html, (".html", ".htm"))
    networks = GivenNetworks(options, image=_image_of(options.data) if options.model else None, modules=True)
    files = {"teacher": options.teacher, "student": options.student}
    indices = {"teacher": options.teacher_network, "student": options.student_network}
    found: dict[str, Population | NotAStack] = {}
    for role, path in files.items():
        try:
            found[role] = networks.read(role, path, indices[role])
        except UserError as error:
            found[role] = _not_a_stack(error)
    teacher, student = found.values()
    if isinstance(teacher, Exception) or isinstance(student, Exception):
        _align_modules(options, networks, teacher, student)
    else:
        _align_stacks(options, networks, teacher, student)


def _image_of(data: Path | None) -> tuple[int, int] | None:
    """Height and width of images in a .npy file; None for anything else."""
    from understudy.cli.align_modules import read_array

    if data is None or data.suffix != ".npy":
        return None
    *some, height, width = read_array(data).shape
    return (height, width) if len(some) == 2 else None


def _not_a_stack(error: UserError) -> NotAStack:
    """The error itself if it is about a module that is not a stack of layers; otherwise it is raised."""
    from understudy.nets.files.loading import NotAStack

    if not isinstance(error, NotAStack):
        raise error
    return error


def _align_stacks(options: Align, networks: GivenNetworks, teacher: Population, student: Population) -> None:
    from understudy import measures
    from understudy._progress import steps

    x = inputs.read_inputs(options, teacher)
    widest = [max(net.sizes[1:-1], default=0) for net in (teacher, student)]
    what = f"comparing layers of up to {widest[0]:,} and {widest[1]:,} nodes on {len(x):,} inputs"
    pairs = zip(teacher.sizes[1:-1], student.sizes[1:-1], student.shape.positions, strict=False)
    with steps(what, multiplications=len(x) * sum(t * s * positions for t, s, positions in pairs)):
        layers = measures.align(teacher, student, x)
    measured_on = f"{len(x):,} inputs {inputs.describe_inputs(options)}"
    if options.figure is not None:
        inputs.write_figure(_heat_map(layers), options.figure)
    if options.html is not None:
        from understudy.cli.align_modules import align_as_modules

        align_as_modules(teacher, student, x, networks.lines).report(options.html)
    if options.json:
        shown = [_as_json(layer) for layer in layers]
        emit({"assumed": networks.assumed, "inputs": measured_on, "layers": shown})
        return
    from understudy.report.terminal.tables import output, print_alignment

    networks.show()
    print_alignment(output(), layers)
    print(f"Correlations over {measured_on}.")
    if len(teacher.layers) != len(student.layers):
        depths = f"{len(teacher.layers) - 1} and {len(student.layers) - 1}"
        print(f"The networks have {depths} hidden layers; the lowest {len(layers)} were compared.")
    _show_files(options)


def _show_files(options: Align) -> None:
    if options.figure is not None:
        print(f"heat map: {options.figure}")
    if options.html is not None:
        print(f"page: {options.html}")


def _align_modules(
    options: Align, networks: GivenNetworks, teacher: Population | NotAStack, student: Population | NotAStack
) -> None:
    from understudy._progress import steps
    from understudy.cli.align_modules import align_modules, as_json
    from understudy.nets import Population
    from understudy.nets.graphs.graph import OTHERWISE

    why = [str(each) for each in (teacher, student) if not isinstance(each, Population)]
    if options.data is None:
        raise UserError(
            f"{why[0]}. Networks that are not stacks of layers are compared by their activations on given inputs: add "
            "--data FILE.npy, an array in the shape that they take, such as samples × channels × height × width"
        )
    modules = [each.to_module() if isinstance(each, Population) else each.module for each in (teacher, student)]
    sides = networks.stated("teacher").image or networks.stated("student").image
    image = None if sides is None else (sides, sides) if isinstance(sides, int) else (sides[0], sides[-1])
    with steps(f"comparing all layers on the inputs of {options.data}"):
        found = align_modules(modules[0], modules[1], options.data, image)
    if options.figure is not None:
        inputs.write_figure(_heat_map_of_pairs(found), options.figure)
    if options.html is not None:
        found.report(options.html)
    if options.json:
        emit({"assumed": networks.assumed, "inputs": f"of {options.data}"} | as_json(found))
        return
    networks.show()
    for each in dict.fromkeys(why):
        print(f"{each.removesuffix(f'; {OTHERWISE}')}: all layers are compared by their activations.")
    print(found)
    _show_files(options)


def _as_json(layer: LayerMatch) -> dict[str, Any]:
    numbers = {
        "best_correlation": layer.best_correlation,
        "sin_angle": layer.sin_angle,
        "bias_gap": layer.bias_gap,
    }
    return {
        "correlation": layer.correlation.tolist(),
        "best": layer.best.tolist(),
        "recovered": layer.recovered,
        "svcca": layer.svcca if isfinite(layer.svcca) else None,
        **{name: [v if isfinite(v) else None for v in values.tolist()] for name, values in numbers.items()},
    }


def _heat_map(layers: list[LayerMatch]) -> Figure:
    from understudy.report.figures import CorrelationMatrix

    titles = tuple(f"layer {i + 1}" for i in range(len(layers)))
    return CorrelationMatrix(titles, tuple(layer.correlation.numpy() for layer in layers)).paper()


def _heat_map_of_pairs(found: Alignment) -> Figure:
    """Heat maps of each teacher layer with its best student layer."""
    from understudy.report.figures import CorrelationMatrix

    best = found.best_layers
    titles = tuple(f"teacher {teacher}, student {student}" for teacher, student in best.items())
    return CorrelationMatrix(titles, tuple(found[pair].correlation.cpu().numpy() for pair in best.items())).paper()
