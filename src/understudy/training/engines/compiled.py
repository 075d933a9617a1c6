"""Engine `compiled`: fully connected networks on the CPU, one at a time, weights in the cache for all steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from understudy.nets import Layer
from understudy.training.objectives import CrossEntropy, Objective, SquaredError
from understudy.training.optimisers import SGD, Adam, Optimiser
from understudy.training.packing import Packing, State
from understudy.training.problem import Problem


def supports(packing: Packing, objective: Objective, optimiser: Optimiser, like: Tensor) -> bool:
    """Fully connected networks without BatchNorm on the CPU, squared error or cross-entropy, SGD or Adam in batches."""
    known = optimiser.batch is not None and (optimiser.plain or type(optimiser) in (SGD, Adam))
    known = known and type(objective) in (SquaredError, CrossEntropy) and packing.shape.dense
    return known and like.device.type == "cpu" and like.dtype in (torch.float32, torch.float64)


def run(problem: Problem, state: State, first: int, count: int) -> Float[Tensor, "net step"]:
    """Run steps (see `Engine.run`) in compiled code, one network after the other."""
    from understudy.training.kernels.cpu import PAD, ROWS
    from understudy.training.kernels.steps import PLAIN, run_steps

    shape, like, nets = problem.packing.shape, problem.inputs, len(problem)
    batch, (dim, *nodes, outputs), bias = problem.optimiser.batch, shape.sizes, int(shape.bias)
    assert batch is not None

    def allocate(*sizes: int) -> Tensor:
        return like.new_zeros(*sizes[:-2], *(-(-size // PAD) * PAD for size in sizes[-2:]))

    kept = [_pack(problem.packing.layers(blocks), allocate) for blocks in (state.blocks, *state.slots)]
    copied = [pair for each in kept for pair in each.pairs]
    for inside, outside in copied:
        inside.copy_(outside)
    x, hidden = allocate(batch, dim + 1), [allocate(n + 1, batch) for n in nodes]
    # Biases are the weights of an additional input, or node, that is always 1.
    x[:batch, dim] = bias
    for h, n in zip(hidden, nodes, strict=True):
        h[n] = bias
    before, raw, gradients = ([allocate(n, batch) for n in nodes] for _ in range(3))
    turned = [h.new_zeros(h.shape[::-1]) for h in hidden[:-1]]
    layers = _table(
        [*(each.weights for each in kept), *([[]] * (3 - len(kept))), before, hidden, turned, raw, gradients]
    )
    y, o, delta = (allocate(batch, outputs) for _ in range(3))
    rows = [torch.zeros(batch, dtype=torch.int64) for _ in range(2)]
    widest = max(weights.shape[2] for weights in kept[0].weights)
    work = [x, x.new_zeros(x.shape[::-1]), y, o, delta, delta.new_zeros(delta.shape[::-1]), *rows]
    work += [like.new_zeros(8), like.new_zeros(ROWS * widest)]
    rule, given = _rule(problem.optimiser)
    scale = problem.rate * (-1.0 / batch) if rule == PLAIN else torch.full_like(problem.rate, 1.0 / batch)
    data = [like.contiguous(), problem.targets.contiguous(), problem.set_of, problem.teacher_of, problem.seeds]
    data += [problem.rate, scale.to(like.dtype)]
    losses = like.new_empty(nets, count)
    run_steps(
        losses.numpy().dtype.type(shape.slope),
        np.array(shape.sizes),
        bias,
        isinstance(problem.objective, CrossEntropy),
        rule,
        given,
        layers,
        tuple(tensor.numpy() for tensor in work),
        tuple(tensor.numpy() for tensor in data),
        first,
        losses.numpy(),
    )
    for inside, outside in copied:
        outside.copy_(inside)
    return losses


class _Packed(NamedTuple):
    """Weights and biases in one matrix per layer, padded, and pairs of the parts of it and what they are copies of."""

    weights: list[Float[Tensor, "net row column"]]
    pairs: list[tuple[Tensor, Tensor]]


def _pack(layers: tuple[Layer, ...], allocate: Callable[..., Tensor]) -> _Packed:
    packed = _Packed([], [])
    for weight, bias in layers:
        nets, out, into = weight.shape
        # The last layer is [input, output], so that the nodes, of which there may be few, are never padded.
        last = len(packed.weights) == len(layers) - 1
        matrix = allocate(nets, into + 1, out).mT if last else allocate(nets, out, into + 1)
        packed.weights.append(matrix.mT if last else matrix)
        packed.pairs.append((matrix[:, :out, :into], weight))
        if bias is not None:
            packed.pairs.append((matrix[:, :out, into], bias))
    return packed


def _table(matrices: Sequence[Sequence[Tensor]]) -> np.ndarray:
    """Address, and bytes from network to network, row to row and column to column, of every kind of matrix by layer."""
    table = np.zeros((len(matrices), max(map(len, matrices)), 4), np.int64)
    for kind, each in enumerate(matrices):
        for layer, tensor in enumerate(each):
            size = tensor.element_size()
            steps = (tensor.stride(0) * size if tensor.ndim == 3 else 0, tensor.stride(-2) * size, size)
            table[kind, layer] = (tensor.data_ptr(), *steps)
    return table


def _rule(optimiser: Optimiser) -> tuple[int, tuple[float, float, float, float]]:
    """Update rule and its constants: decay; decay, momentum, weights of gradient and buffer; or those of Adam."""
    from understudy.training.kernels.steps import ADAM, MOMENTUM, PLAIN

    if isinstance(optimiser, Adam):
        return ADAM, (optimiser.decay, *optimiser.betas, optimiser.eps)
    if isinstance(optimiser, SGD) and optimiser.momentum:
        own, past = (1.0, optimiser.momentum) if optimiser.nesterov else (0.0, 1.0)
        return MOMENTUM, (optimiser.decay, optimiser.momentum, own, past)
    return PLAIN, (optimiser.decay if isinstance(optimiser, SGD) else 0.0, 0.0, 0.0, 0.0)
