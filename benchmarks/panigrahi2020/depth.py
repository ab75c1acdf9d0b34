"""Theorem 4.8: how the smallest eigenvalue of G grows with the number of hidden layers.

G of the last hidden layer on the half circle, at infinite width by the recursion of the closed
form, layer by layer. Not in the paper; derived here: other activations, whose layers are shifted
and scaled to mean 0 and variance 1 (for tanh no shift is needed). A layer drives close samples
apart by the factor `expansion`, E phi'^2 / Var phi > 1, so that the depth needed grows as
2 log(1 / delta) / log(expansion), smooth or not. The smallest eigenvalue never falls (Schur).
"""

import math
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.bench import Part, part
from benchmarks.panigrahi2020 import gram_bounds as bounds
from benchmarks.panigrahi2020.gram_spectrum import circle_points, separation
from implicit_bias.kernels import gradient_gram as grams

COST = 0.2
DEEP = ("relu", "selu", "elu", "swish", "tanh")
# Share of the diagonal at which an eigenvalue counts as large.
ENOUGH = 0.5


def measure(quick: bool) -> Iterator[Part]:
    """Add layers until the smallest eigenvalue is large."""
    for activation in DEEP:
        for n in (5, 10, 20) if quick else (5, 10, 20, 40, 80, 160):
            yield part(layers, activation=activation, n=n, most=110 if quick else 200)


def layers(activation: str, n: int, most: int) -> Iterator[dict[str, float]]:
    """Yield a row for each number of hidden layers."""
    phi, X = grams.ACTIVATIONS[activation], circle_points(n)
    diagonal = float(phi.kappa(1.0))
    for count, rho in enumerate(islice(grams.correlations(X, phi), most), 1):
        smallest = float(grams.eigenvalues(rho * phi.kappa(rho))[-1])
        coherence = float(np.abs(rho - np.eye(n)).max())
        yield {
            "expansion": phi.expansion,
            "separation": separation(X),
            "hidden_layers": count,
            "smallest": smallest,
            "diagonal": diagonal,
            # The end of the proof, J.5.
            "by_coherence": bounds.coherence_bound(phi, coherence, n),
        }
        if smallest > ENOUGH * diagonal:
            break


def recursion_holds(activation: str) -> bool:
    """Lemma J.2: whether the map of a layer is below its bound on a fine grid."""
    phi = grams.ACTIVATIONS[activation]
    rho = np.linspace(-1, 1, 2001)
    bound = bounds.layer_bound(rho, bounds.linear_share(phi))
    return bool((np.abs(phi.correlation_map(rho)) <= bound + 1e-10).all())


def numbers(frame: pd.DataFrame) -> dict[str, Any]:
    """Return the layers that each activation takes, and those that theorem 4.8 allows for tanh."""
    tanh = grams.ACTIVATIONS["tanh"]
    enough = frame[frame["smallest"] > ENOUGH * frame["diagonal"]]
    found: dict[str, Any] = {"table": table(enough), "holds": recursion_holds("tanh")}
    for row in enough.to_dict("records"):
        found[f"{row['activation']}_{row['n']}"] = row["hidden_layers"]
        if row["activation"] == "tanh":
            found[f"allowed_{row['n']}"] = bounds.sufficient_depth(tanh, row["separation"])
    sizes = sorted(enough["n"][enough["activation"] == "tanh"])
    for name, n in (("least", sizes[0]), ("most", sizes[-1])):
        found |= {
            f"n_{name}": n,
            f"tanh_{name}": found[f"tanh_{n}"],
            f"allowed_{name}": found[f"allowed_{n}"],
        }
    # Above rounding; below it an eigenvalue says nothing.
    known = frame[frame["smallest"] > 1e-11]
    return found | {"coherence": (known["by_coherence"] / known["smallest"]).max()}


def table(enough: pd.DataFrame) -> pd.DataFrame:
    """Return the layers until half of the diagonal, and their growth where delta halves."""
    lines = list[dict[str, str]]()
    for activation in enough["activation"].unique():
        rows = enough[enough["activation"] == activation]
        needed = rows["hidden_layers"].to_list()
        line = {"layers": str(activation)}
        line |= {f"n = {n}": str(count) for n, count in zip(rows["n"], needed, strict=True)}
        line["growth, last doubling"] = str(needed[-1] - needed[-2])
        line["2 log 2 / log(expansion)"] = (
            f"{2 * math.log(2) / math.log(rows['expansion'].iloc[0]):.1f}"
        )
        lines.append(line)
    return pd.DataFrame(lines)
