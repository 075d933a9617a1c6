"""The study `two-layer`: students of several widths, teachers of several sizes and polarities.

Tian 2020, figs 5, 7, 8; Tian 2019, figs 3, 5, 7, 11.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import understudy as us
from understudy._errors import UserError
from understudy._numbers import number
from understudy.lab.options import Counts, InputFile, option, typed, validate_batch, validate_widths
from understudy.lab.study import Experiment, TrainingStudy
from understudy.papers.specialization.shared import OverRealized

if TYPE_CHECKING:
    from understudy.store import Claim

_DECIDED = ("teacher_nodes", "dim", "outputs", "polarity")
"""Options that a teacher of one's own decides."""
EPOCHS = 100
"""Epochs of the papers' figures. Longer runs keep the weights of this epoch, at which their claims are decided."""


@dataclass(frozen=True)
class TwoLayer(OverRealized, TrainingStudy):
    """Which student node learns which teacher node in two layers, and how over-realization and strength decide it."""

    name: ClassVar[str] = "two-layer"
    summary: ClassVar[str] = "over-realization and teacher strength decide which nodes are learned, and when"
    figures: ClassVar[str] = "S0 figs. 5, 7, 8; S1 figs. 3, 5, 7, 11"
    decides: ClassVar[str] = "T1 T2 T3 T4 T5 T6 T10 T11"

    teacher_nodes: Counts = (5, 10, 20)
    """Hidden nodes of the teacher: 10 in Tian 2020, fig. 5, 20 in figs 7 and 8."""
    inputs: Literal["gaussian", "uniform"] = "gaussian"
    """Distribution of each input; uniform is U[−a, a] with a = √3 times the standard deviation."""
    leaky: float = 0.0
    """Slope of the activation below zero, for teacher and student: 0 is ReLU."""
    teacher: InputFile = ""
    """File of a two-layer teacher of your own, the same for all seeds. It decides --teacher-nodes, --dim and --outputs,
    and stands as polarity 0, with fan-outs as they are; --leaky is for files that do not record the slope. No claim of
    the papers is then decided."""

    @classmethod
    def quick(cls) -> Self:
        return cls(seeds=6, teacher_nodes=(20,), polarity=(1.0, 2.0), multiple=(1.0, 5.0), epochs=25, evaluation=2_000)

    @property
    def variant_words(self) -> str:
        """What differs from ReLU on the Gaussian inputs of the papers' figures."""
        from understudy.papers.specialization.two_layer.claims import FIGURES_STD

        inputs = f"std {self.input_std:g}" if self.input_std != FIGURES_STD else ""
        if self.inputs == "uniform":
            inputs = f"uniform ±{math.sqrt(3) * self.input_std:.2g}"
        return ", ".join(part for part in (f"leaky {self.leaky:g}" if self.leaky else "", inputs) if part)

    def source(self) -> us.data.Source:
        kind = us.data.Gaussian if self.inputs == "gaussian" else us.data.Uniform
        return kind(self.dim, self.input_std, self.train, self.evaluation)

    def experiment(self, *runs: us.Run) -> Experiment:
        return self.training(self.groups(self.leaky), keep=frozenset({EPOCHS} if self.epochs > EPOCHS else ()))

    def teachers(self, nodes: int, slope: float = 0.0) -> us.Population:
        """One teacher per polarity and seed: drawn, or the user's own."""
        if not self.teacher:
            return super().teachers(nodes, slope)
        loaded = self._read_teacher()
        own = loaded.population
        print(f"{loaded}, slope {number(own.slope, 'g')} below zero", file=sys.stderr)
        seeds = [cell["seed"] for cell in self.cells]
        each = own[[0] * len(seeds)].to(dtype=self.torch_dtype)
        return replace(each, seeds=each.seeds.new_tensor(seeds))

    def validate(self) -> None:
        if self.teacher:
            validate_batch(self.train, self.batch)
        else:
            super().validate()

    def validate_files(self) -> None:
        if self.teacher:
            self._own_teacher()

    def resolved(self) -> Self:
        """The study on the device that `auto` means here, with the options that a teacher of one's own decides."""
        study = super().resolved()
        if not study.teacher:
            return study
        own = study._own_teacher()
        dim, nodes, outputs = own.sizes
        decided: dict[str, Any] = dict(zip(_DECIDED, ((nodes,), dim, outputs, (0.0,)), strict=True))
        for name, value in decided.items():
            given = getattr(study, name)
            if given not in (value, getattr(type(self)(), name), getattr(type(self).quick(), name)):
                shown = " ".join(typed(v) for v in (given if isinstance(given, tuple) else (given,)))
                raise UserError(f"{option(name)} is decided by --teacher {study.teacher}, got {shown}; omit it")
        validate_widths(nodes, study.multiple)
        return replace(study, **decided, leaky=own.slope)

    def read_networks(self) -> dict[str, us.nets.Loaded]:
        return {"teacher": self._read_teacher()} if self.teacher else {}

    def _own_teacher(self) -> us.Population:
        return self._read_teacher().population

    def _read_teacher(self) -> us.nets.Loaded:
        from understudy.nets.files.loading import read_stack

        loaded = read_stack(self.teacher, self.leaky or None)
        own = loaded.population
        if len(own) != 1 or len(own.sizes) != 3 or own.image is not None:
            raise UserError(
                f"--teacher must be a file of one network of two fully connected layers, got {own} in {self.teacher}; "
                "us.save(population, FILE, which=0) saves one of several"
            )
        return loaded

    def command(self) -> str:
        """The command that makes the same run again, without the options that a teacher of one's own decides."""
        default = {name: getattr(type(self)(), name) for name in _DECIDED if self.teacher}
        return super(TwoLayer, replace(self, **default)).command()

    def config(self) -> dict[str, Any]:
        """What fixes the results of a run; without a teacher of one's own as before this option existed."""
        config = super().config()
        if not self.teacher:
            del config["options"]["teacher"]
        return config

    def claims(self, run: us.Run) -> list[Claim]:
        """The claims of the papers, which are about the papers' teachers."""
        return [] if self.teacher else super().claims(run)
