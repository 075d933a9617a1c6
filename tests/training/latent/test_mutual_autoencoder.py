"""`us.MutualAutoencoder` on numbers, classes and sequences; M = 0 and the variational autoencoder; and wrong input."""

import copy
import math
from dataclasses import replace

import pytest
import torch
from torch import nn

import understudy as us
from support import code_training as small
from understudy import UserError
from understudy.nets.latent import SentenceDecoder, SentenceEncoder, Table, initialise
from understudy.training.latent.objective import CodeObjective
from understudy.training.latent.plan import CodeNetwork, CodePlan

CLASSES = torch.arange(4).repeat(10)
FAST = {"rates": {"encoder": 0.05, "decoder": 0.05, "infer": 0.05}, "batch": 64, "samples": 128, "device": "cpu"}


def labels(target=None, **options):
    """An autoencoder of four classes."""
    torch.manual_seed(1)
    return us.MutualAutoencoder(Table(4, 2), small.mlp(1, 4), Table(4, 2), target=target, **options)


def lines(target=None, **options):
    """An autoencoder of one number whose modules are linear."""
    torch.manual_seed(2)
    return us.MutualAutoencoder(*(nn.Linear(1, 2) for _ in range(3)), target=target, **options)


@pytest.fixture(scope="module")
def numbers():
    return torch.randn(400, 1, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def collapsed():
    """Autoencoders of classes without a target and with M = 0, after training."""
    found = {target: labels(target) for target in (None, 0.0)}
    for model in found.values():
        model.fit(CLASSES, 120, **FAST)
    return found


def test_numbers_get_the_information_that_was_asked_for(numbers):
    model = lines(0.8)
    history = model.fit(numbers, 150, **FAST)
    assert history.diverged.tolist() == [0]
    assert us.information(model, numbers, device="cpu").value == pytest.approx(0.8, abs=0.1)


def test_classes_get_the_information_that_was_asked_for():
    model = labels(0.9)
    parts = model.encoder, model.decoder, model.infer
    history = model.fit(CLASSES, 150, probes=(30,), **FAST)
    assert (model.encoder, model.decoder, model.infer) == parts  # trained in place
    assert not any(each.training for each in model.modules())
    found = us.information(model, CLASSES, device="cpu")
    assert found.value == pytest.approx(0.9, abs=0.1)
    assert found.bound <= found.value + 1e-6  # theorem 4.1
    early, late = history.curves["information"][0].tolist()
    assert abs(late - 0.9) < abs(early - 0.9)


def test_sequences_are_learnt():
    x = us.data.Vocabulary(("a", "b", "c"), 3).encode(["a b", "b a", "c c c", "a"] * 3)
    parts = SentenceEncoder(4, 4, 6, 2), SentenceDecoder(4, 4, 6, 2, 3), SentenceEncoder(4, 4, 6, 2)
    model = initialise(us.MutualAutoencoder(*parts, target=0.5, clip=5.0, clip_information=5.0), 1)
    history = model.fit(x, 30, probes=(5,), **FAST)
    assert model.likelihood.name == "sequence"
    early, late = history.curves["elbo"][0].tolist()
    assert late > early + 0.5


def test_without_information_asked_for_it_is_that_of_the_variational_autoencoder(collapsed):
    """Both have none, and the same distribution of the data: their evidence lower bound is its optimum, −H(x)."""
    for model in collapsed.values():
        found = us.information(model, CLASSES, device="cpu")
        assert found.value < 0.05 and found.divergence < 0.05
    noise = torch.randn(1, 4_000, 1, generator=torch.Generator().manual_seed(3))
    x = torch.arange(4_000) % 4
    for model in collapsed.values():
        with torch.no_grad():
            z = model.encode(x).sample(noise)
            elbo = model.log_likelihood(z, x).mean() - model.encode(x).divergence().sum(1).mean()
        assert float(elbo) == pytest.approx(-math.log(4), abs=0.03)


def test_a_target_that_never_counts_leaves_the_variational_autoencoder_bit_for_bit():
    never = CodeNetwork(1, CodeObjective(target=0.7, penalty_from=12))
    plan = CodePlan((never, CodeNetwork(1, CodeObjective())), 12, batch=16, samples=16)
    trained = small.train(plan)
    ours, theirs = (each.state_dict() for each in trained.models)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    counted = small.train(replace(plan, networks=(CodeNetwork(1, CodeObjective(target=0.7, penalty_from=11)),)))
    assert not torch.equal(counted.models[0].decoder[0].weight, trained.models[0].decoder[0].weight)


def test_the_seed_alone_decides_even_with_modules_that_draw_numbers(numbers):
    def train(seed):
        torch.manual_seed(3)
        decoder = nn.Sequential(nn.Linear(1, 4), nn.Dropout(0.5), nn.Linear(4, 2))
        model = us.MutualAutoencoder(nn.Linear(1, 2), decoder, nn.Linear(1, 2), target=0.5)
        state = torch.get_rng_state()
        model.fit(numbers, 5, seed=seed, **FAST)
        assert torch.equal(torch.get_rng_state(), state)
        torch.rand(seed + 1)
        return model.state_dict()

    one, again, other = train(1), train(1), train(2)
    assert all(torch.equal(one[name], again[name]) for name in one)
    assert not torch.equal(one["decoder.0.weight"], other["decoder.0.weight"])


def test_several_codes_are_used(numbers):
    single, several = lines(), lines(resamples=4)
    for model in (single, several):
        model.fit(numbers, 3, **FAST)
    assert several.resamples == 4
    assert not torch.equal(single.encoder.weight, several.encoder.weight)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"target": -1.0}, "target must be a finite number, at least 0 nats, got −1"),
        ({"target": 1.0, "penalty": 0.0}, "penalty must be a finite number, above 0, got 0"),
        ({"penalty": -2.0}, "penalty must be a finite number, above 0, got −2"),
        ({"resamples": 0}, "resamples must be a whole number of at least 1, got 0"),
        ({"likelihood": "gausian"}, r"likelihood must be one of .*, got 'gausian'; did you mean gaussian"),
        ({"warm_up": -1}, "warm_up must be a number of steps of at least 0, got -1"),
    ],
)
def test_options_out_of_range(options, words):
    with pytest.raises(UserError, match=words):
        us.MutualAutoencoder(Table(4, 2), small.mlp(1, 4), Table(4, 2), **options)


def test_a_target_needs_an_inference_network():
    with pytest.raises(UserError, match="infer is missing, by which a target"):
        us.MutualAutoencoder(Table(4, 2), small.mlp(1, 4), target=0.0)


def test_more_information_than_the_data_or_the_code_have_is_refused(numbers):
    with pytest.raises(UserError, match=r"^target must be at most 1.3862 nats, the entropy of the data, got 1.5$"):
        labels(1.5).fit(CLASSES, 1, **FAST)
    labels(1.3862).fit(CLASSES, 1, **FAST)
    carried = r"^target must be at most 18.3432 nats, what a code of 1 coordinate in float32 can carry, got 19$"
    with pytest.raises(UserError, match=carried):
        lines(19.0).fit(numbers, 1, **FAST)


@pytest.mark.parametrize(
    ("model", "x", "words"),
    [
        (lambda: lines(), torch.zeros(5, 3), "encoder fails on a tensor of shape"),
        (
            lambda: us.MutualAutoencoder(nn.Linear(3, 2), nn.Linear(1, 4), nn.Linear(3, 2)),
            torch.zeros(5, 3),
            r"decoder must return means and log variances of the shape of the data, \[3\] for each row, got \[2\]",
        ),
        (
            lambda: us.MutualAutoencoder(nn.Linear(3, 2), nn.Linear(1, 2), likelihood="bernoulli"),
            torch.zeros(5, 3),
            r"decoder must return logits of the shape of the data, \[3\] for each row, got \[2\]",
        ),
        (lambda: labels(), torch.arange(5), "data must be classes from 0 to 3, as many as the decoder has logits, got"),
        (
            lambda: us.MutualAutoencoder(
                SentenceEncoder(4, 2, 3, 2), SentenceDecoder(4, 2, 3, 1, 3), SentenceEncoder(4, 2, 3, 2)
            ),
            torch.ones(3, 4, dtype=torch.int64),
            "decoder fails on a tensor of shape",
        ),
        (lambda: labels(), torch.arange(4).float(), "data must have an axis of rows and one of numbers"),
        (lambda: lines(), torch.full((4, 1), math.nan), "data must be finite numbers, got NaN or infinity"),
        (lambda: lines(), torch.zeros(0, 1), "data must have at least one row"),
    ],
)
def test_modules_that_do_not_fit_the_data_are_refused_untrained(model, x, words):
    model = model()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(UserError, match=words):
        model.fit(x, 2, **FAST)
    assert all(torch.equal(model.state_dict()[name], each) for name, each in before.items())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"steps": 0}, "steps must be a whole number of at least 1"),
        ({"batch": 0}, "batch must be"),
        ({"samples": 0}, "samples must be"),
        ({"decayed": 2.0}, "decayed must be a share from 0 to 1, got 2"),
        ({"rates": {"encoder": -1.0}}, "rates must be a finite number above 0 for the encoder"),
        ({"probes": (9,)}, "probes must be steps from 0 to 2, got 9"),
    ],
)
def test_trainings_out_of_range(options, words):
    with pytest.raises(UserError, match=words):
        labels(0.5).fit(CLASSES, **({"steps": 2} | FAST | options))
