"""Models of labels with a code of one coordinate, whose encoders are given and whose decoders may be optimal."""

import torch
from torch import nn

from understudy.nets.latent.layers import MLP, Table
from understudy.nets.latent.model import LatentModel


class BestDecoder(nn.Module):
    """The decoder p(x|z) = q(x|z) of equally likely labels, from the encoder's table."""

    def __init__(self, table: Table) -> None:
        super().__init__()
        self.rows = table.rows

    def forward(self, z):
        mean, log_variance = self.rows.T
        return -((z - mean) ** 2 * (-log_variance).exp() + log_variance) / 2


def table(means, log_variances) -> Table:
    """A table with these rows."""
    found = Table(len(means), 2).double()
    with torch.no_grad():
        found.rows.copy_(torch.tensor([means, log_variances], dtype=torch.float64).T)
    return found


def random_model(labels: int, seed: int, *, best: bool = False, resamples: int = 1, spread: float = 1.0) -> LatentModel:
    """A model with a scattered encoder, and a decoder that is random or the best for it."""
    draw = torch.Generator().manual_seed(seed)
    numbers = torch.randn(4, labels, dtype=torch.float64, generator=draw)
    encoder = table((spread * numbers[0]).tolist(), (-0.5 + 0.5 * numbers[1]).tolist())
    infer = table((spread * numbers[2]).tolist(), (0.3 * numbers[3]).tolist())
    decoder = BestDecoder(encoder)
    if not best:
        decoder = MLP((1, 6, labels)).double()
        with torch.no_grad():
            for each in decoder.parameters():
                each.copy_(torch.randn(each.shape, dtype=torch.float64, generator=draw))
    model = LatentModel(encoder, decoder, infer, likelihood="categorical", latent=1, resamples=resamples)
    return model.requires_grad_(True)
