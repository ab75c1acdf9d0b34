"""Lemmas 11 and 12: after one step the units copy hinges of z, and a second layer separates."""

import math
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd

from benchmarks.daniely2020 import parity_first_step as parity
from benchmarks.daniely2020.parity_separation import separating_layer
from benchmarks.drawing import Figure, common_legend, subplots
from benchmarks.harness import Experiment, Rows, Verdict, parts, whole
from benchmarks.words import span
from implicit_bias.base.wording import percent
from implicit_bias.datasets.parities import ParityDistribution, cube
from implicit_bias.report.style import BLACK, BLUE, GREEN, GREY, VERMILION

# eps of lemma 11, and delta of lemma 12.
EPS, DELTA = 0.5, 0.1
# Pairs from which every start should separate.
WIDE = 1000


@dataclass(frozen=True)
class Size:
    """Relevant bits, bits, pairs of units, and seed of the start."""

    k: int
    n: int
    q: int
    seed: int


WHOLE = tuple(
    Size(k, n, q, seed)
    for k, bits in ((3, (13, 101, 1001)), (5, (101,)), (7, (101, 1001)))
    for n in bits
    for q in (30, 100, 300, 1000)
    for seed in range(3)
    if (n, k, q) != (1001, 7, 1000)
)
QUICK = tuple(Size(3, n, 30, seed=1) for n in (9, 101))


def measure(quick: bool) -> Rows:
    """Separating layers, and shares of units near a hinge, for every size and seed."""
    return (of_size(size) for size in (QUICK if quick else WHOLE))


def of_size(size: Size) -> dict[str, float]:
    """One row; without a separating layer its numbers are missing."""
    distribution = ParityDistribution.random(size.n, size.k, random_state=size.seed)
    initial = parity.start(size.n, size.k, size.q, random_state=size.seed)
    units = parity.first_step(distribution, initial)
    good = parity.is_good(distribution, initial.weights)
    only_good = parity.TwoLayers(units.weights[good], units.biases[good], units.readout[good])
    levels = [r for r in range(-size.k, size.k + 1, 2)]
    shares = [
        float((parity.worst_errors(distribution, units, r) <= 2 * EPS).mean()) for r in levels
    ]
    row = {
        **asdict(size),
        "eps": EPS,
        "least_share": min(shares),
        "mean_share": float(np.mean(shares)),
        "share_bound": EPS / (112 * size.k**2.5),
        "lemma_12_width": size.k**7 * math.log((size.k + 1) / DELTA),
        "readout": float(np.abs(units.readout).max() * math.sqrt(size.n) / size.k),
        "good": int(good.sum()),
        "separates": False,
    }
    spread = separating_layer(distribution, only_good)
    if spread is None:
        return row
    few = separating_layer(distribution, only_good, least="sum")
    assert few is not None  # the same inequalities
    return row | {
        "separates": True,
        "margin": spread.margin,
        "listed_margin": listed_margin(distribution, only_good, spread.readout),
        "norm": spread.norm,
        "norm_constant": spread.norm * math.sqrt(size.q) / size.k**5,
        "used_constant": spread.n_used * size.k**2.5 / size.q,
        "few_used": few.n_used,
        "largest_output": float(parity.hidden_ranges(distribution, only_good)[2].max()),
    }


def listed_margin(
    distribution: ParityDistribution, units: parity.TwoLayers, readout: np.ndarray
) -> float:
    """Smallest margin over all inputs, one by one; nan where they are too many to list."""
    if distribution.n_bits > 20:
        return math.nan
    bits = cube(distribution.n_bits)
    return float((distribution.labels(bits) * (units.hidden(bits) @ readout)).min())


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """Means over the seeds."""
    starts, found = (
        rows.groupby(["k", "n", "q"], sort=False) for rows in (frame, frame[frame["separates"]])
    )
    table = starts.mean(numeric_only=True)[["good", "least_share", "share_bound"]].join(
        found[["norm", "norm_constant", "used_constant", "few_used"]].mean()
    )
    counts = {"separating": starts["separates"].sum(), "starts": starts.size()}
    return table.assign(**counts, largest=found["largest_output"].max()).reset_index()


def found(frame: pd.DataFrame) -> str:
    """In words."""
    yes = frame[frame["separates"]]
    listed = yes[yes["listed_margin"].notna()]
    wide = frame[frame["q"] >= WIDE]
    norms = wide["norm_constant"]
    return (
        f"With q = {WIDE} pairs a separating layer exists for {int(wide['separates'].sum())} of "
        f"{len(wide)} starts, although lemma 12 asks, at its least k = 7, for "
        f"{frame['lemma_12_width'].max():.2g} (k^7 log((k+1)/delta), delta = {DELTA:g}, constant "
        f"1). Of all {len(frame)} starts it exists for {len(yes)}. There is none where no "
        "good unit has its kink between two neighbouring values of z: the kink is near b n / "
        f"(alpha |u|), so that few are far out. With q = {WIDE} the norm is "
        f"{span(norms, '.2g')} times k^5 / sqrt(q): B of the lemma is a small number. The layer "
        f"of least largest weight reads {span(yes['used_constant'], '.2g')} times q / "
        f"k^(5/2) units; the one of least sum of weights reads {span(yes['few_used'], '.0f')}. "
        f"The good units, of which it reads some, have outputs of at most "
        f"{yes['largest_output'].max():.2f} (lemma 12: at most 1). Where the inputs can be "
        f"listed, the smallest margin over all of them is {listed['listed_margin'].min():.6f} or "
        f"more. Units within 2 eps = {2 * EPS:g} of a hinge psi_r on all inputs: "
        f"{span(frame['mean_share'], percent)} of all, in the mean over r. Lemma 11 says at least "
        f"eps / (112 k^(5/2)), which is {span(frame['share_bound'], percent)} here. After the step "
        f"|u| is at most {frame['readout'].max():.2f} times k / sqrt(n) (lemma 14: at most "
        "once).\n\n"
        f"Sizes: the exact first step of {frame['seed'].nunique()} starts for each size."
    )


def draw(frame: pd.DataFrame) -> Figure:
    """Draw norms against the width, and shares near a hinge against k."""
    figure, (left, right) = subplots((8.4, 4.2), 1, 2)
    marks = {3: (BLUE, "o"), 5: (GREEN, "s"), 7: (VERMILION, "^")}
    for (k, n), group in parts(frame, "k", "n"):
        colour, mark = marks[k]
        means = group.groupby("q")["norm_constant"].mean()
        fill = "full" if n == 101 else "none" if n > 101 else "left"
        label = f"k = {k}, n = {n}"
        left.plot(means.index, means, f"{mark}-", color=colour, fillstyle=fill, label=label)
        share = group.groupby("q")["mean_share"].mean()
        right.plot(share.index, 100 * share, f"{mark}-", color=colour, fillstyle=fill)
    for k, (colour, _) in marks.items():
        bounds = frame.loc[frame["k"] == k, "share_bound"]
        if len(bounds):
            right.axhline(100 * bounds.iloc[0], color=colour, linestyle=":", linewidth=1)
    left.axhline(1, color=BLACK, linestyle="--", linewidth=1, label="k^5 / sqrt(q)")
    right.plot([], [], ":", color=GREY, label="lemma 11, at least")
    left.set(xscale="log", yscale="log", xlabel="pairs q", ylabel="||u*|| sqrt(q) / k^5")
    right.set(xscale="log", yscale="log", xlabel="pairs q", ylabel="units near a hinge, %")
    return common_legend(figure, (left, right), 4)


def verdict(frame: pd.DataFrame) -> Verdict:
    """Judge the claim by the rule: only where the lemmas claim something, constants 1."""
    rows = frame[(frame["k"] >= 7) & (frame["n"] >= frame["k"] ** 10)]
    rows = rows[rows["q"] >= rows["lemma_12_width"]]
    if rows.empty:
        return Verdict.UNTESTED
    shape = (rows["norm_constant"] <= 10).all() and (rows["largest_output"] <= 1).all()
    near = (rows["mean_share"] >= rows["share_bound"]).all()
    return Verdict.of(rows["separates"].all() and shape and near, near)


EXPERIMENT = Experiment(whole(measure), found, tabulate, verdict, draw)
