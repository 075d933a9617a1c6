"""Initial weights by seed: what they depend on, their bounds and distributions, and modules without any."""

import math

import pytest
import torch
from scipy import stats
from torch import nn

from understudy import UserError
from understudy.nets.latent.initial import initialise
from understudy.nets.latent.layers import Table, mlp
from understudy.nets.latent.model import LatentModel
from understudy.nets.latent.recurrent import LSTM
from understudy.nets.latent.sentences import SentenceDecoder, SentenceEncoder


def model():
    return LatentModel(SentenceEncoder(7, 3, 4, 2), SentenceDecoder(7, 3, 4, 2, 5), SentenceEncoder(7, 3, 4, 2))


def weights(module):
    return torch.cat([p.detach().flatten() for p in module.parameters()])


def test_weights_depend_on_the_seed_and_on_nothing_else():
    torch.manual_seed(0)
    first = weights(initialise(model(), 5))
    torch.manual_seed(1)
    state = torch.get_rng_state()
    again = initialise(model(), 5)
    torch.testing.assert_close(weights(again), first, rtol=0, atol=0)
    assert not torch.equal(weights(initialise(model(), 6)), first)
    assert torch.equal(weights(initialise(initialise(model(), 7), 5)), first)
    assert not torch.equal(torch.get_rng_state(), state)  # modules draw from it when they are made
    state = torch.get_rng_state()
    initialise(again, 8)
    assert torch.equal(torch.get_rng_state(), state)


def test_parts_of_a_model_get_numbers_of_their_own():
    made = initialise(model(), 5)
    assert not torch.equal(weights(made.encoder), weights(made.infer))
    assert not torch.equal(made.encoder.forwards.weight_ih, made.encoder.backwards.weight_ih)


def test_float64_is_rounded_to_float32():
    wide, narrow = (weights(initialise(model().to(dtype), 5)) for dtype in (torch.float64, torch.float32))
    assert wide.dtype == torch.float64 and torch.equal(wide.float(), narrow)


def test_modules_are_returned_and_trained_on():
    made = mlp(2, 3)
    assert initialise(made, 1) is made and all(p.requires_grad and p.grad_fn is None for p in made.parameters())


@pytest.mark.parametrize(
    ("module", "bound"),
    [(nn.Linear(64, 100).double(), 1 / 8), (LSTM(50, 64).double(), 1 / 8), (LSTM(3, 25).double(), 1 / 5)],
)
def test_weights_are_uniform_within_their_bounds(module, bound):
    initialise(module, 3)
    for name, parameter in module.named_parameters():
        values = parameter.detach()
        if isinstance(module, LSTM) and name == "bias":
            opened, forget, *others = values.chunk(4)
            assert (forget == 1).all()
            values = torch.cat([opened, *others])
        assert values.abs().max() < bound
        assert stats.kstest(values.flatten().numpy(), stats.uniform(-bound, 2 * bound).cdf).pvalue > 0.001


def test_embeddings_are_normal():
    values = initialise(nn.Embedding(200, 30).double(), 3).weight.detach().flatten()
    assert stats.kstest(values.numpy(), stats.norm(scale=0.1).cdf).pvalue > 0.001


def test_tables_are_zero():
    table = Table(3, 2)
    nn.init.ones_(table.rows)
    assert not initialise(table, 1).rows.any()


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (
            nn.Conv2d(1, 1, 1),
            r"module has parameters in itself \(torch\.nn\.modules\.conv\.Conv2d\), for which no init",
        ),
        (nn.Sequential(nn.Linear(1, 1), nn.LSTM(1, 1)), r"in 1 \(torch\.nn\.modules\.rnn\.LSTM\).*understudy's LSTM"),
    ],
)
def test_other_modules_are_left_as_they_were(module, message):
    before = weights(module).clone()
    with pytest.raises(UserError, match=message):
        initialise(module, 1)
    assert torch.equal(weights(module), before)


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_seeds_out_of_range(seed):
    with pytest.raises(UserError, match=f"seed must be between 0 and 2.63 − 1, got {seed}"):
        initialise(mlp(1, 1), seed)
    assert math.isfinite(weights(initialise(mlp(1, 1), 2**63 - 1)).sum())
