"""Exact hinge loss on D_A of linear methods of any norm, beside the bounds for these features.

Theorem 2 with the source's own constants takes k <= n/16, and so more bits than can be listed: it
is beside ours in `norm_needed`.
"""

from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.daniely2020 import linear_methods as linear
from benchmarks.daniely2020.looks import LOOKS
from benchmarks.drawing import Figure, common_legend, subplots
from benchmarks.harness import Experiment, Rows, Verdict, whole
from implicit_bias.base.validation import Array
from implicit_bias.datasets import parities
from implicit_bias.problem import MarginProblem, gated_linear
from implicit_bias.problem.gating import UnitGates
from implicit_bias.report.style import BLACK, GREY
from implicit_bias.solvers import solve

# C of the soft margins, over the largest whose solution is 0.
STRENGTHS = (1.05, 1.3, 2, 5, 20, 100, 1000, 10000)


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How many bits, relevant bits, units, samples, and draws of A."""

    n_bits: int = 15
    k: int = 5
    units: int = 64
    train_size: int = 1000
    seeds: int = 3


WHOLE = Sizes()
QUICK = Sizes(n_bits=9, k=3, units=16, train_size=200, seeds=1)


@dataclass(frozen=True, eq=False)
class Linear:
    """A linear method on all inputs of the cube: f(x) = sum_m z_m(x) <zeta_m, x>.

    Attributes
    ----------
    X : ndarray of shape (2^n, D)
        Inputs, or random features.
    gates : ndarray of shape (2^n, M)
        z; z_m(x) x_d are in [-1, 1].
    groups : ndarray of shape (M,)
        Of the norm that is kept small; never below the Euclidean one.
    """

    X: Array
    gates: Array
    groups: NDArray[np.int64]

    @property
    def n_features(self) -> int:
        """Number N of features."""
        return self.X.shape[1] * self.gates.shape[1]


def measure(quick: bool) -> Rows:
    """Norm, exact loss and bound of every method, draw of A and strength of the margin."""
    sizes = QUICK if quick else WHOLE
    subsets = linear.sets_of_size(sizes.n_bits, sizes.k)
    for name, method in linear_methods(sizes.n_bits, sizes.units).items():
        norms = correlations(method, sizes.n_bits)
        facts = {
            "method": name,
            "n_bits": sizes.n_bits,
            "k": sizes.k,
            "train_size": sizes.train_size,
            "units": sizes.units,
            "n_features": method.n_features,
            "proved": linear.guaranteed_correlation(sizes.n_bits, sizes.k, method.n_features),
            "least_correlation": float(norms[subsets].min()),
            "mean_correlation": float(np.sqrt(np.mean(norms[subsets] ** 2))),
        }
        for seed in range(sizes.seeds):
            yield from (facts | row for row in soft_margins(method, norms, sizes, seed))


def linear_methods(n_bits: int, units: int) -> dict[str, Linear]:
    """Return frozen gates, the same under the group norm, and two kinds of random features."""
    X = np.column_stack([parities.cube(n_bits), np.ones(2**n_bits)])
    gates = UnitGates.random(X, units, threshold="zero", always_on=False, random_state=1).gates(X)
    together, alone = np.zeros(units, dtype=np.int64), np.zeros(1, dtype=np.int64)
    ones = np.ones((len(X), 1))
    rng = np.random.default_rng(2)
    # Inputs of n bits and a constant have a median distance near sqrt(2 n): the bandwidth.
    relu = rng.uniform(-1.0, 1.0, (units, X.shape[1]))
    frequencies = rng.normal(0.0, 1.0 / np.sqrt(2.0 * n_bits), (units, X.shape[1]))
    phases = rng.uniform(0.0, 2.0 * np.pi, units)
    features = {
        # Scaled into [0, 1]: |<w, x>| is at most the sum of |w|.
        "ReLU features": np.maximum(X @ relu.T, 0.0) / np.abs(relu).sum(axis=1),
        # Without the factor sqrt(2/H), so that they fill [-1, 1].
        "Gaussian features": np.cos(X @ frequencies.T + phases),
    }
    return {
        "NTK regime": Linear(X, gates, together),
        "group SVM": Linear(X, gates, np.arange(units)),
        **{name: Linear(values, ones, alone) for name, values in features.items()},
    }


def correlations(method: Linear, n_bits: int) -> Array:
    """||c_S|| of every set S, shape (2^n,).

    The coefficient at S of z(x) x_i is that of z at S without i, or with it, so that the gates
    need one transform, the features none.
    """
    if method.gates.shape[1] == 1:
        return np.linalg.norm(linear.walsh_coefficients(method.X), axis=1)
    squares = np.square(linear.walsh_coefficients(method.gates)).sum(axis=1)
    rows = np.arange(2**n_bits)
    flipped = [squares[rows ^ (1 << i)] for i in range(n_bits)]
    return np.sqrt(reduce(np.add, flipped, squares))  # squares itself: the constant input


def soft_margins(method: Linear, norms: Array, sizes: Sizes, seed: int) -> Rows:
    """Soft margins of all strengths on samples from D_A; their norms and exact losses."""
    distribution = parities.ParityDistribution.random(sizes.n_bits, sizes.k, random_state=seed)
    bits = parities.cube(sizes.n_bits)
    y, probabilities = distribution.labels(bits), distribution.probabilities(bits)
    drawn = np.random.default_rng(seed).choice(len(bits), sizes.train_size, p=probabilities)
    correlation = float(norms[distribution.mask])
    hard = MarginProblem(method.X[drawn], y[drawn], method.gates[drawn], method.groups)
    # Up to here the soft margin's solution is 0.
    least = 1.0 / hard.dual_norms(np.ones(len(drawn))).max()
    for strength in STRENGTHS:
        solution = solve(replace(hard, C=strength * least), tol=1e-4)
        norm = float(solution.group_norms.sum())
        outputs = gated_linear(method.X, method.gates, solution.coef)
        yield {
            "seed": seed,
            "strength": strength,
            "correlation": correlation,
            "norm": norm,
            "loss": linear.hinge_loss(y, outputs, probabilities),
            "bound": float(linear.hinge_lower_bound(correlation, norm)),
        }


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """For each method: N, correlations with the parities, and losses over their bound."""
    groups = frame.groupby("method", sort=False)
    drawn = groups["correlation"].agg(lambda each: ", ".join(map("{:.4f}".format, each.unique())))
    off = (frame["loss"] - frame["bound"]).groupby(frame["method"]).min()
    least = groups["loss"].min()
    return groups.first().assign(drawn=drawn, least=least, off=off).reset_index()


def found(frame: pd.DataFrame) -> str:
    """In words."""
    first = frame.iloc[0]
    gap = frame["loss"] - frame["bound"]
    nearest, best = frame.iloc[int(gap.argmin())], frame.iloc[int(frame["loss"].argmin())]
    return (
        f"No predictor is below the bound of its own features, A and norm: the least distance is "
        f"{gap.min():.3f} ({nearest['method']}). The lowest loss of all is "
        f"{best['loss']:.2f}, of {best['method']} at a norm of {best['norm']:.1f}.\n\n"
        f"Sizes: all 2^{first['n_bits']} inputs, so that losses are exact; k = {first['k']}, "
        f"{first['units']} units or features, soft margins of {frame['strength'].nunique()} "
        f"strengths trained on {first['train_size']} samples, {frame['seed'].nunique()} sets A."
    )


def draw(frame: pd.DataFrame) -> Figure:
    """Draw exact losses as dots; the bound of these features and A, and that of any features."""
    figure, panels = subplots((8.0, 6.6), 2, 2, sharey=True)
    for ax, (name, rows) in zip(panels.flat, frame.groupby("method", sort=False), strict=True):
        rows = rows[rows["norm"] > 0]
        norms = np.geomspace(rows["norm"].min(), rows["norm"].max(), 200)
        for correlation in rows["correlation"].unique():
            curve = linear.hinge_lower_bound(correlation, norms)
            ax.plot(norms, curve, color=BLACK, linewidth=1, label="bound, these features and A")
        proved = linear.hinge_lower_bound(rows["proved"].iloc[0], norms)
        ax.plot(norms, proved, "--", color=GREY, label="bound, any features, some A")
        colour, mark = LOOKS[str(name)]
        ax.plot(rows["norm"], rows["loss"], mark[0], color=colour, markersize=5)
        ax.set(xscale="log", xlabel="norm B", title=f"{name}, N = {rows['n_features'].iloc[0]}")
        ax.tick_params(axis="x", which="minor", labelbottom=False)
    for ax in panels[:, 0]:
        ax.set(ylabel="hinge loss on D_A", ylim=(0, 1.05 * frame["loss"].max()))
    return common_legend(figure, panels.flat, 2)


def verdict(frame: pd.DataFrame) -> Verdict:
    """Judge the claim by the rule."""
    below = (frame["loss"] >= frame["bound"] - 1e-9).all()
    return Verdict.of(below and (frame["least_correlation"] <= frame["proved"]).all())


EXPERIMENT = Experiment(whole(measure), found, tabulate, verdict, draw)
