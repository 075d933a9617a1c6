"""Sectors, extremal directions and absorption (Phuong 2021, lemmas 3.1 to 3.3): by hand, by search, in training."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from understudy._errors import UserError
from understudy._random import Stream, normal
from understudy.data.separable import orthogonally_separable
from understudy.papers.separable.theory import training
from understudy.papers.separable.theory.sectors import (
    absorption,
    extremal_directions,
    extremal_sectors,
    in_extremal_sector,
    potential_gradient,
    search_extrema,
    sectors,
)

F = torch.float64
pytestmark = pytest.mark.usefixtures("one_thread")

# Two examples of class 1; one example of class −1 opposite to them, one orthogonal to them.
X = torch.tensor([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [-1.0, -0.5, 0.2], [0.0, 0.0, 1.0]], dtype=F)
Y = torch.tensor([1.0, 1.0, -1.0, -1.0], dtype=F)


def potential(w, x, y):
    """G(w) = ½ Σ y_i ρ(w·x_i) (Phuong 2021, eq. 3.12)."""
    return (w @ x.mT).relu() @ y / 2


def test_signs_and_the_potential_by_hand():
    w = torch.tensor([[1.0, -1.0, 0.0], [0.0, 1.0, 2.0]], dtype=F)
    assert sectors(w, X).tolist() == [[1, 0, -1, 0], [0, 1, -1, 1]]
    # ½ (1 + 0) and ½ (0 + 1 − 0 − 2).
    assert potential(w, X, Y).tolist() == [0.5, -0.5]
    assert potential_gradient(w, X, Y).tolist() == [[0.5, 0, 0], [0.5, 0.5, -0.5]]


def test_the_sectors_of_lemma_3_2_by_hand():
    # The last example has no negative product with class 1, so that σ+ is 0 there.
    assert extremal_sectors(X, Y).tolist() == [[1, 1, -1, 0], [-1, -1, 1, 1]]
    assert extremal_sectors(X[[0, 2]], Y[[0, 2]]).tolist() == [[1, -1], [-1, 1]]
    nearly = X.clone()
    nearly[3, 0] = -1e-12
    assert extremal_sectors(nearly, Y)[0].tolist() == [1, 1, -1, -1]


def test_points_that_are_not_orthogonally_separable_are_refused():
    w, a = torch.ones(1, 1, 3, 2, dtype=F), torch.ones(1, 1, 3, dtype=F)
    with pytest.raises(UserError, match="not orthogonally separable, which the theorems need: points 0 and 1"):
        absorption(w, a, torch.tensor([[[1.0, 0.0], [1.0, 1.0]]]).double(), torch.tensor([[1.0, -1.0]]))


def test_a_neuron_with_an_example_on_its_boundary_is_outside_sectors_of_sign_1():
    extremal = torch.tensor([[1, -1], [-1, 1]])
    signs = torch.tensor([[1, -1], [1, 0], [0, -1], [1, 1]])
    assert in_extremal_sector(signs, torch.ones(4), extremal).tolist() == [True, False, False, False]


def test_in_the_plane_the_circle_has_one_strict_maximum():
    x, y = (part[0] for part in orthogonally_separable(2, 20, [5]))
    angle = torch.arange(40_000, dtype=F) * 2 * math.pi / 40_000
    circle = torch.stack((angle.cos(), angle.sin()), 1)
    for values, which in ((potential(circle, x, y), 0), (-potential(circle, x, y), 1)):
        tops = ((values > values.roll(1)) & (values > values.roll(-1))).nonzero().flatten()
        assert len(tops) == 1
        assert float((circle[tops[0]] - extremal_directions(x, y)[which]).norm()) < 2e-4


@given(st.integers(0, 10**6), st.integers(2, 12), st.integers(60, 90), st.booleans())
def test_extremal_directions_lie_in_their_sectors_and_are_global_extrema(seed, dim, count, tilt):
    x, y = (part[0] for part in orthogonally_separable(dim, count, [seed], tilt=tilt))
    best = extremal_directions(x, y)
    assert torch.equal(sectors(best, x), extremal_sectors(x, y))
    anywhere = torch.nn.functional.normalize(normal(seed, Stream.DIRECTIONS, 0, 500 * dim).view(500, dim), dim=1)
    near = torch.nn.functional.normalize(best.unsqueeze(1) + 1e-3 * anywhere, dim=-1)
    for some in (anywhere, near[0], near[1]):
        values, (top, bottom) = potential(some, x, y), potential(best, x, y)
        # In the plane a random direction can be near the extremal one: allow for rounding.
        assert (values <= top * (1 + 1e-14)).all() and (values >= bottom * (1 + 1e-14)).all()
    # g(w) = Cw (lemma B.1) with C = G(w).
    torch.testing.assert_close(potential_gradient(best, x, y), potential(best, x, y).unsqueeze(-1) * best)


@given(st.integers(0, 10**6), st.integers(2, 12), st.integers(60, 90), st.booleans())
def test_searches_end_at_the_extremal_direction_or_off(seed, dim, count, down):
    x, y = (part[0] for part in orthogonally_separable(dim, count, [seed]))
    starts = normal(seed, Stream.DIRECTIONS, 1, 60 * dim).view(60, dim)
    ends, settled, off = search_extrema(starts, x, y, down=down)
    assert (settled ^ off).all()
    wanted = extremal_directions(x, y)[int(down)].expand_as(ends)
    torch.testing.assert_close(ends[settled], wanted[settled], rtol=0, atol=1e-9)
    own = (starts @ x.T > 0)[:, y == (-1 if down else 1)].any(1)
    assert settled[own].all()  # lemma B.5: a neuron active for an example of its class stays active


def test_a_search_finds_every_maximum_where_there_are_several():
    # Class 1 at right angles, class −1 between them: two maxima, which the lemma does not allow.
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 2.0]], dtype=F)
    y = torch.tensor([1.0, 1.0, -1.0], dtype=F)
    angle = torch.arange(360, dtype=F) * math.pi / 180 + 0.01
    starts = torch.stack((angle.cos(), angle.sin()), 1)
    ends, settled, off = search_extrema(starts, x, y)
    # While the third example is inactive, the first pulls towards (1, 0), where the third would be active: G has kinks
    # at (1, −1)/√2 and (−1, 1)/√2. A search that ends at a kink does not settle.
    kinks = ends[~settled & ~off]
    wanted = torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=F) / math.sqrt(2)
    assert len(kinks) > 100
    assert (torch.cdist(kinks, wanted).amin(1) < 1e-6).all()
    assert set(torch.cdist(kinks, wanted).argmin(1).tolist()) == {0, 1}


@given(st.integers(0, 10**6), st.integers(2, 6))
def test_an_ascent_never_decreases_on_any_data(seed, dim):
    x, y = normal(seed, Stream.TRAIN, 0, 15 * dim).view(15, dim), torch.tensor([1.0, -1.0, 1.0] * 5, dtype=F)
    starts = torch.nn.functional.normalize(normal(seed, Stream.DIRECTIONS, 1, 30 * dim).view(30, dim), dim=1)
    before = potential(starts, x, y)
    after = potential(search_extrema(starts, x, y)[0], x, y)
    # The ascent increases G − ½‖w‖², which is ½ G² at the best length of w.
    best = (before - 0.5).clamp_min(0)
    assert (after.clamp_min(0).square() / 2 >= best - 1e-9).all()


def test_the_sector_of_a_neuron_depends_on_its_sign():
    extremal = extremal_sectors(X, Y)
    signs = torch.tensor([[1, 1, -1, 0], [1, 1, -1, -1], [1, 1, -1, 1], [-1, -1, 1, 1], [1, 1, 1, 0]], dtype=torch.int8)
    assert in_extremal_sector(signs, torch.ones(5, dtype=F), extremal).tolist() == [True, True, False, False, False]
    assert in_extremal_sector(signs, -torch.ones(5, dtype=F), extremal).tolist() == [False, False, False, True, False]
    assert not in_extremal_sector(signs, torch.zeros(5, dtype=F), extremal).any()


def test_a_path_by_hand():
    x, y = torch.tensor([[[1.0, 0.0], [-1.0, -0.1]]], dtype=F), torch.tensor([[1.0, -1.0]], dtype=F)
    inside, outside, off = [1.0, 0.0], [-1.0, 0.0], [0.1, -5.0]
    # `off` is active for both examples (0.1, and −0.1 + 0.5), so in neither sector; [0, 1] is active for none.
    w = torch.tensor(
        [
            [[inside, outside, outside, [0.0, 1.0], outside]],
            [[inside, inside, off, [0.0, 1.0], inside]],
            [[inside, inside, off, [0.0, 1.0], outside]],
        ],
        dtype=F,
    )
    a = torch.ones(3, 1, 5, dtype=F)
    found = absorption(w, a, x, y)
    assert found.entered.tolist() == [[0, 1, -1, -1, 1]]
    assert found.left.tolist() == [[-1, -1, -1, -1, 2]]
    assert found.silent.tolist() == [[[False, False, False, True, False]]] * 3
    assert found.inside[-1].tolist() == [[True, True, False, False, False]]
    a[1, 0, 0] = -1
    assert absorption(w, a, x, y).left[0, 0] == 1  # it is in the sector of its former sign
    with pytest.raises(UserError, match="w and a need as many probes, 1 or more, got 0 and 0"):
        absorption(w[:0], a[:0], x, y)


def test_flow_from_a_small_balanced_start_absorbs_every_neuron_or_turns_it_off():
    seeds = [1, 2]
    x, y = orthogonally_separable(3, 30, seeds)
    path = training.logistic_flow(
        training.balanced(3, 8, 1e-4, seeds), x, y, [0, *torch.logspace(-2, 0.5, 25).tolist()]
    )
    w, a = training.neurons(path)
    found = absorption(w, a, x, y)
    absorbed = (found.entered >= 0) & (found.left < 0)
    assert (absorbed | found.silent[-1]).all() and (found.left < 0).all() and (a.sign() == a[:1].sign()).all()
    # Lemma B.5: a neuron active for an example of its class at the start ends in its extremal sector.
    own = ((sectors(w[0], x) > 0) & (a[0].unsqueeze(-1) * y.unsqueeze(-2) > 0)).any(-1)
    assert absorbed[own].all()
    # Most neurons first turn to the extremal direction, later to the max-margin one; those absorbed late do not.
    towards = extremal_directions(x, y)
    best = torch.where((a > 0).unsqueeze(-1), towards[:, :1], towards[:, 1:])
    cosine = (torch.nn.functional.normalize(w, dim=-1) * best).sum(-1)
    assert float((cosine.amax(0)[absorbed] > 0.99).double().mean()) > 0.8
    assert not (cosine[0] > 0.99).all()


@given(st.integers(0, 10**6), st.integers(1, 30), st.floats(-2, 1))
def test_steps_of_any_size_and_batch_keep_neurons_in_their_sector(seed, batch, power):
    x, y = orthogonally_separable(4, 40, [seed])
    weights = training.small_linear(4, 20, 2, 0.3, [seed])
    path = training.descend(weights, x, y, 10**power, range(40), batch, [seed])
    found = absorption(*training.neurons(path), x, y)
    assert (found.entered >= 0).any()
    assert (found.left < 0).all()
