"""Tables whose unit is not a network, read as labelled arrays."""

import numpy as np
import pyarrow as pa
import pytest

from understudy._errors import UserError
from understudy.store.units import unit_array

SETS = pa.table(
    {
        "task": ["wide", "wide", "narrow", "wide"],
        "kappa": [2.0, 0.5, 0.5, 2.0],
        "seed": [1, 1, 1, 2],
        "risk": [0.1, None, 0.3, 0.4],
        "spans": [True, False, True, True],
    }
)


def test_columns_become_dimensions_and_missing_units_are_nan():
    found = unit_array(SETS, "risk", "task kappa seed")
    assert found["task"].values.tolist() == ["wide", "narrow"]
    assert found["kappa"].values.tolist() == [0.5, 2.0]
    assert found.sel(task="wide", kappa=2.0).values.tolist() == [0.1, 0.4]
    assert np.isnan(found.sel(task="wide", kappa=0.5)).all()
    assert found["unit"].sel(task="narrow", kappa=0.5).values.tolist() == [2, -1]


def test_units_are_selected_by_columns_and_truth_values_are_numbers():
    assert unit_array(SETS, "spans", "kappa seed", task="narrow").values.tolist() == [[1.0]]
    assert np.isnan(unit_array(SETS, "angle", "kappa seed", task="narrow")).all()


def test_units_that_would_share_a_place_are_refused():
    with pytest.raises(UserError, match="several units have the same kappa; name more columns"):
        unit_array(SETS, "risk", "kappa")
