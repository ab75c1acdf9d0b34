"""Whether any coefficients separate the data: plain causes why none do, and cures.

Proofs are in `gordan`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from implicit_bias.base import rounding
from implicit_bias.base.validation import Array
from implicit_bias.problem import BLOCK, MarginProblem
from implicit_bias.problem.constraints import Integers

# A feature varies little about an offset where its standard deviation is below this share of its
# mean, and ranges are wide where they differ by more than the inverse.
NARROW = 1e-3
# Evenly spaced samples that tell the ranges of the features.
SOME = 5000


@dataclass(frozen=True, eq=False)
class Conflict:
    """A plain reason why no coefficients can separate the data.

    Attributes
    ----------
    cause : str
        One sentence that names the cause and the cure.
    samples : ndarray of int
        The samples that cause it.
    alpha : ndarray of shape (N,) or (N, K)
        Gordan's certificate: alpha >= 0, sum 1, V(alpha) = 0.
    """

    cause: str
    samples: Integers
    alpha: Array


def find_conflict(problem: MarginProblem, numbers: Integers | None = None) -> Conflict | None:
    """Look for the plain causes of non-separability.

    A sample whose features are all zero (all its gates are off, or its input is 0), unless an
    intercept predicts there; two identical inputs, with identical gates, of opposite labels. A
    finite C forgives both.

    Parameters
    ----------
    problem : MarginProblem
        The problem.
    numbers : ndarray of int, shape (N,), optional
        What to call its samples, where they are some of the rows of larger data.
    """
    if numbers is None:
        numbers = np.arange(problem.n_samples)
    if not problem.hard_margin:
        return None
    zero, rows = np.flatnonzero(problem.zero_features), problem.constraints
    values = np.zeros(len(rows))
    if len(zero) and not problem.intercept:
        values[np.searchsorted(rows.samples, zero)] = 1.0 / len(zero)  # against any rival
        return Conflict(
            f"{_name_samples(numbers[zero])} with all gates off (or an input of zeros), so the "
            "predictor is 0 there: add a unit that is always on, drop the sample, or choose a "
            "finite C (soft margin)",
            numbers[zero],
            rows.alpha(values),
        )
    pair = _contradiction(problem, zero)
    if pair is not None:
        classes = problem.owners[pair]
        for n, rival in zip(pair, classes[::-1], strict=True):
            values[(rows.samples == n) & (rows.rivals == rival)] = 0.5
        labels = "opposite labels"
        if len(problem.alpha_shape) > 1:
            labels = f"labels of the classes {classes[0]} and {classes[1]}"
        return Conflict(
            f"samples {numbers[pair[0]]} and {numbers[pair[1]]} are identical but have {labels}: "
            "drop one, or choose a finite C (soft margin)",
            numbers[pair],
            rows.alpha(values),
        )
    return None


def lacks_constant(problem: MarginProblem) -> bool:
    """Whether neither an intercept nor a constant feature gives the predictor an offset."""
    constant = (problem.X == problem.X[0]).all(axis=0) & (problem.X[0] != 0)
    return not (problem.intercept or constant.any())


def offset_advice(problem: MarginProblem) -> str:
    """Say how a predictor gets the offset that is all it lacks.

    A constant feature passes through the gates, so it is named only where some gate, or the sum of
    a group's gates, is the same for all samples.
    """
    groups = np.unique(problem.groups, return_inverse=True)[1]
    sums = problem.gates @ np.eye(groups.max() + 1)[groups]
    passes = ((sums == sums[0]).all(axis=0) & (sums[0] != 0)).any()
    constant = "append a constant 1 to the inputs, or " if passes else ""
    return (
        f"the data are separable with an offset: {constant}let the predictor have an intercept "
        "(fit_intercept=True of an estimator, MarginProblem(..., intercept=True))"
    )


def scaling_advice(problem: MarginProblem) -> str | None:
    """Name the features that make the problem hard in float64, and the cure; None if none do.

    Offsets: their mean is a thousand times their standard deviation or more. Ranges: their
    standard deviation is a thousand times that of others. Both are those of `SOME` samples.
    """
    some = problem.X[:: max(1, problem.n_samples // SOME)]
    size = np.abs(some).max(axis=0)
    unit = np.where(size > 0, size, 1.0)
    X = some / unit
    mean, deviation = X.mean(axis=0), X.std(axis=0)
    varying = np.flatnonzero((some != some[0]).any(axis=0))
    if len(varying) == 0:
        return None
    parts = []
    ratio = np.abs(mean[varying]) / np.maximum(deviation[varying], np.finfo(np.float64).tiny)
    shifted = varying[ratio > 1 / NARROW][np.argsort(-ratio[ratio > 1 / NARROW])]
    if len(shifted):
        values = [f"{d} (mean {mean[d] * unit[d]:.4g}, " for d in shifted[:3]]
        spreads = [f"standard deviation {deviation[d] * unit[d]:.3g})" for d in shifted[:3]]
        named = ", ".join(a + b for a, b in zip(values, spreads, strict=True))
        parts.append(f"center features {named}{_and_more(shifted)}")
    spread = np.log2(np.maximum(deviation[varying], rounding.UNIT)) + np.log2(unit[varying])
    wide = varying[spread > np.median(spread) - np.log2(NARROW)]
    narrow = varying[spread < np.median(spread) + np.log2(NARROW)]
    far = np.concatenate([wide, narrow])
    if len(far):
        named = ", ".join(f"{d} ({deviation[d] * unit[d]:.3g})" for d in far[:3])
        parts.append(
            f"scale features {named}{_and_more(far)}, whose standard deviations are far from "
            f"that of others, {2.0 ** float(np.median(spread)):.3g}"
        )
    return "; ".join(parts) + " (standardise)" if parts else None


# --- plain causes ------------------------------------------------------------------------------


def _contradiction(problem: MarginProblem, zero: Integers) -> Integers | None:
    """Two samples of equal features and of opposite labels."""
    same_input: dict[bytes, list[int]] = {}
    for n in _repeated(problem.X):
        same_input.setdefault(_digest(problem.X[n]), []).append(n)
    for samples in (zero.tolist(), *same_input.values()):
        if len(set(problem.y[samples])) > 1:
            gates = sp.csr_array(problem.gates[samples]).toarray()
            gates[np.isin(samples, zero)] = 0.0  # of samples whose features are 0 anyway
            first: dict[bytes, int] = {}
            for n, row in zip(samples, gates, strict=True):
                m = first.setdefault(_digest(row), n)
                if problem.y[m] != problem.y[n]:
                    return np.array([m, n])
    return None


def _repeated(X: Array) -> list[int]:
    """Rows that equal another one, and a few others perhaps: those whose sum of digits recurs."""
    weights = _of_digits(X.shape[1])
    sums = np.empty(len(X), dtype=np.uint64)
    for start in range(0, len(X), BLOCK):
        bits = (X[start : start + BLOCK] + 0.0).view(np.uint64)  # + 0.0 turns -0.0 to 0.0
        # The last bits of small integers are zeros, and what is above 2^64 is dropped.
        sums[start : start + BLOCK] = (bits ^ (bits >> 32)) @ weights
    in_order = np.sort(sums)
    again = in_order[1:][in_order[1:] == in_order[:-1]]
    repeated: list[int] = np.flatnonzero(np.isin(sums, again)).tolist() if len(again) else []
    return repeated


@lru_cache(1)
def _of_digits(n_features: int) -> NDArray[np.uint64]:
    """Return what the digits of each feature count in a sum, at random."""
    weights = np.random.default_rng(0).integers(2**64, size=n_features, dtype=np.uint64)
    weights.setflags(write=False)
    return weights


def _digest(row: Array) -> bytes:
    """Equal for equal rows (adding 0.0 turns -0.0 to 0.0), practically never else."""
    return blake2b((row + 0.0).tobytes(), digest_size=16).digest()


def _name_samples(samples: Integers) -> str:
    names = ", ".join(str(n) for n in samples[:5])
    return f"sample{'s' if len(samples) > 1 else ''} {names}{_and_more(samples, 5)}"


def _and_more(items: Integers, shown: int = 3) -> str:
    return f" and {len(items) - shown} more" if len(items) > shown else ""
