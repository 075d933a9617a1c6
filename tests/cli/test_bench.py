"""`understudy bench`: what it prints and writes, the sweep, pictures of several machines, and its errors."""

import json
import re
import subprocess
import sys

import pytest
import torch

from support.benchmarks import made_bench
from support.commands import understudy
from understudy import bench, cli
from understudy.bench.sweep import Swept


@pytest.fixture
def quick(monkeypatch, tmp_path):
    """The command in an empty folder, with a measurement that returns at once."""
    monkeypatch.chdir(tmp_path)

    def measured(device, report, sizes):
        report("one of many")
        return made_bench()

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
        (tmp_path / f"{name}.json").write_text(json.dumps(made_bench().as_dict() | {"device": name}))
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


def test_a_sweep_that_fails_is_reported_and_the_other_measurements_are_written(tmp_path, monkeypatch, capsys):
    def fail(*_):
        raise subprocess.CalledProcessError(3, ["study"])

    monkeypatch.setattr("understudy.bench.measure", lambda *_: made_bench())
    monkeypatch.setattr("understudy.bench.sweep.sweep", fail)
    monkeypatch.setattr(sys, "argv", ["understudy", "bench", "--sweep", "--device", "cpu", "--out", str(tmp_path)])
    assert cli.main() == 2
    assert re.search(r"--sweep: the study ended with status 3.*bench\.json", capsys.readouterr().err)
    assert json.loads(next(tmp_path.glob("*/bench.json")).read_text())["device"]
