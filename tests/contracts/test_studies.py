"""What every study promises, whichever it is: it is held to this by being registered."""

import ast
import inspect
import json
import os
import re
import shlex
import textwrap
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from understudy._errors import UserError
from understudy.claims import record
from understudy.cli.run import parse_run
from understudy.lab.check_runs import check
from understudy.lab.cifar import CifarOptions
from understudy.lab.discovery import studies
from understudy.lab.execute import execute
from understudy.lab.mnist import OnMnist
from understudy.lab.study import Study, TrainingStudy, sibling
from understudy.report import style
from understudy.store import Run
from understudy.store.config import from_toml, name, to_toml
from understudy.theory import results

TINY: dict[str, dict[str, object]] = {
    "equivalence": {"seeds": 2, "constructed": 2, "students": 4, "samples": 100},
    "recovery": {"seeds": 2, "architecture": ("6-4-1",), "rare": 1},
    "folds": {
        "seeds": 2,
        "hidden": ("3-2",),
        "grid": 30,
        "lines": 2,
        "width": (3,),
        "students": 1,
        "epochs": 2,
        "steps": 5,
    },
    "two-layer": {
        "teacher_nodes": (3,),
        "dim": 6,
        "outputs": 4,
        "seeds": 2,
        "polarity": (1.0,),
        "multiple": (1.0, 2.0),
        "epochs": 3,
        "steps": 20,
        "train": 64,
        "evaluation": 64,
    },
    "focus-shift": {
        "teacher_nodes": 3,
        "dim": 6,
        "outputs": 4,
        "seeds": 2,
        "multiple": (1.0, 2.0),
        "epochs": 3,
        "steps": 20,
        "train": 64,
        "evaluation": 64,
    },
    "matrix-dynamics": {
        "seeds": 1,
        "hidden": ("3",),
        "dim": 4,
        "outputs": 3,
        "steps": 20,
        "probes": 4,
        "evaluation": 64,
    },
    "batchnorm-energy": {
        "seeds": 1,
        "teacher_layers": (3,),
        "dim": 4,
        "outputs": 3,
        "rates": (0.01, 0.03),
        "time": 0.3,
        "batch": 8,
        "probes": 3,
    },
    "flat-minima": {
        "seeds": 1,
        "teacher_nodes": (2, 4),
        "multiple": (1.0, 2.0),
        "dim": 3,
        "outputs": 2,
        "epochs": 2,
        "steps": 20,
        "train": 64,
        "evaluation": 64,
    },
    "prune-and-connect": {
        "teacher_nodes": 3,
        "dim": 6,
        "outputs": 4,
        "seeds": 2,
        "multiple": (2.0,),
        "epochs": 3,
        "steps": 20,
        "train": 64,
        "evaluation": 64,
        "below": 0.0,
    },
    "lucky-init": {
        "seeds": 2,
        "dim": 4,
        "teacher_nodes": 3,
        "outputs": 4,
        "multiple": (2.0,),
        "steps": 20,
        "every": 10,
        "bounded": 5,
    },
    "certificates": {
        "seeds": 1,
        "triples": 15,
        "samples": (1_000, 20_000),
        "students": 1,
        "near": (3.0,),
        "epochs": 3,
        "steps": 20,
        "train": 64,
        "certify": 3_000,
        "more": (1_000, 20_000),
        "depths": (2, 3),
    },
    "identifiability": {
        "seeds": 1,
        "samples": 1_000,
        "digits": 1,
        "separation": (0.1, 1.0),
        "fan": (2,),
        "descents": 1,
        "teacher_nodes": (3,),
        "dim": (2,),
        "multiple": (1,),
        "steps": 20,
    },
    "initialisation": {
        "seeds": 1,
        "teacher_nodes": (2,),
        "dim": (3,),
        "students": (2, 5),
        "samples": (100, 1_000),
        "span_samples": 1_000,
        "descents": 1,
        "descent_dim": (3,),
        "descent_students": 3,
        "steps": 20,
    },
    "linear-distillation": {
        "seeds": 20,
        "dim": 4,
        "inputs": (2, 5),
        "depths": (1, 2),
        "students": 2,
        "learned_inputs": (2, 5),
        "steps": 20,
        "probes": 5,
        "scales": (1.0,),
    },
    "data-geometry": {"seeds": 20, "dim": 10, "inputs": 3, "kappa": (0.5, 1.0)},
    "optimisation-bias": {"seeds": 2, "train": 200, "inputs": 10, "deltas": (0.0, 10.0)},
    "monotonicity": {
        "seeds": 20,
        "dim": 10,
        "inputs": 3,
        "deltas": (0.5, 1.0),
        "steps": 20,
        "longest": 20,
        "probes": 3,
    },
    "orthogonal": {
        "seeds": 1,
        "dim": 3,
        "points": 20,
        "neurons": 6,
        "layers": (2, 3),
        "start": (0.05,),
        "batch": 5,
        "epochs": 3,
        "flow_start": (0.1,),
        "flow_decades": 0.0,
        "span_dim": 2,
        "span_points": 12,
        "span_neurons": 4,
        "searches": 10,
        "probes": 5,
    },
    "multi-exit": {
        "seeds": 1,
        "made": 54,
        "images": (52,),
        "temperatures": ("annealed", "1"),
        "teachers": ("last", "later"),
        "epochs": 2,
        "drops": (1,),
        "batch": 40,
        "probe_every": 1,
        "test": 50,
        "channels": (2, 2),
        "layers": 2,
        "exits": (1, 2),
        "head": 4,
        "stem": "imagenet",
        "repeats": 2,
        "imagenet_repeats": 0,
    },
    "split-normal": {
        "seeds": 1,
        "targets": (0.0, 1.0),
        "penalties": (1.0,),
        "free_bits": (1.0,),
        "betas": (1.0,),
        "steps": 20,
        "width": 4,
        "batch": 16,
        "samples": 16,
    },
    "ten-labels": {
        "seeds": 1,
        "labels": 3,
        "targets": (0.0, 1.0),
        "penalties": (1.0,),
        "free_bits": (1.0,),
        "betas": (1.0,),
        "resamples": 2,
        "steps": 20,
        "width": 4,
        "batch": 48,
        "samples": 16,
        "estimates": 3,
    },
    "movie-sentences": {
        "seeds": 1,
        "made": 60,
        "longest": 5,
        "least": 1,
        "targets": (0.0, 1.0),
        "steps": 20,
        "batch": 16,
        "samples": 16,
        "warm_up": 10,
        "penalty_from": 5,
        "latent": 2,
        "embedding": 4,
        "hidden": 8,
        "probes": 3,
        "evaluated": 20,
        "information_samples": 20,
        "information_codes": 8,
    },
}
"""Options that make a study as small as it can be; a study that is not here is made from its quick form."""
IMAGES = {
    CifarOptions: "cifar",
    OnMnist: "mnist",
    studies()["optimisation-bias"]: "mnist",
}
"""Studies of images, and the fixture with the folder that these are in."""
SMALL: dict[str, object] = {"seeds": 1, "epochs": 3, "steps": 20, "train": 64, "evaluation": 64}
FEWER: dict[str, dict[str, object]] = {
    "deep": {"teacher_layers": (4, 5)},
    "deep-samples": {"teacher_layers": (4, 5), "samples": (64, 128)},
    "gaus": {"networks": ("fc",), "fc_layers": (4, 5)},
    "cifar": {"teacher_layers": (4, 4), "multiple": (1.0, 2.0)},
    "cifar-luck": {"networks": ("fc",), "fc_layers": (4, 5)},
    "over-parameterization": {"teacher_layers": (3, 4), "multiple": (1.0, 2.0)},
}
"""Layers and networks whose panels take long to draw; the tests of each study draw all."""

every_study = pytest.mark.parametrize("study", studies().values(), ids=list(studies()))


class Silent:
    """Watches and keeps what it saw."""

    def __init__(self) -> None:
        self.epochs: list[int] = []
        self.of = -1

    def start(self, folder: Path, epoch: int, epochs: int) -> None:
        self.of, self.epochs = epochs, []  # a run that is needed comes first

    def epoch(self, progress) -> None:
        self.epochs.append(progress.epoch)

    def say(self, what: str) -> None: ...


def tiny(study: type[Study]) -> Study:
    known = {field.name for field in fields(study)}
    small = {k: v for k, v in SMALL.items() if k in known} | FEWER.get(study.name, {})
    return study(**TINY[study.name]) if study.name in TINY else study(**(study.quick().options() | small))


@every_study
def test_it_says_what_it_is_and_what_it_decides(study):
    assert is_dataclass(study)
    assert study.__dataclass_params__.frozen
    assert studies()[study.name] is study
    assert study.name == study.name.lower().replace("_", "-").replace(" ", "-")
    assert study.summary
    assert study.figures
    known = {row.id for row in record.rows()}
    needed = {type(need) for other in studies().values() for need in other().depends_on()}
    assert study.decides.split() or study in needed
    assert set(study.decides.split()) <= known


@every_study
def test_its_claims_state_on_which_seeds_they_were_tuned(study):
    if study.decides:
        assert all(spec.tuned_on is not None for spec in sibling(study(), "claims").claims._specs)


@every_study
def test_every_option_is_explained(study):
    """An option may only get another default in a study; what it means is then written in the class it is from."""
    explained: set[str] = set()
    for kind in filter(is_dataclass, study.__mro__):
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
        explained |= {
            getattr(one.target, "id", "")
            for one, other in pairwise(definition.body)
            if isinstance(one, ast.AnnAssign) and isinstance(other, ast.Expr) and isinstance(other.value, ast.Constant)
        }
    assert {field.name for field in fields(study)} <= explained


@every_study
def test_it_has_its_own_docstring(study):
    assert study.__doc__
    assert not study.__doc__.startswith(f"{study.__name__}(")


@every_study
def test_quick_is_the_same_study_made_small(study):
    quick = study.quick()
    assert type(quick) is study
    assert quick != study()
    assert quick.seeds <= max(study().seeds, 3)


@every_study
def test_options_are_plain_values(study):
    for options in (study().options(), study.quick().options()):
        for value in options.values():
            for item in value if isinstance(value, tuple) else (value,):
                assert type(item) in (int, float, str, bool)
        json.dumps(options)


@every_study
@pytest.mark.parametrize("make", [lambda s: s(), lambda s: s.quick(), tiny], ids=["full", "quick", "tiny"])
def test_its_configuration_goes_to_a_file_and_back(study, make: Callable[[type[Study]], Study], tmp_path):
    made = make(study)
    (tmp_path / "config.toml").write_text(to_toml(made.config()), encoding="utf-8")
    back = from_toml(tmp_path / "config.toml")
    assert study.from_config(back) == made
    assert to_toml(back) == to_toml(made.config())
    assert name(back) == name(made.config())


@every_study
@pytest.mark.parametrize("make", [lambda s: s(), lambda s: s.quick(), tiny], ids=["full", "quick", "tiny"])
def test_its_command_makes_the_same_study_again(study, make):
    made = make(study)
    program, run, named, *words = shlex.split(made.command())
    assert (program, run, named) == ("understudy", "run", study.name)
    assert parse_run(study, words, "x").study == made


@every_study
def test_other_options_go_to_another_folder(study):
    assert name(study().config()) != name(study.quick().config()) != name(study(seeds=study().seeds + 1).config())


@every_study
def test_auto_means_a_device_that_is_here(study):
    chosen = study().resolved()
    assert chosen.device in ("cpu", "cuda")
    assert chosen.resolved() == chosen


@pytest.fixture
def without_pdf(monkeypatch):
    """Leave out PDF files, whose fonts take half the time of a small run; the contract of figures draws every kind."""
    if os.environ.get("UNDERSTUDY_PROFILE") != "deep":
        blank = b"%PDF" + 1_000 * b" "
        drawn = "understudy.report.pool.files"
        monkeypatch.setattr(drawn, lambda figure: {"pdf": blank, "svg": style.render(figure, "svg", {"Date": None})})


@every_study
@pytest.mark.usefixtures("without_pdf")
def test_a_tiny_one_runs_from_training_to_report(study, tmp_path, request, monkeypatch):
    for kind, images in IMAGES.items():
        if issubclass(study, kind):
            monkeypatch.setenv("UNDERSTUDY_DATA", str(request.getfixturevalue(images)))
    made, watcher = tiny(study), Silent()
    run = execute(made, tmp_path, watcher)
    assert watcher.epochs == list(range(watcher.of + 1))
    assert study.from_config(run.config) == made.resolved()
    assert {claim.id for claim in run.claims} <= set(study.decides.split())
    assert all(claim.statement and claim.paper and claim.measured and claim.n > 0 for claim in run.claims)
    assert (run.folder / "headline.txt").read_text(encoding="utf-8").strip().endswith(".")
    page = (run.folder / "report.html").read_text(encoding="utf-8")
    drawn = sorted((run.folder / "figures").iterdir())
    assert drawn
    assert all(path.stat().st_size > 1_000 for path in drawn)
    assert all(f"figures/{path.name}" in page for path in drawn)
    shown = re.sub(r"<(script|style)\b.*?</\1>", "", page, flags=re.DOTALL)
    assert not re.findall(r"\bS[0-4][ ,.;:)][^<]*", shown)  # codes of papers, which the page does not explain
    assert {path.suffix for path in drawn} >= {".pdf", ".svg"}
    if "networks" in run.tables:
        assert {"network", "seed", "diverged_at"} <= set(run.networks.column_names)
    assert not list(run.folder.glob(".*"))
    assert_every_result_is_listed(run)
    if issubclass(study, TrainingStudy):
        assert {"train_loss", "eval_loss", "rho_mean", "recovered"} <= set(run.metrics["metric"].to_pylist())
        assert Run(run.folder).weights("teacher")


def assert_every_result_is_listed(run: Run) -> None:
    """`check` applies every result to the run's networks or gives the reason why not, and finds no contradiction."""
    if not run.saved:
        with pytest.raises(UserError, match=f"a run of {run.config['study']}, keeps no networks"):
            check(run)
        return
    # Certificates evaluate two points along each axis for every sample: images have thousands of axes.
    image, last = bool(run.groups) and "Cifar" in str(run.groups[0]["data"]), run.networks.num_rows - 1
    if image and os.environ.get("UNDERSTUDY_PROFILE") != "deep":
        return
    try:
        found = check(run, networks=[last] if image else [0, last // 2, last], samples=5 if image else 50)
    except UserError as error:
        assert "networks can be checked: " in str(error)
        return
    for each in found.networks:
        assert each.why or each.check
    for each in found:
        silent = dict(each.silent)
        assert all(silent.values())
        listed = {finding.result for finding in each.findings} | set(silent)
        assert listed == {result.name for result in results()}
        assert not each.contradicted


def test_numbers_of_many_digits_survive_the_command():
    made = studies()["two-layer"](polarity=(0.1234567891, 1.0), lr=1e-7 / 3)
    words = shlex.split(made.command())[3:]
    assert parse_run(type(made), words, "x").study == made
