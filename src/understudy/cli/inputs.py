"""Options and files that several commands share: inputs to measure networks on, files to write."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from understudy._errors import UserError
from understudy.cli.networks import GivenNetworks

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor

    from understudy.nets import Population


@dataclass(frozen=True, kw_only=True)
class InputOptions:
    """Options of every command that measures networks on inputs."""

    data: Path | None = None
    """Inputs to measure on: .npy, .npz, .parquet or .csv, samples × inputs. By default they are drawn at random."""
    inputs: Literal["gaussian", "uniform"] = "gaussian"
    """Distribution of the drawn inputs."""
    input_std: float = 1.5
    """Standard deviation of the drawn inputs."""
    samples: int = 10_000
    """Number of inputs to draw."""
    seed: int = 1
    """Seed of the drawn inputs."""
    json: bool = False
    """Print one JSON object and nothing else."""


@dataclass(frozen=True, kw_only=True)
class TeacherOptions(InputOptions):
    """Options of the commands that change students of a teacher and test the result on held-out inputs."""

    teacher: Path | None = None
    """File of the teacher: safetensors, .pt2, .onnx, or a state dict written by torch.save. Required."""
    teacher_network: int = 0
    """Index of the network to use, if the teacher's file contains several."""
    data: Path | None = None
    """Inputs: .npy, .npz, .parquet or .csv, samples × inputs; every fifth sample is held out. By default they are drawn
    at random."""
    samples: int = 10_000
    """Number of inputs to draw, and number of held-out inputs to test on."""


def read_teacher(networks: GivenNetworks, options: TeacherOptions) -> Population:
    """Read the teacher, which these commands require."""
    if options.teacher is None:
        raise UserError("--teacher is missing; name the file of the teacher that the students learned from")
    return networks.read("teacher", options.teacher, options.teacher_network)


def drawing(options: InputOptions) -> dict[str, Any]:
    """The options of inputs by name, for the functions of the commands."""
    names = ("data", "inputs", "input_std", "samples", "seed")
    return {name: getattr(options, name) for name in names}


def read_inputs(options: InputOptions, networks: Population) -> Tensor:
    """Read all inputs of the file, or draw them."""
    from understudy.data.given_inputs import Drawn, measuring_inputs

    given = drawing(options)
    return measuring_inputs(given.pop("data"), networks, Drawn(**given))


def describe_inputs(options: InputOptions) -> str:
    """Name the file of the inputs, or the distribution that they were drawn from."""
    from understudy.data.given_inputs import Drawn

    given = drawing(options)
    file = given.pop("data")
    return str(Drawn(**given)) if file is None else f"of {file}"


def validate_ending(option: str, path: Path | None, endings: tuple[str, ...]) -> None:
    """Raise a UserError if a file to write does not have one of the endings."""
    if path is not None and path.suffix not in endings:
        raise UserError(f"{option} must end in {', '.join(endings)}, got {path}")


def write_figure(figure: Figure, path: Path) -> None:
    """Write a figure to the file given with --figure."""
    from understudy._atomic import disk_errors

    with disk_errors(path, "choose another place with --figure"):
        figure.savefig(path, dpi=200)


def write_networks(population: Population, path: Path) -> None:
    """Write networks to the file given with --save."""
    from understudy._atomic import disk_errors
    from understudy.nets import save

    with disk_errors(path, "choose another place with --save"):
        save(population, path)
