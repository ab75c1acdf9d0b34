r"""Which equations are independent, which follow from others, and which contradict them.

Rows are scaled by powers of two to norms between 1/2 and 1, so that no sample counts for its size.
A factorization with pivots, A' P = Q [R_1 R_2], finds independent rows I. Each other row a_j is, up
to rounding, the combination c' A_I with R_1 c = (R_2)_j. Where few c are not 0, the features are
taken as integers times powers of two, and a null vector x of these few rows tells exactly:

    x' A = 0 and x' Y = 0    the equation follows from the others: it is left out
    x' A = 0, x' Y != 0      no coefficients interpolate (a theorem of the alternative, Fredholm's)
    no such x                independent of them in digits that float64 does not hold: undecided

Where the rows of I span the whole space (as many as features), a real vector c exists for each
further row, and an interval holds what x' Y is for x = (c, -1):

    c' y_I = a_j' B (I - E)^-1 y_I,   E = I - A_I B,   |a_j' B E (I - E)^-1 y_I| <= ||a_j' B||
    ||E|| / (1 - ||E||) ||y_I||

for any B, that of `RightInverse`. If y_j is outside, no coefficients interpolate.

**Right inverse.** If ||E|| < 1 the equations of I have solutions whatever the values are: B (I -
E)^-1 is a right inverse of A_I, of norm ||B|| / (1 - ||E||) at most. It is what the upper bound of
`certificate` rests on. ||E|| is bounded by its Frobenius norm, with the rounding of A_I B:
gamma_F ||A_I||_F ||B||_F.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.linalg

from implicit_bias.base.rounding import SAFETY, UNDERFLOW, UNIT, gamma
from implicit_bias.base.validation import Array
from implicit_bias.bounds.integers import Whole, integer_products
from implicit_bias.interpolation.problem import InterpolationProblem
from implicit_bias.problem.constraints import Integers
from implicit_bias.problem.gating import dense


@dataclass(frozen=True, eq=False)
class Inconsistency:
    """A proof that no coefficients interpolate: a combination of samples whose features cancel.

    Attributes
    ----------
    samples : ndarray of int, shape (S,)
        The samples of the combination.
    multipliers : tuple of int, or None
        Integers x with sum_n x_n phi(x_n) = 0 exactly (and sum_n x_n = 0 with an intercept), while
        sum_n x_n y_n is not 0. None where rounding bounds prove it: such real x exist.
    output : int
        The output k whose values contradict each other.

    Examples
    --------
    >>> from implicit_bias import min_norm
    >>> proof = min_norm([[1.0, 2.0], [0.0, 1.0], [1.0, 2.0]], [1.0, 0.0, 3.0]).inconsistency
    >>> print(proof.samples, proof.multipliers, proof.cause)
    [0 2] (1, -1) samples 0 and 2 have the same features and other values
    """

    samples: Integers
    multipliers: tuple[int, ...] | None
    output: int

    @property
    def cause(self) -> str:
        """The contradiction in words."""
        names = [str(n) for n in self.samples]
        if len(names) == 1:
            return (
                f"sample {names[0]} has no features (inputs or gates are all 0), and its value is "
                "not 0"
            )
        if len(names) == 2 and self.multipliers is not None and sum(self.multipliers) == 0:
            return f"samples {names[0]} and {names[1]} have the same features and other values"
        listed = ", ".join(names)
        if len(names) > 10:
            listed = f"{', '.join(names[:9])} and {len(names) - 9} others"
        return f"the features of samples {listed} are linearly dependent, their values are not"


@dataclass(frozen=True, eq=False)
class RightInverse:
    """Independent rows A, scaled by powers of two, and B with A B near I.

    Attributes
    ----------
    A : ndarray of shape (n, F)
        Rows, with a last column of the offset where there is one.
    B : ndarray of shape (F, n)
        Right inverse up to rounding.
    """

    A: Array
    B: Array

    @classmethod
    def of(cls, A: Array) -> RightInverse:
        """Return that of a factorization A' = Q R: B = Q R^-T."""
        Q, R = scipy.linalg.qr(A.T, mode="economic", check_finite=False)
        # A B = R' Q' Q R^-T = I.
        return cls(A, scipy.linalg.solve_triangular(R, Q.T, check_finite=False).T)

    @cached_property
    def defect(self) -> float:
        """Rigorous upper bound on ||I - A B||, for A with one rounding in each entry."""
        found = float(np.linalg.norm(np.eye(len(self.A)) - self.A @ self.B))
        rounding = gamma(self.A.shape[1] + 4) * float(np.linalg.norm(self.A)) * self.size
        return SAFETY * (found * (1.0 + gamma(self.A.size)) + rounding) + UNDERFLOW

    @cached_property
    def size(self) -> float:
        """||B||_F, up to rounding that SAFETY covers."""
        return float(np.linalg.norm(self.B))

    def norm(self, n_features: int) -> float:
        """Upper bound on the norm of the exact right inverse's first rows; inf without a proof."""
        if not self.defect < 1.0:
            return math.inf
        # B (A B)^-1 is the exact one, and ||(A B)^-1|| is at most 1 / (1 - ||I - A B||) (Neumann).
        part = float(np.linalg.norm(self.B[:n_features]))
        return SAFETY * part / (1.0 - self.defect)


@dataclass(frozen=True, eq=False)
class Equations:
    """The equations of a problem, sorted.

    Attributes
    ----------
    independent : ndarray of int, shape (n,)
        Samples I whose equations are independent, in ascending order.
    implied : ndarray of int
        Samples whose equations follow from those exactly.
    undecided : ndarray of int
        Samples whose equations depend on those up to rounding.
    exponents : ndarray of int, shape (N,)
        Rows are scaled by 2^-exponent.
    inverse : RightInverse
        Of the independent rows.
    inconsistency : Inconsistency or None
        The proof that no coefficients interpolate.
    """

    independent: Integers
    implied: Integers
    undecided: Integers
    exponents: Integers
    inverse: RightInverse
    inconsistency: Inconsistency | None


def sort_equations(
    problem: InterpolationProblem,
    *,
    dependent: float = 1e-13,
    absent: float = 1e-9,
    most_rows: int = 50,
    most_integers: int = 2_000_000,
) -> Equations:
    """Find independent equations, and what the others are.

    Parameters
    ----------
    problem : InterpolationProblem
        The problem.
    dependent : float
        Diagonal entries of the factor below this fraction of the first one are rounding.
    absent : float
        Coefficients of a combination below this fraction of the largest one count as 0.
    most_rows : int
        Rows of a combination that is checked in integers, at most.
    most_integers : int
        Integers in all combinations that are checked, at most: so many take seconds.
    """
    matrix = problem.matrix
    norms = np.linalg.norm(matrix, axis=1)
    # Of rows of one size the pivots show which depend on others; powers of two change no digits.
    exponents = np.where(norms > 0, np.frexp(norms)[1], 0).astype(np.int64)
    rows = np.ldexp(matrix, -exponents[:, None])

    # --- Independent rows, and the combinations of the others ------------------------------------
    # Pivots put independent rows first, and the diagonal falls: its first small entry is the rank.
    R, pivots = scipy.linalg.qr(rows.T, mode="r", pivoting=True, check_finite=False)
    R = R[: min(R.shape)]
    diagonal = np.abs(np.diag(R))
    # 1e-300 keeps rows that are all 0 from counting as independent.
    rank = int(np.count_nonzero(diagonal > dependent * max(diagonal[0], 1e-300)))
    independent = pivots[:rank].astype(np.int64)
    others = pivots[rank:].astype(np.int64)
    # (rank, J)
    # c of each other row: R_1 c = (R_2)_j.
    combinations = scipy.linalg.solve_triangular(R[:rank, :rank], R[:rank, rank:])

    # --- The others: implied, contradicted or undecided ------------------------------------------
    implied = []
    undecided = []
    inconsistency = None
    n_integers = 0
    for j, c in zip(others, combinations.T, strict=True):
        size = np.abs(c)
        few = independent[size > absent * size.max(initial=0.0)]
        samples = np.append(few, j)
        n_integers += len(samples) * matrix.shape[1]
        if len(few) > most_rows or n_integers > most_integers:
            undecided.append(j)
            continue
        x = _null_vector(problem, samples)
        if x is None:
            undecided.append(j)
            continue
        output = _contradicted(x, problem.Y[samples])
        if output is not None:
            order = [i for i in np.argsort(samples) if x[i]]
            multipliers = tuple(x[i] for i in order)
            inconsistency = Inconsistency(samples[order], multipliers, output)
            break
        implied.append(j)

    independent = np.sort(independent)
    A = rows[independent]
    inverse = RightInverse.of(A)
    left = np.array(sorted(undecided), dtype=np.int64)
    if inconsistency is None and len(left) and rank == matrix.shape[1]:
        inconsistency = _contradicted_by_bounds(
            problem, rows, exponents, inverse, independent, left
        )
    return Equations(
        independent,
        np.array(sorted(implied), dtype=np.int64),
        left,
        exponents,
        inverse,
        inconsistency,
    )


def _null_vector(problem: InterpolationProblem, samples: Integers) -> list[int] | None:
    """Integers x with x' A = 0 exactly, of the rows of samples; the last is not 0. Or None."""
    from flint import fmpz_mat

    rows = _whole_rows(problem, samples)
    # Columns of zeros allow every x, and only cost time.
    rows = rows[:, (rows != 0).any(axis=0)]
    if rows.shape[1] == 0:
        return [0] * (len(samples) - 1) + [1]
    found, nullity = fmpz_mat(rows.T.tolist()).nullspace()
    for column in range(nullity):
        x = [int(found[i, column]) for i in range(len(samples))]
        # The row in question has to take part: otherwise x says something of the others.
        if x[-1] != 0:
            # Coprime, so that two samples of equal features have the multipliers 1 and -1.
            divisor = math.gcd(*x)
            return [value // divisor for value in x]
    return None


def _whole_rows(problem: InterpolationProblem, samples: Integers) -> Whole:
    """Features of samples as integers: columns times powers of two."""
    features = problem.features
    Z = dense(features.gates[samples])
    X = features.X[samples]
    left = np.repeat(Z, X.shape[1], axis=1)
    right = np.tile(X, (1, Z.shape[1]))
    found = integer_products(left, right, np.zeros(len(samples), dtype=np.int64))
    if not problem.intercept:
        return found
    # The offset's column: x' 1 = 0, too.
    ones = np.ones((len(samples), 1), dtype=object)
    return np.hstack([found, ones])


def _contradicted(x: list[int], Y: Array) -> int | None:
    """Return the first output k with x' y_k not 0, exactly."""
    for k, values in enumerate(Y.T):
        ones = np.ones((len(values), 1))
        whole = integer_products(values[:, None], ones, np.zeros(len(values), dtype=np.int64))[:, 0]
        if sum(a * b for a, b in zip(x, whole, strict=True)) != 0:
            return k
    return None


def _contradicted_by_bounds(
    problem: InterpolationProblem,
    rows: Array,
    exponents: Integers,
    inverse: RightInverse,
    independent: Integers,
    others: Integers,
) -> Inconsistency | None:
    """Find a row whose value is not what the rows of the whole space make it."""
    defect = inverse.defect
    if not defect < 1.0:
        return None
    B = inverse.B
    values = np.ldexp(problem.Y, -exponents[:, None])
    of_basis = values[independent]
    size = np.abs(of_basis)
    for j in others:
        G = rows[j] @ B  # (n,), a_j' B up to an error in each entry
        # What the sum of F products may have lost, entry by entry.
        error = gamma(len(B) + 3) * (np.abs(rows[j]) @ np.abs(B))
        found = G @ of_basis - values[j]
        # The exact combination is G (A B)^-1: it differs from G by the rest of a Neumann series.
        remainder = np.linalg.norm(np.abs(G) + error) * defect / (1.0 - defect)
        radius = (
            error @ size
            + gamma(len(G) + 3) * (np.abs(G) @ size + np.abs(values[j]))
            + remainder * np.linalg.norm(of_basis, axis=0)
        )
        apart = np.abs(found) > SAFETY * radius + UNIT * np.abs(found)
        if apart.any():
            samples = np.sort(np.append(independent, j))
            return Inconsistency(samples, None, int(np.flatnonzero(apart)[0]))
    return None
