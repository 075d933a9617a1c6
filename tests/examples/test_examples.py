"""Every script in `examples/` runs as it is and prints something.

`tests/lab/test_own_study.py` runs the study, and `test_watch_example.py` the script that needs CIFAR-10.
"""

import runpy
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))
SCRIPTS = [path for path in EXAMPLES if not path.stem.endswith(("study", "distillation"))]


def test_the_scripts_are_numbered():
    assert [path.name[:3] for path in EXAMPLES] == [f"{number:02}_" for number in range(1, len(EXAMPLES) + 1)]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_the_script_runs(script, one_thread, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(script), run_name="__main__")
    assert len(capsys.readouterr().out.splitlines()) > 3
    assert not list(tmp_path.iterdir())
