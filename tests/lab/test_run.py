"""`us.run` runs a study as the command does; names of the package are found without loading torch."""

import subprocess
import sys

import numpy as np
import pytest
from torch import nn

import understudy as us
from support.commands import contents
from understudy.lab.options import converted
from understudy.lab.run import configured
from understudy.papers.specialization.two_layer.study import TwoLayer

SMALL = {
    "teacher_nodes": 3,
    "dim": 6,
    "outputs": 4,
    "seeds": 2,
    "polarity": [1],
    "multiple": range(1, 3),
    "epochs": 3,
    "steps": 20,
    "train": 64,
    "evaluation": np.int64(64),
}
"""The options of `support.commands.TINY`, in the types that a user may have at hand."""


def test_a_run_equals_that_of_the_command(tiny, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    run = us.run("two-layer", out=tmp_path, progress=False, **SMALL)
    assert isinstance(run, us.Run)
    assert run.folder == tmp_path / "two-layer" / tiny[1].name
    assert contents(run.folder) == contents(tiny[1])
    assert capsys.readouterr() == ("", "")
    before = (run.folder / "report.html").stat().st_mtime_ns
    assert us.run(configured(TwoLayer, options=SMALL), out=tmp_path).folder == run.folder
    assert (run.folder / "report.html").stat().st_mtime_ns == before


def test_a_run_reports_its_progress_on_standard_error(tmp_path, capsys):
    us.run(TwoLayer, out=tmp_path, **SMALL | {"epochs": 1})
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "epoch    1/1" in printed.err


def test_options_take_precedence_over_quick_ones():
    assert configured("two-layer", quick=True) == TwoLayer.quick()
    study = configured("two-layer", True, {"seeds": 3, "polarity": np.array([0.5, 1.0], np.float32)})
    assert (study.seeds, study.polarity, study.epochs) == (3, (0.5, 1.0), TwoLayer.quick().epochs)
    assert configured(study, options={"leaky": 1}) == TwoLayer(**vars(study) | {"leaky": 1.0})


def test_values_are_plain():
    found = converted(TwoLayer, {"seeds": np.int64(2), "lr": np.float32(0.5), "multiple": np.arange(1, 3)})
    assert found == {"seeds": 2, "lr": 0.5, "multiple": (1.0, 2.0)}
    assert {type(found["seeds"]), type(found["lr"]), type(found["multiple"][0])} == {int, float}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": 3}, "two-layer has no option 'seed'; did you mean seeds\\? its options are seeds, dtype, device, "),
        ({"seeds": 0}, "--seeds must be at least 1, got 0"),
        ({"seeds": 1.5}, "^seeds must be a whole number, got 1.5"),
        ({"seeds": True}, "^seeds must be a whole number, got True"),
        ({"seeds": "3"}, "^seeds must be a whole number, got '3'"),
        ({"lr": "fast"}, "^lr must be a number, got 'fast'"),
        ({"polarity": [1, "x"]}, "^polarity must be a number, got 'x'"),
        ({"multiple": []}, "--multiple needs at least one value"),
        ({"inputs": "normal"}, "^inputs must be one of gaussian, uniform, got 'normal'"),
        ({"teacher": nn.Linear(2, 2)}, "^teacher must be a word or a path, got Linear$"),
        ({"device": None}, "^device must be one of auto, cpu, cuda, got None"),
    ],
)
def test_bad_options_are_named(options, message, tmp_path):
    with pytest.raises(us.UserError, match=message):
        us.run("two-layer", out=tmp_path / "runs", **options)
    assert not (tmp_path / "runs").exists()


def test_unknown_studies_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"there is no study 'two-layers'; did you mean two-layer\? studies are"):
        us.run("two-layers")
    with pytest.raises(us.UserError, match=r"none.py: no such file"):
        us.run(tmp_path / "none.py")
    with pytest.raises(us.UserError, match="quick does not apply to a study that has its options"):
        us.run(TwoLayer(), quick=True)


def test_every_name_is_listed_and_found_without_torch_being_loaded():
    code = (
        "import sys, understudy as us; listed = dir(us); assert 'torch' not in sys.modules\n"
        "assert {*us.__all__} <= {*listed}\n"
        "for name in listed: getattr(us, name)\n"
        "assert issubclass(us.UserError, ValueError)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
