"""Fused probe of two-layer networks on the CPU: one pass over the samples, against precomputed teacher outputs."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from understudy.nets import Population
from understudy.training import kernels
from understudy.training.objectives import Objective
from understudy.training.probes.teacher_outputs import Moments, TeacherOutputs


def supports(student: Population, objective: Objective) -> bool:
    """Whether `moments` can probe these students."""
    supported = student.device.type == "cpu" and student.dtype in (torch.float32, torch.float64)
    return supported and kernels.supports(student.shape, objective)


def moments(
    student: Population,
    x: Float[Tensor, "set sample in"],
    set_of: Int[Tensor, "net"],
    outputs: TeacherOutputs,
    teacher_of: Int[Tensor, "net"],
) -> Moments:
    """Compute the moments of every network on its inputs; the bits do not depend on the batch composition."""
    from understudy.training.kernels.cpu import PAD, PIECE, probe

    (weight, bias), (out_weight, out_bias) = student.layers
    (dim, nodes, classes), nets, teachers = student.sizes, len(student), outputs.hidden[0].shape[2]

    def allocate(*sizes: int) -> Tensor:
        return x.new_zeros(*sizes[:-1], -(-sizes[-1] // PAD) * PAD)

    w, b = allocate(nets, dim, nodes), allocate(nets, nodes)
    v, c = allocate(nets, nodes, classes), allocate(nets, classes)
    w[:, :, :nodes], v[:, :, :classes] = weight.mT, out_weight.mT
    if bias is not None and out_bias is not None:
        b[:, :nodes], c[:, :classes] = bias, out_bias
    work = [allocate(PIECE, nodes), allocate(PIECE, classes), allocate(teachers, nodes)]
    work += [allocate(nodes) for _ in range(3)] + [allocate(classes) for _ in range(2)]
    sizes = ((nets,), (nets, nodes), (nets, nodes), (nets, teachers, nodes))
    found = Moments(*(x.new_zeros(size, dtype=torch.float64) for size in sizes))
    data = (x, outputs.hidden[0], outputs.target)
    probe(
        *(tensor.numpy() for tensor in (w, b, v, c)),
        w.numpy().dtype.type(student.slope),
        *(tensor.contiguous().numpy() for tensor in data),
        set_of.numpy(),
        teacher_of.numpy(),
        tuple(tensor.numpy() for tensor in work),
        *(tensor.numpy() for tensor in found),
    )
    return found._replace(loss=found.loss / (x.shape[1] * classes))
