"""Fused probe of two-layer networks on a GPU: one pass over the samples (probe.cu)."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from understudy.nets import Population
from understudy.training import kernels
from understudy.training.kernels import cuda as cuda_kernels
from understudy.training.kernels.cuda import round_up
from understudy.training.objectives import Objective
from understudy.training.probes.teacher_outputs import Moments, TeacherOutputs

_BLOCKS = 2_000
"""Target number of thread blocks: several per multiprocessor."""


def supports(student: Population, nodes: int, objective: Objective) -> bool:
    """Whether the kernel can probe these students of teachers with `nodes` hidden nodes."""
    room = cuda_kernels.shared_memory(student.layers[0].weight)
    return kernels.supports(student.shape, objective) and _bytes(student, nodes, 2) <= room


def moments(
    student: Population,
    x: Float[Tensor, "set sample in"],
    set_of: Int[Tensor, "net"],
    outputs: TeacherOutputs,
    teacher_of: Int[Tensor, "net"],
) -> Moments:
    """Compute the moments of every network on its inputs."""
    (w, b), (v, b2) = student.layers
    (_, nodes, classes), samples, teacher = student.sizes, x.shape[1], outputs.hidden[0]
    m, nets, like = teacher.shape[2], len(student), w
    slab = round_up(-(-samples * nets // _BLOCKS), 16 * _down(student, m))
    slabs = -(-samples // slab)
    sums, pivots = like.new_empty(nets, slabs, m + 2, nodes), like.new_empty(nets, nodes)
    errors = like.new_empty(nets, slabs, dtype=torch.float64)
    none = like.new_empty(0)
    cuda_kernels.launch(
        "probe",
        like,
        _constants(student, m),
        grid=(slabs, nets),
        threads=_threads(nodes),
        shared=_bytes(student, m, _down(student, m)),
        arguments=[
            *(x, outputs.target, teacher, set_of, teacher_of),
            *(t.contiguous() for t in (w, none if b is None else b, v, none if b2 is None else b2)),
            *(sums, pivots, errors, samples, slab, float(student.slope)),
        ],
    )
    whole = sums.double().sum(1)
    cross, moved, squares = whole[:, :m], whole[:, m], whole[:, m + 1]
    means, squares = pivots.double() + moved / samples, squares - moved.square() / samples
    return Moments(errors.sum(1) / (samples * classes), means, squares, cross)


def prepare(student: Population, nodes: int) -> None:
    """Start to compile the kernel for these students of teachers with `nodes` hidden nodes."""
    cuda_kernels.prepare("probe", student.layers[0].weight, _constants(student, nodes))


def _constants(student: Population, m: int) -> dict[str, int]:
    (inputs, nodes, outputs), bias = student.sizes, int(student.layers[0].bias is not None)
    # Columns of tiles per warp: as many as leave no warp idle.
    across = -(-nodes // (_threads(nodes) // 4))
    sizes = {"D": inputs, "N": nodes, "C": outputs, "M": m, "BIAS": bias}
    return sizes | {"DOWN": _down(student, m), "ACROSS": across, "THREADS": _threads(nodes)}


def _threads(nodes: int) -> int:
    return 128 if nodes <= 32 else 256 if nodes <= 128 else 512


def _down(student: Population, m: int) -> int:
    """Rows of tiles of 16 samples per warp: two, or one where two blocks then fit a multiprocessor's shared memory."""
    limit = cuda_kernels.shared_memory(student.layers[0].weight) // 2 - 1024
    return 1 if _bytes(student, m, 1) <= limit < _bytes(student, m, 2) else 2


def _bytes(student: Population, m: int, down: int) -> int:
    """Bytes of shared memory that a block needs, laid out as in the kernel."""
    (inputs, nodes, outputs), bias = student.sizes, int(student.layers[0].bias is not None)
    sx, sh, samples = round_up(inputs + bias, 8) + 4, round_up(nodes, 8) + 12, 16 * down
    numbers = round_up(nodes, 8) * sx + (round_up(outputs, 8) + samples + m + 3) * sh
    numbers += samples * (sx + round_up(m + 1, 8) + 4) + round_up(samples * outputs, 4)
    return numbers * student.layers[0].weight.element_size() + 32 * 8
