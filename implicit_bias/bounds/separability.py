r"""Whether any coefficients separate the data: proofs that none do, plain causes and cures.

Gordan: either some coefficients have y_n (f(x_n) + b) > 0 for all n, or some alpha >= 0, not 0, has
V(alpha) = 0 (and sum_n alpha_n y_n = 0, where there is an intercept); never both. A V that is
nearly 0 proves nothing: then any separator is merely large. So `prove_not_separable` looks for an
exact alpha near the one it is given, in this order:

1. V of the alpha given, in higher precision, is exactly 0: contradictory twins, samples without
   features, integers.
2. Rational  Few samples or few features: a basic solution of V = 0 (a linear program), solved
             again in exact rational arithmetic over the stored float64, is positive.
3. Interval  More features than that: on as many samples B as there are independent features, the
             square system A e = -V, A = features of B times alpha_B, has a solution with |e| < 1,
             by an approximate inverse and bounds on all rounding errors. Then alpha_B (1 + e) > 0
             makes V exactly 0. Features that are exact multiples or sums of others (constant
             pixels; contexts of a unit, which sum to 1; one of the classes that only compete with
             one another) are left out: their equations follow. A proof often needs a few samples
             alone, which have fewer independent features than all: so it is tried without those
             of hardly any weight, too.

Alpha is that of `problem.constraints`, and V that of all classes but the last, whose columns are
the negative sum of the others'.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
import scipy.sparse.csgraph
from numpy.typing import NDArray

from implicit_bias.base import rounding
from implicit_bias.base.deadline import NEVER, Deadline
from implicit_bias.base.linear import linprog
from implicit_bias.base.validation import Array
from implicit_bias.problem import BLOCK, Constraints, Features, MarginProblem
from implicit_bias.problem.constraints import Integers

# Exact elimination costs rank^3 operations on integers of up to rank * 110 bits.
MOST_EXACT_RANK = 60
MOST_EXACT_ENTRIES = 200_000
# Columns that are looked at, for the ones that are repeated, are so many times as many.
REPEATS = 10
# The linear program before it takes less than one, unless HiGHS goes in circles.
MOST_SECONDS = 10.0
# The interval method costs a factorisation of CANDIDATES * rank samples.
MOST_INTERVAL_RANK = 1500
CANDIDATES = 4
# Entries of a feature matrix that are formed for a proof.
MOST_ENTRIES = 20_000_000
# The simplex method in integers takes seconds at these sizes.
MOST_SIMPLEX_RANK = 40
MOST_SIMPLEX_BITS = 2_400_000
MOST_PIVOTS_A_ROW = 30
# Samples whose weight, alpha_n ||phi_n||, is below this share of the largest have no part in a
# basic solution; nor have those that a linear program leaves below the other.
NO_PART = 1e-6
VERTEX_ZERO = 1e-12
# A feature varies little about an offset where its standard deviation is below this share of its
# mean, and ranges are wide where they differ by more than the inverse.
NARROW = 1e-3

# Products below two to this power lose digits in float64, whose smallest number is 2^-1074.
SMALLEST_EXPONENT = -960


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


@dataclass(frozen=True, eq=False)
class Proof:
    """No coefficients separate: within rounding of ``alpha`` some alpha has V exactly 0.

    Attributes
    ----------
    alpha : ndarray of shape (N,) or (N, K)
        Not negative, sum 1.
    method : str
        "exact" (alpha before it was scaled), "rational" or "interval".
    correction : float
        Largest relative change of an entry that makes V exactly 0; below 1. It is what rounding
        to float64 leaves for the first two methods.
    """

    alpha: Array
    method: str
    correction: float


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
        labels = f"labels of the classes {classes[0]} and {classes[1]}"
        if problem.classes is None:
            labels = "opposite labels"
        return Conflict(
            f"samples {numbers[pair[0]]} and {numbers[pair[1]]} are identical but have {labels}: "
            "drop one, or choose a finite C (soft margin)",
            numbers[pair],
            rows.alpha(values),
        )
    return None


def prove_not_separable(problem: MarginProblem, alpha: Array) -> Proof | None:
    """Prove that no coefficients separate the data, from dual variables whose V is nearly 0.

    Parameters
    ----------
    problem : MarginProblem
        The problem, of any C: the proof is about the hard margin.
    alpha : ndarray of shape (N,) or (N, K)
        Dual variables, not negative. Those of samples that a proof needs must not be 0.

    Returns
    -------
    Proof or None
        None where there is no proof by these means, which says nothing of the data.
    """
    rows = _Rows.of(problem, alpha > 0)  # the others have no part in a proof
    values = rounding.unit_weights(rows.constraints.values(alpha), rows.features.norms)
    if not values.any():
        return None
    of_integers = features_underflow(problem)
    for method in (_as_given, _rational, _interval, _on_support, _interval_of_few):
        if of_integers and method not in (_rational, _on_support):
            continue
        proof = method(rows, values)
        if proof is not None:
            return replace(proof, alpha=rows.constraints.alpha(proof.alpha))
    return None


def gordan_vertex(problem: MarginProblem, deadline: Deadline = NEVER) -> Array | None:
    """Search for alpha >= 0 with V = 0 by the simplex method in exact arithmetic.

    It needs no approximate alpha to begin with, unlike `prove_not_separable`, which can verify what
    it returns; it is for small problems that are too ill-conditioned for float64.

    Parameters
    ----------
    problem : MarginProblem
        The problem.
    deadline : Deadline
        When to give up.

    Returns
    -------
    ndarray of shape (N,) or (N, K), or None
        A vertex, sum 1, rounded to float64; None where there is none, so that the data are
        separable, or the problem is too large.

    Raises
    ------
    TimeoutError
        The deadline has passed.
    """
    rows = _Rows.of(problem)
    samples = np.arange(len(rows.features))
    equations = _equations(rows, samples)
    if not equations or min(len(samples), len(equations)) > MOST_SIMPLEX_RANK:
        return None
    most = max(abs(v).bit_length() for row in equations for v in row)
    if len(samples) * len(equations) * most > MOST_SIMPLEX_BITS:
        return None
    # Samples are brought to one size by powers of two, and lose common factors of two.
    sizes = [max(abs(v).bit_length() for v in column) for column in zip(*equations, strict=True)]
    level = [
        [v << (max(sizes) - size) for v, size in zip(row, sizes, strict=True)] for row in equations
    ]
    ray = _positive_null_vector([_without_twos(row) for row in level], deadline)
    if ray is None:
        return None
    shares = _shares([int(v) << (max(sizes) - size) for v, size in zip(ray, sizes, strict=True)])
    return rows.constraints.alpha(shares)


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
    standard deviation is a thousand times that of others.
    """
    size = np.abs(problem.X).max(axis=0)
    unit = np.where(size > 0, size, 1.0)
    X = problem.X / unit
    mean, deviation = X.mean(axis=0), X.std(axis=0)
    varying = np.flatnonzero((problem.X != problem.X[0]).any(axis=0))
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


@dataclass(frozen=True, eq=False)
class _Rows:
    """Some constraints with the columns of all classes but the last, and their features."""

    constraints: Constraints
    features: Features

    @classmethod
    def of(cls, problem: MarginProblem, where: NDArray[np.bool_] | None = None) -> _Rows:
        """Return those of a problem, or of some of its dual variables."""
        rows = problem.constraints.undecided().narrowed()
        rows = rows if where is None else rows.subset(rows.values(where))
        return cls(rows, problem.features.of_rows(rows))

    @cached_property
    def gates(self) -> sp.csc_array:
        """Gates, with the offsets."""
        offsets = sp.csr_array(self.constraints.offsets)
        return sp.csc_array(sp.hstack([self.features.sparse_gates, offsets]))

    @cached_property
    def inputs(self) -> Array:
        """Inputs, with a constant."""
        return np.hstack([self.features.X, np.ones((len(self.features), 1))])

    def columns(self, gates: Integers, inputs: Integers, offsets: Integers) -> Integers:
        """Numbers of columns: those of gates and inputs, and those of some of the offsets.

        Gate m times input d is column m D + d, and the offsets' columns come after all these.
        """
        n_gates, n_inputs = self.features.shape
        products = gates[:, None].astype(np.int64) * n_inputs + inputs
        return np.append(products, n_gates * n_inputs + offsets)

    def factors(self, columns: Integers) -> list[Array]:
        """Gates and inputs, (rows, columns), of which some columns are the products."""
        n_gates, n_inputs = self.features.shape
        beyond = columns - n_gates * n_inputs  # from 0 on for those of offsets
        gate = np.where(beyond < 0, columns // n_inputs, n_gates + beyond)
        used, place = np.unique(gate, return_inverse=True)
        inputs = self.inputs[:, np.where(beyond < 0, columns % n_inputs, n_inputs)]
        return [self.gates[:, used].toarray()[:, place], inputs]

    def subset(self, index: Integers) -> _Rows:
        """Return some of the rows."""
        return _Rows(self.constraints.subset(index), self.features.subset(index))

    def seen(self, alpha: Array) -> Array:
        """Return alpha of the rows that have features."""
        return np.where(self.features.zero, 0.0, alpha)


# --- proofs ----------------------------------------------------------------------------------


def features_underflow(problem: MarginProblem) -> bool:
    """Whether a feature, gate times input, may be 0 in float64 where the exact product is not.

    What is bounded in float64 would then be about other data.
    """
    gates = problem.gates.data if sp.issparse(problem.gates) else problem.gates
    sizes = np.abs(gates), np.abs(problem.X)
    smallest = [np.min(size, where=size > 0, initial=1.0) for size in sizes]
    return bool(sum(np.frexp(smallest)[1]) < SMALLEST_EXPONENT)


def _as_given(rows: _Rows, alpha: Array) -> Proof | None:
    """V of alpha itself, and the equation of the intercept, hold exactly."""
    if any(_imbalances(rows, alpha)):
        return None
    features = rows.features
    for _, V in rounding.precise_dual_vectors(features.sparse_gates, features.X, rows.seen(alpha)):
        if V.magnitude.any():
            return None
    return Proof(alpha / alpha.sum(), "exact", rounding.UNIT)


def _rational(rows: _Rows, alpha: Array) -> Proof | None:
    """Solve V = 0 in exact arithmetic on the support of a basic solution."""
    samples = _with_weight(rows, alpha)
    columns = _used_columns(rows, samples)
    if columns is None:
        return None
    basis = _basic_solution(_features(rows, samples, columns), alpha[samples])
    if basis is None or len(basis) < 2:
        return None
    return _rational_proof(rows, samples[basis])


def _on_support(rows: _Rows, alpha: Array) -> Proof | None:
    """Solve V = 0 on all samples of an alpha that is a vertex, in exact arithmetic alone."""
    samples = np.flatnonzero(alpha)
    return _rational_proof(rows, samples) if len(samples) <= MOST_SIMPLEX_RANK + 1 else None


def _rational_proof(rows: _Rows, samples: Integers) -> Proof | None:
    """Return the proof by weights of some samples that make V exactly 0, if they have one sign.

    If there are such weights up to a factor: all others would have to be searched for their signs.
    """
    from flint import fmpz_mat

    equations = _equations(rows, samples)
    if not equations:
        return None
    basis, nullity = fmpz_mat(equations).nullspace()
    solution = [int(row[0]) for row in basis.tolist()] if nullity == 1 else [0]
    if not (min(solution) > 0 or max(solution) < 0):
        return None
    found = np.zeros(len(rows.features))
    found[samples] = _shares(solution)
    return Proof(found, "rational", rounding.UNIT)


def _shares(values: list[int]) -> Array:
    """Return integers over their sum, rounded to float64."""
    total = sum(values)
    return np.array([value / total for value in values])  # of integers: rounded once


def _interval(rows: _Rows, alpha: Array) -> Proof | None:
    """Correct alpha on as many samples as there are independent features."""
    weight = rows.seen(alpha) * rows.features.norms
    columns = _independent_columns(rows)
    width = len(columns)
    if np.count_nonzero(weight) < width or width > MOST_INTERVAL_RANK:
        return None
    samples = np.argsort(-weight, kind="stable")[: CANDIDATES * width]
    samples = np.sort(samples[weight[samples] > 0])
    Phi = _features(rows, samples, columns) * alpha[samples, None]
    size = np.abs(Phi).max(axis=0)
    if not (size > 0).all():
        return None
    unit = np.ldexp(1.0, np.frexp(size)[1])  # a power of two: exact to divide by
    _, pivots = scipy.linalg.qr((Phi / unit).T, mode="r", pivoting=True)
    A = (Phi[pivots[:width]] / unit).T  # (width, B), each entry with two roundings
    try:
        inverse = np.linalg.inv(A)
    except np.linalg.LinAlgError:
        return None
    size = np.abs(inverse)
    residual = np.abs(np.eye(width) - inverse @ A).sum(axis=1)
    residual += rounding.gamma(width + 8) * (size @ np.abs(A).sum(axis=1) + 1.0)
    contraction = rounding.SAFETY * float(
        residual.max()
    )  # bounds ||I - inverse A||, A as real numbers
    if not contraction < 0.5:
        return None
    V = _magnitudes(rows, alpha)[columns] / unit
    correction = rounding.SAFETY * float((size @ V).max()) / (1.0 - contraction)
    if not correction < 0.99:
        return None
    return Proof(alpha / alpha.sum(), "interval", correction)


def _interval_of_few(rows: _Rows, alpha: Array) -> Proof | None:
    """Correct alpha without the samples of hardly any weight."""
    samples = _with_weight(rows, alpha)
    if len(samples) == len(alpha):
        return None
    proof = _interval(rows.subset(samples), alpha[samples])
    if proof is None:
        return None
    found = np.zeros(len(alpha))
    found[samples] = proof.alpha
    return replace(proof, alpha=found)


def _with_weight(rows: _Rows, alpha: Array) -> Integers:
    """Return the samples that may have a part in a basic solution."""
    weight = alpha * np.where(rows.features.zero, 1.0, rows.features.norms)
    return np.flatnonzero(weight > NO_PART * weight.max())


def _magnitudes(rows: _Rows, alpha: Array) -> Array:
    """Upper bounds on the absolute values of V, a number a column."""
    features = rows.features
    size = np.zeros(features.shape)
    for columns, V in rounding.precise_dual_vectors(
        features.sparse_gates, features.X, rows.seen(alpha)
    ):
        size[:, columns] = V.magnitude
    return np.append(size, np.abs(_imbalances(rows, alpha)) * (1.0 + 4 * rounding.UNIT))


# --- features ----------------------------------------------------------------------------------


def _used_columns(rows: _Rows, samples: Integers, most: int = MOST_ENTRIES) -> Integers | None:
    """Columns that are not 0 on all of some samples; None if there are too many."""
    features, n_offsets = rows.features, len(rows.constraints.offset_classes)
    gates = np.unique(features.sparse_gates[samples].indices)
    inputs = np.flatnonzero(features.X[samples].any(axis=0))
    if len(samples) * len(gates) * len(inputs) > most:
        return None
    return rows.columns(gates, inputs, np.arange(n_offsets))


def _imbalances(rows: _Rows, alpha: Array) -> list[float]:
    """sum_p alpha_p offsets_p, J numbers, rounded once: 0 only where the real sum is 0."""
    columns = rows.constraints.offsets.T  # -1, 0 or 1: all products are exact
    return [math.fsum((alpha * column).tolist()) for column in columns]


def _features(rows: _Rows, samples: Integers, columns: Integers) -> Array:
    """Features (samples, columns), each entry rounded once."""
    return np.asarray(np.multiply(*rows.subset(samples).factors(columns)))


def _equations(rows: _Rows, samples: Integers) -> list[list[int]] | None:
    """V = 0 in integers: columns of features as real numbers, each times a power of two.

    None of zeros and none twice; None if there are too many.
    """
    columns = _used_columns(rows, samples, REPEATS * MOST_EXACT_ENTRIES)
    if columns is None:
        return None
    # Of float64 the products would be rounded, to equal ones or to 0.
    factors = rows.subset(samples).factors(columns)
    factors = [np.where(factors[0] * np.sign(factors[1]), part, 0.0) for part in factors]
    both = np.vstack(factors).T + 0.0  # which turns -0.0 to 0.0
    distinct = {column.tobytes(): column for column in both if column.any()}
    if len(samples) * len(distinct) > MOST_EXACT_ENTRIES:
        return None
    equations: dict[tuple[int, ...], None] = {}
    for column in distinct.values():
        ratios = [[v.as_integer_ratio() for v in part.tolist()] for part in np.split(column, 2)]
        # Denominators are powers of two: the largest is common to all.
        row = [(a * c, b * d) for (a, b), (c, d) in zip(*ratios, strict=True)]
        common = max(denominator for _, denominator in row)
        equations[tuple(_without_twos([value * (common // b) for value, b in row]))] = None
    return [list(row) for row in equations]


def _independent_columns(rows: _Rows) -> Integers:
    """Columns of which all others are exact linear combinations, over all samples.

    Left out are inputs that are constant (but one of them); gates that are always 0; of each group
    of gates whose sum is a multiple of another group's, or gate's, the first; and of classes that
    only compete with one another the last, whose columns are the negative sum of the others'.
    """
    X, constraints = rows.features.X, rows.constraints
    constant = (X == X[0]).all(axis=0)
    constants = np.flatnonzero(constant & (X[0] != 0))
    inputs = np.sort(np.concatenate([np.flatnonzero(~constant), constants[:1]]))
    gates = rows.features.sparse_gates.tocsc()
    width, classes = constraints.width, constraints.offset_classes
    blocks = np.repeat(np.arange(width), gates.shape[1] // width)
    off = gates.count_nonzero(axis=0) == 0
    off |= np.isin(blocks, _redundant_classes(constraints, blocks))
    off_offsets = ~constraints.offsets.any(axis=0)
    off_offsets |= np.isin(classes, _redundant_classes(constraints, classes))
    left_out, sums = np.flatnonzero(off).tolist(), set()
    groups = blocks * gates.shape[1] + rows.features.groups  # each class has its own
    for g in np.unique(groups):
        columns = np.flatnonzero((groups == g) & ~off)
        pattern = _pattern_of_sum(gates[:, columns])
        if pattern in sums:
            left_out.append(int(columns[0]))
        elif pattern is not None:
            sums.add(pattern)
    kept = np.setdiff1d(np.arange(gates.shape[1]), left_out)
    if len(constants):
        # A constant input under gates of an offset's pattern is its column, times a number.
        patterns = [
            _pattern_of_sum(sp.csc_array(column[:, None])) for column in constraints.offsets.T
        ]
        off_offsets |= np.array([pattern in sums for pattern in patterns], dtype=bool)
    return rows.columns(kept, inputs, np.flatnonzero(~off_offsets))


def _redundant_classes(rows: Constraints, represented: Integers) -> Integers:
    """Return the last of the classes that only compete with one another, if all have columns."""
    n = rows.n_classes
    edges = sp.coo_array((np.ones(len(rows)), (rows.owners, rows.rivals)), shape=(n, n))
    count, label = scipy.sparse.csgraph.connected_components(edges, directed=False)
    members = [np.flatnonzero(label == k) for k in range(count)]
    found = [int(those[-1]) for those in members if np.isin(those, represented).all()]
    return np.array(found, dtype=np.int64)


def _pattern_of_sum(gates: sp.csc_array) -> bytes | None:
    """Return what is equal for sums of gates that are multiples of one another.

    None where the sum is not exact: where a sample has two nonzero gates, or their values differ.
    """
    rows, values = gates.indices[gates.data != 0], gates.data[gates.data != 0]
    if len(values) == 0 or len(np.unique(rows)) < len(rows):
        return None
    first = values[np.argmin(rows)]
    if (np.abs(values) != abs(first)).any():
        return None
    signs = np.zeros(gates.shape[0], dtype=np.int8)
    signs[rows] = np.sign(values) * np.sign(first)
    return signs.tobytes()


# --- linear algebra ----------------------------------------------------------------------------


def _basic_solution(Phi: Array, alpha: Array) -> Integers | None:
    """Rows of Phi (n, k) that a vertex of {a >= 0: Phi' a = 0, sum a = 1} uses.

    None if the linear program has no solution, or none in time, or more rows than the exact
    solution could take.
    The equations are those of an orthonormal basis, so that offsets do not hide small features.
    """
    norms = rounding.row_norms(Phi)
    scaled = _equilibrated(Phi / np.where(norms > 0, norms, 1.0)[:, None])
    if scaled.shape[1] == 0:
        return np.array([int(np.argmax(alpha))])
    Q, R, _ = scipy.linalg.qr(scaled, mode="economic", pivoting=True)
    diagonal = np.abs(np.diag(R))
    rank = int(np.count_nonzero(diagonal > rounding.UNIT * max(scaled.shape) * diagonal[0]))
    if rank > MOST_EXACT_RANK:
        return None
    found = linprog(
        -alpha * np.where(norms > 0, norms, 1.0),
        A_eq=np.vstack([Q[:, :rank].T / np.abs(Q[:, :rank]).max(axis=0)[:, None], np.ones(len(Q))]),
        b_eq=np.append(np.zeros(rank), 1.0),
        method="highs-ds",
        deadline=Deadline.after(MOST_SECONDS),
    )
    return np.flatnonzero(found.x > VERTEX_ZERO) if found.status == 0 else None


def _equilibrated(A: Array) -> Array:
    """Columns divided by their largest entries; those of zeros stay."""
    size = np.abs(A).max(axis=0, initial=0.0)
    return np.asarray(A / np.where(size > 0, size, 1.0))


def _without_twos(row: list[int]) -> list[int]:
    """Integers without the powers of two that all of them have."""
    zeros = min(((v & -v).bit_length() - 1 for v in row if v), default=0)
    return [v >> zeros for v in row]


def _positive_null_vector(equations: list[list[int]], deadline: Deadline) -> list[Any] | None:
    """Return x >= 0, not 0, with A x = 0, if there is one: a ray of a linear program.

    max sum(x) over x >= 0 with A x = A x_0 is unbounded just if there is such an x, whatever the
    x_0 >= 0. A random one has no degenerate vertices, which make the simplex method go in circles.
    All divisions are exact (Edmonds: integer pivoting). Integers are those of FLINT, which
    multiplies and divides thousands of digits ten times as fast as Python.
    """
    from flint import fmpq, fmpz, fmpz_mat

    T, basis, last = np.array(fmpz_mat(equations).tolist(), dtype=object), [], fmpz(1)
    n = T.shape[1]
    i = 0
    while i < len(T):
        column = int(np.argmax(T[i] != 0))
        if T[i, column] == 0:
            T = np.delete(T, i, axis=0)
            continue
        T, last = _pivoted(T, i, column, last, deadline)
        basis.append(column)
        i += 1
    right = np.random.default_rng(0).integers(1, 2**30, size=len(T)).astype(object) * last
    # The last row is the objective's, sum(x), less what the basis makes of it.
    T = np.vstack([np.hstack([T, right[:, None]]), np.append(last - T.sum(axis=0), 0)])
    for _ in range(MOST_PIVOTS_A_ROW * n):
        entering = int(np.argmax(T[-1, :n]))
        if T[-1, entering] <= 0:
            return None
        rows = [i for i in range(len(basis)) if T[i, entering] > 0]
        if not rows:
            ray = [0] * n
            ray[entering] = last
            for i, member in enumerate(basis):
                ray[member] = -T[i, entering]
            return ray
        leaving = min(rows, key=lambda i: fmpq(T[i, -1], T[i, entering]))  # noqa: B023
        T, last = _pivoted(T, leaving, entering, last, deadline)
        basis[leaving] = entering
    return None


def _pivoted(
    T: NDArray[np.object_], row: int, column: int, last: int, deadline: Deadline
) -> tuple[NDArray[np.object_], int]:
    """Make a column a unit vector, times the pivot; ``last`` is the pivot before."""
    top = T[row] if T[row, column] > 0 else -T[row]
    lead = top[column]
    changed = np.empty_like(T)
    for i, values in enumerate(T):
        deadline.check()  # of integers of many digits, a row may take seconds
        changed[i] = top if i == row else (lead * values - values[column] * top) // last
    return changed, lead


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
