"""Load networks: files that record their architecture as they are, others with what is stated and what is assumed."""

from __future__ import annotations

import contextlib
import os
import warnings
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from understudy._errors import UserError
from understudy._numbers import number
from understudy.nets.files.checkpoints import network_prefixes, several_networks
from understudy.nets.files.convolutions import fit_convolutions
from understudy.nets.files.io import ALLOWED, existing_file, read_contents
from understudy.nets.files.layer_order import assumed_order, order_layers
from understudy.nets.files.recorded import require_agreement, restore
from understudy.nets.files.state_dict import OTHERWISE, Contents, NamedLayer, NamedNorm, read_items, stack_items
from understudy.nets.files.stated import Assumed, Stated, Unstated
from understudy.nets.norm import EPS, Norm
from understudy.nets.population import Population
from understudy.nets.shape import Convolution, Sides, format_size, pair


class Assumption(UserWarning):
    """Something that a file does not contain was assumed; the warning states what, and the arguments that decide it."""


class NotAStack(UserError):
    """A module that cannot be converted to a population.

    Args:
        message: Why not.
        module: The module, with the tensors of its file.
    """

    def __init__(self, message: str, module: nn.Module) -> None:
        super().__init__(message)
        self.module = module


@dataclass(frozen=True, eq=False)
class Loaded:
    """Networks of a file, with what was assumed about them.

    Attributes:
        file: The file.
        population: The networks.
        assumed: What the file does not contain and was assumed; empty for files that record their architecture.
        inferred: Whether the file contains only tensors, from which sizes and order of layers were inferred.
    """

    file: Path
    population: Population
    assumed: tuple[Assumed, ...] = ()
    inferred: bool = False

    @property
    def words(self) -> list[str]:
        """What was assumed, in words."""
        return [each.words for each in self.assumed]

    @property
    def arguments(self) -> list[str]:
        """The arguments of `load` that decide what was assumed."""
        return list(dict.fromkeys(each.argument for each in self.assumed))

    def __str__(self) -> str:
        sizes = " → ".join(map(str, self.population.sizes))
        image = f" on images of {format_size(self.population.image)}" if self.population.image else ""
        norm = f" with BatchNorm {self.population.shape.norm} activations" if self.population.norms else ""
        return ", ".join([f"{self.file} read as {sizes}{image}{norm}", *(f"{each} assumed" for each in self.words)])


def load(
    path: str | os.PathLike[str],
    *,
    activation: str | float | None = None,
    norm_order: Literal["before", "after"] | None = None,
    norm_eps: float | None = None,
    padding: int | Sequence[Sides] | None = None,
    stride: int | Sequence[Sides] | None = None,
    pool: str | Sequence[str] | None = None,
    image: int | tuple[int, int] | None = None,
    order: Sequence[str] | None = None,
    key: str | None = None,
    model: str | None = None,
    model_args: Sequence[str] | None = None,
) -> Population:
    """Load networks from a file.

    Files written by `save`, programs of `torch.export` (.pt2) and ONNX files record their architecture. Others are
    plain safetensors, or a state dict written by `torch.save`, alone or in a checkpoint under a usual key such as
    `model_state_dict`; the prefix of DataParallel is dropped. These contain tensors only, and are read as a stack of
    `nn.Conv2d` and `nn.Linear`, in this order, with or without BatchNorm after every hidden layer. Layers are ordered
    by the numbers in their names if the names differ only in these, else by their sizes, if these allow only one order.
    What changes the function and cannot be inferred is refused unless it is stated; what is assumed is
    reported by a warning of the category `Assumption`, unless it is stated.

    If some layers have a bias and others do not, the missing ones become zeros (scales of BatchNorm: ones). float16 and
    bfloat16 become float32; layers of different precision take the widest. Networks of a file without seeds are
    numbered from 0.

    Args:
        path: The file.
        activation: Activation after every hidden layer: `relu`, `leaky:SLOPE` or the slope below zero as a number,
            `abs`, or `linear` for none. The outputs have none. Assumed if not stated: ReLU.
        norm_order: Whether BatchNorm stands `before` or `after` the activation. Required with BatchNorm.
        norm_eps: The constant ε that BatchNorm adds to variances. Assumed if not stated: 10⁻⁵, as in torch.
        padding: Pixels of zeros around the inputs of each convolution (which is not dilated): one number for all, or
            one per convolution, each of which may be (height, width). Assumed if not stated: 0.
        stride: Stride of each convolution, likewise. Assumed if not stated: 1.
        pool: Pooling after each convolution with its activation and BatchNorm, one word for all or one per convolution:
            `none`, `max:2`, `average:2`, `max:3/2+1` for kernel 3, stride 2 and padding 1, or `global` for the average
            of the whole map (of the last convolution, if it is the only word). Assumed if not stated: none.
        image: Height and width of the inputs, or one number for both. Required with convolutions.
        order: Names of all layers from the inputs to the outputs, and of BatchNorms in their places if these cannot be
            inferred. Stating it means that the layers follow one another with nothing beside them.
        key: In a checkpoint of several networks the key of the state dict, as in `ema` or `ema.module`, or the prefix
            of the names of tensors, as in `student`. Assumed if not stated: the first usual key.
        model: Class or function that makes the module, `FILE.py:NAME` or `PACKAGE.MODULE:NAME`. Its code is executed;
            the file's tensors are loaded into the module, and its graph is followed as in `from_module`.
        model_args: Arguments of the model: words such as `10` or `width=10`.

    Returns:
        The networks.

    Raises:
        UserError: The file does not exist, is damaged, or contains something other than such networks; something that
            must be stated is not, or what is stated does not fit the file.
    """
    stated = Stated(
        activation=activation,
        norm_order=norm_order,
        norm_eps=norm_eps,
        padding=padding,
        stride=stride,
        pool=pool,
        image=image,
        order=order,
        key=key,
        model=model,
        model_args=model_args,
    )
    found = read(path, stated)
    if found.assumed:
        warnings.warn(f"{found}; us.load decides this with {', '.join(found.arguments)}", Assumption, stacklevel=2)
    return found.population


def read(path: str | os.PathLike[str], stated: Stated | None = None) -> Loaded:
    """Load networks from a file like `load`, with what was assumed instead of a warning.

    Args:
        path: The file.
        stated: What is stated about the networks.

    Returns:
        The networks, and what was assumed about them.

    Raises:
        UserError: As `load`.
    """
    stated = stated or Stated()
    if stated.model is not None:
        return _convert_module(Path(path), stated)
    file = existing_file(path, f"{ALLOWED} is needed")
    if _is_program(file):
        from understudy.nets.graphs.programs import from_pt2

        return _recorded(file, from_pt2(file), stated)
    if file.suffix == ".onnx":
        from understudy.nets.graphs.onnx import from_onnx

        return _recorded(file, from_onnx(file), stated)
    contents = read_contents(file, stated.key)
    return _recorded(file, restore(file, contents), stated) if contents.ours else _infer(file, contents, stated)


def read_stack(path: str | os.PathLike[str], slope: float | None) -> Loaded:
    """Load networks for a study, of which only the slope of the activation can be stated.

    Args:
        path: The file.
        slope: Slope of the activation below zero; None if it is not stated.

    Returns:
        The networks, and what was assumed about them.

    Raises:
        UserError: As `load`; where more must be stated, with the way to do so.
    """
    try:
        return read(path, Stated(activation=slope))
    except UserError as error:
        # Options of other commands, which errors name, are arguments of `load` here.
        of_model = str(error).removesuffix(f"; {OTHERWISE}.")
        if isinstance(error, Unstated):
            problem, argument = error.problem, error.argument
        elif of_model != str(error):
            problem, argument = of_model, "model"
        else:
            raise
        raise UserError(
            f"{problem}. A study reads what is stated from a file of us.save: us.save(us.load({str(path)!r}, "
            f"{argument}=…), 'teacher.safetensors')."
        ) from error


def _read_module(file: Path, stated: Stated) -> nn.Module:
    """Make the stated model with the tensors of a file, in evaluation mode."""
    from understudy.nets.files.model_files import build_module, fill_module

    assert stated.model is not None
    module = build_module(stated.model, stated.model_args or ())
    fill_module(module, file, stated.key)
    return module.eval()


def _convert_module(file: Path, stated: Stated) -> Loaded:
    from understudy.nets.graphs.modules import from_module

    if needless := stated.named("activation", "norm_order", "norm_eps", "padding", "stride", "pool", "order"):
        raise UserError(f"cannot be given with a model, which decides it: {stated.model}; omit it", needless[0])
    module = _read_module(file, stated)
    if stated.sides is None and any(isinstance(part, nn.Conv1d | nn.Conv2d) for part in module.modules()):
        raise Unstated(
            f"{file}: the convolutions of {stated.model} can read inputs of any size",
            "give --image HEIGHTxWIDTH (in Python image=(height, width)); the height of a line is 1",
            "image",
        )
    try:
        return Loaded(file, from_module(module, _example(module, stated.sides)))
    except UserError as error:
        raise NotAStack(f"{file}: {error}", module) from error


def _example(module: nn.Module, image: Sequence[int] | None) -> Tensor | None:
    """Random inputs that a module takes, of the size of one of its layers; None if there is none."""
    like = next(module.parameters(), torch.zeros(0))
    for part in module.modules():
        size: tuple[int, ...] = ()
        if image is None and isinstance(part, nn.Linear):
            size = (part.in_features,)
        elif image is not None and isinstance(part, nn.Conv1d | nn.Conv2d):
            size = (part.in_channels, *image[isinstance(part, nn.Conv1d) :])
        if size:
            x = torch.randn(8, *size, generator=torch.Generator().manual_seed(0)).to(like.device, like.dtype)
            # Layers need not be defined in the order in which they are used.
            with contextlib.suppress(Exception), torch.no_grad():
                module(x)
                return x
    return None


def _is_program(file: Path) -> bool:
    """Whether a file is an exported program: by its name, or by what is in the archive."""
    if file.suffix == ".pt2":
        return True
    try:
        with zipfile.ZipFile(file) as archive:
            return any(name.endswith("/archive_format") for name in archive.namelist())
    except Exception:  # of many kinds: damaged archives, and files that are none
        return False


def _recorded(file: Path, population: Population, stated: Stated) -> Loaded:
    """Networks of a file that records their architecture, with which all that is stated must agree."""
    require_agreement(file, population.shape, stated)
    return Loaded(file, population)


def _infer(file: Path, contents: Contents, stated: Stated) -> Loaded:
    """A network from tensors alone, with what is stated and what is assumed."""
    if stated.order is None and (prefixes := network_prefixes(list(contents.tensors))):
        raise several_networks(file, prefixes)
    items = read_items(file, contents, stack=stated.order is not None)
    found = order_layers(file, items, contents.in_order, stated.order)
    image, convolutions, assumed = fit_convolutions(file, found[0], stated)
    layers, norms = stack_items(found[0], _with_epsilon(file, found[1], stated))
    if norms and stated.norm_order is None:
        raise Unstated(
            f"{file}: whether its BatchNorm '{found[1][0].name}' stands before or after the activation is not in the "
            "file",
            "give --norm-order before or --norm-order after (in Python norm_order='before' or 'after')",
            "norm_order",
        )
    if not norms and (needless := stated.named("norm_order", "norm_eps")):
        raise UserError(
            f"{file}: {needless[0]} was given, but the network has no BatchNorm; omit it, or give it for the other "
            f"network only (--{needless[0].replace('_', '-')} student=…)."
        )
    if stated.slope is None:
        words = ("ReLU", "linear outputs") if len(layers) > 1 else ("linear outputs",)
        assumed = (*(Assumed(each, "activation") for each in words), *assumed)
    if contents.others:
        known = ", ".join(filter(None, (contents.key, *contents.others)))
        assumed = (Assumed(f"weights under '{contents.key}' of {known}", "key"), *assumed)
    if norms and stated.norm_eps is None:
        assumed = (*assumed, Assumed(f"BatchNorm ε {number(EPS)}", "norm_eps"))
    assumed = (*assumed, *assumed_order(*found, stated.order))
    if stated.order is None and _allows_skips(found[0]):
        words = ("no skips", "no branches or repeated layers")
        assumed = (*assumed, *(Assumed(each, "order") for each in words))
    if any(_depends_on_place(*both) for both in zip(convolutions or (), norms, strict=False)):
        assumed = (*assumed, Assumed("BatchNorm before pooling", "model"))
    kinds = {each.pool.kind for each in convolutions or () if each.pool}
    # The largest of values and an activation that increases can change places.
    for kind in sorted(kinds - ({"max"} if (stated.slope or 0) >= 0 else set()) if stated.slope != 1 else ()):
        assumed = (*assumed, Assumed(f"{kind} pooling after the activation", "model"))
    population = Population(
        layers,
        torch.arange(1),
        stated.slope or 0.0,
        norms,
        stated.norm_order == "before",
        image,
        convolutions,
    )
    return Loaded(file, population, assumed, inferred=True)


def _depends_on_place(convolution: Convolution, norm: Norm) -> bool:
    """Whether the order of BatchNorm and pooling matters.

    A negative scale turns a maximum into a minimum, and a shift does not reach the padding that averages count.
    """
    pool, scale = convolution.pool, norm.scale
    if pool is None:
        return False
    if pool.kind == "average":
        return any(pair(pool.padding))
    return scale is not None and bool((scale < 0).any())


def _with_epsilon(file: Path, norms: Sequence[NamedNorm], stated: Stated) -> list[NamedNorm]:
    """BatchNorms with the stated ε as those of populations, whose ε is always the same."""
    if stated.norm_eps is None:
        return list(norms)
    from understudy.nets.graphs.aten import normalisation

    try:
        return [NamedNorm(name, normalisation(name, norm, stated.norm_eps).norm) for name, norm in norms]
    except UserError as error:
        raise UserError(f"{file}: {error}; give norm_eps as in the model.") from error


def _allows_skips(layers: Sequence[NamedLayer]) -> bool:
    """Whether two layers read or write equally many nodes, so that something without parameters could connect them."""
    filters, linear = ([layer for layer in layers if bool(layer.kernel) == kind] for kind in (True, False))
    return any(
        a == b
        for some in (filters, linear)
        if some
        for a, b in combinations((some[0].sizes[0], *(layer.sizes[1] for layer in some)), 2)
    )
