"""`us.sweep`: the joined table equals the tables of the calls, one after the other."""

import numpy as np
import pyarrow as pa
import pytest

import understudy as us
from understudy.lab.sweep import sweep

TEACHER = us.teachers.distinct_rows((4, 3, 2), seeds=[1])
STUDENTS = us.students.gaussian(TEACHER, multiple=2, seeds=range(2))
DATA = us.data.Gaussian(dim=4, train=40, evaluation=30)


def trained(lr, batch=8):
    return us.train(STUDENTS, TEACHER, DATA, us.SGD(lr=lr, batch=batch), epochs=1, steps=3)


@pytest.mark.parametrize("table", ["metrics", "nodes"])
def test_tables_are_joined_with_the_values_beside(table):
    found = us.sweep(trained, over={"lr": np.array([0.1, 0.2]), "batch": (4, 8)})
    frame = found.to_pandas(table)
    assert list(frame.columns[:2]) == ["lr", "batch"]
    points = [{"lr": lr, "batch": batch} for lr in (0.1, 0.2) for batch in (4, 8)]
    assert found.points == tuple(points)
    for point, result in zip(points, found, strict=True):
        rows = frame[(frame["lr"] == point["lr"]) & (frame["batch"] == point["batch"])].reset_index(drop=True)
        alone = trained(**point).table(table).to_pandas()
        assert len(rows) == len(alone) == getattr(result, table).num_rows
        for name in alone.columns:
            assert rows[name].astype(alone[name].dtype).equals(alone[name])


def test_runs_of_studies(tiny):
    run = us.Run(tiny[1])
    joined = sweep(lambda again: run, over={"again": [1, 2]}).table("networks")
    assert joined.num_rows == 2 * run.networks.num_rows
    assert joined.column_names == ["again", *run.networks.column_names]


def test_numbers_and_dicts_are_rows():
    assert sweep(lambda x: x**2, over={"x": range(3)}).table().to_pylist() == [
        {"x": 0, "value": 0},
        {"x": 1, "value": 1},
        {"x": 2, "value": 4},
    ]
    found = sweep(lambda x, y: {"sum": x + y, "first": float(x)}, over={"x": [1], "y": [2, 3]})
    assert found.to_pandas().to_dict("list") == {"x": [1, 1], "y": [2, 3], "sum": [3, 4], "first": [1.0, 1.0]}
    assert found[1] == {"sum": 4, "first": 1.0} and len(found) == 2
    assert repr(found) == "Sweep(2 × dict over 1 x, 2 y)"
    assert "<td>" in found._repr_html_()
    assert isinstance(found.table(), pa.Table)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sweep(3, over={"x": [1]}), "fn must be a function, got int"),
        (lambda: sweep(abs, over={}), "over must be a dict of values by argument"),
        (lambda: sweep(abs, over={"x": 3}), r"over must have several values of x, such as \[3\], got 3"),
        (lambda: sweep(abs, over={"x": "ab"}), "over must have several values of x"),
        (lambda: sweep(abs, over={"x": []}), "over must have at least one value of x, got none"),
        (
            lambda: sweep(lambda x: "a", over={"x": [1]}).table(),
            "a str, has no table metrics; the function must return",
        ),
    ],
)
def test_mistakes_are_named(make, message):
    with pytest.raises(us.UserError, match=message):
        make()


def test_a_swept_value_that_is_also_a_column_is_that_column_where_they_agree():
    def of_seed(seed):
        students = us.students.gaussian(TEACHER, multiple=2, seeds=[seed])
        return us.train(students, TEACHER, DATA, us.SGD(lr=0.1, batch=8), epochs=1, steps=3)

    found = us.sweep(of_seed, over={"seed": [1, 2]}).table("networks")
    assert found.column_names[0] == "seed" and found.column_names.count("seed") == 1
    assert found["seed"].to_pylist() == [1, 2]


def test_a_swept_value_that_differs_from_its_column_has_a_name_of_its_own():
    found = sweep(lambda x, y: {"x": 10 * x, "sum": x + y}, over={"x": [0, 1], "y": [2]}).table()
    assert found.to_pylist() == [{"swept_x": 0, "y": 2, "x": 0, "sum": 2}, {"swept_x": 1, "y": 2, "x": 10, "sum": 3}]
