r"""Proofs that no coefficients separate the data: exact solutions of Gordan's system.

Gordan's theorem: either some zeta and b have positive margins on all rows, or some alpha does

        alpha >= 0,  alpha != 0,  V(alpha) = sum_p alpha_p b_p (x) phi_n(p) = 0

(and sum_p alpha_p b_p = 0, where there is an intercept); never both. A small V proves nothing: then
any separator is merely large. So a proof here is one of two: a rational alpha whose V is 0 in exact
arithmetic, or a float64 alpha with a bound on its distance from an exact solution. Both are about
the features that are the exact products of the stored float64 gates and inputs. The norm does not
matter.

Vertex    The solutions of sum 1 are a polytope, and at a vertex at most rank + 1 rows are not 0. A
          linear program in float64 finds the rows of one: the maximum margin of w in a box, with
          orthonormal features q_n whose span is that of the features,

                max t   subject to   b_p (x) q_n(p) . w >= t  for all rows p,   |w_j| <= 1.

          Where t = 0 its dual variables are alpha. It is solved on some rows, and then again with
          the rows that w violates most. With many classes the rows of two of them are tried first:
          a proof by these alone is a proof.
Exactly   On the rows of a vertex V = 0 has one solution up to a factor. It is found in rational
          numbers, by equations that are independent, and all equations are checked in integers.
Overlap   An exact solution may take long, and rounding may hide equations from the linear program.
          Most inseparable data have a solution that is positive on every row, too: `overlap` proves
          that there is one.

======  ===========  =============================================================================
F       (N, c)       features of the samples, gate times input, scaled by powers of two; a column of
                     ones for an intercept
Q       (N, r)       orthonormal columns that span F up to rounding
E       (S, c)       integers: features of some rows' samples, columns times powers of two
labels  (R, J)       entries of b_p of the classes in the rows, without the last of them, whose
                     equation is minus the sum of the others
======  ===========  =============================================================================
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import scipy.linalg
import scipy.optimize
import scipy.sparse as sp
from numpy.typing import NDArray

from implicit_bias.base.deadline import NEVER, Deadline
from implicit_bias.base.rounding import SMALLEST_NORMAL
from implicit_bias.base.validation import Array
from implicit_bias.base.wording import listed_samples
from implicit_bias.bounds.integers import (
    MANTISSA,
    Whole,
    as_floats,
    integer_products,
    pivoted,
    product,
    rank_of,
)
from implicit_bias.bounds.overlap import find_overlap
from implicit_bias.problem import Constraints, MarginProblem
from implicit_bias.problem.constraints import Integers


@dataclass(frozen=True, eq=False, repr=False)
class Proof:
    """No coefficients separate: some alpha >= 0, not 0, has V(alpha) = 0 in exact arithmetic.

    Attributes
    ----------
    rows : ndarray of int, shape (S,)
        Indices of the constraints, among all of the problem, that have a part in it. With K > 2
        classes each sample has K - 1 constraints.
    samples : ndarray of int, shape (n,)
        The samples of these constraints, ascending: rows of X as it was given to an estimator, to
        `solve` or to `solve_out_of_core`.
    alpha : ndarray of shape (N,) or (N, K)
        Their dual variables, of sum 1, in the problem's shape: rounded.
    exact : tuple of Fraction, or None
        The same, positive and not rounded; None where only their existence is proven.
    relative_error : float
        In each entry some solution is within this fraction of alpha, up to one rounding. It is
        below 1, and 0 where ``exact`` is given.
    """

    rows: Integers
    samples: Integers
    alpha: Array
    exact: tuple[Fraction, ...] | None = None
    relative_error: float = 0.0

    def __repr__(self) -> str:
        kind = "of approximate alpha"
        if self.exact is not None:
            kind = "exact"
        return (
            f"Proof({kind}, by {len(self.rows)} constraints of {len(self.samples)} samples: "
            f"{listed_samples(self.samples)})"
        )


@dataclass(frozen=True)
class ProofLimits:
    """What a search for a proof tries first, and when it gives up.

    Attributes
    ----------
    seconds : float
        Time after which a search ends. Linear programs take most of it.
    most_entries : int
        Entries of F that are formed for a vertex.
    few_equations : int
        With at most this many equations, or rows, a vertex is sought first; with more, an overlap.
    rows_per_equation : int
        Rows of the linear program at first.
    no_margin : float
        A linear program with t below this has t = 0, up to the tolerance of HiGHS.
    rational_operations, rational_seconds : float
        A rational solution of a system of this order^3 times bits takes about so many seconds.
    heavy : float
        Rows of a weight, alpha_p ||phi_p||, below this fraction of the largest are tried after the
        others.
    pairs : int
        Pairs of classes that are tried before all classes together.
    """

    seconds: float = 30.0
    most_entries: int = 20_000_000
    few_equations: int = 100
    rows_per_equation: int = 4
    no_margin: float = 1e-7
    rational_operations: float = 1.2e10
    rational_seconds: float = 5.0
    heavy: float = 1e-6
    pairs: int = 3


LIMITS = ProofLimits()


def prove_not_separable(
    problem: MarginProblem,
    alpha: Array | None = None,
    deadline: Deadline = NEVER,
    limits: ProofLimits = LIMITS,
) -> Proof | None:
    """Prove that no coefficients separate the data, by a solution of Gordan's system.

    Parameters
    ----------
    problem : MarginProblem
        The problem, of any C: the proof is about the hard margin.
    alpha : ndarray of shape (N,) or (N, K), optional
        Dual variables of small V. Rows of which they are 0 are left out, and those of the largest
        weight are tried first.
    deadline : Deadline
        When to give up.
    limits : ProofLimits
        How far to search.

    Returns
    -------
    Proof or None
        None where there is no proof by these means, or not in time, which says nothing of the data.

    Examples
    --------
    >>> import numpy as np
    >>> from implicit_bias import max_margin
    >>> print(prove_not_separable(max_margin(np.array([[1.0], [2.0]]), [1, -1])).alpha)
    [0.66666667 0.33333333]
    """
    rows = problem.constraints
    weights = np.ones(len(rows))
    if alpha is not None:
        alpha = np.where(np.isfinite(alpha), alpha, 0.0)
        fractions = rows.alpha_of_rows(alpha) / max(float(alpha.max()), SMALLEST_NORMAL)
        # A sample without features has norm 0, but is a proof by itself.
        norms = problem.feature_norms[rows.samples]
        weights = fractions * np.where(norms > 0, norms, 1.0)
    # The rows of heavy weight first. Then all rows that have weight, if there are others.
    weighted = weights > 0
    heavy = weights > limits.heavy * float(weights.max(initial=0.0))
    choices = [heavy]
    if (heavy != weighted).any():
        choices.append(weighted)
    deadline = deadline.within(limits.seconds)
    try:
        for chosen in choices:
            if not chosen.any():
                continue
            # The last class's equation is minus the sum of the others: it is left out.
            among = rows.subset(chosen).narrowed()
            search = _Search(problem, among, weights[chosen], deadline, limits)
            found = search.proof(by_any_means=alpha is None)
            if found is not None:
                return found
    except TimeoutError:
        pass
    return None


def nearly_a_proof(problem: MarginProblem, deadline: Deadline = NEVER) -> Array | None:
    """Return dual variables that would be a proof if redundant columns were left out.

    Columns that others fit up to rounding are independent in their last digits, and may separate
    the data by huge coefficients. None where other columns may separate them, or in want of time.
    """
    rows = problem.constraints.narrowed()
    deadline = deadline.within(LIMITS.seconds)
    search = _Search(problem, rows, np.ones(len(rows)), deadline, LIMITS)
    try:
        found = search.by_overlap(without_redundant=True)
    except TimeoutError:
        return None
    if found is None:
        return None
    return found.alpha


def takes_too_long(equations: int, rows: int, most_equations: int = 3000) -> bool:
    """Whether to search a proof takes too long, with so many equations V = 0 and rows.

    With no more rows than equations, rows are independent as a rule, and the search ends soon.
    """
    return most_equations < equations < rows


@dataclass(frozen=True, eq=False)
class _Search:
    """A search for a proof on some rows of a problem, with label vectors of all classes but one.

    Its methods raise TimeoutError where the deadline has passed, or would pass.
    """

    problem: MarginProblem
    rows: Constraints
    weights: Array
    deadline: Deadline
    limits: ProofLimits

    def proof(self, *, by_any_means: bool) -> Proof | None:
        """Return a proof: by a vertex if equations are few, by an overlap if they are many.

        If that fails, few equations are tried by an overlap, too. Many are tried by a vertex only
        if ``by_any_means``, as their linear program takes seconds.
        """
        equations = (self.rows.n_classes - 1) * self.problem.features.n_used
        if min(equations, len(self.rows)) <= self.limits.few_equations:
            return self.by_vertex() or self.by_overlap()
        found = self.by_overlap()
        if found is None and by_any_means:
            return self.by_vertex()
        return found

    def by_overlap(self, *, without_redundant: bool = False) -> Proof | None:
        """Return a proof by all rows, or else by all rows of some pair of classes.

        With ``without_redundant`` it is a proof only if redundant columns are left out.
        """
        rows = self.rows
        for chosen in [np.ones(len(rows), dtype=bool), *self._pairs()]:
            found = find_overlap(
                self.problem,
                rows.subset(chosen),
                self.weights[chosen],
                self.deadline,
                without_redundant=without_redundant,
            )
            if found is not None:
                part = np.flatnonzero(chosen)[found.rows]
                return self._in_problem(part, found.alpha, relative_error=found.relative_error)
        return None

    def by_vertex(self) -> Proof | None:
        """Return an exact proof, by two classes' rows if those of some pair have one."""
        rows = self.rows
        system = _System.of(self.problem, rows, self.weights, self.limits)
        if system is None:
            return None
        for chosen in [*self._pairs(), np.ones(len(rows), dtype=bool)]:
            index = np.flatnonzero(chosen)
            n_equations = rows.subset(index).label_entries_of_touched().shape[1] * system.Q.shape[1]
            n_rows = min(n_equations + 1, len(index))  # of a vertex, at most
            if n_rows**3 * MANTISSA > self.limits.rational_operations:
                continue  # too many to be solved exactly
            vertex = system.vertex(index, self.deadline)
            if vertex is None:
                continue
            found = system.exact(vertex, self.deadline)
            if found is not None:
                part, exact = found
                rounded = np.array([float(value) for value in exact])
                return self._in_problem(part, rounded, exact)
        return None

    def _pairs(self) -> list[NDArray[np.bool_]]:
        """Rows of a few pairs of classes, each as a mask; the pairs of the largest weight first."""
        rows = self.rows
        n = rows.n_classes
        if n == 2:
            return []
        weight = np.zeros((n, n))  # of the rows of each owner and rival
        np.add.at(weight, (rows.owners, rows.rivals), self.weights)
        both = np.minimum(weight, weight.T)  # a proof has rows of both directions
        pairs = [pair for pair in itertools.combinations(range(n), 2) if both[pair] > 0]
        pairs.sort(key=lambda pair: -both[pair])
        chosen = pairs[: self.limits.pairs]
        return [np.isin(rows.owners, pair) & np.isin(rows.rivals, pair) for pair in chosen]

    def _in_problem(
        self,
        index: Integers,
        values: Array,
        exact: tuple[Fraction, ...] | None = None,
        relative_error: float = 0.0,
    ) -> Proof:
        """Return a proof by some rows, with their places among all rows of the problem."""
        rows = self.rows.subset(index)
        whole = self.problem.constraints
        n = rows.n_classes
        places = np.searchsorted(
            whole.samples * n + whole.rivals,  # grows from row to row
            rows.samples * n + rows.rivals,
        )
        samples = np.unique(rows.samples)
        return Proof(places, samples, rows.alpha(values), exact, relative_error)


@dataclass(frozen=True, eq=False)
class _System:
    """The equations V(alpha) = 0 of some rows: of all in float64, of a few in integers.

    Attributes
    ----------
    rows : Constraints
        The rows, with label vectors of all classes but the last.
    weights : ndarray of shape (R,)
        alpha_p ||phi_p|| of the dual variables that are known; 1 without them.
    gates, inputs : ndarray of shape (n, c)
        The two factors of F, of the samples that have rows.
    place : ndarray of int, shape (R,)
        Sample of each row among these.
    exponents : ndarray of int, shape (n,)
        Exponents of the samples' largest features.
    Q : ndarray of shape (n, r)
        Orthonormal columns that span F.
    limits : ProofLimits
        How far to search.
    """

    rows: Constraints
    weights: Array
    gates: Array
    inputs: Array
    place: Integers
    exponents: Integers
    Q: Array
    limits: ProofLimits

    @classmethod
    def of(
        cls, problem: MarginProblem, rows: Constraints, weights: Array, limits: ProofLimits
    ) -> _System | None:
        """Return the equations of some rows of a problem; None where F has too many entries."""
        samples, place = np.unique(rows.samples, return_inverse=True)
        Z = problem.features.sparse_gates[samples]
        X = problem.features.X[samples]
        gates = np.unique(Z.indices[Z.data != 0])
        inputs = np.flatnonzero(X.any(axis=0))
        if len(samples) * (len(gates) * len(inputs) + 1) > limits.most_entries:
            return None

        # Factors of gate m times input d in column m D + d, and of 1 for an intercept.
        left = np.repeat(Z[:, gates].toarray(), len(inputs), axis=1)
        right = np.tile(X[:, inputs], len(gates))
        if problem.intercept:
            ones = np.ones((len(samples), 1))
            left = np.hstack([left, ones])
            right = np.hstack([right, ones])
        used = ((left != 0) & (right != 0)).any(axis=0)
        left = left[:, used]
        right = right[:, used]

        # F over a power of two of each row. What underflows here is missed by the linear program
        # alone: equations are checked in integers.
        F = left * right
        exponents = np.frexp(np.abs(F).max(axis=1, initial=0.0))[1].astype(np.int64)
        Q = _orthonormal(np.ldexp(F, -exponents[:, None]))
        return cls(rows, weights, left, right, place, exponents, Q, limits)

    # --- in float64

    def vertex(self, index: Integers, deadline: Deadline) -> Integers | None:
        """Return the rows of a vertex of V = 0, up to rounding; None if some w separates them."""
        rows = self.rows.subset(index)
        q = self.Q[self.place[index]]
        labels = rows.label_entries_of_touched()
        # A vertex has at most as many rows as equations, and one more.
        n_equations = labels.shape[1] * q.shape[1]
        count = self.limits.rows_per_equation * (n_equations + 1)
        chosen = rows.heaviest_and_some_of_each_class(self.weights[index], count)
        while True:
            deadline.check()
            A = _row_products(labels[chosen], q[chosen])
            found = _largest_margin(A, deadline)
            if found is None:
                return None
            w, t, dual = found
            if t < self.limits.no_margin:
                return index[chosen[dual > 0]]
            # Of the rows left out, those with the smallest margins join. Where none has a margin
            # below t / 2, w separates all rows.
            scores = q @ w.reshape(labels.shape[1], -1).T  # (R, J)
            margins = (labels * scores).sum(axis=1)
            margins[chosen] = np.inf
            worst = np.argsort(margins, kind="stable")[: max(len(chosen) // 2, count // 4)]
            joining = worst[margins[worst] < 0.5 * t]
            if len(joining) == 0:
                return None
            chosen = np.union1d(chosen, joining)

    # --- in integers

    def exact(
        self, index: Integers, deadline: Deadline
    ) -> tuple[Integers, tuple[Fraction, ...]] | None:
        """Return the rows and dual variables of the solution on the rows of a vertex, of one sign.

        The equations x' (b (x) E) = 0 are those of the features over 2^exponent of each sample.
        """
        at = self.place[index]
        E = integer_products(self.gates[at], self.inputs[at], self.exponents[at])
        labels = self.rows.subset(index).label_entries_of_touched()
        equations = _row_products(labels.astype(np.int64).astype(object), E)
        x = _null_vector(equations, deadline, self.limits)

        # This is the proof: no entry is negative, some are positive, and all equations hold.
        if x is None or min(x) < 0 or product([x], equations).any():
            return None
        # x belongs to features over 2^exponent: alpha for the features themselves is x over it.
        kept = np.flatnonzero(x)
        exact = [Fraction(x[k]) / Fraction(2) ** int(self.exponents[at[k]]) for k in kept]
        total = sum(exact)
        return index[kept], tuple(value / total for value in exact)


def _orthonormal(F: Array) -> Array:
    """Orthonormal columns that span those of F, as far as `rank_of` tells them apart, (n, r)."""
    norms = np.linalg.norm(F, axis=0)
    F = F[:, norms > 0] / norms[norms > 0]
    if F.shape[1] == 0:
        return np.zeros((len(F), 0))
    T, pivots = pivoted(F)
    return scipy.linalg.qr(F[:, pivots[: rank_of(T)]], mode="economic", check_finite=False)[0]


def _row_products(labels: NDArray[Any], columns: NDArray[Any]) -> NDArray[Any]:
    """b_p (x) q_p of each row, (S, J r)."""
    return (labels[:, :, None] * columns[:, None, :]).reshape(len(labels), -1)


def _largest_margin(A: Array, deadline: Deadline) -> tuple[Array, float, Array] | None:
    """Solve the linear program of the head for rows A (S, m): w, t, and dual variables (S,).

    None where HiGHS does not solve the linear program, or not in time.
    """
    # Minimize -t over (w, t). Only t = 0 is a proof: 1 is as good as any larger t.
    n, m = A.shape
    found = scipy.optimize.linprog(
        np.append(np.zeros(m), -1.0),
        A_ub=sp.csr_array(np.hstack([-A, np.ones((n, 1))])),
        b_ub=np.zeros(n),
        bounds=[(-1.0, 1.0)] * m + [(None, 1.0)],
        method="highs-ds",
        options={"time_limit": deadline.left},
    )
    if found.status != 0:
        return None
    return found.x[:m], float(found.x[m]), -found.ineqlin.marginals


def _null_vector(equations: Whole, deadline: Deadline, limits: ProofLimits) -> list[int] | None:
    """Return integers x (S,), not all 0, that solve S - 1 independent ones of the equations (S, m).

    Each column is an equation, x' column = 0. The last entry of x is positive. None where there are
    fewer independent columns, or a solution takes too long.

    Raises
    ------
    TimeoutError
        It would end after the deadline.
    """
    from flint import fmpq_mat, fmpz_mat

    S = len(equations)
    equations = equations[:, (equations != 0).any(axis=0)]
    if S == 1 and equations.size == 0:
        return [1]
    if S == 1 or equations.shape[1] < S - 1:
        return None
    # Which columns are independent is a question for float64; the answer is checked exactly.
    F, bits = as_floats(equations)
    _, T, pivots = scipy.linalg.qr(F / np.linalg.norm(F, axis=0), mode="economic", pivoting=True)
    operations = S**3 * max(bits)
    if not abs(T[S - 2, S - 2]) > 0 or operations > limits.rational_operations:
        return None
    seconds = limits.rational_seconds * operations / limits.rational_operations
    if not deadline.allows(seconds):
        raise TimeoutError("a rational solution takes longer than there is time")
    chosen = equations[:, pivots[: S - 1]]
    # The transposed system with 1 for the last x, which is solved in rational numbers.
    matrix = fmpz_mat(chosen[:-1].T.tolist())
    right = fmpz_mat((-chosen[-1:].T).tolist())
    try:
        found = fmpq_mat(matrix).solve(fmpq_mat(right), algorithm="dixon")
    except ZeroDivisionError:  # the columns are dependent
        return None
    numerators, denominator = found.numer_denom()
    return [*(int(row[0]) for row in numerators.tolist()), int(denominator)]
