"""`us.predict`: which kind of model is given, and options that are for the other kind."""

import inspect
from dataclasses import fields

import pytest
import torch
from torch import nn

import understudy as us
from support.latent_files import SENTENCES, WORDS, sentence_model, taught_model
from understudy.cli.predict import Predict
from understudy.lab.predict import EXIT_OPTIONS, SENTENCE_OPTIONS
from understudy.lab.predict_classes import Predictions
from understudy.lab.predict_sentences import DecodedSentences
from understudy.nets.latent import MLP, SavedCodes, save_codes
from understudy.nets.multi_exit.files import save_exits
from understudy.nets.multi_exit.grid import Grid

OTHER_VALUES = {
    "budget_ms": 5.0,
    "anytime": True,
    "repeats": 3,
    "sample": 2,
    "interpolate": 2,
    "prior": 2,
    "draw_words": True,
    "seed": 1,
}


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    return us.MSDNet(Grid(3, 8, channels=(2, 2), layers=2, exits=(1, 2), head=4))


@pytest.fixture(scope="module")
def sentences():
    return SavedCodes(taught_model(), WORDS)


def test_files_of_both_kinds_are_recognised(network, sentences, tmp_path):
    save_exits(network, tmp_path / "exits.safetensors")
    save_codes(sentences.model, tmp_path / "codes.safetensors", vocabulary=WORDS)
    images = torch.zeros(2, 3, 8, 8)
    assert isinstance(us.predict(tmp_path / "exits.safetensors", images, device="cpu"), Predictions)
    found = us.predict(str(tmp_path / "codes.safetensors"), SENTENCES, device="cpu")
    assert isinstance(found, DecodedSentences) and [row.decoded for row in found.rows] == list(SENTENCES)


@pytest.mark.parametrize("name", EXIT_OPTIONS)
def test_options_of_images_are_refused_for_sentences(sentences, name):
    with pytest.raises(us.UserError) as error:
        us.predict(sentences, "good", **{name: OTHER_VALUES[name]})
    words = "is for networks with several exits, but this is a model with a latent code; omit it"
    assert str(error.value) == f"{name} {words}"
    assert error.value.for_command == f"--{name.replace('_', '-')} {words}"


@pytest.mark.parametrize("name", SENTENCE_OPTIONS)
def test_options_of_sentences_are_refused_for_images(network, name):
    with pytest.raises(us.UserError, match=f"^{name} is for models of sentences, but this is a network with several"):
        us.predict(network, torch.zeros(1, 3, 8, 8), **{name: OTHER_VALUES[name]})


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            lambda: sentence_model(),
            r"^model has no vocabulary; give a file that save_codes wrote, or SavedCodes\(model",
        ),
        (lambda: SavedCodes(sentence_model()), "the model has no vocabulary, so sentences cannot be read or written"),
        (
            lambda: SavedCodes(us.LatentModel(MLP((1, 2)), MLP((1, 2)))),
            "the model is not one of sentences: its decoder is an MLP",
        ),
        (
            lambda: nn.Linear(2, 2),
            "^model must be a file, an MSDNet, or what us.exits or load_exits returned, got a Li",
        ),
    ],
)
def test_bad_models(model, message):
    with pytest.raises(us.UserError, match=message):
        us.predict(model(), "good")


def test_bad_files(network, tmp_path):
    (tmp_path / "text.safetensors").write_text("good")
    us.save(us.teachers.distinct_rows((4, 3, 2), polarity=0.0, seeds=[1]), tmp_path / "other.safetensors")
    for name, message in {
        "absent": "there is no such file; a file that save_exits or save_codes wrote is needed",
        "text": "this is not a safetensors file; a file that save_exits or save_codes wrote is needed",
        "other": "does not record a network with several exits or a model with a latent code; a file that save_exits",
    }.items():
        with pytest.raises(us.UserError, match=message):
            us.predict(tmp_path / f"{name}.safetensors", "good")


def test_the_function_has_the_options_of_the_command():
    options = {field.name: field.default for field in fields(Predict)}
    parameters = inspect.signature(us.predict).parameters
    assert options.keys() - {"network", "model", "model_args", "json"} == parameters.keys() - {"model"}
    stated = {name: parameters[name].default for name in EXIT_OPTIONS | SENTENCE_OPTIONS}
    assert stated == EXIT_OPTIONS | SENTENCE_OPTIONS == {name: options[name] for name in stated}
