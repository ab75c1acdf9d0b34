r"""How far the theorems are from what is needed: lemma 1, theorems 1, 3, 5 and 7.

lemma 1    m inputs on the sphere of R^d, k Gaussian filters, hard gates: the smallest eigenvalue of
           K/k, its limit lambda(X), and the width from which it is lambda(X)/2 or more but with
           probability 1 %. Beside it ||K/k - kappa||_F over its root mean square,
           sqrt(sum p (1 - p) <x, x'>^2 / k), p the probability that a filter is open on both
           inputs (not in the paper; derived here)
theorem 1  gradient descent from 0 on F = ||Xbar w - y||^2/(2m) by the theorem's step m/(k R),
           labels -1 and +1: losses against exp(-t lambda/(2R)) k R ||w_0 - w*||^2/m, and steps
           asked for and taken to F <= 0.001
theorem 3  x on the sphere of R^10, labels f*(x) = sum_j c_j kappa(x, z_j) of 20 centres z_j, at
           most 1 on a large sample; M^2 = c' kappa(Z) c. Minimum-norm fits of Phi / sqrt k, test
           loss (y - f)^2 / 2, against the number of samples m
theorem 5  what its inequality allows, what its proof yields, and a bound derived here, where
           filters move by 4/sqrt k; a = 1, L = 1, d = 20, where the theorem's assumptions hold
theorem 7  5 centres on the sphere of R^10, a linear map a cluster, 200 samples within a radius of
           their centre, k gates by lemma 4: share of wrong predictions in clusters of d or more
           samples, at the theorem's radius delta/(n k sqrt d) and at multiples of it

Source: Fiat, Malach, Shalev-Shwartz (2019), arXiv:1906.05032, sections 3 and 4, appendix B.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import scipy.linalg

from benchmarks import summaries
from benchmarks.bench import Part, part, rows_of
from benchmarks.drawing import Figure, subplots, tick_values
from benchmarks.fiat2019 import galu_clusters, theorems_1_and_2
from benchmarks.fiat2019 import theorems_3_to_5 as bounds
from implicit_bias.base.style import BLACK, BLUE, GREEN, GREY, ORANGE
from implicit_bias.base.validation import Array
from implicit_bias.kernels import gated_least_squares as galu
from implicit_bias.kernels.gradient_gram import normalise
from implicit_bias.kernels.least_squares import gated_features, gated_gram, least_squares
from implicit_bias.problem.gating import UnitGates

COST = 1

DELTA = 0.05
# Losses below are rounding; and eps of theorem 1.
VISIBLE, ACCURACY = 1e-20, 1e-3
# How far filters move for theorem 5, times sqrt k.
MOVED = 4.0
# Multiples of the radius of theorem 7.
MULTIPLES = (1, 10, 100, 1000, 10_000, 100_000)
# Singular values below this share of the largest count as 0; rounding is at 1e-16.
CUT = 1e-13
# What counts as an exact prediction: this share of radius times the norm of a linear map.
EXACT = 1e-3
# Share of wrong predictions up to which a radius counts as small enough.
FEW = 0.01

Rows = Iterator[dict[str, Any]]


def measure(quick: bool) -> Iterator[Part]:
    """Check each statement on its draws."""
    for statement, draws in (
        ("lemma 1", 3),
        ("theorem 1", 1),
        ("theorem 3", 3),
        ("theorem 5", 1),
        ("theorem 7", 4),
    ):
        for seed in range(1 if quick else draws):
            yield part(checked, statement=statement, seed=seed, quick=quick)


def checked(statement: str, seed: int, quick: bool) -> Rows:
    """Check a statement on a draw."""
    checks: dict[str, Callable[[np.random.Generator, bool], Rows]] = {
        "lemma 1": lemma_1,
        "theorem 1": theorem_1,
        "theorem 3": theorem_3,
        "theorem 5": theorem_5,
        "theorem 7": theorem_7,
    }
    return checks[statement](np.random.default_rng(seed), quick)


def sphere(m: int, d: int, rng: np.random.Generator) -> Array:
    """Draw m uniform points on the unit sphere of R^d."""
    return normalise(rng.normal(size=(m, d)))


def random_gates(X: Array, k: int, rng: np.random.Generator) -> UnitGates:
    """Draw k hard gates for inputs (m, d)."""
    return UnitGates(rng.normal(size=(k, X.shape[1])), np.zeros(k), ">=")


def lemma_1(rng: np.random.Generator, quick: bool) -> Rows:
    """Measure the Gram matrix of finite gates at several widths."""
    m, d, doublings = (30, 10, 8) if quick else (200, 40, 16)
    X = sphere(m, d, rng)
    kappa = galu.limit_kernel(X)
    printed = theorems_1_and_2.PUBLISHED_CHERNOFF
    shared = {
        "m": m,
        "d": d,
        "limit": galu.smallest_eigenvalue(X),
        "asked": theorems_1_and_2.sufficient_width(X, constant=printed),
        "sharper": theorems_1_and_2.sufficient_width(X),
    }
    inner = X @ X.T
    both = np.divide(kappa, inner, out=np.zeros_like(kappa), where=inner != 0)
    variance = float(np.sum(both * (1 - both) * inner**2))
    for k in (2**i for i in range(2, doublings)):
        gram = gated_gram(X, random_gates(X, k, rng).gates(X)) / k
        distance = float(np.linalg.norm(gram - kappa)) / math.sqrt(variance / k)
        smallest = max(float(np.linalg.eigvalsh(gram)[0]), 0.0)
        yield {**shared, "k": k, "distance": distance, "eigenvalue": smallest}


def theorem_1(rng: np.random.Generator, quick: bool) -> Rows:
    """Descend at three widths, the last one that of lemma 1."""
    m, d, steps = (20, 10, 700) if quick else (80, 20, 1600)
    X = sphere(m, d, rng)
    y = rng.choice([-1.0, 1.0], m)
    R = theorems_1_and_2.spectral_square(X)
    smallest = galu.smallest_eigenvalue(X)
    printed = theorems_1_and_2.PUBLISHED_CHERNOFF
    t = np.arange(steps + 1)
    for k in (
        4 * m // d,
        40 * m // d,
        theorems_1_and_2.sufficient_width(X, constant=printed),
    ):
        gates = random_gates(X, k, rng).gates(X)
        step_size = theorems_1_and_2.published_step(X, k)
        distance = float(np.sum(least_squares(X, gates, y).coef ** 2))
        losses = (
            theorems_1_and_2.gradient_descent(X, gates, y, step_size=step_size, steps=steps) / 2
        )
        gram = gated_gram(X, gates)
        predicted = galu.predicted_losses(gram, y, step_size=step_size, steps=t) / 2
        bound = np.exp(-t * smallest / (2 * R)) * k * R * distance / m
        sharper = losses[0] * theorems_1_and_2.rate_bound(
            k * smallest / 2, step_size=step_size, steps=steps
        )
        seen = predicted > VISIBLE
        yield {
            "m": m,
            "d": d,
            "k": k,
            "compared": int(seen.sum()),
            "above": int((losses > bound)[seen].sum()),
            "above_sharper": int((losses > sharper * (1 + 1e-9))[seen].sum()),
            "off_predicted": float(np.abs(losses / predicted - 1)[seen].max()),
            "asked": theorems_1_and_2.sufficient_steps(
                X, k, distance_square=distance, accuracy=ACCURACY
            ),
            "taken": int(t[losses <= ACCURACY].min()),
        }


def theorem_3(rng: np.random.Generator, quick: bool) -> Rows:
    """Fit several sizes at two widths, and by the kernel itself (width 0)."""
    d, centres, tests = (5, 10, 500) if quick else (10, 20, 2000)
    sizes = [20, 40] if quick else [25, 50, 100, 200, 400, 800]
    Z = sphere(centres, d, rng)
    test = sphere(tests, d, rng)
    c = rng.normal(size=centres)
    c /= float(np.abs(galu.limit_kernel(sphere(20 * tests, d, rng), Z) @ c).max())
    norm_square = float(c @ galu.limit_kernel(Z) @ c)
    truth = galu.limit_kernel(test, Z) @ c
    for m in sizes:
        X = sphere(m, d, rng)
        y = galu.limit_kernel(X, Z) @ c
        asked = bounds.interpolation_width(
            m,
            norm=math.sqrt(norm_square),
            eigenvalue=galu.smallest_eigenvalue(X),
            spectral=theorems_1_and_2.spectral_square(X),
            failure=DELTA,
        )
        shared = {"m": m, "d": d, "norm_square": norm_square, "asked": asked}
        dual = np.linalg.solve(galu.limit_kernel(X), y)
        outputs = galu.limit_kernel(test, X) @ dual
        loss = float(np.mean((outputs - truth) ** 2)) / 2
        yield {**shared, "k": 0, "size": float(y @ dual), "loss": loss}
        for k in (500,) if quick else (1000, 4000):
            gating = random_gates(X, k, rng)
            fit = least_squares(X, gating.gates(X) / math.sqrt(k), y)
            outputs = fit.decision(test, gating.gates(test) / math.sqrt(k))
            loss = float(np.mean((outputs - truth) ** 2)) / 2
            yield {**shared, "k": k, "size": float(np.sum(fit.coef**2)), "loss": loss}


def theorem_5(rng: np.random.Generator, quick: bool) -> Rows:
    """Compute three bounds on the error of GaLU above that of a ReLU network near its start."""
    d = 20
    for k in (100, 10_000, 1_000_000):
        eps = MOVED / math.sqrt(k)
        if bounds.relu_approximation_width(d, eps, DELTA) > k:
            raise ValueError(f"theorem 5 does not cover k = {k}: filters move by {eps:.2g}")
        # B of the proof bounds all filters; of as many, a = 1, the largest is longer than sqrt d.
        longest = math.sqrt(bounds.PRINTED_NORM_SQUARE * d) + eps
        shortest = math.sqrt(d) - eps
        printed = bounds.relu_approximation_error(d, eps, largest=shortest, n_units=k, printed=True)
        proved = bounds.relu_approximation_error(d, eps, largest=longest, n_units=k)
        # The share of Gaussian filters within eps of the hyperplane of any x.
        share = math.erf(eps / math.sqrt(2))
        derived = bounds.flipped_error(np.ones(k), eps, share)
        yield {"d": d, "k": k, "printed": printed, "proved": proved, "derived": derived}


def theorem_7(rng: np.random.Generator, quick: bool) -> Rows:
    """Fit clustered samples exactly at several radii."""
    n, d, tests = (3, 4, 100) if quick else (5, 10, 1000)
    V = sphere(n, d, rng)
    L = sphere(n, d, rng)
    k = galu_clusters.sufficient_width(V, DELTA)
    allowed = galu_clusters.largest_radius(n, k, d, DELTA)
    filters = sphere(k, d, rng)
    for multiple in MULTIPLES:
        radius = multiple * allowed
        train = galu_clusters.draw_clusters(V, L, 4 * n * d, radius, random_state=rng)
        test = galu_clusters.draw_clusters(V, L, tests, radius, random_state=rng)
        features = gated_features(train.X, galu_clusters.centre_gates(filters, train.X))
        test_features = gated_features(test.X, galu_clusters.centre_gates(filters, test.X))
        outputs, error = predictions(features, train.y, test_features)
        full = np.bincount(train.cluster, minlength=n) >= d
        wrong = np.abs(outputs - test.y) > EXACT * radius
        yield {
            "d": d,
            "k": k,
            "radius": radius,
            "multiple": multiple,
            "fit_error": error / radius,
            "wrong": wrong[full[test.cluster]].mean(),
        }


def predictions(train: Array, y: Array, test: Array) -> tuple[Array, float]:
    """Fit features (m, p) by the least coefficients: predictions, and largest training error."""
    U, sizes, Vt = scipy.linalg.svd(train, full_matrices=False)
    keep = sizes > CUT * sizes[0]
    coef = Vt[keep].T @ ((U[:, keep].T @ y) / sizes[keep])
    return test @ coef, float(np.abs(train @ coef - y).max())


def numbers(frame: pd.DataFrame) -> dict[str, Any]:
    """Compare what each statement asks for or allows with what is enough here."""
    of = {str(name): rows for name, rows in frame.groupby("statement")}
    finite = of["lemma 1"]
    means = finite.groupby("k")[["distance", "eigenvalue", "limit"]].mean()
    half = means.index[means["eigenvalue"] >= means["limit"] / 2].min()
    asked = finite["asked"].mean()
    beyond = finite[finite["k"] >= finite["asked"]]
    descent = of["theorem 1"].iloc[of["theorem 1"]["k"].argmax()]
    fits = of["theorem 3"]
    widest = fits["k"].max()
    smallest = fits["m"].min()
    risks = risk_bounds(fits)
    balls = of["theorem 7"].groupby("multiple")[["radius", "wrong", "fit_error"]]
    wrong = balls.mean()["wrong"]
    found: dict[str, Any] = {
        "lemma_1_width": asked,
        "lemma_1_sharper_width": finite["sharper"].mean(),
        "lemma_1_half_at": half,
        "lemma_1_loose": asked / half,
        "lemma_1_least": (beyond["eigenvalue"] / beyond["limit"]).min(),
        "theorem_1_width": descent["k"],
        "theorem_1_losses": descent["compared"],
        "theorem_1_above": descent["above"],
        "theorem_1_above_sharper": of["theorem 1"]["above_sharper"].sum(),
        "theorem_1_asked": descent["asked"],
        "theorem_1_reached": descent["taken"],
        "theorem_1_loose": descent["asked"] / descent["taken"],
        "theorem_3_gates": fits.loc[fits["m"] == smallest, "asked"].iloc[0],
        "theorem_3_widest": widest,
        "theorem_3_samples": smallest,
        "theorem_3_exponent": exponent(fits[fits["k"] == widest]),
        "kernel_exponent": exponent(fits[fits["k"] == 0]),
        "theorem_3_bound_first": risks.iloc[0],
        "theorem_3_bound_last": risks.iloc[-1],
        "theorem_3_loose": risks.iloc[-1] / test_losses(fits, widest).iloc[-1],
        "theorem_7_radius": balls.mean()["radius"].iloc[0],
        "theorem_7_wrong": wrong.iloc[0],
        "theorem_7_fit_error": balls.max()["fit_error"].iloc[0],
        "theorem_7_loose": wrong.index[wrong <= FEW].max(),
        "theorem_7_next": wrong[wrong > FEW].iloc[0],
        **summaries.low_high("distance", means["distance"]),
    }
    narrow, *_, wide = rows_of(of["theorem 5"])
    for word, row in (("narrow", narrow), ("wide", wide)):
        found[f"theorem_5_width_{word}"] = int(row["k"])
        for bound in ("printed", "proved", "derived"):
            found[f"theorem_5_{bound}_{word}"] = row[bound]
    return found


def test_losses(fits: pd.DataFrame, width: int) -> pd.Series[float]:
    """Mean test loss of a width for each number of samples."""
    return fits[fits["k"] == width].groupby("m")["loss"].mean()


def exponent(fits: pd.DataFrame) -> float:
    """Slope of the logarithm of the mean test loss in that of m, by least squares."""
    losses = fits.groupby("m")["loss"].mean()
    return summaries.exponent(losses.index, losses)


def risk_bounds(fits: pd.DataFrame) -> pd.Series[float]:
    """Theorem 3's bound with C = 1 for each number of samples."""
    norm = math.sqrt(fits["norm_square"].mean())
    sizes = sorted(fits["m"].unique())
    risks = [bounds.risk_bound(int(m), norm=norm, failure=DELTA) for m in sizes]
    return pd.Series(risks, sizes)


def draw(frame: pd.DataFrame) -> Figure:
    """Draw lemma 1's eigenvalues against the width, and theorem 3's loss against the samples."""
    figure, (left, right) = subplots((8.8, 3.8), 1, 2)
    finite = frame[frame["statement"] == "lemma 1"]
    limit = finite["limit"].mean()
    left.axhline(limit, color=BLACK, linestyle="--", label="λ(X)")
    left.axhline(limit / 2, color=GREY, linestyle=":", label="λ(X)/2")
    ratio = finite["m"].iloc[0] / finite["d"].iloc[0]
    left.axvline(ratio, color=ORANGE, linestyle="-.", label="k = m/d")
    left.axvline(finite["asked"].mean(), color=GREY, label="lemma 1 asks for λ(X)/2")
    left.plot(finite["k"], finite["eigenvalue"], "o", color=BLUE, alpha=0.6, label="measured")
    left.set(xscale="log", xlabel="filters k", ylabel="smallest eigenvalue of K/k")
    tick_values(left, (10, 100, 1000, 10_000), write="{:,}")
    left.legend(loc="lower right", frameon=True, framealpha=1.0, edgecolor="none")
    fits = frame[frame["statement"] == "theorem 3"]
    risks = risk_bounds(fits)
    widest = fits["k"].max()
    kernel = test_losses(fits, 0)
    right.plot(risks.index, risks, "--", color=BLACK, label="theorem 3, C = 1")
    law = kernel.iloc[0] * kernel.index[0] / kernel.index
    right.plot(kernel.index, law, ":", color=GREY, label="order 1/m")
    losses = test_losses(fits, widest)
    right.plot(losses.index, losses, "s-", color=GREEN, label=f"{widest:,.0f} gates")
    right.plot(kernel.index, kernel, "o-", color=BLUE, label="infinitely many gates")
    right.set(xscale="log", yscale="log", xlabel="samples m", ylabel="test loss")
    tick_values(right, kernel.index)
    tick_values(right, (10, 1, 0.1, 0.01, 1e-3, 1e-4, 1e-5), along="y")
    right.legend()
    return figure
