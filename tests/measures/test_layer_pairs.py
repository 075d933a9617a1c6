"""Sums over all pairs of layers: against numpy on all activations at once, in any batches."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from understudy import UserError
from understudy.measures import linear_cka
from understudy.measures.layer_pairs import LayerPairs
from understudy.measures.recording import LayerActivations


def drawn(seed, samples, widths, positions):
    torch.manual_seed(seed)
    shared = torch.randn(samples, int(np.prod([*positions, 1])), 3, dtype=torch.float64)
    return [
        LayerActivations(torch.relu(shared @ torch.randn(3, w, dtype=torch.float64)) + 5, positions) for w in widths
    ]


def cut(layer, start, end):
    return layer._replace(values=layer.values[start:end])


def added(teacher, student, ends, **how):
    sums = LayerPairs([f"t{i}" for i in range(len(teacher))], [f"s{i}" for i in range(len(student))], **how)
    for start, end in zip([0, *ends], ends, strict=False):
        sums.update([cut(t, start, end) for t in teacher], [cut(s, start, end) for s in student])
    return sums


def plain(x, y):
    """Correlations and linear CKA of two matrices [row, node], by their definitions."""
    x, y = x - x.mean(0), y - y.mean(0)
    rho = np.corrcoef(x.T, y.T)[: x.shape[1], x.shape[1] :]
    norms = np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y)
    return rho, np.linalg.norm(x.T @ y) ** 2 / norms


@given(
    seed=st.integers(0, 99),
    widths=st.tuples(*[st.lists(st.integers(1, 6), min_size=1, max_size=3)] * 2),
    positions=st.sampled_from([(), (4,), (2, 3)]),
    ends=st.sets(st.integers(1, 59), max_size=4),
)
def test_any_batches_agree_with_numpy_on_all_samples_at_once(seed, widths, positions, ends):
    teacher, student = drawn(seed, 60, widths[0], positions), drawn(seed, 60, widths[1], positions)
    pairs = added(teacher, student, [*sorted(ends), 60]).results()
    for t, row in zip(teacher, pairs, strict=True):
        for s, pair in zip(student, row, strict=True):
            rho, cka = plain(t.rows.numpy(), s.rows.numpy())
            np.testing.assert_allclose(pair.correlation, rho, atol=1e-9)
            np.testing.assert_allclose(pair.best_correlation, rho.max(1), atol=1e-9)
            assert pair.mean_best_correlation == pytest.approx(rho.max(1).mean())
            assert (rho[np.arange(len(rho)), pair.best] >= rho.max(1) - 1e-9).all()
            assert pair.cka == pytest.approx(cka)
            assert pair.at_positions


@pytest.mark.parametrize("average", [False, True])
def test_layers_with_other_positions_are_averaged_over_them(average):
    teacher, student = (
        drawn(1, 40, [3], (4,)) + drawn(2, 40, [5], ()),
        drawn(1, 40, [6], (4,)) + drawn(3, 40, [2], (2, 2)),
    )
    pairs = added(teacher, student, [13, 40], average=average).results()
    for i, t in enumerate(teacher):
        for j, s in enumerate(student):
            same = (i, j) == (0, 0) and not average
            rows = (t.rows, s.rows) if same else (t.averaged, s.averaged)
            rho, cka = plain(*(x.numpy() for x in rows))
            np.testing.assert_allclose(pairs[i][j].correlation, rho, atol=1e-9)
            assert pairs[i][j].cka == pytest.approx(cka)
            assert pairs[i][j].at_positions is same


def test_masked_positions_do_not_count():
    values, mask = torch.arange(12.0).view(2, 3, 2), torch.tensor([[True, True, False], [True, False, False]])
    layer = LayerActivations(values, (3,), mask)
    assert layer.rows.tolist() == [[0, 1], [2, 3], [6, 7]]
    assert layer.averaged.tolist() == [[1, 2], [6, 7]]


def test_linear_cka_by_hand():
    x, y = torch.tensor([[1.0, 0], [-1, 0]]), torch.tensor([[2.0], [-2]])
    assert linear_cka(x.T @ y, x.T @ x, y.T @ y) == pytest.approx(1)
    z = torch.tensor([[1.0, 1], [-1, 1], [1, -1], [-1, -1]])
    one = z[:, :1]
    assert linear_cka(z.T @ one, z.T @ z, one.T @ one) == pytest.approx(1 / np.sqrt(2))
    assert linear_cka(z.T @ one, z.T @ z, torch.zeros(1, 1)) == 0


def test_cka_ignores_rotations_and_scales_and_correlation_does_not():
    (x,) = drawn(4, 50, [4], ())
    turned = x._replace(values=7 * x.values @ torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64)).Q)
    pair = added([x], [turned], [50]).results()[0][0]
    assert pair.cka == pytest.approx(1)
    assert pair.mean_best_correlation < 0.999


def test_a_constant_node_has_no_partner():
    (x,) = drawn(5, 50, [3], ())
    x.values[..., 1] = 2.5
    pair = added([x], [x], [20, 50]).results()[0][0]
    assert pair.best.tolist() == [0, -1, 2]
    assert pair.recovered == 2
    assert pair.mean_best_correlation == pytest.approx(2 / 3)


def test_activations_that_are_not_finite_are_refused_by_the_layer():
    (x, y), (s,) = drawn(6, 10, [3, 2], ()), drawn(6, 10, [2], ())
    y.values[3, 0, 1] = torch.nan
    with pytest.raises(UserError, match="'t1' of the teacher has activations that are NaN"):
        added([x, y], [s], [10]).results()


def test_positions_that_stop_agreeing_are_refused():
    sums = LayerPairs(["a"], ["b"])
    sums.update(drawn(1, 5, [2], (4,)), drawn(1, 5, [3], (4,)))
    with pytest.raises(UserError, match="layers a, b have the same positions on the first batch"):
        sums.update(drawn(1, 5, [2], (4,)), drawn(1, 5, [3], (2,)))
