"""Commands on state dicts: what is assumed is printed and stands in --json, what must be stated is asked for."""

import json

import numpy as np
import pytest
import torch

import understudy as us
from support.commands import understudy

MODELS = """
from torch import nn


class Plain(nn.Sequential):
    def __init__(self, width=4):
        super().__init__(nn.Linear(6, width), nn.ReLU(), nn.Linear(width, 2))


class Normed(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 2))


class Residual(nn.Module):
    def __init__(self, width=3):
        super().__init__()
        self.stem, self.block = nn.Conv2d(1, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
        self.top = nn.Linear(width, 2)

    def forward(self, x):
        h = self.stem(x).relu()
        return self.top((h + self.block(h).relu()).mean((2, 3)))


def pooled():
    return nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(48, 2))
"""
ASSUMED = ["ReLU", "linear outputs"]
READ = "read as 6 → 4 → 2, ReLU assumed, linear outputs assumed (see --activation)\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("networks")
    (folder / "models.py").write_text(MODELS)
    models: dict[str, object] = {}
    exec(MODELS, models)
    torch.manual_seed(0)
    plain, wide, normed = models["Plain"](), models["Plain"](9), models["Normed"]()
    # The wide student has the teacher's nodes and five idle ones.
    wide[0].weight.data[:4], wide[0].bias.data[:4] = plain[0].weight.data, plain[0].bias.data
    wide[2].weight.data.zero_()[:, :4] = plain[2].weight.data
    wide[2].bias.data = plain[2].bias.data
    normed[1].running_mean.normal_()
    for name, module in (
        ("plain", plain),
        ("wide", wide),
        ("normed", normed),
        ("residual", models["Residual"]()),
        ("wider", models["Residual"](5)),
        ("pooled", models["pooled"]()),
    ):
        torch.save(module.state_dict(), folder / f"{name}.pt")
    copies = {"student": wide.state_dict(), "teacher": plain.state_dict()}
    torch.save(
        {f"{role}.{name}": each for role, state in copies.items() for name, each in state.items()}, folder / "both.pt"
    )
    torch.save(plain.state_dict() | {"1.weight": torch.ones(4), "1.bias": torch.ones(4)}, folder / "layer_norm.pt")
    torch.save({"model": plain.state_dict(), "ema": wide.state_dict()}, folder / "ema.pt")
    us.save(us.teachers.distinct_rows((6, 4, 2), seeds=[1]), folder / "ours.safetensors", which=0)
    rng = np.random.default_rng(0)
    np.save(folder / "images.npy", rng.normal(size=(64, 1, 8, 8)).astype("float32"))
    np.save(folder / "rows.npy", rng.normal(size=(64, 6)))
    return folder


@pytest.fixture
def run(folder):
    def run(words, status=0):
        return understudy(*words.split(), cwd=folder, status=status)

    return run


@pytest.mark.parametrize(
    ("words", "roles"),
    [
        ("align plain.pt wide.pt", ("teacher", "student")),
        ("check plain.pt wide.pt", ("teacher", "student")),
        ("prune wide.pt --teacher plain.pt", ("teacher", "student")),
        ("connect wide.pt wide.pt --teacher plain.pt", ("teacher", "a", "b")),
    ],
)
def test_what_is_assumed_is_printed_before_the_result_and_stands_in_json(run, words, roles):
    words += " --samples 60"
    lines = f"plain.pt {READ}wide.pt {READ.replace('4', '9')}"
    assert run(words).stdout.startswith(lines)
    shown = run(f"{words} --json")
    assert shown.stdout.count("\n") == 1
    assert json.loads(shown.stdout)["assumed"] == dict.fromkeys(roles, ASSUMED)
    stated = run(f"{words} --activation relu")
    assert stated.stdout == run(words).stdout.replace(", ReLU assumed, linear outputs assumed (see --activation)", "")
    assert json.loads(run(f"{words} --activation relu --json").stdout)["assumed"] == {role: [] for role in roles}


def test_nothing_is_assumed_for_our_own_files(run):
    shown = run("align ours.safetensors plain.pt --samples 60")
    assert shown.stdout.startswith(f"plain.pt {READ}") and "ours.safetensors" not in shown.stdout
    found = json.loads(run("align ours.safetensors plain.pt --samples 60 --json").stdout)
    assert found["assumed"] == {"teacher": [], "student": ASSUMED}


def test_a_value_is_for_all_networks_or_for_the_one_it_names(run):
    words = "align plain.pt normed.pt --samples 60 --json"
    before, after = (json.loads(run(f"{words} --norm-order student={order}").stdout) for order in ("before", "after"))
    assert before["layers"] != after["layers"]
    eps = f"{words} --norm-order student=before --norm-eps"
    assert before["assumed"]["student"] == [*ASSUMED, "BatchNorm ε 10⁻⁵"]
    stated = json.loads(run(f"{eps} student=1e-1").stdout)
    assert stated["assumed"]["student"] == ASSUMED and stated["layers"] != before["layers"]
    message = run(f"{words} --norm-order before", status=2).stderr
    assert "plain.pt: norm_order was given, but the network has no BatchNorm" in message
    assert "(--norm-order student=…)" in message
    mixed = json.loads(
        run("check plain.pt wide.pt --activation abs --activation teacher=relu --samples 60 --json").stdout
    )
    assert (mixed["teacher_slope"], mixed["slope"]) == (0, -1)


def test_one_network_of_a_checkpoint_is_chosen(run):
    words = "align plain.pt wide.pt --samples 60 --json --activation relu"
    wanted = json.loads(run(words).stdout)
    for given in ("both.pt both.pt --key teacher=teacher --key student=student", "ema.pt ema.pt --key student=ema"):
        shown = json.loads(run(words.replace("plain.pt wide.pt", given)).stdout)
        assert shown["layers"] == wanted["layers"]
    assert shown["assumed"] == {"teacher": ["weights under 'model' of model, ema"], "student": []}
    shown = run("align ema.pt plain.pt --samples 60 --activation relu").stdout
    assert shown.startswith("ema.pt read as 6 → 4 → 2, weights under 'model' of model, ema assumed (see --key)\n")


def test_the_former_option_works_with_a_notice(run):
    words = "align plain.pt wide.pt --samples 60 --json"
    now = run(f"{words} --activation leaky:0.2")
    for former in ("--leaky 0.2", "--leaky=0.2"):
        done = run(f"{words} {former}")
        assert done.stdout == now.stdout
        assert done.stderr == "understudy: --leaky 0.2 is now --activation leaky:0.2\n"
    assert now.stderr == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "plain.pt normed.pt",
            "normed.pt: whether its BatchNorm '1' stands before or after the activation is not in the ",
        ),
        ("plain.pt plain.pt --activation gelu", "--activation must be relu, leaky:SLOPE (a finite number, as in leaky"),
        (
            "plain.pt plain.pt --activation studnt=relu",
            "--activation must begin with teacher= or student= where it is for one network, got 'studnt=relu'; did you "
            "mean student? a value without a name is for all networks\n",
        ),
        (
            "pooled.pt pooled.pt",
            "pooled.pt: its convolutions can read images of any size, which is not in the file; give ",
        ),
        (
            "pooled.pt pooled.pt --image 8x8",
            "pooled.pt: images of 8 × 8 with --padding 0 --stride 1 --pool none become ",
        ),
        ("pooled.pt pooled.pt --image big", "--image must be whole numbers, as in 28x28, got 'big'"),
        ("pooled.pt pooled.pt --image 8x8x8", "--image must be whole numbers, as in 28x28, got '8x8x8'"),
        (
            "pooled.pt pooled.pt --padding 1,x",
            "--padding must be whole numbers, as in 1, or one for each convolution, as ",
        ),
        ("pooled.pt pooled.pt --pool max", "--pool must be none, global (the average of the whole map), or max or "),
        ("plain.pt plain.pt --padding 1", "plain.pt: padding was given, but the network has no convolution; omit it"),
        ("plain.pt plain.pt --order 0,1", "plain.pt: order has the name '1', but there is no such layer; "),
        ("plain.pt normed.pt --norm-eps small", "--norm-eps must be a number, as in 0.001, got 'small'"),
        ("plain.pt normed.pt --norm-eps student=-1", "--norm-eps must be a finite number of at least 0, as in 0.001, "),
        ("plain.pt both.pt", "both.pt: it has the tensors of several networks, student, teacher; choose one, as in "),
        ("plain.pt ema.pt --key student=emma", "ema.pt: there is no key or prefix 'emma'; did you mean ema? it has "),
        ("plain.pt plain.pt --model-args 3", "--model-args needs model, the class or function that it is for"),
        ("plain.pt plain.pt --model models.py:Plane", "--model models.py has no name 'Plane'; did you mean Plain"),
        (
            "plain.pt plain.pt --model models.py:Plain --order 0,2",
            "--order cannot be given with a model, which decides it",
        ),
        ("plain.pt wide.pt --model models.py:Plain", "wide.pt: its tensors do not fit Plain: "),
        (
            "residual.pt residual.pt",
            "residual.pt: its convolutions can read images of any size, which is not in the file",
        ),
        (
            "residual.pt residual.pt --model models.py:Residual",
            "residual.pt: the convolutions of models.py:Residual can ",
        ),
    ],
)
def test_what_must_be_stated_is_asked_for(run, words, message):
    done = run(f"align {words}", status=2)
    assert done.stdout == ""
    assert done.stderr.startswith(f"understudy: {message}"), done.stderr


def test_a_stack_with_pooling_is_described_by_options(run):
    options = "--image 8x8 --padding 1 --stride 1 --pool max:2 --activation relu --samples 60 --json"
    by_options = json.loads(run(f"align pooled.pt pooled.pt {options}").stdout)
    details = ["zero padding", "no dilation or groups", "channels-first flattening"]
    assert by_options.pop("assumed") == {"teacher": details, "student": details}
    by_model = json.loads(
        run("align pooled.pt pooled.pt --model models.py:pooled --image 8 --samples 60 --json").stdout
    )
    assert by_model.pop("assumed") == {"teacher": [], "student": []}
    assert by_options == by_model


def test_models_of_different_classes(run):
    model = "--model teacher=models.py:Plain --model student=models.py:Normed"
    by_model = json.loads(run(f"align plain.pt normed.pt {model} --samples 60 --json").stdout)
    assert by_model["assumed"] == {"teacher": [], "student": []}
    options = "--activation relu --norm-order student=before --samples 60 --json"
    assert by_model["layers"] == json.loads(run(f"align plain.pt normed.pt {options}").stdout)["layers"]
    wide = run("align plain.pt wide.pt --model models.py:Plain --model-args student=width=9 --samples 60 --json")
    assert np.shape(json.loads(wide.stdout)["layers"][0]["correlation"]) == (4, 9)


RESIDUAL = "align residual.pt wider.pt --model models.py:Residual --model-args student=width=5"


def test_modules_that_are_no_stacks_are_compared_by_activations(run, folder):
    shown = run(f"{RESIDUAL} --data images.npy --html page.html")
    first, second, third, *_ = shown.stdout.splitlines()
    assert first.startswith("residual.pt: ") and first.endswith(": all layers are compared by their activations.")
    assert second.startswith("wider.pt: ") and third == "Alignment of 3 × 3 layers, 64 samples"
    assert shown.stdout.endswith("page: page.html\n")
    assert "<html" in (folder / "page.html").read_text(encoding="utf-8")
    found = json.loads(run(f"{RESIDUAL} --data images.npy --json").stdout)
    assert found["assumed"] == {"teacher": [], "student": []}
    assert found["teacher_layers"] == found["student_layers"] == ["stem", "block", "top"]
    assert np.shape(found["pairs"][0][1]["correlation"]) == (3, 5)
    assert len(found["pairs"][0][1]["best"]) == 3
    modules: dict[str, object] = {}
    exec(MODELS, modules)
    teacher, student = modules["Residual"](), modules["Residual"](5)
    for module, name in ((teacher, "residual"), (student, "wider")):
        module.load_state_dict(torch.load(folder / f"{name}.pt"))
        module.eval()
    wanted = us.align(teacher, student, np.load(folder / "images.npy"))
    assert found["pairs"][1][1]["correlation"] == wanted["block", "block"].correlation.tolist()


def test_flat_rows_are_images_where_their_size_fits(run, folder):
    np.save(folder / "flat.npy", np.load(folder / "images.npy").reshape(64, -1))
    flat, images = (run(f"{RESIDUAL} --data {name} --json") for name in ("flat.npy --image 8x8", "images.npy"))
    assert json.loads(flat.stdout)["pairs"] == json.loads(images.stdout)["pairs"]


def test_modules_have_a_heat_map_and_stacks_a_page(run, folder):
    shown = run(f"{RESIDUAL} --data images.npy --figure map.png --html map.html").stdout
    assert shown.endswith("heat map: map.png\npage: map.html\n")
    assert (folder / "map.png").stat().st_size and (folder / "map.html").stat().st_size
    shown = run("align plain.pt wide.pt --samples 500 --html stacks.html").stdout
    assert shown.endswith("page: stacks.html\n")
    page = (folder / "stacks.html").read_text(encoding="utf-8")
    assert "plain.pt read as 6 → 4 → 2, ReLU assumed, linear outputs assumed (see --activation)" in page
    images = "--image 8x8 --padding 1 --pool max:2"
    assert "page: maps.html" in run(f"align pooled.pt pooled.pt {images} --samples 90 --html maps.html").stdout


def test_the_page_of_check_states_what_was_assumed(run, folder):
    run("check plain.pt wide.pt --samples 60 --html check.html")
    page = (folder / "check.html").read_text(encoding="utf-8")
    for name, nodes in (("plain", 4), ("wide", 9)):
        assert f"{name}.pt read as 6 → {nodes} → 2, ReLU assumed, linear outputs assumed (see --activation)" in page


def test_a_stack_is_compared_with_a_module_that_is_none(run):
    model = "--model teacher=models.py:Residual --model student=models.py:pooled"
    shown = run(f"align residual.pt pooled.pt {model} --data images.npy")
    assert "Alignment of 3 × " in shown.stdout and "pooled.pt: " not in shown.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            f"{RESIDUAL} --image 8x8",
            "Networks that are not stacks of layers are compared by their activations on given ",
        ),
        (
            f"{RESIDUAL} --data rows.npy --image 8x8",
            "--data rows.npy: the teacher (Residual) fails on data of shape [64, 6]",
        ),
        ("align plain.pt plain.pt --html page.pdf", "--html must end in .html, .htm, got page.pdf"),
        ("check residual.pt wider.pt --model models.py:Residual --image 8x8", "residual.pt: "),
    ],
)
def test_what_cannot_be_compared_is_refused(run, words, message):
    done = run(words, status=2)
    assert done.stdout == "" and message in done.stderr


def test_options_that_describe_files_do_not_apply_to_a_run(run):
    assert "--order does not apply to a run" in run("check somewhere --order a,b", status=2).stderr


def test_a_study_names_the_way_to_state_what_its_teacher_lacks(run):
    message = run("run two-layer --teacher normed.pt --plan", status=2).stderr
    assert message == (
        "understudy: normed.pt: whether its BatchNorm '1' stands before or after the activation is not in the file. A "
        "study reads what is stated from a file of us.save: us.save(us.load('normed.pt', norm_order=…), "
        "'teacher.safetensors').\n"
    )
    for name in ("both.pt", "pooled.pt", "layer_norm.pt"):
        message = run(f"run two-layer --teacher {name} --plan", status=2).stderr
        assert (
            "A study reads what is stated from a file of us.save: us.save(us.load(" in message and "--" not in message
        )
    shown = run("run two-layer --teacher plain.pt --plan")
    assert "plain.pt read as 6 → 4 → 2, ReLU assumed, linear outputs assumed, slope 0 below zero" in shown.stderr


@pytest.mark.parametrize(
    ("command", "names", "example"),
    [
        ("align", "teacher or student", "student=leaky:0.1"),
        ("check", "teacher or student", "student=leaky:0.1"),
        ("prune", "teacher or student", "student=leaky:0.1"),
        ("connect", "teacher, a or b", "b=leaky:0.1"),
        ("compare", "a or b", "b=leaky:0.1"),
    ],
)
def test_help_explains_values_for_one_network(run, command, names, example):
    shown = " ".join(run(f"{command} --help").stdout.replace("│", " ").split())
    assert f"for one, put its name ({names}) before the value, as in {example}, and repeat" in shown
    assert shown.count("=leaky:") == 1


@pytest.mark.parametrize("command", ["recover", "start"])
def test_help_of_a_command_with_one_network_names_none(run, command):
    shown = run(f"{command} --help").stdout
    assert "--activation" in shown and "=leaky:" not in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("check plain.pt plain.pt --order studnt=0,2", "--order must begin with teacher= or student= where it is for "),
        ("prune plain.pt --teacher plain.pt --activation a=relu", "--activation must begin with teacher= or student= "),
        ("connect plain.pt plain.pt --teacher plain.pt --stride student=1", "--stride must begin with teacher=, a= "),
        (
            "compare plain.pt plain.pt --activation student=relu",
            "--activation must begin with a= or b= where it is for ",
        ),
        (
            "recover plain.pt --activation student=relu",
            "--activation must be a value without a name, since the command has one network, got 'student=relu'\n",
        ),
        (
            "start plain.pt --activation a=abs",
            "--activation must be a value without a name, since the command has one ",
        ),
    ],
)
def test_a_value_for_an_unknown_network_is_refused(run, words, message):
    assert run(words, status=2).stderr.startswith(f"understudy: {message}")


@pytest.mark.parametrize(
    "words",
    [
        "check plain.pt plain.pt",
        "compare plain.pt plain.pt",
        "prune plain.pt --teacher plain.pt",
        "recover plain.pt",
        "start plain.pt",
    ],
)
def test_only_align_advises_to_compare_modules(run, words):
    message = (
        "understudy: --activation must be relu, leaky:SLOPE (a finite number, as in leaky:0.1), abs or linear, got "
    )
    assert run(f"{words} --activation gelu", status=2).stderr == f"{message}'gelu'\n"
    assert "understudy align with --model" in run("align plain.pt plain.pt --activation gelu", status=2).stderr


@pytest.mark.parametrize(
    "words", ["--activation student=relu plain.pt plain.pt", "plain.pt plain.pt --activation=relu"]
)
def test_an_option_takes_one_word(run, words):
    run(f"align {words} --samples 60")
