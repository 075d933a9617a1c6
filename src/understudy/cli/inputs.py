"""Options and files that several commands share: networks, inputs to measure them on, files to write."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from understudy._errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor

    from understudy.data import Gaussian, Uniform
    from understudy.nets import Population

_HELD_OUT = 5
"""Every fifth sample of a file of inputs is held out."""


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
    leaky: float | None = None
    """Slope of the activation below zero, for files that do not record it. By default 0 (ReLU)."""
    json: bool = False
    """Print one JSON object and nothing else."""


@dataclass(frozen=True, kw_only=True)
class TeacherOptions(InputOptions):
    """Options of the commands that change students of a teacher and test the result on held-out inputs."""

    teacher: Path | None = None
    """File of the teacher: safetensors, or a state dict written by torch.save. Required."""
    teacher_network: int = 0
    """Index of the network to use, if the teacher's file contains several."""
    data: Path | None = None
    """Inputs: .npy, .npz, .parquet or .csv, samples × inputs; every fifth sample is held out. By default they are drawn
    at random."""
    samples: int = 10_000
    """Number of inputs to draw, and number of held-out inputs to test on."""


class Samples(NamedTuple):
    """Inputs to select and fit on, and held-out inputs to test on."""

    given: Tensor
    held_out: Tensor


def read_teacher(options: TeacherOptions) -> Population:
    """Read the teacher, which these commands require."""
    if options.teacher is None:
        raise UserError("--teacher is missing; name the file of the teacher that the students learned from")
    return read_network(options.teacher, options.leaky, options.teacher_network, "--teacher-network")


def read_network(path: Path, slope: float | None, index: int | None, option: str) -> Population:
    """Read the network of this index from a file, or all networks if the index is None."""
    from understudy.nets import load

    if slope is not None and not isfinite(slope):
        raise UserError(f"--leaky must be a finite number, such as 0 for ReLU, got {slope}")
    population = load(path, slope=slope)
    if index is None:
        return population
    if not 0 <= index < len(population):
        raise UserError(f"{option} must be between 0 and {len(population) - 1} for {path}, got {index}")
    return population[index]


def read_inputs(options: InputOptions, networks: Population) -> Tensor:
    """Read all inputs of the file, or draw them."""
    if options.data is not None:
        return _from_file(options.data, networks)
    return _source(options, networks.inputs).evaluating(options.seed)


def describe_inputs(options: InputOptions) -> str:
    """Name the file of the inputs, or the distribution that they were drawn from."""
    if options.data is not None:
        return f"of {options.data}"
    return f"drawn: {options.inputs}, std {options.input_std:g}, seed {options.seed}"


def read_samples(options: TeacherOptions, networks: Population) -> Samples:
    """Read inputs and held-out inputs from the file, or draw both."""
    import torch

    if options.data is not None:
        inputs = _from_file(options.data, networks)
        if len(inputs) < _HELD_OUT:
            raise UserError(f"--data must have at least {_HELD_OUT} samples, got {len(inputs)} in {options.data}")
        held = torch.arange(len(inputs)) % _HELD_OUT == _HELD_OUT - 1
        return Samples(inputs[~held].double(), inputs[held].double())
    source = _source(options, networks.inputs)
    return Samples(*(draw(options.seed, dtype=torch.float64) for draw in (source.training, source.evaluating)))


def _from_file(path: Path, networks: Population) -> Tensor:
    from understudy.data.input_files import read_inputs

    inputs = read_inputs(path, image=networks.image and (networks.sizes[0], *networks.image))
    if inputs.shape[1] != networks.inputs:
        raise UserError(
            f"--data must have {networks.inputs} inputs per sample, as the networks do, got {inputs.shape[1]} in {path}"
        )
    return inputs


def _source(options: InputOptions, dim: int) -> Gaussian | Uniform:
    from understudy.data import Gaussian, Uniform

    if not 0 <= options.seed < 2**63:
        raise UserError(f"--seed must be between 0 and 2^63 − 1, got {options.seed}")
    for name, value in (("samples", options.samples), ("input-std", options.input_std)):
        if not value > 0 or not isfinite(value):
            raise UserError(f"--{name} must be above 0, got {value:g}")
    kind = Gaussian if options.inputs == "gaussian" else Uniform
    return kind(dim, options.input_std, train=options.samples, evaluation=options.samples)


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
