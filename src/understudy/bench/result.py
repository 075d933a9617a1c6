"""All measurements, one after the other, as one object for a program and as goals for a person."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from understudy.bench import goals
from understudy.bench.clock import Company, Measured
from understudy.bench.exact import ExactStep, SmallProblems, exact_step, small_problems
from understudy.bench.populations import Cost, costs
from understudy.bench.probing import Probing, probing
from understudy.bench.rates import Rates, rates
from understudy.bench.setting import Sizes, Tell
from understudy.bench.sweep import Swept
from understudy.store.environment import environment
from understudy.training.parallel import cores


@dataclass(frozen=True)
class Bench:
    """What was measured on one machine."""

    device: str
    sizes: Sizes
    rates: dict[int, Rates]
    probing: Probing
    costs: list[Cost]
    exact: ExactStep
    small: SmallProblems
    environment: dict[str, Any]
    others: float | None
    """What other programs took of the cores meanwhile."""
    swept: Swept | None = None

    @property
    def machine(self) -> str:
        """The card's name, or the processor's with the cores that were used."""
        made = self.environment
        return made["device"] if self.device == "cuda" else f"{made['processor']}, {cores()} cores"

    @property
    def peak(self) -> float:
        """Floating point operations a second of the large product."""
        return Measured(tuple(value for rate in self.rates.values() for value in rate.peak.values)).median

    @property
    def cost(self) -> dict[int, Measured]:
        """Seconds a network-step by population: its ratio to the reference, times what that cost throughout."""
        reference = Measured(tuple(value for cost in self.costs for value in cost.reference.values)).median
        return {cost.networks: Measured(tuple(v * reference for v in cost.ratio.values)) for cost in self.costs}

    @property
    def flatness(self) -> float:
        """The dearest network-step against the cheapest."""
        each = [cost.median for cost in self.cost.values()]
        return max(each) / min(each)

    def goals(self) -> list[goals.Goal]:
        """What was asked, in the order in which they are shown."""
        networks = [cost.networks for cost in self.costs]
        swept = None if self.swept is None else Measured((self.swept.seconds,))
        return [
            *(goals.share_of_peak(n, r.share_of_peak, self.device) for n, r in self.rates.items()),
            *(goals.against_plain_loop(n, r.against_plain, self.device) for n, r in self.rates.items()),
            goals.probe_share(self.probing.share),
            goals.flatness(Measured((self.flatness,)), min(networks), max(networks)),
            goals.exact_step(self.exact.ratio, self.sizes.exact, self.device),
            goals.small_problems(self.small.gain, self.sizes.small, self.device),
            goals.sweep(swept, self.device),
        ]

    def headline(self) -> str:
        """What was found, in one sentence."""
        n, widest = max(self.rates.items())
        asked = [goal.reached for goal in self.goals() if goal.reached]
        return (
            f"On {self.machine}, students of {n} nodes train at {widest.share_of_peak.median:.0%} of the rate of a "
            f"large matrix product and {widest.against_plain.median:.1f} times as fast as the plain loop; "
            f"{len(asked) - asked.count('neither')} of {len(asked)} goals are reached."
        )

    def as_dict(self) -> dict[str, Any]:
        """One object: the numbers, between which values they lie, and all that was timed."""
        return {
            "device": self.machine,
            "share_of_peak": _by(self.rates, lambda r: r.share_of_peak.median),
            "against_plain_loop": _by(self.rates, lambda r: r.against_plain.median),
            "plain_share_of_peak": _by(self.rates, lambda r: r.plain_share_of_peak.median),
            "probe_share": self.probing.share.median,
            "probe_share_by_n": _by(self.rates, lambda r: r.looking.share.median),
            "cost_by_population": {str(networks): cost.median for networks, cost in self.cost.items()},
            "flatness": self.flatness,
            "peak_memory_by_population": {str(cost.networks): cost.peak_bytes for cost in self.costs},
            "exact_step": self.exact.ratio.median,
            "small_problems": self.small.gain.median,
            "sweep": None if self.swept is None else asdict(self.swept),
            "goals": [goal.as_dict() for goal in self.goals()],
            "headline": self.headline(),
            "spread": {
                "share_of_peak": _by(self.rates, lambda r: r.share_of_peak.spread),
                "against_plain_loop": _by(self.rates, lambda r: r.against_plain.spread),
                "plain_share_of_peak": _by(self.rates, lambda r: r.plain_share_of_peak.spread),
                "probe_share": self.probing.share.spread,
                "probe_share_by_n": _by(self.rates, lambda r: r.looking.share.spread),
                "cost_by_population": {str(networks): cost.spread for networks, cost in self.cost.items()},
                "exact_step": self.exact.ratio.spread,
                "small_problems": self.small.gain.spread,
            },
            "peak_flops": self.peak,
            "precision": "float32",
            "engine": _by(self.rates, lambda r: r.engine),
            "threads": cores(),
            "others": self.others,
            "environment": self.environment,
            "sizes": asdict(self.sizes),
            "raw": {
                "rates": _by(self.rates, asdict),
                "probing": asdict(self.probing),
                "populations": [asdict(cost) for cost in self.costs],
                "exact_step": asdict(self.exact),
                "small_problems": asdict(self.small),
            },
        }


def _by(rates: Mapping[int, Rates], read: Callable[[Rates], Any]) -> dict[str, Any]:
    return {str(n): read(rate) for n, rate in rates.items()}


def measure(device: str, tell: Tell, sizes: Sizes | None = None) -> Bench:
    """Everything but the sweep, on `cpu` or `cuda`."""
    sizes = sizes or Sizes.of(device)
    made = environment(device)
    company = Company()
    steps, looks, populations = rates(sizes, device, tell), probing(sizes, device, tell), costs(sizes, device, tell)
    exact, small = exact_step(sizes, device, tell), small_problems(sizes, device, tell)
    return Bench(device, sizes, steps, looks, populations, exact, small, made, company.share())
