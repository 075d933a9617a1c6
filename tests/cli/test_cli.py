"""The command line: help, completion, list, run, report."""

import json
import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console
from safetensors import safe_open

import understudy as us
from support.commands import COMMAND, ENVIRONMENT, TINY, contents, flat, understudy
from understudy.lab.discovery import studies
from understudy.lab.summary import SummaryRow
from understudy.report.terminal.tables import summary_table
from understudy.store import Run

HEAVY = ("torch", "numpy", "scipy", "pyarrow", "matplotlib", "plotly", "rich", "tyro")
PIECES = ("best-correlation", "loss-curves", "recovery-rate", "recovery-time", "specialization")
FILES = {
    "config.toml",
    "environment.json",
    "networks.parquet",
    "metrics.parquet",
    "nodes.parquet",
    "weights.safetensors",
    "claims.json",
    "groups.json",
    "headline.txt",
    "report.html",
    *(f"figures/{name}.{ending}" for name in PIECES for ending in ("pdf", "svg")),
}


def loaded_by(code: str) -> set[str]:
    """The heavy packages that a new Python process has imported after some code."""
    words = [sys.executable, "-c", f"import sys\n{code}\nprint(*sys.modules, file=sys.stderr)"]
    done = subprocess.run(words, env=ENVIRONMENT, text=True, capture_output=True, check=True)
    return set(done.stderr.split()) & set(HEAVY)


def test_help_is_fast_and_imports_nothing_heavy(tmp_path):
    took = []
    for _ in range(3):
        start = time.perf_counter()
        done = understudy("--help", cwd=tmp_path)
        took.append(time.perf_counter() - start)
    assert min(took) < 0.5
    assert "understudy run STUDY" in done.stdout
    assert all(f"understudy {word}" in done.stdout for word in ("list", "run", "report", "claims", "align"))
    assert loaded_by("from understudy import cli; sys.argv = ['understudy', '--help']; assert cli.main() == 0") == set()


def test_importing_understudy_imports_nothing_heavy():
    assert loaded_by("import understudy; understudy.__version__") == set()


def test_version(tmp_path):
    assert understudy("--version", cwd=tmp_path).stdout == f"understudy {us.__version__}\n"
    assert re.match(r"\d+\.\d+\.\d+", us.__version__)


def test_completion_knows_commands_studies_options_and_choices(tmp_path):
    script = understudy("--completion", "bash", cwd=tmp_path).stdout
    assert "understudy run two-layer" not in script
    (tmp_path / "complete.sh").write_text(script + _COMPLETE)
    for words, wanted in (
        ("al", "align"),
        ("run tw", "two-layer"),
        ("run two-layer --se", "--seeds"),
        ("run two-layer --device c", "cpu cuda"),
        ("prune --ref", "--refit"),
    ):
        shell = ["bash", tmp_path / "complete.sh", "understudy", *words.split()]
        done = subprocess.run(shell, text=True, capture_output=True, check=True)
        assert done.stdout.split() == wanted.split(), words


_COMPLETE = """
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_tyro_understudy
echo "${COMPREPLY[@]}"
"""


def test_list_and_version_do_not_import_torch():
    for word in ("list", "--version"):
        code = f"from understudy import cli; sys.argv = ['understudy', {word!r}]; assert cli.main() == 0"
        assert not loaded_by(code) & {"torch", "scipy", "matplotlib"}


QUOTES = "''"
"""An empty default in the help."""


@pytest.mark.parametrize("study", studies().values(), ids=list(studies()))
def test_help_of_a_study_shows_every_option_with_its_default(study, tmp_path):
    shown = flat(understudy("run", study.name, "--help", cwd=tmp_path).stdout)
    for name, value in study().options().items():
        default = str(" ".join(map(str, value)) if isinstance(value, tuple) else value) or QUOTES
        assert re.search(rf"--{name.replace('_', '-')} .{{2,}} \(default: {re.escape(default)}\)", shown), name
    for name in ("--out", "--quick", "--json"):
        assert name in shown


def test_help_of_run_names_the_studies(tmp_path):
    shown = understudy("run", "--help", cwd=tmp_path).stdout
    assert all(study.name in shown and study.summary in shown for study in studies().values())


def test_list_shows_papers_studies_and_runs(tiny, tmp_path):
    out = tiny[1].parents[1]
    shown = understudy("list", "--out", out, cwd=tmp_path).stdout
    assert all(study.name in shown for study in studies().values())
    assert "Luck Matters: Understanding Training Dynamics" in shown
    assert shown.index("Luck Matters") < shown.index("\n lottery ") < shown.index("\n two-layer ")
    assert str(tiny[1]) in shown
    result = json.loads(understudy("list", "--out", out, "--json", cwd=tmp_path).stdout)
    assert [study["name"] for study in result["studies"]] == list(studies())
    by_name = {study["name"]: study for study in result["studies"]}
    assert by_name["two-layer"]["claims"] == studies()["two-layer"].decides.split()
    assert by_name["two-layer"]["paper"] == "specialization"
    assert result["runs"] == [{"study": "two-layer", "run": str(tiny[1])}]
    assert not list(tmp_path.iterdir())


# run


def test_run_prints_one_json_object_on_standard_output_and_plain_lines_elsewhere(tiny):
    done, folder = tiny
    assert done.stdout.count("\n") == 1
    result = json.loads(done.stdout)
    assert result["claims"] == []
    assert result["headline"] == (folder / "headline.txt").read_text(encoding="utf-8").strip()
    assert Path(result["report"]).name == "report.html"
    first, *lines, last = done.stderr.splitlines()
    assert first == f"understudy run two-layer {_in_order(TINY)}: in {result['run']}"
    assert [line[:12] for line in lines] == [f"epoch    {epoch}/3" for epoch in range(4)]
    assert all(re.search(r"networks 4/4   loss \d\.\d\d×10⁻\S   recovered \d+\.\d%   left \d+ s$", x) for x in lines)
    assert last == "writing tables, figures and the report"
    assert "\x1b" not in done.stderr


def _in_order(words: list[str]) -> str:
    """Options in the order of the study."""
    options = re.findall(r"--\S+(?: [^-]\S*)+", " ".join(words))
    order = list(studies()["two-layer"]().options())
    return " ".join(sorted(options, key=lambda o: order.index(o.split()[0][2:].replace("-", "_"))))


def test_a_run_folder_contains_exactly_the_documented_files(tiny):
    files = {str(path.relative_to(tiny[1])) for path in tiny[1].rglob("*") if path.is_file()}
    assert files == FILES
    assert not (tiny[1] / "progress").exists()


def test_tables_have_the_documented_columns_and_types(tiny):
    types = {
        table: {field.name: str(field.type) for field in pq.read_schema(tiny[1] / f"{table}.parquet")}
        for table in ("networks", "metrics", "nodes")
    }
    word = "dictionary<values=string, indices=int8, ordered=0>"
    number = {"network": "int32", "epoch": "int32", "layer": "int16"}
    assert types["networks"] == {
        "network": "int32",
        "teacher_nodes": "int64",
        "polarity": "double",
        "multiple": "double",
        "seed": "int64",
        "diverged_at": "int64",
    }
    assert {k: v.replace("indices=int32", "indices=int8") for k, v in types["metrics"].items()} == number | {
        "metric": word,
        "value": "double",
    }
    assert {k: v.replace("indices=int32", "indices=int8") for k, v in types["nodes"].items()} == number | {
        "role": word,
        "teacher": "int32",
        "student": "int32",
        **dict.fromkeys(("correlation", "sin_angle", "bias_gap", "fanout"), "float"),
    }


def test_tables_contain_every_network_epoch_and_node(tiny):
    run = Run(tiny[1])
    assert run.networks.num_rows == 4
    assert run.epochs.tolist() == [0, 1, 2, 3]
    names = set(run.metrics["metric"].to_pylist())
    assert {"train_loss", "eval_loss", "rho_mean", "recovered"} <= names
    for name in ("train_loss", "eval_loss"):
        assert run.series(name).shape == (4, 4)
        assert (run.series(name) > 0).all()
    assert run.nodes.num_rows == 4 * 2 * (2 * 3 + 3 + 6)
    assert run.matched("teacher", "correlation").shape == (4, 4, 3)
    assert run.matched("student", "fanout").shape == (4, 4, 6)


def test_weights_contain_teachers_and_the_first_and_last_students(tiny):
    with safe_open(tiny[1] / "weights.safetensors", "pt") as file:
        stems = {name.split(".layers")[0] for name in file.keys() if ".layers." in name}  # noqa: SIM118
    assert stems == {f"{who}.{group}" for who in ("teacher", "epoch.0", "epoch.3") for group in (0, 1)}
    run = Run(tiny[1])
    assert [tuple(p.layers[0].weight.shape) for p in run.weights("epoch.3")] == [(2, 3, 6), (2, 6, 6)]


def test_nothing_in_a_run_is_a_pickle(tiny):
    for path in tiny[1].rglob("*"):
        assert path.suffix not in (".pkl", ".pickle", ".pt", ".pth", ".npy")
        assert path.is_dir() or path.read_bytes()[:1] != b"\x80"


def test_the_environment_of_a_run_is_recorded(tiny):
    made = Run(tiny[1]).environment
    assert made["seconds"] >= 0
    assert made["device"]
    assert set(made["packages"]) >= {"torch", "numpy", "pyarrow"}
    config = Run(tiny[1]).config
    assert config["study"] == "two-layer"
    assert config["options"]["multiple"] == [1.0, 2.0]


def test_a_finished_run_is_printed_again_and_nothing_is_written(tiny):
    done, folder = tiny
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    again = understudy("run", "two-layer", *TINY, "--json", cwd=folder.parents[2])
    assert again.stdout == done.stdout
    assert again.stderr == ""
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_report_writes_the_page_again_from_the_tables(tiny, tmp_path):
    folder = tmp_path / "elsewhere"
    shutil.copytree(tiny[1], folder)
    for name in ("report.html", "claims.json", "headline.txt"):
        (folder / name).unlink()
    shutil.rmtree(folder / "figures")
    (folder / ".report.html.123").write_text("what a killed process left")
    result = json.loads(understudy("report", "elsewhere", "--json", cwd=tmp_path).stdout)
    assert result["run"] == "elsewhere"
    assert contents(folder) == contents(tiny[1])


def test_on_a_terminal_a_run_shows_a_live_line_and_results_at_the_end(tmp_path):
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [*COMMAND, "run", "two-layer", *TINY],
        cwd=tmp_path,
        env={**ENVIRONMENT, "TERM": "xterm"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        close_fds=True,
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # Linux raises this once the last writer has closed
            break
        if not part:
            break
        shown += part
    os.close(ours)
    assert child.wait(60) == 0
    text = shown.decode()
    assert "epoch 3/3 " in text
    assert "━" in text
    assert not re.search(r"epoch +\d/3   networks", text)
    assert "\x1b[" in text
    tail = text[text.index("writing tables, figures and the report") :]
    assert re.search(r"\d of 3 were recovered by epoch 3", re.sub(r"\s+", " ", tail))
    assert "report: runs/two-layer/" in tail


def test_diverged_networks_are_reported_and_the_run_ends_normally(tmp_path):
    done = understudy("run", "two-layer", *TINY, "--lr", "1000", "--json", cwd=tmp_path)
    result = json.loads(done.stdout)
    assert re.fullmatch(
        r"All 4 networks diverged, the first at step \d+: choose a smaller --lr than 1000\.", result["headline"]
    )
    assert "nan" not in done.stderr
    assert "epoch    3/3   every network has diverged\n" in done.stderr
    run = Run(tmp_path / result["run"])
    assert run.networks["diverged_at"].null_count == 0
    assert "<html" in (run.folder / "report.html").read_text(encoding="utf-8")


def test_quick_changes_defaults_and_explicit_options_take_precedence(tmp_path, monkeypatch):
    from understudy.cli.run import parse_run

    kind = studies()["two-layer"]
    options = parse_run(kind, ["--quick", "--seeds", "9"], "x")
    assert options.study.seeds == 9
    assert options.study.epochs == kind.quick().epochs != kind().epochs


def test_former_names_of_options_are_understood_with_a_notice(tmp_path, monkeypatch):
    monkeypatch.setattr(studies()["two-layer"], "renamed", {"teachers_nodes": "teacher_nodes"})
    words = ["--teachers-nodes", *TINY[1:], "--plan", "--json"]
    done = understudy("run", "two-layer", *words, cwd=tmp_path)
    assert done.stderr == "understudy: --teachers-nodes is now called --teacher-nodes\n"
    assert {tuple(group["sizes"]) for group in json.loads(done.stdout)["groups"]} == {(6, 3, 4), (6, 6, 4)}


OWN = """
from dataclasses import dataclass

from understudy.papers.specialization.two_layer.study import TwoLayer


@dataclass(frozen=True)
class Narrow(TwoLayer):
    name = "narrow"
    summary = "two layers of few nodes"
    decides = ""

    dim: int = 6
    \"\"\"Input dimension of the narrow networks.\"\"\"

    def story(self, run):
        from understudy.papers.specialization.two_layer.story import story

        return story(self, run)
"""


def test_a_study_of_the_users_own_is_run_resumed_and_reported(tmp_path):
    (tmp_path / "narrow.py").write_text(OWN)
    shown = flat(understudy("run", "narrow.py", "--help", cwd=tmp_path).stdout)
    assert "usage: understudy run narrow.py" in shown
    assert "Input dimension of the narrow networks. (default: 6)" in shown
    done = understudy("run", "narrow.py", *TINY, "--json", cwd=tmp_path)
    result = json.loads(done.stdout)
    assert done.stderr.startswith("understudy run narrow.py --seeds 2 ")
    assert result["run"].startswith("runs/narrow/")
    assert understudy("run", "narrow.py", *TINY, "--json", cwd=tmp_path).stdout == done.stdout
    page = tmp_path / result["report"]
    page.unlink()
    again = understudy("report", result["run"], "--study", "narrow.py", "--json", cwd=tmp_path)
    assert again.stdout == done.stdout
    assert page.is_file()
    refused = understudy("report", result["run"], cwd=tmp_path, status=2)
    assert "is a run of unknown study 'narrow'; known studies: " in refused.stderr
    assert refused.stderr.endswith("for a study of your own, give its file with --study\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "own.py: no such file"),
        ("", "own.py defines no study, but one is needed"),
        ("import nowhere_at_all", "own.py cannot be imported: ModuleNotFoundError"),
        (OWN + OWN.replace("Narrow", "Wide").replace("narrow", "wide"), "own.py defines 2 studies (narrow, wide)"),
    ],
)
def test_files_without_one_study_are_refused(tmp_path, text, message):
    if text is not None:
        (tmp_path / "own.py").write_text(text)
    done = understudy("run", "own.py", "--quick", cwd=tmp_path, status=2)
    assert done.stderr.startswith(f"understudy: {message}")


@pytest.mark.parametrize("polarities", [2, 20])
def test_many_settings_share_rows(polarities):
    settings = [
        SummaryRow({"multiple": k, "polarity": float(p)}, 3, int(p == 0), 10.0**-k, 0.5)
        for k in (1, 2)
        for p in range(polarities)
    ]
    settings[1] = settings[1]._replace(diverged=3, loss=float("nan"))
    console = Console(width=400)
    with console.capture() as captured:
        console.print(summary_table(settings))
    lines = [line.split() for line in captured.get().splitlines() if line.split()[:1] in (["1"], ["2"])]
    if polarities == 2:
        assert lines == [
            ["1", "0", "3", "1", "1.00×10⁻¹", "50.0%"],
            ["1", "1", "3", "3", "–", "–"],
            ["2", "0", "3", "1", "1.00×10⁻²", "50.0%"],
            ["2", "1", "3", "0", "1.00×10⁻²", "50.0%"],
        ]
    else:
        assert "(of 120 networks, 5 of which diverged)" in captured.get()
        assert lines == [["1", "10⁻¹", "50%", "diverged", *["10⁻¹", "50%"] * 18], ["2", *["10⁻²", "50%"] * 20]]


def test_a_closed_pipe_leaves_no_traceback(tmp_path):
    words = f"{shlex.join(COMMAND)} claims | head -1"
    done = subprocess.run(words, cwd=tmp_path, env=ENVIRONMENT, shell=True, text=True, capture_output=True, check=True)
    assert done.stderr == ""


def test_a_table_of_a_run_is_read_without_understudy(tiny):
    assert isinstance(pq.read_table(tiny[1] / "nodes.parquet"), pa.Table)
