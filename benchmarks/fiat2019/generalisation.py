"""Test loss of the minimum-norm interpolant, for labels that the kernel can represent.

x uniform on the sphere of R^10; labels f*(x) = sum_j c_j kappa(x, z_j) with 20 centres z_j on the
sphere, scaled so that |f*| <= 1 on a large sample; M^2 = c' kappa(Z) c. Normalised features Phi /
sqrt k with k hard gates, many more than m/d; fitted exactly, by the least norm. Loss (y - f)^2 / 2.
Left: test loss against the number of samples, and lines of order 1/m and 1/sqrt m; the bound of
theorem 3 (its constant C is not given, drawn for C = 1). Right: squared norm of the solution
against 2 M^2.

Source: Fiat, Malach, Shalev-Shwartz (2019), arXiv:1906.05032, theorem 3.
"""

import math

import numpy as np
import pandas as pd

from benchmarks.drawing import Figure, subplots, tick_values
from benchmarks.fiat2019 import theorems_1_and_2
from benchmarks.fiat2019 import theorems_3_to_5 as bounds
from benchmarks.fiat2019.constants import DELTA, gates_of, sphere
from benchmarks.harness import Experiment, Rows, Verdict, rows_of, whole
from implicit_bias.kernels import gated_least_squares as galu
from implicit_bias.kernels.least_squares import least_squares
from implicit_bias.report.style import BLACK, BLUE, GREEN, GREY


def measure(quick: bool) -> Rows:
    """Fit several sizes at two widths, and by the kernel itself."""
    d, centres, tests, seeds, sizes = (
        (5, 10, 500, 1, (20, 40)) if quick else (10, 20, 2000, 3, (25, 50, 100, 200, 400, 800))
    )
    widths = (500,) if quick else (1000, 4000)
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        Z, test = sphere(centres, d, rng), sphere(tests, d, rng)
        c = rng.normal(size=centres)
        scale = float(np.abs(galu.limit_kernel(sphere(20 * tests, d, rng), Z) @ c).max())
        c /= scale
        square = float(c @ galu.limit_kernel(Z) @ c)
        truth = galu.limit_kernel(test, Z) @ c
        for m in sizes:
            X = sphere(m, d, rng)
            y = galu.limit_kernel(X, Z) @ c
            infinite = galu.limit_kernel(X)
            dual = np.linalg.solve(infinite, y)
            shared = {"m": m, "d": d, "seed": seed, "norm_square": square}
            shared["eigenvalue"] = galu.smallest_eigenvalue(X)
            shared["spectral"] = theorems_1_and_2.spectral_square(X)
            outputs = galu.limit_kernel(test, X) @ dual
            found = {
                "width": 0,
                "size": float(y @ dual),
                "loss": np.mean((outputs - truth) ** 2) / 2,
            }
            yield shared | found
            for k in widths:
                filters = rng.normal(size=(k, d))
                scaled = gates_of(X, filters) / math.sqrt(k)
                fit = least_squares(X, scaled, y)
                decision = fit.decision(test, gates_of(test, filters) / math.sqrt(k))
                found = {"width": k, "size": float(np.sum(fit.coef**2))}
                yield shared | found | {"loss": np.mean((decision - truth) ** 2) / 2}


def draw(frame: pd.DataFrame) -> Figure:
    """Draw loss and norm against the number of samples."""
    figure, (left, right) = subplots((9.2, 3.6), 1, 2)
    looks = {0: (BLACK, "o-"), 1000: (GREEN, "s-"), 4000: (BLUE, "^-")}
    for width, rows in frame.groupby("width"):
        means = rows.groupby("m")[["loss", "size", "norm_square"]].mean()
        words = f"{width!s} gates" if width else "kernel, infinitely many gates"
        colour, look = looks.get(int(str(width)), looks[4000])
        for ax, column in ((left, "loss"), (right, "size")):
            ax.plot(means.index, means[column], look, color=colour, fillstyle="none", label=words)
    sizes = np.array(sorted(frame["m"].unique()), dtype=float)
    first = frame[frame["width"] == 0].groupby("m")["loss"].mean().iloc[0]
    left.plot(sizes, first * sizes[0] / sizes, ":", color=GREY, label="order 1/m")
    left.plot(sizes, first * np.sqrt(sizes[0] / sizes), "-.", color=GREY, label="order 1/sqrt m")
    square = frame["norm_square"].mean()
    left.plot(sizes, risk_bounds(frame), "--", color=BLACK, label="theorem 3, C = 1")
    left.set(xscale="log", yscale="log", xlabel="samples m", ylabel="test loss")
    left.legend(loc="upper right", bbox_to_anchor=(1.0, 0.88))
    right.axhline(square, color=GREY, linestyle=":", label="M^2")
    right.axhline(2 * square, color=BLACK, linestyle="--", label="2 M^2")
    right.set(xscale="log", xlabel="samples m", ylabel="squared norm of the solution")
    right.set_ylim(bottom=0)
    right.legend()
    for ax in (left, right):
        tick_values(ax, sizes)
    return figure


def found(frame: pd.DataFrame) -> str:
    """Say at which rate the loss falls, and how large the theorem's width would be."""
    by_size = frame.groupby(["width", "m"])["loss"].mean().unstack("m")
    slopes = {width: exponent(row) for width, row in by_size.iterrows()}
    wide = frame["width"].max()
    ratio = (frame["size"] / frame["norm_square"]).groupby(frame["width"]).max()
    first = frame.iloc[0]
    risks = risk_bounds(frame)
    return (
        f"d = {first['d']:.0f}, mean of {frame['seed'].nunique()} draws, M^2 = "
        f"{frame['norm_square'].mean():.1f}.\n\n"
        f"- **The theorem asks for {needed_widths(frame)[0]:.1e} gates at m = {first['m']:.0f}; "
        f"the widest network here has {wide:,}.** The bound with C = 1 is {risks[0]:.1f} to "
        f"{risks[-1]:.1f}. The loss of f = 0 is at most 1/2, so that it says nothing here.\n"
        f"- The test loss of {wide:,} gates falls like m^{slopes[wide]:.2f}, that of the kernel "
        f"like m^{slopes[0]:.2f}: faster than 1/m, which the theorem proves up to logarithms.\n"
        f"- The squared norm of the solution is at most {ratio[wide]:.2f} M^2 with {wide} gates "
        f"(the theorem's 2 M^2 at its own width), at most {ratio[0]:.2f} M^2 with the kernel."
    )


def exponent(losses: pd.Series) -> float:
    """Slope of the logarithm of the loss in that of m, by least squares."""
    sizes = np.log(losses.index.to_numpy(dtype=float))
    return float(np.polyfit(sizes, np.log(losses.to_numpy(dtype=float)), 1)[0])


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """Loss and norm for each number of samples."""
    means = frame.groupby(["m", "width"])[["loss", "size"]].mean()
    means["size"] /= frame["norm_square"].mean()
    loss = means["loss"].map("{:.1e}".format).unstack("width")
    size = means["size"].map("{:.2f}".format).unstack("width")
    rows = {}
    for table, words in ((loss, "test loss"), (size, "squared norm / M^2")):
        for width in table.columns:
            rows[f"{words}, {f'k = {width}' if width else 'kernel'}"] = table[width]
    return pd.DataFrame(rows).rename_axis("samples m").reset_index().astype(str)


def needed_widths(frame: pd.DataFrame) -> list[float]:
    """Width that theorem 3 asks for in each row."""
    return [
        bounds.interpolation_width(
            row["m"],
            norm=math.sqrt(row["norm_square"]),
            eigenvalue=row["eigenvalue"],
            spectral=row["spectral"],
            failure=DELTA,
        )
        for row in rows_of(frame)
    ]


def risk_bounds(frame: pd.DataFrame) -> list[float]:
    """Theorem 3's bound with C = 1 for each number of samples."""
    norm = math.sqrt(frame["norm_square"].mean())
    sizes = sorted(frame["m"].unique())
    return [bounds.risk_bound(int(m), norm=norm, failure=DELTA) for m in sizes]


def verdict(frame: pd.DataFrame) -> Verdict:
    """Judge the claim by the rule: only where networks are as wide as the theorem asks."""
    wide = frame[frame["width"] >= needed_widths(frame)]
    if wide.empty:
        return Verdict.UNTESTED
    losses = wide.groupby("m")[["loss"]].mean()["loss"]
    return Verdict.of(exponent(losses) <= -1 and bool((losses <= risk_bounds(wide)).all()))


EXPERIMENT = Experiment(whole(measure), found, tabulate, verdict, draw)
