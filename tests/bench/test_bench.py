"""The benchmark: its results, and the fairness of its plain loop. No timings are tested."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import understudy as us
from support.benchmarks import made_bench
from support.reference_loop import reference
from understudy import bench
from understudy.bench.clock import Repetitions, lasting
from understudy.bench.exit_training import ExitTraining, compare_engines, exit_training
from understudy.bench.goals import Goal
from understudy.bench.picture import cost_by_population, cost_curve
from understudy.bench.plain import PlainLoop
from understudy.bench.setting import Sizes, step_flops
from understudy.bench.variants import DeepRate, Variants
from understudy.nets.multi_exit.grid import Grid
from understudy.training import SGD, Group, SquaredError, Training
from understudy.training.engines import ENGINES
from understudy.training.multi_exit.plain import PlainEngine
from understudy.training.problem import batch_indices

SMALL = Sizes(
    dim=6,
    teacher_nodes=3,
    outputs=4,
    multiples=(1, 2),
    mix=(1, 2),
    polarity=(0.0, 1.0),
    seeds=2,
    mix_seeds=1,
    steps=5,
    train=32,
    evaluation=32,
    repetitions=2,
    least=0.0,
    product=16,
    populations=(2, 9),
    population_seeds=2,
    population_repetitions=2,
    variant_widths=(3, 6),
    deep=((1, 1), (1, 1, 1)),
    deep_batch=4,
    deep_networks=2,
    exact=(7, 2, 3),
    small=(6, 3, 2, 3),
)

EXIT_GRID = Grid(classes=3, image=8, channels=(2,), layers=2, exits=(1, 2), bottleneck=1, head=4)
EXITS = ExitTraining(Repetitions((5e-3, 4e-3, 6e-3)), Repetitions((4e-2, 6e-2, 6e-2)))


@pytest.fixture(scope="module")
def small():
    """A whole benchmark of small sizes, and the lines in which it reported its progress."""
    lines = []
    return bench.measure("cpu", lines.append, SMALL), lines


def test_the_object_has_the_keys_that_programs_read(small):
    result = json.loads(json.dumps(small[0].as_dict(), allow_nan=False))
    for key in ("share_of_peak", "against_plain_loop", "probe_share_by_n"):
        assert set(result[key]) == {"3", "6"}
        assert all(value >= 0 for value in result[key].values())
    assert 0 <= result["probe_share"] < 1
    assert set(result["cost_by_population"]) == {"2", "9"}
    assert result["flatness"] == pytest.approx(
        max(result["cost_by_population"].values()) / min(result["cost_by_population"].values())
    )
    assert all(value > 1e6 for value in result["peak_memory_by_population"].values())
    assert result["exact_step"] > 0
    assert result["small_problems"] > 1
    assert len(result["raw"]["exact_step"]["step"]["values"]) == SMALL.repetitions
    assert isinstance(result["device"], str)
    assert result["precision"] == "float32"
    assert result["peak_flops"] > 0
    assert result["threads"] >= 1
    assert result["others"] >= 0
    assert set(result["engine"].values()) <= set(ENGINES)
    assert {"commit", "python", "packages"} <= set(result["environment"])
    assert len(result["raw"]["rates"]["3"]["ours"]["values"]) == SMALL.repetitions
    assert [row["networks"] for row in result["raw"]["populations"]] == [2, 9]
    for goal in result["goals"]:
        assert {"what", "measured", "spread", "must", "aim", "reached"} <= set(goal)


def test_medians_lie_within_their_spread(small):
    result = small[0].as_dict()
    for key in ("share_of_peak", "against_plain_loop", "plain_share_of_peak", "probe_share_by_n", "cost_by_population"):
        for name, value in result[key].items():
            low, high = result["spread"][key][name]
            assert low <= value <= high
    for what in ("exact_step", "small_problems"):
        low, high = result["spread"][what]
        assert low <= result[what] <= high


def test_progress_is_reported_as_often_as_announced(small):
    assert len(small[1]) == SMALL.reports


@pytest.mark.parametrize("n", [20, 100, 200])
def test_operations_of_a_step_equal_a_count_by_hand(n):
    assert step_flops((100, n, 50), 16) == 2 * 16 * n * (100 + 50 + 50 + 50 + 100)


def test_operations_of_a_deeper_network_equal_a_count_by_hand():
    forward = weights = 2 * 3 + 3 * 4 + 4 * 5
    inputs = 3 * 4 + 4 * 5
    assert step_flops((2, 3, 4, 5), 7) == 2 * 7 * (forward + weights + inputs)


def _problem(dtype):
    teacher = us.teachers.distinct_rows((8, 4, 5), seeds=[3], polarity=1.0, dtype=dtype)
    data = us.data.Gaussian(8, train=64, evaluation=64)
    return teacher, us.students.gaussian(teacher, multiple=3, scale=0.3), data


def test_the_plain_loop_learns_what_the_reference_loop_learns():
    teacher, student, data = _problem(torch.float64)
    x = data.training(3, dtype=torch.float64)
    y = teacher(x)[0]
    loop = PlainLoop(student, x, y, lr=0.05)
    losses = loop.train(batch_indices(student.seeds, 0, 50, 16, len(x))[0])
    ended, wanted = reference(student, x, y, SGD(lr=0.05, batch=16), SquaredError(), epochs=1, steps=50)
    torch.testing.assert_close(losses, wanted, rtol=1e-9, atol=0)
    torch.testing.assert_close(loop.model[2].weight.detach(), ended.layers[1].weight[0], rtol=1e-9, atol=1e-12)
    assert losses[-1] < losses[0]


def test_the_plain_loop_learns_what_the_engine_learns():
    teacher, student, data = _problem(torch.float32)
    x = data.training(3)
    loop = PlainLoop(student, x, teacher(x)[0], lr=0.05)
    losses = loop.train(batch_indices(student.seeds, 0, 50, 16, len(x))[0])
    training = Training([Group(student, teacher, data)], SGD(lr=0.05, batch=16), steps=50)
    training.advance()
    assert float(losses.double().mean()) == pytest.approx(float(training.train_loss[0]), rel=1e-5)


def test_a_call_is_timed_until_enough_time_has_passed(monkeypatch):
    times = iter([0.0, 3.0, 10.0, 14.0, 18.0, 22.0])
    monkeypatch.setattr("understudy.bench.clock.perf_counter", lambda: next(times))
    calls = []
    assert lasting(lambda: calls.append(1), "cpu", least=0.0) == 3.0 and len(calls) == 1
    assert lasting(lambda: calls.append(1), "cpu", least=9.0) == 4.0 and len(calls) == 4


@pytest.mark.parametrize(
    ("value", "most", "reached"),
    [(0.2, False, "neither"), (0.3, False, "must"), (0.5, False, "aim"), (0.2, True, "aim"), (0.51, True, "must")],
)
def test_the_bound_that_is_reached(value, most, reached):
    must, aim = (0.6, 0.3) if most else (0.3, 0.5)
    assert Goal("x", "share", Repetitions((value, value, 9 * value)), must, aim, most=most).reached == reached


def test_goals_are_set_for_their_device():
    def asked(**changed):
        return {(g.what, g.must, g.aim) for g in replace(made_bench(), **changed).goals() if g.must is not None}

    both = {
        ("probing, share of the whole", 0.2, 0.1),
        ("dearest network-step of 32 to 10,000 networks", 1.3, None),
    }
    on_gpu = {"device": "cuda", "sizes": Sizes(exit_networks=6), "exits": EXITS}
    assert asked(**on_gpu) == both | {
        ("the whole two-layer study (--sweep)", 60.0, 15.0),
        ("network-step of 6 networks with 11 exits", 10.0, 5.0),
    }
    assert asked() == both | {
        ("steps at n = 20, share of the peak", 0.3, 0.5),
        ("steps at n = 200, share of the peak", 0.6, 0.8),
        *((f"steps at n = {n}, against the plain loop", 20.0, 50.0) for n in (20, 100, 200)),
        ("a step on the exact loss, m = 1,000, r = 20, d = 50, over its matrix products alone", 2.0, None),
        ("1,000 problems of m = 10, r = 3, d = 5 on the exact loss, batched against one by one", 10.0, 20.0),
    }


def test_ratios_compare_what_was_timed_together():
    result = made_bench().as_dict()
    # 1e5 steps of 224,000 operations against 1e11, 2e5 against 2e11, 3e5 against 1e11.
    assert result["share_of_peak"]["20"] == pytest.approx(0.224)
    assert result["spread"]["share_of_peak"]["20"] == pytest.approx((0.224, 0.672))
    assert result["against_plain_loop"]["20"] == pytest.approx(15)
    assert result["plain_share_of_peak"]["20"] == pytest.approx(0.0224)
    assert result["probe_share"] == pytest.approx(0.25)
    assert result["cost_by_population"] == pytest.approx({"32": 2e-6, "10000": 2.5e-6})
    assert result["flatness"] == pytest.approx(1.25)
    assert result["exact_step"] == pytest.approx(2)
    assert result["spread"]["exact_step"] == pytest.approx((1.5, 3))
    assert result["small_problems"] == pytest.approx(15)
    assert result["spread"]["small_problems"] == pytest.approx((15, 30))


def test_other_optimisers_and_depths_are_compared_with_what_was_timed_beside_them():
    plain, momentum = Repetitions((2e5, 4e5, 2e5)), Repetitions((1e5, 3e5, 2e5))
    deep = DeepRate(Repetitions((1e11, 2e11, 1e11)), Repetitions((50.0, 100.0, 80.0)), 10**9, "compiled")
    made = replace(made_bench(), variants={20: Variants(plain, {"momentum": momentum})}, deep={"100-50-50": deep})
    wanted = {
        ("steps with momentum at n = 20, against plain SGD", "must"): (0.75, 0.7, 0.9),
        ("steps of 100-50-50, share of the peak", "must"): (0.5, 0.5, 0.75),
    }
    found = {
        (g.what, g.reached): (g.measured.median, g.must, g.aim) for g in made.goals() if (g.what, g.reached) in wanted
    }
    assert found == wanted
    result = json.loads(json.dumps(made.as_dict(), allow_nan=False))
    assert result["against_plain_sgd_20"] == {"momentum": 0.75} and result["deep_share_of_peak"] == {"100-50-50": 0.5}
    assert result["spread"]["against_plain_sgd_20"]["momentum"] == [0.5, 1.0]


def test_variants_are_timed_for_every_width_and_depth(small):
    result = small[0].as_dict()
    kinds = {"weight decay", "momentum", "Nesterov", "Adam", "cross-entropy"}
    assert set(result["against_plain_sgd_3"]) == set(result["against_plain_sgd_6"]) == kinds
    assert set(result["deep_share_of_peak"]) == {"6-10-10-4", "6-10-10-10-4"}
    assert {each.engine for each in small[0].deep.values()} == {"compiled"}


def test_networks_with_several_exits_are_shown_where_they_were_measured():
    made = made_bench()
    assert not [goal for goal in made.goals() if "exits" in goal.what]
    assert "exit_milliseconds" not in made.as_dict()
    result = replace(made, sizes=Sizes(exit_networks=6), exits=EXITS)
    rows = [goal.cells() for goal in result.goals() if "exits" in goal.what]
    assert rows == [
        ("network-step of 6 networks with 11 exits", "5.0 ms", "4.0 ms to 6.0 ms", "≤ 10.0 ms", "≤ 5.0 ms"),
        ("network-step of 6 networks with 11 exits, against the plain engine", "10.0×", "8.00× to 15.0×", "–", "–"),
    ]
    result = json.loads(json.dumps(result.as_dict(), allow_nan=False))
    assert result["exit_milliseconds"] == pytest.approx(5) and result["exit_against_plain"] == pytest.approx(10)
    assert result["spread"]["exit_milliseconds"] == pytest.approx((4, 6))
    assert result["raw"]["exit_training"]["plain"]["values"] == [4e-2, 6e-2, 6e-2]


def test_engines_for_several_exits_are_timed_in_alternation(monkeypatch):
    """Seconds of an epoch of 20 steps: 12, 20, 24 and 80 are 3 networks, 1, 3, 1."""
    times, lines, made = iter([12.0, 20.0, 24.0, 80.0]), [], []

    def make(grid, seeds, *arguments, **options):
        made.append((grid, len(seeds)))
        return PlainEngine(grid, seeds, *arguments, **options)

    monkeypatch.setattr("understudy.bench.exit_training.lasting", lambda work, device, least: next(times))
    sizes = replace(SMALL, exit_networks=3, exit_batch=4, exit_grid=EXIT_GRID)
    found = compare_engines(make, make, sizes, "cpu", lines.append)
    assert made == [(EXIT_GRID, 3), (EXIT_GRID, 1)]
    assert found.milliseconds.values == pytest.approx((200, 400))
    assert found.gain.values == pytest.approx((5, 10))
    assert len(lines) == sizes.reports - SMALL.reports == SMALL.repetitions


def test_networks_with_several_exits_do_not_diverge_while_they_are_timed(monkeypatch):
    """The plain engine stops a network that diverges, and would appear fast."""
    train, losses = PlainEngine.train, []

    def recorded(engine, *arguments):
        losses.append(train(engine, *arguments).loss)

    monkeypatch.setattr(PlainEngine, "train", recorded)
    sizes = replace(SMALL, exit_networks=1, exit_batch=4, exit_grid=EXIT_GRID)
    assert compare_engines(PlainEngine, PlainEngine, sizes, "cpu", str).gain.median > 0
    assert len(losses) == 2 * (1 + SMALL.repetitions) and torch.cat(losses).isfinite().all()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_networks_with_several_exits_train_on_the_gpu():
    sizes = replace(SMALL, exit_networks=2, exit_batch=4, exit_grid=EXIT_GRID)
    assert exit_training(sizes, "cuda", str).gain.median > 0


def test_the_picture_shows_every_machine():
    one = cost_curve(json.loads(json.dumps(made_bench().as_dict())))
    np.testing.assert_allclose(one.cost, [2.0, 2.5])
    np.testing.assert_allclose(one.memory, [100, 1000])
    figure = cost_by_population([one, one._replace(machine="another", cost=one.cost / 3, low=one.low / 3)])
    assert figure.get_figwidth() == 6.8
    words = {text.get_text() for text in figure.legends[0].get_texts()}
    assert {one.machine, "another"} <= words


@pytest.mark.deep
def test_a_sweep_runs_the_study_and_breaks_down_its_time(tmp_path):
    from understudy.bench.sweep import sweep

    tiny = {"teacher_nodes": [3], "dim": 6, "outputs": 4, "seeds": 2, "polarity": [1.0], "multiple": [1.0, 2.0]}
    swept = sweep(tmp_path, "cpu", tiny | {"epochs": 2, "steps": 20, "train": 64, "evaluation": 64})
    assert swept.networks == 4
    assert sum(swept.parts.values()) == pytest.approx(swept.seconds)
    assert list(swept.parts)[-1] == "tables, figures and page"
    assert us.store.Run(swept.run).networks.num_rows == 4
