r"""Programs that CVXPY's solvers are given, for a fair comparison.

With A the features of the constraints, a row for each pair of a sample and a rival class, and S the
sample of each row:

primal           minimise  Omega(u) + C sum_n xi_n       subject to  A u + S xi >= 1,  xi >= 0
squared          minimise  ||u||^2 / 2 + C' sum_n xi_n   subject to the same

Two classes and a norm that is a sum of Euclidean norms of groups have smaller programs where
features outnumber samples. Each group enters as a Cholesky factor B_g (N, r_g) of its Gram matrix,
Q_g = B_g B_g', and its coefficients as coordinates u_g (r_g,) with ||zeta_g|| = ||u_g||:

reduced          minimise  sum_g ||u_g|| + C sum_n xi_n  subject to  sum_g B_g u_g + xi >= 1
reduced squared  minimise  ||u||^2 / 2 + C' sum_n xi_n   subject to the same, of one group
dual             maximise  sum_n alpha_n                 subject to  ||B_g' alpha|| <= 1,
                                                                     0 <= alpha <= C
dual squared     minimise  ||B' lambda||^2 / 2 - sum_n lambda_n   subject to  0 <= lambda <= C'

The multipliers of one side are the variables of the other, so each gives alpha and u; those of a
squared norm are lambda = ||u|| alpha. C' has the same optimum (`reference`). All features are
divided by their scale s, as solvers with fixed absolute tolerances need: u = s zeta, C is C s, and
C' is C' s^2.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import cvxpy as cp
import numpy as np
import scipy.linalg
import scipy.sparse as sp

from benchmarks.speed.guarded import Answer, GuardedSolver
from benchmarks.speed.reference import Reference, feature_groups, is_euclidean
from implicit_bias import MarginProblem
from implicit_bias.base.validation import Array
from implicit_bias.norms import L2, Nuclear, Spectral
from implicit_bias.solvers.cvxpy_solver import BACKENDS

# A Gram matrix is factorised up to so many samples.
MOST_GRAM = 3000
# Entries of A up to which a program is tried: CVXPY and the solvers make several copies.
MOST_ENTRIES = 5 * 10**7
# A primal-dual solver's own tolerance bounds the certified gap only up to a factor.
SAFETY = 0.1

FORMULATIONS = ("reduced squared", "dual squared", "reduced", "dual", "squared", "primal")


class ConicSolver(GuardedSolver):
    """One of CVXPY's solvers; the time has CVXPY's compilation in it, as a user's has."""

    backend: ClassVar[str]
    requirements: ClassVar[list[str]] = ["pip::cvxpy"]
    parameters: ClassVar[dict[str, list[Any]]] = {
        "formulation": list(FORMULATIONS),
        "tol": [1e-6, 1e-8],
    }

    @classmethod
    def unsuited(cls, problem: MarginProblem, formulation: str) -> str:
        """Return why it is not given a problem in a formulation, or ""."""
        backend = BACKENDS[cls.backend]
        squared = "squared" in formulation
        if squared and not (is_euclidean(problem) and backend.quadratic_objectives):
            return "no quadratic program, or a solver that takes none"
        if not squared and not backend.cones:
            return "it takes quadratic programs alone"
        if not squared and is_euclidean(problem) and backend.quadratic_objectives:
            return "the quadratic program is the smaller one"
        if cls.backend == "ecos" and isinstance(problem.norm, Spectral | Nuclear):
            return "it takes no semidefinite cone"
        wide = problem.n_gates * problem.X.shape[1] > problem.n_samples
        small = problem.is_binary_group_lasso and wide and problem.n_samples <= MOST_GRAM
        if small != formulation.startswith(("reduced", "dual")):
            return "another formulation is smaller"
        rows = problem.constraints
        open_gates = problem.features.sparse_gates.nnz / problem.n_samples
        classes_of_a_row = min(rows.width, 2)
        entries = len(rows) * classes_of_a_row * open_gates * problem.X.shape[1]
        if not small and entries > MOST_ENTRIES:
            return f"the program has more than {MOST_ENTRIES:.0e} entries"
        return ""

    @classmethod
    def solve(
        cls, problem: MarginProblem, reference: Reference, formulation: str, tol: float
    ) -> Answer:
        """Formulate a problem, solve it, and return coefficients and dual variables."""
        squared = "squared" in formulation
        if not squared:
            weights = problem.box * problem.scale
        else:
            matched = np.inf if problem.hard_margin else reference.C
            weights = np.full(problem.n_samples, matched * problem.scale**2)
        if formulation.startswith("reduced"):
            program, read = reduced(problem, weights, squared)
        elif formulation.startswith("dual"):
            program, read = dual(problem, weights, squared)
        else:
            program, read = primal(problem, weights, squared)
        backend = BACKENDS[cls.backend]
        options = {backend.iteration_option: backend.max_iterations}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an inaccurate solution is graded as any other
            backend.solve(program, SAFETY * tol, **options)
        if any(variable.value is None for variable in program.variables()):
            raise RuntimeError(program.status)
        return read()


# A program, and what reads its solution once it is solved.
Posed = tuple[cp.Problem, Callable[[], Answer]]


# --- the rows of all constraints -----------------------------------------------------------------


def primal(problem: MarginProblem, weights: Array, squared: bool) -> Posed:
    """Minimise Omega(u), or ||u||^2 / 2, plus the losses."""
    rows = problem.constraints
    A = sp.csr_array(problem.features.of_rows(rows).matrix()) / problem.scale
    u = cp.Variable(A.shape[1])
    objective = 0.5 * cp.sum_squares(u) if squared else penalty(problem, u)
    margins = A @ u
    if np.isfinite(weights).all():
        xi = cp.Variable(problem.n_samples, nonneg=True)
        S = sp.eye_array(problem.n_samples, format="csr")[rows.samples]
        margins = margins + S @ xi
        objective = objective + weights @ xi
    reached = margins >= 1

    def read() -> Answer:
        multipliers = np.maximum(reached.dual_value, 0.0) / problem.scale
        if squared:
            multipliers = multipliers / positive_norm(u.value)
        coef = u.value.reshape(problem.coef_shape) / problem.scale
        return Answer(coef, rows.alpha(multipliers))

    return cp.Problem(cp.Minimize(objective), [reached]), read


def penalty(problem: MarginProblem, u: cp.Variable) -> cp.Expression:
    """Return Omega as a user of CVXPY would write it: few atoms, whatever the number of groups."""
    if isinstance(problem.norm, L2):
        return cp.norm(u, 2)
    groups = feature_groups(problem)
    if not len(groups):
        return problem.norm.atom(u, problem.norm_shape, cp)
    names = np.unique(groups)
    if len(names) == len(groups):
        return cp.norm1(u)
    size = len(groups) // len(names)
    if np.array_equal(groups, np.arange(len(groups)) // size):
        return cp.sum(cp.norm(cp.reshape(u, (len(names), size), order="C"), 2, axis=1))
    return sum(cp.norm(u[np.flatnonzero(groups == name)], 2) for name in names)


# --- factors of the groups' Gram matrices --------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Factor:
    """One group: B (N, r) with B B' = Q_g / scale^2, and what coordinates u stand for.

    Attributes
    ----------
    B : csc_array of shape (N, r)
        Sparse where the gates are.
    coefficients : callable
        From u (r,) to the coefficients (M_g, D) of the group's gates, times the scale.
    """

    B: sp.csc_array
    coefficients: Callable[[Array], Array]


def cholesky_factor(problem: MarginProblem, group: int) -> Factor:
    """Cholesky factor of Q_g, with pivots p, as far as its rank r.

    Its rows of the pivots are a triangle L, and zeta_g = sum_(n in p) c_n phi_n with L' c = u.
    """
    columns = np.flatnonzero(problem.groups == group)
    Q = problem.gram(group) / problem.scale**2
    packed, order, rank, _ = scipy.linalg.lapack.dpstrf(Q, lower=1)
    if rank == 0:  # off at every sample: one coordinate without effect
        zeros = np.zeros((len(columns), problem.X.shape[1]))
        return Factor(sp.csc_array((problem.n_samples, 1)), lambda u: zeros)
    order = order - 1  # LAPACK counts from 1
    B = np.zeros((problem.n_samples, rank))
    B[order] = np.tril(packed)[:, :rank]
    pivots = order[:rank]
    L = B[pivots]
    Z = problem.features.sparse_gates[pivots][:, columns]
    yX = (problem.y[:, None] * problem.X)[pivots] / problem.scale

    def coefficients(u: Array) -> Array:
        c = scipy.linalg.solve_triangular(L, u, trans="T", lower=True)
        return np.asarray(Z.T @ (c[:, None] * yX))

    return Factor(sp.csc_array(B), coefficients)


def coefficients_of(problem: MarginProblem, factors: list[Factor], u: list[Array]) -> Array:
    """Return zeta of the coordinates of all groups."""
    coef = np.zeros(problem.features.shape)
    for group, (factor, u_g) in enumerate(zip(factors, u, strict=True)):
        coef[problem.groups == group] = factor.coefficients(u_g) / problem.scale
    return coef


def reduced(problem: MarginProblem, weights: Array, squared: bool) -> Posed:
    """Minimise sum_g ||u_g||, or ||u||^2 / 2, plus the losses."""
    factors = [cholesky_factor(problem, group) for group in range(problem.n_groups)]
    u = [cp.Variable(factor.B.shape[1]) for factor in factors]
    margins = sum(factor.B @ u_g for factor, u_g in zip(factors, u, strict=True))
    objective = sum(0.5 * cp.sum_squares(u_g) if squared else cp.norm(u_g) for u_g in u)
    if np.isfinite(weights).all():
        xi = cp.Variable(problem.n_samples, nonneg=True)
        margins = margins + xi
        objective = objective + weights @ xi
    reached = margins >= 1

    def read() -> Answer:
        multipliers = np.maximum(reached.dual_value, 0.0) / problem.scale
        if squared:
            multipliers = multipliers / positive_norm(u[0].value)
        return Answer(coefficients_of(problem, factors, [u_g.value for u_g in u]), multipliers)

    return cp.Problem(cp.Minimize(objective), [reached]), read


def dual(problem: MarginProblem, weights: Array, squared: bool) -> Posed:
    """Maximise sum(alpha) in the balls of all groups, or the quadratic dual of one group."""
    factors = [cholesky_factor(problem, group) for group in range(problem.n_groups)]
    multipliers = cp.Variable(problem.n_samples, nonneg=True)
    limits = [multipliers <= weights] if np.isfinite(weights).all() else []
    balls = list[cp.Constraint]()
    if not squared:
        balls = [cp.SOC(cp.Constant(1.0), factor.B.T @ multipliers) for factor in factors]
        objective = -cp.sum(multipliers)
    else:
        B = factors[0].B
        if B.shape[1] > B.shape[0] / 2:  # Q is smaller than its factor and the variables B' lambda
            square = cp.quad_form(multipliers, cp.psd_wrap((B @ B.T).toarray()))
        else:
            square = cp.sum_squares(B.T @ multipliers)
        objective = 0.5 * square - cp.sum(multipliers)

    def read() -> Answer:
        alpha = np.maximum(multipliers.value, 0.0) / problem.scale
        if squared:
            u = [factors[0].B.T @ multipliers.value]
            alpha = alpha / positive_norm(u[0])
        else:
            u = [-ball.dual_value[1].reshape(-1) for ball in balls]
        return Answer(coefficients_of(problem, factors, u), alpha)

    return cp.Problem(cp.Minimize(objective), [*balls, *limits]), read


def positive_norm(u: Array) -> float:
    """||u||, or the smallest normal number: to divide by."""
    return max(float(np.linalg.norm(u)), float(np.finfo(np.float64).tiny))
