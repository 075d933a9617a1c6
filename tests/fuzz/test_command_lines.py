"""Command lines with hostile numbers: every one is done, refused by one line that names an option, or interruptible.

A refusal leaves nothing behind, and no command takes more memory than it planned.
"""

from __future__ import annotations

import dataclasses
import json
import typing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.forked_commands import ForkedCommands
from understudy.cli import _COMMANDS
from understudy.lab.discovery import studies

BEYOND = str(10**20)
INTEGERS = ("-1", "0", "1", "3", "100000", "1000000000", "1000000000000", BEYOND, "1" * 400, "nan", "1e308")
NUMBERS = (*INTEGERS, "inf", "-inf", "1e-308", "0.5", "1e12", "")
FILES = {
    "align": ["teacher.pt", "student.pt"],
    "check": ["teacher.pt", "student.pt"],
    "prune": ["student.pt", "--teacher", "teacher.pt"],
    "connect": ["a.pt", "b.pt", "--teacher", "teacher.pt"],
    "compare": ["a.pt", "b.pt"],
    "recover": ["teacher.pt"],
    "start": ["absolute.pt", "--activation", "abs"],
}
"""What each command is given: files of `understudy example`."""


@pytest.fixture(scope="module")
def commands():
    """Run commands in forks."""
    forks = ForkedCommands()
    yield forks
    forks.close()


def number_kind(hint: Any) -> type | None:
    """int or float for options that take numbers, one or several."""
    if hint in (int, float):
        return hint
    kinds = (number_kind(part) for part in typing.get_args(hint) if not isinstance(part, str))
    return next((kind for kind in kinds if kind), None)


def numeric(kind: type) -> dict[str, type]:
    """The options of a dataclass that take numbers, as they are typed."""
    hints = typing.get_type_hints(kind)
    found = {f.name: number_kind(hints[f.name]) for f in dataclasses.fields(kind)}
    return {f"--{name.replace('_', '-')}": each for name, each in found.items() if each}


@st.composite
def hostile_options(draw, kind: type, most: int = 2) -> list[str]:
    options = numeric(kind)
    names = draw(st.lists(st.sampled_from(sorted(options)), min_size=1, max_size=most, unique=True))
    return [
        word for name in names for word in (name, draw(st.sampled_from(INTEGERS if options[name] is int else NUMBERS)))
    ]


@given(st.data())
def test_every_study_survives_hostile_numbers(commands, data):
    name = data.draw(st.sampled_from(sorted(studies())))
    words = data.draw(hostile_options(studies()[name]))
    ended = commands.run("run", name, "--quick", "--device", "cpu", "--json", *words, seconds=2.0)
    if "there is no such folder" not in ended.err:  # images that are not on this machine
        ended.require_clean()
    if ended.status == 0:
        assert isinstance(json.loads(ended.out), dict)


@given(st.data())
def test_every_command_survives_hostile_numbers(commands, example, data):
    name = data.draw(st.sampled_from(sorted(FILES)))
    words = data.draw(hostile_options(_COMMANDS[name].options))
    ended = commands.run(name, *files(name, example), "--json", *words, seconds=2.0)
    ended.require_clean()
    if ended.status == 0:
        assert isinstance(json.loads(ended.out), dict)


def files(name: str, example) -> list[str]:
    return [str(example / word) if word.endswith(".pt") else word for word in FILES[name]]


STUDIES = [
    "certificates --seeds 1000000000000",  # grew without end
    "certificates --samples 1000000000000",  # failed in its second part
    "certificates --multiple 1e308",
    f"two-layer --seeds {BEYOND}",
    "two-layer --steps 1000000000",  # planned after the folder was made
    "two-layer --epochs 1000000000",
    "two-layer --multiple 1e12",
    "gaus --train 1000000000",
    f"gaus --evaluation {BEYOND}",
    "hyperplanes --students 1000000000",
    f"split-normal --first-seed {BEYOND}",
    "split-normal --batch 1000000000000",
    f"split-normal --width {BEYOND}",
    "movie-sentences --longest 1000000000",
    "data-geometry --dim 1000000000",
    "data-geometry --seeds 1000000000000",
    "linear-distillation --depths 1000000000000",
    f"monotonicity --dim {BEYOND}",
    "equivalence --magnitudes 1e12",
    "equivalence --layers 1000000000",
    "recovery --rare 100000000",
    "identifiability --descents 1000000000",  # computed rates of a billion teachers before the folder was made
    "initialisation --dim 1000000000",
    f"local-rate --steps {BEYOND}",
    "regimes --probes 1000000000000",
    "warm-up --angles 1000000000000",
    "batchnorm-energy --teacher-layers 1000000000000",
    f"lucky-init --teacher-nodes {BEYOND}",
    "multi-exit --seeds 1000000000",  # listed all networks to validate the options
    "orthogonal --seeds 1000000000",  # drew the points of all seeds to validate them
    "dynamics --nodes 1000000000",
    "deep --teacher-layers 1000000000",
]


@pytest.mark.parametrize("line", STUDIES)
def test_sizes_of_studies_are_refused_at_once(commands, line):
    ended = commands.run("run", *line.split(), "--quick", "--device", "cpu", "--json", seconds=5.0)
    assert ended.status == 2, ended
    ended.require_clean()
    assert line.split()[1] in ended.err


LINES = [
    "align --samples 1000000000000",
    f"align --samples {BEYOND}",
    "align --input-std 1e308",
    "check --samples 1000000000",
    "check --samples 1",  # named a theorem, and no option
    "prune --samples 1000000000000",
    "prune --samples 1",  # named no option
    "connect --points 1000000000000",
    f"connect --points {BEYOND}",
    f"compare --seed {BEYOND}",
    f"recover --most-evaluations {BEYOND}",
    "start --students 1000000000",
    "start --by subspace --samples 1000000000000",
    "start --by large --scale 1e308",
    f"start --descend {BEYOND}",
    "start --descend 10 --rate 1e308",
    "start --descend 10 --batch 1000000000000",
]


@pytest.mark.parametrize("line", LINES)
def test_sizes_of_commands_are_refused_at_once(commands, example, line):
    name, *words = line.split()
    ended = commands.run(name, *files(name, example), *words, "--json", seconds=5.0)
    assert ended.status == 2, ended
    ended.require_clean()
    assert words[-2] in ended.err


def test_a_running_command_is_interrupted(commands):
    ended = commands.run("run", "regimes", "--quick", "--steps", "1000000000", "--device", "cpu", seconds=1.0)
    assert ended.status in (130, None)
    assert "Traceback" not in ended.err
