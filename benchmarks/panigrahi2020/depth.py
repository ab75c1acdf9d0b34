"""Theorem 4.8: how the smallest eigenvalue of G grows with the number of hidden layers."""

import math
from itertools import islice

import numpy as np
import pandas as pd
import torch

from benchmarks.drawing import Figure, common_legend, subplots
from benchmarks.harness import Experiment, Judged, Rows, Verdict, parts, whole
from benchmarks.panigrahi2020 import gram_bounds as bounds
from benchmarks.panigrahi2020 import shared
from benchmarks.panigrahi2020.gram_spectrum import circle_points, separation
from benchmarks.words import span
from implicit_bias.base.validation import Array
from implicit_bias.kernels import gradient_gram as grams
from implicit_bias.report.style import BLACK, COLOURS, GREY

# Share of its limit at which an eigenvalue counts as large, and the n drawn against depth.
ENOUGH, SHOWN = 0.5, 20


def measure(quick: bool) -> Rows:
    """Smallest eigenvalue of the last hidden layer's G against depth, and finite deep networks."""
    sizes, most = ((5, 10, 20), 110) if quick else ((5, 10, 20, 40, 80, 160), 200)
    yield from deep_networks((64, 128) if quick else (256, 1024), 8 if quick else 32)
    for activation in shared.TRAINED:
        phi = grams.ACTIVATIONS[activation]
        diagonal = float(phi.kappa(1.0))
        for n in sizes:
            X = circle_points(n)
            for count, rho in enumerate(islice(grams.correlations(X, phi), most), 1):
                smallest = float(grams.eigenvalues(rho * phi.kappa(rho))[-1])
                coherence = float(np.abs(rho - np.eye(n)).max())
                yield {
                    "part": "infinite",
                    "activation": activation,
                    "expansion": phi.expansion,
                    "n": n,
                    "separation": separation(X),
                    "hidden_layers": count,
                    "coherence": coherence,
                    "gershgorin": bounds.coherence_bound(phi, coherence, n),
                    "smallest": smallest,
                    # Schur's product theorem, and the diagonal.
                    "lower": diagonal * max(float(grams.eigenvalues(rho)[-1]), 0.0),
                    "upper": diagonal,
                }
                if smallest > ENOUGH * diagonal:
                    break


def deep_networks(widths: tuple[int, ...], layers: int) -> Rows:
    """Norms and correlations in deep networks of tanh at finite width (lemma J.1), n = 10.

    x^(l) = c/sqrt(m) phi(W^(l) x^(l-1)), c = (E phi(z)^2)^(-1/2), all entries of W N(0, 1).
    """
    phi, X = grams.ACTIVATIONS["tanh"], circle_points(10, 2)
    scale = 1 / math.sqrt(float(phi.dual(1.0)))
    limits = list(islice(grams.correlations(X, phi), layers + 1))
    for width in widths:
        generator = torch.Generator().manual_seed(0)
        hidden = torch.tensor(X, dtype=torch.float32)
        for layer in range(1, layers + 1):
            weights = torch.randn((width, hidden.shape[1]), generator=generator)
            hidden = scale / math.sqrt(width) * phi.value(hidden @ weights.T)
            gram = (hidden @ hidden.T).double().numpy()
            yield {
                "part": "finite",
                "activation": "tanh",
                "width": width,
                "n": len(X),
                "hidden_layers": layer,
                "norms": float(np.abs(np.sqrt(np.diag(gram)) - 1).max()),
                "angles": float(np.abs(gram - limits[layer]).max()),
            }


def recursion_holds(activation: str) -> bool:
    """Lemma J.2: whether the map of a layer is below its bound on a fine grid."""
    phi = grams.ACTIVATIONS[activation]
    rho = np.linspace(-1, 1, 2001)
    bound: Array = bounds.layer_bound(rho, bounds.linear_share(phi))
    return bool((np.abs(phi.correlation_map(rho)) <= bound + 1e-10).all())


def infinite(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows at infinite width."""
    return frame[frame["part"] == "infinite"]


def draw(frame: pd.DataFrame) -> Figure:
    """Draw the smallest eigenvalue against depth, and the depth it takes against separation."""
    figure, (left, right, norms) = subplots((10, 4.8), 1, 3)
    for activation, rows in parts(infinite(frame), "activation"):
        look, colour = shared.LOOK[activation], shared.COLOUR[activation]
        cells = rows[rows["n"] == SHOWN]
        left.plot(cells["hidden_layers"], cells["smallest"] / cells["upper"], ls="", ms=3.5, **look)
        bound = cells[cells["lower"] > shared.ROUNDING]
        left.plot(bound["hidden_layers"], bound["lower"] / bound["upper"], color=colour)
        needed = _needed(rows)
        apart = 1 / needed["separation"]
        right.plot(apart, needed["hidden_layers"], ls="", label=activation, **look)
        right.plot(apart, needed["theory"], color=colour, label=f"{activation}: theory")
    left.set(xscale="log", yscale="log", xlabel="hidden layers L", ylim=(1e-13, 1))
    left.set(ylabel="smallest eigenvalue of G over its diagonal")
    left.set_title(f"n = {SHOWN}; lines: lower bound")
    left.axhline(ENOUGH, color=GREY, linestyle=":")
    left.grid(axis="y")
    shared.plain_numbers(left, ordinate=False)
    right.set(xscale="log", xlabel="1 / delta", ylabel="hidden layers until one half")
    right.set_title("lines: slope 2 / log(expansion)")
    shared.plain_numbers(right, ordinate=False)
    tanh = _needed(infinite(frame)[infinite(frame)["activation"] == "tanh"])
    depth = [
        bounds.sufficient_depth(grams.ACTIVATIONS["tanh"], delta) for delta in tanh["separation"]
    ]
    right.plot(1 / tanh["separation"], depth, ":", color=BLACK, label="theorem 4.8, shape")
    for i, (width, rows) in enumerate(parts(frame[frame["part"] == "finite"], "width")):
        for column, line, what in (("norms", "-", "norms"), ("angles", ":", "products")):
            label = f"m = {float(width):,.0f}: {what}"
            norms.plot(rows["hidden_layers"], rows[column], line, color=COLOURS[i], label=label)
    norms.set(xscale="log", yscale="log", xlabel="hidden layer", ylabel="largest deviation")
    norms.set_title("J.1: deep tanh networks")
    shared.plain_numbers(norms)
    norms.legend()
    return common_legend(figure, [right], 6)


def _needed(frame: pd.DataFrame) -> pd.DataFrame:
    """Layers at which one activation's eigenvalue is large, and theory through the last point."""
    enough = frame[frame["smallest"] > ENOUGH * frame["upper"]]
    needed = enough.groupby("n").first().reset_index()
    slope = 2 / np.log(needed["expansion"])
    farther = np.log(needed["separation"] / needed["separation"].iloc[-1])
    needed["theory"] = needed["hidden_layers"].iloc[-1] - slope * farther
    return needed


def _depths(needed: pd.DataFrame) -> list[tuple[int, int, float]]:
    """Return n, the layers that it takes, and delta."""
    columns = (needed[name].to_list() for name in ("n", "hidden_layers", "separation"))
    return [(int(n), int(layers), float(delta)) for n, layers, delta in zip(*columns, strict=True)]


def found(frame: pd.DataFrame) -> str:
    """Say what depth does."""
    rows = infinite(frame)
    start = rows[(rows["n"] == SHOWN) & (rows["hidden_layers"] == 1)].set_index("activation")
    layers = {activation: _needed(cells) for activation, cells in parts(rows, "activation")}
    reached = ", ".join(
        f"{name} {needed.loc[needed['n'] == SHOWN, 'hidden_layers'].item()}"
        for name, needed in layers.items()
    )
    shares = start["smallest"] / start["upper"]
    finite = frame[frame["part"] == "finite"]
    widest = finite[finite["width"] == finite["width"].max()]
    return (
        f"In finite networks of tanh, {int(finite['hidden_layers'].max())} layers, n = 10, m = "
        f"{int(finite['width'].max()):,}, lengths stay within {100 * widest['norms'].max():.0f} % "
        f"of 1, and inner products within {widest['angles'].max():.2f} of the limit. The factor "
        f"2^L of lemma J.1 is not seen.\n\nWith n = {SHOWN}, where one hidden layer has a smallest "
        f"eigenvalue of {shared.number(shares['tanh'])} of the diagonal for tanh and "
        f"{shared.number(shares['relu'])} for ReLU, it is one half with so many hidden layers: "
        f"{reached}."
    )


def tabulate(frame: pd.DataFrame) -> Rows:
    """Layers needed, and their growth."""
    for activation, values in parts(infinite(frame), "activation"):
        needed = _needed(values).set_index("n")["hidden_layers"]
        expansion = float(values["expansion"].iloc[0])
        yield {
            "phi": activation,
            "expansion": f"{expansion:.3f}",
            **{f"L, n = {n}": str(count) for n, count in needed.items()},
            "growth": str(needed.iloc[-1] - needed.iloc[-2]),
            "theory": f"{2 * math.log(2) / math.log(expansion):.1f}",
        }


def judge(frame: pd.DataFrame) -> dict[str, Judged]:
    """Judge each claim by its rule."""
    rows, phi = infinite(frame), grams.ACTIVATIONS["tanh"]
    half = (rows["smallest"] >= rows["upper"] / 2).groupby([rows["activation"], rows["n"]]).any()
    tanh, share = _depths(_needed(rows[rows["activation"] == "tanh"])), bounds.linear_share(phi)
    allowed = [bounds.sufficient_depth(phi, delta) for _, _, delta in tanh]
    enough = all(layers <= most for (_, layers, _), most in zip(tanh, allowed, strict=True))
    gershgorin = bool((rows["gershgorin"] <= rows["smallest"] * (1 + 1e-9) + 1e-11).all())
    finite = frame[frame["part"] == "finite"]
    count, width = finite["hidden_layers"], finite["width"]
    error = np.sqrt(2.0**count * np.log(width) * np.log(finite["n"] * count) / width)
    wide = finite[error < 1].assign(error=error)
    steps = bounds.layers_until(separation(circle_points(SHOWN)), 0.5, (1 + share) / 2)
    return {
        "theorem-4-8": Judged(
            verdict=Verdict.of(bool(half.all()) and enough and gershgorin, bool(half.all())),
            result=f"lambda_min is half of the diagonal after {tanh[0][1]} layers (n = "
            f"{tanh[0][0]}) to {tanh[-1][1]} (n = {tanh[-1][0]}); {allowed[0]:.0f} to "
            f"{allowed[-1]:.0f} are allowed.",
            evidence=(
                f"c1 = {share:.4f}, 2 / (1 - c1) = {2 / (1 - share):.1f}, E tanh^2 = "
                f"{float(phi.dual(1.0)):.4f}. The bound by the coherence of the last layer, the "
                f"end of the proof (J.5), {'never exceeds' if gershgorin else 'exceeds'} "
                "lambda_min.",
            ),
        ),
        "lemma-j1": Judged(
            verdict=Verdict.of((wide["norms"] <= wide["error"]).all()),
            result=f"Where eps < 1, up to {int(wide['hidden_layers'].max())} layers, lengths are "
            f"within {wide['norms'].max():.2f} of 1; eps is {span(wide['error'], '.2f')}.",
        ),
        "lemma-j2": Judged(
            verdict=Verdict.of(recursion_holds("tanh")),
            result="The bound on a layer's correlations "
            f"{'holds' if recursion_holds('tanh') else 'does not hold'} at all of 2,001; its "
            f"recursion takes {steps} layers from 1 - delta to 1/2 (n = {SHOWN}).",
        ),
    }


EXPERIMENT = Experiment(whole(measure), found, tabulate, draw=draw, judge=judge)
