"""Architectures of networks with several exits: the grid of an `MSDNet`, or a function that makes modules."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Sequence

import torch

from understudy._errors import UserError, kind_of
from understudy.nets.multi_exit.exits import MultiExit
from understudy.nets.multi_exit.grid import Grid
from understudy.nets.multi_exit.msdnet import MSDNet
from understudy.training.multi_exit.initial import initial_weights

ExitModule = MSDNet | MultiExit


class OwnNetworks:
    """Networks that a function of the user's makes, as the architecture of an `ExitPlan`.

    Args:
        make: Function from a seed to a module with exits, as `us.exits` returns. Before it is called, the random
            numbers of torch are seeded by the seed, so that its weights depend on nothing else.

    Attributes:
        exits: Where each exit is.
        classes: Number of classes.
        image_shape: Shape of one image (channels, rows, columns).

    Raises:
        UserError: The function returns something else, or a module that computes with random numbers in training mode,
            as dropout does: with them a training could not be repeated.
    """

    def __init__(self, make: Callable[[int], ExitModule]) -> None:
        self._make = make
        example = self.network(0)
        self.exits, self.classes, self.image_shape = example.exit_names, example.classes, example.image_shape
        _require_repeatable(example)

    def network(self, seed: int) -> ExitModule:
        """Make the network of a seed, with its initial weights.

        Args:
            seed: The seed.
        """
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            made = self._make(seed)
        if not isinstance(made, ExitModule):
            raise UserError(f"must return what us.exits returns, got {kind_of(made)}; put exits on the module", "make")
        return made

    def fingerprint(self, seeds: Sequence[int]) -> str:
        """Hash of the initial weights of some networks, by which a training that goes on is compared.

        Args:
            seeds: Seed of each network.
        """
        content = hashlib.sha256()
        for seed in sorted(set(seeds)):
            for name, tensor in self.network(seed).state_dict().items():
                content.update(
                    name.encode() + tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data
                )
        return content.hexdigest()


Architecture = Grid | OwnNetworks


def image_shape(architecture: Architecture) -> tuple[int, ...]:
    """Channels, rows and columns of the images of an architecture.

    Args:
        architecture: The architecture.
    """
    if isinstance(architecture, Grid):
        return architecture.colours, architecture.image, architecture.image
    return architecture.image_shape


def initial_network(architecture: Architecture, seed: int) -> ExitModule:
    """Make the network of a seed, with its initial weights.

    Args:
        architecture: The architecture.
        seed: The seed.
    """
    if not isinstance(architecture, Grid):
        return architecture.network(seed)
    with torch.device("meta"):
        module = MSDNet(architecture)
    module.load_state_dict(initial_weights(architecture, seed), assign=True)
    return module


def _require_repeatable(network: ExitModule) -> None:
    """Raise a `UserError` unless a network computes the same twice in training mode."""
    like = next(network.parameters())
    x = torch.randn(4, *network.image_shape, generator=torch.Generator().manual_seed(0)).to(like)
    with torch.no_grad():
        one, two = (copy.deepcopy(network).train()(x) for _ in range(2))
    if not torch.equal(one, two):
        raise UserError(
            "must return networks that compute the same from the same images, but two passes in training mode differ; "
            "remove dropout and other random numbers",
            "make",
        )
