"""Options that studies on CIFAR-10 share: the one-cycle schedule, and what they refuse."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.commands import flat, understudy
from understudy._errors import UserError
from understudy.lab.cifar import kept_sizes, one_cycle, validate_kept


def test_one_cycle_by_hand():
    epochs, factors = zip(*one_cycle(10), strict=True)
    assert epochs == tuple(range(1, 11))
    # The rate rises in the first three epochs, whose middles are at 1/6, 1/2 and 5/6 of the rise.
    up = [0.04 + 0.96 * (1 - np.cos(np.pi * at)) / 2 for at in (1 / 6, 1 / 2, 5 / 6)]
    assert factors[:3] == pytest.approx(up)
    assert factors[1] == pytest.approx(0.52)
    assert factors[3] == pytest.approx(1e-4 + 0.9999 * (1 - np.cos(np.pi * 13 / 14)) / 2)
    assert factors[-1] == pytest.approx(1e-4 + 0.9999 * (1 - np.cos(np.pi / 14)) / 2)


@given(st.integers(1, 300))
def test_one_cycle_rises_once_and_falls_once(epochs):
    factors = [factor for _, factor in one_cycle(epochs)]
    assert len(factors) == epochs
    assert all(0 < factor <= 1 for factor in factors)
    top = int(np.argmax(factors))
    assert all(a < b for a, b in itertools.pairwise(factors[: top + 1]))
    assert all(a > b for a, b in itertools.pairwise(factors[top:]))


def test_one_cycle_of_many_epochs_goes_from_a_25th_to_1_to_nearly_0():
    factors = np.array([factor for _, factor in one_cycle(10_000)])
    assert factors[0] == pytest.approx(0.04, abs=1e-6)
    assert factors.max() == pytest.approx(1, abs=1e-6)
    assert factors.argmax() == pytest.approx(3_000, abs=1)
    assert factors[-1] == pytest.approx(1e-4, abs=1e-6)
    assert factors.mean() == pytest.approx(0.3 * 0.52 + 0.7 * 0.50005, abs=1e-6)


def test_shares_of_nodes_are_one_for_all_layers_or_one_per_layer():
    assert kept_sizes((0.5,), (4, 6)) == (2, 3)
    assert kept_sizes((0.25, 1.0), (4, 6)) == (1, 6)
    validate_kept((0.25, 1.0), (4, 6))
    with pytest.raises(UserError, match=r"--keep must be one share, or one for each of the 3 layers, got 0\.5 0\.5"):
        validate_kept((0.5, 0.5), (4, 6, 8))


@pytest.mark.parametrize("study", ["cifar-teacher", "cifar", "cifar-luck", "bn-bias"])
def test_without_images_the_error_names_the_download_and_nothing_is_written(study, tmp_path):
    done = understudy("run", study, "--quick", "--data", "nowhere", cwd=tmp_path, status=2)
    words = flat(done.stderr)
    for part in (
        "--data: nowhere: there is no such folder",
        "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        "170,052,171 bytes",
        "into the folder nowhere",
        "tar -xzf nowhere/cifar-10-binary.tar.gz -C nowhere",
        "$UNDERSTUDY_DATA",
    ):
        assert part in words, words
    assert not list(tmp_path.iterdir())
