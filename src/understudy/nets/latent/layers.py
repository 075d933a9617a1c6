"""Small modules for models with a latent code: fully connected networks, and tables with a row for each class."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from understudy._errors import UserError

_ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU, "softplus": nn.Softplus}


class MLP(nn.Sequential):
    """Fully connected network with one activation between its layers.

    Args:
        sizes: Numbers of inputs, of nodes in each hidden layer, and of outputs.
        activation: tanh, relu or softplus.

    Raises:
        UserError: Fewer than two sizes, one below 1, or an unknown activation.
    """

    def __init__(self, sizes: Sequence[int], activation: str = "tanh") -> None:
        if len(sizes) < 2:
            raise UserError(f"must be at least the numbers of inputs and outputs, got {list(sizes)}", "sizes")
        require_sizes(**{f"sizes[{i}]": size for i, size in enumerate(sizes)})
        if activation not in _ACTIVATIONS:
            raise UserError(f"must be one of {', '.join(_ACTIVATIONS)}, got {activation!r}", "activation")
        parts: list[nn.Module] = []
        for inputs, outputs in itertools.pairwise(sizes):
            parts += [nn.Linear(inputs, outputs), _ACTIVATIONS[activation]()]
        super().__init__(*parts[:-1])
        self.sizes, self.activation = tuple(sizes), activation

    @property
    def settings(self) -> dict[str, Any]:
        """Arguments that make a module of this architecture."""
        return {"sizes": list(self.sizes), "activation": self.activation}

    def example(self) -> Tensor:
        """Two inputs of zeros."""
        return next(self.parameters()).new_zeros(2, self.sizes[0])


def mlp(inputs: int, outputs: int, width: int = 64, layers: int = 3, activation: str = "tanh") -> MLP:
    """Build a fully connected network whose hidden layers have equal width.

    Args:
        inputs: Number of inputs.
        outputs: Number of outputs.
        width: Nodes of each hidden layer.
        layers: Number of linear layers, one more than hidden layers.
        activation: tanh, relu or softplus.

    Raises:
        UserError: A number below 1, or an unknown activation.
    """
    require_sizes(inputs=inputs, outputs=outputs, width=width, layers=layers)
    return MLP((inputs, *[width] * (layers - 1), outputs), activation)


class Table(nn.Module):
    """A table of parameters, one row for each class.

    It starts at zero, where an encoder with means and log variances of a code is the standard normal prior.

    Args:
        classes: Number of classes, counted from 0.
        outputs: Number of parameters of each.

    Raises:
        UserError: A number below 1.
    """

    def __init__(self, classes: int, outputs: int) -> None:
        super().__init__()
        require_sizes(classes=classes, outputs=outputs)
        self.rows = nn.Parameter(torch.zeros(classes, outputs))

    @property
    def settings(self) -> dict[str, Any]:
        """Arguments that make a module of this architecture."""
        return {"classes": self.rows.shape[0], "outputs": self.rows.shape[1]}

    def example(self) -> Tensor:
        """Two inputs of class 0."""
        return torch.zeros(2, dtype=torch.int64, device=self.rows.device)

    def forward(self, x: Int[Tensor, "*sample"]) -> Float[Tensor, "*sample output"]:
        """Look up the parameters of classes.

        Args:
            x: Classes.
        """
        return functional.embedding(x, self.rows)


def require_sizes(**sizes: int) -> None:
    """Raise a `UserError` unless all sizes are whole numbers of at least 1."""
    for name, size in sizes.items():
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise UserError(f"must be a whole number of at least 1, got {size!r}", name)
