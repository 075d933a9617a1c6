"""The objective of latent models: bounds by hand, schedules, and estimators of gradients against exact ones."""

import itertools
import math

import pytest
import torch
from torch import distributions

from support.code_channels import Rows, gaussian_channel, random_network
from understudy import UserError
from understudy.nets.latent import LatentModel, SentenceDecoder, SentenceEncoder, initialise
from understudy.nets.latent.codes import prior_entropy, prior_log_prob
from understudy.training.latent.objective import CodeObjective, TermWeights, inference_loss, infomax, lower_bound

PLAIN = TermWeights(beta=1.0, free_bits=0.0, target=0.0, penalty=0.0)


def draws(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def uniforms(seed, *shape):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def gradients(value, parameters):
    """The gradient of a number, flat; 0 where it does not depend on a parameter."""
    parameters = list(parameters)
    found = torch.autograd.grad(value, parameters, allow_unused=True)
    return torch.cat(
        [(torch.zeros_like(p) if g is None else g).flatten() for p, g in zip(parameters, found, strict=True)]
    )


@pytest.fixture(scope="module")
def model():
    """A model of two real numbers with a code of three coordinates."""
    return LatentModel(random_network(1, 2, 6), random_network(2, 3, 4), likelihood="gaussian", latent=3)


@pytest.fixture(scope="module")
def x():
    return draws(3, 5, 2)


class TestLowerBound:
    @pytest.fixture(scope="class")
    @classmethod
    def parts(cls, model, x):
        """The encoder's distribution, the noise of its codes, and the terms of the bound of each row."""
        mean, log_variance = model.encoder(x).chunk(2, 1)
        q = distributions.Normal(mean, (log_variance / 2).exp())
        noise = draws(4, 3, 5, 3)
        z = mean + q.stddev * noise
        out_mean, out_log_variance = model.decoder(z).chunk(2, -1)
        given = distributions.Normal(out_mean, (out_log_variance / 2).exp()).log_prob(x).sum(-1)
        prior = distributions.Normal(torch.zeros_like(mean), torch.ones_like(mean))
        ratio = (prior.log_prob(z) - q.log_prob(z)).sum(-1)
        return noise, given, distributions.kl_divergence(q, prior), ratio

    def test_with_one_code_its_kl_term_is_exact(self, model, x, parts):
        noise, given, divergence, _ = parts
        found = lower_bound(model, x, noise[:1], PLAIN)
        torch.testing.assert_close(found.elbo, (given[0] - divergence.sum(1)).mean())
        torch.testing.assert_close(found.divergence, divergence.sum(1).mean())
        assert torch.equal(found.objective, found.elbo)

    def test_beta_weighs_the_kl_term(self, model, x, parts):
        noise, given, divergence, _ = parts
        found = lower_bound(model, x, noise[:1], PLAIN._replace(beta=0.3))
        torch.testing.assert_close(found.objective, (given[0] - 0.3 * divergence.sum(1)).mean())
        assert torch.equal(found.elbo, lower_bound(model, x, noise[:1], PLAIN).elbo)

    def test_free_bits_are_not_penalised_coordinate_by_coordinate(self, model, x, parts):
        noise, given, divergence, _ = parts
        each = divergence.mean(0)
        low, middle, _ = each.sort().values
        free = (low + middle).item() / 2
        found = lower_bound(model, x, noise[:1], PLAIN._replace(beta=0.5, free_bits=free))
        torch.testing.assert_close(found.objective, given[0].mean() - 0.5 * each.clamp(min=free).sum())
        raised = lower_bound(model, x, noise[:1], PLAIN._replace(free_bits=each.max().item() + 1))
        code = model.encode(x)
        likelihood = model.log_likelihood(code.sample(noise[:1]), x).mean()
        torch.testing.assert_close(
            gradients(raised.objective, model.encoder.parameters()), gradients(likelihood, model.encoder.parameters())
        )

    @pytest.mark.parametrize("beta", [1.0, 0.4])
    def test_several_codes_are_averaged_by_importance(self, model, x, parts, beta):
        noise, given, _, ratio = parts
        found = lower_bound(model, x, noise, PLAIN._replace(beta=beta))
        torch.testing.assert_close(found.objective, (given + beta * ratio).exp().mean(0).log().mean())
        torch.testing.assert_close(found.elbo, (given + ratio).exp().mean(0).log().mean())

    def test_with_the_exact_posterior_it_is_the_evidence(self):
        channel, data = gaussian_channel(likelihood="gaussian", latent=1), draws(5, 4, 1)
        evidence = distributions.Normal(0.0, math.hypot(1.5, 0.8)).log_prob(data).mean()
        for codes in (2, 7):
            found = lower_bound(channel, data, draws(6, codes, 4, 1), PLAIN).elbo
            torch.testing.assert_close(found, evidence)


class TestSchedule:
    def test_the_kl_term_warms_up_to_its_weight(self):
        objective = CodeObjective(beta=0.5, warm_up=4)
        assert [objective.weights(step).beta for step in (0, 1, 2, 4, 9)] == [0, 0.125, 0.25, 0.5, 0.5]
        assert CodeObjective().weights(0) == PLAIN

    def test_the_penalty_begins_at_its_step_and_needs_a_target(self):
        objective = CodeObjective(target=1.5, penalty=2.0, penalty_from=3, free_bits=0.1)
        assert [objective.weights(step).penalty for step in (0, 2, 3, 8)] == [0, 0, 2.0, 2.0]
        assert objective.weights(5) == TermWeights(1.0, 0.1, 1.5, 2.0)
        assert CodeObjective(penalty=2.0).weights(5).penalty == 0
        assert CodeObjective(target=0.0).weights(0).penalty == 1.0  # M = 0 is a target

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"target": -0.1}, "target must be a finite number, at least 0 nats, got −0.1"),
            ({"target": math.nan}, "target must be a finite number, at least 0 nats"),
            ({"penalty": 0.0}, "penalty must be a finite number, above 0, got 0"),
            ({"penalty": math.inf}, "penalty must be a finite number, above 0"),
            ({"beta": -1.0}, "beta must be a finite number, at least 0"),
            ({"free_bits": -1.0}, "free_bits must be a finite number, at least 0 nats"),
            ({"clip": 0.0}, "clip must be above 0, got 0"),
            ({"clip_information": math.nan}, "clip_information must be above 0"),
            ({"penalty_from": -1}, "penalty_from must be a number of steps of at least 0, got -1"),
            ({"warm_up": -1}, "warm_up must be a number of steps of at least 0, got -1"),
        ],
    )
    def test_options_out_of_range(self, options, words):
        with pytest.raises(UserError, match=words):
            CodeObjective(**options)


class TestInfomax:
    """The estimate of the information and its gradient; for labels see also the tests of theory/reinforce."""

    SAMPLES, GAIN, NOISE, SLOPE, SPREAD = 400, 1.2, 0.7, 0.5, 0.9

    def channel(self):
        """x = g z + n e with r(z|x) = N(a x, s²), which is not the posterior."""
        model = gaussian_channel(self.GAIN, self.NOISE, likelihood="gaussian", latent=1)
        with torch.no_grad():
            model.infer.weight.copy_(torch.tensor([[self.SLOPE], [0.0]]))
            model.infer.bias.copy_(torch.tensor([0.0, 2 * math.log(self.SPREAD)]))
        return model

    def test_of_numbers_it_is_the_bound_and_its_gradient_with_their_variance(self):
        """E log r = −½ log 2πs² − ((1 − ag)² + a²n²) / 2s², and the variances of sums of squares of normal numbers."""
        model, batches = self.channel(), 400
        a, g, n, s = self.SLOPE, self.GAIN, self.NOISE, self.SPREAD
        found = []
        for seed in range(batches):
            estimate = infomax(model, *(draws(2 * seed + i, self.SAMPLES, 1) for i in range(2)))
            weight, bias = torch.autograd.grad(estimate.surrogate, (model.decoder.weight, model.decoder.bias))
            found.append([float(estimate.information), float(weight[0, 0]), float(bias[1])])
        away = ((1 - a * g) ** 2 + a**2 * n**2) / (2 * s**2)
        wanted = torch.tensor([0.5 - math.log(s) - away, a * (1 - a * g) / s**2, -(a**2) * n**2 / (2 * s**2)])
        found = torch.tensor(found)
        error = found.std(0) / math.sqrt(batches)
        assert ((found.mean(0) - wanted).abs() < 4 * error).all()
        assert not ((found.mean(0) - 1.1 * wanted).abs() < 4 * error).any()  # the test can tell
        variance = a**2 / s**4 * (2 * (1 - a * g) ** 2 + a**2 * n**2) / self.SAMPLES
        assert float(found[:, 1].var()) == pytest.approx(variance, rel=5 * math.sqrt(2 / batches))

    @pytest.mark.parametrize("baseline", [False, True])
    def test_of_sequences_it_is_unbiased(self, baseline):
        """Against the gradient of the bound by summation over all sequences and a fine grid of codes."""
        parts = SentenceEncoder(3, 2, 3, 1), SentenceDecoder(3, 2, 3, 1, 1), SentenceEncoder(3, 2, 3, 1)
        model = initialise(LatentModel(*parts, likelihood="sequence", latent=1), 3).double()
        with torch.no_grad():
            for each in model.parameters():
                each.mul_(8)
        every = torch.tensor([[a, b] for a, b in itertools.product(range(3), repeat=2) if a or not b])
        z = torch.linspace(-7, 7, 1_401, dtype=torch.float64)[:, None]
        log_p = torch.stack([model.log_likelihood(z, x.expand(len(z), 2)) for x in every])
        reward = torch.stack([model.infer_code(x[None]).log_prob(z) for x in every]).detach()
        weight = prior_log_prob(z).exp() * 0.01
        wanted = gradients((weight * log_p.exp() * reward).sum(), model.decoder.parameters())
        information = prior_entropy(1) + float((weight * log_p.exp() * reward).sum().detach())

        found, values = [], []
        for seed in range(150):
            estimate = infomax(model, draws(2 * seed, 200, 1), uniforms(2 * seed + 1, 200, 2), baseline)
            found.append(gradients(estimate.surrogate, model.decoder.parameters()))
            values.append(estimate.information)
        found, values = torch.stack(found), torch.stack(values)
        error = found.std(0) / math.sqrt(len(found))
        assert ((found.mean(0) - wanted).abs() <= 4.5 * error + 1e-12).all()
        assert float(wanted.norm()) > 10 * float(error.norm())
        assert abs(float(values.mean()) - information) < 4 * float(values.std()) / math.sqrt(len(values))

    def test_the_baseline_is_the_mean_of_the_other_rewards(self):
        model = LatentModel(Rows(draws(1, 3, 2)), random_network(4, 1, 3), Rows(draws(2, 3, 2)))
        model.prepare(torch.arange(3))
        prior, noise = draws(3, 6, 1), uniforms(4, 6)
        x = model.sample(prior, noise)
        reward = model.infer_code(x).log_prob(prior).detach()
        others = torch.stack([torch.cat((reward[:i], reward[i + 1 :])).mean() for i in range(6)])
        given = model.log_likelihood(prior, x)
        for baseline, weight in ((False, reward), (True, reward - others)):
            found = infomax(model, prior, noise, baseline)
            torch.testing.assert_close(found.surrogate, (weight * given).mean())
            torch.testing.assert_close(found.information, prior_entropy(1) + reward.mean())

    def test_one_sample_has_no_others_to_be_compared_with(self):
        model = LatentModel(Rows(draws(1, 3, 2)), random_network(4, 1, 3), Rows(draws(2, 3, 2)))
        model.prepare(torch.arange(3))
        one = draws(3, 1, 1), uniforms(4, 1)
        assert torch.equal(infomax(model, *one, True).surrogate, infomax(model, *one, False).surrogate)

    def test_the_inference_network_maximises_the_same_estimate(self):
        model = self.channel()
        prior, noise = draws(1, 50, 1), draws(2, 50, 1)
        loss = inference_loss(model, prior, noise)
        torch.testing.assert_close(loss, prior_entropy(1) - infomax(model, prior, noise).information)
        assert gradients(loss, model.infer.parameters()).abs().max() > 0
        assert gradients(loss, model.decoder.parameters()).abs().max() == 0
