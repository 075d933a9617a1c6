"""A simulated GPU: tensors marked as on the GPU are kept apart from CPU tensors, as on a real one.

Operations that a real GPU would reject raise an error: operations on tensors of both devices, conversion of GPU tensors
to numpy, and factories that do not pass on the device. The CPU does the arithmetic, through the GPU's code paths.
"""

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_map

_GPU = torch.device("cuda")
_TO_NUMPY = {torch.Tensor.numpy, torch.Tensor.__array__}
_INDEXING = {torch.Tensor.__getitem__, torch.Tensor.__setitem__}
"""As on a real GPU, CPU tensors may index GPU tensors, but not the other way round."""


class OnGpu(torch.Tensor):
    """A tensor marked as being on the GPU."""

    device = _GPU
    is_cuda = True


class FakeGpu(TorchFunctionMode):
    """Context in which `cuda` is a device; `calls` counts the operations on it."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        tensors = [item for item in tree_flatten((args, kwargs))[0] if isinstance(item, torch.Tensor)]
        on_gpu = [item for item in tensors if isinstance(item, OnGpu)]
        on_cpu = [item for item in tensors if not isinstance(item, OnGpu)]
        gpu = bool(on_gpu)
        if func in _TO_NUMPY:
            assert not gpu, "numpy of a tensor on the GPU"
        if func is torch.Tensor.cpu:
            gpu = False
        elif func is torch.Tensor.to:
            args, gpu = self._parse_to(args, kwargs, gpu)
        else:
            if kwargs.get("device") is not None:
                gpu = torch.device(kwargs.pop("device")).type == "cuda"
            elif func in _INDEXING:
                assert not on_gpu or isinstance(args[0], OnGpu), "a CPU tensor indexed by GPU tensors"
            elif on_gpu:
                stray = [tuple(item.shape) for item in on_cpu if item.ndim]
                assert not stray, f"{func.__name__}: of tensors on the GPU and of {stray} on the CPU"
            self.calls += gpu
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*tree_map(_plain, args), **tree_map(_plain, kwargs))
            return tree_map(_mark, result) if gpu else result

    @staticmethod
    def _parse_to(args, kwargs, gpu):
        """Return the arguments of `to` without a device, and whether the result is on the GPU."""
        kept = [args[0]]
        for item in args[1:]:
            if isinstance(item, torch.Tensor):
                gpu = isinstance(item, OnGpu)
                kept.append(item.dtype)
            elif isinstance(item, str | torch.device):
                gpu = torch.device(item).type == "cuda"
            else:
                kept.append(item)
        if "device" in kwargs:
            gpu = torch.device(kwargs.pop("device")).type == "cuda"
        return (*kept, *(() if len(kept) > 1 else (args[0].dtype,))), gpu


def _mark(item):
    return item.as_subclass(OnGpu) if isinstance(item, torch.Tensor) else item


def _plain(item):
    return item.as_subclass(torch.Tensor) if isinstance(item, OnGpu) else item
