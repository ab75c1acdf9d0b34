r"""Other formulations of a binary group lasso that CVXPY's solvers get, for a fair comparison.

Each group enters as a factor B_g of its Gram matrix, Q_g = B_g B_g', and its coefficients as
coordinates u_g with ||zeta_g|| = ||u_g|| and y_n f(x_n) = sum_g (B_g u_g)_n:

Primal  minimise  sum_g ||u_g|| + C sum_n xi_n
        subject to  sum_g B_g u_g + e beta >= 1 - xi,   xi >= 0
Dual    maximise  sum_n alpha_n
        subject to  0 <= alpha <= C,   ||B_g' alpha|| <= 1,   e' alpha = 0

with e = y, and e an empty matrix where the problem has no intercept beta.

===========  =======================================================================
formulation  program
===========  =======================================================================
primal       the primal with B_g the features, N x M_g D, and u_g = zeta_g: the
             program of the source papers
reduced      the primal with B_g a Cholesky factor of Q_g, N x r_g, r_g the rank
dual         the dual with the same factors: N variables
===========  =======================================================================

In each the multipliers of one side are the variables of the other, so each gives alpha and u.
With one group and a hard margin both programs are quadratic, up to the scale lambda = ||u|| alpha:

        minimise ||u||^2 / 2  subject to  B u >= 1                         (primal)
        minimise ||B' lambda||^2 / 2 - sum(lambda)  subject to  lambda >= 0   (dual)
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import cvxpy as cp
import numpy as np
import scipy.linalg
import scipy.sparse as sp

from implicit_bias.base.validation import Array
from implicit_bias.problem import MarginProblem
from implicit_bias.solvers.base import Answer
from implicit_bias.solvers.cvxpy_solver import CvxpySolver, is_quadratic

# The program that a solver gets; see the module's head.
Formulation: TypeAlias = Literal["primal", "reduced", "dual"]
FORMULATIONS: tuple[Formulation, ...] = get_args(Formulation)


@dataclass(frozen=True, kw_only=True)
class Formulated(CvxpySolver):
    """One of CVXPY's solvers on one of the formulations.

    Parameters
    ----------
    formulation : {"primal", "reduced", "dual"}
        The program that it gets.
    """

    formulation: Formulation = "primal"

    def formulate(
        self, problem: MarginProblem, quadratic: bool
    ) -> tuple[cp.Problem, Callable[[], Answer]]:
        """Return the program, and what reads its solution once it is solved."""
        if not problem.is_binary_group_lasso:
            return super().formulate(problem, quadratic)
        return _in_groups(problem, self.formulation, quadratic and is_quadratic(problem))


# --- factors of a group's Gram matrix --------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Factor:
    """One group: B (N, r) with B B' = Q_g / scale^2, and what coordinates u stand for.

    Attributes
    ----------
    B : csc_array of shape (N, r)
        Sparse where the gates are.
    coefficients : callable
        From u (r,) to the coefficients (M_g, D) of the group's gates, times the scale
        that every solver of fixed absolute tolerances needs.
    """

    B: sp.csc_array
    coefficients: Callable[[Array], Array]


def feature_factor(problem: MarginProblem, group: int) -> Factor:
    """Take the features of a group themselves: u is zeta_g."""
    columns = problem.groups == group
    # Of a size that solvers of fixed absolute tolerances need.
    B = problem.features.of_rows(problem.constraints).matrix(columns).tocsc() / problem.scale
    return Factor(B, lambda u: u.reshape(int(columns.sum()), -1))


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


# --- the programs, each with how to read its solution once it is solved ----------------------


# alpha (N,), the coordinates u_g (r_g,), and the offset.
Coordinates: TypeAlias = tuple[Array, list[Array], float]
# Both read through `read`: the programs of groups coordinates, the others an answer.
InGroups: TypeAlias = tuple[cp.Problem, Callable[[], Coordinates]]


def _in_groups(
    problem: MarginProblem, formulation: Formulation, quadratic: bool
) -> tuple[cp.Problem, Callable[[], Answer]]:
    """Formulate the binary group lasso in factors of its groups' Gram matrices."""
    factor = feature_factor if formulation == "primal" else cholesky_factor
    factors = [factor(problem, g) for g in range(problem.n_groups)]
    blocks = [group.B for group in factors]
    C = problem.box * problem.scale
    e = problem.y[:, None][:, : int(problem.intercept)]  # (N, 1), or (N, 0)
    if formulation != "dual":
        program, read = _primal(blocks, C, e, quadratic)
    elif quadratic:
        program, read = _quadratic_dual(blocks[0], e)
    else:
        program, read = _dual(blocks, C, e)

    def answer() -> Answer:
        alpha, coordinates, beta = read()
        coef = np.zeros(problem.features.shape)
        for g, (group, u) in enumerate(zip(factors, coordinates, strict=True)):
            coef[problem.groups == g] = group.coefficients(u) / problem.scale
        return Answer(np.maximum(alpha, 0.0) / problem.scale, coef, beta)

    return program, answer


def _primal(blocks: list[sp.csc_array], C: Array, e: Array, quadratic: bool) -> InGroups:
    """Minimise sum_g ||u_g|| + C'xi, or ||u||^2 / 2."""
    u = [cp.Variable(B.shape[1]) for B in blocks]
    scores = sum(B @ u_g for B, u_g in zip(blocks, u, strict=True))
    beta = cp.Variable(1)
    if e.shape[1]:  # CVXPY takes no empty matrices
        scores = scores + e @ beta
    objective = sum(cp.norm(u_g) for u_g in u)
    if quadratic:
        objective = 0.5 * cp.sum_squares(u[0])
    elif np.isfinite(C).all():
        slack = cp.Variable(len(C), nonneg=True)
        scores = scores + slack
        objective = objective + C @ slack
    margins = scores >= 1

    def read() -> Coordinates:
        # The quadratic program's multipliers are lambda = ||u|| alpha.
        scale = 1.0
        if quadratic:
            scale = _positive_norm(u[0].value)
        offset = 0.0
        if e.shape[1]:
            offset = float(beta.value[0])
        return margins.dual_value / scale, [u_g.value for u_g in u], offset

    return cp.Problem(cp.Minimize(objective), [margins]), read


def _dual(blocks: list[sp.csc_array], C: Array, e: Array) -> InGroups:
    """Maximise sum(alpha) subject to ||B_g' alpha|| <= 1, whose multipliers are u_g."""
    alpha = cp.Variable(len(C), nonneg=True)
    norms = [cp.SOC(cp.Constant(1.0), B.T @ alpha) for B in blocks]
    balance = _balance(e, alpha)
    constraints = norms + balance
    if np.isfinite(C).all():
        constraints.append(alpha <= C)

    def read() -> Coordinates:
        u = [-cone.dual_value[1].reshape(-1) for cone in norms]
        return alpha.value, u, _offset(balance)

    return cp.Problem(cp.Minimize(-cp.sum(alpha)), constraints), read


def _quadratic_dual(B: sp.csc_array, e: Array) -> InGroups:
    """Minimise ||B' lambda||^2 / 2 - sum(lambda), of one group and a hard margin."""
    n_samples, rank = B.shape
    multipliers = cp.Variable(n_samples, nonneg=True)
    if rank > n_samples / 2:  # Q is smaller than its factor and the variables B' lambda
        square = cp.quad_form(multipliers, cp.psd_wrap((B @ B.T).toarray()))
    else:
        square = cp.sum_squares(B.T @ multipliers)
    balance = _balance(e, multipliers)

    def read() -> Coordinates:
        u = B.T @ multipliers.value
        return multipliers.value / _positive_norm(u), [u], _offset(balance)

    return cp.Problem(cp.Minimize(0.5 * square - cp.sum(multipliers)), balance), read


def _balance(e: Array, alpha: cp.Variable) -> list[cp.Constraint]:
    """Return e' alpha = 0 where there is an intercept: CVXPY takes no empty matrices."""
    if not e.shape[1]:
        return []
    return [e.T @ alpha == 0]


def _offset(balance: list[cp.Constraint]) -> float:
    """Return the intercept, which is the multiplier of e' alpha = 0; 0 without one."""
    if not balance:
        return 0.0
    return float(balance[0].dual_value[0])


def _positive_norm(u: Array) -> float:
    """||u||, or the smallest normal number: to divide by."""
    return max(float(np.linalg.norm(u)), float(np.finfo(np.float64).tiny))
