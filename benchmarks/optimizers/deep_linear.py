r"""Deep linear networks: the norm of the product that each geometry of the layers leaves.

Of all factorisations W = W_L ... W_1 that are wide enough,

    min max_l ||W_l||_spectral = ||W||_spectral^(1/L),     min 1/2 sum_l ||W_l||_F^2 ~ ||W||_S(2/L),

the Schatten 2/L quasi-norm: the nuclear norm at L = 2. So Muon's geometry goes towards the largest
spectral margin at any depth, which is a convex problem, and gradient descent towards the nuclear
one at L = 2.

Sources: Tsilivis et al. (2024) and Gronich, Vardi (2026) for KKT points in the norm of the layers;
Gunasekar et al. (2018) for products; the row of the spectral norm is derived here (head of
`implicit_bias.diagnosis.function_space`).
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import nn

from benchmarks.drawing import Figure, common_legend, look_of, subplots
from benchmarks.harness import Row, Rows, Verdict, rows_of
from benchmarks.optimizers.data import samples
from benchmarks.optimizers.descent import margin
from benchmarks.sizes import sized
from benchmarks.words import share_span
from implicit_bias import LimitConfig, max_margin, solve, train_to_limit
from implicit_bias.norms import as_norm

NORMS = ("l2", "spectral", "nuclear")
# Geometry of the layers and depth, with the norm of the product that is said to be maximised.
CLAIMS: dict[tuple[str, int], str] = {
    ("spectral", 2): "spectral",
    ("spectral", 3): "spectral",
    ("spectral", 4): "spectral",
    ("l2", 2): "nuclear",
}
DATA = "k10-sigma1"
REACHED = 0.95


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What is measured: steps of `train_to_limit`, and starts."""

    steps: int = 4000
    starts: int = 1


QUICK = Sizes(steps=30, starts=1)


def settings(sizes: Sizes) -> list[Row]:
    """Every geometry, depth and start."""
    return [
        {"geometry": geometry, "layers": layers, "start": start}
        for geometry, layers in CLAIMS
        for start in range(sizes.starts)
    ]


def rows(sizes: Sizes, geometry: str, layers: int, start: int) -> Rows:
    """One row a recorded step and norm: the product's share of the largest margin."""
    X, y = samples(DATA)
    K, D = int(y.max()) + 1, X.shape[1]
    optima = {norm: solve(max_margin(X, y, norm)).certificate for norm in NORMS}
    torch.manual_seed(start)
    widths = (D, *(D for _ in range(layers - 1)), K)
    parts = [nn.Linear(a, b, bias=False) for a, b in zip(widths, widths[1:], strict=False)]
    network = nn.Sequential(*parts).double()

    def shares(module: nn.Module) -> dict[str, float]:
        matrices = [p.detach().numpy() for p in module.parameters()]
        W = np.linalg.multi_dot(matrices[::-1])
        least = margin(X, y, W)
        return {norm: least / as_norm(norm).value(W) * optima[norm].upper for norm in NORMS}

    config = LimitConfig(steps=sizes.steps, norm=geometry, loss="cross-entropy", record=10)  # type: ignore[arg-type]
    result = train_to_limit(network, X, y, config, measure=shares)
    for point in result.history:
        for norm, share in point.measures.items():
            yield {"step": point.step, "norm": norm, "share": share, "certified": optima[norm].gap}


def ends(frame: pd.DataFrame, least: float = REACHED) -> pd.DataFrame:
    """Return a row a run: shares at the last step."""
    last = frame[frame["step"] == frame["step"].max()]
    keys = ["geometry", "layers", "start"]
    table = last.pivot(index=keys, columns="norm", values="share")[list(NORMS)].reset_index()
    table["claim"] = [CLAIMS[key] for key in zip(table["geometry"], table["layers"], strict=True)]
    table["holds"] = [
        row[row["claim"]] >= least and row[row["claim"]] == max(row[norm] for norm in NORMS)
        for row in rows_of(table)
    ]
    return table


def found(frame: pd.DataFrame) -> str:
    """Say what the table says."""
    parts = []
    for (geometry, layers), claim in CLAIMS.items():
        runs = ends(frame)
        runs = runs[(runs["geometry"] == geometry) & (runs["layers"] == layers)]
        parts.append(f"{share_span(runs[claim])} in {claim} ({layers} layers, {geometry} geometry)")
    return (
        f"**After {frame['step'].max():,} steps the product has of the largest margin "
        f"{'; '.join(parts)}.** Maxima are certified, to "
        f"{frame['certified'].max():.0e}."
    )


def verdict(frame: pd.DataFrame, least: float = REACHED) -> Verdict:
    """Judge the claim by the rule."""
    return Verdict.each(ends(frame, least)["holds"])


def draw(frame: pd.DataFrame) -> Figure:
    """Shortfalls against steps: a panel a geometry and depth, a line a norm."""
    figure, panels = subplots((9.6, 3.4), 1, len(CLAIMS), sharey=True, squeeze=False, grid="both")
    for ax, (geometry, layers) in zip(panels[0], CLAIMS, strict=True):
        runs = frame[(frame["geometry"] == geometry) & (frame["layers"] == layers)]
        for place, norm in enumerate(NORMS):
            own = norm == CLAIMS[geometry, layers]
            for i, (_, run) in enumerate(runs[runs["norm"] == norm].groupby("start")):
                run = run[(run["share"] > 0) & (run["step"] > 0)]
                look = look_of(place) | {"linewidth": 2.2 if own else 1.1}
                shortfall = (1 - run["share"]).clip(lower=1e-6)
                ax.plot(run["step"], shortfall, label=norm if i == 0 else None, **look)
        ax.set(xscale="log", yscale="log", xlabel="steps")
        ax.set_title(f"{layers} layers, {geometry}")
    panels[0][0].set_ylabel("1 - margin of the product / maximum")
    return common_legend(figure, panels[0][:1], len(NORMS))


EXPERIMENT = sized(settings, rows, found, ends, verdict, draw, quick=QUICK)
