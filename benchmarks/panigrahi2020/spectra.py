"""Figure 1 (c, d): eigenvalues of G at the start, at the published width and at infinite width."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import torch
from matplotlib.lines import Line2D

from benchmarks.drawing import Figure, subplots
from benchmarks.harness import Experiment, Judged, Rows, Verdict, parts, whole
from benchmarks.panigrahi2020 import gram_spectrum
from benchmarks.panigrahi2020.gram_spectrum import circle_points, preprocess, separation
from benchmarks.panigrahi2020.shared import DRAWN, FIGURE_1, LOOK, ROUNDING, number
from benchmarks.panigrahi2020.smooth import LEAST
from implicit_bias.base.validation import Array
from implicit_bias.datasets.images import load_digits, load_mnist
from implicit_bias.kernels import gradient_gram as grams
from implicit_bias.report.style import GREY

# What has no kink, so that its eigenvalues are known below the rounding of a matrix.
EXACT = ("swish", "tanh", "quadratic")


def measure(quick: bool) -> pd.DataFrame:
    """Eigenvalues of G: circles of both sizes, and MNIST."""
    sizes, width, runs, images = ((10,), 10**4, 2, 50) if quick else ((10, 50), 10**6, 5, 500)
    data: dict[str, Array] = {}
    for n in sizes:
        circle = circle_points(n, arc=2 * math.pi)
        data[f"half circle, n = {n}"] = circle_points(n)
        data[f"circle, n = {n}"] = circle
        data[f"preprocessed circle, n = {n}"] = preprocess(circle)
    load, name = (load_digits, "digits") if quick else (load_mnist, "MNIST")
    data[f"{name}, n = {images}"] = preprocess((load(append_constant=False).X[:images] + 1) / 2)
    return pd.concat(
        spectrum(name, X, activation, width, runs)
        for name, X in data.items()
        for activation in DRAWN
    ).reset_index(drop=True)


def spectrum(data: str, X: Array, activation: str, width: int, runs: int) -> pd.DataFrame:
    """Eigenvalues of one Gram matrix, largest first, and what theory says of them."""
    phi, n = grams.ACTIVATIONS[activation], len(X)
    infinite = grams.eigenvalues(grams.infinite_gram(X, phi))
    exact = np.full(n, np.nan)
    if activation in EXACT and "circle" in data:
        exact = gram_spectrum.sphere_eigenvalues(X, phi)
    finite = np.full((2, 1, n), np.nan)
    if data.startswith("half") and activation in FIGURE_1:
        finite = np.stack([both_readouts(X, phi, width, run) for run in range(runs)], axis=1)
    deviation = np.abs(finite - infinite).max(axis=(1, 2)) / infinite[0]
    dimension = int(np.linalg.matrix_rank(X))
    return pd.DataFrame(
        {
            "data": data,
            "separation": separation(X),
            "dimension": dimension,
            "activation": activation,
            "width": width,
            "runs": runs,
            "index": np.arange(1, n + 1),
            "infinite": infinite,
            "exact": exact,
            "bound": gram_spectrum.eigenvalue_bounds(phi, n, dimension),
            "gaussian": finite[0].mean(axis=0),
            "signs": finite[1].mean(axis=0),
            "gaussian_deviation": deviation[0],
            "signs_deviation": deviation[1],
        }
    )


def both_readouts(X: Array, phi: grams.Activation, width: int, seed: int) -> Array:
    """Eigenvalues (2, n) at a finite width with readouts N(0, 1), and -1 or +1; same weights."""
    generator = torch.Generator().manual_seed(10**6 + seed)
    gaussian = torch.randn((width, 1), generator=generator, dtype=torch.float64)
    # Two columns of readouts are two classes; the blocks of the diagonal are both Gram matrices.
    readouts = torch.cat([gaussian, torch.sign(gaussian)], dim=1)
    gram = grams.finite_gram(
        X, phi, grams.gaussian_weights(width, X.shape[1], seed=seed), readouts=readouts
    )
    n = len(X)
    return np.stack([grams.eigenvalues(gram[:n, :n]), grams.eigenvalues(gram[n:, n:])])


def draw(frame: pd.DataFrame) -> Figure:
    """Draw the activations of figure 1 (c, d): infinite width as lines, finite width as marks."""
    groups = [group for group in parts(frame, "data") if group[0].startswith(("half", "circle"))]
    figure, axes = subplots(
        (5 * len(groups) / 2, 8), 2, len(groups) // 2, squeeze=False, grid="y", y="eigenvalues of G"
    )
    for ax, (name, rows) in zip(axes.T.reshape(-1), groups, strict=True):
        top = rows["infinite"].max()
        for activation in FIGURE_1:
            values = rows[rows["activation"] == activation]
            rounded = values["infinite"].where(values["infinite"] > ROUNDING * top)
            line = values["exact"].fillna(rounded)
            shown = line > 1e-21 * top
            look = LOOK[activation]
            alone = {"marker": ""} if name.startswith("half") else {"ms": 3}
            ax.plot(values["index"][shown], line[shown], **look | alone)
            marks = values[values["gaussian"] > ROUNDING * top]
            ax.plot(marks["index"], marks["gaussian"], ls="", ms=4, **look)
        ax.set(yscale="log", title=name, ylim=(1e-20 * top, 5 * top))
        ax.set_xlabel("index of the eigenvalue")
    width = f"m = {int(frame['width'].iloc[0]):,}"
    handles = [
        *(Line2D([], [], label=name, **LOOK[name]) for name in FIGURE_1),
        Line2D([], [], color=GREY, marker="o", ls="", label=f"{width}, mean of runs (half circle)"),
        Line2D([], [], color=GREY, label="infinite width"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4)
    return figure


def found(frame: pd.DataFrame) -> str:
    """Say what the spectra show."""
    ends, first = smallest_shares(frame), frame.iloc[0]
    half = [name for name in ends if name.startswith("half")][-1]
    circle = half.removeprefix("half ")
    lost = {
        activation: int((values["infinite"] <= ROUNDING * values["infinite"].max()).sum())
        for activation, values in parts(frame[frame["data"] == circle], "activation")
    }
    deviations = (
        frame[frame["data"] == half]
        .groupby("activation")[["gaussian_deviation", "signs_deviation"]]
        .first()
    )
    shares = "; ".join(
        f"{name} {100 * row.gaussian_deviation:.2f} % and {100 * row.signs_deviation:.2f} %"
        for name, row in deviations.loc[["relu", "tanh"]].iterrows()
    )
    images = [name for name in ends if "circle" not in name][0]
    return (
        f"On the {circle}, {lost['relu']} eigenvalues of ReLU and {lost['tanh']} of tanh vanish. "
        "After the paper's preprocessing of the whole circle the smallest is "
        f"{number(ends[f'preprocessed {circle}']['relu'])} of the largest for ReLU. "
        f"At width m = {first['width']:,}, {first['runs']} runs, the largest deviation of an "
        "eigenvalue from infinite width, over the largest eigenvalue, is with readouts N(0, 1), "
        f"whose squares belong to G, and with -1 and +1, on the {half}: {shares}. {images} (not in "
        "the paper): the samples span almost as many dimensions, and there smooth activations lose "
        f"a factor to ReLU, not ten orders of magnitude (ReLU {number(ends[images]['relu'])}, "
        f"tanh {number(ends[images]['tanh'])}, swish {number(ends[images]['swish'])})."
    )


def tabulate(frame: pd.DataFrame) -> Rows:
    """Smallest over largest eigenvalue."""
    ends = smallest_shares(frame)
    for name, values in parts(frame, "data"):
        first = values.iloc[0]
        deviation = values[["gaussian_deviation", "signs_deviation"]].max()
        yield {
            "data": name,
            "d'": str(first["dimension"]),
            "delta": f"{first['separation']:.3f}",
            "m, N(0, 1)": _percent(deviation.iloc[0]),
            "m, -1 and +1": _percent(deviation.iloc[1]),
            **{
                activation: share_in_words(ratio, name, activation)
                for activation, ratio in ends[name].items()
            },
        }


def _percent(share: float) -> str:
    return "" if math.isnan(share) else f"{100 * share:.2f} %"


def share_in_words(ratio: float, data: str, activation: str) -> str:
    """Write a share of the largest eigenvalue, or below what it is if that is rounding."""
    rounding = LEAST if activation in EXACT and "circle" in data else ROUNDING
    return number(ratio) if ratio > rounding else f"below {rounding:.0e}"


def known(frame: pd.DataFrame) -> pd.Series[float]:
    """Eigenvalues at infinite width, as exact as they are known; 0 below rounding."""
    largest = frame.groupby(["data", "activation"])["infinite"].transform("max")
    exact, infinite = frame["exact"], frame["infinite"]
    return exact.where(exact > LEAST * largest, 0.0).where(
        exact.notna(), infinite.where(infinite > ROUNDING * largest, 0.0)
    )


def ends_of(frame: pd.DataFrame) -> pd.DataFrame:
    """First and last eigenvalue at infinite width, by data and activation; 0 below rounding."""
    values = frame.assign(value=known(frame))
    cells = values.groupby(["data", "activation"], sort=False)["value"]
    return pd.DataFrame({"first": cells.first(), "last": cells.last()})


def smallest_shares(frame: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Smallest over largest eigenvalue at infinite width, by data and activation."""
    ends = ends_of(frame)
    shares = (ends["last"] / ends["first"]).unstack("activation", sort=False)
    return {
        str(name): {str(activation): float(share) for activation, share in row.items()}
        for name, row in shares.iterrows()
    }


def judge(frame: pd.DataFrame) -> dict[str, Judged]:
    """Judge the claim by its rule."""
    last = ends_of(frame)["last"].unstack("activation", sort=False)
    ahead = last[["relu", "elu"]].min(axis=1) > last[["swish", "tanh"]].max(axis=1)
    half, circle = (
        [name for name in last.index if str(name).startswith(start)] for start in ("half", "circle")
    )
    shown = smallest_shares(frame)[half[-1]]
    vanished = [name for name in ("relu", "tanh", "swish") if last.loc[circle[-1], name] == 0]
    shares = smallest_shares(frame)[half[0]]
    values = frame.assign(value=known(frame))
    lines = values.pivot(index=["data", "index"], columns="activation", values="value")
    above = lines[["relu", "elu"]].gt(lines[["swish", "tanh"]].max(axis=1), axis=0)
    above = 100 * above.groupby("data").mean()
    return {
        "figure-1-spectra": Judged(
            verdict=Verdict.of(ahead[[*half, *circle]].all(), ahead[half].all()),
            result=f"Smallest eigenvalue over the largest, {half[-1]}: "
            + ", ".join(
                f"{name} {share_in_words(shown[name], half[-1], name)}"
                for name in ("relu", "elu", "tanh", "swish")
            )
            + f"; {circle[-1]}, where delta = 0: {', '.join(vanished)} 0, "
            f"elu {number(smallest_shares(frame)[circle[-1]]['elu'])}.",
            evidence=(
                "By whole spectra, in place of their ends, the claim stands in part: on the "
                f"{half[-1]} ReLU is above tanh and swish at {above.loc[half[-1], 'relu']:.0f} % "
                f"of the indices and ELU at {above.loc[half[-1], 'elu']:.0f} %, on the "
                f"{circle[-1]} at {above.loc[circle[-1], 'relu']:.0f} % and "
                f"{above.loc[circle[-1], 'elu']:.0f} %; on the {half[0]} the smallest eigenvalue "
                "of ELU, as a share of its largest, is only "
                f"{shares['elu'] / shares['tanh']:.2f} times that of tanh.",
            ),
        )
    }


EXPERIMENT = Experiment(whole(measure), found, tabulate, draw=draw, judge=judge)
