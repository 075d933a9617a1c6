"""`us.predict` of sentences: means, draws, paths between two sentences, the prior, drawn words, notes and errors."""

import json
import math

import pytest
import torch

import understudy as us
from support.latent_files import SENTENCES, WORDS, sentence_model, taught_model
from understudy.lab.sentence_model import SentenceModel
from understudy.nets.latent import SavedCodes

CPU = torch.device("cpu")
SE = 4
"""Standard errors within which means of draws must be."""


@pytest.fixture(scope="module")
def saved():
    """A model that decodes the mean codes of `SENTENCES` to these sentences."""
    return SavedCodes(taught_model(), WORDS, {"target": 3.0})


@pytest.fixture(scope="module")
def broad():
    """A model with random weights, whose codes of a sentence are nearly as broad as the prior."""
    return SavedCodes(sentence_model(3), WORDS)


def predict(saved, inputs=(), **options):
    return us.predict(saved, inputs, device="cpu", **options)


def decoded(found):
    return [row.decoded for row in found.rows]


class TestMeans:
    def test_sentences_are_reconstructed_from_the_means_of_their_codes(self, saved):
        found = predict(saved, SENTENCES)
        assert decoded(found) == [row.given for row in found.rows] == list(SENTENCES)
        code = saved.model.encode(SentenceModel.of(saved, CPU).vocabulary.encode(SENTENCES))
        torch.testing.assert_close(found.codes, code.mean)
        torch.testing.assert_close(torch.tensor([row.kl for row in found.rows]), code.divergence().sum(1))
        assert [(row.words, row.matching) for row in found.rows] == [(n, n) for n in (5, 5, 3, 2, 3, 4)]
        assert {row.share for row in found.rows} == {None}
        assert (found.facts, found.device, found.notes) == ({"target": 3.0}, "cpu", ())
        assert found.how == "Codes: means of q(z|x). Words: the most probable one after those before it."

    def test_a_text_is_one_sentence_and_is_split_into_words(self, saved):
        (row,) = predict(saved, "The FILM is good.").rows
        assert (row.given, row.decoded, row.words) == ("the film is good .", "the film is good .", 5)

    def test_words_count_at_their_place(self, saved, monkeypatch):
        monkeypatch.setattr(SentenceModel, "write", lambda self, *_, **__: self.vocabulary.encode(["film the is good"]))
        (row,) = predict(saved, "the film is good .").rows
        assert (row.decoded, row.words, row.matching) == ("film the is good", 5, 2)

    def test_encode_and_decode_in_python(self, saved):
        model = SentenceModel.of(saved, CPU)
        assert model.decode(model.encode(SENTENCES).mean) == list(SENTENCES)


class TestDraws:
    def test_samples_have_the_distribution_of_the_encoder(self, broad):
        found = predict(broad, SENTENCES[:2], sample=1_000)
        code = broad.model.encode(SentenceModel.of(broad, CPU).vocabulary.encode(SENTENCES[:2]))
        noise = (found.codes.view(2, 1_000, 2) - code.mean[:, None]) / (code.log_variance[:, None] / 2).exp()
        assert (noise.mean(1).abs() < SE / math.sqrt(1_000)).all()
        assert ((noise.std(1) - 1).abs() < SE / math.sqrt(2_000)).all()
        assert (noise.prod(0).mean(0).abs() < SE / math.sqrt(1_000)).all()  # each sentence has noise of its own
        assert [row.given for row in found.rows] == [text for text in SENTENCES[:2] for _ in range(1_000)]

    @pytest.mark.parametrize("resamples", [1, 3])
    def test_codes_depend_on_the_seed_and_not_on_other_sentences(self, resamples):
        saved = SavedCodes(sentence_model(3, resamples=resamples), WORDS)
        several = predict(saved, SENTENCES[:2], sample=4)
        assert torch.equal(several.codes[:4], predict(saved, SENTENCES[0], sample=4).codes)
        assert torch.equal(several.codes, predict(saved, SENTENCES[:2], sample=4).codes)
        assert len(several.codes.unique(dim=0)) == 8
        assert not torch.equal(several.codes, predict(saved, SENTENCES[:2], sample=4, seed=1).codes)

    def test_a_resampling_encoder_draws_from_the_model_posterior_and_it_is_noted(self):
        """With many competing codes, the mean of draws is that of many codes with importance weights."""
        several = SavedCodes(sentence_model(3, resamples=50), WORDS)
        found = predict(several, SENTENCES[0], sample=1_000)
        x = SentenceModel.of(several, CPU).vocabulary.encode(SENTENCES[:1])
        with torch.no_grad():
            noise = torch.randn(20_000, 1, 2, generator=torch.Generator().manual_seed(0))
            z, log_weight = several.model.log_weights(x, noise)
        posterior = (log_weight.softmax(0)[..., None] * z).sum(0)[0]
        assert ((found.codes.mean(0) - posterior).abs() < SE * found.codes.std(0) / math.sqrt(1_000) + 0.02).all()
        assert found.notes[0].startswith("the encoder draws 50 codes and chooses one by importance weights; KL div")
        assert predict(several, SENTENCES[0]).notes[0].split("; ")[1].startswith("means and KL divergences are those")

    def test_draws_of_the_prior_are_standard_normal(self, saved):
        found = predict(saved, prior=2_000)
        assert (found.codes.mean(0).abs() < SE / math.sqrt(2_000)).all()
        assert ((found.codes.std(0) - 1).abs() < SE / math.sqrt(4_000)).all()
        assert {(row.given, row.kl, row.words, row.share) for row in found.rows} == {(None,) * 4}
        assert found.how.startswith("Codes: drawn from the prior, seed 0.")
        assert torch.equal(found.codes[:5], predict(saved, prior=5).codes)
        assert not torch.equal(found.codes[:5], predict(saved, prior=5, seed=1).codes)

    def test_words_are_drawn_by_their_probabilities(self, broad):
        model, z = SentenceModel.of(broad, CPU), torch.tensor([[0.5, -1.0]])
        first = model.write(z.expand(4_000, 2), draw_words=True, seed=2)[:, 0]
        with torch.no_grad():
            wanted = broad.model.decoder(z, torch.zeros(1, 1, dtype=torch.int64))[0, 0].softmax(0)
        found = torch.bincount(first, minlength=len(wanted)) / 4_000
        assert ((found - wanted).abs() < SE * (wanted * (1 - wanted) / 4_000).sqrt()).all()

    def test_drawn_words_depend_on_the_seed(self, broad):
        found = [decoded(predict(broad, SENTENCES, draw_words=True, seed=seed)) for seed in (0, 0, 1)]
        assert found[0] == found[1] != found[2]
        assert found[0] != decoded(predict(broad, SENTENCES))
        assert "Words: drawn by their probabilities, seed 1." in predict(broad, prior=1, draw_words=True, seed=1).how


class TestInterpolation:
    def test_codes_are_in_equal_steps_and_ends_are_the_sentences(self, saved):
        found = predict(saved, SENTENCES[:2], interpolate=4)
        assert [row.share for row in found.rows] == [0, 0.25, 0.5, 0.75, 1]
        start, end = predict(saved, SENTENCES[:2]).codes
        torch.testing.assert_close(found.codes[0], start)
        torch.testing.assert_close(found.codes.diff(dim=0), ((end - start) / 4).expand(4, -1))
        assert [decoded(found)[0], decoded(found)[-1]] == list(SENTENCES[:2])
        assert {row.given for row in found.rows} == {None}
        assert f"of “{SENTENCES[0]}” to that of “{SENTENCES[1]}”" in found.how


class TestNotes:
    @pytest.mark.parametrize(("end", "words", "note"), [(99.0, 0, ()), (-99.0, 6, "2 of 2 decoded sentences were cut")])
    def test_sentences_that_end_at_once_are_empty_and_those_without_an_end_are_cut_off(self, end, words, note):
        model = sentence_model()
        with torch.no_grad():
            model.decoder.output.bias[0] = end
        found = predict(SavedCodes(model, WORDS), SENTENCES[:2])
        assert [len(text.split()) for text in decoded(found)] == [words] * 2
        assert found.notes == (note and (f"{note} off after 6 words",))

    def test_words_without_quotes_are_noted(self, saved):
        (note,) = predict(saved, ["very", "good"]).notes[:1]
        assert note == "each of the 2 words was read as a sentence; put sentences in quotes"
        assert not any(
            "quotes" in each for text in ("good", ["very good", "bad"]) for each in predict(saved, text).notes
        )


def test_plain_values(saved):
    told = json.loads(json.dumps(predict(saved, SENTENCES[:1]).as_dict()))
    row = predict(saved, SENTENCES[:1]).rows[0]
    assert told["sentences"] == [
        {"given": row.given, "decoded": row.given, "kl": row.kl, "words": 5, "matching": 5, "code": pytest.approx(
            predict(saved, SENTENCES[:1]).codes[0].tolist())},
    ]  # fmt: skip
    assert told["facts"] == {"target": 3.0} and told["device"] == "cpu" and told["notes"] == []
    between = predict(saved, SENTENCES[:2], interpolate=1).as_dict()["sentences"][1]
    assert between.keys() == {"decoded", "share", "code"} and between["share"] == 1


@pytest.mark.parametrize(
    ("inputs", "options", "message"),
    [
        (("the flim",), {}, r"8 words of the vocabulary, but 'the flim' has 'flim' \(did you mean film\?\); use other"),
        ("the the the film is good", {}, "must have at most 5 words, punctuation included, got 6: 'the the the film"),
        ("", {}, "must have at least one word each, got an empty one"),
        (("good", " "), {}, "must have at least one word each, got an empty one"),
        ((), {}, r"no sentences were given; type some, each in quotes, or .*: --prior \(in Python prior=…\)"),
        (3, {}, "the model reads sentences, as text, but got an int; images are for networks with several exits"),
        (("good", 3), {}, "the model reads sentences, as text, but got an int"),
        (torch.zeros(1, 3, 8, 8), {}, "the model reads sentences, as text, but got a Tensor"),
        (__file__, {}, "test_predict_sentences.py: this is a file, but the model reads sentences; type some"),
        ("good", {"sample": 0}, "^sample must be a whole number of at least 1, got 0"),
        ("good", {"sample": 1.5}, "^sample must be a whole number of at least 1, got 1.5"),
        ("good", {"interpolate": 0}, "^interpolate must be a whole number of at least 1, got 0"),
        ("good", {"interpolate": 2}, "^interpolate needs two sentences, each in quotes, got 1"),
        (SENTENCES[:3], {"interpolate": 2}, "^interpolate needs two sentences, each in quotes, got 3"),
        ((), {"prior": True}, "^prior must be a whole number of at least 1, got True"),
        ("good", {"prior": 2}, r"^prior decodes draws from the prior, but sentences were given \('good'\); omit one"),
        ("good", {"sample": 2, "prior": 2}, "^sample cannot be given together with prior; choose one"),
        (SENTENCES[:2], {"sample": 2, "interpolate": 2}, "^sample cannot be given together with interpolate"),
        ("good", {"sample": 10**12}, "^sample must be at most 1,000,000,000, got 1000000000000"),
        ("good", {"sample": 10**9}, "^sample must be at most .* here, got 1000000000: the memory for them is"),
        (SENTENCES[:2], {"interpolate": 10**9}, "^interpolate must be at most .* here, got 1000000000: the memory"),
        ((), {"prior": 10**9}, "^prior must be at most .* here, got 1000000000: the memory for them is"),
        ("good", {"seed": -1}, "^seed must be a whole number between 0 and 2\\^63 − 1, got -1"),
        ("good", {"seed": 1.5}, "^seed must be a whole number between 0 and 2\\^63 − 1, got 1.5"),
    ],
)
def test_bad_input(saved, inputs, options, message):
    with pytest.raises(us.UserError, match=message):
        predict(saved, inputs, **options)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu(saved):
    here, there = (us.predict(saved, SENTENCES, sample=3, device=device) for device in ("cpu", "cuda"))
    assert there.device == "cuda" and decoded(there) == decoded(here)
    torch.testing.assert_close(there.codes, here.codes)
