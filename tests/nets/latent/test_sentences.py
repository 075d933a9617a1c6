"""Encoders and decoders of sentences: torch's LSTM, padding, probabilities of all sequences, and what is written."""

import itertools
import math
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call, stack_module_state, vmap

from support.torch_layers import as_torch_lstm
from understudy import UserError
from understudy.nets.latent.initial import initialise
from understudy.nets.latent.likelihoods import END, SequenceLikelihood, draw_class
from understudy.nets.latent.sentences import SentenceDecoder, SentenceEncoder

WORDS, LATENT, LONGEST = 6, 2, 5


def made(module, seed=0, scale=4.0):
    """A module in float64 whose weights are large enough that inputs matter."""
    initialise(module.double(), seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(scale)
    return module


@pytest.fixture(scope="module")
def encoder():
    return made(SentenceEncoder(WORDS, 3, 4, LATENT))


@pytest.fixture(scope="module")
def decoder():
    return made(SentenceDecoder(WORDS, 3, 4, LATENT, LONGEST))


def codes(count, latent=LATENT, seed=0):
    return torch.randn(count, latent, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def rows(sentences, places):
    """Tokens of sentences, ended and padded by END."""
    return torch.tensor([[*each, *[END] * (places - len(each))] for each in sentences])


word_lists = st.lists(st.lists(st.integers(1, WORDS - 1), max_size=LONGEST), min_size=1, max_size=4)


class TestEncoder:
    @given(sentences=word_lists)
    def test_torch_computes_the_same_of_each_sentence_alone(self, encoder, sentences):
        found = encoder(rows(sentences, LONGEST + 1))
        for i, words in enumerate(sentences):
            embedded = encoder.embedding(torch.tensor([[*words, END]]))
            ends = [
                as_torch_lstm(layer)(each)[0][:, -1]
                for layer, each in ((encoder.forwards, embedded), (encoder.backwards, embedded.flip(1)))
            ]
            torch.testing.assert_close(found[i], encoder.output(torch.cat(ends, 1))[0])

    @given(sentences=word_lists, more=st.integers(1, 4), seed=st.integers(0, 99))
    def test_padding_changes_nothing(self, encoder, sentences, more, seed):
        x = rows(sentences, LONGEST + 1)
        wanted = encoder(x)
        torch.testing.assert_close(encoder(rows(sentences, LONGEST + 1 + more)), wanted, rtol=0, atol=1e-14)
        garbage = torch.randint(WORDS, x.shape, generator=torch.Generator().manual_seed(seed))
        after = torch.arange(LONGEST + 1) > torch.tensor([[len(each)] for each in sentences])
        torch.testing.assert_close(encoder(torch.where(after, garbage, x)), wanted, rtol=0, atol=1e-14)

    def test_padding_has_no_gradient(self, encoder):
        x = torch.tensor([[1, END, 3, 3], [2, 1, END, 3]])
        (gradient,) = torch.autograd.grad(encoder(x).square().sum(), encoder.embedding.weight)
        assert not gradient[3].any() and gradient[[END, 1, 2]].any(1).all()

    def test_every_place_before_the_end_matters(self, encoder):
        x = torch.tensor([[1, 2, 3, 4, 5, END]])
        for place, other in itertools.product(range(5), (2, 5)):
            changed = x.clone()
            changed[0, place] = other
            assert torch.equal(changed, x) or (encoder(changed) - encoder(x)).abs().max() > 1e-3

    def test_a_sentence_without_end_is_read_to_its_last_place(self, encoder):
        x = torch.tensor([[1, 2, 3]])
        assert (encoder(x) - encoder(torch.tensor([[1, 2, END]]))).abs().max() > 1e-3


class TestDecoder:
    def test_torch_computes_the_same(self, decoder):
        z, x = codes(3), torch.tensor([[1, 2, 5, END], [3, END, END, END], [4, 4, 4, 4]])
        before = torch.cat([torch.full((3, 1), END), x[:, :-1]], 1)
        inputs = torch.cat([decoder.embedding(before), z[:, None].expand(-1, 4, -1)], 2)
        torch.testing.assert_close(decoder(z, x), decoder.output(as_torch_lstm(decoder.layer)(inputs)[0]))

    @given(sentences=word_lists, more=st.integers(1, 4), seed=st.integers(0, 99))
    def test_padding_changes_no_likelihood(self, decoder, sentences, more, seed):
        x, z = rows(sentences, LONGEST + 1), codes(len(sentences))
        wanted = SequenceLikelihood().log_prob(decoder, z, x)
        longer = SequenceLikelihood().log_prob(decoder, z, rows(sentences, LONGEST + 1 + more))
        torch.testing.assert_close(longer, wanted, rtol=0, atol=1e-13)
        garbage = torch.randint(WORDS, x.shape, generator=torch.Generator().manual_seed(seed))
        after = torch.arange(LONGEST + 1) > torch.tensor([[len(each)] for each in sentences])
        changed = SequenceLikelihood().log_prob(decoder, z, torch.where(after, garbage, x))
        torch.testing.assert_close(changed, wanted, rtol=0, atol=1e-13)

    def test_padding_has_no_gradient(self, decoder):
        x, z = torch.tensor([[1, END, 3, 3]]), codes(1)
        loss = SequenceLikelihood().log_prob(decoder, z, x).sum()
        embedded, bias = torch.autograd.grad(loss, (decoder.embedding.weight, decoder.output.bias), retain_graph=True)
        assert not embedded[3].any()
        # Only two places count: the gradient of the biases is that of their two predictions.
        logits = decoder(z, x)[0, :2]
        torch.testing.assert_close(bias, nn.functional.one_hot(x[0, :2], WORDS).sum(0) - logits.softmax(1).sum(0))

    @given(sentences=word_lists)
    def test_likelihoods_are_products_over_places(self, decoder, sentences):
        z = codes(len(sentences))
        found = SequenceLikelihood().log_prob(decoder, z, rows(sentences, LONGEST + 1))
        for i, words in enumerate(sentences):
            x = torch.tensor([[*words, END]])
            logits = decoder(z[i : i + 1], x)[0].log_softmax(1)
            assert found[i].item() == pytest.approx(sum(logits[k, word].item() for k, word in enumerate(x[0])))

    @pytest.mark.parametrize("places", [1, 2, 4])
    def test_probabilities_of_all_sequences_add_up_to_one(self, places):
        decoder, z = made(SentenceDecoder(4, 2, 3, 1, places), scale=8.0), codes(3, latent=1)
        words = range(1, 4)
        ended = [each for n in range(places) for each in itertools.product(words, repeat=n)]
        x = rows([*ended, *itertools.product(words, repeat=places)], places)
        for code in z:
            log_prob = SequenceLikelihood().log_prob(decoder, code.expand(len(x), 1), x)
            assert log_prob.exp().sum().item() == pytest.approx(1, abs=1e-12)
            assert log_prob.exp().max() < 0.99

    def test_written_words_are_drawn_from_the_logits(self, decoder):
        z = codes(40)
        noise = torch.rand(40, LONGEST + 1, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        x = decoder.generate(z, noise)
        wanted = draw_class(decoder(z, x), noise)
        ends = (x == END).int()
        counted = ends.cumsum(1) - ends == 0
        assert torch.equal(x[counted], wanted[counted]) and not x[~counted].any()
        assert 0 < counted.float().mean() < 1

    def test_sequences_are_drawn_as_often_as_they_are_probable(self):
        decoder, count = made(SentenceDecoder(3, 2, 3, 1, 2)), 40_000
        z = torch.full((count, 1), 0.7, dtype=torch.float64)
        noise = torch.rand(count, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
        counts = Counter(map(tuple, decoder.generate(z, noise).tolist()))
        all_ = rows(
            [*((),), *((1,), (2,)), *itertools.product((1, 2), repeat=2), *itertools.product((1, 2), repeat=3)], 3
        )
        probable = SequenceLikelihood().log_prob(decoder, z[: len(all_)], all_).exp().tolist()
        assert sum(counts[tuple(each)] for each in all_.tolist()) == count
        for each, p in zip(all_.tolist(), probable, strict=True):
            assert abs(counts[tuple(each)] / count - p) < 4.5 * math.sqrt(p * (1 - p) / count)

    def test_the_most_likely_words_are_the_largest_logits(self, decoder):
        z = codes(40)
        x = decoder.most_likely(z)
        assert x.shape == (40, LONGEST + 1)
        wanted = decoder(z, x).argmax(-1)
        ends = (x == END).int()
        counted = ends.cumsum(1) - ends == 0
        assert torch.equal(x[counted], wanted[counted]) and not x[~counted].any()
        assert len({tuple(each) for each in x.tolist()}) > 3

    def test_nearly_certain_words_are_drawn_and_most_likely_alike(self):
        decoder = made(SentenceDecoder(4, 2, 3, 1, 3))
        with torch.no_grad():
            decoder.output.weight.mul_(1e4)
        z = codes(20, latent=1)
        noise = torch.rand(20, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
        assert torch.equal(decoder.generate(z, noise), decoder.most_likely(z))

    def test_every_word_depends_on_the_code(self, decoder):
        x = torch.tensor([[1, 2, 3, END]])
        z = codes(1).requires_grad_()
        for place in range(4):
            (gradient,) = torch.autograd.grad(decoder(z, x)[0, place].square().sum(), z)
            assert gradient.abs().max() > 1e-3

    def test_no_word_depends_on_later_ones(self, decoder):
        z, x = codes(1), torch.tensor([[1, 2, 3, 4]])
        for place in range(4):
            changed = x.clone()
            changed[:, place:] = 5
            torch.testing.assert_close(decoder(z, changed)[:, : place + 1], decoder(z, x)[:, : place + 1])


@pytest.mark.parametrize(
    ("kind", "sizes"), [(SentenceEncoder, (7, 3, 4, 2)), (SentenceDecoder, (7, 3, 4, 2, 5))], ids=["encoder", "decoder"]
)
def test_settings_make_the_same_architecture(kind, sizes):
    module = kind(*sizes)
    assert tuple(module.settings.values()) == sizes
    again = kind(**module.settings)
    assert {n: t.shape for n, t in again.state_dict().items()} == {n: t.shape for n, t in module.state_dict().items()}


def test_examples_can_be_encoded(encoder):
    assert encoder(encoder.example()).shape == (2, 2 * LATENT)


def test_stacked_parameters():
    encoders = [made(SentenceEncoder(WORDS, 3, 4, LATENT), seed) for seed in range(3)]
    decoders = [made(SentenceDecoder(WORDS, 3, 4, LATENT, LONGEST), seed) for seed in range(3)]
    x, z = rows([[1, 2], [3, 4, 5]], LONGEST + 1).expand(3, -1, -1), codes(6).view(3, 2, LATENT)
    noise = torch.rand(3, 2, LONGEST + 1, dtype=torch.float64)

    def apply(module, *given):
        parameters, _ = stack_module_state(module)
        return vmap(lambda p, *each: functional_call(module[0], p, each))(parameters, *given)

    torch.testing.assert_close(apply(encoders, x), torch.stack([each(x[0]) for each in encoders]))
    wanted = torch.stack([each(code, x[0]) for each, code in zip(decoders, z, strict=True)])
    torch.testing.assert_close(apply(decoders, z, x), wanted)

    class Writer(nn.Module):
        def __init__(self, decoder):
            super().__init__()
            self.decoder = decoder

        def forward(self, z, noise):
            return self.decoder.generate(z, noise)

    found = apply([Writer(each) for each in decoders], z, noise)
    assert torch.equal(found, torch.stack([d.generate(c, n) for d, c, n in zip(decoders, z, noise, strict=True)]))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SentenceEncoder(0, 1, 1, 1), "words must be a whole number of at least 1, got 0"),
        (lambda: SentenceEncoder(2, 1, 1, 0), "latent must be a whole number of at least 1, got 0"),
        (lambda: SentenceDecoder(2, 1, 0, 1, 1), "hidden must be a whole number of at least 1, got 0"),
        (lambda: SentenceDecoder(2, 1, 1, 1, 0), "longest must be a whole number of at least 1, got 0"),
    ],
)
def test_sizes_out_of_range(make, message):
    with pytest.raises(UserError, match=message):
        make()
