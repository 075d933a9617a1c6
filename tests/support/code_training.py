"""Small models with latent codes that train in milliseconds a step, and a plain loop that trains one.

Called as a script with a folder and `step N` or `rename N`, it trains `PLAN` in that folder and kills itself (SIGKILL)
at the probe after step N, or just before its N-th rename of a file.
"""

import math
import os
import signal
import sys
from pathlib import Path

import torch
from torch import nn

from understudy._random import Stream, normal, uniform
from understudy.nets.latent.codes import prior_entropy, prior_log_prob
from understudy.nets.latent.model import LatentModel
from understudy.training.latent.objective import CodeObjective
from understudy.training.latent.plan import CodeNetwork, CodePlan
from understudy.training.latent.population import TrainedCodes, train_codes

CLASSES = 5


def mlp(inputs: int, outputs: int, width: int = 12) -> nn.Sequential:
    """A network with one hidden layer."""
    return nn.Sequential(nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, outputs))


class Table(nn.Module):
    """Means and log variances of a code for each class."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Parameter(0.1 * torch.randn(CLASSES, 2))

    def forward(self, x):
        return self.rows[x]


def continuous(network: CodeNetwork) -> LatentModel:
    """A model of one real number."""
    torch.manual_seed(network.seed)
    return LatentModel(mlp(1, 2), mlp(1, 2), mlp(1, 2), resamples=network.resamples)


def discrete(network: CodeNetwork) -> LatentModel:
    """A model of classes."""
    torch.manual_seed(network.seed)
    return LatentModel(Table(), mlp(1, CLASSES), Table(), resamples=network.resamples)


def numbers(seed, step, count):
    """Standard normal data."""
    return normal(seed, Stream.TRAIN, step, count).float()[:, None]


def classes(seed, step, count):
    """Classes in turn."""
    return torch.arange(count) % CLASSES


NETWORKS = (
    CodeNetwork(1, CodeObjective(target=0.6)),
    CodeNetwork(2, CodeObjective(target=1.0, penalty=0.5, penalty_from=7)),
    CodeNetwork(1, CodeObjective(beta=0.5, warm_up=5)),
    CodeNetwork(3, CodeObjective(free_bits=0.2)),
    CodeNetwork(2, CodeObjective(target=0.4, clip=0.5, clip_information=0.1)),
    CodeNetwork(1, CodeObjective(target=0.8), resamples=3),
    CodeNetwork(1, CodeObjective(target=0.8, baseline=False)),
)
PLAN = CodePlan(NETWORKS, 24, batch=32, samples=48, rates={"encoder": 0.01}, decayed=0.4, probes=(0, 5, 10, 15, 20))


def train(plan: CodePlan = PLAN, build=discrete, draw=classes, **options) -> TrainedCodes:
    """Train on the CPU."""
    return train_codes(plan, build, draw, device="cpu", **options)


def features(step, models):
    """A further measure at probes: the sum of all parameters of each network."""
    return {"sums": torch.tensor([sum(p.double().sum().item() for p in model.parameters()) for model in models])}


def reference(network: CodeNetwork, plan: CodePlan, build=discrete, draw=classes):
    """Train one network by a plain loop with torch.optim.Adam, and yield [elbo, information] of every step."""
    model, objective = build(network), network.objective
    model.prepare(draw(network.seed, 0, plan.batch))
    parts = {"encoder": model.encoder, "decoder": model.decoder}
    rates = {name: plan.rates.get(name, 1e-3) for name in ("encoder", "decoder", "infer")}
    adam = torch.optim.Adam([{"params": [*part.parameters()], "lr": rates[name]} for name, part in parts.items()])
    inferring = torch.optim.Adam(model.infer.parameters(), lr=rates["infer"])
    trained = [p for part in parts.values() for p in part.parameters()]
    rows = []

    def noise(kind, step, purpose, *shape):
        make = normal if kind == "normal" else uniform
        return make(network.seed, Stream.CODE, 5 * step + purpose, math.prod(shape)).float().view(shape)

    kind = model.likelihood.noise
    for step in range(plan.steps):
        x = draw(network.seed, step, plan.batch)
        of_data = (plan.samples, *x.shape[1:])
        factor = min(1.0, (plan.steps - step) / (plan.decayed * plan.steps)) if plan.decayed else 1.0
        for group, name in zip(adam.param_groups, parts, strict=True):
            group["lr"] = rates[name] * factor
        inferring.param_groups[0]["lr"] = rates["infer"] * factor
        beta = objective.beta * (min(1.0, step / objective.warm_up) if objective.warm_up else 1.0)

        code = model.encode(x)
        z = code.sample(noise("normal", step, 0, network.resamples, plan.batch, 1))
        joint = model.log_likelihood(z, x)
        if network.resamples == 1:
            divergence = code.divergence().mean(0)
            elbo = joint.mean() - divergence.sum()
            bound = joint.mean() - beta * divergence.clamp(min=objective.free_bits).sum()
        else:
            ratio = prior_log_prob(z) - code.log_prob(z)
            elbo, bound = (((joint + weight * ratio).exp().mean(0).log()).mean() for weight in (1.0, beta))
        prior = noise("normal", step, 1, plan.samples, 1)
        x_model = model.sample(prior, noise(kind, step, 2, *of_data))
        log_r = model.infer_code(x_model).log_prob(prior)
        information = prior_entropy(1) + log_r.mean()
        if model.likelihood.reparametrised:
            surrogate = information
        else:
            reward = log_r.detach()
            if objective.baseline:
                reward = reward - torch.stack(
                    [torch.cat((reward[:i], reward[i + 1 :])).mean() for i in range(len(reward))]
                )
            surrogate = (reward * model.log_likelihood(prior, x_model.detach())).mean()
        up = torch.autograd.grad(bound, trained, retain_graph=True, allow_unused=True)
        information_up = torch.autograd.grad(surrogate, trained, allow_unused=True)
        up, information_up = (
            [torch.zeros_like(p) if g is None else g for p, g in zip(trained, gradients, strict=True)]
            for gradients in (up, information_up)
        )
        penalised = objective.target is not None and step >= objective.penalty_from
        away = objective.penalty * math.copysign(1, information.item() - objective.target) if penalised else 0.0
        for gradients, limit in ((up, objective.clip), (information_up, objective.clip_information)):
            norm = math.sqrt(sum(g.square().sum().item() for g in gradients))
            for g in gradients:
                g.mul_(min(1.0, limit / norm) if norm else 1.0)
        for p, g, h in zip(trained, up, information_up, strict=True):
            p.grad = away * h - g
        adam.step()

        again = noise("normal", step, 3, plan.samples, 1)
        with torch.no_grad():
            x_model = model.sample(again, noise(kind, step, 4, *of_data))
        inferring.zero_grad()
        (-model.infer_code(x_model).log_prob(again).mean()).backward()
        inferring.step()
        rows.append([elbo.item(), information.item()])
    return model, torch.tensor(rows, dtype=torch.float64)


def main() -> None:
    folder, when, count = sys.argv[1:]
    left = int(count)

    def hook(event, _):
        nonlocal left
        if event == "os.rename" and when == "rename":
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

    def say(step, _):
        if when == "step" and step >= int(count):
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    train(folder=Path(folder), save_every=5, say=say, on_probe=features)


if __name__ == "__main__":
    main()
