"""Options that describe networks whose files contain only tensors, and reading the networks of a command with them."""

from __future__ import annotations

import inspect
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from understudy._errors import UserError, suggest
from understudy.cli.parsing import RepeatedWords

if TYPE_CHECKING:
    from understudy.nets import Loaded, Population
    from understudy.nets.files.stated import Stated

_NONE = RepeatedWords()


@dataclass(frozen=True, kw_only=True)
class StackOptions:
    """Options that describe fully connected networks whose files contain only tensors.

    A command with several networks explains in its help how an option is given for one of them.
    """

    roles: ClassVar[tuple[str, ...]] = ()
    """What the networks are to the command: teacher, student, a or b."""

    activation: RepeatedWords = _NONE
    """Activation after every hidden layer, for files that do not record it: relu, leaky:SLOPE, abs, or linear for none.
    Otherwise ReLU is assumed."""
    order: RepeatedWords = _NONE
    """Names of all layers from the inputs to the outputs, NAME,NAME,…, where names and sizes do not tell it."""
    key: RepeatedWords = _NONE
    """Which network of a checkpoint to read: the key of its state dict, or the prefix of its tensors, as in student."""
    model: RepeatedWords = _NONE
    """Class or function that makes the model of a state dict, FILE.py:NAME or PACKAGE.MODULE:NAME. Its code is
    executed."""
    model_args: RepeatedWords = _NONE
    """Arguments of the model, as in "10 width=3"."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if len(cls.roles) > 1:
            text, (*others, last) = inspect.cleandoc(cls.__doc__ or "").rstrip(), cls.roles
            cls.__doc__ = (
                f"{text}\n\nOptions that describe networks, such as --activation, are for all of them; for one, put "
                f"its name ({', '.join(others)} or {last}) before the value, as in {last}=leaky:0.1, and repeat the "
                "option for another."
            )


@dataclass(frozen=True, kw_only=True)
class NetworkOptions(StackOptions):
    """Options that describe networks of any kind whose files contain only tensors."""

    norm_order: RepeatedWords = _NONE
    """Place of BatchNorm: before or after the activation. Required for state dicts with BatchNorm."""
    norm_eps: RepeatedWords = _NONE
    """Constant ε that BatchNorm adds to variances. Otherwise 1e-5 is assumed."""
    image: RepeatedWords = _NONE
    """Height and width of the inputs of convolutions, as in 28x28. Required for state dicts with convolutions."""
    padding: RepeatedWords = _NONE
    """Padding of the convolutions: one number, or one for each, as in 2,1,1. Otherwise none is assumed."""
    stride: RepeatedWords = _NONE
    """Stride of the convolutions: one number, or one for each. Otherwise 1 is assumed."""
    pool: RepeatedWords = _NONE
    """Pooling after the convolutions, one word or one for each, as in max:2,none: none, max:2, average:2, max:3/2+1
    (kernel 3, stride 2, padding 1), or global (average). Otherwise none is assumed."""


DESCRIBING = tuple(field.name for field in fields(NetworkOptions))
"""Names of the options that describe networks."""


class GivenNetworks:
    """The networks that a command reads, with what was assumed about each.

    Args:
        options: The options of the command.
        image: Height and width of the inputs of models, where the options do not state it.
        modules: Whether the command also compares modules that are not stacks of layers.
    """

    def __init__(self, options: StackOptions, *, image: tuple[int, int] | None = None, modules: bool = False) -> None:
        self._options, self._roles, self._image, self._modules = options, options.roles, image, modules
        self._loaded: dict[str, Loaded] = {}

    def read(self, role: str, path: Path, index: int | None, option: str = "") -> Population:
        """Read a network.

        Args:
            role: What it is to the command.
            path: Its file.
            index: Index of the network in the file; None for all of them.
            option: The option that gave the index. Default: that of the role.

        Returns:
            The network, or all networks of the file.

        Raises:
            UserError: The file cannot be read, or has no such network.
        """
        from understudy.nets import read

        loaded = self._loaded[role] = read(path, self.stated(role))
        population = loaded.population
        if index is None:
            return population
        if not 0 <= index < len(population):
            given = option or f"--{role}-network"
            if len(population) == 1:
                raise UserError(f"{path} contains one network, so that {given} must be 0, got {index}; omit it")
            raise UserError(f"{given} must be between 0 and {len(population) - 1} for {path}, got {index}")
        return population[index]

    @property
    def assumed(self) -> dict[str, list[str]]:
        """What was assumed about each network, in words."""
        return {role: self._loaded[role].words if role in self._loaded else [] for role in self._roles}

    @property
    def lines(self) -> list[str]:
        """How each file that contains only tensors was read, and the options that decide what was assumed."""
        shown = {str(loaded): loaded.arguments for loaded in self._loaded.values() if loaded.inferred}
        options = {line: ", ".join(f"--{name.replace('_', '-')}" for name in given) for line, given in shown.items()}
        return [f"{line} (see {see})" if see else line for line, see in options.items()]

    def show(self) -> None:
        """Print `lines`."""
        for line in self.lines:
            print(line)

    def stated(self, role: str) -> Stated:
        """What the options state about a network.

        Raises:
            UserError: A value that is not among the allowed ones, or for a network that the command does not have.
        """
        from understudy.nets.files.stated import AS_MODULES, Stated

        given = {name: self._word(name, role) for name in DESCRIBING}
        values = {name: _parse(name, word) for name, word in given.items() if word}
        if "model" in values and self._image is not None:
            values.setdefault("image", self._image)
        try:
            return Stated(**values)
        except UserError as error:
            if not self._modules:
                error.args = (str(error).removesuffix(f"; {AS_MODULES}"),)
                error.for_command = error.for_command.removesuffix(f"; {AS_MODULES}")
            raise

    def _word(self, name: str, role: str) -> str:
        """The value of an option for a network: the one that names it, else the one that names none."""
        by_role: dict[str, list[str]] = {}
        for word in getattr(self._options, name, ()):
            named, equals, value = word.partition("=")
            known = bool(equals) and named in self._roles
            if named.isidentifier() and equals and not known and name != "model_args":
                raise UserError(self._unknown(named, word), name)
            by_role.setdefault(named if known else "", []).append(value if known else word)
        return (" " if name == "model_args" else ",").join(by_role.get(role, by_role.get("", [])))

    def _unknown(self, named: str, word: str) -> str:
        if len(self._roles) == 1:
            return f"must be a value without a name, since the command has one network, got {word!r}"
        *others, last = (f"{role}=" for role in self._roles)
        return (
            f"must begin with {', '.join(others)} or {last} where it is for one network, got {word!r}; "
            f"{suggest(named, self._roles)}a value without a name is for all networks"
        )


def _parse(name: str, word: str) -> Any:
    """The value of an argument of `load` from the word of an option."""
    if name in ("activation", "norm_order", "key", "model"):
        return word
    if name == "norm_eps":
        return _parse_epsilon(word)
    if name == "model_args":
        return shlex.split(word)
    if name in ("pool", "order"):
        words = word.split(",")
        return words[0] if name == "pool" and len(words) == 1 else words
    return _parse_numbers(name, word)


def _parse_epsilon(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise UserError(f"must be a number, as in 0.001, got {word!r}", "norm_eps") from None


def _parse_numbers(name: str, word: str) -> Any:
    from understudy.nets.files.stated import parse_sides
    from understudy.nets.shape import pair

    try:
        sides = [parse_sides(each) for each in word.split(",")]
    except ValueError:
        example = "28x28" if name == "image" else "1, or one for each convolution, as in 2,1,1"
        raise UserError(f"must be whole numbers, as in {example}, got {word!r}", name) from None
    if name == "image":
        return pair(sides[0]) if len(sides) == 1 else sides
    return sides


def current_words(words: Sequence[str]) -> list[str]:
    """Replace the former option `--leaky` by the present one, with a notice."""
    found, current = iter(words), list[str]()
    for word in found:
        name, equals, value = word.partition("=")
        if name != "--leaky":
            current.append(word)
            continue
        slope = value if equals else next(found, "")
        print(f"understudy: --leaky {slope} is now --activation leaky:{slope}", file=sys.stderr)
        current += ["--activation", f"leaky:{slope}"]
    return current
