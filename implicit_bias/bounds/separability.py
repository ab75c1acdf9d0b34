"""Plain causes why no coefficients separate the data, and cures.

Proofs are in `gordan`.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import scipy.sparse as sp

from implicit_bias.base.validation import Array
from implicit_bias.problem import BLOCK, MarginProblem
from implicit_bias.problem.constraints import Integers


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
    """Look for a plain cause why no coefficients separate the samples.

    One is a sample whose features are all zero (all its gates are off, or its input is 0), unless
    an intercept predicts there. The other is a pair of identical inputs, with identical gates,
    whose labels differ. With a finite C neither matters: there is always a solution.

    Parameters
    ----------
    problem : MarginProblem
        The problem.
    numbers : ndarray of int, shape (N,), optional
        What the message calls the samples, if they are some of the rows of larger data.
    """
    if not problem.hard_margin:
        return None
    if numbers is None:
        numbers = np.arange(problem.n_samples)
    rows = problem.constraints
    values = np.zeros(len(rows))

    zero = np.flatnonzero(problem.zero_features)
    if len(zero) and not problem.intercept:
        # One row of each such sample is enough, against any rival: here the first one.
        values[np.searchsorted(rows.samples, zero)] = 1.0 / len(zero)
        return Conflict(
            f"samples {_named(numbers[zero], 5)} with all gates off (or an input of zeros), so the "
            "predictor is 0 there: add a unit that is always on, drop these samples, or choose a "
            "finite C (soft margin)",
            numbers[zero],
            rows.alpha(values),
        )

    pair = _contradiction(problem, zero)
    if pair is None:
        return None
    # The features of the pair are equal, and each has the other's class as its rival: they cancel.
    classes = problem.sample_classes[pair]
    for n, rival in zip(pair, classes[::-1], strict=True):
        values[(rows.samples == n) & (rows.rivals == rival)] = 0.5
    labels = "opposite labels"
    if len(problem.alpha_shape) > 1:
        labels = f"labels of the classes {classes[0]} and {classes[1]}"
    return Conflict(
        f"samples {numbers[pair[0]]} and {numbers[pair[1]]} are identical but have {labels}: drop "
        "one, or choose a finite C (soft margin)",
        numbers[pair],
        rows.alpha(values),
    )


def lacks_constant(problem: MarginProblem) -> bool:
    """Whether neither an intercept nor a constant feature gives the predictor an offset."""
    constant = (problem.X == problem.X[0]).all(axis=0) & (problem.X[0] != 0)
    return not (problem.intercept or constant.any())


def offset_advice(problem: MarginProblem) -> str:
    """Advise on an offset, where it is all that a predictor lacks.

    A constant input is multiplied by the gates. So it is advised only where the sum of some group's
    gates, or its only gate, is the same for all samples.
    """
    # The sum of each group's gates, (N, G).
    sums = problem.gates @ np.eye(problem.groups.max() + 1)[problem.groups]
    constant = ""
    if ((sums == sums[0]).all(axis=0) & (sums[0] != 0)).any():
        constant = "append a constant 1 to the inputs, or "
    return (
        f"the data are separable with an offset: {constant}let the predictor have an intercept "
        "(fit_intercept=True of an estimator, MarginProblem(..., intercept=True))"
    )


def scaling_advice(problem: MarginProblem, narrow: float = 1e-3) -> str | None:
    """Name the features that make the problem hard in float64, and the cure; None if none do.

    Parameters
    ----------
    problem : MarginProblem
        The problem.
    narrow : float
        A feature varies little about an offset where its standard deviation is below this fraction
        of its mean, and ranges are wide where they differ by more than the inverse.
    """
    X = problem.X[:: max(1, problem.n_samples // 5000)]  # some samples are enough
    varying = np.flatnonzero((X != X[0]).any(axis=0))
    if len(varying) == 0:
        return None
    mean = np.abs(X[:, varying].mean(axis=0))
    deviation = X[:, varying].std(axis=0)
    advice = []
    shifted = varying[deviation < narrow * mean]
    if len(shifted):
        advice.append(f"center features {_named(shifted, 3)}")
    usual = np.median(deviation)
    # Features of other units than most.
    far = varying[(deviation < narrow * usual) | (narrow * deviation > usual)]
    if len(far):
        advice.append(
            f"scale features {_named(far, 3)}, whose standard deviations are far from others'"
        )
    if not advice:
        return None
    return "; ".join(advice) + " (standardize)"


# --- samples with equal features -----------------------------------------------------------------


def _contradiction(problem: MarginProblem, zero: Integers) -> Integers | None:
    """Return two samples of equal features and of different labels, or None.

    The features of the samples ``zero`` are all 0.
    """
    same_input: dict[bytes, list[int]] = {}
    for n in _repeated(problem.X):
        same_input.setdefault(_digest(problem.X[n]), []).append(n)
    # Candidates: the samples whose features are 0, and each set of samples with equal inputs. Among
    # these, samples with equal gates have equal features.
    for samples in (zero.tolist(), *same_input.values()):
        if len(set(problem.y[samples])) < 2:
            continue
        gates = sp.csr_array(problem.gates[samples]).toarray()
        gates[np.isin(samples, zero)] = 0.0  # features of an input 0 are equal, whatever the gates
        first: dict[bytes, int] = {}
        for n, row in zip(samples, gates, strict=True):
            m = first.setdefault(_digest(row), n)
            if problem.y[m] != problem.y[n]:
                return np.array([m, n])
    return None


def _repeated(X: Array) -> list[int]:
    """Return the rows that equal another one, and a few that do not.

    Equal rows have equal sums of their bits under random weights, and other rows hardly ever do.
    The sums take one pass over X, a digest of each row takes several times as long.
    """
    weights = np.random.default_rng(0).integers(2**64, size=X.shape[1], dtype=np.uint64)
    sums = np.empty(len(X), dtype=np.uint64)
    for start in range(0, len(X), BLOCK):
        bits = (X[start : start + BLOCK] + 0.0).view(np.uint64)  # + 0.0 turns -0.0 to 0.0
        # Sums are modulo 2^64, so that high bits of an entry reach only high bits of a sum. The low
        # bits of small integers are all 0: the high ones are mixed into them.
        sums[start : start + BLOCK] = (bits ^ (bits >> 32)) @ weights
    in_order = np.sort(sums)
    recurring = in_order[1:][in_order[1:] == in_order[:-1]]
    repeated: list[int] = np.flatnonzero(np.isin(sums, recurring)).tolist()
    return repeated


def _digest(row: Array) -> bytes:
    """Equal for equal rows (adding 0.0 turns -0.0 to 0.0), practically never else."""
    return blake2b((row + 0.0).tobytes(), digest_size=16).digest()


def _named(items: Integers, shown: int) -> str:
    """Return the first items, and how many are not named."""
    names = ", ".join(str(item) for item in items[:shown])
    if len(items) > shown:
        names += f" and {len(items) - shown} more"
    return names
