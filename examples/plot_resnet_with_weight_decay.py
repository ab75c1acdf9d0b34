"""
Weight decay leads a ResNet towards a KKT point of its box
==========================================================

Batch norm has no max-margin limit, but weight decay sets one: a KKT point over bounded weights.
"""

import torch
from sklearn.datasets import load_digits
from torch import nn

from implicit_bias import BoxTrace


class Block(nn.Sequential):
    """Add what the layers compute to their input."""

    def forward(self, images):
        """Return relu(x + layers(x))."""
        return torch.relu(images + super().forward(images))


torch.manual_seed(0)
X, y = (torch.tensor(each[:100]) for each in load_digits(return_X_y=True))
block = Block(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8))
network = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), block, nn.Flatten(), nn.Linear(512, 10))
others = [p for p in network.parameters() if p is not network[-1].weight]
muon = torch.optim.Muon([network[-1].weight], weight_decay=3.0)
adamw = torch.optim.AdamW(others, betas=(0.9, 0.95), weight_decay=3.0)
trace = BoxTrace(network, [muon, adamw], every=10)
for step in range(300):
    network.zero_grad()
    loss = nn.functional.cross_entropy(network(X.float().reshape(-1, 1, 8, 8) / 16), y)
    loss.backward()
    trace.record(loss)
    for optimizer in (muon, adamw):
        optimizer.param_groups[0]["lr"] = 5e-3 * (1 - step / 300)
        optimizer.step()
print(trace.frame().iloc[[0, 10, 20, -1]].round(3).to_string(index=False))
figure = trace.plot()
