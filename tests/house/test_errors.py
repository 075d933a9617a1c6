"""Errors that the user can correct: exit status 2, one message that names the option or file, what was given and what
is allowed, and nothing written."""

import itertools
import pickle
import shutil
import subprocess
import sys
from dataclasses import fields
from typing import get_type_hints

import numpy as np
import pytest
import torch
from torch import nn

from support.commands import COMMAND, ENVIRONMENT, TINY, flat, may_mount, understudy
from understudy import cli
from understudy._errors import UserError
from understudy.lab.discovery import studies
from understudy.papers.specialization.two_layer.study import TwoLayer

HINTS = get_type_hints(TwoLayer)
WHOLE, NUMBERS = (int, tuple[int, ...]), (float, tuple[float, ...])
NUMERIC = {field.name: kind in WHOLE for field in fields(TwoLayer) if (kind := HINTS[field.name]) in (*WHOLE, *NUMBERS)}
"""Numeric options, and whether they take whole numbers."""
MAY_BE_ZERO, MAY_BE_NEGATIVE = {"polarity", "leaky"}, {"leaky"}


@pytest.fixture
def refused(tmp_path, monkeypatch, capsys):
    """Run a command that must fail and write nothing in a folder of its own; returns its message."""

    def refused(*words: object, unchanged: bool = True) -> str:
        monkeypatch.chdir(tmp_path)
        before = sorted(tmp_path.rglob("*"))
        monkeypatch.setattr(sys, "argv", ["understudy", *map(str, words)])
        try:
            status = cli.main()
        except SystemExit as ended:
            status = ended.code
        printed = capsys.readouterr()
        assert status == 2
        assert printed.out == ""
        assert "Traceback" not in printed.err
        assert not unchanged or sorted(tmp_path.rglob("*")) == before
        return printed.err if printed.err.startswith("understudy: ") else flat(printed.err)

    return refused


def option(field: str) -> str:
    return f"--{field.replace('_', '-')}"


def impossible():
    """Every numeric option with words that it does not accept."""
    for field, whole in NUMERIC.items():
        words = {"0", "-1", "nan", "inf", "-inf", "x", "", *(["1.5"] if whole else [])}
        words -= {"0"} if field in MAY_BE_ZERO else set()
        words -= {"-1"} if field in MAY_BE_NEGATIVE else set()
        yield from ((field, word) for word in sorted(words))


@pytest.mark.parametrize(("field", "word"), list(impossible()))
def test_an_invalid_number_is_refused_by_its_option(refused, field, word):
    whole = NUMERIC[field]
    message = refused("run", "two-layer", *TINY, option(field), word)
    readable = word in ("0", "-1") or (not whole and word not in ("x", ""))
    if readable:
        assert message.startswith(f"understudy: {option(field)} must be ")
        assert message.endswith(f", got {word}\n")
    else:
        number = "a whole number" if whole else "a number"
        assert f"Error parsing {option(field)}: must be {number}, got {word!r}" in message


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("two-layers", "there is no study 'two-layers'; did you mean two-layer? studies are {studies}"),
        ("", "run needs the name of a study first: one of {studies}, or a file such as study.py"),
        ("--quick two-layer", "run needs the name of a study first: one of {studies}, or a file such as study.py"),
        ("two-layer --seeds 0", "--seeds must be at least 1, got 0"),
        ("two-layer --lr -0.1", "--lr must be above 0, got -0.1"),
        ("two-layer --polarity -1", "--polarity must be at least 0, got -1"),
        ("two-layer --leaky inf", "--leaky must be a finite number, got inf"),
        ("two-layer --polarity 1 2 1", "--polarity takes each value once, got 1 2 1"),
        ("two-layer --multiple", "--multiple needs at least one value"),
        ("two-layer --batch 11 --train 10", "--batch must be at most the number of training samples (10), got 11"),
        (
            "two-layer --teacher-nodes 3 --multiple 1.5",
            "--multiple 1.5 × 3 teacher nodes = 4.5 student nodes; choose a multiple that gives a whole number of at "
            "least 1",
        ),
    ],
)
def test_messages_of_invalid_options(refused, words, message):
    assert refused("run", *words.split()) == f"understudy: {message.format(studies=', '.join(studies()))}\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--seeds x", "Error parsing --seeds: must be a whole number, got 'x'"),
        ("--epochs 1.5", "Error parsing --epochs: must be a whole number, got '1.5'"),
        ("--lr fast", "Error parsing --lr: must be a number, got 'fast'"),
        ("--polarity 1 x 2", "Error parsing --polarity: must be a number, got 'x'"),
        ("--device tpu", "invalid choice 'tpu' for argument '--device'. Expected one of ('auto', 'cpu', 'cuda')."),
        ("--dtype float16", "invalid choice 'float16' for argument '--dtype'. Expected one of ('float32', 'tf32', "),
        ("--inputs normal", "invalid choice 'normal' for argument '--inputs'. Expected one of ('gaussian', 'uniform')"),
    ],
)
def test_messages_of_unreadable_options(refused, words, message):
    assert message in refused("run", "two-layer", *words.split())


def test_an_unknown_option_is_named_with_the_closest_known_one(refused):
    message = refused("run", "two-layer", "--seed", "3")
    assert "Unrecognized options: --seed" in message
    assert "Perhaps you meant: --seeds INT" in message


def test_an_option_without_its_value_is_named(refused):
    assert "Missing value for argument '--batch'" in refused("run", "two-layer", "--batch")


def test_an_unknown_command_is_named_with_the_closest_known_one(refused):
    assert refused("clams") == (
        "understudy: there is no command 'clams'; did you mean claims? "
        "commands are run, list, report, claims, align, check, prune, connect, compare, recover, start, predict, "
        "example, reproduce, bench\n"
    )


def test_the_console_script_ends_with_status_2_and_without_a_traceback(tmp_path):
    done = understudy("run", "two-layer", "--epochs", "0", cwd=tmp_path, status=2)
    assert done.stderr == "understudy: --epochs must be at least 1, got 0\n"
    done = understudy("run", "two-layer", "--epochs", "x", cwd=tmp_path, status=2)
    assert "Error parsing --epochs: must be a whole number, got 'x'" in flat(done.stderr)
    assert done.stdout == ""
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA GPU")
def test_a_missing_gpu_is_reported(refused):
    assert refused("run", "two-layer", *TINY, "--device", "cuda") == (
        "understudy: --device cuda needs a CUDA GPU, but torch sees none here; use auto or cpu\n"
    )


# Folders to write runs to.


def test_an_out_that_is_a_file_is_refused(refused, tmp_path):
    (tmp_path / "out").write_text("mine")
    message = refused("run", "two-layer", *TINY, "--out", "out")
    assert message.startswith("understudy: out/two-layer/")
    assert message.endswith(": cannot be written (Not a directory); choose another folder with --out\n")
    assert (tmp_path / "out").read_text() == "mine"


def test_an_unwritable_folder_is_refused(refused):
    message = refused("run", "two-layer", *TINY, "--out", "/proc/understudy")
    assert message.startswith("understudy: /proc/understudy/two-layer/")
    assert "--out" in message


def test_a_read_only_folder_is_refused_by_name(refused, tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda path, mode: False)
    message = refused("run", "two-layer", *TINY, "--out", "out")
    assert message.endswith(f": {tmp_path} is read-only; choose another folder with --out\n")


@pytest.mark.skipif(not may_mount(), reason="needs root and unshare, to mount a read-only disk")
def test_a_read_only_disk_is_refused_by_name(tmp_path):
    mount = f'mount -t tmpfs -o ro tmpfs "{tmp_path}" && exec "$@"'
    words = ["unshare", "-m", "sh", "-c", mount, "sh", *COMMAND, "run", "two-layer", *TINY, "--out", tmp_path]
    done = subprocess.run(words, env=ENVIRONMENT, text=True, capture_output=True, check=False)
    assert done.returncode == 2
    assert done.stderr.endswith(f": {tmp_path} is read-only; choose another folder with --out\n")
    assert done.stderr.count("\n") == 1


def test_a_disk_with_too_little_space_is_refused_in_advance(refused, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9 - 10**6, 10**6))
    message = refused("run", "two-layer", *TINY)
    assert message.endswith(
        ": this run needs about 20 MB and the disk has 1 MB free; free some space, or choose another --out\n"
    )


def test_a_folder_of_another_configuration_is_refused_and_left_alone(refused, tiny, tmp_path):
    folder = tmp_path / "runs" / "two-layer" / tiny[1].name
    shutil.copytree(tiny[1], folder)
    config = folder / "config.toml"
    config.write_text(config.read_text().replace("epochs = 3", "epochs = 4"))
    message = refused("run", "two-layer", *TINY)
    assert message == (
        f"understudy: {folder.relative_to(tmp_path)} belongs to another configuration (see its config.toml); choose "
        "another --out\n"
    )
    config.write_text("study = ")
    assert "config.toml is not valid TOML (" in refused("run", "two-layer", *TINY)


def test_a_folder_with_other_files_is_refused_and_left_alone(refused, tiny, tmp_path):
    folder = tmp_path / "runs" / "two-layer" / tiny[1].name
    folder.mkdir(parents=True)
    (folder / "thesis.tex").write_text("years of work")
    message = refused("run", "two-layer", *TINY)
    assert message == (
        f"understudy: {folder.relative_to(tmp_path)} holds files that do not belong to a run; move them away, or "
        "choose another --out\n"
    )


# Runs to report.


@pytest.mark.parametrize("words", [("report",), ("claims", "--keep")])
def test_a_folder_that_is_not_a_run_is_refused(refused, tmp_path, words):
    (tmp_path / "other").mkdir()
    for folder in ("other", "nothing"):
        assert refused(*words, folder) == (
            f"understudy: {folder} is not a run (it has no config.toml); give a folder such as runs/two-layer/3f2a…, "
            "which `understudy run` prints at its end\n"
        )


@pytest.mark.parametrize("lacking", ["nodes.parquet", "weights.safetensors", "environment.json"])
def test_a_run_that_has_not_finished_is_refused(refused, tiny, tmp_path, lacking):
    shutil.copytree(tiny[1], tmp_path / "run")
    (tmp_path / "run" / lacking).unlink()
    assert refused("report", "run") == (
        "understudy: run has not finished; run `understudy run two-layer` with its options again\n"
    )


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("metrics.parquet", "PAR1", "run/metrics.parquet cannot be read ("),
        ("environment.json", "{", "run/environment.json is not JSON ("),
        ("config.toml", "study", "run/config.toml is not valid TOML ("),
        ("config.toml", 'study = "three-layer"', "run is a run of unknown study 'three-layer'; known studies: "),
        ("config.toml", 'study = "two-layer"', "config.toml does not describe a run of two-layer; restore it"),
        (
            "config.toml",
            'study = "two-layer"\noptions = {seeds = "x"}',
            "config.toml does not describe a run of two-layer",
        ),
        ("config.toml", 'study = "two-layer"\noptions = {seeds = 0}', "--seeds must be at least 1, got 0"),
    ],
)
def test_a_damaged_run_is_refused_by_the_file(refused, tiny, tmp_path, file, text, message):
    shutil.copytree(tiny[1], tmp_path / "run")
    (tmp_path / "run" / file).write_text(text)
    assert refused("report", "run", unchanged=False).startswith(f"understudy: {message}")


# Networks to align.


def _stack(*sizes: int) -> nn.Sequential:
    torch.manual_seed(0)
    layers = [part for a, b in itertools.pairwise(sizes) for part in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


class Code:
    def __reduce__(self):
        return print, ("this code must not run",)


@pytest.fixture
def files(tmp_path):
    torch.save(_stack(5, 4, 3).state_dict(), tmp_path / "good.pt")
    torch.save(_stack(6, 4, 3).state_dict(), tmp_path / "inputs.pt")
    torch.save(_stack(5, 4, 2).state_dict(), tmp_path / "outputs.pt")
    torch.save(_stack(5, 3).state_dict(), tmp_path / "flat.pt")
    torch.save(nn.Conv2d(3, 4, 3).state_dict(), tmp_path / "convolution.pt")
    torch.save({"0.weight": torch.zeros(4, 5), "1.weight": torch.zeros(3, 7)}, tmp_path / "shapes.pt")
    torch.save({"0.weight": torch.full((4, 5), torch.nan), "1.weight": torch.ones(3, 4)}, tmp_path / "nan.pt")
    (tmp_path / "empty.pt").touch()
    (tmp_path / "cut.pt").write_bytes((tmp_path / "good.pt").read_bytes()[:500])
    (tmp_path / "code.pt").write_bytes(pickle.dumps(Code()))
    (tmp_path / "words.safetensors").write_text("not tensors")
    (tmp_path / "folder").mkdir()
    np.save(tmp_path / "inputs.npy", np.ones((9, 6)))
    return tmp_path


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing.pt", "missing.pt: there is no such file"),
        ("empty.pt", "empty.pt: the file is empty (0 bytes)"),
        ("cut.pt", "cut.pt: "),
        ("code.pt", "code.pt: "),
        ("words.safetensors", "words.safetensors: "),
        ("folder", "folder: this is a directory"),
        ("shapes.pt", "shapes.pt: the layers '0.weight' (4, 5) and '1.weight' (3, 7) do not fit together"),
        ("convolution.pt", "convolution.pt: "),
        ("nan.pt", "nan.pt: 20 of 20 numbers of the tensor '0.weight' are NaN or infinite"),
        ("inputs.pt", "teacher and student must have the same number of inputs, got 6 and 5"),
        ("outputs.pt", "teacher and student must have the same number of outputs, got 2 and 3"),
        ("flat.pt", "networks without a hidden layer have no nodes to align; give networks of two or more layers"),
    ],
)
def test_a_file_without_a_network_is_refused(refused, files, name, message):
    first = refused("align", name, "good.pt")
    assert first.startswith(f"understudy: {message}")
    assert first.count("\n") == 1
    if name not in ("inputs.pt", "outputs.pt", "flat.pt"):
        assert refused("align", "good.pt", name) == first


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--samples 0", "--samples must be above 0, got 0"),
        ("--samples -3", "--samples must be above 0, got -3"),
        ("--input-std nan", "--input-std must be above 0, got nan"),
        ("--input-std 0", "--input-std must be above 0, got 0"),
        ("--input-std inf", "--input-std must be above 0, got inf"),
        ("--norm-order under", "--norm-order must be before or after (the activation), got 'under'"),
        ("--figure map.jpg", "--figure must end in .pdf, .svg, .png, got map.jpg"),
        ("--figure map", "--figure must end in .pdf, .svg, .png, got map"),
        (
            "--figure nowhere/map.pdf",
            "nowhere/map.pdf: cannot be written (No such file or directory); choose another place with --figure",
        ),
        ("--teacher-network 1", "good.pt contains one network, so that --teacher-network must be 0, got 1; omit it"),
        ("--student-network -1", "good.pt contains one network, so that --student-network must be 0, got -1; omit it"),
        ("--data inputs.npy", "--data must have 5 inputs per sample, as the networks do, got 6 in inputs.npy"),
    ],
)
def test_messages_of_invalid_options_of_align(refused, files, words, message):
    assert refused("align", "good.pt", "good.pt", *words.split()) == f"understudy: {message}\n"


@pytest.mark.parametrize("words", ["", "csh", "bash zsh"])
def test_an_unknown_shell_is_refused(refused, words):
    message = refused("--completion", *words.split())
    shells = "bash, zsh, fish, tcsh"
    assert message == f"understudy: --completion needs a shell, one of {shells}, got {words or 'nothing'}\n"


def test_images_with_channels_last_are_refused(refused, tmp_path):
    layers = nn.Sequential(nn.Conv2d(3, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(2 * 3 * 3, 2))
    torch.save(layers.state_dict(), tmp_path / "conv.pt")
    np.save(tmp_path / "images.npy", np.ones((4, 5, 5, 3)))
    message = refused("align", "conv.pt", "conv.pt", "--image", "5x5", "--padding", 0, "--data", "images.npy")
    assert message.startswith("understudy: images.npy: the array must have shape [samples, 3, 5, 5], channels before ")


def test_missing_input_files_are_refused(refused, files):
    assert refused("align", "good.pt", "good.pt", "--data", "none.npy").startswith("understudy: none.npy: there is no ")


def test_the_code_in_a_pickle_never_runs(files, tmp_path):
    done = understudy("align", "code.pt", "good.pt", cwd=tmp_path, status=2)
    assert "must not run" not in done.stdout + done.stderr


def test_the_api_raises_the_same_message():
    with pytest.raises(UserError, match="--seeds must be at least 1, got 0"):
        TwoLayer(seeds=0)
