"""A card that is not there: tensors said to be on it are kept apart from the others, as those of a real one are.

What a real card would refuse is refused: products of tensors here and there, numpy of what is there, factories that
forget where to put what they make. Numbers are computed by the processor, by what is written for cards.
"""

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_map

_CARD = torch.device("cuda")
_TO_NUMPY = {torch.Tensor.numpy, torch.Tensor.__array__}
_INDEXING = {torch.Tensor.__getitem__, torch.Tensor.__setitem__}
"""Places on the card may be told from here, as of a real one, and not the other way round."""


class OnCard(torch.Tensor):
    """A tensor that is said to be on the card."""

    device = _CARD
    is_cuda = True


class FakeCard(TorchFunctionMode):
    """While it is entered, `cuda` is a device; `calls` counts what was computed there."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        given = [part for part in tree_flatten((args, kwargs))[0] if isinstance(part, torch.Tensor)]
        there = [part for part in given if isinstance(part, OnCard)]
        here = [part for part in given if not isinstance(part, OnCard)]
        card = bool(there)
        if func in _TO_NUMPY:
            assert not card, "numpy of a tensor on the card"
        if func is torch.Tensor.cpu:
            card = False
        elif func is torch.Tensor.to:
            args, card = self._moved(args, kwargs, card)
        else:
            if kwargs.get("device") is not None:
                card = torch.device(kwargs.pop("device")).type == "cuda"
            elif func in _INDEXING:
                assert not there or isinstance(args[0], OnCard), "a tensor that is not on the card by places that are"
            elif there:
                stray = [tuple(part.shape) for part in here if part.ndim]
                assert not stray, f"{func.__name__}: of tensors on the card and of {stray} that are not"
            self.calls += card
        with torch._C.DisableTorchFunctionSubclass():
            found = func(*tree_map(_plain, args), **tree_map(_plain, kwargs))
            return (
                tree_map(lambda part: part.as_subclass(OnCard) if isinstance(part, torch.Tensor) else part, found)
                if (card)
                else found
            )

    @staticmethod
    def _moved(args, kwargs, card):
        """The arguments of `to` without a device, and whether the card is where it goes."""
        kept = [args[0]]
        for part in args[1:]:
            if isinstance(part, torch.Tensor):
                card = isinstance(part, OnCard)
                kept.append(part.dtype)
            elif isinstance(part, str | torch.device):
                card = torch.device(part).type == "cuda"
            else:
                kept.append(part)
        if "device" in kwargs:
            card = torch.device(kwargs.pop("device")).type == "cuda"
        return (*kept, *(() if len(kept) > 1 else (args[0].dtype,))), card


def _plain(part):
    return part.as_subclass(torch.Tensor) if isinstance(part, OnCard) else part
