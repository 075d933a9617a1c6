"""A benchmark of chosen numbers."""

from understudy.bench import Bench
from understudy.bench.clock import Repetitions
from understudy.bench.exact import ExactStep, SmallProblems
from understudy.bench.populations import Cost
from understudy.bench.rates import Probing, Rates
from understudy.bench.setting import Sizes, step_flops


def made_bench() -> Bench:
    """A benchmark of numbers that can be checked by hand."""
    probing = Probing(Repetitions((3.0, 3.0, 6.0)), Repetitions((1.0, 2.0, 2.0)), 48)
    peak, plain = Repetitions((1e11, 2e11, 1e11)), Repetitions((1e4, 1e4, 2e4))
    rates = {
        n: Rates(peak, Repetitions((1e5, 2e5, 3e5)), plain, probing, step_flops((100, n, 50), 16), "batched")
        for n in (20, 100, 200)
    }
    costs = [
        Cost(32, 1_000, Repetitions((2e-6, 2e-6, 2e-6)), Repetitions((2e-6, 2e-6, 2e-6)), 10**8),
        Cost(10_000, 100, Repetitions((3e-6, 5e-6, 2e-6)), Repetitions((2e-6, 4e-6, 2e-6)), 10**9),
    ]
    made = {"device": "NVIDIA H200", "processor": "a processor", "packages": {"torch": "2"}, "commit": None}
    exact = ExactStep(Repetitions((3e-3, 4e-3, 9e-3)), Repetitions((2e-3, 2e-3, 3e-3)))
    small = SmallProblems(Repetitions((2e-6, 1e-6, 4e-6)), Repetitions((3e-5, 3e-5, 6e-5)))
    return Bench("cpu", Sizes(), rates, probing, costs, exact, small, made, others=0.4)
