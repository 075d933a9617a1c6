"""Small modules of many architectures."""

import itertools

import torch
from torch import Tensor, nn


class Block(nn.Module):
    """A residual block that calls one ReLU twice, changes tensors in place, and adds its input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += x
        return self.relu(out)


def residual(width: int, depth: int) -> nn.Sequential:
    """A residual network for images [3, 6, 6]; the last block sees maps of 3 × 3."""
    stem = nn.Conv2d(3, width, 3, padding=1), nn.ReLU(), *(Block(width) for _ in range(depth))
    return nn.Sequential(
        *stem, nn.MaxPool2d(2), Block(width), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 4)
    )


class Attention(nn.Module):
    """Embeddings of words and places, an encoder layer and a head; takes keyword arguments and returns a dict."""

    def __init__(self, width: int = 16, words: int = 11) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(words, width), nn.Embedding(6, width)
        self.encoder = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True)
        self.head = nn.Linear(width, 3)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> dict[str, Tensor]:
        hidden = self.encoder(self.embed(input_ids) + self.place(torch.arange(6)))
        if attention_mask is not None:
            hidden = hidden * attention_mask.unsqueeze(2).to(hidden.dtype)
        return {"logits": self.head(hidden.mean(1))}


class Recurrent(nn.Module):
    """A GRU over [sample, time, 5] and a head that reads the last step."""

    def __init__(self, width: int = 7, *, batch_first: bool = True) -> None:
        super().__init__()
        self.gru, self.head = nn.GRU(5, width, batch_first=batch_first), nn.Linear(width, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.gru(x)[0].select(1 if self.gru.batch_first else 0, -1))


def dense(*sizes: int, activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    """Linear layers with an activation between them."""
    layers: list[nn.Module] = []
    for i, o in itertools.pairwise(sizes):
        layers += [nn.Linear(i, o), activation()]
    return nn.Sequential(*layers[:-1])


def seeded(make, *words, seed: int = 0, **named) -> nn.Module:
    """A module with the weights of a seed, in evaluation mode, its BatchNorms with statistics that are not trivial."""
    torch.manual_seed(seed)
    model = make(*words, **named).eval()
    for part in model.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean.normal_()
            part.running_var.uniform_(0.5, 2.0)
    return model
