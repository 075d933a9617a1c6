"""`understudy reproduce`: its plan, its runs and page, what changed since a record, and its errors."""

import inspect
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import fields, replace
from itertools import permutations
from unittest.mock import patch

import pytest
import torch
from filelock import FileLock
from safetensors.torch import save_file

import understudy as us
from support.commands import understudy
from understudy.claims import catalogue
from understudy.cli.reproduce import Reproduce
from understudy.lab.discovery import studies
from understudy.lab.reproduce import Prepared, jobs
from understudy.lab.reproduce.results import verdicts
from understudy.store import Claim
from understudy.store.folder import RunFolder

TINY = {
    "data-geometry": {"seeds": 20, "dim": 10, "inputs": 3, "kappa": (0.5, 1.0)},
    "monotonicity": {
        "seeds": 20,
        "dim": 10,
        "inputs": 3,
        "deltas": (0.5, 1.0),
        "steps": 20,
        "longest": 20,
        "probes": 4,
    },
    "optimisation-bias": {"seeds": 2},
}


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """Papers with one body of work, whose studies are made tiny; one needs images that are not here."""
    monkeypatch.setenv("UNDERSTUDY_DATA", str(tmp_path / "no data"))
    monkeypatch.setattr("support.commands.ENVIRONMENT", dict(os.environ))
    monkeypatch.setattr(jobs, "studies_by_paper", lambda: {"x.distillation": [studies()[name] for name in TINY]})
    monkeypatch.setattr(jobs, "study_of", lambda name, words: studies()[name](**TINY[name]))
    monkeypatch.setattr(jobs, "commands", lambda study: [[]])


def reproduce(tmp_path, *words, status=0):
    return understudy("reproduce", *words, cwd=tmp_path, status=status)


def test_runs_are_made_once_and_one_page_shows_them(tiny, tmp_path):
    done = json.loads(reproduce(tmp_path, "distillation", "--json").stdout)
    assert list(done["papers"]) == ["distillation"]
    counts = done["papers"]["distillation"]
    assert set(counts) == {"holds", "fails", "undecided", "seconds"}
    assert counts["holds"] + counts["fails"] + counts["undecided"] == 5
    assert [run["state"] for run in done["runs"]] == ["done", "done"]
    assert all((tmp_path / run["folder"] / "report.html").is_file() and run["bytes"] > 0 for run in done["runs"])
    (missing,) = done["missing"]
    assert missing["study"] == "optimisation-bias" and "train-images-idx3-ubyte.gz" in missing["why"]
    written = json.loads((tmp_path / "runs" / "reproduce.json").read_text())
    assert written == {key: value for key, value in done.items() if key != "page"}
    page = (tmp_path / done["page"]).read_text()
    for run in done["runs"]:
        assert f'href="./{run["folder"].removeprefix("runs/")}/report.html"' in page
    assert page.count("<img ") == 2 and "5 claims:" in page
    for image in page.split('<img src="./')[1:]:
        assert (tmp_path / "runs" / image.split('"')[0]).is_file()

    # The same command reads them; compared with a record of other verdicts, it names those.
    claim = Claim(id="K3", statement="it falls", paper="falls", measured="2 > 1", n=4, holds=True)
    (tmp_path / done["runs"][0]["folder"] / "claims.json").write_text(json.dumps([claim.as_dict()]))
    done["runs"][0]["claims"] = [{"id": "K3", "part": "", "statement": "it falls", "holds": None}]
    (tmp_path / "before.json").write_text(json.dumps(done))
    again = json.loads(reproduce(tmp_path, "distillation", "--json", "--against", "before.json").stdout)
    same = {"id": "K3", "part": "", "statement": "it falls"}
    assert again["changed"] == [same | {"before": None, "now": True}]
    assert again["papers"]["distillation"] == counts | {"holds": 1, "undecided": counts["undecided"] - 1}
    shown = (tmp_path / again["page"]).read_text()
    assert "K3 (it falls): not decided before, holds now" in shown
    assert [run["seconds"] for run in again["runs"]] == [run["seconds"] for run in done["runs"]]
    assert again["seconds"] < done["seconds"]
    quick = json.loads(reproduce(tmp_path, "distillation", "--quick", "--json").stdout)
    assert quick["runs"][0]["run"] == "data-geometry --quick"
    assert quick["papers"] == again["papers"]


def test_the_function_does_what_the_command_does(tiny, tmp_path, capsys):
    options = {field.name for field in fields(Reproduce)} - {"plan", "json"}
    assert options <= set(inspect.signature(us.reproduce).parameters)
    out = tmp_path / "runs"
    found = us.reproduce("distillation", out=out, device="cpu", progress=False)
    assert capsys.readouterr().err == ""
    assert not found.failed and found.page == out / "reproduce.html"
    assert json.loads((out / "reproduce.json").read_text()) == found.as_dict()
    assert repr(found).startswith("5 claims: ") and repr(found).endswith(f"Page: {found.page}")
    with pytest.raises(us.UserError, match="device must be one of auto, cpu, cuda, got 'tpu'"):
        us.reproduce(device="tpu")
    shutil.rmtree(out)
    with patch.object(Prepared, "_words", lambda self, job: ["-c", "import sys; sys.exit('understudy: no space')"]):
        lost = us.reproduce("distillation", out=out, progress=False)
    assert len(lost.failed) == 2 and "2 of 2 runs are not there." in repr(lost)


def test_a_part_that_several_runs_decide_has_one_verdict(tmp_path):
    same = {"id": "K3", "part": "", "statement": "it falls"}
    runs = [{"claims": [same | {"holds": holds}]} for holds in (False, True, None)]
    for order in permutations(runs):
        (tmp_path / "record.json").write_text(json.dumps({"runs": order}))
        assert verdicts(str(tmp_path / "record.json")) == {("K3", "", "it falls"): False}


def test_the_plan_makes_nothing(tiny, tmp_path, monkeypatch):
    planned = json.loads(reproduce(tmp_path, "--plan", "--json").stdout)
    assert [run["run"] for run in planned["runs"]] == ["data-geometry", "monotonicity"]
    assert not any(run["finished"] for run in planned["runs"])
    monkeypatch.setattr(jobs, "_known_sizes", lambda: {"data-geometry": {"cpu": {"seconds": 90.0, "bytes": None}}})
    shown = reproduce(tmp_path, "--plan").stdout
    assert "about 1 min 30 s" in shown and "1 of unknown duration" in shown
    assert "data-geometry" in shown and "left out: optimisation-bias" in shown
    assert list(tmp_path.iterdir()) == []


def test_a_network_that_is_not_here_leaves_out_its_run_alone(cifar, tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "studies_by_paper", lambda: {"x.luck": [studies()["bn-bias"]]})
    monkeypatch.setattr(jobs, "commands", lambda study: [[], ["--network", "norms.safetensors"]])
    data = tmp_path / "data"
    data.mkdir()
    (data / "cifar-10-batches-bin").symlink_to(cifar / "cifar-10-batches-bin")
    monkeypatch.setenv("UNDERSTUDY_DATA", str(data))
    monkeypatch.setattr("support.commands.ENVIRONMENT", dict(os.environ))
    runs = ["cifar-teacher for bn-bias", "bn-bias"]
    planned = json.loads(reproduce(tmp_path, "--plan", "--json").stdout)
    (missing,) = planned["missing"]
    assert [run["run"] for run in planned["runs"]] == runs
    assert missing["study"] == "bn-bias --network norms.safetensors" and "there is no such file" in missing["why"]

    shifts = {f"norm.{name}": torch.ones(3) for name in ("weight", "bias", "running_mean", "running_var")}
    save_file(shifts, data / "norms.safetensors")
    found = json.loads(reproduce(tmp_path, "--plan", "--json").stdout)
    assert [run["run"] for run in found["runs"]] == [*runs, missing["study"]] and not found["missing"]


def test_a_run_that_fails_is_named_and_the_others_are_there(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(Prepared, "_words", lambda self, job: ["-c", "import sys; sys.exit('understudy: no space')"])
    ended = reproduce(tmp_path, status=2)
    assert "2 of 2 runs are not there: data-geometry: no space; monotonicity: no space" in ended.stderr
    assert json.loads((tmp_path / "runs" / "reproduce.json").read_text())["runs"][0]["why"] == "no space"
    assert "no space" in (tmp_path / "runs" / "reproduce.html").read_text()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent has ended")
def test_runs_end_with_a_reproduce_that_is_killed_in_the_background(tmp_path):
    """Shells start background processes with SIGINT ignored, and their children inherit that."""
    words = [sys.executable, "-m", "understudy.cli", "reproduce", "luck", "--quick", "--out", str(tmp_path)]
    ignoring = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *words]
    with subprocess.Popen(ignoring, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        while not (locks := list(tmp_path.glob("*/*/.lock"))):
            time.sleep(0.05)
            assert process.poll() is None
        process.kill()
    end = time.monotonic() + 30
    while any(RunFolder(lock.parent).busy for lock in locks):
        assert time.monotonic() < end
        time.sleep(0.05)
    assert not any((lock.parent / "report.html").exists() for lock in locks)


def test_two_cannot_work_in_one_folder(tiny, tmp_path):
    (tmp_path / "runs").mkdir()
    with FileLock(tmp_path / "runs" / ".reproduce.lock"):
        assert "another understudy reproduce works in this folder" in reproduce(tmp_path, status=2).stderr


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["chemistry"], "there is no paper 'chemistry'; papers are distillation"),
        (["distillation", "distillation"], "each paper can be named once, got distillation twice"),
        (["--against", "nowhere.json"], "nowhere.json: there is no such file"),
        (["--device", "tpu"], "--device"),
        (["--cluster", "dask"], "--cluster must be ray or ray:ADDRESS, got dask"),
    ],
)
def test_wrong_options_are_refused(tiny, tmp_path, words, error):
    assert error in reproduce(tmp_path, *words, status=2).stderr
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_record_is_refused(tiny, tmp_path):
    (tmp_path / "other.json").write_text('{"runs": [{"claims": [{"id": 3}]}]}')
    ended = reproduce(tmp_path, "--against", "other.json", status=2)
    assert "--against must be a reproduce.json, or the word record, got other.json" in ended.stderr


def test_nothing_to_run_says_why(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "studies_by_paper", lambda: {"x.distillation": [studies()["optimisation-bias"]]})
    assert "nothing can be run: optimisation-bias: --data" in reproduce(tmp_path, status=2).stderr


class TestJobs:
    def test_every_run_of_the_catalogue_is_a_valid_command(self):
        for row in catalogue.rows():
            for words in row.runs:
                name, *options = words.split()
                assert jobs.study_of(name, options).name == name
                assert options in jobs.commands(name)

    def test_every_study_runs_once_with_its_defaults(self):
        for name in studies():
            assert jobs.commands(name)[0] == []
            assert len({" ".join(words) for words in jobs.commands(name)}) == len(jobs.commands(name))

    def test_runs_that_others_start_from_come_first_and_once(self, tmp_path):
        found, _ = jobs.plan_jobs(["specialization", "luck"], tmp_path, quick=True, device="cpu")
        order = {job.folder: i for i, job in enumerate(found)}
        assert len(order) == len(found)
        assert any(job.after for job in found)
        for job in found:
            assert all(order[other.folder] < order[job.folder] for other in job.after)
            assert not job.gpu and job.study == replace(job.study, device="cpu")

    def test_only_studies_that_gain_from_a_gpu_have_it(self, tmp_path, monkeypatch):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        found, _ = jobs.plan_jobs(["specialization"], tmp_path, quick=True, device="auto")
        on = {job.label.removesuffix(" --quick"): job.gpu for job in found}
        assert on["two-layer"] and on["deep"] and on["prune-and-connect"]  # which starts from two-layer
        assert not on["certificates"] and not on["dynamics"]
