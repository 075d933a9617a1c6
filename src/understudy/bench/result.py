"""All measurements in turn: one object for programs, goals and a headline for people."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from understudy._cores import cores
from understudy.bench.clock import OtherLoad, Repetitions
from understudy.bench.exact import ExactStep, SmallProblems, exact_step, small_problems
from understudy.bench.exit_training import ExitTraining, exit_training
from understudy.bench.goals import Goal
from understudy.bench.populations import Cost, costs
from understudy.bench.rates import Probing, Rates, probing, rates
from understudy.bench.setting import Report, Sizes
from understudy.bench.sweep import Swept
from understudy.bench.variants import DeepRate, Variants, deep_rates, variants
from understudy.store.environment import environment

_SHARES: dict[int, tuple[float, float]] = {20: (0.3, 0.5), 200: (0.6, 0.8)}


@dataclass(frozen=True)
class Bench:
    """Measurements of one machine."""

    device: str
    sizes: Sizes
    rates: dict[int, Rates]
    probing: Probing
    costs: list[Cost]
    exact: ExactStep
    small: SmallProblems
    environment: dict[str, Any]
    others: float
    """Share of the cores that other programs used during the measurement."""
    variants: dict[int, Variants] = field(default_factory=dict)
    """Other optimisers and objectives by width, on a CPU only."""
    deep: dict[str, DeepRate] = field(default_factory=dict)
    """Networks of several layers by their sizes, on a CPU only."""
    exits: ExitTraining | None = None
    """Networks with several exits, on a GPU only."""
    swept: Swept | None = None

    @property
    def machine(self) -> str:
        """Name of the GPU, or name of the CPU with the number of cores that were used."""
        made = self.environment
        return made["device"] if self.device == "cuda" else f"{made['processor']}, {cores()} cores"

    @property
    def peak(self) -> float:
        """FLOP/s of the large matrix product."""
        return Repetitions(tuple(value for rate in self.rates.values() for value in rate.peak.values)).median

    @property
    def cost(self) -> dict[int, Repetitions]:
        """Seconds per network-step by population: the ratio to the reference, times the reference's median."""
        reference = Repetitions(tuple(value for cost in self.costs for value in cost.reference.values)).median
        return {cost.networks: cost.ratio * reference for cost in self.costs}

    @property
    def flatness(self) -> float:
        """Cost of the dearest network-step divided by that of the cheapest."""
        each = [cost.median for cost in self.cost.values()]
        return max(each) / min(each)

    def goals(self) -> list[Goal]:
        """All goals in the order in which they are shown; most are set for the CPU alone, a few for the GPU.

        Batching small problems must gain a factor of ten on one core: a step of one problem alone is about 20 calls of
        Python, torch and numpy, each of a microsecond or more, around some 17,000 operations (13 × 13 pairs of 100).
        """
        cpu = self.device == "cpu"

        def on_cpu(*bounds: float) -> tuple[float, ...]:
            return bounds if cpu else ()

        networks = [cost.networks for cost in self.costs]
        m, r, d = self.sizes.exact
        count, small_m, small_r, small_d = self.sizes.small
        large = f"a step on the exact loss, m = {m:,}, r = {r}, d = {d}, over its matrix products alone"
        many = f"{count:,} problems of m = {small_m}, r = {small_r}, d = {small_d} on the exact loss"
        swept, by_n = None if self.swept is None else Repetitions((self.swept.seconds,)), self.rates.items()
        shares = [
            Goal(f"steps at n = {n}, share of the peak", "share", rate.share_of_peak, *on_cpu(*_SHARES.get(n, ())))
            for n, rate in by_n
        ]
        times = [
            Goal(f"steps at n = {n}, against the plain loop", "times", rate.against_plain, *on_cpu(20.0, 50.0))
            for n, rate in by_n
        ]
        dearest = f"dearest network-step of {min(networks):,} to {max(networks):,} networks"
        whole = "the whole two-layer study (--sweep)"
        return [
            *shares,
            *times,
            Goal("probing, share of the whole", "share", self.probing.share, 0.2, 0.1, most=True),
            Goal(dearest, "times", Repetitions((self.flatness,)), 1.3, most=True),
            Goal(large, "times", self.exact.ratio, *on_cpu(2.0), most=True),
            Goal(f"{many}, batched against one by one", "times", self.small.gain, *on_cpu(10.0, 20.0)),
            *self._variant_goals(),
            *self._exit_goals(),
            Goal(whole, "seconds", swept, *(() if cpu else (60.0, 15.0)), most=True),
        ]

    def _variant_goals(self) -> list[Goal]:
        """Goals of other optimisers, objectives and depths, where they were measured: on a CPU."""
        against = [
            Goal(f"steps with {name} at n = {n}, against plain SGD", "share", ratio, 0.7, 0.9)
            for n, each in self.variants.items()
            for name, ratio in each.ratios.items()
        ]
        shares = [
            Goal(f"steps of {name}, share of the peak", "share", each.share_of_peak, 0.5, 0.75)
            for name, each in self.deep.items()
        ]
        return against + shares

    def _exit_goals(self) -> list[Goal]:
        """Goals of networks with several exits, where they were measured: on a GPU, which their engine needs."""
        if self.exits is None:
            return []
        step = f"network-step of {self.sizes.exit_networks} networks with {len(self.sizes.exit_grid.exits)} exits"
        return [
            Goal(step, "milliseconds", self.exits.milliseconds, 10.0, 5.0, most=True),
            Goal(f"{step}, against the plain engine", "times", self.exits.gain),
        ]

    def headline(self) -> str:
        """Summarise the measurements in one sentence."""
        n, widest = max(self.rates.items())
        asked = [goal.reached for goal in self.goals() if goal.reached]
        return (
            f"On {self.machine}, students of {n} nodes train at {widest.share_of_peak.median:.0%} of the rate of a "
            f"large matrix product and {widest.against_plain.median:.1f} times as fast as the plain loop; "
            f"{len(asked) - asked.count('neither')} of {len(asked)} goals are reached."
        )

    def as_dict(self) -> dict[str, Any]:
        """All medians, their ranges under `spread`, and every timing under `raw`."""
        by_n = {str(n): rate for n, rate in self.rates.items()}
        tables = {
            "share_of_peak": {n: rate.share_of_peak for n, rate in by_n.items()},
            "against_plain_loop": {n: rate.against_plain for n, rate in by_n.items()},
            "plain_share_of_peak": {n: rate.plain_share_of_peak for n, rate in by_n.items()},
            "probe_share_by_n": {n: rate.probing.share for n, rate in by_n.items()},
            "cost_by_population": {str(networks): cost for networks, cost in self.cost.items()},
            "deep_share_of_peak": {name: each.share_of_peak for name, each in self.deep.items()},
        }
        tables |= {f"against_plain_sgd_{n}": each.ratios for n, each in self.variants.items()}
        single = {"probe_share": self.probing.share, "exact_step": self.exact.ratio, "small_problems": self.small.gain}
        if self.exits is not None:
            single |= {"exit_milliseconds": self.exits.milliseconds, "exit_against_plain": self.exits.gain}
        return {
            "device": self.machine,
            **{name: {key: value.median for key, value in table.items()} for name, table in tables.items()},
            **{name: value.median for name, value in single.items()},
            "flatness": self.flatness,
            "peak_memory_by_population": {str(cost.networks): cost.peak_bytes for cost in self.costs},
            "sweep": None if self.swept is None else asdict(self.swept),
            "goals": [goal.as_dict() for goal in self.goals()],
            "headline": self.headline(),
            "spread": {
                **{name: {key: value.spread for key, value in table.items()} for name, table in tables.items()},
                **{name: value.spread for name, value in single.items()},
            },
            "peak_flops": self.peak,
            "precision": "float32",
            "engine": {n: rate.engine for n, rate in by_n.items()},
            "threads": cores(),
            "others": self.others,
            "environment": self.environment,
            "sizes": asdict(self.sizes),
            "raw": {
                "rates": {n: asdict(rate) for n, rate in by_n.items()},
                "probing": asdict(self.probing),
                "variants": {str(n): asdict(each) for n, each in self.variants.items()},
                "deep": {name: asdict(each) for name, each in self.deep.items()},
                "populations": [asdict(cost) for cost in self.costs],
                "exact_step": asdict(self.exact),
                "small_problems": asdict(self.small),
                "exit_training": None if self.exits is None else asdict(self.exits),
            },
        }


def measure(device: str, report: Report, sizes: Sizes | None = None) -> Bench:
    """Measure how fast this machine trains, in everything except the sweep.

    Args:
        device: `cpu` or `cuda`.
        report: Called with a line of text after every repetition.
        sizes: Sizes of the measurements. Default: those that fill the device.

    Returns:
        All measurements except the sweep's.
    """
    sizes = sizes or Sizes.of(device)
    made, load = environment(device), OtherLoad()
    steps, probes = rates(sizes, device, report), probing(sizes, device, report)
    populations = costs(sizes, device, report)
    exact, small = exact_step(sizes, device, report), small_problems(sizes, device, report)
    others, deep = variants(sizes, report), deep_rates(sizes, report)
    exits = exit_training(sizes, device, report)
    return Bench(device, sizes, steps, probes, populations, exact, small, made, load.share(), others, deep, exits)
