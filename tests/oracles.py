"""What is known otherwise: the definitions in loops, optima by CVXPY, bounds in rational numbers.

The loops recompute what `certify` says, from the definitions alone: they use the problem's data
(X, y, gates, groups, C) but none of its products.
"""

import math
import warnings
from fractions import Fraction
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
import pytest
import scipy.optimize
from flint import fmpq_mat, fmpz_mat
from numpy.typing import NDArray

from cases import GAP_LIMIT, ROUNDING, dense
from exact import Exact, lower_bound, upper_bound
from implicit_bias import Certificate, MarginProblem, Solution, Status
from implicit_bias.base.validation import Array
from implicit_bias.bounds.gordan import Proof

# Digits of the exact square roots.
DIGITS = Fraction(1, 10**50)

# --- the definitions, in loops ---------------------------------------------------------------


def loop_decision(problem: MarginProblem, coef: Array) -> Array:
    """f(x_n) = sum_m z_m(x_n) <zeta_m, x_n>."""
    Z = dense(problem.gates)
    f = np.zeros(len(problem.X))
    for n in range(len(problem.X)):
        for m in range(Z.shape[1]):
            f[n] += Z[n, m] * sum(coef[m] * problem.X[n])
    return f


def loop_dual_vectors(problem: MarginProblem, alpha: Array) -> Array:
    """V_m = sum_n alpha_n y_n z_m(x_n) x_n, and of many classes with b_p in the place of y_n."""
    Z = dense(problem.gates)
    V = np.zeros(problem.norm_shape)
    for n, b, place in loop_rows(problem):
        for k, m in np.ndindex(V.shape[:2]):
            V[k, m] += alpha[place] * b[k] * Z[n, m] * problem.X[n]
    return V.reshape(problem.coef_shape)


def loop_group_norms(problem: MarginProblem, coef: Array) -> Array:
    """||zeta_g||."""
    return np.array([np.sqrt((coef[columns] ** 2).sum()) for columns in loop_groups(problem)])


def loop_dual_norms(problem: MarginProblem, alpha: Array) -> Array:
    """||V_g||."""
    return loop_group_norms(problem, loop_dual_vectors(problem, alpha))


def loop_groups(problem: MarginProblem) -> list[list[int]]:
    """Columns of each group."""
    return [
        [m for m in range(len(problem.groups)) if problem.groups[m] == g]
        for g in range(max(problem.groups) + 1)
    ]


def loop_primal(problem: MarginProblem, coef: Array) -> float:
    """Omega(zeta) + C sum_n max(0, 1 - y_n f(x_n)); inf where a hard margin is not reached."""
    norm = float(loop_group_norms(problem, coef).sum())
    margins = problem.y * loop_decision(problem, coef)
    if np.isinf(problem.C):
        return norm if margins.min() >= 1 - ROUNDING else np.inf
    return norm + problem.C * sum(max(0.0, 1.0 - margin) for margin in margins)


def loop_feature_norms(problem: MarginProblem) -> Array:
    """Norm of each sample's features."""
    Z = dense(problem.gates)
    squares = np.zeros(len(problem.X))
    for n in range(len(problem.X)):
        squares[n] = sum(Z[n] ** 2) * sum(problem.X[n] ** 2)
    return np.sqrt(squares)


def feature_scale(problem: MarginProblem) -> float:
    """Root mean square, over the samples, of the norms of their features."""
    return float(np.sqrt(np.mean(loop_feature_norms(problem) ** 2)))


def loop_rows(problem: MarginProblem) -> list[tuple[int, Array, tuple[int, ...]]]:
    """Sample, label vector b_p in R^K', and place of the dual variable, of each constraint."""
    if problem.classes is None:
        return [(n, np.array([y]), (n,)) for n, y in enumerate(problem.y)]
    unit = np.eye(problem.classes)
    return [
        (n, unit[int(y)] - unit[k], (n, k))
        for n, y in enumerate(problem.y)
        for k in range(problem.classes)
        if k != y
    ]


# --- by CVXPY --------------------------------------------------------------------------------


class Optimum(NamedTuple):
    """An optimal value, inf where there is none, and what attains it."""

    value: float
    coef: Array
    offset: Array
    alpha: Array


def cvxpy_optimum(problem: MarginProblem) -> Optimum:
    """Solve the primal as it stands in the problem's definition, row by row, by Clarabel."""
    (K, _, _), rows, N = problem.norm_shape, loop_rows(problem), problem.n_samples
    Phi = (dense(problem.gates)[:, :, None] * problem.X[:, None, :]).reshape(N, -1)
    zeta, b, slack = cp.Variable(K * Phi.shape[1]), cp.Variable((1, K)), cp.Variable(N, nonneg=True)
    f = Phi @ cp.reshape(zeta, (K, Phi.shape[1]), order="C").T + np.ones((N, 1)) @ b
    samples, labels = [n for n, _, _ in rows], np.array([label for _, label, _ in rows])
    reached = cp.sum(cp.multiply(labels, f[samples]), axis=1) + slack[samples] >= 1
    constraints = [reached] if problem.intercept else [reached, b == 0]
    cost = problem.norm.atom(zeta, problem.norm_shape, cp)
    if problem.hard_margin:
        constraints.append(slack == 0)
    else:
        cost = cost + problem.box @ slack
    program = cp.Problem(cp.Minimize(cost), constraints)
    with warnings.catch_warnings(action="ignore"):  # the certificate says how inaccurate it is
        program.solve(solver="CLARABEL")
    alpha = np.zeros(problem.alpha_shape)
    if program.status == cp.INFEASIBLE:
        return Optimum(math.inf, np.zeros(problem.coef_shape), np.zeros(K), alpha)
    assert program.status in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE)
    alpha[tuple(np.array([place for _, _, place in rows]).T)] = np.maximum(reached.dual_value, 0.0)
    return Optimum(program.value, zeta.value.reshape(problem.coef_shape), b.value[0], alpha)


# --- in rational numbers ---------------------------------------------------------------------


def fractions(values: Any) -> Any:
    """Array of the same real numbers."""
    exactly = np.vectorize(Fraction, otypes=[object])
    given = np.asarray(values)
    return exactly(given if given.dtype == object else given.astype(np.float64))


def root(value: Fraction) -> Fraction:
    """Square root to 60 digits."""
    bits = value.denominator.bit_length() - value.numerator.bit_length()
    scale = 10**120 * 4 ** max(0, 600 + bits)
    return Fraction(math.isqrt(int(value * scale)), math.isqrt(scale))


def exact_bounds(
    problem: MarginProblem, coef: Any, alpha: Any, offset: Any = 0.0, *, best: bool = True
) -> tuple[Fraction | float, Fraction | float]:
    """Lower bound of dual variables, scaled to be feasible, upper bound of plain coefficients.

    With a hard margin the coefficients are scaled to margin 1. Those of a soft one are, too, where
    the ``best`` scale counts: there some margin becomes 1, or it is 0.
    """
    a, offsets = fractions(alpha), np.broadcast_to(fractions(offset), problem.classes or 1)
    whole = Exact.of_fractions(a * math.lcm(*(value.denominator for value in a.flat)))
    plain = Exact.of_fractions(fractions(coef))
    upper = upper_bound(problem, plain, offsets.tolist(), best=best)
    return lower_bound(problem, whole), upper


def hold(
    problem: MarginProblem,
    found: Certificate,
    *answer: Any,
    best: bool = True,
) -> None:
    """Check that bounds hold as real numbers."""
    lower, upper = exact_bounds(problem, *answer, best=best)
    assert found.lower <= lower * (1 + DIGITS)
    assert found.upper >= upper * (1 - DIGITS)


def check_overlap(one: Certificate, other: Certificate, rel: float = ROUNDING) -> None:
    """Check that two pairs of bounds may be of one optimum."""
    assert one.lower <= other.upper * (1 + rel)
    assert other.lower * (1 - rel) <= one.upper


def check_optimal(found: Solution, gap: float = GAP_LIMIT) -> None:
    """Check that an answer is optimal, and that its bounds are as near to each other as that."""
    assert found.status is Status.OPTIMAL, found.message
    assert found.certificate.gap <= gap


def check_signs(problem: MarginProblem, alpha: NDArray[Any]) -> None:
    """Check that alpha >= 0, with the equations of an intercept in rational numbers."""
    assert (alpha >= 0).all()
    if problem.intercept:
        rows = problem.constraints
        assert not rows.weights(fractions(rows.alpha_of_rows(alpha))).sum(axis=0).any()


def check_attained(problem: MarginProblem, found: Solution) -> None:
    """Check that what a solution stores proves its bounds, as real numbers, and is of that size."""
    answer = found.coef, found.alpha, found.intercept
    hold(problem, found.certificate, *answer, best=False)
    lower, upper = found.certificate.lower, found.certificate.upper
    assert [float(bound) for bound in exact_bounds(problem, *answer, best=False)] == pytest.approx(
        [lower, upper], rel=ROUNDING
    )
    assert found.alpha.sum() == pytest.approx(lower, rel=ROUNDING)
    assert (problem.totals(found.alpha) <= problem.box * (1 + ROUNDING)).all()
    if problem.hard_margin:
        assert problem.norm.value(found.coef) == pytest.approx(upper, rel=ROUNDING)


def check_judged(problem: MarginProblem, found: Solution, gap: float) -> None:
    """Check what holds of any answer, whoever found it: its bounds, and the status that they earn.

    How near an external solver comes differs from processor to processor, and is not asked.
    """
    bounds = found.certificate
    if found.status is Status.NOT_SEPARABLE:
        assert bounds.lower == bounds.upper == np.inf
        check_proof(problem, found.proof)
        return
    assert bounds.lower < np.inf
    assert (found.status is Status.OPTIMAL) == (bounds.gap <= gap)
    check_signs(problem, found.alpha)
    answer = found.coef, found.alpha, found.intercept
    hold(problem, bounds, *answer, best=False)


def check_proof(problem: MarginProblem, proof: Proof | None) -> None:
    """Check that a proof is one: in rational numbers, row by row, from the definition alone."""
    assert proof is not None
    assert len(set(proof.rows.tolist())) == len(proof.rows) > 0
    assert proof.alpha.sum() == pytest.approx(1.0)
    rows = loop_rows(problem)
    places = [rows[row][2] for row in proof.rows]
    assert proof.samples.tolist() == sorted({rows[row][0] for row in proof.rows})
    given = np.array([proof.alpha[place] for place in places])
    elsewhere = proof.alpha.copy()
    for place in places:
        elsewhere[place] = 0.0
    assert not elsewhere.any()
    equations = _equations(problem, proof)
    if proof.exact is None:
        assert (given > 0).all()
        assert 0 < proof.relative_error < 1
        factors = nearest_factors(equations, given)
        assert all(factor > 0 for factor in factors)
        assert max(abs(1 - factor) for factor in factors) <= proof.relative_error + 1e-15
        return
    assert proof.relative_error == 0
    assert all(value > 0 for value in proof.exact)
    assert sum(proof.exact) == 1
    assert given.tolist() == [float(value) for value in proof.exact]
    for column in zip(*equations, strict=True):
        assert sum(a * value for a, value in zip(proof.exact, column, strict=True)) == 0


def separates(problem: MarginProblem) -> bool:
    """Whether HiGHS finds coefficients with margins of 1: safely, of small integers."""
    rows = np.array(
        [
            np.append(np.outer(b, problem.X[n]), b * problem.intercept)
            for n, b, _ in loop_rows(problem)
        ]
    )
    found = scipy.optimize.linprog(
        np.zeros(rows.shape[1]), A_ub=-rows, b_ub=-np.ones(len(rows)), bounds=(None, None)
    )
    return bool(found.status == 0)


def _equations(problem: MarginProblem, proof: Proof) -> list[list[Fraction]]:
    """B (x) z (x) x of each row of a proof, and b for an intercept."""
    rows, Z, found = loop_rows(problem), dense(problem.gates), []
    for row in proof.rows:
        n, b, _ = rows[row]
        z, x = fractions(Z[n]), fractions(problem.X[n])
        found.append([int(label) * gate * value for label in b for gate in z for value in x])
        found[-1] += [Fraction(int(label)) for label in b if problem.intercept]
    return found


def nearest_factors(equations: list[list[Any]], alpha: Array) -> list[Fraction]:
    """1 - P 1: alpha times these solves all equations, and is nearest to alpha relative to it."""
    rows = [
        [Fraction(a) * Fraction(value) for value in row]
        for a, row in zip(alpha, equations, strict=True)
    ]
    # All are multiples of one power of two.
    unit = max(value.denominator for row in rows for value in row)
    W = fmpz_mat([[int(value * unit) for value in row] for row in rows])
    reduced, _, rank = W.rref()
    basis = [next(j for j in range(W.ncols()) if reduced[i, j]) for i in range(rank)]
    some = fmpz_mat([[W[i, j] for j in basis] for i in range(W.nrows())])
    ones = fmpz_mat([[1]] * W.nrows())
    square = fmpq_mat(some.transpose() * some)
    fit = square.solve(fmpq_mat(some.transpose() * ones), algorithm="dixon")
    factors = fmpq_mat(ones) - fmpq_mat(some) * fit
    assert not any((fmpq_mat(W.transpose()) * factors).entries())
    return [Fraction(int(factor.p), int(factor.q)) for factor in factors.entries()]


def check_inseparable(problem: MarginProblem, found: Solution) -> None:
    """Check that an answer says that nothing separates, and has a proof of it."""
    assert found.status is Status.NOT_SEPARABLE, found.message
    assert "not separable" in found.message
    assert found.certificate.lower == found.certificate.upper == np.inf
    assert not found.coef.any()
    assert not np.any(found.intercept)
    check_proof(problem, found.proof)
    assert (found.alpha >= 0).all()
    assert found.alpha.sum() == pytest.approx(1.0)
    length = float(problem.totals(found.alpha) @ loop_feature_norms(problem))
    assert np.linalg.norm(loop_dual_vectors(problem, found.alpha)) <= ROUNDING * length


def find_lies(problem: MarginProblem, found: Solution, gap: float) -> list[str]:
    """Name what of an answer is not true in exact arithmetic: "lower", "upper", "gap", "proof".

    Its optimality is that its bounds are as near to each other as was asked for. A claim that
    nothing separates must have a proof, and be about a hard margin: a soft one has a solution.
    """
    bounds = found.certificate
    if found.status is Status.NOT_SEPARABLE:
        try:
            assert problem.hard_margin
            check_proof(problem, found.proof)
        except AssertionError:
            return ["proof"]
        return []
    lies = []
    if not bounds.lower <= max(lower_bound(problem, Exact.of(found.alpha)), 0):
        lies.append("lower")
    offsets = [Fraction(b) for b in np.atleast_1d(found.intercept).tolist()]
    least_upper = upper_bound(problem, Exact.of(found.coef), offsets)
    if not (math.isinf(bounds.upper) or bounds.upper >= least_upper):
        lies.append("upper")
    if found.status is Status.OPTIMAL:
        known = 0 < bounds.lower < math.inf and bounds.upper < math.inf
        # What the division of the reported gap may round is not counted.
        if not known or bounds.upper - bounds.lower > gap * (1 + ROUNDING) * bounds.lower:
            lies.append("gap")
    return lies
