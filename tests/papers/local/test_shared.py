"""Shared parts of studies of exact losses: probes, tables, warnings, and a teacher from a file."""

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import understudy as us
from understudy._errors import UserError
from understudy.lab.pieces import log_probes, network_tables
from understudy.lab.study import ExactStudy, Piece, named_pieces
from understudy.nets import Layer, Population
from understudy.papers.local import shared
from understudy.papers.local.shared import FileTeacherStudy, measure, node_rows, rate_warning
from understudy.papers.local.theory.gaussian import loss, loss_and_gradient
from understudy.papers.local.theory.geometry import local_geometry, sides, smoothness_sides
from understudy.papers.local.theory.starts import place_near
from understudy.papers.local.theory.teachers import random_teachers

TEACHERS = random_teachers(2, 3, (1, 2), 0.3)


def _path(probes=3, students=4):
    """Students at decreasing angles from two teachers."""
    return torch.stack([place_near(TEACHERS, students, 0.4 / (1 + probe), (1, 2)).students for probe in range(probes)])


@given(st.integers(1, 100_000), st.integers(1, 80))
def test_probes_start_at_step_0_and_end_with_the_last_step(steps, count):
    probes = log_probes(steps, count)
    assert probes[0] == 0
    assert list(probes) == sorted(set(probes))
    assert max(probes) == steps
    assert len(probes) <= max(2, count) + 1


def test_measured_quantities_agree_with_those_of_each_probe():
    path = _path()
    values = measure(path, TEACHERS, 0.05).values
    for probe in range(3):
        found = local_geometry(path[probe], TEACHERS)
        for name in ("loss", "gradient_norm", "ratio", "squared_ratio", "within", "linear", "bent", "descent"):
            assert values[name][probe] == pytest.approx(getattr(found, name).numpy(), rel=1e-9), name
        assert values["largest_angle"][probe] == pytest.approx(found.angles.amax(-1).numpy(), rel=1e-9)
        for name, both in sides(found, TEACHERS).items():
            assert values[f"{name} left"][probe] == pytest.approx(both.left.numpy(), rel=1e-9), name
            assert values[f"{name} right"][probe] == pytest.approx(both.right.numpy(), rel=1e-9), name
        step = -0.05 * loss_and_gradient(path[probe], TEACHERS)[1]
        both = smoothness_sides(path[probe], TEACHERS, step)
        assert values["lemma 12 left"][probe] == pytest.approx(both.left.numpy(), rel=1e-6)
        assert values["lemma 12 right"][probe] == pytest.approx(both.right.numpy(), rel=1e-9)
    assert values["loss"] == pytest.approx(loss(path, TEACHERS).numpy(), rel=1e-12)


def test_the_block_size_does_not_change_the_results(monkeypatch):
    whole = measure(_path(), TEACHERS, 0.05)
    monkeypatch.setattr(shared, "_PAIRS", 1)
    for parts, found in zip(whole, measure(_path(), TEACHERS, 0.05), strict=True):
        assert list(parts) == list(found)
        for name, value in found.items():
            assert value == pytest.approx(parts[name], rel=1e-9, abs=1e-15), name


def test_a_nonfinite_network_is_nan_and_the_others_are_unaffected():
    whole, path = measure(_path(), TEACHERS, 0.05), _path()
    path[1:, 0, 2, 0] = torch.nan
    found = measure(path, TEACHERS, 0.05)
    for name, value in (found.values | found.nodes).items():
        expected = (whole.values | whole.nodes)[name]
        assert np.isnan(value[1:, 0]).all()
        assert value[:, 1] == pytest.approx(expected[:, 1], rel=1e-9, abs=1e-15)
        assert value[0] == pytest.approx(expected[0], rel=1e-9, abs=1e-15)
    rows = pa.table(node_rows(0, (0, 1, 2), found))
    assert {(r["network"], r["epoch"]) for r in rows.to_pylist()} == {(0, 0), (1, 0), (1, 1), (1, 2)}


def test_node_rows_of_teachers_contain_count_mass_and_average_of_students():
    teachers = torch.tensor([[[1.0, 0.0], [0.0, 2.0]]], dtype=torch.float64)
    students = torch.tensor([[[0.5, 0.0], [0.0, -1.0]]], dtype=torch.float64)
    rows = pa.table(node_rows(7, (50,), measure(students.unsqueeze(0), teachers, 0.05))).to_pylist()
    assert [(row["role"], row["student"], row["teacher"]) for row in rows] == [
        ("student", 0, 0), ("student", 1, 1), ("teacher", None, 0), ("teacher", None, 1),
    ]  # fmt: skip
    assert {(row["network"], row["epoch"]) for row in rows} == {(7, 50)}
    assert [row["norm"] for row in rows[:2]] == [0.5, 1]
    assert [row["angle"] for row in rows[:2]] == pytest.approx([0, 0], abs=1e-12)
    assert [(row["count"], row["mass"]) for row in rows[2:]] == [(1, 0.25), (1, 1.0)]
    assert rows[2]["average"] == pytest.approx([0.25, 0])
    assert rows[2]["gap"] == pytest.approx([-0.75, 0])
    assert np.abs(rows[3]["average"]) == pytest.approx([0, 1])
    assert np.abs(rows[3]["gap"]) == pytest.approx([0, 1])


def test_node_rows_of_students_contain_teacher_node_angle_length_and_direction_of_lemma_7():
    teachers = torch.tensor([[[1.0, 0.0], [0.0, 2.0]]], dtype=torch.float64)
    angle = 0.1
    student = torch.tensor([[math.sin(angle), -math.cos(angle)], [0.9, 0.0]], dtype=torch.float64)
    places = np.array([3.0, 4.0])
    rows = pa.table(node_rows(7, [0, 50], measure(student.expand(2, 1, 2, 2), teachers, 0.05), {"place": places}))
    ours = [row for row in rows.to_pylist() if row["role"] == "student"]
    assert [row["network"] for row in ours] == [7] * 4
    assert [row["epoch"] for row in ours] == [0, 0, 50, 50]
    assert [row["student"] for row in ours] == [0, 1, 0, 1]
    assert [row["teacher"] for row in ours] == [1, 0, 1, 0]
    assert [row["angle"] for row in ours] == pytest.approx([angle, 0, angle, 0], abs=1e-12)
    assert [row["norm"] for row in ours] == pytest.approx([1, 0.9, 1, 0.9])
    assert [row["place"] for row in ours] == [3, 4, 3, 4]
    # (I − ½ w̄w̄ᵀ)(w − q w*), q = 1/‖w‖ for the only student of its node: for the second ½ (0.9 − 1/0.9) along it.
    assert ours[1]["direction"] == pytest.approx([(0.9 - 1 / 0.9) / 2, 0])
    w, goal = student[0].numpy(), np.array([0.0, -2.0])
    assert ours[0]["direction"] == pytest.approx((np.eye(2) - np.outer(w, w) / 2) @ (w - goal))


def test_the_direction_of_lemma_7_is_null_where_a_teacher_node_has_no_student_near_it():
    teachers = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]], dtype=torch.float64)
    students = torch.tensor([[[1.0, 0.0], [1e-9, 0.0]]], dtype=torch.float64)
    found = measure(students.unsqueeze(0), teachers, 0.05)
    rows = pa.table(node_rows(0, (0,), found)).to_pylist()
    assert np.isnan(found.nodes["direction"]).all() and np.isnan(found.values["descent"]).all()
    assert [row["direction"] for row in rows] == [None] * 4


def test_tables_have_one_row_per_defined_value_and_per_loss():
    values = {"loss": np.array([[1.0, 2.0], [0.5, np.nan]]), "ratio": np.array([[3.0, 4.0], [5.0, np.nan]])}
    made = network_tables(4, (8, 9), {"m": 3, "delta": [0.1, 0.2]}, (0, 10), values)
    assert made["networks"].to_pylist() == [
        {"network": 4, "seed": 8, "m": 3, "delta": 0.1, "diverged_at": None},
        {"network": 5, "seed": 9, "m": 3, "delta": 0.2, "diverged_at": 10},
    ]
    rows = {(r["network"], r["epoch"], r["metric"]): r["value"] for r in made["metrics"].to_pylist()}
    assert math.isnan(rows.pop((5, 10, "loss")))
    assert rows == {
        (4, 0, "loss"): 1.0, (5, 0, "loss"): 2.0, (4, 10, "loss"): 0.5,
        (4, 0, "ratio"): 3.0, (5, 0, "ratio"): 4.0, (4, 10, "ratio"): 5.0,
    }  # fmt: skip
    assert made["nodes"].num_rows == 0
    assert set(made["metrics"]["layer"].to_pylist()) == {-1}


@dataclass(frozen=True)
class _Two(ExactStudy):
    name = "two"

    def pieces(self):
        for count in (2, 3):
            yield Piece(f"{count} networks", count, partial(self._make, count))

    def warnings(self):
        return (rate_warning(1.0, 0.25),)

    def _make(self, count, first):
        return network_tables(first, range(count), {}, (0,), {"loss": np.ones((1, count))})


def test_networks_are_numbered_across_parts_and_warnings_are_printed(capsys):
    made = [make() for make in named_pieces(_Two()).values()]
    assert pa.concat_tables([t["networks"] for t in made])["network"].to_pylist() == [0, 1, 2, 3, 4]
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("warning: --rate 1 is above 0.25, the bound below which")


def test_only_float64_is_accepted():
    with pytest.raises(UserError, match="--dtype must be float64, got float32: two computes in float64 only"):
        _Two(dtype="float32")


@dataclass(frozen=True)
class Own(FileTeacherStudy):
    name = "own"


def _file(path, weights, outputs, slope=-1.0, biases=None):
    lower = torch.tensor(weights, dtype=torch.float64)
    lower = lower if lower.ndim == 3 else lower[None]
    upper = torch.tensor([[outputs]] * len(lower), dtype=torch.float64)
    bias = None if biases is None else torch.tensor([biases], dtype=torch.float64)
    layers = (Layer(lower, bias), Layer(upper, None))
    us.save(Population(layers, torch.arange(len(lower)), slope), path)
    return str(path)


def test_a_teacher_from_a_file_is_converted_to_the_form_of_the_paper(tmp_path):
    file = _file(tmp_path / "teacher.safetensors", [[1.0, 0.0], [0.0, 2.0]], [3.0, 0.5])
    assert Own(teacher=file).file_teacher().tolist() == [[[3.0, 0.0], [0.0, 1.0]]]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"outputs": [1.0, -1.0]}, "output weights must be positive, got −1 for neuron 1"),
        ({"slope": 0.0}, "must have .* nodes, of slope −1 below zero, got slope 0 .* add --leaky -1"),
        ({"biases": [0.0, 1.0]}, "biases"),
        ({"weights": [[1.0, 0.0], [-2.0, 0.0]]}, "neurons 0 and 1 are parallel"),
    ],
)
def test_a_file_with_an_unsuitable_teacher_is_rejected(tmp_path, given, words):
    plain = {"weights": [[1.0, 0.0], [0.0, 1.0]], "outputs": [1.0, 1.0]}
    with pytest.raises(UserError, match=words) as error:
        Own(teacher=_file(tmp_path / "teacher.safetensors", **(plain | given))).file_teacher()
    assert str(error.value).startswith("--teacher")


def test_options_select_the_network_of_a_file_and_its_slope(tmp_path):
    several = _file(tmp_path / "two.safetensors", [[[1.0, 0.0], [0.0, 1.0]], [[3.0, 0.0], [0.0, 1.0]]], [1.0, 1.0])
    assert Own(teacher=several, teacher_network=1).file_teacher().tolist() == [[[3.0, 0.0], [0.0, 1.0]]]
    assert Own(teacher=several).file_teacher().tolist() == [[[1.0, 0.0], [0.0, 1.0]]]
    with pytest.raises(UserError, match=r"--teacher-network must be at most 1, the last network of .*, got 2"):
        Own(teacher=several, teacher_network=2).config()
    bare = tmp_path / "bare.pt"
    torch.save({"0.weight": torch.eye(2), "2.weight": torch.ones(1, 2)}, bare)
    with pytest.raises(UserError, match=r"must have .* nodes, of slope −1 below zero, got slope 0 .* add --leaky -1"):
        Own(teacher=str(bare)).config()
    study = Own(teacher=str(bare), leaky=-1.0)
    assert study.file_teacher().tolist() == [[[1.0, 0.0], [0.0, 1.0]]]
    assert Own.from_config(study.config()) == study
    assert "--leaky -1" in study.command()


@pytest.mark.parametrize(("option", "given"), [("leaky", -1.0), ("teacher_network", 1)])
def test_options_of_a_teacher_file_are_rejected_without_one(option, given):
    words = f"--{option.replace('_', '-')} needs --teacher"
    with pytest.raises(UserError, match=words):
        Own(**{option: given})
    assert Own.from_config(Own().config()) == Own()


def test_a_changed_file_changes_the_configuration(tmp_path):
    study = Own(teacher=_file(tmp_path / "t.safetensors", [[1.0, 0.0]], [1.0]))
    before = study.config()
    _file(tmp_path / "t.safetensors", [[2.0, 0.0]], [1.0])
    assert study.config() != before
    assert "contents" not in Own().config()
