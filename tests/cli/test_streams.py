"""Standard output and standard error that are closed, full, narrow, wide, or in an encoding without our characters."""

import io
import os
import sys

import pytest

from understudy._errors import UserError
from understudy.cli.streams import (
    NARROWEST,
    WIDEST,
    ReaderEndedError,
    encodes_unicode,
    prepare_streams,
    replace_characters,
)


class _Raw(io.RawIOBase):
    """A file that takes bytes, or fails with an error."""

    def __init__(self, error: OSError | None = None) -> None:
        self.error, self.held = error, b""

    def writable(self) -> bool:
        return True

    def write(self, data) -> int:
        if self.error:
            raise self.error
        self.held += bytes(data)
        return len(data)


def stream(encoding: str = "utf-8", error: OSError | None = None) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BufferedWriter(_Raw(error)), encoding=encoding)


@pytest.fixture
def replaced(monkeypatch):
    """Replace standard output, standard error and COLUMNS; return both streams once they are prepared."""

    def replace(out, err=None, columns: str | None = "80"):
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "stderr", err or stream())
        monkeypatch.setenv("COLUMNS", columns or "")
        if columns is None:
            monkeypatch.delenv("COLUMNS")
        prepare_streams()
        return sys.stdout, sys.stderr

    return replace


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("−0.25", "-0.25"),
        ("3.2×10⁻⁷", "3.2x10^-7"),
        ("10¹²", "10^12"),
        ("W₁₂", "W_12"),
        ("ρ ≥ 0.8 ± 0.1", "rho >= 0.8 +/- 0.1"),
        ("Δw, Σ‖w*‖", "Deltaw, sum ||w*||"),
        ("½ E (f − f*)²", "1/2 E (f - f*)^2"),
        ("Ẇ, é, ﬁ", "W, e, fi"),
        ("d = 3…5", "d = 3...5"),
        ("名\ud800", "??"),
    ],
)
def test_characters_are_replaced_by_similar_ones_of_ascii(replaced, text, plain):
    out, _ = replaced(stream("ascii"))
    out.write(text)
    out.flush()
    assert out.buffer.raw.held.decode("ascii") == plain
    assert not encodes_unicode(out)


def test_text_that_can_be_written_is_not_replaced_and_a_lone_surrogate_does_not_fail(replaced):
    out, _ = replaced(stream())
    out.write("−0.25 \udcff")
    out.flush()
    assert out.buffer.raw.held.decode() == "−0.25 ?"
    assert encodes_unicode(out)
    assert encodes_unicode(io.StringIO())


def test_only_errors_of_encoding_are_handled():
    error = UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")
    with pytest.raises(UnicodeDecodeError):
        replace_characters(error)


def test_an_error_of_standard_output_says_that_it_is_standard_output(replaced):
    out, _ = replaced(stream(error=OSError(28, "No space left on device")))
    with pytest.raises(UserError) as error:
        print("something", file=out, flush=True)
    assert str(error.value) == (
        "standard output cannot be written (No space left on device); redirect it to another place"
    )


def test_a_reader_that_ended_is_no_error_of_the_user(replaced):
    out, _ = replaced(stream(error=BrokenPipeError(32, "Broken pipe")))
    with pytest.raises(ReaderEndedError):
        print("something", file=out, flush=True)


def test_standard_error_that_cannot_be_written_is_ignored(replaced):
    _, err = replaced(stream(), stream(error=OSError(28, "No space left on device")))
    print("epoch 1/3", file=err, flush=True)


def test_preparing_twice_prepares_once(replaced):
    out, _ = replaced(stream())
    write = out.write
    prepare_streams()
    assert out.write is write


def test_closed_streams_are_replaced_and_a_closed_output_is_refused(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    with pytest.raises(UserError, match=r"^standard output is closed; redirect it to a file, or to /dev/null$"):
        prepare_streams()
    for each in (sys.stdout, sys.stderr):
        assert each.name == os.devnull
        each.close()


@pytest.mark.parametrize(
    ("columns", "used"),
    [
        ("1", str(NARROWEST)),
        ("5", str(NARROWEST)),
        ("120", "120"),
        ("100000", str(WIDEST)),
        ("9" * 30, str(WIDEST)),
        ("0", "80"),
        ("-3", "80"),
        ("abc", "80"),
        (None, None),
    ],
)
def test_the_width_is_one_for_tables(replaced, monkeypatch, columns, used):
    monkeypatch.setattr(os, "get_terminal_size", lambda *_: os.terminal_size((80, 24)))
    monkeypatch.setattr(sys, "__stdout__", stream())
    replaced(stream(), columns=columns)
    assert os.environ.get("COLUMNS") == used
