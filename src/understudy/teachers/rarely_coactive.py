"""Teachers whose hidden nodes are rarely active together (Tian et al. 2019, assumption 3)."""

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from understudy._errors import UserError
from understudy._random import Stream, normal
from understudy.nets import Layer, Population


def rarely_coactive(
    nodes: int, dim: int, outputs: int, *, threshold: float, cosine: float, seeds: Iterable[int]
) -> Population:
    """Draw two-layer teachers whose nodes are rarely active together on N(0, I) inputs.

    Every node has extended weights [w, b] of length 1 with b = −threshold·‖w‖, any two weight vectors have the same
    cosine, and the fan-outs are orthonormal. The directions are a random rotation of this arrangement.

    Args:
        nodes: Number of hidden nodes, at most `dim` and `outputs`.
        dim: Number of inputs.
        outputs: Number of outputs.
        threshold: −b / ‖w‖ of every node, which is then active on the share Φ(−threshold) of the inputs.
        cosine: Cosine between two weight vectors, above −1/(nodes − 1) and below 1.
        seeds: One teacher per seed.

    Returns:
        Teachers with hidden biases and no output bias, in float64.

    Raises:
        UserError: There are no such vectors.
    """
    if not (cosine * (nodes - 1) > -1 and cosine < 1):
        raise UserError(f"cosine must be above −1/(nodes − 1) and below 1 for {nodes} nodes, got {cosine:g}")
    if nodes > min(dim, outputs):
        raise UserError(f"nodes must be at most the inputs ({dim}) and the outputs ({outputs}), got {nodes}")
    names = [int(seed) for seed in seeds]
    gram = (1 - cosine) * torch.eye(nodes, dtype=torch.float64) + cosine
    values, vectors = torch.linalg.eigh(gram)
    root = vectors * values.sqrt() @ vectors.T

    def frame(stream: Stream, seed: int, size: int) -> Tensor:
        return torch.linalg.qr(normal(seed, stream, 0, size * nodes).view(size, nodes)).Q

    length = math.sqrt(1 + threshold**2)
    weight = torch.stack([root @ frame(Stream.TEACHER, seed, dim).T for seed in names]) / length
    top = torch.stack([frame(Stream.TEACHER_OUTPUT, seed, outputs) for seed in names])
    bias = torch.full(weight.shape[:2], -threshold / length, dtype=torch.float64)
    return Population((Layer(weight, bias), Layer(top, None)), torch.tensor(names))
