"""Theorem 4.7: smoothed data in many dimensions keep eigenvalues of tanh polynomial.

The data are d' different points that span d' dimensions, with noise sigma: each point equally
often, or one of them n - d' + 1 times. d' is sqrt n (gamma = 1/2) or twice as much.

Of n points within the order of sigma of one point, the features of G are, up to the order sigma^3,
polynomials of degree 2 in d' - 1 variables. C(d' + 1, 2) of these are independent. With d' = sqrt n
that is fewer than n: some combination of gradients is of the order sigma^3, and lambda_min of the
order sigma^6 at fixed n. That is the power of I.4, whose p is 3. Theorem 4.7, its informal version,
has 1/gamma = 2 in the place of p. With d' = 2 sqrt n there are more than n.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.bench import Part, part
from benchmarks.effects import Effect
from benchmarks.panigrahi2020 import gram_bounds as bounds
from benchmarks.panigrahi2020.gram_spectrum import smoothed_points
from benchmarks.summaries import exponent
from implicit_bias.base.validation import Array
from implicit_bias.kernels import gradient_gram as grams

COST = 0.8
EVEN, ONE = "points taken equally often", "one point n - d' + 1 times"
# Standard deviations of the noise, and the one at which sizes are compared.
NOISES, SHOWN = (0.4, 0.2, 0.1, 0.05, 0.025, 0.0125), 0.1


def measure(quick: bool) -> Iterator[Part]:
    """Smallest eigenvalues at infinite width against the noise and the number of samples."""
    # From 9 on C(d', 3) >= n, so that p = 3.
    roots, runs = ((9, 10), 2) if quick else ((9, 10, 12, 14, 17, 20), 10)
    for base, times, root in itertools.product((EVEN, ONE), (1, 2), roots):
        yield part(smallest, base=base, times=times, n=root**2, dimension=times * root, runs=runs)


def smallest(
    base: str, times: int, n: int, dimension: int, runs: int
) -> Iterator[dict[str, float]]:
    """Yield a row for each size of the noise and each draw of it."""
    phi, X = grams.ACTIVATIONS["tanh"], points(base, n, dimension)
    for noise, run in itertools.product(NOISES, range(runs)):
        noisy = smoothed_points(X, noise, seed=run)
        values = grams.eigenvalues(grams.infinite_gram(noisy, phi))
        yield {
            "noise": noise,
            "run": run,
            "p": bounds.smoothed_degree(n, dimension),
            "smallest": values[-1],
            "largest": values[0],
            # Lemma I.1, the best of the first eight powers.
            "hadamard": bounds.hadamard_bound(noisy, phi, powers=8),
        }


def points(base: str, n_samples: int, dimension: int) -> Array:
    """Return unit vectors that span d' dimensions and are no more than d' different ones."""
    index = np.arange(n_samples)
    which = index % dimension if base == EVEN else np.maximum(index - (n_samples - dimension), 0)
    return np.eye(dimension)[which]


def powers_of_noise(rows: pd.DataFrame) -> pd.Series[float]:
    """Fit the power of sigma that lambda_min follows at the three least noises, one a draw."""
    few = rows[rows["noise"] <= NOISES[-3]]
    return pd.Series([exponent(run["noise"], run["smallest"]) for _, run in few.groupby("run")])


def numbers(frame: pd.DataFrame) -> dict[str, Any]:
    """Return the worst powers of sigma and of n for both d', and how near lemma I.1 is."""
    found = dict[str, Any]()
    for times, name in ((1, "root"), (2, "twice")):
        fits, of_n = list[Effect](), list[float]()
        for base in (EVEN, ONE):
            rows = frame[(frame["times"] == times) & (frame["base"] == base)]
            fits += [Effect.of(powers_of_noise(cells)) for _, cells in rows.groupby("n")]
            middle = rows[rows["noise"] == SHOWN].groupby("n")["smallest"].min()
            of_n.append(exponent(middle.index.to_numpy(dtype=float), middle))
        found[f"worst_{name}"] = max(fits, key=lambda fit: fit.mean)
        found[f"n_{name}"] = min(of_n)
    # Eigenvalues are right up to rounding of the largest one.
    known = frame[frame["hadamard"] > 1e-6 * frame["largest"]]
    ratios = known["smallest"] / known["hadamard"]
    return found | {
        "p": frame["p"].max(),
        "hadamard_low": ratios.min(),
        "hadamard_high": ratios.max(),
    }
