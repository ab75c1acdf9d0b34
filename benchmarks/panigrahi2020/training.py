"""Training curves of the first layer against equation (3), by the spectrum of G."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.harness import Experiment, Verdict, whole
from benchmarks.panigrahi2020.shared import COLOUR, MARKER, TRAINED, parts, plain_numbers
from implicit_bias.report.style import GREY
from implicit_bias.theory.gated_least_squares import predicted_losses
from implicit_bias.theory.gradient_gram import (
    ACTIVATIONS,
    Activation,
    activation_gram,
    circle_points,
    eigenvalues,
    gaussian_weights,
    infinite_gram,
)
from implicit_bias.validation import Array


def measure(quick: bool) -> pd.DataFrame:
    """Training curves of the first layer against equation (3): half circle, random labels."""
    widths = {10: (256, 4096)} if quick else {10: (512, 4096, 32768), 50: (512, 16384)}
    steps = 100 if quick else 1000
    recorded = np.unique(np.append(0, np.geomspace(1, steps, 25).astype(int)))
    return pd.concat(
        training_curve(activation, n, width, recorded)
        for n in widths
        for width in widths[n]
        for activation in TRAINED
    ).reset_index(drop=True)


def training_curve(
    activation: str, n_samples: int, width: int, recorded: NDArray[np.int64]
) -> pd.DataFrame:
    """Train one network, and predict its loss; losses are shares of the one at the start.

    The network's first output is subtracted, so that u = 0 at the start and the residual is -y, as
    in the equation.
    """
    phi = ACTIVATIONS[activation]
    X = circle_points(n_samples, 2)  # lifted or not is the same: steps stay in the plane
    weights = torch.cat(list(gaussian_weights(width, X.shape[1])))
    rng = np.random.default_rng(1)
    y = rng.choice((-1.0, 1.0), n_samples)
    readout = torch.tensor(rng.choice((-1.0, 1.0), width)) / math.sqrt(width)
    gram, limit = activation_gram(X, phi, [weights]), infinite_gram(X, phi)
    step_size = 1 / float(eigenvalues(limit)[0])
    residuals = train(phi, X, y, weights, readout, step_size, recorded)
    return pd.DataFrame(
        {
            "n": n_samples,
            "width": width,
            "activation": activation,
            "step": recorded,
            "loss": [float(r @ r) / n_samples for r in residuals],
            "predicted": predicted_losses(gram, y, step_size=step_size, steps=recorded),
            "limit": predicted_losses(limit, y, step_size=step_size, steps=recorded),
        }
    )


def train(
    phi: Activation,
    X: Array,
    y: Array,
    weights: Tensor,
    readout: Tensor,
    step_size: float,
    recorded: NDArray[np.int64],
) -> Iterator[Array]:
    """Descend on 1/2 ||u - y||^2 in the first layer, and yield u - y (n,) at the recorded steps."""
    inputs, weights = torch.tensor(X), weights.clone().requires_grad_(True)
    target = torch.tensor(y) + (phi.value(inputs @ weights.T) @ readout).detach()
    for step in range(int(recorded[-1]) + 1):
        residual = phi.value(inputs @ weights.T) @ readout - target
        if step in recorded:
            yield residual.detach().numpy()
        (gradient,) = torch.autograd.grad(residual @ residual / 2, weights)
        with torch.no_grad():
            weights -= step_size * gradient


def draw(frame: pd.DataFrame) -> Figure:
    """Draw the measured loss as marks, filled for the widest networks, and equation (3)."""
    groups = parts(frame[frame["step"] > 0], "n")
    figure = Figure(figsize=(11, 4.8), layout="constrained")
    axes = figure.subplots(1, len(groups), squeeze=False)[0]
    for ax, (n, rows) in zip(axes, groups, strict=True):
        widths = [int(width) for width, _ in parts(rows, "width")]
        for activation, values in parts(rows, "activation"):
            for width in (widths[0], widths[-1]):
                measured = values[values["width"] == width]
                fill = "full" if width == widths[-1] else "none"
                ax.plot(
                    measured["step"],
                    measured["loss"],
                    MARKER[activation],
                    color=COLOUR[activation],
                    fillstyle=fill,
                    ms=4,
                )
            ax.plot(measured["step"], measured["predicted"], color=COLOUR[activation])
        ax.set(xscale="log", ylim=(0, 1.05), xlabel="step")
        ax.set_title(f"n = {n}: m = {widths[0]:,} (open) and {widths[-1]:,} (full)")
        ax.grid(axis="y")
        plain_numbers(ax)
    axes[0].set_ylabel("squared error, share of the start")
    handles = [
        *(
            Line2D([], [], color=COLOUR[name], marker=MARKER[name], linestyle="", label=name)
            for name in TRAINED
        ),
        Line2D([], [], color=GREY, label="equation (3), spectrum of G of the widest"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=6)
    return figure


def found(frame: pd.DataFrame) -> str:
    """Say how well the equation predicts, and how that goes with the width."""
    few, many = frame["n"].iloc[0], frame["n"].iloc[-1]
    errors = _training_errors(frame[frame["n"] == few]).loc["relu"]
    (narrow, *_, wide), (worst, *_, best) = errors.index, errors.to_numpy(dtype=np.float64)
    power = math.log(best / worst) / math.log(wide / narrow)
    farthest = _training_errors(frame[frame["n"] == many]).iloc[:, -1]
    off = ", ".join(f"{activation} {error:.3f}" for activation, error in farthest.items())
    return (
        "Half circle, random labels, step 1 / lambda_max, only the first layer trained, its first "
        "output subtracted so that u = 0 at the start. ReLU and SELU, whose small eigenvalues are "
        "the largest, are ahead, and swish is last. Equation (3) holds in the limit of wide "
        "networks: its error, the largest difference between measured and predicted ||u - y|| over "
        "||y||, falls with the width, slowest where a kink lets gates flip: for ReLU at "
        f"n = {few} from {worst:.2f} at m = {narrow:,} to {best:.2f} at m = {wide:,}, as "
        f"m^{power:.2f}. At n = {many}, m = {farthest.name:,} it is {off}: with a jump in phi' "
        "more units are needed."
    )


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """Loss left by the widest network, measured and predicted, and the error of each width."""
    rows = []
    for n, networks in parts(frame, "n"):
        errors = _training_errors(networks)
        for activation, curves in parts(networks, "activation"):
            last = curves.iloc[-1]
            rows.append(
                {
                    "n": n,
                    "phi": activation,
                    "loss left": f"{100 * last['loss']:.2f} %",
                    "equation (3), G(W)": f"{100 * last['predicted']:.2f} %",
                    "m infinite": f"{100 * last['limit']:.2f} %",
                    "m": " / ".join(f"{width:,}" for width in errors.columns),
                    "error of (3)": " / ".join(f"{x:.3f}" for x in errors.loc[activation]),
                }
            )
    return pd.DataFrame(rows)


def _training_errors(frame: pd.DataFrame) -> pd.DataFrame:
    """Largest | ||r|| - predicted ||r|| | / ||y|| of each curve: activation by width."""
    errors = (frame["loss"] ** 0.5 - frame["predicted"] ** 0.5).abs()
    return errors.groupby([frame["activation"], frame["width"]], sort=False).max().unstack()


def verdict(frame: pd.DataFrame) -> Verdict:
    """Judge the claim by the rule."""
    worst = [_training_errors(rows).to_numpy() for _, rows in parts(frame, "n")]
    falls = all(bool((np.diff(errors, axis=1) < 0).all()) for errors in worst)
    return Verdict.of(falls and all(errors[:, -1].max() < 0.1 for errors in worst), falls)


EXPERIMENT = Experiment(
    claim="Equation (3), after Arora et al. (2019): ||u - y||^2 at step t is about "
    "sum_i (1 - s lambda_i)^(2t) <v_i, y>^2. Figure 1 (a, b): networks on the circle with "
    "n = 10 and 50 train at rates in the order of their eigenvalues.",
    how=(
        "Gradient descent on the first layer of networks of several widths; equation (3) with the"
        " spectrum of their own G at the start."
    ),
    measure=whole(measure),
    draw=draw,
    found=found,
    rule=(
        "It stands if the error of equation (3) falls with the width for every activation, and is"
        " below 0.1 at the largest; in part if it falls."
    ),
    verdict=verdict,
    tabulate=tabulate,
    alt="Squared error against the step, measured at two widths and predicted by equation (3)",
)
