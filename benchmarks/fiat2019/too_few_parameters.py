"""The loss that is left with too few parameters, against 1 - kd/m; random-filter improvement.

m Gaussian inputs of dimension d, independent N(0, 1) targets, no bias units, k units:

========  ==========================================================================================
GaLU      hard gates, by least squares
REDRAWN   the same after 512 filters were redrawn one at a time, each kept where the loss does not
          rise (algorithm 1), at one small size for each kd/m
ReLU      by the published training: Adam, rate 0.001, batches of 128, 100,000 steps
========  ==========================================================================================

Published are means over all sizes of equal kd/m, m in {1024, 768, 512, 256}, d and k in {32, 24,
16, 8}, and 16 draws. Losses are divided by the draw's own variance of the targets: the mean is the
same, by symmetry, with less noise.

Source: Fiat, Malach, Shalev-Shwartz, theorem 2 and figure 2 of arXiv:1906.05032 (2019); theorem 1,
algorithm 1 and figure 2 of the submission of 2018, whose values are those of the authors' file.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.bench import Part, part
from benchmarks.drawing import Figure, subplots
from benchmarks.effects import Effect
from benchmarks.fiat2019.gated_layers import GatedLayers
from benchmarks.fiat2019.published_training import STEPS, squared_error, train_as_published
from benchmarks.fiat2019.search_procedures import improve_filters
from benchmarks.fiat2019.theorems_1_and_2 import expected_loss
from benchmarks.summaries import low_high
from implicit_bias.base.style import BLACK, BLUE, GREEN, GREY, VERMILION
from implicit_bias.base.validation import Array
from implicit_bias.kernels.least_squares import least_squares
from implicit_bias.problem.gating import UnitGates

COST = 110

REDRAWN = "GaLU(512)"
# kd/m, and the mean squared errors of the submission's figure 2.
PUBLISHED = {
    "share": (0.0625, 0.125, 0.25, 0.375, 0.5, 0.75, 1.0),
    "ReLU": (0.915, 0.824, 0.641, 0.470, 0.325, 0.105, 0.010),
    "GaLU": (0.958, 0.877, 0.744, 0.625, 0.505, 0.256, 0.001),
    REDRAWN: (0.882, 0.771, 0.599, 0.463, 0.321, 0.124, 0.000),
}
# All published sizes (m, d, k) of these kd/m.
SIZES = [
    (m, d, k)
    for m, d, k in itertools.product((1024, 768, 512, 256), (32, 24, 16, 8), (32, 24, 16, 8))
    if k * d / m in PUBLISHED["share"]
]
# Those at which filters are redrawn.
SMALL = [
    (1024, 8, 8),
    (512, 8, 8),
    (256, 8, 8),
    (512, 24, 8),
    (256, 16, 8),
    (256, 24, 8),
    (256, 32, 8),
]
DRAWS, REDRAWS = 16, 512
QUICK_SIZES = [(128, 8, round(16 * share)) for share in PUBLISHED["share"]]


def measure(quick: bool) -> Iterator[Part]:
    """Fit GaLU and train ReLU at all sizes, and redraw filters at the small ones."""
    draws, steps, redraws = (1, 500, 30) if quick else (DRAWS, STEPS, REDRAWS)
    sizes, small = (QUICK_SIZES, QUICK_SIZES) if quick else (SIZES, SMALL)
    for seed, (m, d, k) in itertools.product(range(draws), sizes):
        size = {"seed": seed, "m": m, "d": d, "k": k}
        yield part(fitted, network="GaLU", steps=0, **size)
        if (m, d, k) in small:
            yield part(fitted, network=REDRAWN, steps=redraws, **size)
        yield part(fitted, network="ReLU", steps=steps, **size)


def fitted(network: str, steps: int, seed: int, m: int, d: int, k: int) -> Iterator[dict[str, Any]]:
    """Fit a network to a draw that all networks of its size share; steps: of Adam, or redraws."""
    rng = np.random.default_rng([m, d, k, seed] if seed else [m, d, k])
    X = rng.normal(size=(m, d))
    y = rng.normal(size=m)
    gating = UnitGates(rng.normal(size=(k, d)), np.zeros(k), ">=")
    found = least_squares(X, gating.gates(X), y)
    loss = found.loss
    if network == "ReLU":
        loss = relu_loss(X, y, k, seed, steps)
    if network == REDRAWN:
        loss = improve_filters(gating, X, y, proposals=steps, random_state=seed).losses[-1]
    yield {"rank": found.rank, "variance": float(np.mean(y**2)), "loss": loss}


def relu_loss(X: Array, y: Array, width: int, seed: int, steps: int) -> float:
    """Mean squared error of a trained ReLU network."""
    network = GatedLayers([X.shape[1], width, 1], "relu", bias=False, seed=seed)
    train_as_published(network, X, y[:, None], "squared", steps=steps, seed=seed)
    return squared_error(network, X, y[:, None])


def scaled(frame: pd.DataFrame) -> pd.DataFrame:
    """Add kd/m, the loss over the variance of the targets, and 1 - rank/m."""
    return frame.assign(
        share=frame["k"] * frame["d"] / frame["m"],
        loss=frame["loss"] / frame["variance"],
        theory=expected_loss(frame["rank"], frame["m"]),
    )


def by_share(frame: pd.DataFrame) -> pd.DataFrame:
    """Means over draws and then sizes of equal kd/m, by share and network, with those published."""
    of_size = scaled(frame).groupby(["share", "network", "m", "d", "k"])[["loss", "theory"]].mean()
    means = of_size.groupby(["share", "network"]).mean()
    published = pd.DataFrame(PUBLISHED).melt("share", var_name="network", value_name="published")
    return means.join(published.set_index(["share", "network"]))


def numbers(frame: pd.DataFrame) -> dict[str, Any]:
    """Compare losses with theory, with each other, and with the published means."""
    means = by_share(frame)
    galu = means.xs("GaLU", level="network")
    relu = means.xs("ReLU", level="network")
    off = (means["loss"] - means["published"]).abs().groupby("network").max()
    fits = frame[frame["network"] == "GaLU"]
    trained = frame[frame["network"] == "ReLU"]
    draws = trained.groupby(["m", "d", "k"])["seed"].nunique()
    share = relu.index.to_numpy()
    ahead = lead_of_relu(frame)
    # At kd/m = 1 GaLU has a loss of 0, and twice the units are compared up to kd/m = 1/2.
    half = share[share <= 0.5]
    twice = relu["loss"][half].to_numpy() - galu["loss"][2 * half].to_numpy()
    published_twice = relu["published"][half].to_numpy() - galu["published"][2 * half].to_numpy()
    # Filters are redrawn at some of the sizes: compared are trainings of the same.
    sizes = frame.loc[frame["network"] == REDRAWN, ["m", "d", "k"]].drop_duplicates()
    same = by_share(frame.merge(sizes))["loss"].unstack()
    same = same[same.index < 1]
    return {
        "galu_off_theory": (galu["loss"] - galu["theory"]).abs().max(),
        "relu_ahead": (galu["loss"] - relu["loss"]).max(),
        "relu_behind": (relu["loss"] - galu["loss"]).max(),
        "relu_above_half": (relu["loss"] - (1 - 2 * share)).min(),
        "lead_half": Effect.of(ahead["lead"], ahead["seed"]),
        "galu_half": galu["loss"][0.5],
        "relu_half": relu["loss"][0.5],
        "redrawn_half": means["loss"][0.5, REDRAWN],
        "published_galu_half": galu["published"][0.5],
        "published_relu_half": relu["published"][0.5],
        "relu_off_published": off["ReLU"],
        "galu_off_published": off["GaLU"],
        "redrawn_off_published": off[REDRAWN],
        "full_rank": int((fits["rank"] == np.minimum(fits["m"], fits["k"] * fits["d"])).sum()),
        "fits": len(fits),
        "sizes": len(draws),
        **low_high("relu_draws", draws),
        **low_high("twice", twice),
        **low_high("published_twice", published_twice),
        **low_high("redrawn_ahead", same["ReLU"] - same[REDRAWN]),
    }


def lead_of_relu(frame: pd.DataFrame) -> pd.DataFrame:
    """Loss of GaLU minus that of ReLU in each draw that both have, at kd/m = 1/2."""
    half = scaled(frame).query("share == 0.5")
    size = ["seed", "m", "d", "k"]
    both = half.pivot_table(index=size, columns="network", values="loss")
    both = both.dropna(subset=["GaLU", "ReLU"])
    return both.assign(lead=both["GaLU"] - both["ReLU"]).reset_index()


def draw(frame: pd.DataFrame) -> Figure:
    """Draw means over the sizes against kd/m; crosses are the reported values."""
    figure, ax = subplots((5.6, 4.0))
    ax.plot([0, 1], [1, 0], color=BLACK, linestyle="--", label="1 - kd/m")
    ax.plot([0, 0.5], [1, 0], color=GREY, linestyle=":", label="1 - 2kd/m")
    means = by_share(frame)
    looks = (("GaLU", BLUE, "o"), (REDRAWN, GREEN, "s"), ("ReLU", VERMILION, "^"))
    for name, colour, marker in looks:
        rows = means.xs(name, level="network")
        ax.plot(rows.index, rows["loss"], marker, color=colour, alpha=0.7, label=name)
        ax.plot(rows.index, rows["published"], "x", color=colour)
    ax.plot([], [], "x", color=GREY, label="reported")
    ax.set(xlabel="kd/m", ylabel="mean squared error, share of variance", ylim=(-0.03, 1.03))
    ax.legend()
    return figure
