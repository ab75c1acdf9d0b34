r"""AdamW goes to the smallest loss in a box, not to a margin.

With decoupled weight decay lambda a sign-like optimizer that converges ends at a KKT point of

    minimise  L(w)   subject to  ||w||_inf <= 1 / lambda.

L is convex here, so that one gradient bounds what is left: for every v of the box
L(w) - L(v) <= <grad L(w), w - v> <= <grad L(w), w> + ||grad L(w)||_1 / lambda, the Frank-Wolfe gap.

Source: Xie, Li, "Implicit bias of AdamW: l_inf norm constrained optimization" (ICML 2024).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from scipy.optimize import minimize
from torch import Tensor
from torch.nn.functional import cross_entropy

from benchmarks.drawing import Figure, common_legend, look_of
from benchmarks.harness import Row, Rows, Verdict
from benchmarks.optimizers.data import samples
from benchmarks.sizes import grid, log_spaced, sized
from benchmarks.words import span
from implicit_bias.base.validation import Array
from implicit_bias.report.style import GREY, panel

# Relative excess of the loss over its minimum in the box at which the claim counts as reached, and
# by how much a weight may leave the box.
REACHED = 0.01
POINTS = 40
DATA = "k10-sigma1"


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What is measured: weight decays lambda, steps, the t-th of size step_size / sqrt(t)."""

    decays: tuple[float, ...] = (1.0, 3.0, 10.0)
    steps: int = 100_000
    step_size: float = 0.1


QUICK = Sizes(decays=(1.0,), steps=200)


# Decay beside the gradient step, and the controls: in the loss, as a penalty, and with the geometry
# of gradient descent.
FACTORIES: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "AdamW": torch.optim.AdamW,
    "Adam, penalty": torch.optim.Adam,
    "GD, penalty": torch.optim.SGD,
}


def settings(sizes: Sizes) -> list[Row]:
    """Every optimizer at every decay."""
    return grid(decay=sizes.decays, optimizer=FACTORIES)


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
    return float(
        minimize(
            loss, np.zeros(size), jac=True, method="L-BFGS-B", bounds=bounds, options=options
        ).fun
    )


def rows(sizes: Sizes, decay: float, optimizer: str) -> Rows:
    """One row a step: loss over its minimum in the box, Frank-Wolfe gap, and the largest weight."""
    X, y = (torch.tensor(each) for each in samples(DATA))
    radius = 1 / decay
    minimum = minimum_in_box(X, y, radius)
    weights = torch.zeros(int(y.max()) + 1, X.shape[1], dtype=X.dtype, requires_grad=True)
    steps = FACTORIES[optimizer]([weights], sizes.step_size, weight_decay=decay)
    schedule = torch.optim.lr_scheduler.LambdaLR(steps, lambda step: (step + 1) ** -0.5)
    kept = set(log_spaced(sizes.steps, POINTS))
    for step in range(1, sizes.steps + 1):
        steps.zero_grad()
        torch.autograd.backward(cross_entropy(X @ weights.T, y))
        steps.step()
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


def at_end(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the last row of each run."""
    return frame.groupby(["optimizer", "decay"], sort=False).last().reset_index()


def found(frame: pd.DataFrame) -> str:
    """Say what the table says."""
    last = at_end(frame)
    ours = last[last["optimizer"] == "AdamW"]
    others = last[last["optimizer"] != "AdamW"]
    return (
        f"AdamW ends with a loss within {ours['excess'].abs().max():.1e} (relative) of the "
        f"smallest in its box, with a largest weight of {span(ours['largest'], '.3f')} of the "
        f"box's radius. The Frank-Wolfe gap, which needs no solver, is {ours['gap'].max():.1e} at "
        f"most. The controls end at {others['excess'].abs().min():.1e} or more."
    )


def verdict(frame: pd.DataFrame, most: float = REACHED) -> Verdict:
    """Judge the claim by the rule."""
    last = at_end(frame)
    ours = last[last["optimizer"] == "AdamW"]
    return Verdict.each((ours["excess"].abs() <= most) & (ours["largest"] <= 1 + most))


def draw(frame: pd.DataFrame) -> Figure:
    """Frank-Wolfe gap against steps: AdamW by decay, and each decay's controls in grey."""
    figure, ax = panel(height=3.4)
    for place, (decay, runs) in enumerate(frame.groupby("decay", sort=False)):
        for name, run in runs.groupby("optimizer", sort=False):
            ours = name == "AdamW"
            label = f"AdamW, decay {decay:g}" if ours else "thin: Adam and GD, as a penalty"
            look = look_of(place) | ({} if ours else {"color": GREY})
            shown = label if ours or (place, name) == (0, "Adam, penalty") else None
            ax.plot(run["step"], run["gap"], linewidth=1.6 if ours else 0.8, label=shown, **look)
    ax.set(xscale="log", yscale="log", xlabel="steps", ylabel="Frank-Wolfe gap / loss")
    ax.grid(axis="both")
    return common_legend(figure, [ax], 2)


EXPERIMENT = sized(settings, rows, found, at_end, verdict, draw, quick=QUICK)
