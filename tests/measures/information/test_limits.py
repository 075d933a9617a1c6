"""The most information that a code can have about given data."""

import math

import pytest
import torch
from torch import nn

from support.code_channels import Rows, bins, gaussian_channel, linear
from understudy.measures.information.limits import _rounded_entropy, information_limit
from understudy.nets.latent.likelihoods import GaussianLikelihood
from understudy.nets.latent.model import LatentModel


def limit(model, x):
    return information_limit(model, model.prepare(x))


def test_the_entropy_of_classes():
    assert limit(bins(10), torch.arange(10)).nats == pytest.approx(math.log(10))
    assert limit(bins(10), torch.tensor([3, 3, 3, 5])).nats == pytest.approx(2 * math.log(2) - 0.75 * math.log(3))
    assert limit(bins(10), torch.arange(10)).reason == "the entropy of the data"


def test_the_entropy_of_rows():
    class Two(nn.Module):
        def forward(self, x):
            return torch.zeros(len(x), 2)

    class Logits(nn.Linear):
        def forward(self, z):
            return super().forward(z).view(-1, 2, 3)

    x = torch.tensor([[0, 1], [0, 1], [2, 1], [0, 2]])
    assert limit(LatentModel(Two(), Logits(1, 6)), x).nats == pytest.approx(1.5 * math.log(2))
    bernoulli = LatentModel(nn.Linear(2, 2), nn.Linear(1, 2), likelihood="bernoulli")
    assert limit(bernoulli, torch.tensor([[0.0, 1.0], [1.0, 1.0]])).nats == pytest.approx(math.log(2))


def test_what_follows_the_end_of_a_sentence_does_not_count():
    class Decoder(nn.Linear):
        def forward(self, z, x):
            return super().forward(z)[:, None].expand(-1, x.shape[1], -1)

        def generate(self, z, noise):
            return torch.zeros(noise.shape, dtype=torch.long)

    class Encoder(nn.Linear):
        def forward(self, x):
            return super().forward(x.float())

    model = LatentModel(Encoder(3, 2), Decoder(1, 3))
    assert limit(model, torch.tensor([[1, 0, 0], [1, 0, 2], [1, 2, 0], [2, 0, 0]])).nats == pytest.approx(
        1.5 * math.log(2)
    )


def test_numbers_beside_noise_of_a_given_deviation():
    """½ log(v / σ²) in each coordinate that varies by more than the noise, reached by the Gaussian channel."""
    x = torch.tensor([[1.0, 0.01], [-1.0, -0.01]])
    model = LatentModel(nn.Linear(2, 2), nn.Linear(1, 2), likelihood=GaussianLikelihood(0.5))
    found = limit(model, x)
    assert found.nats == pytest.approx(math.log(2))
    assert found.reason == "what numbers of the variance of the data can carry through noise of std 0.5"
    gain, std = 2.0, 0.3
    x = torch.randn(200_000, 1, generator=torch.Generator().manual_seed(0)).double() * math.hypot(gain, std)
    channel = LatentModel(
        linear([[0.0], [0.0]], [0.0, 0.0]), linear([[gain]], [0.0]), likelihood=GaussianLikelihood(std)
    )
    assert limit(channel, x).nats == pytest.approx(math.log1p((gain / std) ** 2) / 2, abs=0.01)


def test_numbers_whose_variance_is_learnt_are_limited_by_the_precision_of_the_code():
    found = limit(gaussian_channel(coordinates=2), torch.randn(5, 2))
    assert found.reason == "what a code of 2 coordinates in float64 can carry"
    assert found.nats == pytest.approx(2 * _rounded_entropy(torch.float64))
    single = limit(LatentModel(nn.Linear(1, 2), nn.Linear(1, 2)), torch.randn(5, 1))
    assert single.reason == "what a code of 1 coordinate in float32 can carry"
    assert single.nats == pytest.approx(18.343, abs=1e-3)


def test_the_entropy_of_rounded_normal_numbers():
    """Counts of 2,000,000 numbers in bfloat16, whose entropy is too small by about (values − 1) / (2 · numbers)."""
    z = torch.randn(2_000_000, generator=torch.Generator().manual_seed(0)).bfloat16()
    counts = z.view(torch.int16).unique(return_counts=True)[1].double()
    found = float(torch.special.entr(counts / len(z)).sum()) + len(counts) / 2 / len(z)
    assert found == pytest.approx(_rounded_entropy(torch.bfloat16), abs=0.003)
    difference = _rounded_entropy(torch.float64) - _rounded_entropy(torch.float32)
    assert difference == pytest.approx(29 * math.log(2))


def test_the_smallest_limit_counts():
    model = LatentModel(Rows(torch.zeros(2, 2)), linear([[1.0], [0.0]], [0.0, 0.0]), likelihood="categorical")
    assert limit(model, torch.tensor([0, 1])).nats == pytest.approx(math.log(2))
