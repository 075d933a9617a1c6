"""Figures with one point per network in one column per setting."""

import json

import numpy as np
import pytest

from understudy.report.figures import Dots


def dots(**changed):
    values = np.array([[4.0, 5.0, 5.0, 9.0], [1.0, 0.0, np.nan, 2.0]])
    network = np.array([[0, 1, 2, 3], [4, 5, -1, 7]])
    return Dots(**({"labels": ("2×", "5×"), "values": values, "network": network, "name": "students"} | changed))


@pytest.mark.parametrize("changed", [{}, {"bound": 1.0}, {"floor": 1e-3, "percent": True, "bound": 0.02}])
def test_every_network_is_a_point_on_paper_and_on_the_page(changed):
    kind = dots(**changed)
    words = [text.get_text() for text in kind.paper().findobj(lambda artist: hasattr(artist, "get_text"))]
    assert "n = 4 seeds" in words
    page = kind.page()
    json.dumps(page, allow_nan=False)
    points = [trace for trace in page["data"] if trace["mode"] == "markers"]
    assert [len(trace["x"]) for trace in points] == [4, 3]
    assert points[1]["customdata"] == [[4, -1, -1], [5, -1, -1], [7, -1, -1]]
    assert len(set(points[0]["x"])) == 3  # equal values lie side by side


def test_an_array_of_another_shape_is_refused_by_name():
    with pytest.raises(ValueError, match=r"Dots\.network has shape"):
        dots(network=np.zeros((2, 3), int))


def test_columns_may_have_different_lengths():
    columns = {"2×": (np.array([4.0, 5.0]), np.array([3, 8])), "5×": (np.array([1.0]), np.array([6]))}
    kind = Dots.from_columns(columns, "students", "over-realization", bound=1.0)
    assert (kind.labels, kind.name, kind.x_name, kind.bound) == (("2×", "5×"), "students", "over-realization", 1.0)
    np.testing.assert_array_equal(kind.values, [[4.0, 5.0], [1.0, np.nan]])
    assert kind.network.tolist() == [[3, 8], [6, -1]]
    assert Dots.from_columns({"2×": (np.zeros(0), np.zeros(0, int))}, "students").network.tolist() == [[-1]]
