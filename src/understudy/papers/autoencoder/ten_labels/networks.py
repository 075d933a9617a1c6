"""Networks of the study `ten-labels`: how they are built, and the estimators of their gradients."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from understudy._random import Stream, normal
from understudy.nets.latent.initial import initialise
from understudy.nets.latent.layers import MLP, Table
from understudy.nets.latent.model import LatentModel
from understudy.papers.autoencoder.settings import PRIOR, SCATTERED, CodeMember, Start
from understudy.papers.autoencoder.theory.reinforce import estimate_gradients, gradient_moments
from understudy.training.latent.plan import CodeNetwork

if TYPE_CHECKING:
    from understudy.papers.autoencoder.ten_labels.study import TenLabels


@dataclass(frozen=True)
class LabelNetwork(CodeNetwork):
    """A network to train, with its initial encoder.

    Args:
        start: `prior` or `scattered`.
    """

    start: Start = PRIOR


def build_network(network: CodeNetwork, labels: int, width: int) -> LatentModel:
    """Make a network with its initial weights.

    Args:
        network: Its entry in the plan.
        labels: Number of labels.
        width: Nodes of each hidden layer of the decoder.
    """
    encoder, decoder, infer = Table(labels, 2), MLP((1, width, width, labels)), Table(labels, 2)
    model = LatentModel(encoder, decoder, infer, likelihood="categorical", resamples=network.resamples)
    initialise(model, network.seed)
    if isinstance(network, LabelNetwork) and network.start == SCATTERED:
        with torch.no_grad():
            encoder.rows[:, 0] = normal(network.seed, Stream.TEACHER, 0, labels)
    return model


def compare_estimators(model: LatentModel, study: TenLabels, member: CodeMember) -> dict[str, float]:
    """Compare the estimators of the gradient of the information with the exact gradient.

    Args:
        model: A trained network.
        study: The study.
        member: The network's setting and seed.

    Returns:
        The length of the exact gradient; the variance of an estimate from a batch without and with baseline, and with
        the best constant; and, at the targets `study.ends`, how far the means of many estimates are from the exact
        gradient, in standard errors.
    """
    moments = gradient_moments(model, study.labels)
    found = {"gradient norm": moments.norm, "variance, best constant": moments.least_variance(study.samples)}
    for name, baseline in (("no baseline", False), ("baseline", True)):
        variance = moments.variance(study.samples, baseline)
        found[f"variance, {name}"] = variance
        if member.setting.strength in study.ends:
            estimates = estimate_gradients(
                model, batches=study.estimates, samples=study.samples, baseline=baseline, seed=member.seed
            )
            off = float((estimates.mean(0) - moments.gradient).norm())
            found[f"distance, {name}"] = off / math.sqrt(variance / study.estimates)
            found[f"relative distance, {name}"] = off / moments.norm
    return found
