"""Areas beyond the contract of figures: stacked or not, the axis that all rows share, and the slider."""

import json

import numpy as np
import pytest

from understudy.report.figures import Areas

X = np.linspace(-1, 1, 5)
SHARES = np.array([[[0.25] * 5, [0.75] * 5], [[0.5, 0.4, np.nan, 0.2, 0.1], [0.5, 0.6, 0.7, 0.8, 0.9]]])


def areas(**options):
    given = {"titles": ("M = 0", "M = 1"), "x": X, "values": SHARES, "labels": ("a", "b"), "x_label": "z"}
    return Areas(**(given | {"y_label": "p(x|z)"} | options))


class TestAreas:
    def test_stacked_areas_reach_their_sum(self):
        kind = areas(stacked=True)
        assert kind.highest() == pytest.approx(1.0)
        lower, upper = kind.paper().axes[0].collections
        tops = [part.get_paths()[0].vertices[:, 1].max() for part in (lower, upper)]
        assert tops == pytest.approx([0.25, 1.0])
        assert areas().highest() == pytest.approx(0.9)
        assert areas(outline=np.full(5, 1.4)).highest() == pytest.approx(1.4)

    def test_all_rows_share_the_axis_of_the_page(self):
        page = areas(stacked=True).page()
        assert page["layout"]["yaxis"]["range"] == [0, 1.0]
        assert {trace["stackgroup"] for trace in page["data"]} == {"whole"}
        assert all("stackgroup" not in trace for trace in areas().page()["data"])

    def test_the_slider_changes_the_areas_and_leaves_the_outline(self):
        page = areas(outline=np.ones(5), outline_label="all").page()
        assert [trace["name"] for trace in page["data"]] == ["all", "a", "b"]
        assert [step["label"] for step in page["layout"]["sliders"][0]["steps"]] == ["M = 0", "M = 1"]
        last = page["frames"][-1]
        assert last["traces"] == [1, 2]
        assert last["data"][0]["y"][2] is None  # NaN
        json.dumps(page, allow_nan=False)

    def test_one_row_needs_no_slider_but_keeps_its_title(self):
        page = areas(titles=("M = 1",), values=SHARES[1:]).page()
        assert "sliders" not in page["layout"]
        assert "M = 1" in json.dumps(page["layout"], ensure_ascii=False)

    def test_values_must_fit_titles_labels_and_x(self):
        for wrong in ({"titles": ("M = 0",)}, {"labels": ("a",)}, {"x": X[1:]}, {"colours": ("#000000",)}):
            with pytest.raises(ValueError, match="Areas"):
                areas(**wrong)

    def test_an_area_without_values_has_an_axis(self):
        assert areas(values=np.full((2, 2, 5), np.nan)).highest() == 1.0
