"""The example of `us.watch`, small: both runs, the comparison, and a training that is interrupted and continues."""

import runpy
from pathlib import Path

import pytest
import torch

import understudy as us

SCRIPT = Path(__file__).parents[2] / "examples/07_watch_a_distillation.py"
SMALL = "--epochs 2 --width 2 --batch 32 --images 128 --evaluation 48 --samples 32 --every 3 --device cpu --level 0.5"

pytestmark = pytest.mark.usefixtures("one_thread")


def test_the_example_continues_where_it_was_interrupted(cifar, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("understudy.report.pool.draw", lambda kind: {"pdf": b"", "svg": b""})
    example = runpy.run_path(str(SCRIPT))

    def run(name):
        example["main"]([*SMALL.split(), "--data", str(cifar), "--out", str(tmp_path / name)])

    run("whole")
    words = capsys.readouterr().out
    assert words.count("epoch 2 of 2") == 3 and "Channels that came across by distillation" in words
    assert "stage3-3.relu2" in words and (tmp_path / "whole/comparison.png").stat().st_size > 10_000

    steps = iter(range(7))
    step = us.lab.watch.Watch.step
    with monkeypatch.context() as patch:
        patch.setattr(us.lab.watch.Watch, "step", lambda watch, **losses: (next(steps), step(watch, **losses)))
        with pytest.raises(StopIteration):
            run("pieces")
    assert not (tmp_path / "pieces/alone").exists()
    run("pieces")
    for name in ("distilled", "alone"):
        one, other = (us.Run(tmp_path / out / name) for out in ("whole", "pieces"))
        assert one.table("layers").to_pandas()["step"].unique().tolist() == [0, 3, 6, 8]
        weights = [torch.load(tmp_path / out / f"{name}.pt", weights_only=True)["model"] for out in ("whole", "pieces")]
        assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])
        last = [run.nodes.to_pandas().query("step == 8 and role == 'teacher'")["correlation"] for run in (one, other)]
        assert last[0].tolist() == last[1].tolist()
