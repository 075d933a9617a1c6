"""Compare two PyTorch models of your own, node by node.

Two models are trained on the same task from different initial weights. Their state dicts are saved with
`torch.save`, loaded as populations, and aligned: for every node of the first model, the most similar of the second.
"""

import tempfile
from pathlib import Path

import torch
from torch import nn

import understudy as us

torch.set_num_threads(1)  # models this small train faster on one thread
torch.manual_seed(0)
x = torch.randn(2_000, 8)
y = torch.stack((x[:, 0].relu() - x[:, 1].abs(), (x[:, 2] + x[:, 3]).relu()), dim=1)


def trained(width: int) -> nn.Sequential:
    """A model with one hidden layer that fits y."""
    model = nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 2))
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(800):
        optimiser.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimiser.step()
    return model


with tempfile.TemporaryDirectory() as folder:
    for name, width in (("small", 8), ("large", 32)):
        torch.save(trained(width).state_dict(), Path(folder) / f"{name}.pt")
    small, large = (us.load(Path(folder) / f"{name}.pt") for name in ("small", "large"))

(layer,) = us.measures.align(small, large, x)
print(f"{layer.recovered} of {len(layer.best)} nodes of the small model have a counterpart in the large one\n")
print("node   counterpart   correlation   sin of the angle")
for node, (best, rho, sin) in enumerate(zip(layer.best, layer.best_correlation, layer.sin_angle, strict=True)):
    print(f"{node:>4}   {int(best):>11}   {float(rho):>11.3f}   {float(sin):>16.3f}")
