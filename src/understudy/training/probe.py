"""What is measured of students while they train: losses, and who has learned whom."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from understudy.measures import (
    Correlation,
    Match,
    best_students,
    best_teachers,
    fan_out,
    matched_alignment,
    mean_best_correlation,
    recovered_share,
)
from understudy.measures.correlation import Side
from understudy.nets import Population
from understudy.training.answers import Answers
from understudy.training.engines import cpu_looking, looking
from understudy.training.objectives import Objective
from understudy.training.workers import brought, each


class Matched(NamedTuple):
    """Nodes of one side of a layer, each with its best partner on the other."""

    partner: Int[Tensor, "net node"]
    correlation: Float[Tensor, "net node"]
    sin_angle: Float[Tensor, "net node"]
    bias_gap: Float[Tensor, "net node"]
    fan_out: Float[Tensor, "net node"]
    """Of the student of the pair."""


class LayerReading(NamedTuple):
    rho_mean: Float[Tensor, "net"]
    recovered: Float[Tensor, "net"]
    teachers: Matched
    students: Matched
    correlation: Float[Tensor, "net teacher student"]


class Reading(NamedTuple):
    """One look at some networks."""

    eval_loss: Float[Tensor, "net"]
    layers: tuple[LayerReading, ...]

    def pick(self, which: Int[Tensor, "some"]) -> Reading:
        """The reading of some of the networks."""
        picked: Reading = each(self, lambda tensor: tensor[which.to(tensor.device)])
        return picked


def cut(x: Float[Tensor, "net sample in"]) -> tuple[Float[Tensor, "net some in"], ...]:
    """Samples in passes: activations stay in cache on a processor, and make large products on a card."""
    return x.split(1_000 if x.device.type == "cpu" else 1_000_000, dim=1)


def loss(
    student: Population, teacher: Population, x: Float[Tensor, "net sample in"], objective: Objective
) -> Float[Tensor, "net"]:
    """The reported loss over all samples."""
    parts = [objective.reported(student(part), objective.target(teacher(part))) for part in cut(x)]
    return torch.cat(parts, dim=1).double().mean(1)


def read(student: Population, teacher: Population, x: Float[Tensor, "net sample in"], objective: Objective) -> Reading:
    """Losses and matching of student and teacher networks, paired one to one, of equal depth."""
    depth = len(student.layers) - 1
    correlations = [Correlation() for _ in range(depth)]
    losses = []
    for part in cut(x):
        ours, theirs = student.activations(part), teacher.activations(part)
        losses.append(objective.reported(ours.output, objective.target(theirs.output)))
        for correlation, t, s in zip(correlations, theirs.hidden, ours.hidden, strict=True):
            correlation.update(t, s)
    layers = tuple(_layer(student, teacher, i, correlations[i].result()) for i in range(depth))
    return Reading(torch.cat(losses, dim=1).double().mean(1), layers)


class Look(NamedTuple):
    """Losses where the networks are, and the whole reading on its way to whoever wants it, perhaps another thread."""

    loss: Float[Tensor, "net"]
    reading: Callable[[], Reading]


def quick_look(
    student: Population,
    teacher: Population,
    x: Float[Tensor, "set sample in"],
    set_of: Int[Tensor, "net"],
    answers: Answers,
    teacher_of: Int[Tensor, "net"],
) -> Look:
    """What `read` gives, of two-layer networks, in one pass, with the answers that the teachers have given before."""
    look = cpu_looking.moments if x.device.type == "cpu" else looking.moments
    found = look(student, x, set_of, answers, teacher_of)
    correlation = Correlation()
    teachers = Side(answers.mean[0][teacher_of], answers.square[0][teacher_of])
    correlation.add(x.shape[1], teachers, Side(found.mean, found.square), found.cross, student.dtype)
    return looked(Reading(found.loss, (_layer(student, teacher, 0, correlation.result()),)))


def looked(reading: Reading) -> Look:
    return Look(reading.eval_loss, brought(reading, reading.eval_loss.device))


def _layer(
    student: Population, teacher: Population, layer: int, rho: Float[Tensor, "net teacher student"]
) -> LayerReading:
    fans = fan_out(student, layer)
    by_teacher, by_student = best_students(rho), best_teachers(rho)
    return LayerReading(
        mean_best_correlation(rho).double(),
        recovered_share(rho).double(),
        _matched(teacher, student, layer, by_teacher, fans.gather(1, by_teacher.partner)),
        _matched(student, teacher, layer, by_student, fans),
        rho,
    )


def _matched(
    nodes: Population, partners: Population, layer: int, match: Match, fans: Float[Tensor, "net node"]
) -> Matched:
    ours, theirs = nodes.layers[layer], partners.layers[layer]
    if layer == 0:
        sin, gap = matched_alignment(ours, theirs, match.partner)
    else:
        # Above the first layer nodes live in different spaces, and have no angle.
        sin = gap = torch.full_like(fans, torch.nan)
    return Matched(match.partner, match.correlation, sin, gap, fans)
