r"""Theorem 3.1 where contexts have different degrees, and its assumptions along a training.

    python -m benchmarks lippl2022 unequal-degrees
    python -m benchmarks lippl2022 assumptions

Both follow gradient flow (`context_shares`), in seconds.

Columns of unequal_degrees: ``norm`` of the parameters, ``angle`` in degrees, and of the contexts
of degree 1 and 2 ``share_1``, ``share_2`` (of the gradient) and ``margin_1``, ``margin_2``
(normalised). Columns of assumptions: ``norm``; ``log_loss``, the logarithm of the total loss (B.2);
``cosine`` of the parameters with those of the row before (B.3); ``least_margin``, the least
normalised margin (B.4); ``least_cosine``, the least cosine of a context's direction with that of
the row before (B.5); ``contexts``, how many joint contexts the samples have.

Source: Lippl, Abbott, Chung (2022), (5) to (7), theorem 3.1, B.2 to B.5.
"""

import math

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.func import functional_call

from benchmarks.drawing import Figure, subplots
from benchmarks.harness import Experiment, Rows, Verdict, whole
from benchmarks.lippl2022 import context_shares as shares
from implicit_bias.base.wording import percent
from implicit_bias.networks import GLN
from implicit_bias.problem.gating import HyperplaneContexts
from implicit_bias.report.style import BLUE, GREY, ORANGE
from implicit_bias.training.losses import LOSSES

LOGISTIC = LOSSES["logistic"].log_loss
# Where the one stationary point of program (6) lies, in degrees.
STATIONARY = 45.0
LIMIT = math.degrees(shares.ANGLE)
NORMS = (10.0, 20.0, 27.0, 35.0, 50.0, 80.0, 128.0, 300.0, 1e3, 1e4, 1e5, 1e6)
LEAST_COSINE = 0.999


def unequal_degrees(quick: bool) -> Rows:
    """Follow gradient flow on the counterexample."""
    norms = NORMS[:4] if quick else NORMS
    margins = shares.counterexample()
    for w in shares.gradient_path(margins, [1.0, 1.0], norms, log_loss=LOGISTIC):
        found = shares.record(margins, w, [0, 1], log_loss=LOGISTIC)
        yield {
            "norm": found.norm,
            "angle": math.degrees(math.atan2(float(w[1]), float(w[0]))),
            "share_1": found.shares[0],
            "share_2": found.shares[1],
            "margin_1": found.margins[0],
            "margin_2": found.margins[1],
        }


def _found_degrees(table: pd.DataFrame) -> str:
    last = table.iloc[-1]
    (kept,) = shares.limit_contexts([1.0, 2.0])
    return (
        f"Gradient flow is at {last['angle']:.3f} degrees when the parameters have norm "
        f"{last['norm']:,.0f}; program (6) has its one stationary point at {STATIONARY:g}. There "
        f"the context of degree {kept + 1} keeps {percent(last['share_1'])} of the gradient, "
        f"although its normalised margin, {last['margin_1']:.3f}, is the larger one: the other's "
        f"is {last['margin_2']:.3f}."
    )


def _draw_degrees(table: pd.DataFrame) -> Figure:
    figure, (angle, share) = subplots((8.4, 3.4), 1, 2, grid="y")
    angle.plot(table["norm"], table["angle"], "o-", color=BLUE, label="gradient flow")
    for level, words, line in (
        (STATIONARY, "stationary point of (6)", "--"),
        (LIMIT, "separator of the context of degree 1", ":"),
    ):
        angle.axhline(level, color=GREY, linestyle=line, label=words)
    for degree, colour, marker in ((1, BLUE, "o"), (2, ORANGE, "s")):
        share.plot(
            table["norm"],
            100 * table[f"share_{degree}"],
            f"{marker}-",
            color=colour,
            label=f"context of degree {degree}",
        )
    angle.set(xscale="log", xlabel="norm of the parameters", ylabel="angle, degrees")
    share.set(xscale="log", xlabel="norm of the parameters", ylabel="share of the gradient, %")
    for ax in (angle, share):
        ax.legend(loc="center right", fontsize=8)
    return figure


def network_margins(network: GLN, X: np.ndarray, y: np.ndarray) -> tuple[shares.Margins, Tensor]:
    """Return the margins of a network as a function of all its parameters, and those."""
    names, values = zip(*network.named_parameters(), strict=True)
    shapes = [value.shape for value in values]
    prepared, labels = network.prepare(X), torch.tensor(y)

    def margins(w: Tensor) -> Tensor:
        pieces = torch.split(w, [shape.numel() for shape in shapes])
        named = {
            name: piece.reshape(shape)
            for name, piece, shape in zip(names, pieces, shapes, strict=True)
        }
        return labels * functional_call(network, named, prepared)

    return margins, torch.cat([value.detach().flatten() for value in values])


def assumptions(quick: bool) -> Rows:
    """Record B.2 to B.5 along gradient flow of a small gated linear network."""
    rng = np.random.default_rng(0)
    X = np.hstack([rng.normal(size=(40, 2)), np.ones((40, 1))])
    y = np.where(X[:, 0] * X[:, 1] > 0, 1.0, -1.0)  # exclusive or
    X, y = X[np.abs(X[:, 0] * X[:, 1]) > 0.15], y[np.abs(X[:, 0] * X[:, 1]) > 0.15]
    contexts = HyperplaneContexts.random(X, 6, 1, random_state=1)
    network = GLN([contexts], seed=0)
    margins, start = network_margins(network, X, y)
    _, joint = np.unique(contexts.contexts(X), axis=0, return_inverse=True)
    joint = joint.ravel()  # a column in some versions of numpy
    norms = np.array([8.0, 12.0, 18.0, 27.0] if quick else [8.0, 12, 18, 27, 40, 60, 90])
    before = None
    for w in shares.gradient_path(margins, start.numpy(), norms, log_loss=LOGISTIC):
        found = shares.record(margins, w, joint, inputs=y[:, None] * X, log_loss=LOGISTIC)
        row = {
            "norm": found.norm,
            "log_loss": float(torch.logsumexp(LOGISTIC(margins(w)), dim=0)),
            "least_margin": found.margins.min(),
            "contexts": len(found.margins),
        }
        if before is not None:
            row["cosine"] = float(w @ before[0]) / (found.norm * before[1].norm)
            row["least_cosine"] = shares.cosines(before[1], found).min()
        yield row
        before = w, found


def _found_assumptions(table: pd.DataFrame) -> str:
    first, last = table.iloc[0], table.iloc[-1]
    positive = int((table["least_margin"] > 0).sum())
    return (
        f"The least normalised margin is above 0 in {positive} of {len(table)} records, and the "
        "directions of parameters and gradients end at cosines of "
        f"{min(last['cosine'], last['least_cosine']):.4f} or more with those of the record before. "
        f"The norm grows from {first['norm']:g} to {last['norm']:g}, gradients are of "
        f"{last['contexts']:.0f} contexts, and the loss falls by a factor of "
        f"10^{(first['log_loss'] - last['log_loss']) / math.log(10):.0f}."
    )


def _written(table: pd.DataFrame) -> pd.DataFrame:
    return table.map(lambda value: "" if pd.isna(value) else f"{value:.5g}")


EXPERIMENTS = {
    "unequal_degrees": Experiment(
        measure=whole(unequal_degrees),
        found=_found_degrees,
        verdict=lambda table: Verdict.of(
            abs(table["angle"].iloc[-1] - LIMIT) < 0.5
            and abs(table["angle"].iloc[-1] - STATIONARY) > 10
        ),
        tabulate=_written,
        draw=_draw_degrees,
    ),
    "assumptions": Experiment(
        measure=whole(assumptions),
        found=_found_assumptions,
        verdict=lambda table: Verdict.of(
            (table["least_margin"] > 0).all()
            and (table["log_loss"].diff().dropna() < 0).all()
            and table[["cosine", "least_cosine"]].iloc[-1].min() >= LEAST_COSINE
        ),
        tabulate=_written,
    ),
}
