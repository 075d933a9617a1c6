"""A look at two-layer networks on a processor, in one pass over the samples, with what their teachers answered."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from understudy.nets import Population
from understudy.training.objectives import Objective, SquaredError
from understudy.training.probes.teacher_outputs import Moments, TeacherOutputs


def supports(student: Population, objective: Objective) -> bool:
    """Whether `moments` can look at these students."""
    known = student.device.type == "cpu" and student.dtype in (torch.float32, torch.float64)
    return known and student.shape.dense and len(student.sizes) == 3 and isinstance(objective, SquaredError)


def moments(
    student: Population,
    x: Float[Tensor, "set sample in"],
    set_of: Int[Tensor, "net"],
    answers: TeacherOutputs,
    teacher_of: Int[Tensor, "net"],
) -> Moments:
    """Of every network on its set of inputs, against its teacher's answers; the same bits in any company."""
    from understudy.training.kernels.cpu import PAD, PIECE, look

    (weight, bias), (out_weight, out_bias) = student.layers
    (dim, nodes, outputs), nets, teachers = student.sizes, len(student), answers.hidden[0].shape[2]

    def room(*sizes: int) -> Tensor:
        return x.new_zeros(*sizes[:-1], -(-sizes[-1] // PAD) * PAD)

    w, b, v, c = room(nets, dim, nodes), room(nets, nodes), room(nets, nodes, outputs), room(nets, outputs)
    w[:, :, :nodes], v[:, :, :outputs] = weight.mT, out_weight.mT
    if bias is not None and out_bias is not None:
        b[:, :nodes], c[:, :outputs] = bias, out_bias
    work = [room(PIECE, nodes), room(PIECE, outputs), room(teachers, nodes)]
    work += [room(nodes) for _ in range(3)] + [room(outputs) for _ in range(2)]
    found = Moments(
        *(
            x.new_zeros(size, dtype=torch.float64)
            for size in ((nets,), (nets, nodes), (nets, nodes), (nets, teachers, nodes))
        )
    )
    given = (x, answers.hidden[0], answers.target)
    look(
        *(tensor.numpy() for tensor in (w, b, v, c)),
        w.numpy().dtype.type(student.slope),
        *(tensor.contiguous().numpy() for tensor in given),
        set_of.numpy(),
        teacher_of.numpy(),
        tuple(tensor.numpy() for tensor in work),
        *(tensor.numpy() for tensor in found),
    )
    return found._replace(loss=found.loss / (x.shape[1] * outputs))
