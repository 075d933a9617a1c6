"""`understudy predict`: what it prints as text and JSON, and its errors."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

import understudy as us
from support.commands import understudy
from support.latent_files import SENTENCES, WORDS, taught_model
from understudy.nets.latent import save_codes
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
    facts = {"setting": "M = 3", "target": 3.0, "seed": 1}
    save_codes(taught_model(), place / "words.safetensors", vocabulary=WORDS, facts=facts)
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


def lines_of(folder, *words):
    printed = understudy("predict", "words.safetensors", *words, "--device", "cpu", cwd=folder).stdout
    return [" ".join(line.split()) for line in printed.splitlines() if line.strip()]


def test_the_table_of_sentences(folder):
    first, model, heads, _, *rows = lines_of(folder, "The film is GOOD.", "very bad")
    assert first == "Codes: means of q(z|x). Words: the most probable one after those before it. On cpu."
    assert (model, heads) == ("Model: setting “M = 3”, target 3, seed 1.", "sentence KL, nats words in place decoded")
    kls = [row.kl for row in us.predict(folder / "words.safetensors", SENTENCES[:4], device="cpu").rows]
    assert rows == [
        f"the film is good . {kls[0]:.2f} 5 of 5 the film is good .",
        f"very bad {kls[3]:.2f} 2 of 2 very bad",
    ]


def test_the_table_of_samples_names_each_sentence_once(folder):
    first, _, _, _, *rows = lines_of(folder, "very bad", "very good !", "--sample", 2, "--seed", 3)
    assert first.startswith("Codes: drawn from q(z|x), seed 3.")
    assert [row.split()[0] for row in rows] == ["very", "2", "very", "3"]
    assert rows[1] == "2 of 2 very bad"


def test_the_tables_between_two_sentences_and_of_the_prior(folder):
    *_, heads, _, start, middle, end = lines_of(folder, *SENTENCES[2:4], "--interpolate", 2)
    assert (heads, start, middle[:5], end) == ("share decoded", "0.00 very good !", "0.50 ", "1.00 very bad")
    told = lines_of(folder, "--prior", 3, "--draw-words", "--seed", 4)
    assert told[0] == "Codes: drawn from the prior, seed 4. Words: drawn by their probabilities, seed 4. On cpu."
    assert "decoded" in told and len(told) - told.index("decoded") == 2 + 3


def test_words_without_quotes_are_noted(folder):
    assert "note: each of the 2 words was read as a sentence; put sentences in quotes" in lines_of(
        folder, "very", "bad"
    )


def test_json_has_each_sentence_with_its_code(folder):
    done = understudy("predict", "words.safetensors", *SENTENCES, "--json", "--device", "cpu", cwd=folder)
    assert done.stdout.count("\n") == 1 and done.stderr == ""
    wanted = us.predict(folder / "words.safetensors", SENTENCES, device="cpu")
    assert json.loads(done.stdout) == json.loads(json.dumps(wanted.as_dict()))
    assert [row["decoded"] for row in json.loads(done.stdout)["sentences"]] == list(SENTENCES)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("net.safetensors",), "images are needed: an array (.npy, .npz, .safetensors, .pt"),
        (("absent.safetensors", "x.npy"), "absent.safetensors: there is no such file; a file that save_exits or save"),
        (("x.npy", "x.npy"), "x.npy: this is not a safetensors file; a file that save_exits or save_cod"),
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
        (("net.safetensors", "x.npy", "--sample", "3"), "--sample is for models of sentences, but this is a network"),
        (("words.safetensors",), "no sentences were given; type some, each in quotes, or decode draws from the prior"),
        (("words.safetensors", "x.npy"), "x.npy: this is a file, but the model reads sentences; type some, each in"),
        (("words.safetensors", "good flim"), "'good flim' has 'flim' (did you mean film?); use other words"),
        (("words.safetensors", "good", "--budget-ms", "5"), "--budget-ms is for networks with several exits, but this"),
        (
            ("words.safetensors", "good", "--draw-words", "--prior", "2"),
            "--prior decodes draws from the prior, but sen",
        ),
        (("words.safetensors", "good", "--interpolate", "2"), "--interpolate needs two sentences, each in quotes, got"),
        (("words.safetensors", "good", "--seed", "-1"), "--seed must be a whole number between 0 and 2^63 − 1, got -1"),
        (("words.safetensors", "good", "--model", "own.py:make"), "records its own architecture; omit the module"),
    ],
)
def test_bad_input(folder, words, message):
    done = understudy("predict", *words, cwd=folder, status=2)
    assert message in done.stderr and done.stdout == ""
