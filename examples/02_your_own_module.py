"""Compare two PyTorch models of your own, node by node.

Two models are trained on the same task from different initial weights and converted by their graphs, so that nothing
about them is assumed. Then they are aligned: for every node of the first model, the most similar of the second.
"""

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


small, large = (us.from_module(trained(width)) for width in (8, 32))

(layer,) = us.align(small, large, x)
print(f"{layer.recovered} of {len(layer.best)} nodes of the small model have a counterpart in the large one\n")
print("node   counterpart   correlation   sin of the angle")
for node, (best, rho, sin) in enumerate(zip(layer.best, layer.best_correlation, layer.sin_angle, strict=True)):
    print(f"{node:>4}   {int(best):>11}   {float(rho):>11.3f}   {float(sin):>16.3f}")
