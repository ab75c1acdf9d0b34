"""
Attention as token selection
============================

One attention layer, softmax(X W q), learns to select one token per sample. The direction of W tends
to a max-margin solution: in l2 for normalized descent on W, in l_inf for Adam, and in the nuclear
norm if keys and queries, W = K Q', are trained (Tarzanagh et al. 2023).
"""

import matplotlib.pyplot as plt
import numpy as np
import torch

from implicit_bias import attention_margin, certify, solve

rng = np.random.default_rng(0)
tokens, query, best = rng.normal(size=(6, 5, 8)), rng.normal(size=(6, 8)), rng.integers(5, size=6)
X, q, own = torch.tensor(tokens), torch.tensor(query), torch.eye(5, dtype=bool)[best]
steps = np.unique(np.geomspace(10, 4000, 30).astype(int))
for name, norm, rate in (("W", "l2", 1.0), ("W by Adam", "linf", 0.1), ("K and Q", "nuclear", 0.3)):
    problem = attention_margin(tokens, query, best, norm)
    optimum, shares = solve(problem).certificate.lower, []
    start = torch.tensor(rng.normal(0.0, 0.1, size=(2, 8, 8)))
    parts = [part.requires_grad_() for part in (start if name == "K and Q" else start[:1])]
    adam = torch.optim.Adam(parts, betas=(0.9, 0.95), eps=0.0)
    optimizer = adam if norm == "linf" else torch.optim.SGD(parts)
    for step in range(1, 4001):
        W = parts[0] if len(parts) == 1 else parts[0] @ parts[1].T
        scores = torch.einsum("ntd,de,ne->nt", X, W, q)
        optimizer.zero_grad()  # the log of the odds against the best tokens, summed, is lowered
        (scores - scores[own][:, None])[~own].logsumexp(0).backward()
        size = float(sum(part.grad.square().sum() for part in parts))
        optimizer.param_groups[0]["lr"] = rate / (step if norm == "linf" else step * size) ** 0.5
        optimizer.step()
        if step in steps:
            shares.append(optimum / certify(problem, W.detach().numpy().T).upper)
    print(f"{name} has {shares[-1]:.1%} of the maximum margin in {norm}")
    plt.semilogx(steps, shares, label=f"{name}: {norm}")
plt.gca().set(xlabel="step", ylabel="margin / maximum")
plt.legend()
