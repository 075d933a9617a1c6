"""Readings: losses, and which student node has learned which teacher node."""

from __future__ import annotations

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
from understudy.training.objectives import Objective, label_targets, predict_class
from understudy.training.probes import fused_cpu, fused_cuda
from understudy.training.probes.teacher_outputs import TeacherOutputs
from understudy.training.streams import map_tensors


class Matched(NamedTuple):
    """Teacher or student nodes of a layer, each with its best partner on the other side."""

    partner: Int[Tensor, "net node"]
    correlation: Float[Tensor, "net node"]
    sin_angle: Float[Tensor, "net node"]
    bias_gap: Float[Tensor, "net node"]
    fan_out: Float[Tensor, "net node"]
    """Fan-out of the student node of the pair."""


class LayerReading(NamedTuple):
    """Correlations and matched nodes of one hidden layer."""

    rho_mean: Float[Tensor, "net"]
    recovered: Float[Tensor, "net"]
    teachers: Matched
    students: Matched
    correlation: Float[Tensor, "net teacher student"]


class Curvature(NamedTuple):
    """Norm of the gradient and largest eigenvalues of the Hessian; None if they were not requested."""

    gradient_norm: Float[Tensor, "net"] | None
    eigenvalues: Float[Tensor, "net eigenvalue"] | None


class Reading(NamedTuple):
    """Measurements of some networks."""

    eval_loss: Float[Tensor, "net"]
    layers: tuple[LayerReading, ...]
    accuracy: Float[Tensor, "net"] | None = None
    """Fraction of samples whose label is predicted, where there are labels."""
    teacher_accuracy: Float[Tensor, "net"] | None = None
    curvature: Curvature | None = None

    def pick(self, which: Int[Tensor, "some"]) -> Reading:
        """Select some of the networks."""
        picked: Reading = map_tensors(self, lambda tensor: tensor[which.to(tensor.device)])
        return picked


_CPU_SAMPLES = 1_000
"""Maximum samples in a pass on the CPU."""
PASS = {"cpu": 1 << 24, "cuda": 1 << 30}
"""Maximum activations of one pass, of all layers together; more samples are split into several passes."""
_MODULATED = 1_000
"""Samples over which the modulation of a node is averaged; each takes one backward pass per output."""
_BACKWARD_PASSES, _MIN_SAMPLES = 320, 8
"""For convolutional channels: total number of backward passes, and the minimum number of samples."""


def split_samples(x: Float[Tensor, "net sample in"], *networks: Population) -> tuple[Float[Tensor, "net _ in"], ...]:
    """Split samples into passes whose activations stay in cache on the CPU, and make large products on a GPU."""
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
    """Compute the reported loss over all samples."""
    passes = split_samples(x, student)
    targets = target.split([some.shape[1] for some in passes], dim=1)
    losses = [objective.reported_loss(student(some), wanted) for some, wanted in zip(passes, targets, strict=True)]
    return torch.cat(losses, dim=1).double().mean(1)


def probe(
    student: Population,
    teacher: Population,
    x: Float[Tensor, "net sample in"],
    objective: Objective,
    labels: Int[Tensor, "net sample"] | None = None,
    labelled: bool = False,
) -> Reading:
    """Measure losses and matched nodes of students and teachers of equal depth, paired one to one.

    With `labelled`, the loss is measured against the labels instead of the teacher's outputs.
    """
    depth, passes = len(student.layers) - 1, split_samples(x, student, teacher)
    correlations = [Correlation() for _ in range(depth)]
    losses, correct = [], []
    start = 0
    for some in passes:
        ours, theirs = student.activations(some), teacher.activations(some)
        target = objective.target(theirs.output)
        if labels is not None:
            here = labels[:, start : start + some.shape[1]]
            correct.append(torch.stack([predict_class(output) == here for output in (ours.output, theirs.output)]))
            target = label_targets(here, target.shape[-1], target.dtype) if labelled else target
        losses.append(objective.reported_loss(ours.output, target))
        for correlation, t, s in zip(correlations, theirs.hidden, ours.hidden, strict=True):
            correlation.update(t, s)
        start += some.shape[1]
    fans = _fan_outs(student, x)
    layers = tuple(_read_layer(student, teacher, i, correlations[i].result(), fans[i]) for i in range(depth))
    accuracies = torch.cat(correct, dim=2).double().mean(2) if correct else (None, None)
    return Reading(torch.cat(losses, dim=1).double().mean(1), layers, *accuracies)


def _fan_outs(student: Population, x: Float[Tensor, "net sample in"]) -> tuple[Float[Tensor, "net _"], ...]:
    """Compute √E[β_kk] of every hidden node k: in the last hidden layer, the norm of its output weights."""
    if student.image:
        return modulated_fan_out(student, x[:, : max(_MIN_SAMPLES, _BACKWARD_PASSES // student.sizes[-1])])
    if len(student.layers) == 2:
        return (fan_out(student),)
    return modulated_fan_out(student, x[:, :_MODULATED])


def probe_fused(
    student: Population,
    teacher: Population,
    x: Float[Tensor, "set sample in"],
    set_of: Int[Tensor, "net"],
    outputs: TeacherOutputs,
    teacher_of: Int[Tensor, "net"],
) -> Reading:
    """Measure what `probe` does, for two-layer networks, in one pass and with teacher outputs computed before."""
    moments = fused_cpu.moments if x.device.type == "cpu" else fused_cuda.moments
    found = moments(student, x, set_of, outputs, teacher_of)
    correlation = Correlation()
    teachers = Side(outputs.mean[0][teacher_of], outputs.square[0][teacher_of])
    correlation.add(x.shape[1], teachers, Side(found.mean, found.square), found.cross, student.dtype)
    return Reading(found.loss, (_read_layer(student, teacher, 0, correlation.result(), fan_out(student, 0)),))


def _read_layer(
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
        _match(teacher, student, layer, by_teacher, fans.gather(1, by_teacher.partner)),
        _match(student, teacher, layer, by_student, fans),
        rho,
    )


def _match(
    nodes: Population, partners: Population, layer: int, match: Match, fans: Float[Tensor, "net node"]
) -> Matched:
    if layer == 0:
        ours, theirs = (Layer(net.layers[0].weight.flatten(2), net.layers[0].bias) for net in (nodes, partners))
        sin, gap = matched_alignment(ours, theirs, match.partner)
    else:
        # Above the first layer the weights of both live in different spaces and have no angle.
        sin = gap = torch.full_like(fans, torch.nan)
    return Matched(match.partner, match.correlation, sin, gap, fans)
