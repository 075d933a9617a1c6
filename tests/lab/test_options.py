"""Options state their constraints in their annotations, and one validator writes all messages."""

import math
from dataclasses import dataclass
from typing import Annotated

import pytest
from annotated_types import Ge, Le, Lt

from understudy._errors import UserError
from understudy.lab.options import (
    Among,
    Angle,
    Count,
    InputFile,
    NonNegatives,
    Positive,
    Positives,
    file_options,
    typed,
    validate_batch,
    validate_options,
    validate_widths,
)


@dataclass(frozen=True)
class Options:
    """Options of every kind."""

    teacher_nodes: Count = 20
    lr: Positive = 0.01
    polarity: NonNegatives = (0.0, 1.0)
    multiple: Positives = (1.0, 5.0)
    angle: Angle = 1.0
    leaky: Annotated[float, Ge(-1), Lt(1)] = 0.0
    most: Annotated[int, Le(1_000_000)] = 5
    networks: Annotated[tuple[str, ...], Among(("fc", "cnn"))] = ("fc",)
    data: InputFile = ""
    free: float = 3.0


def test_defaults_are_allowed():
    validate_options(Options())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"teacher_nodes": 0}, "--teacher-nodes must be at least 1, got 0"),
        ({"lr": 0.0}, "--lr must be above 0, got 0"),
        ({"lr": math.nan}, "--lr must be above 0, got nan"),
        ({"polarity": (1.0, -1.0)}, "--polarity must be at least 0, got -1"),
        ({"polarity": ()}, "--polarity needs at least one value"),
        ({"multiple": (1.0, 2.0, 1.0)}, "--multiple takes each value once, got 1 2 1"),
        ({"angle": 2.0}, "--angle must be above 0 and at most π/2, got 2"),
        ({"leaky": 1.0}, "--leaky must be at least −1 and below 1, got 1"),
        ({"most": 2_000_000}, "--most must be at most 1,000,000, got 2000000"),
        ({"networks": ("fc", "rnn")}, "--networks must be one of fc, cnn, got rnn"),
        ({"free": math.inf}, "--free must be a finite number, got inf"),
        ({"free": -1e12}, "--free must be at least −1,000,000,000, got -1e+12"),
        ({"teacher_nodes": 10**20}, "--teacher-nodes must be at most 1,000,000,000, got 100000000000000000000"),
        ({"multiple": (1.0, 1e308)}, "--multiple must be at most 1,000,000,000, got 1e+308"),
    ],
)
def test_the_message_states_what_is_allowed_and_what_was_given(given, message):
    with pytest.raises(UserError) as error:
        validate_options(Options(**given))
    assert str(error.value) == message


def test_widths_are_whole_numbers_of_nodes():
    validate_widths(4, (0.25, 1.5, 10.0))
    with pytest.raises(UserError, match=r"--multiple 1.5 × 5 teacher nodes = 7.5 student nodes; choose a multiple"):
        validate_widths(5, (1.0, 1.5))
    with pytest.raises(UserError, match=r"--multiple 1.5 × 5 teacher nodes"):
        validate_widths((4, 5), (1.0, 1.5))


def test_a_batch_is_no_larger_than_the_training_set():
    validate_batch(16, 16)
    with pytest.raises(UserError, match=r"--batch must be at most the number of training samples \(1,000\), got 1001"):
        validate_batch(1_000, 1_001)


def test_options_that_name_files_are_listed():
    assert file_options(Options) == ["data"]


@pytest.mark.parametrize("value", [0.1, 1e-7 / 3, 12345678.9, 3, -0.5])
def test_a_number_is_written_so_that_it_is_read_back_as_the_same_number(value):
    assert float(typed(value)) == value


def test_words_are_quoted_if_a_shell_requires_it():
    assert typed("my data.npz") == "'my data.npz'"
