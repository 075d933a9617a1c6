"""Teachers of two layers and students that are exactly, or nearly, theirs."""

import torch
from torch import Tensor

import understudy as us
from understudy.nets import Layer, Population


def network(first: Tensor, biases: Tensor, fan_out: Tensor, output: Tensor, slope: float = 0.0) -> Population:
    """One network of two layers: weights [node, in], biases [node], fan-outs [node, out], output biases."""
    parts = [part.double().unsqueeze(0) for part in (first, biases, fan_out.T, output)]
    return Population((Layer(*parts[:2]), Layer(*parts[2:])), torch.tensor([1]), slope)


def teacher(inputs: int = 4, nodes: int = 3, outputs: int = 2, seed: int = 0, slope: float = 0.0) -> Population:
    draw = torch.Generator().manual_seed(seed)
    first = torch.randn(nodes, inputs, generator=draw).double()
    return network(
        first / first.norm(dim=1, keepdim=True),
        0.3 * torch.randn(nodes, generator=draw),
        torch.randn(nodes, outputs, generator=draw),
        torch.randn(outputs, generator=draw),
        slope,
    )


def solution(of: Population, idle: int = 3, seed: int = 1, twice: bool = True) -> Population:
    """The teacher's function by a wider network: scaled, in another order, some nodes twice, and idle ones added."""
    draw = torch.Generator().manual_seed(seed)
    (weight, bias), (out, output) = ((layer.weight[0], layer.bias[0]) for layer in of.layers)
    nodes = len(weight)
    copies = torch.arange(nodes).repeat(2 if twice else 1)
    share = torch.rand(nodes, generator=draw).double() if twice else torch.ones(nodes).double()
    shares = torch.cat((share, 1 - share)) if twice else share
    scale = 0.3 + 2 * torch.rand(len(copies), generator=draw).double()
    first = torch.cat((weight[copies] * scale[:, None], torch.randn(idle, weight.shape[1], generator=draw).double()))
    biases = torch.cat((bias[copies] * scale, torch.randn(idle, generator=draw).double()))
    fan_out = torch.cat((out.T[copies] * (shares / scale)[:, None], torch.zeros(idle, len(output)).double()))
    order = torch.randperm(len(first), generator=draw)
    return network(first[order], biases[order], fan_out[order], output, of.slope)


def inputs(count: int = 1_000, dim: int = 4, seed: int = 5) -> Tensor:
    return torch.randn(count, dim, generator=torch.Generator().manual_seed(seed)).double()


def trained(draws: int = 2, epochs: int = 8) -> tuple[Population, list[Population], us.data.Gaussian]:
    """A teacher of 4 nodes, and students of it from different first weights."""
    of = us.teachers.distinct_rows((10, 4, 6), polarity=0.5, seeds=[1])
    data = us.data.Gaussian(10, 1.5, 2_000, 2_000)
    students = [us.students.gaussian(of, multiple=5, scale=0.05, seeds=[draw]) for draw in range(1, draws + 1)]
    groups = tuple(us.training.Group(student, of, data) for student in students)
    training = us.training.Training(groups, us.SGD(lr=0.02, batch=16), steps=1_000, device="cpu")
    for _ in range(epochs):
        training.advance()
    return of, training.populations(), data
