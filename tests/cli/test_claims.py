"""`understudy claims`: the summary and its filters."""

import json
import re
from pathlib import Path

import pytest

import understudy as us
from support.commands import understudy
from understudy.claims import record


def claims(tmp_path, *words: str) -> dict:
    return json.loads(understudy("claims", *words, "--json", cwd=tmp_path).stdout)


def test_the_summary_comes_first_and_counts_every_claim(tmp_path):
    found = claims(tmp_path)
    ids = {m.claim.id for m in record.recorded()}
    failing = {m.claim.id for m in record.recorded() if m.claim.holds is False}
    counts = found["summary"]
    papers = counts.pop("papers")
    assert counts["claims"] == len(record.rows()) == counts["hold"] + counts["fail"] + counts["undecided"]
    assert (counts["measured"], counts["fail"]) == (len(ids), len(failing))
    for name in ("claims", "hold", "fail", "undecided"):
        assert sum(each[name] for each in papers.values()) == counts[name]
    lines = understudy("claims", cwd=tmp_path).stdout.splitlines()
    assert lines[0].startswith(f"{counts['claims']} claims: {counts['hold']} hold, {counts['fail']} do not hold")
    summary = "".join(lines[: 5 + len(papers)])
    assert all(id in summary for id in failing)


def test_claims_of_a_study(tmp_path):
    listed = claims(tmp_path, "--study", "two-layer")["claims"]
    assert {row["study"].split()[0] for row in listed} == {"two-layer"} and len(listed) >= 5


def test_claims_of_a_paper(tmp_path):
    listed = {row["id"] for row in claims(tmp_path, "--paper", "specialization")["claims"]}
    assert {row["id"] for row in claims(tmp_path, "--study", "two-layer")["claims"]} < listed
    assert not listed & {row["id"] for row in claims(tmp_path, "--paper", "luck")["claims"]}
    shown = understudy("claims", "--paper", "luck", "--study", "two-layer", cwd=tmp_path, status=2)
    assert shown.stdout == "" and "--study must be a study of luck (" in shown.stderr
    assert "got two-layer: no claim matches" in shown.stderr


@pytest.mark.parametrize(
    ("cited", "folders"),
    [
        ("Tian 2020", ["specialization"]),
        ("tian et al. 2019", ["luck"]),
        ("Zhou, Ge & Jin 2021", ["local"]),
        ("Zhou, Ge and Jin (2021)", ["local"]),
        ("Phuong 2021", ["equivalence", "separable", "autoencoder", "distillation", "multi_exit"]),
        ("Phuong & Lampert 2019b", ["multi_exit"]),
    ],
)
def test_a_paper_is_named_by_author_and_year(cited, folders, tmp_path):
    found = us.claims(tmp_path, paper=cited)
    assert found.num_rows
    assert set(found["id"].to_pylist()) == {
        id for folder in folders for id in us.claims(tmp_path, paper=folder)["id"].to_pylist()
    }


def test_every_paper_of_the_bibliography_can_be_named(tmp_path):
    text = (Path(__file__).parents[2] / "docs/bibliography.md").read_text(encoding="utf-8").split("## Other works")[0]
    cited = re.findall("^### (.+)$", text, re.MULTILINE)
    assert len(cited) >= 8
    for each in cited:
        assert us.claims(tmp_path, paper=each).num_rows


def test_only_failing_measurements(tmp_path):
    listed = claims(tmp_path, "--failing")["claims"]
    assert listed and all(row["measured"] for row in listed)
    assert not any(m["holds"] for row in listed for m in row["measured"])
    assert " yes " not in understudy("claims", "--failing", cwd=tmp_path).stdout


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--study", "three-layer"), "--study must be one of "),
        (("--paper", "S9"), "--paper must be one of autoencoder, "),
        (("--markdown", "--failing"), "--markdown prints the whole record"),
    ],
)
def test_bad_words_are_answered_by_what_is_allowed(tmp_path, words, error):
    assert error in understudy("claims", *words, cwd=tmp_path, status=2).stderr
