"""Figures of layers: which nodes a panel shows."""

import numpy as np

from understudy.lab.layers import slider_epochs, student_nodes


class _WideAndNarrow:
    """Two networks with three students, and one with two, at epochs 0 and 4."""

    epochs = np.array([0, 4])
    _values = np.array([[0.1, 0.2, 0.3], [0.4, 0.5, np.nan], [0.6, 0.7, 0.8]])

    def matched(self, role, column, layer, epoch):
        assert (role, layer) == ("student", 1)
        return np.where(np.isnan(self._values), np.nan, 1.0) if column == "teacher" else self._values + epoch

    def column(self, name):
        return np.array([7, 8, 9])


def test_a_panel_shows_as_many_students_as_its_networks_have():
    wide = student_nodes(_WideAndNarrow(), np.array([0, 2]), np.array([0, 4]), layer=1)
    narrow = student_nodes(_WideAndNarrow(), np.array([1]), np.array([0, 4]), layer=1)
    assert wide.correlation.tolist() == [[0.1, 0.2, 0.3, 0.6, 0.7, 0.8], [4.1, 4.2, 4.3, 4.6, 4.7, 4.8]]
    assert (wide.network.tolist(), wide.student.tolist()) == ([0, 0, 0, 2, 2, 2], [0, 1, 2, 0, 1, 2])
    assert (wide.seed.tolist(), wide.teacher.tolist()) == ([7, 7, 7, 9, 9, 9], [[1] * 6] * 2)
    assert narrow.correlation.tolist() == [[0.4, 0.5], [4.4, 4.5]]


def test_a_panel_without_networks_is_empty():
    assert student_nodes(_WideAndNarrow(), np.zeros(0, int), np.array([0, 4]), layer=1).correlation.shape == (2, 0)


def test_the_slider_ends_at_the_last_epoch():
    assert slider_epochs(_WideAndNarrow(), (0, 1, 4, 10)).tolist() == [0, 1, 4]
