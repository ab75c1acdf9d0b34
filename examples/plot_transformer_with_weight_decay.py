"""
AdamW leads a transformer towards a KKT point of its box
========================================================

It adds two numbers modulo 23. Weight decay 8 bounds each weight by 1/8. The limit of AdamW needs
rates that tend to 0, with an infinite sum: the score falls with the rate, to 0.10 here, not to 0.
With decay 4 all sums are right, but the score is 0.32 after as many steps.
"""

import math

import torch
from torch import nn

from implicit_bias import BoxTrace, box_gap

torch.manual_seed(0)
numbers = torch.arange(23)
pairs = torch.cartesian_prod(numbers, numbers)
sums, tokens = pairs.sum(dim=1) % 23, pairs + torch.tensor([0, 23])
block = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
network = nn.Sequential(nn.Embedding(46, 32), block, nn.Flatten(), nn.Linear(64, 23))
loss_of = nn.functional.cross_entropy
adamw = torch.optim.AdamW(network.parameters(), betas=(0.9, 0.95), weight_decay=8.0)
trace = BoxTrace(network, adamw, every=20)
rates = [5e-4 * (1 + math.cos(math.pi * max(0.0, step - 600) / 1400)) for step in range(2000)]
for rate in rates:
    adamw.param_groups[0]["lr"] = rate
    adamw.zero_grad()
    loss = loss_of(network(tokens), sums)
    loss.backward()
    trace.record(loss.detach())
    adamw.step()
print(box_gap(network, tokens, sums, optimizer=adamw, loss=loss_of, rates=rates))
right = (network(tokens).argmax(dim=1) == sums).double().mean()
print(f"{right:.1%} of the sums are right, loss {loss.item():.2f} (log 23 = {math.log(23):.2f})")
figure = trace.plot()
figure.axes[1].set_ylim(0, 2)  # embeddings start at 35 times their radius
