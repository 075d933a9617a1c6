"""Likelihoods of data given a code: densities against torch.distributions, samples against densities."""

import math

import pytest
import torch
from torch import nn
from torch.distributions import Bernoulli as TorchBernoulli
from torch.distributions import Categorical as TorchCategorical
from torch.distributions import Normal

from understudy import UserError
from understudy.nets.latent.likelihoods import (
    END,
    BernoulliLikelihood,
    CategoricalLikelihood,
    GaussianLikelihood,
    Likelihood,
    SequenceLikelihood,
    counted_places,
    draw_class,
)

ROWS = 60_000


class Constant(nn.Module):
    """A decoder whose output is the same for each code."""

    def __init__(self, row):
        super().__init__()
        self.row = row

    def forward(self, z):
        return self.row.expand(len(z), *self.row.shape)


class Markov(nn.Module):
    """A decoder of sequences over the tokens 0 (the end), 1 and 2, in which each depends on the one before."""

    def __init__(self, places):
        super().__init__()
        self.places = places
        self.table = torch.tensor([[0.1, 0.3, 0.6], [0.5, 0.2, 0.3], [0.3, 0.6, 0.1]], dtype=torch.float64).log()

    def forward(self, z, x):
        before = torch.cat((torch.zeros_like(x[:, :1]), x[:, :-1]), 1)
        return self.table[before]

    def generate(self, z, noise):
        tokens, last, over = [], torch.zeros(len(z), dtype=torch.long), torch.zeros(len(z), dtype=torch.bool)
        for place in range(self.places):
            last = torch.where(over, END, draw_class(self.table[last], noise[:, place]))
            over = over | (last == END)
            tokens.append(last)
        return torch.stack(tokens, 1)


@pytest.fixture
def uniform():
    return torch.rand(ROWS, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_all_are_likelihoods():
    assert all(
        isinstance(each, Likelihood)
        for each in (GaussianLikelihood(), BernoulliLikelihood(), CategoricalLikelihood(), SequenceLikelihood())
    )


class TestGaussian:
    row = torch.tensor([0.5, -1.0, 0.2, 0.6], dtype=torch.float64)

    def test_density(self):
        x = torch.randn(7, 2, dtype=torch.float64)
        normal = Normal(self.row[:2], (self.row[2:] / 2).exp())
        torch.testing.assert_close(
            GaussianLikelihood().log_prob(Constant(self.row), torch.zeros(7, 1), x), normal.log_prob(x).sum(1)
        )

    def test_a_given_deviation(self):
        x = torch.randn(7, 2, dtype=torch.float64)
        found = GaussianLikelihood(std=0.3).log_prob(Constant(self.row[:2]), torch.zeros(7, 1), x)
        torch.testing.assert_close(found, Normal(self.row[:2], 0.3).log_prob(x).sum(1))

    def test_samples_are_differentiable_in_both_moments(self):
        row = self.row.clone().requires_grad_()
        noise = torch.tensor([[1.0, -2.0]], dtype=torch.float64)
        x = GaussianLikelihood().sample(Constant(row), torch.zeros(1, 1), noise)
        torch.testing.assert_close(x, row[None, :2] + (row[None, 2:] / 2).exp() * noise)
        (gradient,) = torch.autograd.grad(x.sum(), row)
        torch.testing.assert_close(gradient[:2], torch.ones(2, dtype=torch.float64))
        torch.testing.assert_close(gradient[2:], noise[0] / 2 * (self.row[2:] / 2).exp())

    def test_images_have_their_variances_along_the_colours(self):
        moments = Constant(torch.zeros(6, 4, 4))
        assert GaussianLikelihood().log_prob(moments, torch.zeros(2, 1), torch.zeros(2, 3, 4, 4)).shape == (2,)

    @pytest.mark.parametrize("std", [0.0, -1.0, math.nan, math.inf])
    def test_a_deviation_out_of_range(self, std):
        with pytest.raises(UserError, match="std must be a finite number above 0"):
            GaussianLikelihood(std=std)


def test_bernoulli(uniform):
    logits = torch.tensor([0.5, -1.0, 3.0], dtype=torch.float64)
    decoder, z = Constant(logits), torch.zeros(ROWS, 1)
    x = BernoulliLikelihood().sample(decoder, z, uniform)
    p = logits.sigmoid()
    assert ((x.mean(0) - p).abs() < 4 * (p * (1 - p) / ROWS).sqrt()).all()
    torch.testing.assert_close(
        BernoulliLikelihood().log_prob(decoder, z, x),
        TorchBernoulli(logits=logits).log_prob(x).sum(1),
        rtol=1e-10,
        atol=1e-10,
    )


@pytest.mark.parametrize("places", [None, 3])
def test_categorical(places, uniform):
    logits = torch.tensor([[0.5, -1.0, 3.0, 0.0], [0.0, 0.0, 0.0, 0.0], [-2.0, 5.0, 1.0, -9.0]], dtype=torch.float64)
    logits, noise = (logits, uniform) if places else (logits[0], uniform[:, 0])
    decoder, z = Constant(logits), torch.zeros(ROWS, 1)
    x = CategoricalLikelihood().sample(decoder, z, noise)
    assert x.shape == noise.shape
    p = logits.softmax(-1)
    share = nn.functional.one_hot(x, 4).double().mean(0)
    assert ((share - p).abs() < 4.5 * (p * (1 - p) / ROWS).sqrt() + 1e-12).all()
    wanted = TorchCategorical(logits=logits).log_prob(x)
    torch.testing.assert_close(CategoricalLikelihood().log_prob(decoder, z, x), wanted.sum(1) if places else wanted)


class TestSequence:
    def test_probabilities_of_all_sequences_add_up_to_one(self):
        places = 3
        every = torch.cartesian_prod(*[torch.arange(3)] * places)
        ended = (every == END).long().cumsum(1) - (every == END).long() > 0
        every = every.masked_fill(ended, END).unique(dim=0)
        found = SequenceLikelihood().log_prob(Markov(places), torch.zeros(len(every), 1), every)
        torch.testing.assert_close(found.exp().sum(), torch.ones((), dtype=torch.float64))

    def test_samples_have_their_probabilities(self, uniform):
        decoder = Markov(3)
        x = SequenceLikelihood().sample(decoder, torch.zeros(ROWS, 1), uniform)
        sequences, counts = x.unique(dim=0, return_counts=True)
        p = SequenceLikelihood().log_prob(decoder, torch.zeros(len(sequences), 1), sequences).exp()
        assert ((counts / ROWS - p).abs() < 4.5 * (p * (1 - p) / ROWS).sqrt()).all()

    def test_what_follows_the_end_does_not_count(self):
        x = torch.tensor([[1, 0, 0], [1, 0, 2], [1, 2, 1]])
        assert counted_places(x).tolist() == [[True, True, False], [True, True, False], [True, True, True]]
        found = SequenceLikelihood().log_prob(Markov(3), torch.zeros(3, 1), x)
        assert found[0] == found[1]


def test_a_number_just_below_one_is_the_last_class():
    logits = torch.zeros(1, 10)
    assert draw_class(logits, torch.tensor([1 - 2.0**-24])).item() == 9
    assert draw_class(logits, torch.tensor([2.0**-30])).item() == 0


@pytest.mark.parametrize(
    ("likelihood", "row", "x", "words"),
    [
        (
            GaussianLikelihood(),
            torch.zeros(2),
            torch.zeros(2, 2),
            r"means and log variances of the shape of the data, \[2\] for",
        ),
        (GaussianLikelihood(std=1.0), torch.zeros(3), torch.zeros(2, 2), r"\[2\] for each row, got \[3\]"),
        (
            BernoulliLikelihood(),
            torch.zeros(3),
            torch.zeros(2, 2),
            "decoder must return logits of the shape of the data",
        ),
        (
            CategoricalLikelihood(),
            torch.zeros(2, 5),
            torch.zeros(2, 3, dtype=torch.long),
            r"\[3\] for each row, got \[2\]",
        ),
        (
            CategoricalLikelihood(),
            torch.zeros(5),
            torch.tensor([0, 5]),
            "data must be classes from 0 to 4, .* got 0 to 5",
        ),
        (CategoricalLikelihood(), torch.zeros(5), torch.tensor([-1, 2]), "got −1 to 2"),
        (SequenceLikelihood(), torch.zeros(5), torch.zeros(2, 3, dtype=torch.long), "must have a method generate"),
    ],
)
def test_outputs_that_do_not_fit_are_refused(likelihood, row, x, words):
    with pytest.raises(UserError, match=words):
        likelihood.require_output(Constant(row), torch.zeros(2, 1), x)
