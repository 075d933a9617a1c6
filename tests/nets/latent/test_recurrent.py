"""LSTM layers: the same numbers and gradients as torch.nn.LSTM, a case by hand, and vmap over stacked parameters."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call, stack_module_state, vmap

from support.torch_layers import as_torch_lstm
from understudy.nets.latent.recurrent import LSTM


def run(layer, x):
    """Outputs of all places, and the last state."""
    projected, state, outputs = layer.project(x), layer.start(x), []
    for place in range(x.shape[1]):
        state = layer.step(projected[:, place], state)
        outputs.append(state[0])
    return torch.stack(outputs, 1), state


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3), st.integers(1, 6), st.integers(0, 99))
def test_torch_computes_the_same(inputs, hidden, rows, places, seed):
    torch.manual_seed(seed)
    layer, x = LSTM(inputs, hidden).double(), torch.randn(rows, places, inputs, dtype=torch.float64)
    other = as_torch_lstm(layer)
    (found, state), (wanted, (output, cell)) = run(layer, x), other(x)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(state, (output[0], cell[0]))
    for outputs in (found, wanted):
        outputs.square().sum().backward()
    for name in ("weight_ih", "weight_hh"):
        torch.testing.assert_close(getattr(layer, name).grad, getattr(other, f"{name}_l0").grad)
    torch.testing.assert_close(layer.bias.grad, other.bias_ih_l0.grad)


def test_a_step_by_hand():
    """One node with gates of input 2x, forget 1, cell x, and output 0."""
    layer = LSTM(1, 1).double()
    with torch.no_grad():
        layer.weight_ih.copy_(torch.tensor([[2.0], [0.0], [1.0], [0.0]]))
        layer.weight_hh.zero_()
        layer.bias.copy_(torch.tensor([0.0, 1.0, 0.0, 0.0]))
    before = torch.zeros(1, 1).double(), torch.full((1, 1), 0.3).double()
    output, cell = layer.step(layer.project(torch.full((1, 1), 0.5).double()), before)
    opened = 1 / (1 + math.exp(-1))
    wanted = opened * 0.3 + opened * math.tanh(0.5)
    assert cell.item() == pytest.approx(wanted)
    assert output.item() == pytest.approx(0.5 * math.tanh(wanted))


def test_inputs_may_be_projected_in_parts():
    layer, x = LSTM(5, 3).double(), torch.randn(2, 4, 5, dtype=torch.float64)
    rest = x[..., 3:] @ layer.weight_ih[:, 3:].T
    torch.testing.assert_close(layer.project(x[..., :3]) + rest, layer.project(x))


def test_initial_parameters_are_within_their_bounds():
    torch.manual_seed(0)
    values = torch.cat([p.flatten() for p in LSTM(40, 25).parameters()])
    assert values.abs().max() <= 0.2 and values.std().item() == pytest.approx(0.2 / math.sqrt(3), rel=0.05)


def test_stacked_parameters():
    layers, x = [LSTM(2, 3) for _ in range(4)], torch.randn(4, 5, 6, 2)

    class Last(nn.Module):
        def __init__(self, layer):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            return run(self.layer, x)[0]

    modules = [Last(layer) for layer in layers]
    parameters, buffers = stack_module_state(modules)
    found = vmap(lambda p, x: functional_call(modules[0], (p, buffers), (x,)))(parameters, x)
    torch.testing.assert_close(found, torch.stack([module(each) for module, each in zip(modules, x, strict=True)]))
