"""What a user can put right: exit status 2, one message that names the option or file, what was given and what is
allowed, and nothing written."""

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

import understudy as us
from support.commands import ENVIRONMENT, SCRIPT, TINY, flat, may_mount, understudy
from understudy import cli
from understudy.lab.discovery import studies
from understudy.papers.specialization.two_layer.study import TwoLayer

HINTS = get_type_hints(TwoLayer)
WHOLE, NUMBERS = (int, tuple[int, ...]), (float, tuple[float, ...])
NUMERIC = {field.name: kind in WHOLE for field in fields(TwoLayer) if (kind := HINTS[field.name]) in (*WHOLE, *NUMBERS)}
"""Options that are numbers, and whether whole ones."""
MAY_BE_ZERO, MAY_BE_NEGATIVE = {"polarity", "leaky"}, {"leaky"}


@pytest.fixture
def refused(tmp_path, monkeypatch, capsys):
    """Run a command that is refused, in an empty folder that must stay empty; returns what it says."""

    def refused(*words: object, unchanged: bool = True) -> str:
        monkeypatch.chdir(tmp_path)
        before = sorted(tmp_path.rglob("*"))
        monkeypatch.setattr(sys, "argv", ["understudy", *map(str, words)])
        try:
            status = cli.main()
        except SystemExit as ended:
            status = ended.code
        said = capsys.readouterr()
        assert status == 2
        assert said.out == ""
        assert "Traceback" not in said.err
        assert not unchanged or sorted(tmp_path.rglob("*")) == before
        return said.err if said.err.startswith("understudy: ") else flat(said.err)

    return refused


def option(field: str) -> str:
    return f"--{field.replace('_', '-')}"


def impossible():
    """An option and a word that is not one of its numbers."""
    for field, whole in NUMERIC.items():
        words = {"0", "-1", "nan", "inf", "-inf", "x", "", *(["1.5"] if whole else [])}
        words -= {"0"} if field in MAY_BE_ZERO else set()
        words -= {"-1"} if field in MAY_BE_NEGATIVE else set()
        yield from ((field, word) for word in sorted(words))


@pytest.mark.parametrize(("field", "word"), list(impossible()))
def test_a_number_that_cannot_be_is_refused_by_its_option(refused, field, word):
    whole = NUMERIC[field]
    said = refused("run", "two-layer", *TINY, option(field), word)
    assert option(field) in said
    number = "whole number" if whole else "number"
    readable = word in ("0", "-1") or (not whole and word not in ("x", ""))
    if readable:
        shown = word if whole else str(float(word))
        assert said.startswith(f"understudy: {option(field)}: {shown} was given; allowed is a {number} ")
    else:
        assert f"Error parsing {option(field)}: {word or 'nothing'} was given; allowed is a {number}" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("two-layers", "two-layers: no such study; did you mean two-layer? studies are {studies}"),
        ("", "run: name a study first; studies are {studies}"),
        ("--quick two-layer", "run: name a study first; studies are {studies}"),
        ("two-layer --seeds 0", "--seeds: 0 was given; allowed is a whole number from 1"),
        ("two-layer --lr -0.1", "--lr: -0.1 was given; allowed is a number above 0"),
        ("two-layer --lr nan", "--lr: nan was given; allowed is a number above 0"),
        ("two-layer --polarity -1", "--polarity: -1.0 was given; allowed is a number from 0"),
        ("two-layer --leaky inf", "--leaky: inf was given; allowed is a number that is finite"),
        ("two-layer --polarity 1 2 1", "--polarity: 1 2 1 was given; name each value once"),
        ("two-layer --multiple", "--multiple: no value was given; give one or more numbers"),
        (
            "two-layer --batch 11 --train 10",
            "--batch: 11 was given; allowed is up to the number of training samples, 10",
        ),
        (
            "two-layer --teacher-nodes 3 --multiple 1.5",
            "--multiple: 1.5 was given; times 3 teacher nodes makes 4.5 student nodes, and allowed is a multiple that "
            "gives a whole number from 1",
        ),
    ],
)
def test_words_of_refused_options(refused, words, said):
    assert refused("run", *words.split()) == f"understudy: {said.format(studies=', '.join(studies()))}\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--seeds x", "Error parsing --seeds: x was given; allowed is a whole number"),
        ("--epochs 1.5", "Error parsing --epochs: 1.5 was given; allowed is a whole number"),
        ("--lr fast", "Error parsing --lr: fast was given; allowed is a number"),
        ("--polarity 1 x 2", "Error parsing --polarity: x was given; allowed is a number"),
        ("--device tpu", "Error parsing --device: tpu was given; allowed is one of auto, cpu, cuda"),
        ("--dtype float16", "Error parsing --dtype: float16 was given; allowed is one of float32, tf32, float64"),
        ("--inputs normal", "Error parsing --inputs: normal was given; allowed is one of gaussian, uniform"),
    ],
)
def test_words_of_unreadable_options(refused, words, said):
    assert f"{said} " in refused("run", "two-layer", *words.split())


def test_an_unknown_option_is_named_with_the_nearest_that_there_is(refused):
    said = refused("run", "two-layer", "--seed", "3")
    assert "Unrecognized options: --seed" in said
    assert "Perhaps you meant: --seeds INT" in said


def test_an_option_without_its_value_is_named(refused):
    assert "Missing value for argument '--batch'" in refused("run", "two-layer", "--batch")


def test_an_unknown_command_is_named_with_the_nearest_that_there_is(refused):
    assert refused("clams") == (
        "understudy: clams: no such command; did you mean claims? "
        "commands are list, run, report, claims, align, check, prune, connect, start, bench\n"
    )


def test_the_console_script_ends_with_status_2_and_without_a_traceback(tmp_path):
    done = understudy("run", "two-layer", "--epochs", "0", cwd=tmp_path, status=2)
    assert done.stderr == "understudy: --epochs: 0 was given; allowed is a whole number from 1\n"
    done = understudy("run", "two-layer", "--epochs", "x", cwd=tmp_path, status=2)
    assert "Error parsing --epochs: x was given; allowed is a whole number" in flat(done.stderr)
    assert done.stdout == ""
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA card here")
def test_a_card_that_is_not_there_is_refused(refused):
    assert refused("run", "two-layer", *TINY, "--device", "cuda") == (
        "understudy: --device: cuda was given, but torch sees no CUDA card here; allowed here: auto, cpu\n"
    )


# Where a run is to go.


def test_an_out_that_is_a_file_is_refused(refused, tmp_path):
    (tmp_path / "out").write_text("mine")
    said = refused("run", "two-layer", *TINY, "--out", "out")
    assert said.startswith("understudy: out/two-layer/")
    assert said.endswith(": cannot be written (Not a directory); choose another folder with --out\n")
    assert (tmp_path / "out").read_text() == "mine"


def test_a_place_that_cannot_be_written_is_refused(refused):
    said = refused("run", "two-layer", *TINY, "--out", "/proc/understudy")
    assert said.startswith("understudy: /proc/understudy/two-layer/")
    assert "--out" in said


def test_a_read_only_place_is_refused_by_name(refused, tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda path, mode: False)
    said = refused("run", "two-layer", *TINY, "--out", "out")
    assert said.endswith(f": {tmp_path} is read-only; choose another folder with --out\n")


@pytest.mark.skipif(not may_mount(), reason="needs root and unshare, to mount a read-only disk")
def test_a_read_only_disk_is_refused_by_name(tmp_path):
    mount = f'mount -t tmpfs -o ro tmpfs "{tmp_path}" && exec "$@"'
    words = ["unshare", "-m", "sh", "-c", mount, "sh", SCRIPT, "run", "two-layer", *TINY, "--out", tmp_path]
    done = subprocess.run(words, env=ENVIRONMENT, text=True, capture_output=True, check=False)
    assert done.returncode == 2
    assert done.stderr.endswith(f": {tmp_path} is read-only; choose another folder with --out\n")
    assert done.stderr.count("\n") == 1


def test_a_disk_with_too_little_room_is_refused_in_advance(refused, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9 - 10**6, 10**6))
    said = refused("run", "two-layer", *TINY)
    assert said.endswith(
        ": this run needs about 20 MB and the disk has 1 MB free; free some space, or choose another --out\n"
    )


def test_a_folder_of_another_configuration_is_refused_and_left_alone(refused, tiny, tmp_path):
    folder = tmp_path / "runs" / "two-layer" / tiny[1].name
    shutil.copytree(tiny[1], folder)
    config = folder / "config.toml"
    config.write_text(config.read_text().replace("epochs = 3", "epochs = 4"))
    said = refused("run", "two-layer", *TINY)
    assert said == (
        f"understudy: {folder.relative_to(tmp_path)}: belongs to another configuration (see its config.toml); choose "
        "another --out\n"
    )
    config.write_text("study = ")
    assert "config.toml: is not a configuration (" in refused("run", "two-layer", *TINY)


def test_a_folder_with_other_files_is_refused_and_left_alone(refused, tiny, tmp_path):
    folder = tmp_path / "runs" / "two-layer" / tiny[1].name
    folder.mkdir(parents=True)
    (folder / "thesis.tex").write_text("years of work")
    said = refused("run", "two-layer", *TINY)
    assert said == (
        f"understudy: {folder.relative_to(tmp_path)}: holds files that are not of a run; move them away, or choose "
        "another --out\n"
    )


# Runs to report.


@pytest.mark.parametrize("words", [("report",), ("claims", "--keep")])
def test_a_folder_that_is_not_a_run_is_refused(refused, tmp_path, words):
    (tmp_path / "other").mkdir()
    for folder in ("other", "nothing"):
        assert refused(*words, folder) == (
            f"understudy: {folder}: is not a run (it has no config.toml); give a folder such as runs/two-layer/3f2a…, "
            "which `understudy run` prints at its end\n"
        )


@pytest.mark.parametrize("lacking", ["nodes.parquet", "weights.safetensors", "environment.json"])
def test_a_run_that_has_not_finished_is_refused(refused, tiny, tmp_path, lacking):
    shutil.copytree(tiny[1], tmp_path / "run")
    (tmp_path / "run" / lacking).unlink()
    assert refused("report", "run") == (
        "understudy: run: has not finished; run `understudy run two-layer` with its options again\n"
    )


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("metrics.parquet", "PAR1", "run/metrics.parquet: cannot be read ("),
        ("environment.json", "{", "run/environment.json: is not JSON ("),
        ("config.toml", "study", "run/config.toml: is not a configuration ("),
        ("config.toml", 'study = "three-layer"', "run: is of study three-layer, which is not one of two-layer"),
        ("config.toml", 'study = "two-layer"', "config.toml: is not one of two-layer; restore it"),
        ("config.toml", 'study = "two-layer"\noptions = {seeds = "x"}', "config.toml: is not one of two-layer"),
        ("config.toml", 'study = "two-layer"\noptions = {seeds = 0}', "--seeds: 0 was given; allowed is"),
    ],
)
def test_a_damaged_run_is_refused_by_the_file(refused, tiny, tmp_path, file, text, said):
    shutil.copytree(tiny[1], tmp_path / "run")
    (tmp_path / "run" / file).write_text(text)
    assert refused("report", "run", unchanged=False).startswith(f"understudy: {said}")


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
    ("name", "said"),
    [
        ("missing.pt", "missing.pt: there is no such file"),
        ("empty.pt", "empty.pt: the file is empty (0 bytes)"),
        ("cut.pt", "cut.pt: "),
        ("code.pt", "code.pt: "),
        ("words.safetensors", "words.safetensors: "),
        ("folder", "folder: this is a directory"),
        ("shapes.pt", "shapes.pt: the layers '0.weight' (4, 5) and '1.weight' (3, 7) do not follow each other"),
        ("convolution.pt", "convolution.pt: "),
        ("nan.pt", "nan.pt: the tensor '0.weight' holds 20 of 20 numbers that are NaN or infinite"),
        ("inputs.pt", "the teacher has 6 inputs and the student 5; align needs them equal"),
        ("outputs.pt", "the teacher has 2 outputs and the student 3; align needs them equal"),
        ("flat.pt", "a network without a hidden layer has no nodes to align; give networks of two layers or more"),
    ],
)
def test_a_file_that_is_no_network_is_refused(refused, files, name, said):
    first = refused("align", name, "good.pt")
    assert first.startswith(f"understudy: {said}")
    assert first.count("\n") == 1
    if name not in ("inputs.pt", "outputs.pt", "flat.pt"):
        assert refused("align", "good.pt", name) == first


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--samples 0", "--samples: 0 was given; allowed is a finite number above 0"),
        ("--samples -3", "--samples: -3 was given; allowed is a finite number above 0"),
        ("--input-std nan", "--input-std: nan was given; allowed is a finite number above 0"),
        ("--input-std 0", "--input-std: 0.0 was given; allowed is a finite number above 0"),
        ("--input-std inf", "--input-std: inf was given; allowed is a finite number above 0"),
        ("--leaky nan", "--leaky: nan was given; allowed is a finite number, such as 0 for ReLU"),
        ("--figure map.jpg", "--figure: map.jpg was given; allowed endings are .pdf, .svg, .png"),
        ("--figure map", "--figure: map was given; allowed endings are .pdf, .svg, .png"),
        (
            "--figure nowhere/map.pdf",
            "nowhere/map.pdf: cannot be written (No such file or directory); choose another place with --figure",
        ),
        ("--teacher-network 1", "--teacher-network: 1 was given; good.pt holds networks 0 to 0"),
        ("--student-network -1", "--student-network: -1 was given; good.pt holds networks 0 to 0"),
        ("--data inputs.npy", "--data: inputs.npy has 6 inputs a sample; the networks take 5"),
    ],
)
def test_words_of_refused_options_of_align(refused, files, words, said):
    assert refused("align", "good.pt", "good.pt", *words.split()) == f"understudy: {said}\n"


def test_pictures_with_their_channels_last_are_refused(refused, tmp_path):
    layers = nn.Sequential(nn.Conv2d(3, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(2 * 3 * 3, 2))
    torch.save(layers.state_dict(), tmp_path / "conv.pt")
    np.save(tmp_path / "pictures.npy", np.ones((4, 5, 5, 3)))
    said = refused("align", "conv.pt", "conv.pt", "--data", "pictures.npy")
    assert said.startswith("understudy: pictures.npy: the array has shape (4, 5, 5, 3), but [samples, 3, 5, 5]")


def test_inputs_that_are_no_file_are_refused(refused, files):
    assert refused("align", "good.pt", "good.pt", "--data", "none.npy").startswith("understudy: none.npy: there is no ")


def test_the_code_in_a_pickle_never_runs(files, tmp_path):
    done = understudy("align", "code.pt", "good.pt", cwd=tmp_path, status=2)
    assert "must not run" not in done.stdout + done.stderr


def test_the_api_raises_the_same_words():
    with pytest.raises(us._errors.UserError, match="--seeds: 0 was given; allowed is a whole number from 1"):
        TwoLayer(seeds=0)
