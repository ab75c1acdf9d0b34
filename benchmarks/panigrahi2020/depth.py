"""How the smallest eigenvalue of G grows with the number of hidden layers."""

from __future__ import annotations

import math
from itertools import islice

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from benchmarks.harness import Experiment, Verdict, common_legend, whole
from benchmarks.panigrahi2020.shared import (
    COLOUR,
    MARKER,
    ROUNDING,
    TRAINED,
    number,
    parts,
    plain_numbers,
)
from implicit_bias.report.style import GREY
from implicit_bias.theory.gradient_gram import (
    ACTIVATIONS,
    circle_points,
    correlations,
    eigenvalues,
    separation,
)

# Share of its limit at which an eigenvalue counts as large, and the n drawn against depth.
ENOUGH, SHOWN = 0.5, 20


def measure(quick: bool) -> pd.DataFrame:
    """Smallest eigenvalue of the last hidden layer's G against depth, at infinite width."""
    sizes, most = ((5, 10, 20), 110) if quick else ((5, 10, 20, 40, 80, 160), 200)
    rows = []
    for activation in TRAINED:
        phi = ACTIVATIONS[activation]
        diagonal = float(phi.kappa(1.0))
        for n in sizes:
            X = circle_points(n)
            for count, rho in enumerate(islice(correlations(X, phi), most), 1):
                smallest = float(eigenvalues(rho * phi.kappa(rho))[-1])
                rows.append(
                    {
                        "activation": activation,
                        "expansion": phi.expansion,
                        "n": n,
                        "separation": separation(X),
                        "hidden_layers": count,
                        "smallest": smallest,
                        # Schur's product theorem, and the diagonal.
                        "lower": diagonal * max(float(eigenvalues(rho)[-1]), 0.0),
                        "upper": diagonal,
                    }
                )
                if smallest > ENOUGH * diagonal:
                    break
    return pd.DataFrame(rows)


def draw(frame: pd.DataFrame) -> Figure:
    """Draw the smallest eigenvalue against depth, and the depth it takes against separation."""
    figure = Figure(figsize=(11, 4.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    for activation, rows in parts(frame, "activation"):
        look = {"color": COLOUR[activation], "marker": MARKER[activation]}
        cells = rows[rows["n"] == SHOWN]
        left.plot(cells["hidden_layers"], cells["smallest"] / cells["upper"], ls="", ms=3.5, **look)
        bound = cells[cells["lower"] > ROUNDING]
        left.plot(bound["hidden_layers"], bound["lower"] / bound["upper"], color=COLOUR[activation])
        needed = _needed(rows)
        right.plot(
            1 / needed["separation"], needed["hidden_layers"], ls="", label=activation, **look
        )
        right.plot(
            1 / needed["separation"],
            needed["theory"],
            color=COLOUR[activation],
            label=f"{activation}: theory",
        )
    left.set(xscale="log", yscale="log", xlabel="hidden layers L", ylim=(1e-13, 1))
    left.set(ylabel="smallest eigenvalue of G over its diagonal")
    left.set_title(f"n = {SHOWN}; lines: lower bound")
    left.axhline(ENOUGH, color=GREY, linestyle=":")
    left.grid(axis="y")
    plain_numbers(left, ordinate=False)
    right.set(xscale="log", xlabel="1 / delta", ylabel="hidden layers until one half")
    right.set_title("lines: slope 2 / log(expansion)")
    plain_numbers(right, ordinate=False)
    return common_legend(figure, [right], 5)


def _needed(frame: pd.DataFrame) -> pd.DataFrame:
    """Layers at which one activation's eigenvalue is large, and theory through the last point."""
    enough = frame[frame["smallest"] > ENOUGH * frame["upper"]]
    needed = enough.groupby("n").first().reset_index()
    slope = 2 / np.log(needed["expansion"])
    farther = np.log(needed["separation"] / needed["separation"].iloc[-1])
    needed["theory"] = needed["hidden_layers"].iloc[-1] - slope * farther
    return needed


def found(frame: pd.DataFrame) -> str:
    """Say what depth does."""
    start = frame[(frame["n"] == SHOWN) & (frame["hidden_layers"] == 1)].set_index("activation")
    layers = {activation: _needed(rows) for activation, rows in parts(frame, "activation")}
    reached = ", ".join(
        f"{name} {needed.loc[needed['n'] == SHOWN, 'hidden_layers'].item()}"
        for name, needed in layers.items()
    )
    shares = start["smallest"] / start["upper"]
    return (
        "At infinite width, G of the last hidden layer, hidden layers shifted and scaled to mean 0 "
        "and variance 1 (ours; it stands for normalisation). On the half circle with "
        f"n = {SHOWN}, where one hidden layer has a smallest eigenvalue of "
        f"{number(shares['tanh'])} of the diagonal for tanh and {number(shares['relu'])} for ReLU, "
        f"it is one half with so many hidden layers: {reached}. It never falls (Schur). A layer "
        "drives close samples apart by the factor `expansion`, E phi'^2 / Var phi > 1, "
        "so that the depth needed grows as 2 log(1 / delta) / log(expansion), smooth or not: in "
        "the table the growth from half the largest n to the largest, for which delta halves."
    )


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """Layers needed, and their growth."""
    rows = []
    for activation, values in parts(frame, "activation"):
        needed = _needed(values).set_index("n")["hidden_layers"]
        expansion = float(values["expansion"].iloc[0])
        rows.append(
            {
                "phi": activation,
                "expansion": f"{expansion:.3f}",
                **{f"L, n = {n}": str(count) for n, count in needed.items()},
                "growth": str(needed.iloc[-1] - needed.iloc[-2]),
                "theory": f"{2 * math.log(2) / math.log(expansion):.1f}",
            }
        )
    return pd.DataFrame(rows)


def verdict(frame: pd.DataFrame) -> Verdict:
    """Judge the claim by the rule."""
    half = frame["smallest"] >= frame["upper"] / 2
    return Verdict.of(bool(half.groupby([frame["activation"], frame["n"]]).any().all()))


EXPERIMENT = Experiment(
    claim="With enough hidden layers, samples in few dimensions are no limitation: the smallest "
    "eigenvalue is large for smooth activations, too. (Abstract; the theorem's network and its "
    "constants were not at hand.)",
    how=("G of the last hidden layer by the recursion of its closed form, layer by layer."),
    measure=whole(measure),
    draw=draw,
    found=found,
    rule=(
        "It stands if for every activation and n the smallest eigenvalue reaches half of the "
        "diagonal within the layers that were computed."
    ),
    verdict=verdict,
    tabulate=tabulate,
    alt="Smallest eigenvalue against depth, and the depth it takes against the separation",
)
