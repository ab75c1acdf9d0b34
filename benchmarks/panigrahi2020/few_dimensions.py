"""Theorems 4.3 and 4.4: zero and tiny eigenvalues of activations without a kink, in few dimensions.

Rows of `polynomials` count the eigenvalues of G, and of G + H, that are not 0, of random samples in
a subspace of R^10. Rows of `smooth_activations` have the smallest eigenvalue and that of index
ceil(n / d') for tanh and swish: at infinite width by harmonics, at finite width by singular values
of the gradients, both far below the rounding of a matrix.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.bench import Part, part
from benchmarks.panigrahi2020 import gram_bounds as bounds
from benchmarks.panigrahi2020.finite_spectrum import polynomial
from benchmarks.panigrahi2020.gram_spectrum import polynomial_rank, sphere_eigenvalues
from benchmarks.panigrahi2020.shared import LEAST, SMOOTH, in_subspace, start_eigenvalues
from implicit_bias.base.validation import Array
from implicit_bias.kernels import gradient_gram as grams

COST = 0.4
# Relative to the largest, an eigenvalue above this is not 0, in the count of zeros.
NOT_ZERO = 1e-10
# Degrees of the monomials of each polynomial, with coefficients 1.
POLYNOMIALS = ("1", "2", "3", "4", "1 2", "1 2 3")
# Columns of eigenvalues that each statement is of, and those of the largest beside them.
SMALL = {
    "smallest": {"smallest": "largest", "finite_smallest": "finite_largest"},
    "index": {"at_index": "largest", "finite_at_index": "finite_largest"},
    "both": {"both_at_index": "both_largest"},
}


def measure(quick: bool) -> Iterator[Part]:
    """Count zeros of polynomials, and measure tiny eigenvalues."""
    dimensions, most, points = ((2, 3), 24, 6) if quick else ((2, 3, 4), 160, 9)
    sizes = np.unique(np.append(np.geomspace(2, most, points).astype(int), 10)).tolist()
    for dimension in dimensions:
        for degrees in POLYNOMIALS:
            for n in sizes:
                yield part(polynomials, degrees=degrees, dimension=dimension, n=n, width=1024)
    sizes = (8, 16, 32) if quick else (8, 12, 16, 24, 32, 48, 64, 96, 128)
    width, runs = (256, 1) if quick else (1024, 2)
    for activation in SMOOTH:
        for dimension in (2, 3, 4):
            for n in sizes:
                for run in range(runs):
                    yield part(
                        smooth_activations,
                        activation=activation,
                        dimension=dimension,
                        n=n,
                        run=run,
                        width=width,
                    )


def polynomials(degrees: str, dimension: int, n: int, width: int) -> Iterator[dict[str, Any]]:
    """Count the eigenvalues that are not 0, and those that the theorems leave."""
    powers = [int(degree) for degree in degrees.split()]
    degree = max(powers)
    phi = polynomial([float(power in powers) for power in range(degree + 1)])
    X = in_subspace(n, dimension)
    weights = list(grams.gaussian_weights(width, X.shape[1]))
    yield {
        "degree": degree,
        "infinite": rank(grams.infinite_gram(X, phi)),
        "finite": rank(grams.finite_gram(X, phi, weights)),
        "both": rank(grams.finite_gram(X, phi, weights, train_readouts=True)),
        "exact": min(n, polynomial_rank(powers, dimension)),
        "constraints": bounds.polynomial_constraints(degree, dimension),
    }


def rank(gram: Array) -> int:
    """Count the eigenvalues that are not rounding."""
    values = grams.eigenvalues(gram)
    return int(np.count_nonzero(values > NOT_ZERO * values[0]))


def smooth_activations(
    activation: str, dimension: int, n: int, run: int, width: int
) -> Iterator[dict[str, Any]]:
    """Largest and smallest eigenvalue, and those of the theorems' indices."""
    phi, X = grams.ACTIVATIONS[activation], in_subspace(n, dimension, dimension, seed=run)
    index = bounds.smooth_index(n, dimension)
    index_both = bounds.smooth_index(n, dimension, train_readouts=True)
    infinite = sphere_eigenvalues(X, phi)
    finite = start_eigenvalues(X, phi, width, run)
    both = start_eigenvalues(X, phi, width, run, train_readouts=True)
    yield {
        "largest": infinite[0],
        "smallest": infinite[-1],
        "at_index": infinite[index - 1],
        "finite_largest": finite[0],
        "finite_smallest": finite[-1],
        "finite_at_index": finite[index - 1],
        "both_largest": both[0],
        "both_at_index": both[index_both - 1],
    }


# --- what the table shows ------------------------------------------------------------------------


def numbers(frame: pd.DataFrame) -> dict[str, Any]:
    """Count the cells that agree with each version of theorem 4.3, and the series of 4.4."""
    counted = frame[frame["exact"].notna()]
    return of_polynomials(counted) | of_smooth(frame[frame["largest"].notna()])


def of_polynomials(cells: pd.DataFrame) -> dict[str, Any]:
    """Count cells; a condition is that of F.2, F.3 or, with the constant 1, of theorem 4.3.

    Of F.3 there are two: its proof asks for fewer than ceil(n / d') constraints, its display for
    at most n / d'.
    """
    n, dimension, constraints = cells["n"], cells["dimension"], cells["constraints"]
    index, index_both = np.ceil(n / dimension), np.ceil(2 * n / dimension)
    singular = (cells["finite"] < n) & (cells["infinite"] < n)
    zero, zero_both = cells["finite"] < index, cells["both"] < index_both
    f2, f3 = constraints < n, constraints * dimension < n
    f3_both = constraints * dimension <= n
    printed = dimension <= n ** (1 / cells["degree"]) + 1e-9
    exact = (cells["finite"] == cells["exact"]) & (cells["infinite"] == cells["exact"])
    outgrown, half = 1024, math.isqrt(1024) // 2
    return {
        "cells": len(cells),
        "exact": exact.sum(),
        "cells_f2": f2.sum(),
        "zero_f2": (singular & f2).sum(),
        "cells_printed": printed.sum(),
        "zero_printed": (singular & printed).sum(),
        "index_printed": (zero & printed).sum(),
        "cells_f3": f3.sum(),
        "index_f3": (zero & f3).sum(),
        "both_printed": (zero_both & printed).sum(),
        "cells_both": f3_both.sum(),
        "both_f3": (zero_both & f3_both).sum(),
        # With d' = sqrt(n) / 2 the rank of z + z^2 outgrows the index.
        "outgrown_n": outgrown,
        "outgrown_dimension": half,
        "outgrown_rank": polynomial_rank((1, 2), half),
        "outgrown_index": outgrown // half,
    }


def of_smooth(rows: pd.DataFrame) -> dict[str, Any]:
    """Compare -log(lambda) with the theorem's n^(1/(2 d')), at the least and at the largest n.

    The exponent is a lower bound: the ratio is to be positive, and may grow.
    """
    found = dict[str, Any]()
    for name, columns in SMALL.items():
        ratios = exponents(rows, columns)
        series = ratios.groupby(level=["activation", "dimension"])
        first = pd.concat([series.first()[column] for column in columns])
        last = pd.concat([series.last()[column] for column in columns])
        found |= {
            f"{name}_series": len(last),
            f"{name}_grow": (last > first.clip(lower=0)).sum(),
            f"{name}_low": last.min(),
            f"{name}_high": last.max(),
        }
    return found


def exponents(rows: pd.DataFrame, columns: dict[str, str]) -> pd.DataFrame:
    """Means of -log(lambda) / n^(1/(2 d')) over the runs; NaN where lambda is rounding."""
    keys = ["activation", "dimension", "n"]
    scale = [
        bounds.smooth_exponent(n, d) for n, d in zip(rows["n"], rows["dimension"], strict=True)
    ]
    ratios = rows[keys].copy()
    for column, largest in columns.items():
        known = rows[column].where(rows[column] > LEAST * rows[largest])
        ratios[column] = -np.log(known) / scale
    return ratios.groupby(keys, sort=False).mean()
