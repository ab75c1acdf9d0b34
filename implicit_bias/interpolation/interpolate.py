r"""Minimum-norm interpolation, certified: where training with a squared loss converges to.

        minimize Omega(zeta)   subject to   f(x_n) = y_n for all n

Gradient descent from zero on the squared loss of a model that is linear in its parameters converges
to the l2 solution, and mirror descent to the point nearest to its start in the divergence of its
potential (Gunasekar et al. 2018). A diagonal network u * u - v * v comes near the l1 solution from
a small initialization (Woodworth et al. 2020). For steepest descent in other norms there is no such
theorem with a squared loss: where it ends depends on its step size (Gunasekar et al. 2018).

`min_norm` solves the problem in three steps:

1. `equations`: independent equations, and proofs that the others follow or contradict;
2. `methods`: closed forms for l2 and norms of singular values, Clarabel through CVXPY for others;
3. `certificate`: both bounds, with all rounding, by what the method found.

Sources: Gunasekar, Lee, Soudry, Srebro (2018), "Characterizing implicit bias in terms of
optimization geometry", theorem 1; Woodworth et al. (2020), "Kernel and rich regimes in
overparametrized models", theorem 1.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike

from implicit_bias.base import validation
from implicit_bias.base.deadline import Deadline
from implicit_bias.base.threads import threads, threads_for
from implicit_bias.base.validation import Array
from implicit_bias.bounds.status import WordedStatus, relative_gap
from implicit_bias.interpolation.certificate import lower_bound, norm_bound, residuals, upper_bound
from implicit_bias.interpolation.equations import Equations, Inconsistency, sort_equations
from implicit_bias.interpolation.methods import (
    LinearSystem,
    Point,
    check_solver,
    least_change,
    solve_system,
)
from implicit_bias.interpolation.problem import InterpolationProblem, interpolation_problem
from implicit_bias.norms import HasValueAndDual, Norm
from implicit_bias.problem import decision
from implicit_bias.problem.gating import GateMatrix, Gating

# Residuals above this fraction of the values are no rounding.
ROUNDING = 1e-11


class InterpolationStatus(WordedStatus):
    """How an interpolation ended; each member carries its message.

    Examples
    --------
    >>> from implicit_bias import min_norm
    >>> min_norm([[1.0], [1.0]], [1.0, 2.0]).status.name
    'INCONSISTENT'
    """

    OPTIMAL = "the certified gap is within the tolerance"
    WITHIN_SLACK = (
        "the features of some samples are linearly dependent up to rounding, and their values fit: "
        "the bounds are of the equations up to slack"
    )
    INCONSISTENT = (
        "no coefficients interpolate, which is proven (leave out samples that contradict each "
        "other, or take more features)"
    )
    NEARLY_INCONSISTENT = (
        "the features of some samples are linearly dependent up to rounding, and their values are "
        "not: any coefficients that interpolate are enormous (leave out such samples, or take more "
        "features)"
    )
    INACCURATE = "the certified gap exceeds the tolerance (scale the features to one size)"
    TIME_LIMIT = "the time limit came first"


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Interpolant:
    r"""Coefficients of minimum norm that interpolate, with certified bounds on that norm.

    .. math:: \min_{\zeta, b} \; \Omega(\zeta) \quad \text{subject to}
        \quad f(x_n) + b = y_n \text{ for all } n, \qquad
        \frac{\sum_n \alpha_n y_n}{\Omega_*(V(\alpha))} \le \text{optimum} \le \Omega(\zeta)

    Attributes
    ----------
    coef : ndarray of shape (M, D) or (K, M, D)
        Coefficients zeta; M = 1 without gates. 0 where no coefficients interpolate.
    intercept : float or ndarray of shape (K,)
        The unpenalized intercept; 0 without one.
    alpha : ndarray of shape (N,) or (N, K)
        Multipliers, scaled to Omega_*(V(alpha)) = 1; those of the proof, of largest entry 1, where
        no coefficients interpolate.
    value : float
        Omega(coef), rounded to float64.
    lower, upper : float
        Certified bounds on the smallest norm of coefficients that interpolate, with all rounding;
        inf as both where none do.
    gap : float
        (upper - lower) / lower; 0 where both are 0.
    residual : float
        Upper bound on the largest abs(f(x_n) - y_n), as a real number.
    slack : float
        0 where the bounds are those of the equations as they are. Else the equations depend on each
        other up to rounding, and the bounds are those of abs(f(x_n) - y_n) <= slack.
    status : InterpolationStatus
        How it ended.
    method : str
        "closed form", or the solver that CVXPY called, "clarabel" or "scs". Where none of them
        found anything in time, the l2 solution bounds the norm in closed form.
    iterations : int
        Its iterations.
    seconds : float
        Wall time, certificate included.
    inconsistency : Inconsistency or None
        The proof that no coefficients interpolate: its samples and multipliers. With WITHIN_SLACK
        the values contradict each other by rounding alone.
    norm : Norm
        Omega; l2 for a norm of singular values of one output, which is the same.
    norm_name : str
        The norm that was asked for.
    gating : Gating or None
        The gates, where they were passed as a function of inputs.

    Examples
    --------
    >>> from implicit_bias import min_norm
    >>> found = min_norm([[3.0, 4.0]], [5.0])
    >>> print(found.coef.round(4), round(found.upper, 6), found.status.label)
    [[0.6 0.8]] 1.0 optimal
    """

    coef: Array
    intercept: float | Array
    alpha: Array
    value: float
    lower: float
    upper: float
    gap: float
    residual: float
    slack: float
    status: InterpolationStatus
    method: str
    iterations: int
    seconds: float
    inconsistency: Inconsistency | None
    norm: Norm
    norm_name: str
    gating: Gating | None

    def __repr__(self) -> str:
        if self.status is InterpolationStatus.INCONSISTENT:
            return f"Interpolant({self.message})"
        of = f" up to {self.slack:.2g}" if self.slack else ""
        return (
            f"Interpolant({self.status.name} by {self.method}: the smallest {self.norm_name} "
            f"norm that interpolates{of} is between {self.lower:.9g} and {self.upper:.9g}, gap "
            f"{self.gap:.2g}, residual {self.residual:.2g})"
        )

    @property
    def message(self) -> str:
        """The status in words, with its cause where it is known."""
        if self.inconsistency is None or self.status is not InterpolationStatus.INCONSISTENT:
            return self.status.message
        return f"{self.status.message}: {self.inconsistency.cause}"

    @property
    def group_norms(self) -> Array:
        """The terms of the norm as a sum over groups, (G,): 0 of groups that are not used."""
        return self.norm.group_norms(self.coef.reshape(-1, *self.coef.shape[-2:]))

    def predict(self, X: ArrayLike, gates: GateMatrix | ArrayLike | None = None) -> Array:
        """f(x_n), shape (n,) or (n, K).

        Parameters
        ----------
        X : array_like of shape (n, D)
            Inputs.
        gates : array_like or sparse array of shape (n, M), optional
            Their gates, where the model has gates that were passed as numbers.

        Raises
        ------
        ValueError
            Other features, or gates that lack or do not fit.

        Examples
        --------
        >>> from implicit_bias import min_norm
        >>> min_norm([[1.0], [2.0]], [3.0, 5.0], intercept=True).predict([[4.0]]).round(6)
        array([9.])
        """
        n_gates, n_features = self.coef.shape[-2:]
        inputs = validation.as_features(X, n_features)
        if gates is not None:
            Z = validation.as_finite(np.asarray(gates), "gates", 2)
        elif self.gating is not None:
            Z = np.asarray(self.gating.gates(inputs))
        elif n_gates == 1:
            Z = np.ones((len(inputs), 1))
        else:
            raise ValueError(f"the model has {n_gates} gates: pass those of X, (n, {n_gates})")
        validation.check_shape(Z, "gates", (len(inputs), n_gates), "one row per sample")
        return decision(inputs, Z, self.coef) + self.intercept


def min_norm(
    X: ArrayLike,
    y: ArrayLike,
    norm: Norm | HasValueAndDual | str = "l2",
    *,
    gates: Gating | GateMatrix | ArrayLike | None = None,
    groups: ArrayLike | None = None,
    intercept: bool = False,
    tol: float = 1e-6,
    max_seconds: float | None = None,
) -> Interpolant:
    r"""Interpolate values with coefficients of minimum norm, with a certificate.

    Minimize Omega(zeta) subject to sum_m z_m(x_n) <zeta_m, x_n> + b = y_n for all n.

    Parameters
    ----------
    X : array_like of shape (N, D)
        Inputs.
    y : array_like of shape (N,) or (N, K)
        Values; a column for each of K outputs, which share the inputs and gates.
    norm : Norm or str
        "l1", "l2", "linf", "spectral", "nuclear", an object of `implicit_bias.norms`, or one of
        your own with ``value``, ``dual`` and ``atom``. l2, spectral, nuclear and Schatten norms of
        all coefficients have a closed form. All others need CVXPY
        (``pip install 'implicit-bias[cvxpy]'``).
    gates : Gating, or array_like or sparse array of shape (N, M), optional
        z(x_n): an object of `problem.gating`, or its values at the samples.
    groups : array_like of int or str, shape (M,) or (D,), optional
        Group of each gate column where there are gates, else of each feature, by number or name:
        the norm is summed over them. With "l2" and gates it is the group norm of gated networks,
        with "l2" alone the group lasso.
    intercept : bool
        Whether each output has an unpenalized intercept b, ungated and not in the norm.
    tol : float
        Relative gap between the certified bounds at which the status is OPTIMAL.
    max_seconds : float, optional
        Limit on the time of the solver; what was found by then is certified. CVXPY's translation of
        the problem before that, and the certificate after it, are not interrupted.

    Returns
    -------
    Interpolant
        Read its ``status``. The bounds hold in every case.

    Raises
    ------
    ValueError
        NaN, shapes that do not fit, groups of another length or whose numbers are not 0 .. G - 1,
        values whose squares over- or underflow, or a norm that no method takes.
    TypeError
        Not a norm.
    ImportError
        A norm without a closed form, and CVXPY is not installed.
    MemoryError
        More than 2^27 numbers of features.

    Notes
    -----
    Gunasekar et al. (2018), theorem 1: mirror descent, and with it gradient descent, converges on a
    squared loss to the interpolating point nearest to its start, in its potential's divergence.

    Examples
    --------
    Of two features the l1 solution takes the larger one alone, and the l_inf solution both alike.

    >>> import numpy as np
    >>> from implicit_bias import min_norm
    >>> X, y = np.array([[1.0, 2.0]]), np.array([6.0])
    >>> for norm in ("l1", "l2", "linf"):
    ...     print(norm, min_norm(X, y, norm).coef.round(4) + 0.0)
    l1 [[0. 3.]]
    l2 [[1.2 2.4]]
    linf [[2. 2.]]

    Samples that contradict each other are named.

    >>> print(min_norm([[1.0], [2.0]], [1.0, 3.0]).inconsistency.cause)
    the features of samples 0, 1 are linearly dependent, their values are not
    """
    began = time.perf_counter()
    problem = interpolation_problem(X, y, norm, gates, groups, intercept)
    check_solver(problem.norm, problem.norm_shape)
    validation.check_number(tol, "tol", "(0, inf)")
    deadline = Deadline.asked(max_seconds)
    with (
        threads(threads_for(len(problem.Y))),
        np.errstate(over="ignore", invalid="ignore", divide="ignore"),
    ):
        found = _interpolate(problem, tol, deadline)
    gap = relative_gap(found.lower, found.upper)
    if found.upper == 0.0:
        gap = 0.0
    solved = found.solved
    return Interpolant(
        coef=solved.coef.reshape(problem.coef_shape),
        intercept=float(solved.offsets[0]) if problem.one_output else solved.offsets,
        alpha=solved.alpha.reshape(problem.alpha_shape),
        value=problem.norm.value(solved.coef),
        lower=found.lower,
        upper=found.upper,
        gap=gap,
        residual=found.residual,
        slack=found.slack,
        status=found.status,
        method=solved.method,
        iterations=solved.iterations,
        seconds=time.perf_counter() - began,
        inconsistency=found.inconsistency,
        norm=problem.norm,
        norm_name=problem.norm_name,
        gating=problem.gating,
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class _Solved:
    """Coefficients (K, M, D), offsets (K,) and multipliers (N, K) that a method found."""

    coef: Array
    offsets: Array
    alpha: Array
    method: str = "closed form"
    iterations: int = 0

    @classmethod
    def nothing(cls, problem: InterpolationProblem) -> _Solved:
        """Return zeros."""
        offsets = np.zeros(problem.Y.shape[1])
        return cls(
            coef=np.zeros(problem.norm_shape), offsets=offsets, alpha=np.zeros(problem.Y.shape)
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class _Found:
    """What a method found, with what is certified of it: attributes as of `Interpolant`."""

    solved: _Solved
    lower: float
    upper: float
    residual: float
    status: InterpolationStatus
    slack: float = 0.0
    inconsistency: Inconsistency | None = None


def _interpolate(
    problem: InterpolationProblem, tol: float, deadline: Deadline, aim: float = 1e-3
) -> _Found:
    """Solve the problem, and certify what was found.

    The method is asked for ``aim`` times the gap, because the certificate adds roundings.
    """
    nothing = _Solved.nothing(problem)

    # --- Values that the coefficients 0 interpolate ----------------------------------------------
    # Without an intercept only values of 0 are interpolated by coefficients 0.
    constant = nothing.offsets
    if problem.intercept:
        # Equal values: the mean of equal numbers may be rounded.
        are_equal = (problem.Y == problem.Y[0]).all(axis=0)
        constant = np.where(are_equal, problem.Y[0], problem.Y.mean(axis=0))
    if (problem.Y == constant).all():
        return _Found(
            solved=replace(nothing, offsets=constant),
            lower=0.0,
            upper=0.0,
            residual=0.0,
            status=InterpolationStatus.OPTIMAL,
        )

    # --- Equations that contradict each other ----------------------------------------------------
    equations = sort_equations(problem)
    inconsistency = equations.inconsistency
    largest = float(np.abs(problem.Y).max())
    tolerance = ROUNDING * largest
    dependent = inconsistency is not None or len(equations.undecided) > 0
    # What no coefficients fit, where equations depend on each other: none up to rounding.
    unfit = np.zeros_like(problem.Y)
    if dependent:
        unfit = _least_squares_residual(problem)
    contradicts = bool(np.abs(unfit).max() > tolerance)
    # A contradiction in the last digits alone is one of rounding: the bounds are up to slack then.
    if inconsistency is not None and contradicts:
        proof = nothing
        if inconsistency.multipliers is not None:
            proof = replace(nothing, alpha=_unit_multipliers(inconsistency, problem))
        return _Found(
            solved=proof,
            lower=math.inf,
            upper=math.inf,
            residual=largest,
            status=InterpolationStatus.INCONSISTENT,
            inconsistency=inconsistency,
        )

    # --- Coefficients, and bounds on the smallest norm -------------------------------------------
    solved = _solve(problem, equations, aim * tol, deadline)
    rest = residuals(problem, solved.coef, solved.offsets)
    residual = float(rest.magnitude.max())
    upper = math.inf
    slack = 0.0
    if not dependent:
        upper = upper_bound(problem, equations, solved.coef, rest)
    # No proof that the equations have a solution: bounds of those up to the residual.
    if not math.isfinite(upper) and residual <= tolerance:
        slack = residual
        upper = norm_bound(problem, solved.coef)
    lower = lower_bound(problem, solved.alpha, slack)
    if contradicts:
        # What no coefficients fit is nearly orthogonal to all features: as multipliers it proves
        # that the norm is enormous.
        lower = max(lower, lower_bound(problem, unfit))

    # --- How it ended ----------------------------------------------------------------------------
    if contradicts:
        status = InterpolationStatus.NEARLY_INCONSISTENT
    elif relative_gap(lower, upper) <= tol:
        status = InterpolationStatus.WITHIN_SLACK if slack else InterpolationStatus.OPTIMAL
    elif deadline.passed:
        status = InterpolationStatus.TIME_LIMIT
    else:
        status = InterpolationStatus.INACCURATE
    return _Found(
        solved=solved,
        lower=lower,
        upper=upper,
        residual=residual,
        status=status,
        slack=slack,
        inconsistency=inconsistency,
    )


def _solve(
    problem: InterpolationProblem, equations: Equations, tolerance: float, deadline: Deadline
) -> _Solved:
    """Solve the independent equations."""
    index = equations.independent
    exponents = equations.exponents[index, None]
    # Independent rows, scaled by powers of two: the values are scaled alike.
    rows = equations.inverse.A
    Y = np.ldexp(problem.Y[index], -exponents)
    # Values of size 1: the problem is homogeneous in them.
    exponent = math.frexp(float(np.abs(Y).max()))[1]
    Y = np.ldexp(Y, -exponent)
    n_features = math.prod(problem.features.shape)
    A = np.ascontiguousarray(rows[:, :n_features])
    column = rows[:, n_features:]  # of the offset, or none

    # An orthonormal basis of what is orthogonal to the offset's column.
    H = np.eye(len(A))
    if problem.intercept:
        # Complete QR: all columns of Q but the first are orthogonal to the offset's column.
        H = scipy.linalg.qr(column)[0][:, 1:].T
    Q, R = scipy.linalg.qr((H @ A).T, mode="economic")
    values = scipy.linalg.solve_triangular(R, H @ Y, trans="T")
    # Q' and R^-T Y once more, of what rounding left: the solution of least Euclidean norm.
    rest = H @ (Y - A @ (Q @ values))
    values = values + scipy.linalg.solve_triangular(R, rest, trans="T")
    system = LinearSystem(
        np.ascontiguousarray(Q.T), values, problem.norm, problem.norm_shape, tolerance, deadline
    )
    if values.any():
        point = solve_system(system)
    else:  # the coefficients 0 obey all independent equations
        point = Point(np.zeros((len(values.T), n_features)), np.zeros_like(values), "closed form")

    zeta = _refined(A, H, R, Y, system, point.zeta)
    offsets = np.zeros(len(zeta))
    # Multipliers of the system's rows Q' = R^-T H A are those of the equations by R^-1 and H'.
    alpha = H.T @ scipy.linalg.solve_triangular(R, point.alpha)
    if problem.intercept:
        squares = float((column**2).sum())
        # The offset that fits what the coefficients leave, by least squares: the rest is a multiple
        # of the column.
        offsets = column[:, 0] @ (Y - A @ zeta.T) / squares * problem.unit
    dual = problem.norm.dual((alpha.T @ A).reshape(problem.norm_shape))
    if dual > 0:
        alpha = alpha / dual
    whole = np.zeros_like(problem.Y)
    whole[index] = np.ldexp(alpha, -exponents)
    coef = np.ldexp(zeta, exponent).reshape(problem.norm_shape)
    return _Solved(
        coef=coef,
        offsets=np.ldexp(offsets, exponent),
        alpha=whole,
        method=point.method,
        iterations=point.iterations,
    )


def _refined(A: Array, H: Array, R: Array, Y: Array, system: LinearSystem, zeta: Array) -> Array:
    """Return zeta moved onto the equations H A zeta_k = H y_k; entries that are 0 stay so.

    The system's rows are R^-T H A.
    """
    found = zeta.copy()
    for k, of_output in enumerate(found):
        # A correction of all entries would undo the zeros that `cleaned` found.
        support = np.flatnonzero(of_output)
        rest = H @ (Y[:, k] - A @ of_output)
        of_system = scipy.linalg.solve_triangular(R, rest, trans="T")
        moved = of_output.copy()
        moved[support] += least_change(system.A[:, support], of_system)
        # Rounding may make it worse, where the support has too few columns.
        if np.linalg.norm(H @ (Y[:, k] - A @ moved)) < np.linalg.norm(rest):
            found[k] = moved
    return found


def _unit_multipliers(inconsistency: Inconsistency, problem: InterpolationProblem) -> Array:
    """Return the multipliers of a proof, of largest entry about 1, as float64."""
    alpha = np.zeros(problem.Y.shape)
    assert inconsistency.multipliers is not None
    largest = max(map(abs, inconsistency.multipliers))
    for n, x in zip(inconsistency.samples, inconsistency.multipliers, strict=True):
        alpha[n, inconsistency.output] = x / largest
    return alpha


def _least_squares_residual(problem: InterpolationProblem) -> Array:
    """Return what the best coefficients leave of the values: multipliers with V near 0."""
    # Singular values that are rounding would only add their own noise.
    U, s, _ = scipy.linalg.svd(problem.matrix, full_matrices=False, check_finite=False)
    U = U[:, s > ROUNDING * s[0]]
    found = problem.Y
    for _ in range(3):
        found = found - U @ (U.T @ found)
    return np.asarray(found)
