"""The README's code, commands and make targets work as printed. `test_docs.py` checks its links."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.commands import understudy
from understudy.lab.example import COMMANDS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
TYPED = [line.split(" #")[0].strip() for language, text in BLOCKS if not language for line in text.splitlines()]
SMALLER_CODE = {
    "range(1, 33)": "range(1, 3)",
    "epochs=20, steps=1_000": "epochs=1, steps=20",
    "train=10_000": "train=200",
}
SMALLER_COMMANDS = {
    "understudy run two-layer --quick": " --seeds 1 --polarity 1 --multiple 1 --epochs 2 --steps 20",
    "understudy reproduce --quick": " --plan",
}
"""Options that make commands shorter which take more than a few seconds."""
ELSEWHERE = ("make", "pip", "source")
"""Programs that set the environment up, which tests run in."""
EXAMPLE = "understudy example mine && cd mine"


def test_the_code_runs_with_small_sizes(tmp_path):
    (code,) = (text for language, text in BLOCKS if language == "python")
    for large, small in SMALLER_CODE.items():
        assert code.count(large) == 1, large
        code = code.replace(large, small)
    code += "assert run.nodes.num_rows == 2 * 2 * (20 + 100), run.nodes.num_rows"
    words = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_replacements_still_apply():
    assert set(SMALLER_COMMANDS) <= set(TYPED)
    assert {line.split()[0] for line in TYPED} <= {"understudy", *ELSEWHERE}
    assert TYPED.count(EXAMPLE) == 1


def test_the_example_names_commands_of_the_readme():
    assert set(COMMANDS) <= set(TYPED)


@pytest.fixture(scope="module")
def mine(example, tmp_path_factory):
    """A copy of the folder that `understudy example mine` writes, with what the commands add."""
    return shutil.copytree(example, tmp_path_factory.mktemp("readme") / "mine")


@pytest.mark.parametrize("line", [line for line in TYPED if line.startswith("understudy ") and line != EXAMPLE])
def test_the_commands_run_as_typed(line, mine):
    words = shlex.split(line + SMALLER_COMMANDS.get(line, ""))[1:]
    assert understudy(*words, cwd=mine).stdout
    for option in ("--save", "--html"):
        assert option not in words or (mine / words[words.index(option) + 1]).stat().st_size


def test_the_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for line in TYPED:
        if line.startswith("make "):
            assert re.search(rf"^{line.split()[1]}:", makefile, re.MULTILINE), line


def test_every_body_of_work_has_a_row():
    rows = re.findall(r"^\| .* \| \[([^]]+)\]\(docs/bibliography\.md#[\w-]+\) \| (.+) \|$", README, re.MULTILINE)
    assert len(rows) == 8
    folders = {path.parent.name for path in (ROOT / "src/understudy/papers").glob("*/__init__.py")}
    built = re.findall(r"docs/papers/(\w+)\.md", " ".join(last for _, last in rows))
    assert set(built) == folders and len(built) == len(folders)
    assert sum(last == "planned" for _, last in rows) == 8 - len(folders)


def test_the_readme_fits_two_screens():
    assert len(README.splitlines()) <= 95
