"""Files of models with a latent code: what is saved is loaded, and damaged or other files are rejected."""

import json
import math
from pathlib import Path

import pytest
import safetensors
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from support.latent_files import WORDS, sentence_model
from understudy import UserError
from understudy.nets.latent import MLP, LatentModel, SavedCodes, SentenceDecoder, Table, load_codes, save_codes
from understudy.nets.latent.codes import as_code
from understudy.nets.latent.layers import mlp
from understudy.nets.latent.likelihoods import BernoulliLikelihood, GaussianLikelihood
from understudy.nets.multi_exit import Grid, MSDNet, save_exits
from understudy.training.latent.mutual_autoencoder import MutualAutoencoder

KNOWN = {"vocabulary": WORDS, "facts": {"target": 5.0, "seed": 1, "data": "movies, 8 words", "ünder": [1, 2]}}
WRITER = "a file that save_codes wrote is needed"


def numbers(seed=0, **options):
    """A model of one real number."""
    torch.manual_seed(seed)
    return LatentModel(mlp(1, 2, 5), mlp(1, 2, 5), mlp(1, 2, 5), **({"likelihood": "gaussian", "latent": 1} | options))


def labels():
    """A model of classes."""
    torch.manual_seed(0)
    table = Table(4, 2)
    nn.init.normal_(table.rows)
    return LatentModel(table, MLP((1, 3, 4)), likelihood="categorical", latent=1)


def changed(file: Path, tensors: dict | None = None, **metadata: object) -> Path:
    """Write the file again with other tensors, or other entries of its metadata."""
    with safetensors.safe_open(file, "pt") as source:
        stated = json.loads(source.metadata()["understudy-codes"])
    save_file(load_file(file) | (tensors or {}), file, {"understudy-codes": json.dumps(stated | metadata)})
    return file


def refusal(file: Path, *parts: str) -> None:
    with pytest.raises(UserError) as error:
        load_codes(file)
    for part in (str(file), *parts):
        assert part in str(error.value), str(error.value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_model_of_sentences_survives_its_file(tmp_path, dtype):
    model = sentence_model(3, resamples=4).to(dtype)
    save_codes(model, tmp_path / "a.safetensors", **KNOWN)
    saved = load_codes(tmp_path / "a.safetensors")
    assert (saved.vocabulary, dict(saved.facts)) == (WORDS, KNOWN["facts"])
    assert not saved.model.training and saved.model.resamples == 4 and saved.model.latent == 2
    given, found = model.state_dict(), saved.model.state_dict()
    assert given.keys() == found.keys()
    assert all(torch.equal(found[name], tensor) and found[name].dtype == dtype for name, tensor in given.items())
    x = torch.tensor([[1, 2, 3, 0, 0, 0]])
    assert torch.equal(saved.model.encode(x).mean, model.encode(x).mean)
    z = torch.ones(2, 1, 2, dtype=dtype)
    assert torch.equal(saved.model.log_likelihood(z, x), model.log_likelihood(z, x))
    save_codes(saved.model, tmp_path / "b.safetensors", **KNOWN)
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.safetensors", "b.safetensors"]


@pytest.mark.parametrize(
    ("model", "x"),
    [
        (numbers(), torch.randn(5, 1)),
        (LatentModel(mlp(2, 6), mlp(3, 2), mlp(2, 6), likelihood=GaussianLikelihood(0.3), latent=3), torch.randn(5, 2)),
        (LatentModel(mlp(2, 4, 3), mlp(2, 2, 3), likelihood="bernoulli", latent=2), torch.tensor([[0.0, 1.0]])),
        (labels(), torch.tensor([0, 3, 1])),
    ],
    ids=["normal", "normal with a fixed deviation", "bernoulli", "labels"],
)
def test_other_models_survive_their_files(tmp_path, model, x):
    save_codes(model, tmp_path / "a.safetensors")
    saved = load_codes(tmp_path / "a.safetensors")
    assert (saved.vocabulary, dict(saved.facts)) == ((), {})
    assert saved.model.likelihood == model.likelihood
    assert (saved.model.infer is None) == (model.infer is None)
    for part in ("encoder", "infer") if model.infer else ("encoder",):
        found, wanted = (as_code(getattr(each, part)(x)) for each in (saved.model, model))
        assert torch.equal(found.mean, wanted.mean) and torch.equal(found.log_variance, wanted.log_variance)
    z = torch.randn(3, model.latent)
    assert torch.equal(saved.model.decoder(z), model.decoder(z))


def test_a_mutual_autoencoder_is_saved_as_its_model(tmp_path):
    torch.manual_seed(0)
    model = MutualAutoencoder(mlp(1, 2, 4), mlp(1, 2, 4), mlp(1, 2, 4), target=1.0)
    with pytest.raises(UserError, match="likelihood is not known yet; give it, or call prepare"):
        save_codes(model, tmp_path / "a.safetensors")
    assert not list(tmp_path.iterdir())
    model.prepare(torch.randn(3, 1))
    save_codes(model, tmp_path / "a.safetensors", facts={"target": 1.0})
    saved = load_codes(tmp_path / "a.safetensors")
    assert type(saved.model) is LatentModel and saved.facts == {"target": 1.0}
    assert saved.model.likelihood == GaussianLikelihood()


def test_a_loaded_model_can_be_trained(tmp_path):
    save_codes(sentence_model(), tmp_path / "a.safetensors")
    model = load_codes(tmp_path / "a.safetensors").model.train()
    x = torch.tensor([[1, 2, 0, 0, 0, 0]])
    code = model.encode(x)
    (model.log_likelihood(code.mean, x) - model.infer_code(x).mean.sum()).sum().backward()
    assert all(p.grad is not None for name, p in model.named_parameters() if not name.startswith("infer."))


def test_weights_are_read_without_understudy(tmp_path):
    save_codes(labels(), tmp_path / "a.safetensors")
    assert load_file(tmp_path / "a.safetensors").keys() == labels().state_dict().keys()


class TestNotSaved:
    @pytest.mark.parametrize(
        ("model", "known", "message"),
        [
            (numbers(), {"vocabulary": WORDS}, "vocabulary is for a SentenceDecoder, but the decoder is an MLP"),
            (sentence_model(), {"vocabulary": WORDS[1:]}, "vocabulary must have the 8 words of the decoder, got 7"),
            (
                sentence_model(),
                {"vocabulary": (*WORDS[1:], "film")},
                "vocabulary must be different words, got 'film' tw",
            ),
            (
                sentence_model(),
                {"vocabulary": (*WORDS[1:], "a b")},
                "vocabulary must be words without spaces, got 'a b'",
            ),
            (sentence_model(), {"vocabulary": (*WORDS[1:], "")}, "vocabulary must be words without spaces, got ''"),
            (
                numbers(),
                {"facts": {"target": math.nan}},
                r"facts must be finite numbers, texts, or lists and dicts of th",
            ),
            (numbers(), {"facts": {"x": torch.zeros(1)}}, r"facts must be finite numbers.*Tensor is not JSON"),
            (
                LatentModel(nn.Linear(1, 2), mlp(1, 2, 3), likelihood="gaussian", latent=1),
                {},
                "encoder must be one of SentenceEncoder, SentenceDecoder, MLP, Table to be saved with its "
                "architecture, got a Linear; save the state dict",
            ),
            (
                LatentModel(mlp(1, 2, 3), mlp(1, 5, 3), likelihood="gaussian", latent=1),
                {},
                "decoder must return means and log variances of the shape of the data",
            ),
            (
                LatentModel(SentenceDecoder(3, 2, 2, 1, 2), mlp(1, 2, 3), likelihood="gaussian", latent=1),
                {},
                "encoder must read data, but a SentenceDecoder reads codes",
            ),
        ],
    )
    def test_models_that_cannot_be_saved(self, tmp_path, model, known, message):
        with pytest.raises(UserError, match=message):
            save_codes(model, tmp_path / "a.safetensors", **known)
        assert not list(tmp_path.iterdir())

    def test_another_likelihood(self, tmp_path):
        class Own(BernoulliLikelihood):
            pass

        model = LatentModel(mlp(1, 2, 3), mlp(1, 1, 3), likelihood=Own(), latent=1)
        with pytest.raises(UserError, match=r"likelihood must be one of gaussian, .* to be saved, got an Own"):
            save_codes(model, tmp_path / "a.safetensors")

    def test_bad_places(self, tmp_path):
        with pytest.raises(UserError, match="choose another place"):
            save_codes(numbers(), tmp_path / "absent" / "a.safetensors")

    @pytest.mark.wrong_shapes
    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"model": nn.Linear(1, 1)}, "model must be a LatentModel, such as a MutualAutoencoder, got a Linear"),
            ({"vocabulary": "abc"}, "vocabulary must be a list of words, got a str"),
            ({"vocabulary": [1, 2]}, "vocabulary must be a list of words, got a list"),
            ({"facts": 3}, "facts must be finite numbers, texts, or lists"),
        ],
    )
    def test_other_types(self, given, message):
        with pytest.raises(UserError, match=message):
            SavedCodes(**({"model": numbers()} | given))


class TestRejected:
    @pytest.fixture
    def file(self, tmp_path):
        save_codes(sentence_model(), tmp_path / "a.safetensors", **KNOWN)
        return tmp_path / "a.safetensors"

    def test_no_file(self, tmp_path):
        refusal(tmp_path / "a.safetensors", f"there is no such file; {WRITER}")

    @pytest.mark.parametrize("keep", [4, 9, 500, -1])
    def test_a_truncated_file(self, file, keep):
        file.write_bytes(file.read_bytes()[:keep])
        refusal(file, "not a safetensors file" if keep == 4 else "truncated or damaged")

    def test_other_files(self, file, tmp_path):
        file.write_bytes(b"PK\3\4 not safetensors")
        refusal(file, f"this is not a safetensors file; {WRITER}")
        save_file({"x": torch.zeros(3)}, file)
        refusal(file, f"the file does not record a model with a latent code; {WRITER}")

    def test_a_network_with_several_exits(self, tmp_path):
        save_exits(
            MSDNet(Grid(3, 8, 1, channels=(2, 2), layers=2, exits=(1, 2), head=3)), tmp_path / "exits.safetensors"
        )
        refusal(tmp_path / "exits.safetensors", f"the file does not record a model with a latent code; {WRITER}")

    def test_damaged_metadata(self, file):
        tensors = load_file(file)
        for text in ("{", "3", "[]", "{}", '{"version": 1}', '{"version": 1, "parts": 3}'):
            save_file(tensors, file, {"understudy-codes": text})
            refusal(file, "save the model again with save_codes")

    @pytest.mark.parametrize(
        ("metadata", "message"),
        [
            ({"version": 2}, "has format version 2, but this understudy reads version 1; upgrade understudy"),
            ({"parts": {"encoder": None}}, "its architecture cannot be read (KeyError: 'decoder')"),
            ({"likelihood": {"name": "odd"}}, "its architecture cannot be read (KeyError: 'odd')"),
            ({"likelihood": {"name": "gaussian", "std": -1}}, "(std must be a finite number above 0, got −1)"),
            (
                {"resamples": 0},
                "cannot be read (resamples must be a whole number of at least 1, got 0)",
            ),
            ({"latent": 3}, "its metadata are damaged (encoder must return as many means as log variances of codes, 3"),
            ({"likelihood": {"name": "categorical"}}, "its metadata are damaged ("),
            (
                {"vocabulary": ["a"]},
                "its metadata are damaged (vocabulary must have the 8 words of the decoder, got 1)",
            ),
            pytest.param(
                {"vocabulary": 3},
                "its metadata are damaged (vocabulary must be a list of words, got an int)",
                marks=pytest.mark.wrong_shapes,
            ),
            pytest.param(
                {"facts": [3]}, "its metadata are damaged (facts must be finite numbers", marks=pytest.mark.wrong_shapes
            ),
        ],
    )
    def test_other_metadata(self, file, metadata, message):
        refusal(changed(file, **metadata), message, "save the model again with save_codes")

    def test_other_architectures(self, file):
        with safetensors.safe_open(file, "pt") as source:
            parts = json.loads(source.metadata()["understudy-codes"])["parts"]
        settings = parts["decoder"]["settings"]
        for wrong, message in (
            ({"words": 0}, "its architecture cannot be read (words must be a whole number of at least 1, got 0)"),
            ({"depth": 3}, "its architecture cannot be read (TypeError: "),
            (
                {"words": 7},
                "do not match its architecture (decoder.embedding.weight has shape [9, 4] instead of [7, 4]",
            ),
        ):
            decoder = {"kind": "SentenceDecoder", "settings": settings | wrong}
            refusal(changed(file, parts=parts | {"decoder": decoder}), message)
        refusal(changed(file, parts=parts | {"decoder": {"kind": "Linear", "settings": {}}}), "(KeyError: 'Linear')")
        refusal(changed(file, parts=parts | {"encoder": parts["decoder"]}), "save the model again")

    def test_weights_that_do_not_match(self, file):
        refusal(
            changed(file, {"encoder.output.bias": torch.zeros(5)}), "encoder.output.bias has shape [5] instead of [4]"
        )
        wrong = {"encoder.output.bias": torch.zeros(4, dtype=torch.int32), "extra": torch.zeros(3)}
        refusal(changed(file, wrong), "extra is unexpected and 1 more")

    def test_weights_that_are_not_finite(self, file):
        for value in (torch.nan, torch.inf):
            refusal(
                changed(file, {"decoder.layer.bias": torch.full((24,), value)}),
                "decoder.layer.bias has values that are NaN or infinite, so training diverged or the file is damaged",
            )
