"""The record of claims contains every claim of the catalogue with what full runs measured, and is kept in a file."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from support.commands import understudy
from understudy import cli
from understudy.claims import record
from understudy.lab.discovery import studies
from understudy.store import Claim, Run

ROOT = Path(__file__).parents[2]
COUNTS = {"P": 4, "L": 5, "T": 11, "D": 11, "Y": 11, "Z": 12, "E": 4, "B": 5, "K": 5, "M": 4, "X": 3}
IDS = [f"{letter}{number}" for letter, count in COUNTS.items() for number in range(1, count + 1)]

CLAIM = Claim(
    id="T6",
    statement="it falls",
    paper="a > b",
    measured="2 > 1",
    n=4,
    holds=True,
    part="p = 1",
    values=(2.0, 1.0),
    low=None,
    high=2.5,
)
COMMAND = "understudy run two-layer"


@pytest.fixture
def run_claims(tmp_path, monkeypatch, capsys):
    """Run `understudy claims …` in a temporary folder; return its output."""

    def run_claims(*words: object) -> str:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["understudy", "claims", *map(str, words)])
        assert cli.main() == 0
        printed = capsys.readouterr()
        assert printed.err == ""
        return printed.out

    return run_claims


@pytest.fixture
def decided(tiny, tmp_path):
    """A copy of the tiny run in `runs` with a decided claim."""
    folder = tmp_path / "runs" / "two-layer" / tiny[1].name
    shutil.copytree(tiny[1], folder)
    (folder / "claims.json").write_text(json.dumps([CLAIM.as_dict()]))
    return folder


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """A temporary record, empty at first."""
    path = tmp_path / "record.json"
    monkeypatch.setattr(record, "RECORD", path)
    monkeypatch.setattr(record.recorded, "__defaults__", (path,))
    monkeypatch.setattr(record.keep, "__defaults__", (path,))
    return path


def test_the_catalogue_has_every_claim_of_the_papers_once():
    assert sorted(row.id for row in record.rows()) == sorted(IDS)
    assert all(row.statement and row.value and row.study for row in record.rows())


def test_the_catalogue_names_the_study_that_decides_a_claim():
    listed = {row.id: row.commands for row in record.rows()}
    for study in studies().values():
        assert [id for id, commands in listed.items() if study.name in commands] == study.decides.split()


def test_the_command_shows_every_claim_and_which_are_not_measured(tmp_path):
    shown = understudy("claims", cwd=tmp_path).stdout
    rows = [line.split()[0] for line in shown.splitlines() if line.split() and line.split()[0] in IDS]
    assert list(dict.fromkeys(rows)) == [row.id for row in record.rows()]
    assert "not yet measured" in shown


def test_json_has_every_claim(run_claims):
    printed = json.loads(run_claims("--json"))["claims"]
    assert [row["id"] for row in printed] == [row.id for row in record.rows()]
    assert all(
        set(row) == {"id", "headline", "statement", "value", "study", "of", "holds", "measured"} for row in printed
    )


def test_a_users_run_is_shown_beside_the_record(run_claims, decided, kept):
    record.keep(Run(decided), COMMAND)
    (row,) = [row for row in json.loads(run_claims("--json"))["claims"] if row["id"] == "T6"]
    *made, missing = row["measured"]
    (kept_as, made_here) = [entry["from"] for entry in made]
    assert kept_as == f"{record.measured(Run(decided), COMMAND)[0].machine}, unknown"
    assert made_here == str(decided.relative_to(decided.parents[2]))
    assert all(entry["measured"] == "2 > 1" and entry["holds"] is True for entry in made)
    assert missing["would_decide"] == "`understudy run two-layer --teacher-nodes 20 --polarity 1 1.5 --epochs 300`"
    assert missing["holds"] is row["holds"] is None
    lines = run_claims().splitlines()
    (heading,) = [line for line in lines if line.split()[:1] == ["T6"]]
    assert "2 of 3" in heading
    parts = [line for line in lines if "p = 1 " in line and "2 > 1" in line]
    assert len(parts) == 2
    assert all("yes" in line for line in parts)


def test_a_claim_that_does_not_hold_is_marked(run_claims, decided, kept):
    (decided / "claims.json").write_text(json.dumps([{**CLAIM.as_dict(), "holds": False}]))
    record.keep(Run(decided), COMMAND)
    assert "NO" in run_claims()
    assert "| **no** |" in run_claims("--markdown")


def test_keeping_a_run_records_its_claims_with_command_machine_and_commit(run_claims, decided, kept):
    printed = run_claims("--keep", decided)
    assert printed == f"added 1 claims of {decided} to the record {kept}\n"
    (entry,) = json.loads(kept.read_text())
    assert {key: entry[key] for key in ("id", "measured", "n", "holds", "part")} == {
        "id": "T6",
        "measured": "2 > 1",
        "n": 4,
        "holds": True,
        "part": "p = 1",
    }
    assert entry["command"].startswith("understudy run two-layer --seeds 2 --device ")
    assert " --teacher-nodes 3 " in entry["command"]
    assert entry["commit"] == "unknown"
    assert entry["machine"]
    assert entry["seconds"] >= 0


def test_keeping_a_run_again_replaces_the_claims_of_the_same_command(run_claims, decided, kept):
    run_claims("--keep", decided)
    (decided / "claims.json").write_text(json.dumps([{**CLAIM.as_dict(), "measured": "3 > 1"}]))
    run_claims("--keep", decided)
    (entry,) = json.loads(kept.read_text())
    assert entry["measured"] == "3 > 1"


def test_recorded_claims_are_read_back_unchanged(decided, kept):
    record.keep(Run(decided), COMMAND)
    (back,) = record.recorded(kept)
    assert back.as_dict() == record.measured(Run(decided), COMMAND)[0].as_dict()


def test_the_page_of_claims_is_up_to_date(tmp_path):
    page = (ROOT / "docs" / "results" / "claims.md").read_text(encoding="utf-8")
    assert understudy("claims", "--markdown", cwd=tmp_path).stdout == page
    assert all(f"| {id} |" in page for id in IDS)


def test_runs_of_unknown_studies_are_ignored(run_claims, decided, kept):
    config = decided / "config.toml"
    config.write_text(config.read_text().replace('"two-layer"', '"of-tomorrow"'))
    assert len(json.loads(run_claims("--json"))["claims"]) == len(IDS)
