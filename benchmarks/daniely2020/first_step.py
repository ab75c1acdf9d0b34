"""The first step from the source's start: lemmas 5 to 9, and what samples add."""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from benchmarks.daniely2020 import parity_first_step as parity
from benchmarks.drawing import Figure, common_legend, subplots
from benchmarks.harness import Experiment, Judged, Rows, Verdict, otherwise, whole
from benchmarks.words import markdown_table, span
from implicit_bias.base.validation import Array
from implicit_bias.base.wording import number, percent
from implicit_bias.datasets.parities import ParityDistribution
from implicit_bias.report.style import BLUE, GREY, VERMILION

# c of lemma 5 at which the share of units is measured.
LEMMA_5_AT = 2.0


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Relevant bits k, bits n and units of each row, and samples."""

    rows: tuple[tuple[int, int, int], ...]
    samples: int


# The last row is inside lemma 9's assumptions, 7 <= k <= n^(1/4) / (2 sqrt 2).
LEAST_BITS = 64 * 7**4
WHOLE = Sizes(
    rows=(
        *((3, n, 512) for n in (11, 21, 41, 81, 161, 321, 641, 1281)),
        *((7, n, 512) for n in (21, 41, 81, 161, 321, 641, 1281)),
        (7, LEAST_BITS + 1, 128),
    ),
    samples=4000,
)
QUICK = Sizes(rows=((3, 11, 64), (3, 21, 64), (7, 21, 64), (7, 31, 64)), samples=500)


def measure(quick: bool) -> Rows:
    """Measure what the lemmas speak of, for every k and n."""
    sizes = QUICK if quick else WHOLE
    return (of_size(*row, sizes.samples) for row in sizes.rows)


def of_size(k: int, n: int, units: int, samples: int) -> dict[str, float]:
    """One row: exact averages of one draw of units, from the start and after the step."""
    distribution = ParityDistribution.random(n, k)
    initial = parity.start(n, k, units)
    signs, biases, readout = (
        values[:units] for values in (initial.weights, initial.biases, initial.readout)
    )
    at = parity.label_averages(distribution, signs, n**-0.5, biases)
    # Bits of A, the other bits, and all that is off A, the constant of the bias included.
    on = np.isin(np.arange(n + 1), distribution.relevant)
    other = ~on[:n]
    good = parity.is_good(distribution, signs)
    bound, uniform = parity.correlation_bound(n, k), np.abs(at.uniform[:, ~on])
    # Of the logarithms of binomial probabilities; at many bits the bound is below it.
    rounding = 4 * n * math.log(n) * np.finfo(float).eps
    alpha = at.easy[good][:, on][:, 0] / 2.0
    moved = parity.first_step(distribution, initial)
    common = (alpha * readout[good])[:, None] / math.sqrt(n)
    return {
        "k": k,
        "n": n,
        "units": units,
        "samples": samples,
        "good": float(good.mean()),
        "good_exact": parity.good_share(k),
        "good_bound": 1.0 / (14.0 * math.sqrt(k)),
        "alpha_least": float(alpha.min()),
        "alpha_largest": float(alpha.max()),
        "on": rms(at.mean[:, on]),
        "off": rms(at.mean[:, :n][:, other]),
        "off_good": float(np.abs(at.mean[good][:, ~on]).max()),
        "lemma_5_within": float((uniform <= LEMMA_5_AT * bound + rounding).mean()),
        "lemma_5": float(uniform.max() / bound) if bound > rounding else math.nan,
        "lemma_8": lemma_8(distribution, signs, at.mean, on),
        "lemma_9_on": float(np.abs(moved.weights[:units][good][:, on[:n]] - common).max()),
        "lemma_9_off": float(np.abs(moved.weights[:units][good][:, other]).max()) * (n - 1),
        "lemma_9_bias": float(np.abs(moved.biases[:units] - biases)[good].max()) * n**0.5,
        # Standard deviation of a mean of so many signs, 0 where the gate is shut.
        "noise": math.sqrt(at.easy[:, on].mean() / samples),
    }


def lemma_8(
    distribution: ParityDistribution, signs: Array, averages: Array, on: NDArray[np.bool_]
) -> float:
    """Return the least C of lemma 8 for h = y and h = y x_j, j in A: means 0 and 1/2 over D_A."""
    n, k = distribution.n_bits, distribution.k
    active = (signs[:, ~on[:n]] != 0).sum(axis=1)
    phi = np.array([parity.open_share(n, k, int(m), 1.0 / (8 * k)) for m in active])
    errors = np.maximum(
        np.abs(averages[:, n]), np.abs(averages[:, on] - phi[:, None] / 2.0).max(axis=1)
    )
    return float((errors * np.sqrt(active) / k).max())


def rms(values: ArrayLike) -> float:
    """Root mean square of all entries."""
    return math.sqrt(float(np.mean(np.square(values))))


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """All rows, every k and n."""
    return frame.assign(off_good=[number(value, 1) for value in frame["off_good"]])


def found(frame: pd.DataFrame) -> str:
    """In words, and the lemmas in a table."""
    first = frame.iloc[0]
    lines = []
    for k, rows in frame.groupby("k"):
        one, last = rows.iloc[0], rows.iloc[-1]
        slope = math.log(last["off"] / one["off"]) / math.log(last["n"] / one["n"])
        lines.append(
            f"k = {k}: {percent(one['good_exact'])} of all units are good, as an exact count says "
            f"(at least 1/(14 sqrt k) = {percent(one['good_bound'])}, lemma 9); off A the entries "
            f"of all units fall like n^{slope:.1f}"
        )
    return (
        f"The share of entries within lemma 5's bound at c = {LEMMA_5_AT:g} is "
        f"{percent(frame['lemma_5_within'].min())} at its least (paper: at least "
        f"{percent(1 - 1 / LEMMA_5_AT)}), the largest entry of good units off A is "
        f"{number(frame['off_good'].max(), 1)}, and C of lemma 8 is at most "
        f"{frame['lemma_8'].max():.2f}.\n\n{'; '.join(lines)}. Entries off A are those of the "
        "bias, too, and of both halves. On A all weights of a good unit share alpha u / sqrt(n), "
        f"alpha from {frame['alpha_least'].min():.4f} to {frame['alpha_largest'].max():.4f}.\n\n"
        + markdown_table(lemmas(frame))
        + f"\n\nSizes: {span(frame['units'])} units from the source's start, n odd; all "
        f"averages are exact sums; the noise is that of {first['samples']:.0f} samples. Lemma 9 "
        f"asks for 7 <= k <= n^(1/4) / (2 sqrt 2), so for n >= {LEAST_BITS:,} bits: "
        f"{len(assumed(frame))} of {len(frame)} sizes have that many."
    )


def lemmas(frame: pd.DataFrame) -> pd.DataFrame:
    """Constants of lemmas 5 to 9, over all sizes."""

    def ours(column: str) -> str:
        return span(frame[column], ".2g")

    at, asked, derived = LEMMA_5_AT, 1 - 1 / LEMMA_5_AT, 1 - 1 / LEMMA_5_AT**2
    within = percent(frame["lemma_5_within"].min())
    lemma_6 = (frame["lemma_5"] / (frame["n"] - 1)).max()
    most = parity.OPEN_SHARE_ERROR
    share = f"at least {within} (derived: {percent(derived)})"
    rows = [
        (f"5, c = {at:g}", "share within lemma 5's bound", f"at least {percent(asked)}", share),
        ("5", "c of the largest entry", "c with probability 1 - 1/c", ours("lemma_5")),
        ("6", "C of the largest entry", "C with probability 1 - 1/C", f"at most {lemma_6:.2g}"),
        ("8", "C of h = y and h = y x_j", f"{most:.2f} (derived)", ours("lemma_8")),
        ("9", "on A, distance from alpha u / sqrt(n)", "at most C_1", ours("lemma_9_on")),
        ("9", "off A, times n - 1", "at most C_2", ours("lemma_9_off")),
        ("9", "movement of the bias, times sqrt(n)", "at most C_3", ours("lemma_9_bias")),
    ]
    return pd.DataFrame(rows, columns=["lemma", "what is measured", "paper", "ours"])


def draw(frame: pd.DataFrame) -> Figure:
    """Draw the gradient against n for each k, with its limits."""
    figure, (panels,) = subplots((8.4, 4.4), 1, frame["k"].nunique(), sharey=True, squeeze=False)
    for ax, (k, rows) in zip(panels, frame.groupby("k"), strict=True):
        n = rows["n"]
        ax.plot(n, rows["on"], "s-", color=BLUE, label="on A, all units")
        ax.plot(n, rows["off"], "^", color=VERMILION, label="off A, all units")
        label = f"noise of {rows['samples'].iloc[0]} samples"
        ax.plot(n, rows["noise"], "-.", color=GREY, label=label)
        ax.set(xscale="log", yscale="log", xlabel="bits n", title=f"k = {k}")
    panels[0].set(ylabel="sqrt(n) E[y sigma' x], rms")
    return common_legend(figure, panels, 3)


def verdict(frame: pd.DataFrame) -> Verdict:
    """Judge the claim by the rule."""
    zero = (frame["off_good"] < 1e-9).all()
    lemma_5 = (frame["lemma_5_within"] >= 1 - 1 / LEMMA_5_AT).all()
    lemma_8 = (frame["lemma_8"] <= parity.OPEN_SHARE_ERROR).all()
    return Verdict.of(zero and lemma_5 and lemma_8, zero)


def assumed(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows inside the assumptions of lemma 9."""
    return frame[(frame["k"] >= 7) & (64 * frame["k"] ** 4 <= frame["n"])]


def lemma_9(frame: pd.DataFrame) -> Judged:
    """Judge lemma 9 where its assumptions are met."""
    rows = assumed(frame)
    if rows.empty:
        return Judged(verdict=Verdict.UNTESTED, result="No size has so many bits.")
    one = rows.iloc[0]
    shares = (rows["good_exact"] >= rows["good_bound"]).all()
    alpha = (rows["alpha_least"] > 0.25 - 1e-6).all() and (rows["alpha_largest"] <= 1).all()
    # |J| of a good unit is about 2n/3, so that lemma 8 gives C_1 of about 1.6 * (3/2)^(1/2).
    nothing = (rows[["lemma_9_off", "lemma_9_bias"]] <= 1).all(axis=None)
    largest = rows["lemma_9_on"].max()
    asked, other = (
        Verdict.of(shares and alpha and near and nothing, shares and alpha)
        for near in (largest <= 2, largest <= 1)
    )
    return Judged(
        verdict=asked,
        remark=otherwise(other, "a C_1 of at most 1"),
        result=f"At k = {one['k']:.0f} and n = {one['n']:,.0f}, {percent(one['good_exact'])} of "
        f"the units are good by exact count ({percent(one['good'])} of the units drawn), "
        "with initial weights that sum to 0 over A (at least "
        f"{percent(one['good_bound'])}), their alpha is {one['alpha_least']:.4f} to "
        f"{one['alpha_largest']:.4f}, C_1 is {one['lemma_9_on']:.2g}, and C_2 = C_3 = "
        f"{one['lemma_9_off']:.0f}.",
    )


def lemma_10(k: int = 7, n: int = LEAST_BITS) -> Judged:
    """Judge lemma 10 as printed, and with max(0, .) and the range of the network's readouts."""
    sizes = [(r, alpha) for r in range(-k, k + 1, 2) for alpha in (0.25, 1.0)]
    asked = [(r, alpha, eps) for r, alpha in sizes for eps in (0.01, 1.0, k * abs(r))]
    off = max(parity.ceiling_error(k, r) for r, _ in sizes)
    shares = []
    for r, alpha, eps in asked:
        low, high = parity.near_readouts(n, k, r, alpha, eps)
        inside = min(high, n / k) - max(low, -n / k)
        shares.append(inside / (2 * n / k) / (eps / (8 * k**2)))
    # Equal at |r| alpha = k, but for rounding.
    emended = Verdict.of(min(shares) >= 1 - 1e-9)
    return Judged(
        verdict=Verdict.of(off == 0),
        remark=f" as printed; with max(0, .) and [-n/k, n/k]: {emended.value}",
        result=f"With ReLU6 on both sides, k = {k} and |r| = {k} no u is nearer than {off:.0f}, "
        f"whatever its range. With max(0, .) and [-n/k, n/k] the share is {min(shares):.0f} to "
        f"{max(shares):.0f} times eps/(8 k^2).",
    )


EXPERIMENT = Experiment(whole(measure), found, tabulate, verdict, draw)
