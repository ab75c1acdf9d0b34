r"""AdamW goes to the smallest loss in a box, not to a margin.

With decoupled weight decay lambda a sign-like optimizer that converges ends at a KKT point of

    minimise  L(w)   subject to  ||w||_inf <= 1 / lambda.

L is convex here, so that one gradient bounds what is left: for every v of the box
L(w) - L(v) <= <grad L(w), w - v> <= <grad L(w), w> + ||grad L(w)||_1 / lambda, the Frank-Wolfe gap.

The theorem asks for steps whose sum diverges. With steps that fell linearly to 0, and so had a
finite sum, a run had not converged.

Source: Xie, Li, "Implicit bias of AdamW: l_inf norm constrained optimization" (ICML 2024).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.optimize import minimize
from torch import Tensor
from torch.nn.functional import cross_entropy

from benchmarks.bench import Part, part
from benchmarks.illustrations.data import samples, slope
from benchmarks.summaries import log_spaced
from implicit_bias.base.validation import Array

COST = 5.0
DATA = "k10-sigma1"
STEP_SIZE = 0.1
# Decay beside the gradient step, and the controls: in the loss, as a penalty, and with the geometry
# of gradient descent.
FACTORIES: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "AdamW": torch.optim.AdamW,
    "Adam, penalty": torch.optim.Adam,
    "GD, penalty": torch.optim.SGD,
}


def measure(quick: bool) -> Iterator[Part]:
    """Run every optimizer at every decay."""
    for decay, optimizer in product((1.0, 3.0, 10.0), FACTORIES):
        yield part(trained, decay=decay, optimizer=optimizer, steps=200 if quick else 100_000)


def minimum_in_box(X: Tensor, y: Tensor, radius: float) -> float:
    """Return the smallest cross-entropy of weights (K, D) within [-radius, radius]."""
    shape = (int(y.max()) + 1, X.shape[1])

    def loss(flat: Array) -> tuple[float, Array]:
        weights = torch.tensor(flat.reshape(shape), requires_grad=True)  # C order: class, feature
        value = cross_entropy(X @ weights.T, y)
        (slope,) = torch.autograd.grad(value, weights)
        return float(value.detach()), slope.numpy().ravel()

    size = shape[0] * shape[1]
    bounds = [(-radius, radius)] * size
    options = {"maxiter": 10_000, "ftol": 1e-15, "gtol": 1e-10}
    found = minimize(
        loss, np.zeros(size), jac=True, method="L-BFGS-B", bounds=bounds, options=options
    )
    return float(found.fun)


def trained(decay: float, optimizer: str, steps: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each recorded step: loss over its minimum in the box, gap, largest weight.

    The t-th step is of size STEP_SIZE / sqrt(t).
    """
    X, y = (torch.tensor(each) for each in samples(DATA))
    radius = 1 / decay
    minimum = minimum_in_box(X, y, radius)
    weights = torch.zeros(int(y.max()) + 1, X.shape[1], dtype=X.dtype, requires_grad=True)
    descent = FACTORIES[optimizer]([weights], STEP_SIZE, weight_decay=decay)
    schedule = torch.optim.lr_scheduler.LambdaLR(descent, lambda step: (step + 1) ** -0.5)
    kept = set(log_spaced(steps, 40))
    for step in range(1, steps + 1):
        descent.zero_grad()
        torch.autograd.backward(cross_entropy(X @ weights.T, y))
        descent.step()
        schedule.step()
        if step in kept:
            loss = cross_entropy(X @ weights.T, y)
            (slope,) = torch.autograd.grad(loss, weights)
            inner = (slope * weights.detach()).sum() + radius * slope.abs().sum()
            yield {
                "step": step,
                "excess": loss.item() / minimum - 1,
                "gap": inner.item() / minimum,
                "largest": float(weights.detach().abs().max()) / radius,
                "minimum": minimum,
            }


def numbers(frame: pd.DataFrame) -> dict[str, Any]:
    """Return ends of AdamW and of both penalties, and how fast AdamW's Frank-Wolfe gap falls."""
    last = frame[frame["step"] == frame["steps"]]
    ours = last["optimizer"] == "AdamW"
    runs = frame[frame["optimizer"] == "AdamW"].groupby("decay")
    slopes = [slope(run["step"], run["gap"]) for _, run in runs]
    return {
        "excess": last[ours]["excess"].abs().max(),
        "weight_low": last[ours]["largest"].min(),
        "weight_high": last[ours]["largest"].max(),
        "gap": last[ours]["gap"].max(),
        "penalty": last[~ours]["excess"].abs().min(),
        "slope_low": max(slopes),
        "slope_high": min(slopes),
    }
