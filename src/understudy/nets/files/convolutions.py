"""Convolutions of a file that contains only tensors: what is stated must fit, and what is not stated must be unique."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

from understudy._errors import UserError
from understudy.nets.files.state_dict import NamedLayer
from understudy.nets.files.stated import Assumed, Pooling, Stated, Unstated, format_pool, format_sides
from understudy.nets.shape import Convolution, Pool, Sides, format_size, pair

_ARGUMENTS = ("padding", "stride", "pool")
_ABSENT = {"padding": "no padding", "stride": "stride 1", "pool": "no pooling"}
"""What is assumed where an argument is not stated."""
_FEW = 8
"""Largest number of convolutions of which every choice of pooled ones is tried."""


class Fitted(NamedTuple):
    """Image and convolutions of a network, with what was assumed; empty for a fully connected one."""

    image: tuple[int, int] | None = None
    convolutions: tuple[Convolution, ...] | None = None
    assumed: tuple[Assumed, ...] = ()


class _Choice(NamedTuple):
    """Paddings, strides and poolings of all convolutions."""

    padding: tuple[Sides, ...]
    stride: tuple[Sides, ...]
    pool: tuple[Pooling, ...]

    def options(self, names: Sequence[str], brief: bool = False) -> str:
        """The options that state these of them; if `brief`, without those that state what is assumed anyway."""
        words = {
            "padding": [format_sides(each) for each in self.padding],
            "stride": [format_sides(each) for each in self.stride],
            "pool": [format_pool(each) for each in self.pool],
        }
        shown = {name: _shortest(words[name]) for name in names}
        usual = {"padding": "0", "stride": "1", "pool": "none"} if brief else {}
        return " ".join(f"--{name} {word}" for name, word in shown.items() if usual.get(name) != word)

    def made(self, kernels: Sequence[tuple[int, int]], image: tuple[int, int]) -> tuple[Convolution, ...] | None:
        """The convolutions on images of this size; None if a map becomes empty."""
        found, size = [], image
        for kernel, padding, stride, pool in zip(kernels, *self, strict=True):
            each = Convolution(kernel, stride, padding)
            size = each(size)
            if min(size) < 1:
                return None
            if pool is not None:
                pool = Pool("average", size, size) if pool == "global" else pool
                size = pool(size)
            if min(size) < 1:
                return None
            found.append(each._replace(pool=pool))
        return tuple(found)


def fit_convolutions(file: Path, layers: Sequence[NamedLayer], stated: Stated) -> Fitted:
    """Find image, strides, paddings and poolings of the convolutions of a stack.

    Args:
        file: The file, for messages.
        layers: The layers, from the inputs up: convolutions first.
        stated: What the user states. What is not stated is assumed to be absent, if nothing else that is usual fits.

    Returns:
        The convolutions, and what was assumed.

    Raises:
        UserError: Something stated for a network without convolutions, or that does not fit its layers; no image; an
            image that other usual convolutions fit as well, or only others.
    """
    kernels = [layer.kernel_size for layer in layers if layer.kernel]
    if not kernels:
        if needless := stated.named("image", *_ARGUMENTS):
            raise UserError(
                f"{file}: {needless[0]} was given, but the network has no convolution; omit it, or give it for the "
                f"other network only (--{needless[0]} student=…)."
            )
        return Fitted()
    flat = layers[len(kernels)]
    channels = layers[len(kernels) - 1].sizes[1]
    area = flat.sizes[0] // channels
    takes = f"{flat} takes {area:,} numbers of each of {channels:,} channels"
    try:
        choices = list(_choices(kernels, stated))
    except UserError as error:
        raise UserError(f"{file}: {error}.") from None
    image = stated.sides
    if image is None:
        raise Unstated(
            f"{file}: its convolutions can read images of any size, which is not in the file",
            "give --image HEIGHTxWIDTH (in Python image=(height, width))"
            f"{_fitting_square(kernels, choices[0], area, stated)}",
            "image",
        )
    fitting = {
        choice: made for choice in choices if (made := choice.made(kernels, image)) and _area(made, image) == area
    }
    missing = [name for name in _ARGUMENTS if name not in stated.named(*_ARGUMENTS)]
    give = f"{_listed([f'--{name}' for name in missing])} (in Python {_listed(missing)})"
    if choices[0] not in fitting:
        some = " or ".join(choice.options(missing, brief=True) for choice in list(fitting)[:2])
        remedy = f"give {give} as in the model" if missing else "give the values of the model"
        raise UserError(
            f"{file}: {_reached(choices[0], kernels, image)}, but {takes}; "
            f"{remedy}{f' ({some} would fit)' if some else ''}."
        )
    others = {_same(made, image): choice for choice, made in fitting.items()}
    others.pop(_same(fitting[choices[0]], image))
    if others:
        raise Unstated(
            f"{file}: images of {format_size(image)} fit {choices[0].options(missing)} as well as "
            f"{next(iter(others.values())).options(missing)}, and the file does not determine which",
            f"give {give}",
            missing[0],
        )
    found = fitting[choices[0]]
    absent = [Assumed(_ABSENT[name], name) for name in missing]
    return Fitted(image, found, (*absent, *(Assumed(each, "model") for each in _details(found, image))))


def _details(convolutions: Sequence[Convolution], image: tuple[int, int]) -> Iterator[str]:
    """Details of convolutions that no argument states, so that only the module decides them."""
    if any(any(pair(each.padding)) for each in convolutions):
        yield "zero padding"
    yield "no dilation or groups"
    pooled = []
    for each in convolutions:
        size = each(image)
        image = each.pool(size) if each.pool else size
        pooled += [(each.pool, size)] if each.pool else []
    if any(pool.kind == "average" and any(pair(pool.padding)) for pool, _ in pooled):
        yield "padding counted in averages"
    if any(_leaves_rest(pool, size) for pool, size in pooled):
        yield "pooled sizes rounded down"
    if image != (1, 1):
        yield "channels-first flattening"


def _leaves_rest(pool: Pool, size: tuple[int, int]) -> bool:
    """Whether kernels of the pooling do not fill the map, so that `ceil_mode` would add one."""
    sides = zip(size, *map(pair, pool[1:]), strict=True)
    return any((side + 2 * padding - kernel) % stride for side, kernel, stride, padding in sides)


def require_fit(file: Path, layers: Sequence[NamedLayer], image: tuple[int, int], how: Sequence[Convolution]) -> None:
    """Raise a UserError unless these convolutions are those of the layers, on images of this size."""
    kernels = [layer.kernel_size for layer in layers if layer.kernel]
    flat, area = layers[len(kernels)], 0
    if kernels == [pair(each.kernel) for each in how]:
        choice = _Choice(*(tuple(getattr(each, name) for each in how) for name in _ARGUMENTS))
        made = choice.made(kernels, image)
        area = _area(made, image) if made else 0
    if area * layers[len(kernels) - 1].sizes[1] != flat.sizes[0]:
        raise UserError(
            f"{file}: the recorded image {format_size(image)} and convolutions do not fit the layers "
            f"{', '.join(map(str, layers))}; save the networks again."
        )


def _choices(kernels: Sequence[tuple[int, int]], stated: Stated) -> Iterator[_Choice]:
    """Usual paddings, strides and poolings that agree with what is stated; the first is without any."""
    count = len(kernels)
    half: tuple[Sides, ...] = tuple(_one(height // 2, width // 2) for height, width in kernels)
    given = stated.paddings(count), stated.strides(count), stated.pools(count)
    paddings = [given[0]] if given[0] is not None else [(0,) * count, half]
    strides = [given[1]] if given[1] is not None else [(1,) * count, (2,) * count]
    two = Pool("max", 2, 2)
    last = (None,) * (count - 1)
    pools: list[tuple[Pooling, ...]] = [(None,) * count, (two,) * count, (*last, two), (*last, "global")]
    masks: list[tuple[Pooling, ...]] = list(product((None, two), repeat=count)) if count <= _FEW else []
    for some in (pools, masks) if given[2] is None else ([given[2]],):
        yield from (_Choice(padding, stride, pool) for stride in strides for padding in paddings for pool in some)


def _area(convolutions: Sequence[Convolution], image: tuple[int, int]) -> int:
    """Positions of the last map, after pooling."""
    for each in convolutions:
        image = each(image)
        image = each.pool(image) if each.pool else image
    return math.prod(image)


def _same(convolutions: Sequence[Convolution], image: tuple[int, int]) -> tuple[Convolution, ...]:
    """A form that convolutions of the same function share: what a map of one position leaves open is left out."""
    found = []
    for each in convolutions:
        image = each(image)
        if image == (1, 1):
            each = each._replace(stride=1, pool=None)
        image = each.pool(image) if each.pool else image
        found.append(each)
    return tuple(found)


def _reached(choice: _Choice, kernels: Sequence[tuple[int, int]], image: tuple[int, int]) -> str:
    made = choice.made(kernels, image)
    where = f"images of {format_size(image)} with {choice.options(_ARGUMENTS)}"
    if made is None:
        return f"{where} are too small for {len(kernels)} convolutions"
    return f"{where} become maps of {_area(made, image):,} positions"


def _fitting_square(kernels: Sequence[tuple[int, int]], choice: _Choice, area: int, stated: Stated) -> str:
    """Words on the square image that fits without padding and pooling, if there is one."""
    side = math.isqrt(area) + sum(height - 1 for height, _ in kernels)
    if stated.named(*_ARGUMENTS) or any(height != width for height, width in kernels) or math.isqrt(area) ** 2 != area:
        return ""
    return f"; without padding and pooling {side}x{side} would fit"


def _one(height: int, width: int) -> Sides:
    return height if height == width else (height, width)


def _shortest(words: Sequence[str]) -> str:
    """One word if all are equal, else all of them."""
    return words[0] if len(set(words)) == 1 and words[0] != "global" else ",".join(words)


def _listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))
