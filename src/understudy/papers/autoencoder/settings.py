"""Settings of the studies of Phuong 2021, ch. 4: the mutual autoencoder, and other remedies against collapsed codes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from understudy._numbers import number

if TYPE_CHECKING:
    from understudy.training.latent.objective import CodeObjective

Method = Literal["mutual", "annealing", "free-bits", "beta"]
MUTUAL, ANNEALING, FREE_BITS, BETA = get_args(Method)
METHOD_NAMES = {
    MUTUAL: "mutual autoencoder",
    ANNEALING: "KL annealing",
    FREE_BITS: "free bits",
    BETA: "β-VAE",
}
CARRIED = 18.343
"""Most nats that one coordinate of a code in float32 can carry (`information_limit`), rounded down."""
Start = Literal["prior", "scattered"]
PRIOR: Start = "prior"
SCATTERED: Start = "scattered"


class CodeSetting(NamedTuple):
    """What distinguishes networks besides their seed.

    Attributes:
        method: `mutual` (the mutual autoencoder), `annealing`, `free-bits` or `beta`.
        strength: M in nats, the share of the steps over which the KL term warms up, λ in nats, or β.
        penalty: C; NaN for the other methods.
        resamples: Codes that the encoder draws for each row.
        start: Initial encoder: the prior, or scattered.
    """

    method: str
    strength: float
    penalty: float = math.nan
    resamples: int = 1
    start: Start = PRIOR

    @property
    def target(self) -> float | None:
        """M in nats; None for the other methods."""
        return self.strength if self.method == MUTUAL else None

    @property
    def label(self) -> str:
        """The setting in words, without what is usual."""
        words = {
            MUTUAL: f"M = {number(self.strength, '.4g')}, C = {self.penalty:g}",
            ANNEALING: f"warm-up {self.strength:.0%}",
            FREE_BITS: f"λ = {self.strength:g}",
            BETA: f"β = {self.strength:g}",
        }[self.method]
        words += f", k = {self.resamples}" if self.resamples > 1 else ""
        return words + (f", {self.start} start" if self.start != PRIOR else "")

    def objective(self, steps: int) -> CodeObjective:
        """What is maximised.

        Args:
            steps: Steps of the whole training.
        """
        from understudy.training.latent.objective import CodeObjective

        match self.method:
            case "mutual":
                return CodeObjective(target=self.strength, penalty=self.penalty)
            case "annealing":
                return CodeObjective(warm_up=round(self.strength * steps))
            case "free-bits":
                return CodeObjective(free_bits=self.strength)
        return CodeObjective(beta=self.strength)


class CodeMember(NamedTuple):
    """A network of a study."""

    setting: CodeSetting
    seed: int

    @property
    def file(self) -> str:
        """Name of the file with its weights."""
        setting = self.setting
        words = f"{setting.method}-{setting.strength:.6g}"
        words += f"-c{setting.penalty:g}" if setting.method == MUTUAL else ""
        words += f"-k{setting.resamples}" if setting.resamples > 1 else ""
        words += f"-{setting.start}" if setting.start != PRIOR else ""
        return f"{words}-seed{self.seed}.safetensors"
