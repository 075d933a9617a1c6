"""Teachers whose nodes are rarely active together: angles, thresholds and fan-outs."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr

from understudy import data
from understudy._errors import UserError
from understudy.teachers.rarely_coactive import rarely_coactive

pytestmark = pytest.mark.usefixtures("one_thread")
F = torch.float64


@given(st.integers(1, 4), st.floats(0.0, 3.0), st.floats(-0.3, 0.8), st.integers(0, 50))
def test_nodes_have_the_given_angles_and_thresholds(nodes, threshold, cosine, seed):
    made = rarely_coactive(nodes, 6, 5, threshold=threshold, cosine=cosine, seeds=[seed])
    (weight, bias), (top, _) = made.layers
    unit = weight[0] / weight[0].norm(dim=1, keepdim=True)
    gram = (1 - cosine) * torch.eye(nodes, dtype=F) + cosine
    assert torch.allclose(unit @ unit.T, gram, atol=1e-10)
    assert torch.allclose(-bias / weight.norm(dim=2), torch.tensor(threshold, dtype=F), atol=1e-10)
    assert torch.allclose(torch.cat((weight, bias.unsqueeze(2)), 2).norm(dim=2), torch.ones(1, nodes, dtype=F))
    assert torch.allclose(top[0].T @ top[0], torch.eye(nodes, dtype=F), atol=1e-10)


@pytest.mark.parametrize(
    ("nodes", "cosine", "words"),
    [(3, -0.5, "cosine must be above"), (2, 1.0, "cosine must be above"), (7, 0.0, "nodes must be at most the inputs")],
)
def test_impossible_arrangements_are_refused(nodes, cosine, words):
    with pytest.raises(UserError, match=words):
        rarely_coactive(nodes, 6, 5, threshold=1.0, cosine=cosine, seeds=[1])


def test_orthogonal_nodes_are_active_independently():
    (weight, bias), _ = rarely_coactive(2, 4, 3, threshold=1.0, cosine=0.0, seeds=[3]).layers
    active = data.Gaussian(4, 1.0, 40_000, 1).training(1, dtype=F) @ weight[0].T + bias[0] > 0
    share = float(ndtr(-1.0))
    assert float(active.double().mean()) == pytest.approx(share, abs=0.01)
    assert float(active.all(1).double().mean()) == pytest.approx(share**2, abs=0.005)
