"""`understudy predict`: what it prints as text and JSON, and its errors."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

import understudy as us
from support.commands import understudy
from understudy.nets.multi_exit.files import save_exits
from understudy.nets.multi_exit.grid import Grid

OWN = """
from torch import nn

import understudy as us


def make(width=4):
    body = nn.Sequential(nn.Conv2d(3, width, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(width * 9, 3))
    return us.exits(body, ["1"], example=(3, 8, 8))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("predict")
    torch.manual_seed(0)
    network = us.MSDNet(Grid(3, 8, channels=(2, 2), layers=2, exits=(1, 2), head=4))
    known = {"validation": (0.75, 0.5), "mean": (0.5,) * 3, "std": (0.25,) * 3, "class_names": ("cat", "dog", "owl")}
    save_exits(network, place / "net.safetensors", **known)
    save_exits(network, place / "bare.safetensors")
    (place / "own.py").write_text(OWN)
    space: dict = {}
    exec(OWN, space)
    save_exits(space["make"](), place / "own.safetensors", validation=(0.5, 0.75))
    pixels = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 3), dtype=np.uint8)
    np.save(place / "x.npy", pixels)
    (place / "pictures").mkdir()
    for i in (0, 1):
        Image.fromarray(pixels[i]).save(place / "pictures" / f"{i}.png")
    Image.fromarray(pixels[0, :4]).save(place / "small.png")
    Image.fromarray(pixels[0, :, :, 0]).save(place / "grey.png")
    return place


def test_json_has_class_exit_and_time_of_each_image(folder):
    for words, exits in (((), [1] * 3), (("--budget-ms", 10_000, "--repeats", 2), [1] * 3), (("--anytime",), [2] * 3)):
        done = understudy("predict", "net.safetensors", "x.npy", *words, "--device", "cpu", "--json", cwd=folder)
        told = json.loads(done.stdout)
        assert done.stdout.count("\n") == 1 and done.stderr == ""
        assert [row["exit"] for row in told["images"]] == exits
        assert all({"class", "exit", "ms"} <= row.keys() and row["ms"] > 0 for row in told["images"])
        assert [each["validation"] for each in told["exits"]] == [0.75, 0.5]
        assert all((each["ms_std"] is None) == ("--budget-ms" not in words) for each in told["exits"])
    wanted = us.predict(folder / "net.safetensors", folder / "x.npy", device="cpu")
    told = json.loads(understudy("predict", "net.safetensors", "x.npy", "--json", cwd=folder).stdout)
    assert [row["class"] for row in told["images"]] == [row.label for row in wanted.rows]


def test_the_table_of_a_budget(folder):
    words = ("predict", "net.safetensors", "pictures", "--budget-ms", 10_000, "--device", "cpu")
    lines = understudy(*words, cwd=folder).stdout.splitlines()
    assert lines[0].startswith("Exit 1 of 2 (layer 1) within 10000 ms, on cpu, ")
    assert lines[0].endswith(" ms an image, validation accuracy 75.0%.")
    text = "\n".join(lines)
    assert "mean ± sd" in text and "2 (layer 2)" in text and "pictures/1.png" in text and "note" not in text


def test_the_table_of_all_exits(folder):
    lines = understudy(
        "predict", "bare.safetensors", "x.npy", "--anytime", "--device", "cpu", cwd=folder
    ).stdout.splitlines()
    assert lines[0] == "Running mean of up to 2 exits, on cpu."
    assert lines[1].startswith("note: images were divided by 255 and not normalised")
    assert sum("(layer 2)" in line for line in lines) == 3


def test_what_is_assumed_is_stated(folder):
    text = understudy("predict", "bare.safetensors", "x.npy", cwd=folder).stdout
    assert "note: the last exit was used, since no validation accuracies are known" in text


def test_long_tables_are_cut(folder):
    np.save(folder / "many.npy", np.zeros((41, 8, 8, 3), np.uint8))
    text = understudy("predict", "net.safetensors", "many.npy", cwd=folder).stdout
    assert "and 1 more rows: see --json" in text


def test_a_module_of_the_users(folder):
    words = ("predict", "own.safetensors", "x.npy", "pictures", "--model", "own.py:make", "--json")
    told = json.loads(understudy(*words, cwd=folder).stdout)
    assert [row["exit"] for row in told["images"]] == [2] * 5
    assert [row["image"] for row in told["images"]][2:4] == ["x.npy[2]", "pictures/0.png"]
    shown = understudy(*words, "--model-args", "width=5", cwd=folder, status=2).stderr
    assert "its tensors do not fit MultiExit" in shown and "--model-args" in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("net.safetensors",), "IMAGES are missing; give an array, PNG or JPEG files, or a folder of them"),
        (("absent.safetensors", "x.npy"), "absent.safetensors: there is no such file; a file that save_exits wrote"),
        (("x.npy", "x.npy"), "x.npy: this is not a safetensors file; a file that save_exits wrote is needed"),
        (("net.safetensors", "absent.npy"), "absent.npy: there is no such file; images are needed"),
        (
            ("net.safetensors", "small.png"),
            "small.png: the network takes images of 8 × 8 pixels with 3 channels, got 4 × 8",
        ),
        (("net.safetensors", "grey.png"), "got 8 × 8 pixels with 1 channel (L); resize or convert it"),
        (("net.safetensors", "x.npy", "--budget-ms", "0"), "--budget-ms must be a time above 0 ms, got 0"),
        (
            ("net.safetensors", "x.npy", "--budget-ms", "0.0001", "--device", "cpu"),
            "--budget-ms must be at least the time of the first exit, ",
        ),
        (("net.safetensors", "x.npy", "--repeats", "0"), "--repeats must be a whole number of at least 1, got 0"),
        (("own.safetensors", "x.npy"), "whose code is needed: give --model FILE.py:NAME"),
        (("net.safetensors", "x.npy", "--model", "own.py:make"), "records its own architecture; omit the module"),
        (("net.safetensors", "x.npy", "--model-args", "3"), "--model-args are for --model, which is missing"),
    ],
)
def test_bad_input(folder, words, message):
    done = understudy("predict", *words, cwd=folder, status=2)
    assert message in done.stderr and done.stdout == ""
