"""The benchmark: its results, the fairness of its plain loop, and the command. No timings are tested."""

import json
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

import understudy as us
from support.commands import understudy
from support.reference_loop import reference
from understudy import bench, cli
from understudy.bench.clock import Measured, lasting
from understudy.bench.exact import ExactStep, SmallProblems
from understudy.bench.goals import Goal
from understudy.bench.picture import cost_by_population, cost_curve
from understudy.bench.plain import PlainLoop
from understudy.bench.populations import Cost
from understudy.bench.setting import Sizes, step_flops
from understudy.bench.sweep import Swept
from understudy.training import SGD, Group, SquaredError, Training
from understudy.training.engines import ENGINES
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
    exact=(7, 2, 3),
    small=(6, 3, 2, 3),
)


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
    teacher = us.teachers.separated((8, 4, 5), seeds=[3], polarity=1.0, dtype=dtype)
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
    assert Goal("x", "share", Measured((value, value, 9 * value)), must, aim, most=most).reached == reached


def test_goals_are_set_for_their_device():
    def asked(device):
        return {(g.what, g.must, g.aim) for g in replace(_made(), device=device).goals() if g.must is not None}

    both = {
        ("probing, share of the whole", 0.2, 0.1),
        ("dearest network-step of 32 to 10,000 networks", 1.3, None),
    }
    assert asked("cuda") == both | {("the whole two-layer study (--sweep)", 60.0, 15.0)}
    assert asked("cpu") == both | {
        ("steps at n = 20, share of the peak", 0.3, 0.5),
        ("steps at n = 200, share of the peak", 0.6, 0.8),
        *((f"steps at n = {n}, against the plain loop", 20.0, 50.0) for n in (20, 100, 200)),
        ("a step on the exact loss, m = 1,000, r = 20, d = 50, over its matrix products alone", 2.0, None),
        ("1,000 problems of m = 10, r = 3, d = 5 on the exact loss, batched against one by one", 10.0, 20.0),
    }


def _made():
    """A benchmark of numbers that can be checked by hand."""
    from understudy.bench.rates import Probing, Rates

    probing = Probing(Measured((3.0, 3.0, 6.0)), Measured((1.0, 2.0, 2.0)), 48)
    peak, plain = Measured((1e11, 2e11, 1e11)), Measured((1e4, 1e4, 2e4))
    rates = {
        n: Rates(peak, Measured((1e5, 2e5, 3e5)), plain, probing, step_flops((100, n, 50), 16), "batched")
        for n in (20, 100, 200)
    }
    costs = [
        Cost(32, 1_000, Measured((2e-6, 2e-6, 2e-6)), Measured((2e-6, 2e-6, 2e-6)), 10**8),
        Cost(10_000, 100, Measured((3e-6, 5e-6, 2e-6)), Measured((2e-6, 4e-6, 2e-6)), 10**9),
    ]
    made = {"device": "NVIDIA H200", "processor": "a processor", "packages": {"torch": "2"}, "commit": None}
    exact = ExactStep(Measured((3e-3, 4e-3, 9e-3)), Measured((2e-3, 2e-3, 3e-3)))
    small = SmallProblems(Measured((2e-6, 1e-6, 4e-6)), Measured((3e-5, 3e-5, 6e-5)))
    return bench.Bench("cpu", Sizes(), rates, probing, costs, exact, small, made, others=0.4)


def test_ratios_compare_what_was_timed_together():
    result = _made().as_dict()
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


def test_the_picture_shows_every_machine():
    one = cost_curve(json.loads(json.dumps(_made().as_dict())))
    np.testing.assert_allclose(one.cost, [2.0, 2.5])
    np.testing.assert_allclose(one.memory, [100, 1000])
    figure = cost_by_population([one, one._replace(machine="another", cost=one.cost / 3, low=one.low / 3)])
    assert figure.get_figwidth() == 6.8
    words = {text.get_text() for text in figure.legends[0].get_texts()}
    assert {one.machine, "another"} <= words


@pytest.fixture
def quick(monkeypatch, tmp_path):
    """The command in an empty folder, with a measurement that returns at once."""
    monkeypatch.chdir(tmp_path)

    def measured(device, report, sizes):
        report("one of many")
        return _made()

    monkeypatch.setattr(bench, "measure", measured)
    monkeypatch.setattr(cli.sys, "argv", ["understudy", "bench", "--device", "cpu"])
    return tmp_path


def test_json_prints_the_object_that_is_written(quick, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--json"])
    assert cli.main() == 0
    printed = capsys.readouterr()
    result = json.loads(printed.out)
    kept = quick / result["kept"]
    assert json.loads(kept.read_text()) == result
    assert kept.parent.parent == quick / "runs" / "bench"
    assert {path.name for path in kept.parent.iterdir()} == {
        "bench.json",
        "cost-by-population.svg",
        "cost-by-population.pdf",
    }
    assert "one of many" in printed.err


def test_the_table_is_printed_with_goals_and_populations(quick, capsys):
    assert cli.main() == 0
    out = capsys.readouterr().out
    for text in (
        "22.4%",
        "22.4% to 67.2%",
        "≥ 30.0%",
        "neither",
        "15.0×",
        "10,000",
        "2.5",
        "1,000 MB",
        "written to runs/",
    ):
        assert text in out
    assert "a processor" in out
    assert "Other programs used 40% of the cores during the measurement" in out


def test_an_interrupted_benchmark_writes_nothing(quick, capsys, monkeypatch):
    def interrupted(device, report, sizes):
        raise KeyboardInterrupt

    monkeypatch.setattr(bench, "measure", interrupted)
    assert cli.main() == 130
    assert "interrupted; the same command starts again" in capsys.readouterr().err
    assert not list(quick.iterdir())


def test_a_sweep_is_run_on_request(quick, capsys, monkeypatch):
    from understudy.bench import sweep

    monkeypatch.setattr(sweep, "sweep", lambda folder, device: Swept(12.5, 2_304, str(folder), {"epochs": 10.0}))
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--sweep"])
    assert cli.main() == 0
    out = capsys.readouterr().out
    assert "12.5 s" in out
    assert "2,304 networks: epochs 10.0 s" in out


def test_benchmarks_of_several_machines_are_drawn_together(tmp_path):
    for name in ("cpu", "gpu"):
        (tmp_path / f"{name}.json").write_text(json.dumps(_made().as_dict() | {"device": name}))
    done = understudy("bench", "--draw", "cpu.json", "gpu.json", "--out", "here", "--json", cwd=tmp_path)
    assert json.loads(done.stdout) == {"picture": "here/cost-by-population.svg"}
    assert "<svg" in (tmp_path / "here" / "cost-by-population.svg").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--out", "a-file"), "--out must be a folder, got a-file: a-file is a file"),
        (("--out", "a-file/below"), "--out must be a folder, got a-file/below: "),
        (("--draw", "a-file"), "--draw: a-file is not a bench.json written by `understudy bench` ("),
        (("--draw", "missing.json"), "--draw: missing.json is not a bench.json written by `understudy bench` ("),
        pytest.param(
            ("--device", "cuda"),
            "--device cuda needs a CUDA GPU, but torch sees none here; use auto or cpu",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a CUDA GPU"),
        ),
    ],
)
def test_invalid_options_are_refused_and_nothing_is_written(tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a-file").write_text("something else")
    monkeypatch.setattr(sys, "argv", ["understudy", "bench", *words])
    assert cli.main() == 2
    result = capsys.readouterr()
    assert message in result.err
    assert result.out == ""
    assert [path.name for path in tmp_path.iterdir()] == ["a-file"]


@pytest.mark.deep
def test_a_sweep_runs_the_study_and_breaks_down_its_time(tmp_path):
    from understudy.bench.sweep import sweep

    tiny = {"teacher_nodes": [3], "dim": 6, "outputs": 4, "seeds": 2, "polarity": [1.0], "multiple": [1.0, 2.0]}
    swept = sweep(tmp_path, "cpu", tiny | {"epochs": 2, "steps": 20, "train": 64, "evaluation": 64})
    assert swept.networks == 4
    assert sum(swept.parts.values()) == pytest.approx(swept.seconds)
    assert list(swept.parts)[-1] == "tables, figures and page"
    assert us.store.Run(swept.run).networks.num_rows == 4


def test_a_sweep_that_fails_is_reported_and_the_other_measurements_are_written(small, tmp_path, monkeypatch, capsys):
    def fail(*_):
        raise subprocess.CalledProcessError(3, ["study"])

    monkeypatch.setattr("understudy.bench.measure", lambda *_: small[0])
    monkeypatch.setattr("understudy.bench.sweep.sweep", fail)
    monkeypatch.setattr(sys, "argv", ["understudy", "bench", "--sweep", "--device", "cpu", "--out", str(tmp_path)])
    assert cli.main() == 2
    assert re.search(r"--sweep: the study ended with status 3.*bench\.json", capsys.readouterr().err)
    assert json.loads(next(tmp_path.glob("*/bench.json")).read_text())["device"]
