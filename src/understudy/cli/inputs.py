"""What commands on network files are given: networks of each file, inputs to look at them on, and others to test on."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from understudy.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

    from understudy.data import Gaussian, Uniform
    from understudy.nets import Population

_HELD_OUT = 5
"""Of a file of inputs every fifth sample is held out."""


@dataclass(frozen=True, kw_only=True)
class OnInputs:
    """Options of every command that looks at networks on inputs."""

    data: Path | None = None
    """Inputs to compare on: .npy, .npz or .parquet, samples × inputs. Left out, they are drawn."""
    inputs: Literal["gaussian", "uniform"] = "gaussian"
    """Distribution of drawn inputs."""
    input_std: float = 1.5
    """Standard deviation of drawn inputs."""
    samples: int = 10_000
    """How many inputs are drawn."""
    seed: int = 1
    """Seed of drawn inputs."""
    leaky: float | None = None
    """Slope of the activation below zero, for files that do not say; left out, ReLU."""
    json: bool = False
    """Print one JSON object and nothing else."""


@dataclass(frozen=True, kw_only=True)
class Given(OnInputs):
    """Options of the commands that change students of a teacher, and test what came of it on other inputs."""

    teacher: Path | None = None
    """The teacher's file: safetensors, or a state dict written by torch.save."""
    teacher_network: int = 0
    """Which network of the teacher's file, where it holds several."""
    data: Path | None = None
    """Inputs: .npy, .npz or .parquet, samples × inputs; every fifth sample is held out. Left out, they are drawn."""
    samples: int = 10_000
    """How many inputs are drawn, and as many others to test on."""


class Samples(NamedTuple):
    """Inputs to choose and fit by, and inputs that nothing was chosen by."""

    given: Tensor
    held_out: Tensor


def read_teacher(options: Given) -> Population:
    """The teacher, which these commands cannot do without."""
    if options.teacher is None:
        raise UserError("--teacher: nothing was given; name the file of the teacher that the students learned from")
    return read_network(options.teacher, options.leaky, options.teacher_network, "--teacher-network")


def read_networks(path: Path, slope: float | None) -> Population:
    """All networks of a file."""
    from understudy.nets import load

    if slope is not None and not isfinite(slope):
        raise UserError(f"--leaky: {slope} was given; allowed is a finite number, such as 0 for ReLU")
    return load(path, slope=slope)


def read_network(path: Path, slope: float | None, which: int, option: str) -> Population:
    """One network of a file."""
    population = read_networks(path, slope)
    if not 0 <= which < len(population):
        raise UserError(f"{option}: {which} was given; {path} holds networks 0 to {len(population) - 1}")
    return population[which]


def read_inputs(options: OnInputs, networks: Population) -> Tensor:
    """All of the file, or drawn."""
    if options.data is not None:
        return _from_file(options.data, networks)
    return _source(options, networks.inputs).evaluating(options.seed)


def inputs_in_words(options: OnInputs) -> str:
    """Which file they are of, or how they were drawn."""
    if options.data is not None:
        return f"of {options.data}"
    return f"drawn: {options.inputs}, std {options.input_std:g}, seed {options.seed}"


def read_samples(options: Given, networks: Population) -> Samples:
    """From the file, or drawn."""
    import torch

    if options.data is not None:
        inputs = _from_file(options.data, networks)
        if len(inputs) < _HELD_OUT:
            raise UserError(f"--data: {options.data} has {len(inputs)} samples; allowed is {_HELD_OUT} or more")
        held = torch.arange(len(inputs)) % _HELD_OUT == _HELD_OUT - 1
        return Samples(inputs[~held].double(), inputs[held].double())
    source = _source(options, networks.inputs)
    return Samples(*(draw(options.seed, dtype=torch.float64) for draw in (source.training, source.evaluating)))


def _from_file(path: Path, networks: Population) -> Tensor:
    from understudy.data.input_files import read_inputs

    inputs = read_inputs(path, image=networks.image and (networks.sizes[0], *networks.image))
    if inputs.shape[1] != networks.inputs:
        raise UserError(f"--data: {path} has {inputs.shape[1]} inputs a sample; the networks take {networks.inputs}")
    return inputs


def _source(options: OnInputs, dim: int) -> Gaussian | Uniform:
    from understudy.data import Gaussian, Uniform

    if not 0 <= options.seed < 2**63:
        raise UserError(f"--seed: {options.seed} was given; allowed is a whole number from 0 to 2^63 − 1")
    for name, value in (("samples", options.samples), ("input-std", options.input_std)):
        if not value > 0 or not isfinite(value):
            raise UserError(f"--{name}: {value} was given; allowed is a finite number above 0")
    kind = Gaussian if options.inputs == "gaussian" else Uniform
    return kind(dim, options.input_std, train=options.samples, evaluation=options.samples)


def check_ending(option: str, path: Path | None, endings: tuple[str, ...]) -> None:
    """Refuse a file to write to whose ending says that it is something else."""
    if path is not None and path.suffix not in endings:
        raise UserError(f"{option}: {path} was given; allowed endings are {', '.join(endings)}")


def write_networks(population: Population, path: Path) -> None:
    """As safetensors, under --save."""
    from understudy.nets import save
    from understudy.store.files import disk_errors

    with disk_errors(path, "choose another place with --save"):
        save(population, path)
