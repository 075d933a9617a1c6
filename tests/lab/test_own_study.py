"""A study in a user's file has help, options, plan, resume, claims and report, as built-in studies have."""

import json
from pathlib import Path

import pytest

from support.commands import understudy
from understudy._errors import UserError
from understudy.lab import load_file
from understudy.store import Run

FILE = Path(__file__).parents[2] / "examples" / "06_your_own_study.py"
SMALL = ["--seeds", 2, "--noise", 0, 0.5, "--teacher-nodes", 4, "--epochs", 3, "--steps", 20, "--train", 100]


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """The folder and the printed result of a small run of the example."""
    here = tmp_path_factory.mktemp("own")
    printed = json.loads(understudy("run", FILE, *SMALL, "--json", cwd=here).stdout)
    return here, printed


def test_help_describes_its_options(tmp_path):
    printed = understudy("run", FILE, "--help", cwd=tmp_path).stdout
    assert "Shares of the training labels that are replaced by random" in printed
    assert "--quick" in printed


def test_the_plan_is_shown_without_running(tmp_path):
    printed = json.loads(understudy("run", FILE, *SMALL, "--plan", "--json", cwd=tmp_path).stdout)
    assert printed
    assert not (tmp_path / "runs").exists()


def test_it_runs_to_a_report(done):
    here, printed = done
    run = Run(here / printed["run"])
    assert run.config["study"] == "label-noise"
    assert run.array("correlation", "noise seed epoch teacher").shape == (2, 2, 4, 4)
    assert printed["headline"].startswith("Weak teacher nodes end at a mean best correlation of")
    assert "figures/weak-nodes.svg" in (run.folder / "report.html").read_text(encoding="utf-8")


def test_the_same_command_reads_the_finished_run(done):
    here, printed = done
    before = {path: path.stat().st_mtime_ns for path in (here / printed["run"]).iterdir()}
    again = json.loads(understudy("run", FILE, *SMALL, "--json", cwd=here).stdout)
    assert again == printed
    assert {path: path.stat().st_mtime_ns for path in (here / printed["run"]).iterdir()} == before


def test_its_report_is_written_again_if_the_file_is_given(done):
    here, printed = done
    again = understudy("report", here / printed["run"], "--study", FILE, "--json", cwd=here)
    assert json.loads(again.stdout)["headline"] == printed["headline"]
    refused = understudy("report", here / printed["run"], cwd=here, status=2)
    assert "label-noise" in refused.stderr
    assert "give its file with --study" in refused.stderr


def test_the_command_in_the_report_names_the_file(done):
    here, printed = done
    page = (here / printed["run"] / "report.html").read_text(encoding="utf-8")
    assert f"understudy run {FILE} --seeds 2" in page


def test_its_claims_are_decided_in_its_own_settings():
    study = load_file(FILE)
    assert study().decides == "N1"
    rows = {(noise, seed): value for noise, value in ((0.0, 0.9), (0.5, 0.4)) for seed in (1, 2)}
    small = study(seeds=2, noise=(0.0, 0.5))
    (claim,) = small.claims(Fake(rows, small.teacher_nodes))
    assert (claim.id, claim.n, claim.holds) == ("N1", 2, True)
    assert claim.measured == "lower by 0.50; in 2 of 2 seeds"
    (worse,) = small.claims(Fake(rows | {(0.5, 2): 0.95}, small.teacher_nodes))
    assert not worse.holds
    assert not study(epochs=3).claims(Fake(rows, 10))


class Fake:
    """A run with the given correlation of all teacher nodes for each noise and seed."""

    def __init__(self, rows, nodes):
        self.rows, self.nodes = rows, nodes

    def array(self, metric, dims):
        import numpy as np
        import xarray as xr

        assert (metric, dims) == ("correlation", "noise seed teacher")
        noise, seeds = (sorted({key[i] for key in self.rows}) for i in (0, 1))
        values = np.array([[[self.rows[n, s]] * self.nodes for s in seeds] for n in noise])
        return xr.DataArray(values, {"noise": noise, "seed": seeds}, ("noise", "seed", "teacher"))


def test_invalid_options_are_refused(tmp_path):
    printed = understudy("run", FILE, "--noise", "2", cwd=tmp_path, status=2)
    assert "--noise must be at least 0 and at most 1, got 2" in printed.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import nowhere_at_all", "cannot be imported: ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("def (", "cannot be imported: SyntaxError"),
        ("x = 1", "defines no study, but one is needed"),
        (
            "from understudy.lab import TrainingStudy\nclass A(TrainingStudy):\n    name = 'a'\n"
            "class B(TrainingStudy):\n    name = 'b'\n",
            r"defines 2 studies \(a, b\), but one is needed",
        ),
    ],
)
def test_a_file_without_one_study_is_refused(tmp_path, text, message):
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(UserError, match=message):
        load_file(tmp_path / "mine.py")


def test_a_file_that_does_not_exist_is_refused(tmp_path):
    printed = understudy("run", "mine.py", cwd=tmp_path, status=2)
    assert "mine.py: no such file; give a Python file that defines a study" in printed.stderr
