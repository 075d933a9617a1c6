"""What a study is: options that fix it, what to train or compute, which figures to draw, which claims follow."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Self

from understudy._devices import resolve_device
from understudy._errors import TooLargeError, UserError
from understudy._recorded import RECORDABLE, Recordable
from understudy.lab.options import (
    Among,
    Count,
    Distinct,
    MayBeEmpty,
    file_options,
    option,
    typed,
    validate_options,
)

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from understudy.nets import Loaded
    from understudy.report.story import Story
    from understudy.store import Claim, Run
    from understudy.store.tables import Table
    from understudy.training import Group, Optimiser

Tables = dict[str, Any]
Dtype = Literal["float32", "tf32", "float64"]

FORMAT = 3
"""Increases whenever the same options would give another result, so that old runs keep their own folders."""
_BEFORE_3: dict[str, Any] = {"decay": 0.0, "teacher_decay": 0.0}
"""Values of options that runs of earlier formats do not record."""
_MOST_PIECES = 100_000
"""Most pieces of a computed study: each has files of its own until the run is finished."""
_RANKED = (0, 1, 2, 3, 4, 6, 8, 10, 15, 20, 30, 40, 60, 80, 100)


@dataclass(frozen=True)
class Study:
    """Options that every study has, and what the lab asks of a study.

    A study is a frozen dataclass whose fields are its options. Subclass `TrainingStudy` to train populations of
    students or `ComputedStudy` to compute tables piece by piece; `understudy run` runs, resumes and reports both.
    """

    name: ClassVar[str]
    """The study's name on the command line."""
    summary: ClassVar[str]
    """What it shows, in one line."""
    figures: ClassVar[str]
    """The figures, tables and theorems of the papers that it reproduces."""
    decides: ClassVar[str] = ""
    """The ids of the claims that its runs decide, separated by spaces."""
    gains_from_gpu: ClassVar[bool] = False
    """Whether a GPU makes it much faster, so that `understudy reproduce` runs it there."""
    renamed: ClassVar[Mapping[str, str]] = {}
    """Former names of options, each with its present name: still understood, with a notice."""
    arrays: ClassVar[tuple[str, ...]] = ()
    """The largest arrays of numbers that the study holds at once, each as the options whose product is its size, such
    as `samples dim`: they must fit in memory. Populations that are trained by the lab are planned without it."""

    seeds: Count = 32
    """Number of seeds, counted from 1: each is a teacher, its data and its students' initial weights."""
    dtype: Dtype = "float32"
    """Training precision. tf32: float32 with TF32 matrix products on the GPU (faster, 11-bit mantissa)."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to train; auto uses a CUDA GPU if there is one."""

    @classmethod
    def quick(cls) -> Self:
        """The study with small defaults that finish in seconds."""
        return cls()

    def __post_init__(self) -> None:
        validate_options(self)
        self.validate()

    def validate(self) -> None:
        """Refuse combinations of options that cannot work, before anything is written."""

    def validate_files(self) -> None:
        """Refuse files named by options that cannot be used, before anything is written."""

    def require_data(self) -> None:
        """Refuse to run without downloaded files that the study needs, and say how to get them."""

    def read_networks(self) -> dict[str, Loaded]:
        """Networks of the user's that options name, by option, with what was assumed about their files."""
        return {}

    def depends_on(self) -> tuple[Study, ...]:
        """Studies whose runs this one starts from: run first, or read if they are finished."""
        return ()

    def warnings(self) -> tuple[str, ...]:
        """What a user should know about the chosen options although they do not stop the study."""
        return ()

    def story(self, run: Run) -> Story:
        """Contents of the report; by default `story(study, run)` of the module `story` next to the study's.

        A study in a single file has its function `story` there.

        Args:
            run: A finished run of the study.
        """
        story: Story = sibling(self, "story").story(self, run)
        return story

    def claims(self, run: Run) -> list[Claim]:
        """Claims that a run decides; by default `claims(study, run)` of the module `claims` next to the study's.

        A study in a single file has its `claims` there. Studies without `decides` decide none.

        Args:
            run: A finished run of the study.
        """
        if not self.decides:
            return []
        decide = sibling(self, "claims").claims
        claims: list[Claim] = decide(self, run)
        return claims

    def resolved(self) -> Self:
        """The study with the device that `auto` means here."""
        return type(self)(**(self.options() | {"device": resolve_device(self.device).type}))

    def options(self) -> dict[str, Any]:
        """The options by name, as plain values."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def config(self) -> dict[str, Any]:
        """What fixes the results of a run, and names its folder.

        It includes a hash of the contents of each file that an option names, so that a changed file gets a new folder.
        """
        self.validate_files()
        given = {name: Path(getattr(self, name)) for name in file_options(type(self)) if getattr(self, name)}
        contents = {n: hashlib.sha256(path.read_bytes()).hexdigest() for n, path in given.items() if path.is_file()}
        plain = {"study": self.name, "format": FORMAT, "options": self.options()}
        return plain | ({"contents": contents} if contents else {})

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """The study that a run's `config.toml` describes, also one written by an earlier version.

        Args:
            config: The contents of `config.toml`.

        Raises:
            UserError: The file does not describe a run of this study.
        """
        several = {field.name: isinstance(field.default, tuple) for field in fields(cls)}
        try:
            named = {cls.renamed.get(name, name): value for name, value in config["options"].items()}
            options: dict[str, Any] = {
                # An option that takes several values may have taken one when the file was written.
                k: tuple(v) if isinstance(v, list | tuple) else (v,) if several[k] else v
                for k, v in named.items()
                if k in several
            }
            earlier = _BEFORE_3 if config.get("format", FORMAT) < 3 else {}
            return cls(**{k: v for k, v in earlier.items() if k in several} | options)
        except (KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f"config.toml does not describe a run of {cls.name}; restore it, or move the folder away"
            ) from error

    @property
    def seed_names(self) -> range:
        """The seeds: 1, 2, …"""
        return range(1, self.seeds + 1)

    @property
    def torch_dtype(self) -> torch.dtype:
        """The dtype of tensors in the chosen precision."""
        import torch

        return torch.float64 if self.dtype == "float64" else torch.float32

    def command(self) -> str:
        """The command that makes the same run again."""
        plain = type(self)()
        words = ["understudy run", self.source_file or self.name]
        for field in fields(self):
            value = getattr(self, field.name)
            if value != getattr(plain, field.name):
                shown = " ".join(typed(v) for v in (value if isinstance(value, tuple) else (value,)))
                words.append(f"{option(field.name)} {shown}")
        return " ".join(words)

    source_file: ClassVar[str] = ""
    """The user's file that defines the study; empty for studies of an installed package."""


@dataclass(frozen=True, eq=False)
class Experiment:
    """What a study trains: groups of networks, and each network's swept parameters in the same order."""

    groups: tuple[Group, ...]
    parameters: tuple[dict[str, Any], ...]
    optimiser: Optimiser
    epochs: int
    steps: int
    pairs: bool = False
    """Whether to record the correlation of every pair of teacher and student nodes."""
    ranks: frozenset[int] = frozenset()
    """Epochs at which the rank of the final winners is recorded (`mean_rank` and `median_rank` among the metrics)."""
    record: frozenset[str] = frozenset()
    """Further metrics that the study needs: see `--record`."""
    keep: frozenset[int] = frozenset()
    """Epochs whose weights are saved, besides the first and the last."""


@dataclass(frozen=True)
class TrainingStudy(Study):
    """A study that trains populations of students and probes every network after every epoch."""

    gains_from_gpu: ClassVar[bool] = True

    record: Annotated[tuple[Recordable, ...], Among(RECORDABLE), Distinct(), MayBeEmpty()] = ()
    """Further metrics to record at every probe: norm of the gradient and five largest eigenvalues of the Hessian of the
    loss on the evaluation samples, students per teacher node, and, at some epochs, ranks of the final winners."""

    def options(self) -> dict[str, Any]:
        """The options by name; without `record` where it is empty, as before this option existed."""
        return {name: value for name, value in super().options().items() if name != "record" or value}

    def experiment(self, *runs: Run) -> Experiment:
        """Groups of networks to train, given the runs that the study depends on.

        Args:
            *runs: Finished runs of the studies that `depends_on` names, in that order.
        """
        raise NotImplementedError


class Piece(NamedTuple):
    """A piece of a computation: its name, its number of networks, and what computes its tables.

    `compute` is called with the index of the piece's first network.
    """

    name: str
    networks: int
    compute: Callable[[int], Tables]


class PiecesPlan(NamedTuple):
    """What a computed study would do here.

    Attributes:
        summary: One line.
        rows: Groups of networks, with the same columns in each.
        notes: Further lines, such as memory.
        seconds: About the time that it takes.
    """

    summary: str
    rows: tuple[dict[str, Any], ...]
    notes: tuple[str, ...]
    seconds: float


class Workplace(NamedTuple):
    """Place in which a long piece works.

    Attributes:
        state: Folder for its state, in which it finds what it saved before an interruption; removed when it is done.
        run: Folder of the run, for files that stay beside the tables, such as trained networks.
        say: Shows a line of progress to the user, unless it is empty. After Ctrl-C it raises `KeyboardInterrupt`.
    """

    state: Path
    run: Path
    say: Callable[[str], None]


class LongPiece(NamedTuple):
    """A piece that takes longer than half a minute, such as training: it saves its state and resumes from it.

    `compute` is called with the index of the piece's first network and its workplace, and uses any number of threads.
    """

    name: str
    networks: int
    compute: Callable[[int, Workplace], Tables]
    bytes: int = 0
    """About the disk space that its state and its files take."""


@dataclass(frozen=True)
class ComputedStudy(Study):
    """A study that computes its tables piece by piece, without the training loop.

    A piece returns its tables by name: `networks`, `metrics` and `nodes` where its unit is a network, a table named
    after the unit where it is something else (`sets`, `triples`), and `weights`: populations by name, the same names in
    every piece that has any. Pieces are saved as they are computed: a run that was stopped resumes at the piece it was
    in.
    """

    def pieces(self, *runs: Run) -> Iterable[Piece | LongPiece]:
        """Pieces to compute, given the runs that the study depends on; at most half a minute each, unless they resume.

        Args:
            *runs: Finished runs of the studies that `depends_on` names, in that order.
        """
        raise NotImplementedError

    table_title: ClassVar[str] = ""
    table_lead: ClassVar[str] = ""
    """Title of the table of the report, and what a row of it is."""

    def table(self, run: Run) -> Table:
        """Rows that a reader of the report can search and sort; by default none, and no table is shown.

        Args:
            run: A finished run of the study.
        """
        import pyarrow as pa

        return pa.table({})

    def planned(self) -> PiecesPlan | None:
        """What the study would compute, for --plan; None for a study that takes minutes."""
        return None

    def to_device(self, tensor: Tensor) -> Tensor:
        """Move a tensor to --device. Random tensors are drawn on the CPU first: the same bits for every device.

        Args:
            tensor: The tensor.
        """
        return tensor.to(self.resolved().device)


@dataclass(frozen=True)
class ExactStudy(ComputedStudy):
    """A computed study in float64 only, such as one of closed forms or theorems."""

    seeds: Count = 10
    """Number of seeds, counted from 1: each is a teacher and its students' initial weights."""
    dtype: Dtype = "float64"
    """Precision; float64 only."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dtype != "float64":
            raise UserError(f"--dtype must be float64, got {self.dtype}: {self.name} computes in float64 only")


def named_pieces(study: ComputedStudy, *runs: Run) -> dict[str, Callable[..., Tables]]:
    """Functions that compute the pieces of a study, by name, each with the index of its first network filled in.

    Long pieces have the type `LongCompute`, and are called with their workplace.
    """
    for warning in study.warnings():
        print(f"warning: {warning}", file=sys.stderr)
    named: dict[str, Callable[..., Tables]] = {}
    first = 0
    for piece in study.pieces(*runs):
        if len(named) == _MOST_PIECES:
            raise TooLargeError(f"{study.name} would have more than {_MOST_PIECES:,} pieces; choose smaller sizes")
        if isinstance(piece, LongPiece):
            named[piece.name] = LongCompute(partial(piece.compute, first), piece.bytes)
        else:
            named[piece.name] = partial(piece.compute, first)
        first += piece.networks
    return named


@dataclass(frozen=True)
class LongCompute:
    """Function that computes a long piece, and about the disk space that it takes."""

    compute: Callable[[Workplace], Tables]
    bytes: int

    def __call__(self, place: Workplace) -> Tables:
        return self.compute(place)


def ranked(epochs: int) -> tuple[int, ...]:
    """Epochs at which the rank of the final winners is recorded: closer together where learning is fast."""
    return (*(epoch for epoch in _RANKED if epoch < epochs), epochs)


def sibling(study: Study, name: str) -> Any:
    """The module of this name beside the one that defines the study, or a study that it derives from.

    For a study in a file of its own it is that file, if it defines the name.
    """
    for kind in type(study).__mro__:
        package = kind.__module__.rpartition(".")[0]
        if package.startswith("understudy.lab"):
            break
        if not package:
            if hasattr(own := sys.modules.get(kind.__module__), name):
                return own
            continue
        with suppress(ModuleNotFoundError):
            return import_module(f"{package}.{name}")
    raise TypeError(f"{type(study).__name__} has no method {name}, and there is no module {name} beside it")
