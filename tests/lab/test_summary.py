"""The table of final losses: networks that diverged are counted, and their last losses are left out."""

import math

import pytest

from support.runs import made_run
from understudy.lab.layers import some_diverged
from understudy.lab.summary import summarise


def losses(*ends, diverged=()):
    """A run at two widths; each network recorded a loss before training, and one at the end unless it is NaN."""
    networks = [
        {"multiple": float(1 + i // 3), "seed": i % 3 + 1, "diverged_at": 7 if i in diverged else None}
        for i in range(len(ends))
    ]
    metrics = {"eval_loss": [(1.0, end) for end in ends], ("recovered", 0): [(0.0, 0.5)] * len(ends)}
    return made_run(networks, (0, 1), metrics)


def test_a_setting_has_the_median_of_the_networks_that_are_left():
    first, second = summarise(losses(1.0, 2.0, 9.0, 4.0, 4.0, 4.0, diverged=(2,)))
    assert first == ({"multiple": 1.0}, 3, 1, 1.5, 0.5)
    assert second == ({"multiple": 2.0}, 3, 0, 4.0, 0.5)


@pytest.mark.parametrize("end", [math.nan, 3.0], ids=["no later row", "a later row"])
def test_a_run_in_which_all_diverge_says_so_in_the_table_as_in_the_headline(end):
    run = losses(*[end] * 6, diverged=range(6))
    rows = summarise(run)
    assert [(row.networks, row.diverged) for row in rows] == [(3, 3), (3, 3)]
    assert all(math.isnan(row.loss) and math.isnan(row.recovered) for row in rows)
    assert some_diverged(run) == f" {sum(row.diverged for row in rows)} of 6 networks diverged."


def test_a_network_without_a_final_loss_has_not_diverged():
    first, _ = summarise(losses(*[math.nan] * 6))
    assert (first.networks, first.diverged) == (3, 0)
