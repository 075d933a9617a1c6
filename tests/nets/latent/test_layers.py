"""Small modules for models with a latent code: by hand, by their settings, and errors."""

import pytest
import torch
from torch import nn

from understudy import UserError
from understudy.nets.latent.layers import MLP, Table, mlp


def test_a_network_by_hand():
    network = MLP((1, 2, 1), "relu").double()
    with torch.no_grad():
        for parameter, values in zip(
            network.parameters(), ([[1.0], [-2.0]], [0.5, 1.0], [[3.0, 4.0]], [0.25]), strict=True
        ):
            parameter.copy_(torch.tensor(values))
    found = network(torch.tensor([[1.0], [-1.0]], dtype=torch.float64))
    assert found.tolist() == [[3 * 1.5 + 4 * 0 + 0.25], [3 * 0 + 4 * 3 + 0.25]]


@pytest.mark.parametrize(("name", "kind"), [("tanh", nn.Tanh), ("relu", nn.ReLU), ("softplus", nn.Softplus)])
def test_the_activation_is_between_the_layers(name, kind):
    network = mlp(3, 2, width=5, layers=3, activation=name)
    assert [type(part) for part in network] == [nn.Linear, kind, nn.Linear, kind, nn.Linear]
    assert network.sizes == (3, 5, 5, 2)


def test_one_layer_is_linear():
    assert [type(part) for part in mlp(3, 2, layers=1)] == [nn.Linear]


@pytest.mark.parametrize(
    ("module", "outputs"), [(MLP((2, 3, 4), "relu"), 4), (mlp(1, 2), 2), (Table(5, 3), 3)], ids=["MLP", "mlp", "Table"]
)
def test_settings_make_the_same_architecture(module, outputs):
    again = type(module)(**module.settings)
    assert again.settings == module.settings
    assert {n: t.shape for n, t in again.state_dict().items()} == {n: t.shape for n, t in module.state_dict().items()}
    assert again(again.example()).shape == (2, outputs)


def test_a_table_starts_at_zero_and_looks_rows_up():
    table = Table(4, 2)
    assert not table.rows.any()
    with torch.no_grad():
        table.rows.copy_(torch.arange(8.0).view(4, 2))
    assert table(torch.tensor([3, 0, 3])).tolist() == [[6, 7], [0, 1], [6, 7]]
    assert table(torch.tensor([[1], [2]])).shape == (2, 1, 2)
    table(torch.tensor([3, 0, 3])).sum().backward()
    assert table.rows.grad.tolist() == [[1, 1], [0, 0], [0, 0], [2, 2]]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MLP((3,)), r"sizes must be at least the numbers of inputs and outputs, got \[3\]"),
        (lambda: MLP((3, 0, 1)), r"sizes\[1\] must be a whole number of at least 1, got 0"),
        (lambda: MLP((3, 1), "gelu"), "activation must be one of tanh, relu, softplus, got 'gelu'"),
        (lambda: mlp(3, 1, width=0), "width must be a whole number of at least 1, got 0"),
        (lambda: mlp(3, 1, layers=0), "layers must be a whole number of at least 1, got 0"),
        (lambda: Table(0, 1), "classes must be a whole number of at least 1, got 0"),
        (lambda: Table(1, True), "outputs must be a whole number of at least 1, got True"),
    ],
)
def test_sizes_out_of_range(make, message):
    with pytest.raises(UserError, match=message):
        make()
