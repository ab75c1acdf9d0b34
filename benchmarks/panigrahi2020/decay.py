"""How fast the smallest eigenvalue of G falls with the number of samples on the half circle."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from benchmarks.harness import Experiment, Verdict, whole
from benchmarks.panigrahi2020.shared import (
    COLOUR,
    MARKER,
    ROUNDING,
    SMOOTH,
    number,
    parts,
    plain_numbers,
)
from implicit_bias.theory.gradient_gram import (
    ACTIVATIONS,
    circle_eigenvalues,
    circle_points,
    eigenvalues,
    infinite_gram,
)

# r where the r-th derivative of phi jumps: lambda_min ~ n^(1 - 2r) on the half circle.
KINKS = {"relu": 1, "leaky-relu": 1, "selu": 1, "elu": 2}


def measure(quick: bool) -> pd.DataFrame:
    """Smallest eigenvalue on the half circle against n, at infinite width."""
    sizes = (4, 8, 16, 32) if quick else (4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
    rows = []
    for activation in (*KINKS, *SMOOTH):
        phi = ACTIVATIONS[activation]
        for n in sizes:
            values = eigenvalues(infinite_gram(circle_points(n), phi))
            theory = np.nan
            if activation in SMOOTH:
                theory = circle_eigenvalues(phi, 2 * n)[n - 1] / (2 if activation == "tanh" else 1)
            rows.append(
                {
                    "activation": activation,
                    "n": n,
                    "smallest": values[-1] if values[-1] > ROUNDING * values[0] else np.nan,
                    "theory": theory,
                }
            )
    frame = pd.DataFrame(rows)
    for activation, kink in KINKS.items():  # the power law, through the last point
        chosen = frame["activation"] == activation
        last = frame[chosen].iloc[-1]
        scaled = (frame.loc[chosen, "n"] / last["n"]) ** (1 - 2 * kink)
        frame.loc[chosen, "theory"] = last["smallest"] * scaled
    return frame


def draw(frame: pd.DataFrame) -> Figure:
    """Draw the smallest eigenvalues as marks, and what theory says as lines."""
    figure = Figure(figsize=(8, 4.6), layout="constrained")
    ax = figure.subplots()
    for activation, cells in parts(frame, "activation"):
        colour = COLOUR[activation]
        kind = {"tanh": "closed form", "swish": "bound"}.get(activation, "power law")
        ax.plot(cells["n"], cells["smallest"], MARKER[activation], color=colour, label=activation)
        line = "--" if activation == "swish" else "-"
        ax.plot(cells["n"], cells["theory"], line, color=colour, label=f"{activation}: {kind}")
    ax.set(xscale="log", yscale="log", ylim=(max(1e-21, frame["theory"].min() / 3), 1))
    ax.set(xlabel="samples n on the half circle", ylabel="smallest eigenvalue of G")
    ax.grid(axis="y")
    plain_numbers(ax, ordinate=False)
    figure.legend(loc="outside right center")
    return figure


def found(frame: pd.DataFrame) -> str:
    """Say which law holds."""
    return (
        "On the half circle of n points, with separation delta = sin(pi / n), the smallest "
        "eigenvalue falls as n^(1 - 2r), the power 2r - 1 of delta, where the r-th derivative of "
        "phi jumps (r = 1 for ReLU, leaky ReLU and SELU, 2 for ELU), and for tanh as "
        "n exp(-3/2 (pi n)^(2/3)), from the closed form `circle_eigenvalues`, which for swish is "
        "an upper bound. The laws for this arrangement are ours. Measured exponents are fits to "
        "the last points; for tanh, matrix and closed form agree to "
        f"{100 * _tanh_error(frame):.2g} % wherever the matrix is above rounding."
    )


def _tanh_error(frame: pd.DataFrame) -> float:
    rows = frame[frame["activation"] == "tanh"]
    return float((rows["smallest"] / rows["theory"] - 1).abs().max())


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """Fitted against predicted laws."""
    rows = []
    for activation, cells in parts(frame, "activation"):
        if activation in KINKS:
            tail = cells.iloc[-3:]
            slope = np.polyfit(np.log(tail["n"]), np.log(tail["smallest"]), 1)[0]
            theory, measured = f"n^{1 - 2 * KINKS[activation]}", f"n^{slope:.2f}"
        elif activation == "tanh":
            tail = cells[cells["n"].between(8, 96)].iloc[-4:]
            slope = np.polyfit(tail["n"] ** (2 / 3), np.log(tail["theory"] / tail["n"]), 1)[0]
            theory = f"n exp(-{1.5 * math.pi ** (2 / 3):.2f} n^(2/3))"
            measured = f"n exp({slope:.2f} n^(2/3)), of the closed form"
        else:
            tail = cells.dropna().iloc[-1:]
            theory = f"at most {number(tail['theory'].item())}"
            measured = number(tail["smallest"].item())
        fitted = " to ".join(map(str, dict.fromkeys((tail["n"].min(), tail["n"].max()))))
        rows.append({"activation": activation, "theory": theory, "measured": measured, "n": fitted})
    return pd.DataFrame(rows)


def verdict(frame: pd.DataFrame) -> Verdict:
    """Judge the claim by the rule."""
    relu = frame.loc[frame["activation"] == "relu", "smallest"]
    tanh = frame.loc[frame["activation"] == "tanh", "theory"]
    return Verdict.of(_tanh_error(frame) < 0.01 and tanh.min() < 1e-10 and relu.min() > 1e-4)


EXPERIMENT = Experiment(
    claim="With a kink in phi all eigenvalues are large under minimal assumptions on the data. "
    "For smooth activations such as tanh the smallest can be exponentially small, depending on the "
    "span of the data. (From the abstracts of both versions; the theorems' exponents and constants "
    "were not at hand.)",
    how=(
        "Points of the half circle, infinite width; exponents are fits to the last points whose "
        "smallest eigenvalue is above rounding."
    ),
    measure=whole(measure),
    draw=draw,
    found=found,
    rule=(
        "It stands if the matrix of tanh agrees with its closed form within 1 % and falls to less"
        " than 1e-10, and the smallest eigenvalue of ReLU is above 1e-4 throughout."
    ),
    verdict=verdict,
    tabulate=tabulate,
    alt="Smallest eigenvalue against the samples for six activations, with the laws of theory",
)
