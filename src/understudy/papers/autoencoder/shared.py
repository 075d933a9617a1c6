"""Options that the studies of codes of one coordinate share (Phuong 2021, ch. 4), and the pieces that they compute."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar, get_args

from annotated_types import Ge, Gt, Le

from understudy._errors import UserError
from understudy._numbers import number
from understudy.lab.options import Among, Count, Distinct, NonNegatives, Positive, Positives, Steps
from understudy.lab.pieces import blocks
from understudy.lab.study import ComputedStudy, Dtype, LongPiece
from understudy.papers.autoencoder.settings import (
    ANNEALING,
    BETA,
    CARRIED,
    FREE_BITS,
    MUTUAL,
    CodeMember,
    CodeSetting,
    Method,
)

if TYPE_CHECKING:
    from torch import Tensor

    from understudy.lab.study import Tables
    from understudy.nets.latent.model import LatentModel
    from understudy.store import Run
    from understudy.store.tables import Table
    from understudy.training.latent.plan import CodeNetwork, CodePlan, Part

_PROBES = 30


@dataclass(frozen=True)
class CodeStudy(ComputedStudy):
    """Options of studies that train mutual autoencoders and other remedies with a code of one coordinate."""

    table_title: ClassVar[str] = "Settings"
    table_lead: ClassVar[str] = (
        "Exact values of the trained models in nats, averaged over seeds. Information: I(z, x); least and most: its "
        "range over seeds; bound: H(z) + E log r(z|x); likelihood: mean log p(x); elbo: its lower bound; gap: how far "
        "this bound is below its optimum, minus the entropy of the data; kl: the KL term of the bound."
    )

    arrays: ClassVar[tuple[str, ...]] = ("batch width", "samples width", "width width")

    seeds: Count = 3
    """Number of seeds: each is the initial weights, the data and the noise."""
    first_seed: Steps = 1
    """The first seed. Settings are chosen on seeds from 101 on, and claims decided on seeds from 1 on."""
    dtype: Dtype = "float32"
    """Training precision; float32 only. Information, likelihoods and gaps are computed in float64."""
    targets: NonNegatives = (0.0, 1.0)
    """Information M between code and data that is asked for, in nats."""
    penalties: Positives = (1.0, 0.2, 5.0)
    """Weights C of the distance from the target. The first is the usual one."""
    methods: Annotated[tuple[Method, ...], Among(get_args(Method)), Distinct()] = get_args(Method)
    """Methods: mutual (the mutual autoencoder), and three other remedies against collapsed codes: annealing (the KL
    term is warmed up), free-bits (it is not penalised below λ), beta (it has the weight β)."""
    warm_ups: Annotated[tuple[float, ...], Gt(0), Le(1), Distinct()] = (0.5,)
    """Annealing: shares of the steps over which the weight of the KL term rises from 0 to 1."""
    free_bits: Positives = (0.6, 1.2, 1.8)
    """Free bits: λ, the KL term below which it is not penalised, in nats."""
    betas: NonNegatives = (1.0, 0.8, 0.5)
    """β: weights of the KL term; 1 is the plain variational autoencoder."""
    steps: Steps = 2_000
    """Updates of the model, each followed by one of the inference network."""
    width: Count = 64
    """Nodes of each hidden layer; networks have two."""
    batch: Count = 160
    """Rows of data per update."""
    samples: Annotated[int, Ge(2)] = 256
    """Samples of the model per update, by which the information is estimated."""
    rate: Positive = 1e-3
    """Learning rate of Adam for networks."""
    decayed: Annotated[float, Ge(0), Le(1)] = 0.0
    """Share of the steps, the last ones, over which learning rates fall linearly to 0."""

    together: Steps = 64
    """Most networks that are trained side by side; more at once are faster on a GPU, and slower on a CPU, whose cache
    they exceed."""

    def validate(self) -> None:
        if self.dtype != "float32":
            raise UserError(f"--dtype must be float32, got {self.dtype}: {self.name} trains in float32 only")
        if (highest := max(self.targets)) > CARRIED:
            raise UserError(
                f"--targets must be at most {number(CARRIED, '.3f')} nats, what a code of 1 coordinate in float32 can "
                f"carry, got {number(highest, 'g')}"
            )

    @property
    def seed_names(self) -> range:
        """The seeds, from the first on."""
        return range(self.first_seed, self.first_seed + self.seeds)

    def mutual(self, penalty: float | None = None) -> tuple[CodeSetting, ...]:
        """Settings of the mutual autoencoder with the usual encoder, one for each target.

        Args:
            penalty: C; by default the usual one.
        """
        if MUTUAL not in self.methods:
            return ()
        return tuple(CodeSetting(MUTUAL, each, penalty or self.penalties[0]) for each in self.targets)

    def remedies(self) -> tuple[CodeSetting, ...]:
        """Settings of the other methods."""
        strengths = {ANNEALING: self.warm_ups, FREE_BITS: self.free_bits, BETA: self.betas}
        named = [name for name in strengths if name in self.methods]
        return tuple(CodeSetting(name, each) for name in named for each in strengths[name])

    def settings(self) -> tuple[CodeSetting, ...]:
        """All settings, each of which is trained with every seed; those of the mutual autoencoder come first."""
        return (*(setting for penalty in self.penalties for setting in self.mutual(penalty)), *self.remedies())

    def members(self) -> tuple[CodeMember, ...]:
        """All networks, in the order of their numbers."""
        return tuple(CodeMember(setting, seed) for setting in self.settings() for seed in self.seed_names)

    def code_plan(self, members: Sequence[CodeMember]) -> CodePlan:
        """Plan to train some networks side by side.

        Args:
            members: Some of the networks.
        """
        from understudy.training.latent.plan import CodePlan

        probes = {round(self.steps * i / _PROBES) for i in range(1, _PROBES + 1)} - {0}
        return CodePlan(
            tuple(self.network(each) for each in members),
            self.steps,
            batch=self.batch,
            samples=self.samples,
            rates=self.rates(),
            decayed=self.decayed,
            probes=tuple(probes),
        )

    def network(self, member: CodeMember) -> CodeNetwork:
        """Entry of a network in the plan.

        Args:
            member: The network.
        """
        from understudy.training.latent.plan import CodeNetwork

        return CodeNetwork(member.seed, member.setting.objective(self.steps), member.setting.resamples)

    def rates(self) -> dict[Part, float]:
        """Learning rates by part."""
        return {"encoder": self.rate, "decoder": self.rate, "infer": self.rate}

    def build(self, network: CodeNetwork) -> LatentModel:
        """Make a network with its initial weights.

        Args:
            network: Its entry in the plan.
        """
        raise NotImplementedError

    def draw(self, seed: int, step: int, count: int) -> Tensor:
        """Draw a batch of data.

        Args:
            seed: Seed.
            step: Step of the training.
            count: Number of rows.
        """
        raise NotImplementedError

    def measure(self, model: LatentModel, member: CodeMember) -> tuple[dict[str, float], Tables]:
        """Measure a trained network exactly.

        Args:
            model: The network.
            member: Its setting and seed.

        Returns:
            Values by metric, and further tables, to whose rows the number of the network is added.
        """
        raise NotImplementedError

    def pieces(self, *runs: Run) -> Iterator[LongPiece]:
        from understudy.papers.autoencoder.training import measure_exactly, train_members

        members = self.members()
        for some in blocks(range(len(members)), self.together):
            words = f"training of networks {some[0]:,} to {some[-1]:,}"
            yield LongPiece(words, len(some), partial(train_members, self, members[some[0] : some[-1] + 1]))
        for start in range(0, len(members), self.seeds):
            some, words = range(start, start + self.seeds), members[start].setting.label
            yield LongPiece(f"exact values, {words}", 0, partial(measure_exactly, self, some))

    def table(self, run: Run) -> Table:
        from understudy.papers.autoencoder.results import setting_table

        return setting_table(self, run)
