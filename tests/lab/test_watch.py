"""`us.watch` follows any loop without changing it, and leaves a run that can be read at any time."""

import copy
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.overrides import TorchFunctionMode

import understudy as us
from support.commands import understudy
from support.modules import dense, residual, seeded
from understudy import UserError
from understudy.lab.watch import folder as watch_folder
from understudy.measures import final_winner_rank

pytestmark = pytest.mark.usefixtures("one_thread")
X = torch.randn(200, 5, generator=torch.Generator().manual_seed(1))


NO_FILES = {"pdf": b"", "svg": b""}


@pytest.fixture(autouse=True)
def pages_only(monkeypatch):
    """Write pages without figures for paper, which take seconds; those of `watched` are laid out."""
    monkeypatch.setattr("understudy.report.pool.draw", lambda kind: NO_FILES)


def networks(students=9):
    torch.manual_seed(0)
    parts = nn.Linear(5, students), nn.BatchNorm1d(students), nn.ReLU(), nn.Dropout(0.1), nn.Linear(students, 7)
    return seeded(dense, 5, 6, 4, 2), nn.Sequential(*parts, nn.ReLU(), nn.Linear(7, 2))


def train(student, teacher, steps, watch=None, each=lambda step: None):
    """A loop of the user's: shuffled batches, dropout, an optimiser with momentum; return the losses."""
    optimiser = torch.optim.SGD(student.parameters(), lr=0.1, momentum=0.9)
    loader = torch.utils.data.DataLoader(X, batch_size=20, shuffle=True)
    losses = []
    while len(losses) < steps:
        for x in loader:
            noise = torch.randn(()) + np.random.rand() + random.random()
            loss = (student(x) - teacher(x).detach()).square().mean() * (1 + 0.01 * noise)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(float(loss.detach()))
            each(len(losses))
            if watch is not None:
                watch.step(loss=loss, half=0.5 * losses[-1])
            if len(losses) == steps:
                break
    return losses


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """A finished run, the student at every probe, and the losses."""
    folder = tmp_path_factory.mktemp("watched") / "run"
    teacher, student = networks()
    students = {0: copy.deepcopy(student)}

    def keep(step):
        if step % 4 == 0 or step == 10:
            students[step] = copy.deepcopy(student)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("understudy.report.pool.files", lambda figure: NO_FILES)
        with us.watch(teacher, student, X, every=4, samples=150, out=folder) as watch:
            losses = train(student, teacher, 10, watch, keep)
    return us.Run(folder), teacher, students, losses


def test_every_probe_agrees_with_align(watched):
    run, teacher, students, _ = watched
    layers = run.table("layers").to_pandas()
    assert layers["step"].unique().tolist() == [0, 4, 8, 10] and layers["epoch"].unique().tolist() == [0, 1, 2, 3]
    for step, student in students.items():
        found = us.align(teacher, student.eval(), X[:150])
        rows = layers[layers["step"] == step]
        assert tuple(rows["teacher_layer"].unique()) == found.teacher_layers
        np.testing.assert_allclose(rows["mean_best_correlation"], found.mean_best_correlation.ravel(), atol=1e-6)
        np.testing.assert_allclose(rows["cka"], found.cka.ravel(), atol=1e-6)
        assert rows["recovered"].tolist() == [pair.recovered for row in found.pairs for pair in row]


def test_nodes_follow_the_student_layer_that_matches_best_at_the_end(watched):
    run, teacher, students, _ = watched
    aligned = {step: us.align(teacher, student.eval(), X[:150]) for step, student in students.items()}
    best = aligned[10].best_layers
    fans = {"2": students[10][4].weight.norm(dim=0), "5": students[10][6].weight.norm(dim=0)}
    nodes = run.nodes.to_pandas()
    for i, (t, s) in enumerate(best.items()):
        rho = torch.stack([alignment[t, s].correlation for alignment in aligned.values()])
        ranks = final_winner_rank(rho.unsqueeze(0))[0]
        rows = nodes[(nodes["layer"] == i) & (nodes["role"] == "teacher")]
        assert set(rows["student_layer"]) == {s}
        np.testing.assert_allclose(rows["correlation"].to_numpy().reshape(4, -1), rho.amax(2), atol=1e-6)
        assert rows["student"].to_numpy().reshape(4, -1).tolist() == rho.argmax(2).tolist()
        np.testing.assert_allclose(rows["rank"].to_numpy().reshape(4, -1), ranks, atol=1e-6)
        np.testing.assert_allclose(run.series("mean_rank", i)[0], ranks.mean(1), atol=1e-6)
        np.testing.assert_allclose(run.series("rho_mean", i)[0], rho.amax(2).mean(1), atol=1e-6)
        settled = (rho.argmax(2) == rho.argmax(2)[-1]).float().mean(1)
        np.testing.assert_allclose(run.series("settled", i)[0], settled, atol=1e-6)
        last = rows[rows["step"] == 10]
        if s in fans:
            np.testing.assert_allclose(last["fanout"], fans[s].detach()[last["student"].to_numpy(int)], atol=1e-6)
        back = nodes[(nodes["layer"] == i) & (nodes["role"] == "student") & (nodes["step"] == 10)]
        assert back["teacher"].tolist() == rho[-1].argmax(0).tolist()
        np.testing.assert_allclose(run.pairs(0, i)[-1], rho[-1], atol=1e-6)


def test_losses_are_means_since_the_probe_before(watched):
    run, _, _, losses = watched
    means = [np.mean(losses[:4]), np.mean(losses[4:8]), np.mean(losses[8:])]
    np.testing.assert_allclose(run.series("loss")[0], [np.nan, *means], rtol=1e-6)
    np.testing.assert_allclose(run.series("half")[0], [np.nan, *(0.5 * np.array(means))], rtol=1e-6)
    assert run.networks["diverged_at"].to_pylist() == [None]


def test_weights_before_the_first_step_and_at_the_last_probe(watched):
    run, _, students, _ = watched
    saved = load_file(run.folder / "weights.safetensors")
    for when, step in (("start", 0), ("last", 10)):
        for name, value in students[step].state_dict().items():
            assert torch.equal(saved[f"{when}.{name}"], value)


def test_the_report_is_written_and_drawn_again_by_the_command(watched):
    run = watched[0]
    names = {"layers", "correlation", "mean-rank", "settled", "losses", "fan-out", "nodes"}
    assert names == {path.stem for path in (run.folder / "figures").iterdir()}
    page = (run.folder / "report.html").read_text(encoding="utf-8")
    assert "settled_at" in page and "After 10 steps" in page
    done = understudy("report", run.folder, "--json", cwd=run.folder)
    assert "After 10 steps" in done.stdout
    listed = understudy("list", "--out", run.folder.parent, "--json", cwd=run.folder)
    assert '"study": "watch"' in listed.stdout


def test_training_is_the_same_to_the_bit_with_and_without(tmp_path):
    found = []
    for every in (None, 3):
        teacher, student = networks()
        student[1].eval()  # a part of it, as users freeze norms
        for seed in (torch.manual_seed, np.random.seed, random.seed):
            seed(7)
        loader = torch.utils.data.DataLoader(X, batch_size=50, shuffle=True)
        watch = None if every is None else us.watch(teacher, student, loader, every=every, out=tmp_path / "run")
        train(student, teacher, 12, watch)
        state = torch.rand(3), torch.tensor(np.random.rand(3)), torch.tensor([random.random()])
        found.append((*student.state_dict().values(), *state))
        if watch is not None:
            watch.close()
        assert [part.training for part in student] == [True, False, *[True] * 5] and not teacher.training
        assert not any(part._forward_hooks for part in (*student.modules(), *teacher.modules()))
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_a_step_does_not_wait_for_the_device(tmp_path):
    class NoReading(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            assert function.__name__ not in ("item", "tolist", "cpu", "numpy", "to", "__float__", "__bool__")
            return function(*args, **(kwargs or {}))

    teacher, student = networks()
    watch = us.watch(teacher, student, X, every=10, out=tmp_path / "run")
    loss = torch.tensor(2.0)
    with NoReading():
        watch.step(loss)
    loss.zero_()  # as a CUDA graph writes its outputs again
    watch.step(loss + 4)
    assert watch._losses.means() == {"loss": 3.0}
    watch.stop()


def test_a_killed_training_leaves_a_readable_run_and_continues(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import sys; sys.path[:0] = [sys.argv[1]]\n"
        "import understudy as us\n"
        "from lab.test_watch import X, networks, train\n"
        "teacher, student = networks()\n"
        "with us.watch(teacher, student, X, every=5, out='run') as watch:\n"
        "    train(student, teacher, 10**9, watch)\n"
    )
    tests = str(Path(__file__).parents[1])
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([sys.executable, str(script), tests], cwd=tmp_path, stderr=subprocess.DEVNULL, env=env)
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and len(list(tmp_path.glob("run/progress/probe-*"))) < 5:
            time.sleep(0.02)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    run = us.Run(tmp_path / "run")
    steps = run.table("layers").to_pandas()["step"].unique().tolist()
    assert steps == list(range(0, 5 * len(steps), 5)) and len(steps) >= 4
    assert len(run.epochs) >= len(steps) and run.matched("teacher", "correlation", 0).shape[-1] == 6
    assert run.report().is_file()
    teacher, student = networks()
    with pytest.raises(UserError, match="was begun with other networks, layers or options"):
        us.watch(teacher, student, X, every=6, out=tmp_path / "run", resume=10)
    with us.watch(teacher, student, X, every=5, out=tmp_path / "run", resume=12) as watch:
        train(student, teacher, 4, watch)
    steps = us.Run(tmp_path / "run").table("layers").to_pandas()["step"].unique().tolist()
    assert steps == [0, 5, 10, 12, 15, 16]
    with pytest.raises(UserError, match="is finished, so that it cannot be continued"):
        us.watch(teacher, student, X, every=5, out=tmp_path / "run", resume=16)


def test_an_exception_leaves_a_readable_run(tmp_path, capsys):
    teacher, student = networks()
    with (
        pytest.raises(ZeroDivisionError),
        us.watch(teacher, student, X, every=2, out=tmp_path / "run") as watch,
    ):
        train(student, teacher, 5, watch)
        assert us.Run(tmp_path / "run").report(tmp_path / "so-far.html").is_file()
        raise ZeroDivisionError
    assert us.Run(tmp_path / "run").epochs.tolist() == [0, 1, 2]
    assert not (tmp_path / "run/report.html").exists()
    assert "stopped at step 5" in capsys.readouterr().err


def test_a_loss_that_is_not_finite_marks_the_run_and_training_goes_on(tmp_path):
    teacher, student = networks()
    with us.watch(teacher, student, X, every=4, out=tmp_path / "run") as watch:
        train(student, teacher, 4, watch)
        for step in range(5, 9):
            with torch.no_grad():
                student[0].bias.add_(0.1)
            watch.step(loss=torch.tensor(float("nan") if step == 6 else 1.0))
        with torch.no_grad():
            student[0].weight.fill_(float("nan"))
        for _ in range(3):
            watch.step(loss=1.0)
    run = us.Run(tmp_path / "run")
    assert run.networks["diverged_at"].to_pylist() == [6]
    assert np.isnan(run.series("loss")[0, 2]) and run.series("loss")[0, 3] == 1.0
    assert run.table("layers").to_pandas()["step"].unique().tolist() == [0, 4, 8]
    assert "Training diverged at step 6." in (run.folder / "headline.txt").read_text()


def test_a_student_that_is_not_trained_or_changes_its_form_is_reported(tmp_path):
    teacher, student = networks()
    watch = us.watch(teacher, student, X, every=2, out=tmp_path / "run")
    with pytest.warns(UserWarning, match="nothing changed in the student between steps 0 and 2"):
        train(copy.deepcopy(student), teacher, 2, watch)
    student[4], student[6] = nn.Linear(9, 8), nn.Linear(8, 2)
    with pytest.warns(UserWarning, match="watching stops at step 4, and training goes on: a layer has another number"):
        train(student, teacher, 5, watch)
    watch.close()
    run = us.Run(tmp_path / "run")
    assert run.epochs.tolist() == [0, 1] and (run.folder / "report.html").is_file()


def test_a_watch_without_steps_says_so(tmp_path):
    teacher, student = networks()
    with (
        pytest.warns(UserWarning, match=re.escape("watch.step() was never called")),
        us.watch(teacher, student, X, out=tmp_path / "run"),
    ):
        pass
    assert (tmp_path / "run/report.html").is_file()


def test_convolutions_in_batches_of_dicts_with_ranks_of_some_probes(tmp_path, monkeypatch):
    monkeypatch.setattr(watch_folder, "_RANK_BYTES", 40_000)
    images = torch.randn(40, 3, 6, 6, generator=torch.Generator().manual_seed(1))
    teacher, student = seeded(residual, 6, 2), seeded(residual, 8, 1, seed=1)
    optimiser = torch.optim.SGD(student.parameters(), lr=0.01)
    with us.watch(teacher, student, [{"input": images}], every=1, out=tmp_path / "run", weights=False) as watch:
        for _ in range(9):
            optimiser.zero_grad()
            student(images).square().mean().backward()
            optimiser.step()
            watch.step()
    run = us.Run(tmp_path / "run")
    kept = run.metrics.to_pandas().query("metric == 'mean_rank'")["step"].unique().tolist()
    assert kept[0] == 0 and kept[-1] == 9 and 3 <= len(kept) < 9
    assert len(run.table("layers").to_pandas()["step"].unique()) == 10
    found = us.align(teacher, student.eval(), images)
    for t, row in zip(found.teacher_layers, found.pairs, strict=True):
        alike = [s for s, pair in zip(found.student_layers, row, strict=True) if pair.at_positions]
        best = max(alike or found.student_layers, key=lambda s: found[t, s].mean_best_correlation)
        assert set(run.nodes.to_pandas().query(f"teacher_layer == '{t}'")["student_layer"]) == {best}
    assert load_file(run.folder / "weights.safetensors") == {}
    assert not (run.folder / "progress").exists() and "loss" not in run.metric_names


def test_other_processes_do_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    teacher, student = networks()
    with us.watch(teacher, student, X, every=1, out=tmp_path / "run") as watch:
        train(student, teacher, 3, watch)
    assert watch.steps == 3 and not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"every": 0}, "every must be a whole number of at least 1, got 0"),
        ({"every": 2.5}, "every must be a whole number of at least 1, got 2.5"),
        ({"samples": 0}, "samples must be a whole number of at least 1, got 0"),
        ({"resume": -1}, "resume must be the number of steps taken before, 0 or more, got -1"),
        ({"resume": 7}, "run is not a run, so that it cannot be continued"),
        ({"teacher": "net.pt"}, "the teacher must be an nn.Module, got str"),
        ({"data": X.double()}, "the teacher cannot take the data: data is torch.float64"),
        ({"data": X[:, :4]}, "fails on data of shape"),
        ({"data": X / 0}, "contains NaN or infinity"),
        ({"layers": "0.none"}, "layers: no submodule matches '0.none'"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_written(change, words, tmp_path):
    teacher, student = networks()
    given = {"teacher": teacher, "student": student, "data": X, "out": tmp_path / "run"} | change
    with pytest.raises(UserError, match=re.escape(words)):
        us.watch(**given)
    assert not (tmp_path / "run").exists()


def test_folders_and_losses_that_cannot_be_used(tmp_path):
    teacher, student = networks()
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file.txt").touch()
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"out must be a new folder, and .*other holds other files"):
        us.watch(teacher, student, X, out=tmp_path / "other")
    with pytest.raises(UserError, match=r"out must be a folder, and .*file is a file"):
        us.watch(teacher, student, X, out=tmp_path / "file")
    watch = us.watch(teacher, student, X, out=tmp_path / "run")
    with pytest.raises(UserError, match=r"out must be a new folder, and .*run holds a run; .* resume=STEP"):
        us.watch(teacher, student, X, out=tmp_path / "run")
    for loss, words in ((torch.ones(2), r"got a tensor of shape \[2\]; average it"), ("low", "got str")):
        with pytest.raises(UserError, match=f"kd must be .* {words}"):
            watch.step(kd=loss)
    with pytest.raises(UserError, match="rho_mean is the name of a measurement of the run"):
        watch.step(rho_mean=1.0)
    watch.stop()
    with pytest.raises(UserError, match="run is closed; follow another training"):
        watch.step(loss=1.0)
