"""Every command ends with an exit status and, if it fails, one line; never with a traceback."""

import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch

from support.commands import COMMAND, ENVIRONMENT
from understudy._errors import UserError
from understudy.cli.boundary import run_guarded
from understudy.cli.parsing import emit
from understudy.cli.streams import NARROWEST, WIDEST


def ended(error: BaseException, *words: str) -> int:
    """Exit status of a command that raises an error."""

    def command() -> None:
        raise error

    return run_guarded(command, words)


def test_a_command_that_ends_normally_has_status_0(capsys):
    assert run_guarded(lambda: print("done"), []) == 0
    assert capsys.readouterr() == ("done\n", "")


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (UserError("must be at least 1, got 0", "teacher_nodes"), "--teacher-nodes must be at least 1, got 0"),
        (UserError("two\nlines"), "two lines"),
        (SystemExit("no such option"), "no such option"),
        (MemoryError(), "memory is exhausted (MemoryError); choose smaller sizes"),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried 8 bytes"),
            "memory is exhausted ([enforce fail] DefaultCPUAllocator: can't allocate memory: you tried 8 bytes); "
            "choose smaller sizes",
        ),
        (
            PermissionError(13, "Permission denied", "/root/x.npy"),
            "/root/x.npy: Permission denied; choose another file or folder",
        ),
    ],
)
def test_what_a_user_can_correct_is_one_line_and_status_2(capsys, error, line):
    assert ended(error) == 2
    assert capsys.readouterr() == ("", f"understudy: {line}\n")


@pytest.mark.parametrize(
    "allocate",
    [
        lambda: torch.empty(1 << 40, 1 << 10),
        lambda: torch.empty(1 << 60, 1 << 10),
        lambda: np.empty((1 << 40, 1 << 10)),
        lambda: np.empty((1 << 60, 1 << 10)),
        lambda: [None] * (1 << 60),
    ],
)
def test_allocations_that_fail_are_recognised_as_exhausted_memory(capsys, allocate):
    assert run_guarded(allocate, []) == 2
    assert capsys.readouterr().err.startswith("understudy: memory is exhausted (")


def test_statuses_of_parsers_are_kept():
    assert [ended(SystemExit(code)) for code in (None, 0, 2)] == [0, 0, 2]


@pytest.mark.parametrize(
    ("words", "again"),
    [(["run", "two-layer"], "resumes where it stopped"), (["align"], "starts again")],
)
def test_an_interruption_says_what_the_same_command_does(capsys, words, again):
    assert ended(KeyboardInterrupt(), *words) == 130
    assert capsys.readouterr().err == f"\nunderstudy: interrupted; the same command {again}\n"


def test_ctrl_c_is_an_interruption(capsys):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert run_guarded(lambda: signal.raise_signal(signal.SIGINT), ["check"]) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr().err.count("interrupted") == 1


def test_an_error_in_understudy_is_one_line_with_a_crash_report_and_status_1(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert ended(KeyError("ρ"), "align", "a.pt", "--json") == 1
    out, err = capsys.readouterr()
    (report,) = tmp_path.iterdir()
    assert (out, err) == (
        "",
        f"understudy: an error in understudy itself (KeyError: 'ρ'); please report it with {report}, "
        "which has the details\n",
    )
    text = report.read_text(encoding="utf-8")
    assert "command: understudy align a.pt --json\n" in text
    assert text.rstrip().endswith("KeyError: 'ρ'")
    assert re.search(r"^torch \d", text, re.M)


def test_a_crash_report_that_cannot_be_written_is_still_one_line(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    assert ended(ZeroDivisionError("division by zero")) == 1
    assert capsys.readouterr().err == (
        "understudy: an error in understudy itself (ZeroDivisionError: division by zero); a crash report cannot be "
        "written (No such file or directory)\n"
    )


# real processes

_CAP = 8 << 30
_DRIVER = """
import io, json, os, resource, sys
resource.setrlimit(resource.RLIMIT_AS, ({cap}, {cap}))
from understudy.cli import main
lengths = {{}}
for columns in ("1", "5", "100000", "abc"):
    os.environ["COLUMNS"] = columns
    sys.argv = ["understudy", "run", "two-layer", "--help"]
    sys.stdout = io.StringIO()
    status = main()
    lines = sys.stdout.getvalue().splitlines()
    lengths[columns] = status, max(map(len, lines))
sys.stdout = sys.__stdout__
print(json.dumps(lengths))
"""


def shell(command: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        ["bash", "-c", command.replace("understudy", shlex.join(COMMAND), 1)],
        cwd=cwd,
        env=ENVIRONMENT | environment,
        text=True,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert "Exception ignored" not in done.stderr, done.stderr
    return done


@pytest.mark.parametrize(
    ("command", "status", "err"),
    [
        (
            "understudy --help > /dev/full",
            2,
            "understudy: standard output cannot be written (No space left on device); redirect it to another place\n",
        ),
        ("understudy list >&-", 2, "understudy: standard output is closed; redirect it to a file, or to /dev/null\n"),
        ("understudy lst 2>&-", 2, ""),
        ("understudy lst 2> /dev/full", 2, ""),
    ],
)
def test_streams_that_are_closed_or_full_end_with_a_line_and_a_status(tmp_path, command, status, err):
    done = shell(command, tmp_path)
    assert (done.returncode, done.stderr) == (status, err)


def test_a_reader_that_ended_ends_the_command_without_a_word(tmp_path):
    reader, writer = os.pipe()
    os.close(reader)
    words = [*COMMAND, "--help"]
    done = subprocess.run(words, cwd=tmp_path, env=ENVIRONMENT, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize(
    "environment", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}]
)
def test_output_is_ascii_where_the_encoding_has_no_more(tmp_path, environment):
    shown = shell("understudy --help", tmp_path, **environment).stdout
    assert shown.isascii()
    assert "two-layer |*| teacher" in shown


def test_json_is_one_line_that_every_encoding_has(monkeypatch):
    value = {"summary": "losses down to 10⁻¹², −0.5"}
    for encoding, ascii_only in (("ascii", True), ("utf-8", False)):
        held = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(held, encoding=encoding))
        assert run_guarded(lambda: emit(value), []) == 0
        printed = held.getvalue()
        assert printed.count(b"\n") == 1
        assert printed.isascii() == ascii_only
        assert json.loads(printed) == value


def test_help_fits_any_width_in_little_memory(tmp_path):
    words = [sys.executable, "-c", _DRIVER.format(cap=_CAP)]
    done = subprocess.run(words, cwd=tmp_path, env=ENVIRONMENT, text=True, capture_output=True, timeout=120, check=True)
    found = json.loads(done.stdout)
    assert {columns: status for columns, (status, _) in found.items()} == dict.fromkeys(found, 0)
    widths = {columns: width for columns, (_, width) in found.items()}
    assert widths["1"] == widths["5"] < 1.5 * NARROWEST  # the line of usage cannot be broken
    assert NARROWEST < widths["100000"] <= WIDEST
    assert widths["abc"] == 80
