"""Engine `compiled`: two-layer networks by plain SGD on the CPU, one at a time, weights in cache for all steps."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from understudy.training import kernels
from understudy.training.objectives import Objective
from understudy.training.optimisers import Optimiser
from understudy.training.packing import Packing, State
from understudy.training.problem import Problem


def supports(packing: Packing, objective: Objective, optimiser: Optimiser, like: Tensor) -> bool:
    """Two-layer networks on the CPU, squared error, plain SGD in batches."""
    supported = like.device.type == "cpu" and like.dtype in (torch.float32, torch.float64) and optimiser.plain
    return supported and optimiser.batch is not None and kernels.supports(packing.shape, objective)


def run(problem: Problem, state: State, first: int, count: int) -> Float[Tensor, "net step"]:
    """Run steps (see `Engine.run`) in compiled code, one network after the other."""
    from understudy.training.kernels.cpu import PAD, run_steps

    shape, batch, like = problem.packing.shape, problem.optimiser.batch, problem.inputs
    assert batch is not None
    (dim, nodes, outputs), nets = shape.sizes, len(problem)

    def allocate(*sizes: int) -> Tensor:
        return like.new_zeros(*sizes[:-1], -(-sizes[-1] // PAD) * PAD)

    (weight, bias), (out_weight, out_bias) = problem.packing.layers(state.blocks)
    w, v = allocate(nets, nodes, dim + 1), allocate(nets, nodes + 1, outputs)
    packed = [(w[:, :, :dim], weight), (v[:, :nodes, :outputs], out_weight.mT)]
    if bias is not None and out_bias is not None:
        packed += [(w[:, :, dim], bias), (v[:, nodes, :outputs], out_bias)]
    for inside, outside in packed:
        inside.copy_(outside)
    high, broad = len(allocate(batch)), len(allocate(outputs))
    x, h = allocate(high, dim + 1), allocate(nodes + 1, batch)
    # Biases are the weights of an additional input and hidden node that are always 1.
    x[:batch, dim], h[nodes] = 1.0, 1.0
    z, dh, dz = (allocate(nodes, batch) for _ in range(3))
    y, o, delta = (allocate(high, outputs) for _ in range(3))
    work = [x, allocate(x.shape[1], batch), z, h, dh, dz, y, o, delta, allocate(broad, batch)]
    work += [torch.zeros(batch, dtype=torch.int64) for _ in range(2)]
    scale, losses = (problem.rate * (-1.0 / batch)).to(like.dtype), like.new_empty(nets, count)
    run_steps(
        w.numpy(),
        v.numpy(),
        tuple(tensor.numpy() for tensor in work),
        int(shape.bias),
        scale.numpy().dtype.type(shape.slope),
        scale.numpy(),
        problem.seeds.numpy(),
        like.contiguous().numpy(),
        problem.targets.contiguous().numpy(),
        problem.set_of.numpy(),
        problem.teacher_of.numpy(),
        first,
        losses.numpy(),
    )
    for inside, outside in packed:
        outside.copy_(inside)
    return losses
