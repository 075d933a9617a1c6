"""`understudy compare`: whether two networks are one function, or which networks of a run are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from understudy._errors import UserError
from understudy._numbers import number
from understudy.cli import inputs
from understudy.cli.networks import DESCRIBING, GivenNetworks, NetworkOptions
from understudy.cli.parsing import emit

if TYPE_CHECKING:
    from understudy.papers.equivalence.comparison import FunctionClasses, NetworkComparison

_MOST = 20
"""Number of units and classes that are listed one by one."""


@dataclass(frozen=True, kw_only=True)
class Compare(NetworkOptions):
    """Decide whether two ReLU networks are the same function on a box of inputs, up to permutation and rescaling of
    their units (Phuong & Lampert 2020): the maps between their parameters, or an input at which they differ.

    Files: safetensors, .pt2, .onnx, or state dicts written by torch.save. For a run, or one file with several networks,
    all pairs are compared: classes of equal functions, and a distance matrix (with --json or --save).
    """

    roles: ClassVar[tuple[str, ...]] = ("a", "b")

    paths: tuple[Path, ...]
    """A B, two network files; or RUN, the folder of a run or one file with several networks."""
    domain: tuple[float, ...] = (-2.0, 2.0)
    """Lower and upper end of every input."""
    tolerance: float = 1e-9
    """Largest relative difference that counts as rounding: of parameters relative to the length of a unit's incoming
    weights and bias, of every output relative to its standard deviation on the domain. Networks that are stored in
    float32 need 1e-6."""
    seed: int = 1
    """Seed of the inputs that are searched for a difference."""
    a_network: int = 0
    """Index of the network to use, if the first file contains several."""
    b_network: int = 0
    """Index of the network to use, if the second file contains several."""
    save: Path | None = None
    """Write permutations and scalings, or the distance matrix of a run, to this file (.safetensors), or everything that
    was found (.json)."""
    json: bool = False
    """Print one JSON object and nothing else."""


def run_compare(options: Compare) -> None:
    """Print whether two networks, or which networks of a run, are one function."""
    inputs.validate_ending("--save", options.save, (".safetensors", ".json"))
    if len(options.domain) != 2:
        raise UserError(f"--domain needs two numbers, LOWER UPPER, got {len(options.domain)}")
    if len(options.paths) not in (1, 2):
        raise UserError(f"compare needs two network files, A B, or the folder of a run; got {len(options.paths)} paths")
    networks = GivenNetworks(options)
    found = _compare_all(options, networks) if len(options.paths) == 1 else _compare_two(options, networks)
    if options.save is not None:
        found.save(options.save)
    if options.json:
        emit(found.as_dict() | {"assumed": networks.assumed})
        return
    networks.show()
    _show(found)
    if options.save is not None:
        print(f"saved: {options.save}")


def _drawing(options: Compare) -> dict[str, Any]:
    low, high = options.domain
    return {"domain": (low, high), "tolerance": options.tolerance, "seed": options.seed}


def _compare_two(options: Compare, networks: GivenNetworks) -> NetworkComparison:
    from understudy.papers.equivalence.compare import compare

    a = networks.read("a", options.paths[0], options.a_network)
    b = networks.read("b", options.paths[1], options.b_network)
    return compare(a, b, **_drawing(options))


def _compare_all(options: Compare, networks: GivenNetworks) -> FunctionClasses:
    from understudy.papers.equivalence.compare import compare

    (path,) = options.paths
    if not path.is_dir():
        return compare(networks.read("a", path, None), **_drawing(options))
    for name in ("a_network", "b_network", *DESCRIBING):
        if getattr(options, name) not in (0, ()):
            raise UserError(f"--{name.replace('_', '-')} does not apply to a run; omit it, or give two network files")
    return compare(path, **_drawing(options))


def _show(found: NetworkComparison | FunctionClasses) -> None:
    from understudy.papers.equivalence.comparison import FunctionClasses

    if isinstance(found, FunctionClasses):
        _show_classes(found)
    else:
        _show_two(found)


def _show_two(found: NetworkComparison) -> None:
    from understudy.report.terminal.tables import output, plain_table

    console, comparison = output(), found.comparison
    for name, changes in zip("AB", found.changes, strict=True):
        for change in changes:
            print(f"{name}: {change}")
    print(f"On {comparison.box} the networks are {found.answer}.")
    outputs, matching = comparison.outputs, comparison.matching
    if matching is not None:
        rounding = " More than the tolerance is rounding: the domain is far from zero." if _is_rounding(found) else ""
        print(
            f"Largest difference of parameters {number(matching.largest)}, relative to the length of a unit's weights "
            f"and bias (tolerance {number(comparison.tolerance)}); distance of all parameters "
            f"{number(matching.distance)}.{rounding}"
        )
    which = f" of output {outputs.output}" if len(outputs.scale) > 1 else ""
    print(
        f"Largest difference of outputs {number(found.largest_output_difference)}, relative to the standard deviation "
        f"{number(outputs.scale[outputs.output])}{which}, at {outputs.inputs:,} inputs."
    )
    if comparison.witness is not None:
        shown = ", ".join(number(value) for value in outputs.x[:_MOST])
        more = f", … ({len(outputs.x)} inputs)" if len(outputs.x) > _MOST else ""
        name = f"output {outputs.output} differs" if which else "outputs differ"
        print(f"Witness: at x = ({shown}{more}) {name} by {number(outputs.difference)}.")
    _show_note(found.note)
    for name, units in zip("AB", comparison.degenerate, strict=True):
        for unit in units[:_MOST]:
            print(f"{name}, {unit}{', removed' if unit.removed else ''}")
        if len(units) > _MOST:
            print(f"{name}: and {len(units) - _MOST} more degenerate units")
    if matching is None:
        return
    rows = found.units()
    if not found.same:
        rows.sort(key=lambda row: -row["distance"])
    table = plain_table("layer", "unit of A", "unit of B", "scaling", "distance")
    for row in rows[:_MOST]:
        partner = "none" if row["partner"] < 0 else str(row["partner"])
        scaling, distance = number(row["scaling"]), number(row["distance"])
        table.add_row(str(row["layer"]), str(row["unit"]), partner, scaling, distance)
    console.print(table)
    if len(rows) > _MOST:
        print(f"{len(rows) - _MOST} more units; --save writes all")


def _is_rounding(found: NetworkComparison) -> bool:
    """Whether parameters of equal functions differ by more than the tolerance, which only rounding explains."""
    matching = found.comparison.matching
    equal = found.relation in ("permutation and scaling", "after removal")
    return equal and matching is not None and matching.largest > found.comparison.tolerance


def _show_note(note: str) -> None:
    if note:
        print(f"Note: {note}.")


def _show_classes(found: FunctionClasses) -> None:
    import numpy as np

    from understudy.report.terminal.tables import output, plain_table

    print(
        f"{len(found.names)} networks on {found.box}: {len(found.functions)} different functions, "
        f"{len(found.parameters)} different parameters up to permutation and positive scaling (tolerance "
        f"{number(found.tolerance)})."
    )
    if found.left_out:
        print(f"{found.left_out} more with weights or values that are not finite are left out.")
    table = plain_table("function", "networks", "indices")
    for i, members in enumerate(found.functions[:_MOST], 1):
        more = ", …" if len(members) > _MOST else ""
        table.add_row(str(i), str(len(members)), ", ".join(map(str, members[:_MOST])) + more)
    output().print(table)
    if len(found.functions) > _MOST:
        print(f"{len(found.functions) - _MOST} more functions; --json lists all")
    for i, j in found.undecided[:_MOST]:
        print(f"networks {i} and {j} are not decided: outputs agree as far as searched, but parameters differ")
    if len(found.undecided) > _MOST:
        print(f"{len(found.undecided) - _MOST} more pairs are not decided; --json lists all")
    between = found.distances_between
    if len(between):
        smallest, median, largest = (number(each) for each in np.quantile(between, (0, 0.5, 1)))
        print(
            f"Distances between different functions, relative to the standard deviation of an output: smallest "
            f"{smallest}, median {median}, largest {largest}. --json prints and --save writes the distance matrix."
        )
    _show_note(found.note)
