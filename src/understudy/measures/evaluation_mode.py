"""Evaluate modules in the middle of their training without changing it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
import torch
from torch import nn


@contextmanager
def evaluation_mode(*modules: nn.Module) -> Iterator[None]:
    """Put modules in evaluation mode without gradients and autocast, and leave everything as it was.

    Restored are the mode of every submodule and the random number generators of Python, NumPy and torch, on the CPU
    and on the GPUs of the modules.

    Args:
        *modules: The modules, which may share submodules.
    """
    training = [part for module in modules for part in module.modules() if part.training]
    devices = {tensor.device for module in modules for tensor in (*module.parameters(), *module.buffers())}
    gpus = [device for device in devices if device.type == "cuda"]
    python, arrays = random.getstate(), np.random.get_state()
    with ExitStack() as stack:
        stack.callback(np.random.set_state, arrays)
        stack.callback(random.setstate, python)
        stack.enter_context(torch.random.fork_rng(gpus))
        stack.enter_context(torch.no_grad())
        for kind in {"cpu", *(device.type for device in devices if device.type == "cuda")}:
            stack.enter_context(torch.autocast(kind, enabled=False))
        for part in training:
            stack.callback(setattr, part, "training", True)
            # Not by `eval`, which a module may override.
            part.training = False
        yield
