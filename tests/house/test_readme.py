"""What the README shows works as it stands there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.commands import SCRIPT
from understudy.lab.discovery import studies

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def ran(code: str) -> str:
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_example_runs_made_small():
    code, _ = EXAMPLES
    small = code.replace("range(1, 33)", "range(1, 3)").replace("epochs=20, steps=1_000", "epochs=1, steps=20")
    assert small.count("range(1, 3)") == small.count("epochs=1, steps=20") == 1
    ran(small + "assert run.nodes.num_rows == 2 * 2 * (20 + 100), run.nodes.num_rows")


@pytest.mark.deep
def test_the_theorems_certify_what_the_example_says():
    """How many nodes, not at which ε: that is left to the last digits of a machine."""
    code = EXAMPLES[1]
    told = [re.match(r"(\d+) of (\d+) teacher nodes", line) for line in re.findall("^# (.*)$", code, re.MULTILINE)]
    found = [
        re.match(r"(\d+) of (\d+) teacher nodes", line) for line in ran("import understudy as us\n" + code).splitlines()
    ]
    assert [match.groups() for match in found] == [match.groups() for match in told] == [("4", "8"), ("8", "8")]


def test_every_study_stands_in_the_table_with_its_figures():
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| ([^|]+) \|", README, re.MULTILINE))
    assert {name: study.figures for name, study in studies().items()} == {k: v.strip() for k, v in rows.items()}


@pytest.mark.parametrize("command", sorted(set(re.findall(r"^understudy (\w+)", README, re.MULTILINE))))
def test_the_commands_exist(command):
    assert subprocess.run([SCRIPT, command, "--help"], capture_output=True).returncode == 0


@pytest.mark.parametrize("link", re.findall(r"\]\(((?!http)[^)]+)\)", README))
def test_the_links_lead_somewhere(link):
    assert (ROOT / link).exists()


def test_the_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"`?make (\w+)", README)):
        assert target == "are" or re.search(rf"^{target}:", makefile, re.MULTILINE), target
