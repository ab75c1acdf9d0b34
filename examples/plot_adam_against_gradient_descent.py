"""
Adam against gradient descent, each in its own norm
===================================================

Both separate the same data, but go to different maximum margins: gradient descent to that of the
l2 norm, Adam with full batches to that of the largest weight. A recorder in the loop shows it.
"""

import numpy as np
import torch

from implicit_bias import Recorder, max_margin, solve

rng = np.random.default_rng(0)
centres, y = 3 * rng.normal(size=(4, 6)), np.arange(60) % 4
X = centres[y] + rng.normal(size=(60, 6))
best = {norm: 1 / solve(max_margin(X, y, norm)).certificate.lower for norm in ("l2", "linf")}
inputs, labels = torch.tensor(X), torch.tensor(y)

recorders = {}
for name, optimizer in {"gradient descent": torch.optim.SGD, "Adam": torch.optim.Adam}.items():
    module = torch.nn.Linear(6, 4, bias=False).double()
    torch.nn.init.zeros_(module.weight)
    steps = optimizer(module.parameters(), lr=1.0 if name != "Adam" else 0.01)
    recorders[name] = recorder = Recorder(module, inputs, labels, norms=("l2", "linf"))
    for step in range(1, 1001):
        steps.zero_grad()
        torch.nn.functional.cross_entropy(module(inputs), labels).backward()
        steps.step()
        if step in (1, 3, 10, 30, 100, 300, 1000):
            recorder.record(step)
    last = recorder.frame().iloc[-1]
    print(name, {norm: f"{last[f'margin_{norm}'] / best[norm]:.1%} of the best" for norm in best})

# %%
# Gradient descent: the gap in l2 falls, the one in linf stays.
recorders["gradient descent"].plot()
# %%
# Adam: the other way round.
recorders["Adam"].plot()
