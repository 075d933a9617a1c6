"""The README's code, commands and make targets work as printed. `test_docs.py` checks its links."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.commands import SCRIPT

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
TYPED = "\n".join(text for language, text in BLOCKS if not language)


def test_the_code_runs_with_small_sizes():
    (code,) = (text for language, text in BLOCKS if language == "python")
    small = code.replace("range(1, 33)", "range(1, 3)").replace("epochs=20, steps=1_000", "epochs=1, steps=20")
    small = small.replace("train=10_000", "train=200")
    assert [small.count(part) for part in ("range(1, 3)", "epochs=1, steps=20", "train=200")] == [1, 1, 1]
    small += "assert run.nodes.num_rows == 2 * 2 * (20 + 100), run.nodes.num_rows"
    done = subprocess.run([sys.executable, "-W", "error", "-c", small], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", sorted(set(re.findall(r"^understudy (\w+)", TYPED, re.MULTILINE))))
def test_the_commands_exist(command):
    assert subprocess.run([SCRIPT, command, "--help"], capture_output=True, check=False).returncode == 0


def test_the_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"^make (\w+)", TYPED, re.MULTILINE)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_the_readme_fits_two_screens():
    assert len(README.splitlines()) <= 100
