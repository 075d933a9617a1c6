"""`understudy check` and `us.check`: the theorems on files, trained populations and runs; text, JSON and page."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

import understudy as us
from support.commands import understudy
from support.pairs import gaussian, near_copy, network, random_network
from understudy import cli
from understudy._errors import UserError
from understudy.lab.check_runs import MOST, Checks, NetworkPair, _select, not_kept
from understudy.nets import Layer, Population
from understudy.nets.population import stack
from understudy.report.check.page import check_page
from understudy.report.check.view import describe_networks, describe_students
from understudy.theory.page import as_markdown
from understudy.theory.result import Finding, format_factor, results
from understudy.theory.summary import NEVER_CROSSED, NetworkCheck, summarise

pytestmark = pytest.mark.usefixtures("one_thread")

ROOT = Path(__file__).parents[2]
TEACHER = network(([[1.0, 0.0], [0.6, 0.8]], [0.1, -0.2]), ([[1.0, -0.5], [0.3, 0.8]], [0.0, 0.0]))
STUDENT = near_copy(TEACHER, 2, 1e-9, seed=1)
SAMPLES = 40_000


def several(count: int, dim: int = 3) -> tuple[Population, Population]:
    teachers = us.teachers.regular((dim, 2, 2), seeds=range(1, count + 1))
    return teachers, us.students.gaussian(teachers, multiple=2, scale=0.5)


@pytest.fixture(scope="module")
def certified() -> Checks:
    """Two teacher nodes in the plane, and a student that has both up to 10⁻⁹ and two idle nodes."""
    return us.check(TEACHER, STUDENT, us.data.Gaussian(2, 1.5, train=SAMPLES), samples=SAMPLES)


@pytest.fixture
def files(tmp_path):
    us.save(TEACHER, tmp_path / "teacher.safetensors")
    us.save(STUDENT, tmp_path / "student.safetensors")
    for name, networks in zip(("teachers", "students"), several(3), strict=True):
        us.save(networks, tmp_path / f"{name}.safetensors")
    return tmp_path


@pytest.fixture
def run_check(tmp_path, monkeypatch, capsys):
    """Run `understudy check …` in a temporary folder; return its output, or its error message."""

    def run_check(*words: object, status: int = 0) -> str:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["understudy", "check", *map(str, words)])
        assert cli.main() == status
        printed = capsys.readouterr()
        assert (printed.err if status == 0 else printed.out) == ""
        return printed.out if status == 0 else printed.err

    return run_check


# One pair of networks


def test_every_node_of_the_documented_example_is_certified(certified):
    (found,) = certified
    assert found.certified == len(found.nodes) == 2
    assert not found.contradicted
    for node in found.nodes:
        assert node.certificate.agrees
        assert node.nearest.student == node.node
        assert max(node.nearest.sin, node.nearest.gap) < 1e-8
        assert node.verdict.startswith("certified at ε = ")
    assert certified.headline == found.headline
    assert found.headline.startswith("2 of 2 teacher nodes are certified to have a student, at ε up to ")


def test_students_are_paired_with_the_nearest_teacher_node(certified):
    partners = certified[0].partners
    assert [(p.student, p.teacher) for p in partners if p.aligned] == [(0, 0), (1, 1)]
    assert all(p.eps > 0.25 for p in partners[2:])


def test_the_observer_is_the_student_with_the_largest_kappa_times_alpha(certified):
    found = certified[0]
    fan_outs = TEACHER.layers[1].weight[0].T
    for node in found.nodes:
        alpha = abs(fan_outs[node.observer.student] @ fan_outs[node.node])
        assert node.observer.alpha == pytest.approx(float(alpha), rel=1e-6)
        assert 0.3 < node.observer.kappa < 0.7


def test_a_certified_pair_is_certified_in_any_order_of_its_students():
    x = us.data.Gaussian(2, 1.5, evaluation=SAMPLES).evaluating(2)
    (w, b), (v, c) = ((layer.weight[0], layer.bias[0]) for layer in STUDENT.layers)
    order = [3, 1, 0, 2]
    plain = us.check(TEACHER, STUDENT, x)[0]
    turned = us.check(TEACHER, network((w[order], b[order]), (v[:, order], c)), x)[0]
    assert plain.certified == turned.certified == 2
    for before, after in zip(plain.nodes, turned.nodes, strict=True):
        assert after.certificate.eps == pytest.approx(before.certificate.eps, rel=1e-6)
        assert order[after.nearest.student] == before.nearest.student


def test_the_text_has_every_part(certified):
    text = str(certified)
    assert text.startswith(certified.headline)
    parts = (
        "Identities",
        "The data",
        "The teacher",
        "Teacher nodes",
        "Students",
        "Dynamics",
        "Stated for other networks",
    )
    places = [text.index(f"\n{part}") for part in parts]
    assert places == sorted(places)
    assert "closest nodes 0 and 1: ε0 = 0.8" in text
    assert "the data crosses every boundary" in text
    assert re.search(r"0 +✓ ε = [\d.]+ by Tian 2020, theorem \d", text)
    assert "2 of 4 have the boundary of a teacher node" in text
    assert re.search(r"Tian 2020, theorem 5; Tian 2019, theorem 4 *\n +it is stated for more than two layers", text)
    assert max(map(len, text.splitlines())) <= 120


def test_both_activations_are_named_where_they_differ(certified):
    assert describe_networks(certified[0]) == "teacher 2-2-2, student 2-4-2, ReLU"
    student = replace(random_network(2, 2, 4, 2), slope=-1.0)
    found = us.check(TEACHER, student, gaussian(1, 100, 2))[0]
    assert describe_networks(found) == "teacher 2-2-2, ReLU, student 2-4-2, |·|"
    assert (found.as_dict()["teacher_slope"], found.as_dict()["slope"]) == (0.0, -1.0)


def test_the_number_of_samples_needed_is_reported(certified):
    found = certified[0]
    finding = replace(found.nodes[0].certificate, samples=123_456.0)
    nodes = (replace(found.nodes[0], findings=(finding,)), *found.nodes[1:])
    checked = (NetworkCheck(0, replace(found, nodes=nodes)),)
    assert re.search(r"0 +✓ ε = \S+ by Tian 2020, theorem \d +1\.2×10⁵ ", str(Checks(checked, 1)))
    assert "about 1.2×10⁵ such samples needed" in check_page(checked, 1, "").decode()
    assert checked[0].check.as_dict()["teacher_nodes"][0]["samples_needed"] == 123_456.0


def test_the_samples_are_described_everywhere(certified, tmp_path):
    words = "40,000, training inputs: gaussian, std 1.5, seed 1"
    assert f"samples: {words}\n" in str(certified)
    page = check_page(certified.networks, 1, "").decode()
    assert page.count(words) == 2
    assert certified[0].as_dict()["inputs"] == words.removeprefix("40,000, ")
    given = us.check(TEACHER, STUDENT, gaussian(1, 100, 2))
    assert "samples: 100, as given\n" in str(given)
    np.save(tmp_path / "x.npy", gaussian(1, 100, 2).numpy())
    file = us.data.File(tmp_path / "x.npy", train=80, evaluation=20)
    assert us.check(TEACHER, STUDENT, file, samples=50)[0].inputs == (
        "the first of 80 training inputs: file x.npy, seed 1"
    )


def test_for_several_networks_the_samples_of_the_first_are_described():
    teachers, students = several(3)
    text = str(us.check(teachers, students, us.data.Uniform(3, 2.0, train=50, fresh=True)))
    words = "samples: 50 per network, training inputs: uniform, std 2, those of epoch 1, seed 1, and 2 others\n"
    assert words in text
    assert "samples: 20 per network, as given\n" in str(us.check(teachers, students, gaussian(1, 20, 3)))


def test_a_boundary_that_no_data_crosses_is_reported_with_a_change():
    teacher = network(([[1.0, 0.0], [0.6, 0.8]], [50.0, -0.2]), ([[1.0, -0.5], [0.3, 0.8]], [0.0, 0.0]))
    checks = us.check(teacher, near_copy(teacher, 2, 1e-3), gaussian(1, 500, 2))
    assert "never crosses its boundary" in checks[0].nodes[0].verdict
    text = " ".join(str(checks).split())
    assert "the data never crosses the boundary of node 0: add samples on the other side, or move the bias" in text
    assert checks.summary.failing[-1].name == NEVER_CROSSED
    assert checks.as_dict()["summary"]["failing"][-1]["factor"] is None


def test_prunable_students_are_selected_by_their_contribution(certified):
    found = certified[0]

    def about(k: int, limit: float) -> Finding:
        return Finding("S0 theorem 2", f"student node {k}", (), "", "", True, amount=limit / 2, limit=limit)

    words = describe_students(replace(found, students=(about(2, 0.01), about(3, 0.5))))
    assert any(line.startswith("1 of the others are prunable") and line.endswith(": node 2") for line in words)
    assert any("1 contribute 0.25 to 0.25 of it" in line for line in words)


@pytest.mark.parametrize(("factor", "shown"), [(1.234, "1.23×"), (99.4, "99.4×"), (1923.0, "1,920×"), (1e9, "10⁹×")])
def test_factors_have_three_digits(factor, shown):
    assert format_factor(factor) == shown


# Several networks


def test_students_are_paired_with_teachers_by_index_or_share_one():
    teachers, students = several(3)
    x = gaussian(1, 200, 3)
    matched = us.check(teachers, students, x)
    assert [each.network for each in matched.networks] == [0, 1, 2]
    assert matched[2].as_dict() == us.check(teachers[2], students[2], x)[0].as_dict()
    shared = us.check(teachers[1], students, x)
    assert shared[2].as_dict() == us.check(teachers[1], students[2], x)[0].as_dict()
    with pytest.raises(UserError, match="3 students need one teacher each, or one for all of them, got 2 teachers"):
        us.check(teachers[:2], students, x)


def test_the_summary_counts_what_networks_have_and_lack(certified):
    sure, open_ = certified[0], us.check(TEACHER, random_network(4, 2, 4, 2), gaussian(1, 300, 2))[0]
    found = summarise(
        [NetworkCheck(0, sure), NetworkCheck(1, open_), NetworkCheck(2, None, "it diverged after 7 steps")]
    )
    eps = sorted(node.certificate.eps for node in sure.nodes)
    assert (found.networks, found.refused) == (2, 1)
    assert (found.certified, found.nodes) == (2, 4)
    assert found.eps == (eps[0], pytest.approx(sum(eps) / 2), eps[1])
    assert sum(each.nodes for each in found.failing) == 2
    assert found.headline.startswith("2 of 4 teacher nodes of 2 networks are certified to have a student, at ε from ")
    plain = found.as_dict()
    assert plain["share"] == 0.5
    text = str(
        Checks((NetworkCheck(0, sure), NetworkCheck(1, open_), NetworkCheck(2, None, "it diverged after 7 steps")), 9)
    )
    assert "3 of 9 networks were checked" in text
    assert re.search(r"2 +it diverged after 7 steps", text)


def test_of_many_networks_evenly_spaced_ones_are_checked():
    teachers, students = several(2 * MOST + 1)
    found = us.check(teachers, students, gaussian(1, 20, 3))
    numbers = [each.network for each in found.networks]
    assert len(numbers) == MOST
    assert found.of == 2 * MOST + 1
    assert {b - a for a, b in pairwise(numbers)} <= {2, 3}
    named = us.check(teachers, students, gaussian(1, 20, 3), networks=[5, 0])
    assert [each.network for each in named.networks] == [5, 0]
    with pytest.raises(UserError, match="network 41 does not exist; give indices from 0 to 40"):
        us.check(teachers, students, gaussian(1, 20, 3), networks=41)


def test_a_network_that_cannot_be_checked_is_reported_and_the_others_are_checked():
    teachers, students = several(2)
    dead = students.layers[0].bias.clone()
    dead[1] -= 1e6
    layers = (students.layers[0]._replace(bias=dead), *students.layers[1:])
    students = Population(layers, students.seeds)
    found = us.check(teachers, students, gaussian(1, 200, 3))
    assert found.networks[0].check is not None
    assert found.networks[1].why.startswith("no node of the student's lowest layer is active")
    assert found.as_dict()["networks"][1]["refused"] == found.networks[1].why
    assert len(list(found)) == 1
    with pytest.raises(UserError, match="network 1 was not checked: no node"):
        found[1]
    with pytest.raises(UserError, match=r"^no node of the student's lowest layer"):
        us.check(teachers, students, gaussian(1, 200, 3), networks=1)


# Trained populations and runs


def test_a_trained_population_is_checked_on_its_own_data():
    teachers, students = several(2)
    data = us.data.Gaussian(3, 1.5, train=300, evaluation=50)
    run = us.train([students, students], teachers, data, us.SGD(lr=0.01, batch=16), epochs=1, steps=5)
    found = us.check(run, samples=200)
    assert [each.network for each in found.networks] == [0, 1, 2, 3]
    ours = us.check(teachers[1], run.students[1][1], data.training(2)[:200])
    assert found[3].as_dict() == ours[0].as_dict() | {"inputs": found[3].inputs}
    assert found[3].inputs == "the first of 300 training inputs: gaussian, std 1.5, seed 2"
    assert found[3].samples == 200
    with pytest.raises(UserError, match="a run has its own students and inputs"):
        us.check(run, students, data)
    with pytest.raises(UserError, match="a teacher needs a student; give both, or a run"):
        us.check(teachers)
    with pytest.raises(UserError, match="samples must be above 0, got 0"):
        us.check(run, samples=0)


def test_diverged_networks_are_not_checked():
    teachers, students = several(2)
    run = us.train(students, teachers, us.data.Gaussian(3), us.SGD(lr=[0.01, 1e6], batch=16), epochs=1, steps=50)
    found = us.check(run, samples=100)
    assert found.networks[0].check is not None
    assert found.networks[1].why.startswith("it diverged after ")


def test_a_run_is_checked_with_its_last_students_and_training_inputs(tiny, run_check):
    run = us.store.Run(tiny[1])
    found = us.check(run)
    assert len(found) == found.of == 4
    teacher, students = run.weights("teacher")[1], run.weights("epoch.3")[1]
    x = us.data.Gaussian(6, 1.5, train=64, evaluation=64).training(int(students.seeds[1]))
    again = us.check(teacher[1], students[1], x)[0]
    assert again.inputs == "as given"
    assert found[3].as_dict() == again.as_dict() | {"inputs": found[3].inputs}
    assert found[3].inputs == f"two-layer's training inputs: gaussian, std 1.5, seed {int(students.seeds[1])}"
    assert us.check(str(tiny[1]), networks=3)[0].as_dict() == found[3].as_dict()
    found_json = json.loads(run_check(tiny[1], "--json"))
    assert found_json == found.as_dict()
    assert run_check(tiny[1]).startswith("0 of 12 teacher nodes of 4 networks are certified to have a student.")
    assert run_check(tiny[1], "--network", 2).startswith("0 of 3 teacher nodes are certified")


def test_runs_that_cannot_be_checked_are_refused(tiny, run_check, tmp_path):
    assert "--data does not apply to a run; omit it" in run_check(tiny[1], "--data", "x.npy", status=2)
    assert "network 9 does not exist; give indices from 0 to 3" in run_check(tiny[1], "--network", 9, status=2)
    assert "nothing is not a run (it has no config.toml)" in run_check("nothing", status=2)
    shutil.copytree(tiny[1], tmp_path / "run")
    (tmp_path / "run" / "groups.json").unlink()
    assert "run does not record on which inputs networks were trained" in run_check("run", status=2)


def test_a_run_of_an_unknown_study_is_checked(tiny, tmp_path):
    shutil.copytree(tiny[1], tmp_path / "run")
    config = tmp_path / "run" / "config.toml"
    config.write_text(config.read_text().replace('"two-layer"', '"of-tomorrow"'))
    found, known = us.check(tmp_path / "run", networks=1)[0], us.check(tiny[1], networks=1)[0]
    assert found.inputs == known.inputs.replace("two-layer", "of-tomorrow")
    assert found.as_dict() | {"inputs": known.inputs} == known.as_dict()


# The command on files


class _Tags(HTMLParser):
    """Nesting of tags, and resources that would be fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []
        self.rows = 0

    def handle_starttag(self, tag, attrs):
        named = dict(attrs)
        self.rows += tag == "details"
        self.fetched += [v for k, v in attrs if k in ("src", "href") and not v.startswith(("#", "data:"))]
        if tag not in ("meta", "link", "br"):
            self.open.append(tag)
        assert named.get("onclick") is None

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_command_on_files_prints_json_and_writes_a_page(files):
    words = ("check", "teacher.safetensors", "student.safetensors", "--samples", SAMPLES)
    done = understudy(*words, "--html", "page.html", cwd=files)
    assert done.stdout.startswith("2 of 2 teacher nodes are certified to have a student")
    assert done.stdout.endswith("page: page.html\n")
    assert done.stderr == ""
    found_json = json.loads(understudy(*words, "--json", cwd=files).stdout)
    assert [node["certified"] for node in found_json["teacher_nodes"]] == [True, True]
    assert found_json["headline"] in done.stdout
    assert found_json["samples"] == SAMPLES
    assert found_json["inputs"] == "drawn: gaussian, std 1.5, seed 1"
    assert f"samples: 40,000, {found_json['inputs']}\n" in done.stdout
    page = (files / "page.html").read_text(encoding="utf-8")
    tags = _Tags()
    tags.feed(page)
    assert tags.open == []
    assert tags.fetched == []
    assert "http" not in page
    assert page.count('<details class="row node sure">') == 2
    assert "Samples: 40,000, drawn: gaussian, std 1.5, seed 1" in page
    assert tags.rows > 10
    assert "understudy check teacher.safetensors student.safetensors --samples 40000 --html page.html" in page


def test_several_networks_in_files(files, run_check):
    both = ("teachers.safetensors", "students.safetensors", "--samples", 300)
    found_json = json.loads(run_check(*both, "--json"))
    assert [each["network"] for each in found_json["networks"]] == [0, 1, 2]
    assert found_json["summary"]["teacher_nodes"] == 6
    one = json.loads(run_check(*both, "--student-network", 2, "--json"))
    nothing = {"teacher": [], "student": []}
    assert one == {k: v for k, v in found_json["networks"][2].items() if k != "network"} | {"assumed": nothing}
    same = json.loads(run_check(*both, "--teacher-network", 1, "--json"))
    assert same["networks"][1] == found_json["networks"][1]
    assert same["networks"][0] != found_json["networks"][0]
    chosen = json.loads(run_check(*both, "--network", 0, 2, "--json"))
    assert chosen["networks"] == [found_json["networks"][0], found_json["networks"][2]]
    assert run_check(*both).splitlines()[0] == found_json["summary"]["headline"]
    run_check(*both, "--html", "page.html")
    page = (files / "page.html").read_text(encoding="utf-8")
    assert page.count('<details class="network">') == 3


def test_all_inputs_of_a_file_are_used(files, run_check):
    np.save(files / "x.npy", np.random.default_rng(0).normal(size=(77, 2)))
    found_json = json.loads(run_check("teacher.safetensors", "student.safetensors", "--data", "x.npy", "--json"))
    assert found_json["samples"] == 77
    assert found_json["inputs"] == "of x.npy"


def test_the_slope_can_be_given(files, run_check):
    torch.save({"0.weight": torch.eye(2), "2.weight": torch.eye(2)}, files / "plain.pt")
    words = ("plain.pt", "plain.pt", "--samples", 100, "--json")
    found_json = json.loads(run_check(*words, "--activation", "leaky:0.1"))
    assert found_json["slope"] == 0.1
    assert found_json["assumed"]["teacher"] == ["no skips", "no branches or repeated layers"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", "check needs two network files, TEACHER STUDENT, or the folder of a run; got 0 paths"),
        (
            "teacher.safetensors",
            "teacher.safetensors is one network file; give those of the teacher and the student",
        ),
        ("teacher.safetensors nothing.pt", "nothing.pt: there is no such file"),
        (
            "teacher.safetensors students.safetensors",
            "none of 3 networks can be checked: teacher and student must have the same",
        ),
        ("teacher.safetensors student.safetensors --samples 0", "--samples must be above 0, got 0"),
        ("teacher.safetensors student.safetensors --input-std nan", "--input-std must be above 0, got nan"),
        ("teacher.safetensors student.safetensors --seed -1", "--seed must be between 0 and 2^63 − 1, got -1"),
        (
            "teacher.safetensors student.safetensors --activation leaky:inf",
            "--activation must be relu, leaky:SLOPE (a finite number",
        ),
        ("teacher.safetensors student.safetensors --html x.pdf", "--html must end in .html, .htm, got x.pdf"),
        (
            "teacher.safetensors student.safetensors --student-network 1",
            "student.safetensors contains one network, so that --student-network must be 0, got 1; omit it",
        ),
        ("teacher.safetensors student.safetensors --network 3", "network 3 does not exist; give indices from 0 to 0"),
        ("teacher.safetensors student.safetensors --data wrong.npy", "--data must have 2 inputs per sample"),
        (
            "teacher.safetensors student.safetensors --samples 50 --html nowhere/x.html",
            "nowhere/x.html: cannot be written (No such file or directory); choose another place with --html",
        ),
    ],
)
def test_invalid_arguments_are_refused(files, run_check, words, expected):
    np.save(files / "wrong.npy", np.ones((9, 3)))
    before = sorted(files.iterdir())
    assert run_check(*words.split(), status=2).startswith(f"understudy: {expected}")
    assert sorted(files.iterdir()) == before


def test_batchnorm_is_folded_into_the_weights(files, run_check):
    student = us.students.like_linear(TEACHER, multiple=2, norm="before")
    us.save(student, files / "norm.safetensors")
    words = ("teacher.safetensors", "norm.safetensors", "--samples", 50)
    found = json.loads(run_check(*words, "--json"))
    assert found["changes"] == ["student: BatchNorm before the activation is folded into the layer below it"]
    assert {row["result"] for row in found["student_nodes"]} >= {"S2 theorem 3", "S0 theorem 2"}
    silent = {row["result"]: row["why"] for row in found["silent"]}
    assert silent["S2 theorem 2"].startswith("it is about training fully connected networks without BatchNorm")
    assert "BatchNorm before the activation is folded" in run_check(*words)


def test_numbers_that_are_not_finite_are_empty_in_json(files, run_check):
    """Samples that repeat on a boundary make η infinite."""
    np.save(files / "x.npy", np.repeat([[-0.1, 0.0], [1.0, 2.0]], 20, axis=0))
    found_json = json.loads(run_check("teacher.safetensors", "student.safetensors", "--data", "x.npy", "--json"))
    assert found_json["data"]["eta"]["own"]["value"] is None


# The page


def test_the_page_escapes_the_command(certified):
    page = check_page(certified.networks, 1, "understudy check '<script>alert(1)</script>' b").decode()
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


@pytest.mark.skipif(not shutil.which("chromium"), reason="needs chromium on the path")
def test_the_page_opens_in_a_browser(certified, tmp_path):
    """The script runs to the end: naming the theme button is its last visible action."""
    (tmp_path / "page.html").write_bytes(check_page(certified.networks, 1, "understudy check a b"))
    words = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=2000", "--dump-dom"]
    place = f"--user-data-dir={tmp_path / 'profile'}"
    done = subprocess.run(
        [*words, place, (tmp_path / "page.html").as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
    assert re.search('data-theme="(light|dark)"', done.stdout)
    assert re.search('<button id="theme" type="button">(Light|Dark)</button>', done.stdout)
    assert done.stdout.count("<details") > 10


def test_contradictions_are_reported_in_text_and_page(certified):
    broken = Finding("S0 lemma 1", "hidden layer 1", (), "equal", "off by 3", False)
    found = (NetworkCheck(0, replace(certified[0], identities=(broken,))),)
    assert "1 findings contradict a result" in str(Checks(found, 1))
    page = check_page(found, 1, "").decode()
    assert '<details class="row bad">' in page
    assert "<dd>1</dd>" in page


def test_stacked_populations_give_the_same_numbers():
    one, other = near_copy(TEACHER, 2, 1e-3), random_network(4, 2, 4, 2)
    found = us.check(TEACHER, stack([one, other]), gaussian(1, 200, 2))
    assert found[1].as_dict() == us.check(TEACHER, other, gaussian(1, 200, 2))[0].as_dict()


def test_the_page_of_theorems_is_up_to_date():
    assert (ROOT / "docs" / "reference" / "theorems.md").read_text(encoding="utf-8") == as_markdown()


# Results on training and on classification


@pytest.fixture
def classifier(files):
    """A network with two max-margin neurons, a small one before training, and labelled points, as files."""
    x = torch.tensor([[1.0, 0.2], [0.2, 1.0], [-1.0, -0.2], [-0.2, -1.0]], dtype=torch.float64)
    lower, upper = torch.tensor([[[1.0, 1.0], [-1.0, -1.0]]]), torch.tensor([[[2**0.5, -(2**0.5)]]])
    for name, scale in (("network", 1.0), ("before", 1e-3)):
        layers = Layer(scale * lower.double(), None), Layer(scale * upper.double(), None)
        us.save(Population(layers, torch.tensor([1]), 0.0), files / f"{name}.safetensors")
    np.save(files / "x.npy", x.numpy())
    np.save(files / "y.npy", np.array([1, 1, 0, 0]))
    np.savez(files / "xy.npz", x=x.numpy(), y=np.array([1, 1, 0, 0]))
    return files


def test_a_network_and_labels_are_checked_without_a_teacher(classifier, run_check):
    words = ("network.safetensors", "--data", "x.npy", "--labels", "y.npy", "--start", "before.safetensors")
    found = json.loads(run_check(*words, "--json"))
    assert {row["result"]: row["applies"] for row in found["classes"]} == dict.fromkeys(
        ["S3 lemma 3.1", "S3 lemma 3.2", "S3 lemma 3.3", "S3 theorem 3.1", "S3 corollary 3.1", "S3 lemma B.6"], True
    )
    assert found["teacher"] == []
    assert found == json.loads(run_check(*words[:4], "xy.npz", *words[5:], "--json"))
    text = run_check(*words, "--html", "page.html")
    assert text.startswith(f"6 of {len(results())} results apply, none of them to teacher nodes: there is no teacher.")
    assert "\nClasses" in text
    page = (classifier / "page.html").read_text(encoding="utf-8")
    assert "Max-margin" not in page
    assert "<h2>Classes</h2>" in page
    assert "<h2>The teacher</h2>" not in page


def test_labels_can_be_given_with_a_teacher(classifier):
    network = us.load(classifier / "network.safetensors")
    x, y = np.load(classifier / "x.npy"), [1, 1, 0, 0]
    alone = us.check(network, data=x, labels=y)
    both = us.check(network, network, x, labels=torch.tensor(y))
    assert both[0].classes == alone[0].classes
    assert both[0].nodes
    assert {f.result for f in alone[0].classes if not f.applies} == {
        "S3 lemma 3.1",
        "S3 theorem 3.1",
        "S3 corollary 3.1",
    }


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--labels y.npy", "--labels are those of the inputs of --data; give their file"),
        ("--data x.npy --labels x.npy", "--labels must be one finite number per input, got float64 values with shape"),
        ("--data x.npy --labels two.npy", "there must be one label per sample (4), got shape [2]"),
        (
            "--data x.npy --labels y.npy --start student.safetensors",
            "the student before and after training must have the same layers and activation",
        ),
    ],
)
def test_invalid_labels_and_starts_are_refused(classifier, run_check, words, expected):
    np.save(classifier / "two.npy", np.array([0, 1]))
    assert run_check("network.safetensors", *words.split(), status=2).startswith(f"understudy: {expected}")


def test_the_students_before_training_are_used_for_results_on_training(files):
    def linear(scale: float) -> Population:
        return Population((Layer(scale * torch.tensor([[[1.0, -2.0]]]).double(), None),), torch.tensor([1]), 1.0)

    x = gaussian(1, 1, 2)
    wanted = linear(1.0).layers[0].weight[0, 0]
    reached = x[0] * (x[0] @ wanted) / x[0].square().sum()
    student = Population((Layer(reached.view(1, 1, 2), None),), torch.tensor([1]), 1.0)
    found = us.check(linear(1.0), student, x, start=linear(0.0))[0]
    (one,) = (finding for finding in found.dynamics if finding.result == "S3 theorem 5.1")
    assert one.applies
    assert one.hypotheses[1].value == "w(0) = 0"
    with pytest.raises(UserError, match="start must be as many networks as students"):
        us.check(linear(1.0), student, x, start=[linear(0.0), linear(0.0)])


def test_runs_without_networks_are_refused_with_the_reason(tiny, run_check, tmp_path):
    from safetensors.torch import save_file

    shutil.copytree(tiny[1], tmp_path / "run")
    save_file({}, tmp_path / "run" / "weights.safetensors")
    assert "run, a run of two-layer, keeps no networks: what the study measures" in run_check("run", status=2)


def test_networks_that_cannot_be_checked_are_listed_once_for_each_reason():
    given = [not_kept("first")] * 30 + [NetworkPair(None, None, "")] * 50 + [not_kept("second")] * 2
    selected = _select(None, given)
    assert len(selected) == MOST + 2
    assert [i for i in selected if given[i].why] == [0, 80]
    assert _select(None, given[:30]) == list(range(20))
    assert _select([7, 7, 3], given) == [7, 3]
