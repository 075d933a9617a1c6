"""Trajectories of nodes in the plane are drawn where the nodes were."""

import dataclasses
import json

import numpy as np
import pytest

from support.plane_figures import trajectories
from understudy.report import style
from understudy.report.figures import PlaneTrajectories, Trajectories

TEACHER = np.array([[2.0, 1.0], [0.0, 3.0]])
WAYS = np.array([[[1.0, 0.0], [0.0, 2.0]], [[0.5, 0.5], [0.0, 1.0]], [[0.25, 0.75], [-1.0, 0.0]]])


@pytest.fixture
def small():
    return Trajectories((PlaneTrajectories("local", TEACHER, WAYS, network=7),), np.array([0, 10, 1_000]))


def traces(kind, name):
    return [trace for trace in kind.page()["data"] if trace.get("name") == name]


def test_a_film_starts_at_the_first_time(small):
    (points,) = traces(small, "student")
    assert (points["x"], points["y"]) == ([1.0, 0.0], [0.0, 2.0])
    assert small.page()["layout"]["sliders"][0]["active"] == 0
    assert points["customdata"] == [[7, -1, 0], [7, -1, 1]]


def test_frames_move_them_through_every_time(small):
    page = small.page()
    assert [frame["name"] for frame in page["frames"]] == ["0", "10", "1,000"]
    for frame, places in zip(page["frames"], WAYS, strict=True):
        (moved,) = frame["data"]
        assert np.stack([moved["x"], moved["y"]], 1).tolist() == places.tolist()
        assert [page["data"][i]["name"] for i in frame["traces"]] == ["student"]
    assert page["layout"]["sliders"][0]["currentvalue"]["prefix"] == "step "


def test_trajectories_are_complete_and_separate(small):
    (path,) = traces(small, "trajectory of a student")
    assert path["x"] == [1.0, 0.5, 0.25, None, 0.0, 0.0, -1.0, None]
    assert path["y"] == [0.0, 0.5, 0.75, None, 2.0, 1.0, 0.0, None]


def test_teacher_lines_cross_the_square_through_the_origin(small):
    half = small.planes[0].half
    for j, line in enumerate(traces(small, "teacher")):
        points = np.stack([line["x"], line["y"]], 1)
        assert np.cross(np.append(TEACHER[j], 0), np.append(points[-1], 0))[2] == pytest.approx(0, abs=1e-5)
        assert np.abs(points).max() == pytest.approx(half, rel=1e-5)
        assert points[4].tolist() == [0, 0]
        assert line["customdata"][0] == [7, j, -1]


def test_everything_is_in_the_square(small):
    assert small.planes[0].half > np.abs(WAYS).max()
    assert small.page()["layout"]["xaxis"]["range"] == small.page()["layout"]["yaxis"]["range"]
    assert small.page()["layout"]["yaxis"]["scaleanchor"] == "x"
    (ax,) = small.paper().axes
    assert ax.get_xlim() == pytest.approx((-small.planes[0].half, small.planes[0].half))


def test_strokes_join_students_to_the_origin(small):
    stroked = dataclasses.replace(small, strokes=True)
    stroke, points = stroked.page()["frames"][1]["data"]
    assert stroke["x"] == [0.0, 0.5, None, 0.0, 0.0, None]
    assert stroke["y"] == [0.0, 0.5, None, 0.0, 1.0, None]
    assert points["x"] == [0.5, 0.0]
    ends = [line for line in stroked.paper().axes[0].lines if line.get_color() == style.VERMILLION]
    assert [line.get_linestyle() for line in ends] == ["-", "None"]


def test_a_diverged_student_leaves_gaps():
    broken = np.array(WAYS)
    broken[1:, 1] = np.nan
    kind = Trajectories((PlaneTrajectories("large", TEACHER, broken),), np.arange(3))
    json.dumps(kind.page(), allow_nan=False)
    kind.paper()
    assert np.isfinite(kind.planes[0].half)
    nothing = Trajectories((PlaneTrajectories("large", TEACHER, np.full((2, 1, 2), np.nan)),), np.arange(2))
    nothing.paper()
    assert nothing.planes[0].half > 0


def test_many_nodes_and_times_are_thinned_with_both_ends_kept():
    page = trajectories(panels=1, times=300, students=600).page()
    names = [frame["name"] for frame in page["frames"]]
    assert (names[0], names[-1]) == ("0", "299")
    assert 2 < len(names) < 90
    assert len(trajectories(panels=1, times=300).page()["frames"]) == 90


def test_planes_with_other_times_are_named():
    with pytest.raises(ValueError, match=r"'local' has 3 times where Trajectories\.times has 2"):
        Trajectories((PlaneTrajectories("local", TEACHER, WAYS),), np.arange(2))
    with pytest.raises(ValueError, match=r"PlaneTrajectories\.teacher_weights has shape \(2, 3\)"):
        PlaneTrajectories("local", np.zeros((2, 3)), WAYS)
