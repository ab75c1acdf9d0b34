r"""CVXPY's solvers on the same `MarginProblem`: the reference, and the only user of cvxpy.

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

and go as such to the solvers that take a quadratic objective. OSQP takes nothing else.

If the solver finds no solution, `linear_program.gordan` looks for the proof.

Another norm than that of gate columns, and many classes, are solved in the primal alone, as it
stands in `problem`, with the norm as a CVXPY atom.

Source of the primal: Lippl, Abbott, Chung (2022), section 4 and their published code.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, get_args

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from implicit_bias.base.deadline import Deadline
from implicit_bias.base.validation import Array, UnsuitableError
from implicit_bias.bounds.certificate import Status
from implicit_bias.norms import Norm
from implicit_bias.problem import MarginProblem
from implicit_bias.solvers.base import (
    Answer,
    Candidate,
    ExternalSolver,
    OnProgress,
    Start,
    no_report,
)
from implicit_bias.solvers.iteration import nothing_yet
from implicit_bias.solvers.linear_program import gordan

try:
    import cvxpy as cp
except ImportError as error:
    raise ImportError(
        "ECOS, OSQP, Clarabel and SCS are called through CVXPY: "
        "pip install 'implicit-bias[cvxpy]', or 'implicit-bias[ecos]' for ECOS, too"
    ) from error

# The program that a solver gets; see the module's head.
Formulation: TypeAlias = Literal["primal", "reduced", "dual"]
FORMULATIONS: tuple[Formulation, ...] = get_args(Formulation)


@dataclass(frozen=True)
class CvxpyBackend:
    """How CVXPY calls a solver, and what the solver takes.

    Attributes
    ----------
    name : str
        CVXPY's.
    iteration_option, max_iterations : str and int
        The option that limits iterations, and the limit by default.
    tolerance_options : tuple of str
        The options that a gap tolerance sets.
    time_option : str or None
        The option that limits seconds, if there is one.
    cones : bool
        Whether it takes second-order cones.
    quadratic_objectives : bool
        Whether it takes a quadratic objective as it is.
    """

    name: str
    iteration_option: str
    max_iterations: int
    tolerance_options: tuple[str, ...]
    time_option: str | None = None
    cones: bool = True
    quadratic_objectives: bool = True

    def solve(
        self,
        program: cp.Problem,
        tolerance: float,
        seconds: float | None = None,
        **options: float,
    ) -> None:
        """Solve, silent about an inaccurate solution: the accuracy is measured afterwards."""
        options |= dict.fromkeys(self.tolerance_options, tolerance)
        if self.time_option is not None and seconds is not None:
            options[self.time_option] = seconds
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program.solve(solver=self.name, **options)


BACKENDS = {
    "ecos": CvxpyBackend(
        "ECOS", "max_iters", 200, ("abstol", "reltol", "feastol"), quadratic_objectives=False
    ),
    "osqp": CvxpyBackend(
        "OSQP", "max_iter", 200_000, ("eps_abs", "eps_rel"), "time_limit", cones=False
    ),
    "clarabel": CvxpyBackend(
        "CLARABEL", "max_iter", 200, ("tol_gap_abs", "tol_gap_rel", "tol_feas"), "time_limit"
    ),
    "scs": CvxpyBackend("SCS", "max_iters", 200_000, ("eps_abs", "eps_rel"), "time_limit_secs"),
}
# A primal-dual solver's own tolerance bounds the certified gap only up to a factor.
SAFETY = 0.1
# What the primal (infeasible) and the dual (unbounded) of inseparable data come back as.
NO_SOLUTION = (
    cp.INFEASIBLE,
    cp.INFEASIBLE_INACCURATE,
    cp.UNBOUNDED,
    cp.UNBOUNDED_INACCURATE,
    cp.settings.INFEASIBLE_OR_UNBOUNDED,
)


@dataclass(frozen=True, kw_only=True)
class CvxpySolver(ExternalSolver):
    """One of CVXPY's solvers: "ecos", "osqp", "clarabel" or "scs".

    Parameters
    ----------
    backend : str
        Its name.
    formulation : {"primal", "reduced", "dual"}
        The program that it gets; see the module's head.
    time_share : float
        Of the time that there is, a solver gets this share, so that its last iterate can be read.
    """

    backend: str
    formulation: Formulation = "primal"
    time_share: float = 0.8

    @property
    def name(self) -> str:
        """What `solve` calls it."""
        return self.backend

    def run(
        self,
        problem: MarginProblem,
        on_progress: OnProgress = no_report,
        start: Start | None = None,
    ) -> Candidate:
        """Solve through CVXPY; ``on_progress`` is not called, and ``start`` not used.

        ``max_seconds`` is the solver's own limit; ECOS has none but that of its iterations.

        Raises
        ------
        ImportError
            The solver is not installed.
        ValueError
            OSQP on a problem with cones: several groups, or a soft margin.
        """
        backend = BACKENDS[self.backend]
        if backend.name not in cp.installed_solvers():
            raise ImportError(
                f"the solver {backend.name} is not installed: pip install 'implicit-bias[ecos]' "
                "brings ECOS, and 'implicit-bias[cvxpy]' the others"
            )
        if not (_is_quadratic(problem) or backend.cones):
            raise UnsuitableError(
                "OSQP solves quadratic programs only: one group and a hard margin (C=inf); "
                "choose another solver for this problem"
            )
        seconds = self.seconds_for(problem.n_samples * problem.n_gates * problem.X.shape[1])
        if seconds is not None:
            seconds *= self.time_share
        deadline = Deadline.after(seconds)
        if problem.is_binary_group_lasso:
            quadratic = _is_quadratic(problem) and backend.quadratic_objectives
            program, read = _in_groups(problem, self.formulation, quadratic)
        else:
            program, read = _under_any_norm(problem)

        limit = self.max_iterations or backend.max_iterations
        iterations = 0
        try:
            backend.solve(
                program,
                SAFETY * self.tolerances.gap,
                deadline.left,
                **{backend.iteration_option: limit},
            )
        except cp.SolverError as error:
            said = f"solver error: {error}"
        else:
            said = program.status
            iterations = int(program.solver_stats.num_iters or 0)

        answer = nothing_yet(problem)
        status = Status.NUMERICAL_TROUBLE
        if said == cp.OPTIMAL:
            status = Status.OPTIMAL
        elif deadline.passed:
            status = Status.TIME_LIMIT
        elif said == cp.USER_LIMIT or iterations >= limit:
            status = Status.ITERATION_LIMIT
        if problem.hard_margin and said in NO_SOLUTION:
            alpha = gordan(problem, problem.constraints, deadline)
            answer = replace(answer, alpha=alpha)
            status = Status.NOT_SEPARABLE
        elif all(variable.value is not None for variable in program.variables()):
            answer = read()
        return Candidate(**vars(answer), status=status, iterations=iterations, detail=said)


def _is_quadratic(problem: MarginProblem) -> bool:
    """Whether the program is quadratic, up to the scale of its variables."""
    return problem.hard_margin and problem.n_groups == 1 and problem.is_binary_group_lasso


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


def _under_any_norm(problem: MarginProblem) -> tuple[cp.Problem, Callable[[], Answer]]:
    """Formulate the primal, of many classes (K) or two (K = 1), with the norm as an atom."""
    K = problem.norm_shape[0]
    N = problem.n_samples
    scale = problem.scale
    rows = problem.constraints
    # Features (N, M D), scores f (N, K), and the margins <b_p, f_n(p)> of all rows.
    Z = problem.features.sparse_gates.toarray()
    X = problem.X / scale
    Phi = (Z[:, :, None] * X[:, None, :]).reshape(N, -1)
    zeta = cp.Variable(K * Phi.shape[1])
    b = cp.Variable((1, K))
    f = Phi @ cp.reshape(zeta, (K, Phi.shape[1]), order="C").T + np.ones((N, 1)) @ b
    of_rows = sp.eye_array(N, format="csr")[rows.samples]
    margins = cp.sum(cp.multiply(rows.labels.toarray(), of_rows @ f), axis=1)
    objective = problem.norm.atom(zeta, (K, Z.shape[1], X.shape[1]), cp)
    if not problem.hard_margin:
        slack = cp.Variable(N, nonneg=True)
        objective = objective + (problem.box * scale) @ slack
        margins = margins + of_rows @ slack
    reached = margins >= 1
    constraints = [reached]
    if not problem.intercept:
        constraints.append(b == 0)

    def read() -> Answer:
        alpha = rows.alpha(np.maximum(reached.dual_value, 0.0) / scale)
        coef = zeta.value.reshape(problem.coef_shape) / scale
        return Answer(alpha, coef, problem.as_intercept(b.value.ravel() * problem.intercept))

    return cp.Problem(cp.Minimize(objective), constraints), read


# --- equations in place of margins ------------------------------------------------------------


def interpolate(
    A: Array,
    Y: Array,
    norm: Norm,
    shape: tuple[int, int, int],
    tolerance: float,
    deadline: Deadline,
) -> tuple[Array, Array, str, int]:
    """Minimise a norm subject to A zeta_k = y_k, by Clarabel, or else by SCS.

    Parameters
    ----------
    A : ndarray of shape (n, F)
        Independent rows.
    Y : ndarray of shape (n, K)
        Values.
    norm : Norm
        One with an expression in CVXPY.
    shape : tuple of int
        (K, M, D), in which the norm sees the coefficients.
    tolerance : float
        Relative gap to aim at.
    deadline : Deadline
        When to stop.

    Returns
    -------
    zeta : ndarray of shape (K, F)
        Coefficients; 0 where no solver found any.
    alpha : ndarray of shape (n, K)
        Multipliers.
    name : str
        The solver that found them.
    iterations : int
        Its iterations.
    """
    K = Y.shape[1]
    zeta = cp.Variable(K * A.shape[1])
    equations = A @ cp.reshape(zeta, (K, A.shape[1]), order="C").T == Y
    program = cp.Problem(cp.Minimize(norm.atom(zeta, shape, cp)), [equations])
    for name in ("clarabel", "scs"):
        try:
            BACKENDS[name].solve(program, max(tolerance, 1e-10), deadline.left)
        except cp.SolverError:
            continue
        if zeta.value is not None and equations.dual_value is not None:
            alpha = -np.asarray(equations.dual_value).reshape(Y.shape)
            iterations = int(program.solver_stats.num_iters or 0)
            return zeta.value.reshape(K, A.shape[1]), alpha, name, iterations
    return np.zeros((K, A.shape[1])), np.zeros_like(Y), "clarabel, scs", 0
