"""The rank of the final winners: by hand, in its limits, against another's ranks, and by simulation."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import rankdata

import understudy.measures as measures
from problems import gaussians
from understudy.measures.rank import mean_rank, rank_of

sizes = st.integers(1, 6)


def test_by_hand():
    # Winners 2 and 0: two students were ahead of the first, none ahead of the second but one level with it.
    rho = torch.tensor([[[0.5, 0.4, 0.3, -0.1], [0.7, 0.2, 0.7, 0.1]]])
    winners = torch.tensor([[2, 0]])
    torch.testing.assert_close(rank_of(rho, winners), torch.tensor([[2 / 3, 1 / 6]]))
    torch.testing.assert_close(mean_rank(rho, winners), torch.tensor([5 / 12]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_best_ranks_0_the_worst_1_and_a_single_student_0(dtype):
    rho = gaussians(1, 3, 4, 7, dtype=dtype)
    assert (rank_of(rho, rho.argmax(2)) == 0).all() and (rank_of(rho, rho.argmin(2)) == 1).all()
    assert (mean_rank(rho, rho.argmin(2)) == 1).all()
    assert (rank_of(rho[..., :1], torch.zeros(3, 4, dtype=torch.long)) == 0).all()
    assert rank_of(rho, rho.argmax(2)).dtype == mean_rank(rho, rho.argmax(2)).dtype == dtype


@pytest.mark.parametrize("winner", range(5))
def test_where_nothing_is_told_apart_everybody_ranks_one_half(winner):
    assert mean_rank(torch.zeros(2, 3, 5), torch.full((2, 3), winner)).tolist() == [0.5, 0.5]


@given(nets=sizes, m=sizes, n=sizes, levels=st.integers(1, 8), seed=st.integers(0, 99))
def test_ties_share_the_mean_of_their_places(nets, m, n, levels, seed):
    # Few levels make many ties; ranks by scipy count from 1.
    rho = (levels * gaussians(seed, nets, m, n).tanh()).round() / levels
    winners = gaussians(seed + 100, nets, m, n).argmax(2)
    places = rankdata(-rho.numpy(), method="average", axis=2) - 1
    expected = np.take_along_axis(places, winners.unsqueeze(2).numpy(), 2)[..., 0] / max(n - 1, 1)
    np.testing.assert_allclose(rank_of(rho, winners).numpy(), expected, atol=1e-15)
    np.testing.assert_allclose(mean_rank(rho, winners).numpy(), expected.mean(1), atol=1e-15)


@given(nets=sizes, m=sizes, n=sizes, seed=st.integers(0, 99))
def test_the_order_of_students_does_not_matter_and_no_rank_is_given_twice(nets, m, n, seed):
    rho, order = gaussians(seed, nets, m, n), gaussians(seed + 100, n).argsort()
    ranks = torch.stack([rank_of(rho, torch.full((nets, m), k)) for k in range(n)], 2)
    assert torch.equal(ranks.sort(2).values, (torch.arange(n).double() / max(n - 1, 1)).expand(nets, m, n))
    turned = torch.stack([rank_of(rho[..., order], torch.full((nets, m), k)) for k in range(n)], 2)
    assert torch.equal(turned, ranks[..., order])


@given(nets=sizes, epochs=sizes, m=sizes, n=sizes, seed=st.integers(0, 99))
def test_looks_one_by_one_give_what_the_whole_history_does(nets, epochs, m, n, seed):
    rho = gaussians(seed, nets, epochs, m, n)
    winners = measures.best_students(rho[:, -1]).partner
    each = torch.stack([rank_of(rho[:, epoch], winners) for epoch in range(epochs)], 1)
    torch.testing.assert_close(each, measures.final_winner_rank(rho), atol=1e-15, rtol=0)


def test_winners_that_have_nothing_to_do_with_it_rank_one_half_within_four_standard_errors():
    # A rank uniform on {0, …, n − 1} / (n − 1) has mean 1/2 and variance (n + 1) / (12 (n − 1)).
    nets, m, n = 5_000, 4, 7
    rank = mean_rank(gaussians(1, nets, m, n), gaussians(2, nets, m, n).argmax(2))
    assert abs(rank.mean().item() - 0.5) < 4 * math.sqrt((n + 1) / (12 * (n - 1) * nets * m))


@pytest.mark.wrong_shapes
def test_winners_that_do_not_fit_are_refused():
    with pytest.raises(
        ValueError, match=r"winners \(1, 2\) do not name a student for each .* \(1, 3, 4\): give one for"
    ):
        rank_of(torch.zeros(1, 3, 4), torch.zeros(1, 2, dtype=torch.long))
