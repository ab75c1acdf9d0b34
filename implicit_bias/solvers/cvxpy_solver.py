r"""CVXPY's solvers on the same `MarginProblem`: the reference, and the only user of cvxpy.

Primal  minimize  Omega(zeta) + C sum_n xi_n
        subject to  A zeta + E b + xi_n(p) >= 1 for all rows p,   xi >= 0

With two classes, one group and a hard margin this is a quadratic program, up to the scale of zeta,

        minimize ||zeta||^2 / 2  subject to  A zeta + E b >= 1,

whose multipliers are ||zeta|| alpha. It goes as such to the solvers that take a quadratic
objective. OSQP takes nothing else.

======  =======  ========================================================================
A       (P, J)   features of the constraints, `problem.constraints`, over the scale
E       (P, k)   their offsets; k = 0 without an intercept
xi      (N,)     hinge losses, one a sample (soft margin only)
Omega            the norm, as a CVXPY atom (`Norm.atom`)
======  =======  ========================================================================

If the solver finds no solution, `linear_program.approximate_gordan_solution` looks for the proof.

`interpolate` has equations in place of margins, for `interpolation.min_norm`.

Source: Lippl, Abbott, Chung (2022), section 4 and their published code.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, TypeAlias

import numpy as np
import scipy.sparse as sp

from implicit_bias.base.deadline import Deadline
from implicit_bias.base.package import check_installed
from implicit_bias.base.validation import Array, UnsuitableError
from implicit_bias.bounds.certificate import Status
from implicit_bias.norms import MaxOverGroups, Norm, Nuclear, SumOverGroups
from implicit_bias.problem import MarginProblem
from implicit_bias.solvers.base import (
    Answer,
    Candidate,
    ExternalSolver,
    OnProgress,
    Start,
    no_report,
)
from implicit_bias.solvers.iteration import zero_answer
from implicit_bias.solvers.linear_program import approximate_gordan_solution

check_installed(
    "cvxpy",
    "ECOS, OSQP, Clarabel and SCS are called through CVXPY",
    "cvxpy",
    ", or 'implicit-bias[ecos]' for ECOS, too",
)
import cvxpy as cp  # noqa: E402


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
    time_share : float
        Of the time that there is, a solver gets this fraction, so that its last iterate can be
        read.
    """

    backend: str
    time_share: float = 0.8

    # A primal-dual solver's own tolerance bounds the certified gap only up to a factor.
    safety: ClassVar[float] = 0.1

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
        if not (is_quadratic(problem) or backend.cones):
            raise UnsuitableError(
                "OSQP solves quadratic programs only: one group and a hard margin (C=inf); "
                "choose another solver for this problem"
            )
        seconds = self.seconds_for(problem.n_samples * problem.n_gates * problem.X.shape[1])
        if seconds is not None:
            seconds *= self.time_share
        deadline = Deadline.after(seconds)
        program, read = self.formulate(problem, backend.quadratic_objectives)

        limit = self.max_iterations or backend.max_iterations
        iterations = 0
        try:
            backend.solve(
                program,
                self.safety * self.tolerances.gap,
                deadline.left,
                **{backend.iteration_option: limit},
            )
        except (KeyboardInterrupt, SystemExit, ImportError, MemoryError):
            raise
        except BaseException as error:  # a panic of a library in Rust is no Exception
            said = f"{type(error).__name__}: {error}"
        else:
            said = program.status
            iterations = int(program.solver_stats.num_iters or 0)

        # What the solver says of itself; `solve` grades the answer. Whatever is not known here is
        # numerical trouble.
        answer = zero_answer(problem)
        status = Status.NUMERICAL_TROUBLE
        if said == cp.OPTIMAL:
            status = Status.OPTIMAL
        elif deadline.passed:
            status = Status.TIME_LIMIT
        elif said == cp.USER_LIMIT or iterations >= limit:
            status = Status.ITERATION_LIMIT
        # The certificate of another library is not read: a linear program finds alpha that the
        # package can verify. A soft margin is always feasible.
        if problem.hard_margin and said in NO_SOLUTION:
            alpha = approximate_gordan_solution(problem, problem.constraints, deadline)
            answer = replace(answer, alpha=alpha)
            status = Status.NOT_SEPARABLE
        # Also of an inaccurate solution, or of the iterate at a limit: any numbers bound something.
        elif all(variable.value is not None for variable in program.variables()):
            answer = read()
        return Candidate(**vars(answer), status=status, iterations=iterations, detail=said)

    def formulate(
        self, problem: MarginProblem, quadratic: bool
    ) -> tuple[cp.Problem, Callable[[], Answer]]:
        """Return the problem of the module's head, and what reads its solution once it is solved.

        Quadratic programs are formulated as such where ``quadratic``.
        """
        scale = problem.scale
        rows = problem.constraints
        quadratic = quadratic and is_quadratic(problem)
        # Of a size that solvers of fixed absolute tolerances need.
        A = sp.csr_array(problem.features.of_rows(rows).matrix()) / scale
        E = sp.csr_array(rows.offset_columns)
        zeta = cp.Variable(A.shape[1])
        b = cp.Variable(max(E.shape[1], 1))
        margins = A @ zeta
        if E.shape[1]:  # CVXPY takes no empty matrices
            margins = margins + E @ b
        if quadratic:
            objective = 0.5 * cp.sum_squares(zeta)
        else:
            objective = problem.norm.atom(zeta, problem.norm_shape, cp)
        if not problem.hard_margin:
            slack = cp.Variable(problem.n_samples, nonneg=True)
            objective = objective + (problem.box * scale) @ slack
            margins = margins + sp.eye_array(problem.n_samples, format="csr")[rows.samples] @ slack
        reached = margins >= 1

        def read() -> Answer:
            # Solvers return multipliers that are negative by their tolerance.
            multipliers = np.maximum(reached.dual_value, 0.0)
            if quadratic:  # the multipliers of ||zeta||^2 / 2 are ||zeta|| alpha
                tiny = float(np.finfo(np.float64).tiny)
                multipliers = multipliers / max(float(np.linalg.norm(zeta.value)), tiny)
            offsets = np.zeros(0)
            if E.shape[1]:
                offsets = b.value
            return Answer(
                rows.alpha(multipliers / scale),
                zeta.value.reshape(problem.coef_shape) / scale,
                problem.as_intercept(rows.of_classes(offsets)),
            )

        return cp.Problem(cp.Minimize(objective), [reached]), read


def is_quadratic(problem: MarginProblem) -> bool:
    """Whether the problem is a quadratic program, up to the scale of its variables."""
    return problem.hard_margin and problem.n_groups == 1 and problem.is_binary_group_lasso


# --- equations in place of margins ------------------------------------------------------------


def interpolate(
    A: Array,
    Y: Array,
    norm: Norm,
    shape: tuple[int, int, int],
    tolerance: float,
    deadline: Deadline,
) -> tuple[Array, Array, str, int] | None:
    """Minimize a norm subject to A zeta_k = y_k, by Clarabel, or else by SCS.

    Parameters
    ----------
    A : ndarray of shape (n, F)
        Independent rows.
    Y : ndarray of shape (n, K)
        Values, of size 1: the tolerances of solvers are absolute in part.
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
        Coefficients. Where no solver found any, and multipliers with them, None is returned.
    alpha : ndarray of shape (n, K)
        Multipliers, of any scale.
    name : str
        The solver that found them.
    iterations : int
        Its iterations.
    """
    if isinstance(norm, SumOverGroups | MaxOverGroups) and norm.norm == Nuclear():
        program, read = interpolation_dual(A, Y, norm, shape)
    else:
        program, read = interpolation_primal(A, Y, norm, shape)
    # Clarabel has more digits; SCS takes cones that are too large for it.
    for name in ("clarabel", "scs"):
        if deadline.passed:
            break
        options = {}
        if name == "clarabel":
            # Its last iterate, also where rounding keeps it from the tolerance.
            options["accept_unknown"] = True
        try:
            BACKENDS[name].solve(program, max(tolerance, 1e-10), deadline.left, **options)
        except cp.SolverError:
            continue
        values = [variable.value for variable in program.variables()]
        values += [equation.dual_value for equation in program.constraints]
        if any(value is None for value in values):
            continue
        zeta, alpha = read()
        # The first iterates, at which a time limit may end, bound nothing.
        if np.isfinite(zeta).all() and (alpha * Y).sum() > 0:
            return zeta, alpha, name, int(program.solver_stats.num_iters or 0)
    return None


Interpolation: TypeAlias = tuple[cp.Problem, Callable[[], tuple[Array, Array]]]


def interpolation_primal(
    A: Array, Y: Array, norm: Norm, shape: tuple[int, int, int]
) -> Interpolation:
    """Return the problem min Omega(zeta) s.t. A zeta_k = y_k, and what reads zeta and alpha."""
    K = Y.shape[1]
    zeta = cp.Variable(K * A.shape[1])
    equations = A @ cp.reshape(zeta, (K, A.shape[1]), order="C").T == Y

    def read() -> tuple[Array, Array]:
        # CVXPY adds dual_value times (A zeta - Y) to the objective: alpha has the other sign.
        return zeta.value.reshape(K, -1), -np.asarray(equations.dual_value).reshape(Y.shape)

    return cp.Problem(cp.Minimize(norm.atom(zeta, shape, cp)), [equations]), read


def interpolation_dual(
    A: Array, Y: Array, norm: SumOverGroups | MaxOverGroups, shape: tuple[int, int, int]
) -> Interpolation:
    """Return the problem min Omega_*(V) s.t. V = alpha' A and <alpha, Y> = 1, as the primal.

    Of nuclear norms it has spectral ones. In the matrix of that cone, [[t I, V_g], [V_g', t I]],
    most entries are 0, so that Clarabel divides it into small ones. That of a nuclear norm is full.
    """
    K = Y.shape[1]
    V = cp.Variable(K * A.shape[1])
    alpha = cp.Variable(Y.shape)
    definition = cp.reshape(V, (K, A.shape[1]), order="C") == alpha.T @ A
    scale = cp.sum(cp.multiply(alpha, Y)) == 1

    def read() -> tuple[Array, Array]:
        # With multipliers Lambda and d of both, stationarity in alpha is A Lambda_k = d y_k.
        with np.errstate(divide="ignore", invalid="ignore"):
            zeta = np.asarray(definition.dual_value) / scale.dual_value
        return zeta, np.asarray(alpha.value)

    objective = norm.conjugate.atom(V, shape, cp)
    return cp.Problem(cp.Minimize(objective), [definition, scale]), read
