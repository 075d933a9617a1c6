"""The networks that `understudy example` trains; it copies this file beside them as `models.py`."""

from torch import Tensor, nn


class TwoLayers(nn.Module):
    """A hidden layer of ReLU nodes and a linear output layer, for 10 inputs and 4 outputs."""

    def __init__(self, nodes: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(10, nodes)
        self.relu = nn.ReLU()
        self.output = nn.Linear(nodes, 4)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.output(self.relu(self.hidden(x)))
        return outputs


class Absolute(nn.Module):
    """A teacher of three nodes |·| with one output, for 10 inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(10, 3, bias=False)
        self.output = nn.Linear(3, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.output(self.hidden(x).abs())
        return outputs


class Teacher(TwoLayers):
    """The network that the students learn from."""

    def __init__(self) -> None:
        super().__init__(nodes=6)


class Student(TwoLayers):
    """A student with four times the hidden nodes of its teacher."""

    def __init__(self) -> None:
        super().__init__(nodes=24)
