"""Figure 1 (a, b): training curves of the first layer, theorem 4.6 and equation (3)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.harness import Options, Run
from benchmarks.panigrahi2020.shared import FIGURE_1
from implicit_bias.theory.gated_least_squares import predicted_losses
from implicit_bias.theory.gradient_gram import (
    ACTIVATIONS,
    circle_points,
    eigenvalues,
    finite_gram,
    gaussian_weights,
    infinite_gram,
)
from implicit_bias.theory.gram_bounds import flow_losses
from implicit_bias.validation import Array

# The paper's step size, for every activation.
RATE = 1e-3
# Units whose gates are computed at once: they stay in the cache of a core.
UNITS = 2**13
# The width of the paper's networks.
PUBLISHED_WIDTH = 10**6


@dataclass(frozen=True)
class Plan:
    """Some networks to train: a row of the protocol."""

    part: str
    n: int
    width: int
    steps: int
    runs: int
    activations: tuple[str, ...] = FIGURE_1


PLANS = (
    Plan("long", 10, 1024, 3 * 10**4, 5),
    Plan("long", 50, 1024, 10**4, 5),
    Plan("wide", 10, 10**6, 100, 1),
    Plan("doubled", 10, 2048, 3 * 10**4, 2),
    Plan("doubled", 50, 2048, 10**4, 2),
    Plan("wide", 50, 10**5, 300, 1),
)
QUICK = (
    Plan("wide", 10, 4096, 30, 1),
    Plan("wide", 50, 1024, 30, 1),
    Plan("long", 10, 256, 300, 2),
    Plan("long", 50, 128, 300, 2),
    Plan("doubled", 10, 512, 300, 2),
    Plan("doubled", 50, 256, 300, 2),
)
CURVE = ["part", "n", "width", "run", "activation"]


def measure(run: Run[Options]) -> Iterator[pd.DataFrame]:
    """Train every network that is not kept; half circle, labels and weights of the run's seed."""
    frame = run.kept
    done = set() if frame.empty else set(frame[CURVE].itertuples(index=False, name=None))
    for plan in QUICK if run.quick else PLANS:
        for seed in range(plan.runs):
            for activation in plan.activations:
                if (plan.part, plan.n, plan.width, seed, activation) not in done:
                    run.say(f"{plan.part}: n = {plan.n}, m = {plan.width:,}, {activation}, {seed}")
                    curve = training_curve(plan, activation, seed)
                    frame = pd.concat([frame, curve], ignore_index=True)
                    yield frame


def training_curve(plan: Plan, activation: str, seed: int) -> pd.DataFrame:
    """Train one network, and predict its loss ||y - u||^2 / n with the spectrum at its start."""
    phi, n = ACTIVATIONS[activation], plan.n
    X = circle_points(n, 2)  # lifted to R^10 or not is the same: steps stay in the plane
    weights = torch.cat(list(gaussian_weights(plan.width, 2, seed=seed)))
    rng = np.random.default_rng(seed)
    y = rng.choice((-1.0, 1.0), n)
    readouts = torch.tensor(rng.standard_normal(plan.width))
    recorded = np.unique(np.append(0, np.geomspace(1, plan.steps, 40).astype(int)))
    residuals, moved = train(activation, X, y, weights, readouts, recorded)
    before = finite_gram(X, phi, [weights], readouts=readouts)
    after = finite_gram(X, phi, [weights + moved], readouts=readouts)
    limit = infinite_gram(X, phi)
    start, values, last = residuals[0], eigenvalues(before), eigenvalues(after)
    return pd.DataFrame(
        {
            "part": plan.part,
            "n": n,
            "width": plan.width,
            "run": seed,
            "activation": activation,
            "step": recorded,
            "loss": [float(r @ r) / n for r in residuals],
            "theorem": predicted_losses(before, start, step_size=RATE, steps=recorded),
            "flow": flow_losses(before, start, times=RATE * recorded),
            "limit": predicted_losses(limit, start, step_size=RATE, steps=recorded),
            "lambda_max": values[0],
            "lambda_min": values[-1],
            "drift": float(np.abs(last - values).max() / values[0]),
            "turned": float(np.linalg.norm(after - before) / np.linalg.norm(before)),
            "moved": float(torch.linalg.norm(moved, dim=1).max()),
        }
    )


def train(
    activation: str,
    X: Array,
    y: Array,
    weights: Tensor,
    readouts: Tensor,
    recorded: NDArray[np.int64],
) -> tuple[list[Array], Tensor]:
    """Descend on 1/2 ||u - y||^2 in the first layer, in float32.

    The way of the weights, not the weights themselves, is added up: a step is far below the
    rounding of a weight.

    Returns
    -------
    list of ndarray of shape (n,)
        u - y at the recorded steps.
    Tensor of shape (m, d)
        W(t) - W(0).
    """
    value_and_slope = FAST[activation]
    inputs = torch.tensor(X, dtype=torch.float32)
    start = inputs @ weights.T.float()  # (n, m)
    scales = readouts.float() / math.sqrt(len(readouts))
    moved = torch.zeros((X.shape[1], len(weights)))
    slopes = torch.empty_like(start)
    blocks = [slice(i, i + UNITS) for i in range(0, len(weights), UNITS)]
    target, residuals, waiting = torch.tensor(y), [], set(recorded.tolist())
    for step in range(int(recorded[-1]) + 1):
        outputs = torch.zeros(len(X), dtype=torch.float64)
        for block in blocks:
            z = torch.addmm(start[:, block], inputs, moved[:, block])
            outputs += value_and_slope(z, slopes[:, block]) @ scales[block]
        residual = outputs - target
        if step in waiting:
            residuals.append(residual.numpy().copy())
        weighted = (inputs.T * residual.float()) * RATE
        for block in blocks:
            moved[:, block] -= (weighted @ slopes[:, block]) * scales[block]
    return residuals, moved.T.double()


def _relu(z: Tensor, slope: Tensor) -> Tensor:
    torch.gt(z, 0, out=slope)
    return z.clamp_(min=0)


def _elu(z: Tensor, slope: Tensor) -> Tensor:
    left = torch.expm1(z.clamp(max=0))
    torch.add(left, 1, out=slope)
    return left.add_(z.clamp_(min=0))


def _tanh(z: Tensor, slope: Tensor) -> Tensor:
    value = z.tanh_()
    torch.mul(value, value, out=slope)
    slope.neg_().add_(1)
    return value


def _swish(z: Tensor, slope: Tensor) -> Tensor:
    gate = torch.sigmoid(z)
    value = z.mul_(gate)
    torch.mul(value, 1 - gate, out=slope)
    slope.add_(gate)
    return value


def _quadratic(z: Tensor, slope: Tensor) -> Tensor:
    torch.mul(z, 2, out=slope)
    return z.square_()


# phi(z), in the place of z, and phi'(z) into a second tensor: several times faster than autograd.
FAST: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "relu": _relu,
    "elu": _elu,
    "tanh": _tanh,
    "swish": _swish,
    "quadratic": _quadratic,
}
