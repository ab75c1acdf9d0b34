"""Theorems K.1, 4.1, 4.2 and 4.5: lower bounds on eigenvalues and trace, beside measured ones."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch

from benchmarks.drawing import Figure, common_legend, subplots
from benchmarks.harness import Experiment, Judged, Rows, Verdict, whole
from benchmarks.panigrahi2020 import gram_bounds as bounds
from benchmarks.panigrahi2020.finite_spectrum import finite_eigenvalues
from benchmarks.panigrahi2020.gram_spectrum import KINKS, circle_points, separation
from benchmarks.panigrahi2020.shared import COLOUR, FIGURE_1, LOOK, number, plain_numbers, power
from implicit_bias.base.validation import Array
from implicit_bias.kernels import gradient_gram as grams


def measure(quick: bool) -> Rows:
    """Smallest eigenvalues of activations with a kink, traces, and claim K.2."""
    sizes = (4, 8, 16, 32) if quick else (4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
    shifts = (0.1, 0.03, 0.01) if quick else tuple(np.geomspace(0.2, 1e-4, 9))
    draws, width = (20, 2**10) if quick else (60, 2**13)
    for activation, order in KINKS.items():
        phi = grams.ACTIVATIONS[activation]
        data = [("half circle", circle_points(n)) for n in sizes]
        data += [("close points", close_points(shift)) for shift in shifts]
        data += [("sphere, d = 5", sphere(n, 5)) for n in sizes]
        for part, X in data:
            n, delta = len(X), separation(X)
            yield {
                "part": part,
                "activation": activation,
                "n": n,
                "delta": delta,
                "measured": grams.eigenvalues(grams.infinite_gram(X, phi))[-1],
                "kink": bounds.kink_bound(n, delta, order),
                "relu": bounds.relu_bound(n, delta) if activation == "relu" else np.nan,
            }
        if order == 1:
            yield from claim(phi, sizes[:4], width)
    for activation in FIGURE_1:
        yield from traces(activation, draws)
        if activation in KINKS:
            yield from widths(activation, draws // 12)


def close_points(shift: float) -> Array:
    """Ten points of the half circle, and two more, an angle and two from the first."""
    far = circle_points(10, 2)
    near = math.atan2(far[0, 1], far[0, 0]) + shift * np.array([1, 2])
    return grams.normalise(np.vstack([far, np.column_stack([np.cos(near), np.sin(near)])]))


def sphere(n_samples: int, dimension: int) -> Array:
    """Draw unit vectors."""
    return grams.normalise(np.random.default_rng(n_samples).standard_normal((n_samples, dimension)))


def claim(phi: grams.Activation, sizes: tuple[int, ...], width: int) -> Rows:
    """Probability that ||sum_i zeta_i phi'(<w, x_i>) x_i|| >= 1 / (2 sqrt n), zeta the worst."""
    for n in sizes:
        X = circle_points(n, 2)
        zeta = np.linalg.eigh(grams.infinite_gram(X, phi))[1][:, 0]
        weights = torch.cat(list(grams.gaussian_weights(width, 2)))
        gates = phi.derivative(torch.tensor(X) @ weights.T).numpy()  # (n, m)
        sizes_of_sums = np.linalg.norm((gates * zeta[:, None]).T @ X, axis=1)
        yield {
            "part": "claim K.2",
            "activation": phi.name,
            "n": n,
            "delta": separation(X),
            "measured": float(np.mean(sizes_of_sums >= 0.5 / math.sqrt(n))),
            "kink": separation(X) / n**2,
        }


def traces(activation: str, draws: int) -> Rows:
    """Trace of G at narrow widths, half circle, n = 10: the least of several draws."""
    phi, X = grams.ACTIVATIONS[activation], circle_points(10, 2)
    for width in (16, 64, 256, 1024):
        totals = [finite(X, phi, width, seed).sum() for seed in range(draws)]
        yield {
            "part": "trace",
            "activation": activation,
            "n": len(X),
            "width": width,
            "measured": min(totals),
            "trace": bounds.trace_bound(phi, len(X)),
            "share": float(np.mean(np.array(totals) >= bounds.trace_bound(phi, len(X)))),
        }


def widths(activation: str, draws: int) -> Rows:
    """Smallest eigenvalue at finite width over the one at infinite width, half circle, n = 10."""
    phi, X = grams.ACTIVATIONS[activation], circle_points(10, 2)
    limit = grams.eigenvalues(grams.infinite_gram(X, phi))[-1]
    for width in (64, 256, 1024, 4096, 16384):
        yield {
            "part": "width",
            "activation": activation,
            "n": len(X),
            "width": width,
            "measured": min(finite(X, phi, width, seed)[-1] for seed in range(draws)) / limit,
        }


def finite(X: Array, phi: grams.Activation, width: int, seed: int) -> Array:
    """Eigenvalues of G at the start, readouts N(0, 1)."""
    generator = torch.Generator().manual_seed(10**6 + seed)
    readouts = torch.randn(width, generator=generator, dtype=torch.float64)
    weights = grams.gaussian_weights(width, X.shape[1], seed=seed)
    return finite_eigenvalues(X, phi, weights, readouts=readouts)


def draw(frame: pd.DataFrame) -> Figure:
    """Draw measured eigenvalues as marks and the shapes of the bounds as lines."""
    figure, axes = subplots((10, 4.6), 1, 3, grid="y", y="smallest eigenvalue of G")
    columns = {"half circle": "n", "close points": "delta", "sphere, d = 5": "n"}
    for ax, (part, column) in zip(axes, columns.items(), strict=True):
        for activation in ("relu", "selu", "elu"):  # leaky ReLU lies behind ReLU
            cells = frame[(frame["part"] == part) & (frame["activation"] == activation)]
            look = {"color": COLOUR[activation]}
            marks = LOOK[activation] | {"ls": "", "label": activation}
            ax.plot(cells[column], cells["measured"], **marks)
            if activation in ("relu", "elu"):
                name, line = ("K.1", "--") if activation == "relu" else ("4.1", "-.")
                ax.plot(cells[column], cells["kink"], line, label=f"{name}, shape", **look)
            if activation == "relu":
                ax.plot(cells[column], cells["relu"], ":", label="4.2, shape", **look)
        ax.set(xscale="log", yscale="log", title=part, xlabel=column)
        if column == "n":
            plain_numbers(ax, ordinate=False)
    return common_legend(figure, axes[:1], 7)


def exponents(frame: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Fitted powers: of n on the half circle, of delta for close points."""
    rows = {}
    for activation in KINKS:
        cells = frame[frame["activation"] == activation]
        half = cells[cells["part"] == "half circle"].iloc[-3:]
        pair = cells[cells["part"] == "close points"].iloc[-3:]
        rows[activation] = {
            "n": power(half["n"], half["measured"]),
            "delta": power(pair["delta"], pair["measured"]),
        }
    return rows


def least_ratios(frame: pd.DataFrame) -> pd.DataFrame:
    """Smallest measured value over the shape of a bound, by part and activation."""
    eigen = frame[frame["kink"].notna()]
    ratios = eigen.assign(
        kink=eigen["measured"] / eigen["kink"], relu=eigen["measured"] / eigen["relu"]
    )
    return ratios.groupby(["part", "activation"], sort=False)[["kink", "relu"]].min()


def found(frame: pd.DataFrame) -> str:
    """Say which bounds are near, and what a finite width does."""
    ratios = least_ratios(frame)
    wide = frame[frame["part"] == "width"].groupby("activation")
    last = wide.last()["measured"]
    eigen = ratios[ratios.index.get_level_values("part") != "claim K.2"]
    return (
        f"The least ratio of a measured eigenvalue to a shape is {number(eigen['kink'].min())} for "
        f"K.1 and 4.1, {number(eigen['relu'].min())} for 4.2. G(0) at finite width, n = 10: at m = "
        f"{int(wide.last()['width'].max()):,} the least of the draws is {last['relu']:.2f} of the "
        f"limit for ReLU and {last['elu']:.2f} for ELU."
    )


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """Powers, measured and of the theorems."""
    parts = {"half circle": "half", "close points": "close", "sphere, d = 5": "sphere"}
    ratios = least_ratios(frame)["kink"].unstack("part").rename(columns=parts)
    powers = pd.DataFrame(exponents(frame)).T.rename_axis("activation")
    table, order = powers.join(ratios).reset_index(), pd.Series(KINKS.values())
    circle = order.map({1: "-4", 2: "-10"})
    return table.assign(order=order, theorem=2 * order - 1, circle=circle)


def falls(frame: pd.DataFrame, bound: str, activations: Sequence[str]) -> float:
    """Power of a bound that the last three eigenvalues of a series follow, the largest one."""
    series = frame[
        frame["part"].isin(["half circle", "close points"]) & frame["activation"].isin(activations)
    ]
    return max(
        power(cells[bound].iloc[-3:], cells["measured"].iloc[-3:])
        for _, cells in series.groupby(["part", "activation"])
    )


def judge(frame: pd.DataFrame) -> dict[str, Judged]:
    """Judge each claim by its rule."""
    powers, judged = exponents(frame), {}
    for name, bound, order, shown, allowed in (
        ("theorem-k1", "kink", 1, "relu", "1; n^-4"),
        ("theorem-4-1", "kink", 2, "elu", "3; n^-10"),
        ("theorem-4-2", "relu", 1, "relu", "1.5; n^-1.5"),
    ):
        kinked = [activation for activation in KINKS if KINKS[activation] == order]
        judged[name] = Judged(
            verdict=Verdict.of(falls(frame, bound, kinked if bound == "kink" else [shown]) < 1.05),
            result=f"{shown}: lambda_min ~ delta^{powers[shown]['delta']:.2f} between close points "
            f"and n^{powers[shown]['n']:.2f} on the half circle (allowed: delta^{allowed}).",
        )
    claims = frame[frame["part"] == "claim K.2"]
    ratios = (claims["measured"] / claims["kink"]).groupby(claims["activation"])
    traces = frame[frame["part"] == "trace"]
    whole_draws = traces[traces["share"] == 1].groupby("activation")["width"].min()
    return judged | {
        "claim-k2": Judged(
            verdict=Verdict.of((ratios.last() >= ratios.first()).all()),
            result=f"The probability is at least {number(ratios.min().min())} delta / n^2, and "
            f"the ratio rises to {number(ratios.last().min())} or more at n = "
            f"{int(claims['n'].max())}.",
            remark=", with K.2's probability",
        ),
        "theorem-4-5": Judged(
            verdict=Verdict.of((traces[traces["width"] >= 1024]["share"] == 1).all()),
            result="Every draw has tr G >= c n from m = "
            f"{int(whole_draws.max())} on, for {len(whole_draws)} activations.",
        ),
    }


EXPERIMENT = Experiment(whole(measure), found, tabulate, draw=draw, judge=judge)
