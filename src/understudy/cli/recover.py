"""`understudy recover`: the parameters of a network from its values alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from understudy._errors import UserError
from understudy._numbers import number
from understudy.cli import inputs
from understudy.cli.networks import GivenNetworks, NetworkOptions
from understudy.cli.parsing import emit

if TYPE_CHECKING:
    from understudy.papers.equivalence.theory.recovery import Recovered

_MOST = 40
"""Number of units that are listed one by one."""


@dataclass(frozen=True, kw_only=True)
class Recover(NetworkOptions):
    """Recover the parameters of a ReLU network from its values alone, up to permutation and positive scaling of its
    units (Phuong & Lampert 2020, theorem 2.1).

    Files: safetensors, .pt2, .onnx, or state dicts written by torch.save. The network is only evaluated, in float64, at
    points of the domain.
    """

    roles: ClassVar[tuple[str, ...]] = ("file",)

    file: Path
    """File of the network."""
    sizes: str = ""
    """Units from the inputs to the outputs, as in 20-10-1. Default: those of the file, of which nothing else is used;
    unknown: widths and depth are found too, as far as possible."""
    domain: tuple[float, ...] = (-2.0, 2.0)
    """Lower and upper end of every input."""
    seed: int = 1
    """Seed of the lines along which folds are searched."""
    most_evaluations: int = 200_000
    """Maximum number of inputs at which the network may be evaluated."""
    file_network: int = 0
    """Index of the network to use, if the file contains several."""
    out: Path | None = None
    """Write the recovered network to this file (.safetensors)."""
    checkpoint: Path | None = None
    """Save the state to this file during the recovery; after an interruption the same command continues from it."""
    json: bool = False
    """Print one JSON object and nothing else."""


def run_recover(options: Recover) -> None:
    """Print and save what is recovered of a network."""
    inputs.validate_ending("--out", options.out, (".safetensors",))
    if len(options.domain) != 2:
        raise UserError(f"--domain needs two numbers, LOWER UPPER, got {len(options.domain)}")
    _validate_files(options)
    from understudy.papers.equivalence.recover import recover
    from understudy.papers.equivalence.theory.relu_network import as_relu_network

    networks = GivenNetworks(options)
    network, changes = as_relu_network(str(options.file), networks.read("file", options.file, options.file_network))
    sizes = _sizes(options.sizes, network.sizes)
    low, high = options.domain
    found = recover(
        # Without sizes, only the number of inputs is taken from the file.
        network if sizes is not None else lambda x: network(x),
        (low, high) if sizes is not None else ([low] * network.sizes[0], [high] * network.sizes[0]),
        sizes,
        seed=options.seed,
        most_evaluations=options.most_evaluations,
        checkpoint=options.checkpoint,
    )
    if options.out is not None:
        found.save(options.out)
    if options.json:
        saved = None if options.out is None else str(options.out)
        emit(found.as_dict() | {"assumed": networks.assumed, "changes": list(changes), "saved": saved})
        return
    networks.show()
    for change in changes:
        print(change)
    _show(found)
    if options.out is not None:
        print(f"network: {options.out}")


def _validate_files(options: Recover) -> None:
    """Refuse files that could not be written after the recovery, or would replace another one."""
    used = {"the file of the network": options.file.resolve()}
    for option, path in (("--out", options.out), ("--checkpoint", options.checkpoint)):
        if path is None:
            continue
        if not path.absolute().parent.is_dir():
            raise UserError(f"{option} must be in an existing folder, got {path}: create {path.parent}")
        if path.is_dir():
            raise UserError(f"{option} must be a file, got the folder {path}")
        for other, taken in used.items():
            if path.resolve() == taken:
                raise UserError(f"{option} must not be {other}, got {path}: choose another file")
        used[option] = path.resolve()


def _sizes(given: str, own: tuple[int, ...]) -> tuple[int, ...] | None:
    if given == "unknown":
        return None
    if not given:
        return own
    try:
        return tuple(int(word) for word in given.split("-"))
    except ValueError:
        raise UserError(f"--sizes must be numbers of units joined by -, as in 20-10-1, got {given}") from None


def _show(found: Recovered) -> None:
    from understudy.report.terminal.tables import output, plain_table

    what = "-".join(map(str, found.network.sizes))
    state = "complete" if found.complete else "incomplete"
    asked = (
        "" if found.sizes is None else f", asked for {'-'.join(map(str, found.sizes))} (only these widths were used)"
    )
    print(f"Recovery {state}: {what} on {found.box}{asked}.")
    print(
        f"{found.evaluations:,} evaluations; largest residual on fresh inputs {number(found.residual, '.1e')} of the "
        "outputs' scale."
    )
    for missing in found.unrecoverable:
        print(f"Missing: {missing}.")
    if found.network.slope:
        print(f"Leaky ReLU of slope {number(found.network.slope, '.6g')}.")
    table = plain_table("layer", "unit", "folds of the box", "fold points", "confirmed elsewhere")
    for unit in found.units[:_MOST]:
        share = number(unit.folds, ".2%") if unit.folds else "under 0.01%"
        table.add_row(str(unit.layer), str(unit.unit), share, str(unit.points), f"{unit.confirmed} of {unit.expected}")
    output().print(table)
    if len(found.units) > _MOST:
        print(f"and {len(found.units) - _MOST} more units: see --json")
