"""Theorems 4.7, I.3 and I.4: smoothed data in many dimensions keep eigenvalues polynomial."""

import itertools
import math

import numpy as np
import pandas as pd

from benchmarks.drawing import Figure, common_legend, look_of, subplots, tick_values
from benchmarks.harness import Experiment, Judged, Rows, Verdict, parts, whole
from benchmarks.panigrahi2020 import gram_bounds as bounds
from benchmarks.panigrahi2020.gram_spectrum import smoothed_points
from benchmarks.panigrahi2020.shared import ROUNDING, number, power, powers
from benchmarks.words import span, with_interval
from implicit_bias.base.validation import Array
from implicit_bias.kernels import gradient_gram as grams
from implicit_bias.report.style import COLOURS, GREY

TANH, CUBIC = "tanh", "cubic"
# gamma of theorem 4.7: d' is sqrt n, or twice as much.
GAMMA = 0.5
EVEN, ONE = "points taken equally often", "one point n - d' + 1 times"
SIZE = {1: "sqrt n", 2: "2 sqrt n"}
# Standard deviations of the noise, and the one at which sizes are compared.
NOISES, SHOWN = (0.4, 0.2, 0.1, 0.05, 0.025, 0.0125), 0.1
# By how much a power that is measured may be off.
OFF = 0.1


def measure(quick: bool) -> Rows:
    """Smallest eigenvalues of tanh and of z^3 against the noise and the number of samples."""
    roots, runs = ((9, 10), 2) if quick else ((9, 10, 12, 14, 17, 20), 10)
    for base, times, root, activation in itertools.product(
        (EVEN, ONE), (1, 2), roots, (TANH, CUBIC)
    ):
        phi, n, dimension = grams.ACTIVATIONS[activation], root**2, times * root
        # 3, as C(d', 3) >= n from 9 on, and d' < n; also of z^3.
        degree = bounds.smoothed_degree(n, dimension)
        for noise, run in itertools.product(NOISES, range(runs)):
            X = smoothed_points(points(base, n, dimension), noise, seed=run)
            values = grams.eigenvalues(grams.infinite_gram(X, phi))
            power_gram = (X @ X.T) ** degree
            yield {
                "base": base,
                "activation": activation,
                "times": times,
                "dimension": dimension,
                "n": n,
                "noise": noise,
                "run": run,
                "degree": degree,
                "smallest": values[-1],
                "largest": values[0],
                "hadamard": bounds.hadamard_bound(X, phi, powers=8),
                "khatri_rao": math.sqrt(max(grams.eigenvalues(power_gram)[-1], 0.0)),
            }


def points(base: str, n_samples: int, dimension: int) -> Array:
    """Return unit vectors that span d' dimensions and are no more than d' different ones."""
    index = np.arange(n_samples)
    which = index % dimension if base == EVEN else np.maximum(index - (n_samples - dimension), 0)
    return np.eye(dimension)[which]


def exponents(rows: pd.DataFrame, column: str = "smallest") -> tuple[dict[int, Array], float]:
    """Powers of the noise where it is least, by n, one a draw, and the power of n at one noise."""
    noise = {n: powers(cells, "noise", column) for n, cells in parts(rows, "n")}
    middle = rows[rows["noise"] == SHOWN].groupby("n")[column].min()
    return noise, power(middle.index.to_numpy(dtype=float), middle)


def draw(frame: pd.DataFrame) -> Figure:
    """Draw the smallest eigenvalue of tanh against the noise, and against n, with lemma I.1."""
    figure, axes = subplots(
        (10, 5), 1, 2, sharey=True, grid="y", y="smallest eigenvalue of G, tanh"
    )
    rows = frame[frame["activation"] == TANH].groupby(["base", "times", "n", "noise"], sort=False)
    least, n = rows[["smallest", "hadamard"]].min().reset_index(), frame["n"].max()
    for ax, cells, x, label in (
        (axes[0], least[least["n"] == n], "noise", f"noise sigma, n = {n}"),
        (axes[1], least[least["noise"] == SHOWN], "n", f"samples n, sigma = {SHOWN}"),
    ):
        for i, ((base, times), line) in enumerate(parts(cells, "base", "times")):
            name = f"d' = {SIZE[times]}, {base}"
            ax.plot(line[x], line["smallest"], **look_of(i, markers=True), label=name)
            ax.plot(line[x], line["hadamard"], ":", color=COLOURS[i], lw=1)
        ax.set(xscale="log", yscale="log", xlabel=label)
        tick_values(ax, cells[x])
    few = np.array(NOISES[-3:])
    for exponent, style, name in ((4, "-", "theorem 4.7"), (6, "--", "theorem I.4")):
        shape = 3e-8 * (few / few[0]) ** exponent
        axes[0].plot(few, shape, style, color=GREY, lw=1, label=f"sigma^{exponent}: {name}")
    axes[1].plot([], [], ":", color=GREY, lw=1, label="bound of lemma I.1")
    return common_legend(figure, axes, 3)


def found(frame: pd.DataFrame) -> str:
    """Say what the data are."""
    degree = int(frame["degree"].max())
    return (
        "Bases that span d' dimensions: d' different points only, so that without noise "
        "lambda_min = 0, each equally often, or one of them n - d' + 1 times and the others once; "
        f"d' = sqrt n or 2 sqrt n, gamma = 1/2, p = {degree}, the smallest odd one with C(d', p) "
        ">= n; "
        f"{frame['run'].nunique()} draws at infinite width, as the widths of I.3 and I.4 are "
        "beyond reach. Powers of sigma are means over the draws, at the three smallest noises, "
        f"those of n of the least eigenvalue at sigma = {SHOWN}."
    )


def tabulate(frame: pd.DataFrame) -> Rows:
    """Powers and bounds by base and n, of tanh."""
    for (base, _), rows in parts(frame[frame["activation"] == TANH], "base", "times"):
        noise, _ = exponents(rows)
        for n, cells in parts(rows, "n"):
            middle = cells[cells["noise"] == SHOWN].min(numeric_only=True)
            yield {
                "base": base,
                "n": str(n),
                "d'": f"{middle['dimension']:.0f}",
                "p": f"{middle['degree']:.0f}",
                "power of sigma": with_interval(noise[n]),
                f"lambda_min, sigma = {SHOWN}": number(middle["smallest"]),
                "I.1": number(middle["hadamard"]),
            }


def judge(frame: pd.DataFrame) -> dict[str, Judged]:
    """Judge each claim by its rule."""
    degree, judged = int(frame["degree"].max()), {}
    for name, activation, column, most, least in (
        ("theorem-4-7", TANH, "smallest", 2 / GAMMA, -2 / GAMMA),  # delta = 2 sqrt(n) sigma
        ("theorem-i4", TANH, "smallest", 2 * degree, -1 - 2 * degree),
        ("theorem-i3", CUBIC, "smallest", 2 * degree, -1 - 2 * degree),
        ("lemma-i2", TANH, "khatri_rao", degree, -0.5 - degree),
    ):
        holds, top, of_n, said = {1: True, 2: True}, {1: -np.inf, 2: -np.inf}, [], []
        for (base, times), rows in parts(frame[frame["activation"] == activation], "base", "times"):
            noise, number_of = exponents(rows, column)
            means = np.array([each.mean() for each in noise.values()])
            holds[times] &= max(means) < most + OFF and number_of > least - OFF
            top[times] = max(top[times], max(means))
            of_n.append(number_of)
            said.append(f"{span(means, '.1f')} with d' = {SIZE[times]}, {base}")
        what = "sigma_n" if column == "khatri_rao" else "lambda_min"
        wider = "" if holds[1] else f", sigma^{top[2]:.1f} with {SIZE[2]}"
        judged[name] = Judged(
            verdict=Verdict.of(all(holds.values()), holds[2]),
            result=f"At worst {what} ~ sigma^{top[1]:.1f} with d' = {SIZE[1]}{wider} (allowed: "
            f"{most:g}), and n^{min(of_n):.1f} ({least:g}).",
            remark="" if holds[1] else f"; with d' = {SIZE[2]}: {Verdict.of(holds[2]).value}",
            evidence=(f"Powers of sigma: {'; '.join(said)}.",),
        )
    # Eigenvalues are right up to rounding of the largest one.
    allowed = frame["hadamard"] - ROUNDING * frame["largest"]
    ratio = (frame["smallest"] / frame["hadamard"])[frame["hadamard"] > 1e-6 * frame["largest"]]
    return judged | {
        "lemma-i1": Judged(
            verdict=Verdict.of((frame["smallest"] >= allowed).all()),
            result=f"lambda_min is {span(ratio, number)} times the best of its first 8 bounds.",
        ),
    }


EXPERIMENT = Experiment(whole(measure), found, tabulate, draw=draw, judge=judge)
