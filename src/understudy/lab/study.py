"""What a study is: options that fix it, what to train, which figures to draw, which claims follow."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from understudy.errors import UserError
from understudy.lab.options import check

if TYPE_CHECKING:
    import torch

    Tables = dict[str, Any]

    from understudy.report.story import Story
    from understudy.store import Claim, Run
    from understudy.training import Group, Optimiser

FORMAT = 3
"""Goes up whenever the same options would give another result, so that old runs keep their own folders."""
_BEFORE_3: dict[str, Any] = {"decay": 0.0, "teacher_decay": 0.0}
"""What runs of earlier formats did, where they do not say so."""
_RANKED = (0, 1, 2, 3, 4, 6, 8, 10, 15, 20, 30, 40, 60, 80, 100)


@dataclass(frozen=True, eq=False)
class Experiment:
    """What a study trains: groups of networks, and each network's swept parameters in the same order."""

    groups: tuple[Group, ...]
    parameters: tuple[dict[str, Any], ...]
    optimiser: Optimiser
    epochs: int
    steps: int
    pairs: bool = False
    ranks: frozenset[int] = frozenset()
    """Epochs at which the rank of the final winners is wanted (`mean_rank` among the metrics)."""
    keep: frozenset[int] = frozenset()
    """Epochs whose weights are kept, beside the first and the last."""


def ranked(epochs: int) -> tuple[int, ...]:
    """Epochs at which the rank of the final winners is looked up: closer together where learning is fast."""
    return (*(epoch for epoch in _RANKED if epoch < epochs), epochs)


@dataclass(frozen=True)
class Study:
    """Options that every study has."""

    name: ClassVar[str]
    summary: ClassVar[str]
    figures: ClassVar[str]
    decides: ClassVar[str]
    """The ids of the claims that its runs decide."""
    trains: ClassVar[bool] = True
    """Whether it trains students by the loop; one that does not has `pieces` instead of `experiment`."""

    seeds: int = 32
    """How many seeds, counted from 1: each is a teacher, its data and its students' first weights."""
    dtype: Literal["float32", "tf32", "float64"] = "float32"
    """Numbers to train with; tf32 is float32 whose products a card may round to 11 bits, which is faster."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to train: auto takes a CUDA card where there is one."""

    @classmethod
    def quick(cls) -> Self:
        """The same study made small."""
        raise AssertionError(f"{cls.__name__} has no quick form")

    def __post_init__(self) -> None:
        check(self, "seeds", least=1)
        self.check()

    def check(self) -> None:
        """Refuse options that cannot be, before anything is written."""

    def needs(self) -> tuple[Study, ...]:
        """Studies whose runs this one starts from: they are made first, or taken from where they lie."""
        return ()

    def after(self, *runs: Run) -> Experiment:
        """What to train, given the runs that it needs."""
        return self.experiment()

    def experiment(self) -> Experiment:
        raise AssertionError(f"{type(self).__name__} trains nothing")

    def pieces(self, *runs: Run) -> Mapping[str, Callable[[], Tables]]:
        """What a study that trains nothing finds, given the runs that it needs: by name, what makes each piece.

        A piece gives its own rows of `networks`, `metrics` and `nodes`, and where it has networks to keep `weights`,
        populations by name, the same names in every piece that has any. Pieces are kept as they come: a run that was
        stopped goes on with the piece it was at.
        """
        raise AssertionError(f"{type(self).__name__} finds nothing without training")

    def story(self, run: Run) -> Story:
        """What the report shows; by default `story(study, run)` of the module `story` beside the study's own."""
        story: Story = _beside(self, "story")(self, run)
        return story

    def claims(self, run: Run) -> list[Claim]:
        """The claims that a run decides; by default those of the module `claims` beside the study's own."""
        claims: list[Claim] = _beside(self, "claims")(self, run) if self.decides else []
        return claims

    def resolved(self) -> Self:
        """With the device that `auto` means here."""
        import torch

        card = torch.cuda.is_available()
        if self.device == "cuda" and not card:
            raise UserError("--device: cuda was given, but torch sees no CUDA card here; allowed here: auto, cpu")
        chosen = ("cuda" if card else "cpu") if self.device == "auto" else self.device
        return type(self)(**(self.options() | {"device": chosen}))

    def options(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def config(self) -> dict[str, Any]:
        return {"study": self.name, "format": FORMAT, "options": self.options()}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        several = {field.name: isinstance(field.default, tuple) for field in fields(cls)}
        try:
            options: dict[str, Any] = {
                # What takes several values may have taken one when the file was written.
                k: tuple(v) if isinstance(v, list | tuple) else (v,) if several[k] else v
                for k, v in config["options"].items()
                if k in several
            }
            unsaid = _BEFORE_3 if config.get("format", FORMAT) < 3 else {}
            return cls(**{k: v for k, v in unsaid.items() if k in several} | options)
        except (KeyError, TypeError, AttributeError) as error:
            raise UserError(f"config.toml: is not one of {cls.name}; restore it, or move the folder away") from error

    @property
    def torch_dtype(self) -> torch.dtype:
        import torch

        return torch.float64 if self.dtype == "float64" else torch.float32

    def command(self) -> str:
        """What to type to make the same run again."""
        plain = type(self)()
        words = ["understudy run", self.name]
        for field in fields(self):
            value = getattr(self, field.name)
            if value != getattr(plain, field.name):
                shown = " ".join(word(v) for v in (value if isinstance(value, tuple) else (value,)))
                words.append(f"--{field.name.replace('_', '-')} {shown}")
        return " ".join(words)


def _beside(study: Study, name: str) -> Any:
    """A function of the module of the same name beside the study's own."""
    return getattr(import_module(f"{type(study).__module__.rpartition('.')[0]}.{name}"), name)


def word(value: Any) -> str:
    """As a person types it, and read back as the same value."""
    short = f"{value:g}" if isinstance(value, float) else shlex.quote(str(value))
    return short if not isinstance(value, float) or float(short) == value else repr(value)
