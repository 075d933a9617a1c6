"""Models with a latent code whose information is known: Gaussian channels, and classes that thresholds decide."""

import math

import torch
from torch import nn

from understudy.nets.latent.model import LatentModel


def linear(weight, bias):
    """A linear layer with given parameters in float64."""
    layer = nn.Linear(len(weight[0]), len(weight)).double()
    with torch.no_grad():
        layer.weight.copy_(torch.as_tensor(weight, dtype=torch.float64))
        layer.bias.copy_(torch.as_tensor(bias, dtype=torch.float64))
    return layer


def gaussian_channel(gain=1.5, noise=0.8, *, coordinates=1, shift=0.0, narrow=1.0, infer=True, **options):
    """x = gain · z + noise in each coordinate; r is the posterior, and q the posterior shifted and narrowed."""
    variance = noise**2 / (gain**2 + noise**2)
    eye = torch.eye(coordinates, dtype=torch.float64)
    zero = torch.zeros_like(eye)

    def posterior(shift=0.0, narrow=1.0):
        bias = [shift] * coordinates + [math.log(variance) + 2 * math.log(narrow)] * coordinates
        return linear(torch.cat((gain * variance / noise**2 * eye, zero)), bias)

    decoder = linear(torch.cat((gain * eye, zero)), [0.0] * coordinates + [2 * math.log(noise)] * coordinates)
    return LatentModel(posterior(shift, narrow), decoder, posterior() if infer else None, **options)


def channel_information(gain=1.5, noise=0.8, coordinates=1):
    """½ log(1 + snr) in each coordinate."""
    return coordinates * math.log1p((gain / noise) ** 2) / 2


class Rows(nn.Module):
    """A row of numbers for each class, or for each number that is 0 or 1."""

    def __init__(self, rows):
        super().__init__()
        self.rows = nn.Parameter(torch.as_tensor(rows, dtype=torch.float64))

    def forward(self, x):
        return self.rows[x.long().flatten()] if x.is_floating_point() else self.rows[x]


class Bins(nn.Module):
    """Logits of equally probable intervals of the code: one is certain, up to a probability of error."""

    def __init__(self, classes, error=0.0):
        super().__init__()
        self.edges = nn.Parameter(torch.special.ndtri(torch.arange(1, classes, dtype=torch.float64) / classes))
        self.classes, self.error = classes, error

    def forward(self, z):
        right = nn.functional.one_hot(torch.searchsorted(self.edges.detach(), z[:, 0].contiguous()), self.classes)
        wrong = self.error / (self.classes - 1)
        return torch.where(right == 1, 1 - self.error, wrong).to(z.dtype).log()


def bins(classes, error=0.0, infer=False):
    """A model of classes by `Bins`, whose encoder is the prior."""
    table = Rows(torch.zeros(classes, 2))
    return LatentModel(table, Bins(classes, error), table if infer else None, likelihood="categorical")


def random_network(seed, inputs, outputs, scale=1.0, width=8):
    """A tanh network with two layers of normal weights in float64."""
    random = torch.Generator().manual_seed(seed)
    network = nn.Sequential(nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, outputs)).double()
    with torch.no_grad():
        for each in network.parameters():
            each.copy_(scale * torch.randn(each.shape, generator=random, dtype=torch.float64))
    return network
