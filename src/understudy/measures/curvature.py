"""Gradient and Hessian of the loss of every network, in all its parameters.

The loss is by default that of Tian 2020, eq. 2: ½‖f* − f‖², averaged over samples. Flat minima are those whose Hessian
has many eigenvalues near zero (Tian et al. 2019, sec. 1 and 3.3): students without fan-out can move freely.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from understudy._errors import UserError
from understudy._random import Stream, normal
from understudy.data.source import Inputs
from understudy.nets import Layer, Population

Losses = Callable[[Float[Tensor, "net sample out"], Float[Tensor, "net sample out"]], Float[Tensor, "net sample"]]
"""Loss of each sample from outputs and targets."""

Targets = Float[Tensor, "sample out"] | Float[Tensor, "teacher sample out"]
"""Targets, usually outputs of teachers: shared by all networks, or one set per network."""

PIECE = 1 << 24
"""Activations per piece of work."""


def squared_error(output: Float[Tensor, "*batch out"], target: Float[Tensor, "*batch out"]) -> Float[Tensor, "*batch"]:
    """Squared error ½‖f* − f‖² of each sample (Tian 2020, eq. 2).

    Args:
        output: Outputs f of the students.
        target: Outputs f* of the teachers.
    """
    return (output - target).square().sum(-1) / 2


def loss_gradient(
    student: Population, x: Inputs, target: Targets, loss: Losses = squared_error
) -> Float[Tensor, "net parameter"]:
    """Gradient of the mean loss in all parameters of each network (Tian 2020, eq. 2).

    BatchNorm is in evaluation mode, and its running statistics are no parameters.

    Args:
        student: The networks.
        x: Inputs shared by all networks, or one set per network.
        target: Targets, usually the outputs of the teachers; shared, or one set per network.
        loss: Loss of each sample.

    Returns:
        One row per network: layer by layer weights and bias, then scale and shift of each BatchNorm.

    Raises:
        UserError: Inputs that do not fit.
    """
    return torch.cat([one.gradient() for one in _each(student, x, target, loss)])


def gradient_norm(
    student: Population, x: Inputs, target: Targets, loss: Losses = squared_error
) -> Float[Tensor, "net"]:
    """Norm of the gradient of the mean loss in all parameters (Tian 2020, sec. 6: strong teacher nodes need less).

    Args:
        student: The networks.
        x: Inputs shared by all networks, or one set per network.
        target: Targets, usually the outputs of the teachers; shared, or one set per network.
        loss: Loss of each sample.

    Returns:
        One norm per network.

    Raises:
        UserError: Inputs that do not fit.
    """
    norm: Tensor = torch.linalg.vector_norm(loss_gradient(student, x, target, loss), dim=1)
    return norm


def hessian(
    student: Population, x: Inputs, target: Targets, loss: Losses = squared_error
) -> Float[Tensor, "net parameter parameter"]:
    """Hessian of the mean loss in all parameters of each network, for networks of few parameters.

    Its eigenvalues near zero are flat directions (Tian et al. 2019, sec. 3.3). Kinks of the activation do not
    contribute.

    Args:
        student: The networks.
        x: Inputs shared by all networks, or one set per network.
        target: Targets, usually the outputs of the teachers; shared, or one set per network.
        loss: Loss of each sample.

    Returns:
        Symmetric matrices; parameters in the order of `loss_gradient`.

    Raises:
        UserError: Inputs that do not fit.
    """
    found = []
    for one in _each(student, x, target, loss):
        rows = torch.stack([one.times(unit) for unit in torch.eye(one.count, dtype=x.dtype, device=x.device)])
        found.append((rows + rows.T) / 2)
    return torch.stack(found)


def hessian_eigenvalues(
    student: Population,
    x: Inputs,
    target: Targets,
    count: int = 1,
    loss: Losses = squared_error,
    *,
    steps: int | None = None,
) -> Float[Tensor, "net eigenvalue"]:
    """Largest eigenvalues of the Hessian of the mean loss, by Lanczos iteration (Tian et al. 2019, sec. 1 and 3.3).

    Each step is one product of the Hessian with a vector; vectors are made orthogonal to all earlier ones. The first
    vector is a function of the network's seed. Every value is at most the eigenvalue of its rank, and with as many
    steps as parameters equal to it up to rounding; an eigenvalue that occurs several times is found once.

    Args:
        student: The networks.
        x: Inputs shared by all networks, or one set per network.
        target: Targets, usually the outputs of the teachers; shared, or one set per network.
        count: Number of eigenvalues.
        loss: Loss of each sample.
        steps: Number of Lanczos steps. Default: 20 more than three times `count`.

    Returns:
        Eigenvalues in descending order; NaN where a network has fewer distinct ones.

    Raises:
        UserError: A count below 1 or fewer steps than that, or inputs that do not fit.
    """
    steps = 3 * count + 20 if steps is None else steps
    if count < 1:
        raise UserError(f"must be at least 1, got {count}", "count")
    if steps < count:
        raise UserError(f"must be at least the number of eigenvalues ({count}), got {steps}", "steps")
    values = student.layers[0].weight.new_full((len(student), count), torch.nan)
    for row, seed, one in zip(values, student.seeds.tolist(), _each(student, x, target, loss), strict=True):
        start = normal(seed, Stream.LANCZOS, 0, one.count).to(row)
        found = _lanczos(one.times, start, min(steps, one.count))[:count]
        row[: len(found)] = found
    return values


def _each(student: Population, x: Tensor, target: Tensor, loss: Losses) -> Iterator["_Differentiable"]:
    """Each network with its inputs and targets: by itself, so that the bits do not depend on the others."""
    for e in range(len(student)):
        own = target[e if len(target) > 1 else 0] if target.ndim == 3 else target
        yield _Differentiable(student[e], x[e] if x.ndim == 3 else x, own, loss)


class _Differentiable:
    """The mean loss of one network as a function of its parameters."""

    def __init__(self, network: Population, x: Tensor, target: Tensor, loss: Losses) -> None:
        self._loss = loss
        self._parameters: list[Tensor] = []
        layers = [Layer(self._leaf(weight), self._optional(bias)) for weight, bias in network.layers]
        norms = [
            norm._replace(scale=self._optional(norm.scale), shift=self._optional(norm.shift)) for norm in network.norms
        ]
        self._network = replace(network, layers=tuple(layers), norms=tuple(norms))
        rows = max(1, PIECE // network.shape.activations)
        self._pieces = list(zip(x.split(rows), target.split(rows), strict=True))
        self._samples = len(x)

    def _leaf(self, value: Tensor) -> Tensor:
        self._parameters.append(value.detach().clone().requires_grad_())
        return self._parameters[-1]

    def _optional(self, value: Tensor | None) -> Tensor | None:
        return None if value is None else self._leaf(value)

    @property
    def count(self) -> int:
        """Number of parameters."""
        return sum(each.numel() for each in self._parameters)

    def gradient(self) -> Float[Tensor, "1 parameter"]:
        return (torch.stack([each.detach() for each in self._gradients()]).sum(0) / self._samples).unsqueeze(0)

    def times(self, vector: Float[Tensor, "parameter"]) -> Float[Tensor, "parameter"]:
        """The Hessian times a vector, by differentiating the gradient along it."""
        along = [self._differentiate(gradient, vector) for gradient in self._gradients(again=True)]
        return torch.stack(along).sum(0) / self._samples

    @torch.enable_grad()
    def _gradients(self, again: bool = False) -> Iterator[Float[Tensor, "parameter"]]:
        """Gradient of the loss summed over each piece of samples; with `again` it can be differentiated once more."""
        for x, target in self._pieces:
            yield self._differentiate(self._loss(self._network(x), target.unsqueeze(0)).sum(), again=again)

    def _differentiate(self, value: Tensor, along: Tensor | None = None, *, again: bool = False) -> Tensor:
        found = torch.autograd.grad(value, self._parameters, along, create_graph=again, materialize_grads=True)
        return torch.cat([each.flatten() for each in found])


def _lanczos(times: Callable[[Tensor], Tensor], start: Float[Tensor, "n"], steps: int) -> Float[Tensor, "step"]:
    """Eigenvalues of a symmetric matrix on the space of start, A start, A² start, …, in descending order."""
    basis: list[Tensor] = []
    diagonal: list[Tensor] = []
    beside: list[Tensor] = []
    vector = start.double() / start.double().norm()
    for _ in range(steps):
        basis.append(vector)
        image = times(vector.to(start)).double()
        diagonal.append(vector @ image)
        known = torch.stack(basis)
        size = image.norm()
        for _ in range(2):  # once leaves components of the order of a rounding times the condition number
            image = image - known.T @ (known @ image)
        beside.append(image.norm())
        # What is left of a space that the matrix maps into itself is rounding.
        if not beside[-1] > 1e3 * torch.finfo(start.dtype).eps * size:
            break
        vector = image / beside[-1]
    matrix = torch.diag(torch.stack(diagonal))
    off = torch.stack(beside[: len(diagonal) - 1]) if len(diagonal) > 1 else matrix.new_zeros(0)
    matrix = matrix + torch.diag(off, 1) + torch.diag(off, -1)
    return torch.linalg.eigvalsh(matrix).flip(0)
