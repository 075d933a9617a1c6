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
    modulated_fan_out,
    recovered_share,
)
from understudy.measures.correlation import Side
from understudy.nets import Layer, Population
from understudy.training.objectives import Objective, answered_class, of_labels
from understudy.training.probes import fused_cpu as cpu_looking
from understudy.training.probes import fused_cuda as looking
from understudy.training.probes.teacher_outputs import TeacherOutputs
from understudy.training.streams import fetch_async, map_tensors


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
    accuracy: Float[Tensor, "net"] | None = None
    """Share of the samples that are answered with their label, where there are labels."""
    teacher_accuracy: Float[Tensor, "net"] | None = None

    def pick(self, which: Int[Tensor, "some"]) -> Reading:
        """The reading of some of the networks."""
        picked: Reading = map_tensors(self, lambda tensor: tensor[which.to(tensor.device)])
        return picked


_CPU_SAMPLES = 1_000
PASS = {"cpu": 1 << 24, "cuda": 1 << 30}
"""Numbers of one pass, of all layers together: of more, samples are cut."""
_MODULATED = 1_000
"""Samples over which the modulation of a node is averaged: each takes a pass back from every output."""
_PASSES_BACK, _LEAST = 320, 8
"""Of a channel, which has many positions in every sample: passes back in all, but this many samples at least."""


def cut(x: Float[Tensor, "net sample in"], *networks: Population) -> tuple[Float[Tensor, "net _ in"], ...]:
    """Samples in passes: activations stay in cache on a processor, and make large products on a card."""
    each = sum(network.shape.activations for network in networks)
    if x.device.type == "cpu":
        return x.split(max(1, min(_CPU_SAMPLES, PASS["cpu"] // each)), dim=1)
    return x.split(max(1, PASS["cuda"] // (each * len(x))), dim=1)


def loss(
    student: Population,
    x: Float[Tensor, "net sample in"],
    target: Float[Tensor, "net sample out"],
    objective: Objective,
) -> Float[Tensor, "net"]:
    """The reported loss over all samples."""
    passes = cut(x, student)
    targets = target.split([some.shape[1] for some in passes], dim=1)
    parts = [objective.reported(student(some), wanted) for some, wanted in zip(passes, targets, strict=True)]
    return torch.cat(parts, dim=1).double().mean(1)


def read(
    student: Population,
    teacher: Population,
    x: Float[Tensor, "net sample in"],
    objective: Objective,
    labels: Int[Tensor, "net sample"] | None = None,
    labelled: bool = False,
) -> Reading:
    """Losses and matching of student and teacher networks, paired one to one, of equal depth.

    The loss is that against the labels where students learn those.
    """
    depth, passes = len(student.layers) - 1, cut(x, student, teacher)
    correlations = [Correlation() for _ in range(depth)]
    losses, right = [], []
    start = 0
    for part in passes:
        ours, theirs = student.activations(part), teacher.activations(part)
        wanted = objective.target(theirs.output)
        if labels is not None:
            here = labels[:, start : start + part.shape[1]]
            right.append(torch.stack([answered_class(output) == here for output in (ours.output, theirs.output)]))
            wanted = of_labels(here, wanted.shape[-1], wanted.dtype) if labelled else wanted
        losses.append(objective.reported(ours.output, wanted))
        for correlation, t, s in zip(correlations, theirs.hidden, ours.hidden, strict=True):
            correlation.update(t, s)
        start += part.shape[1]
    fans = _fan_outs(student, x)
    layers = tuple(_layer(student, teacher, i, correlations[i].result(), fans[i]) for i in range(depth))
    accuracies = torch.cat(right, dim=2).double().mean(2) if right else (None, None)
    return Reading(torch.cat(losses, dim=1).double().mean(1), layers, *accuracies)


def _fan_outs(student: Population, x: Float[Tensor, "net sample in"]) -> tuple[Float[Tensor, "net _"], ...]:
    """√E β_kk, which is what a node's output weights are in the highest layer."""
    if student.image:
        return modulated_fan_out(student, x[:, : max(_LEAST, _PASSES_BACK // student.sizes[-1])])
    if len(student.layers) == 2:
        return (fan_out(student),)
    return modulated_fan_out(student, x[:, :_MODULATED])


class Look(NamedTuple):
    """Losses where the networks are, and the whole reading on its way to whoever wants it, perhaps another thread."""

    loss: Float[Tensor, "net"]
    reading: Callable[[], Reading]


def quick_look(
    student: Population,
    teacher: Population,
    x: Float[Tensor, "set sample in"],
    set_of: Int[Tensor, "net"],
    answers: TeacherOutputs,
    teacher_of: Int[Tensor, "net"],
) -> Look:
    """What `read` gives, of two-layer networks, in one pass, with the answers that the teachers have given before."""
    look = cpu_looking.moments if x.device.type == "cpu" else looking.moments
    found = look(student, x, set_of, answers, teacher_of)
    correlation = Correlation()
    teachers = Side(answers.mean[0][teacher_of], answers.square[0][teacher_of])
    correlation.add(x.shape[1], teachers, Side(found.mean, found.square), found.cross, student.dtype)
    return looked(Reading(found.loss, (_layer(student, teacher, 0, correlation.result(), fan_out(student, 0)),)))


def looked(reading: Reading) -> Look:
    return Look(reading.eval_loss, fetch_async(reading, reading.eval_loss.device))


def _layer(
    student: Population,
    teacher: Population,
    layer: int,
    rho: Float[Tensor, "net teacher student"],
    fans: Float[Tensor, "net student"],
) -> LayerReading:
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
    if layer == 0:
        ours, theirs = (Layer(net.layers[0].weight.flatten(2), net.layers[0].bias) for net in (nodes, partners))
        sin, gap = matched_alignment(ours, theirs, match.partner)
    else:
        # Above the first layer nodes live in different spaces, and have no angle.
        sin = gap = torch.full_like(fans, torch.nan)
    return Matched(match.partner, match.correlation, sin, gap, fans)
