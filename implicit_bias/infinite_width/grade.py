"""How far a finite two-layer network is from the infinitely wide one of the maximum margin."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from implicit_bias.base.validation import Array, as_features, as_finite
from implicit_bias.infinite_width.column_generation import (
    InfiniteWidthSolution,
    Oracle,
    max_margin,
    solve_master,
)
from implicit_bias.infinite_width.problem import Activation, InfiniteWidthProblem

if TYPE_CHECKING:
    from implicit_bias.networks import ReLUNetwork


@dataclass(frozen=True, eq=False)
class NetworkGrade:
    """What `certify` says of a finite network.

    Attributes
    ----------
    path_norm : float
        sum_j |a_j| ||w_j||.
    min_margin : float
        Smallest y_n f(x_n).
    norm : float
        path_norm / min_margin: the norm of the network scaled to unit margin; inf where it errs.
    share : tuple of two floats
        Certified bounds on its margin per path norm over the largest possible one.
    refit_norm : float
        Smallest norm of any second layer on these directions; inf where none separates.
    alpha : ndarray of shape (N,)
        Dual variables of that smallest norm, with |h| <= 1 at all of the network's directions.
    escape : ndarray of shape (D,)
        The direction of the largest |h| of alpha.
    escape_value : float
        |h| there. Above 1 it suggests that one more unit in this direction lowers the norm; it
        does if alpha is unique. Where ``refit_norm`` is inf, alpha has sum 1 and no scale, and any
        value above 0 suggests it.
    escape_norm : float
        Smallest norm of any second layer once that unit is there: below ``refit_norm`` it proves
        what ``escape_value`` suggests.
    solution : InfiniteWidthSolution
        The infinitely wide optimum to which the network was compared.
    """

    path_norm: float
    min_margin: float
    norm: float
    share: tuple[float, float]
    refit_norm: float
    alpha: Array = field(repr=False)
    escape: Array
    escape_value: float
    escape_norm: float
    solution: InfiniteWidthSolution = field(repr=False)


def certify(
    network: ReLUNetwork | tuple[ArrayLike, ArrayLike],
    X: ArrayLike,
    y: ArrayLike,
    *,
    activation: Activation = "relu",
    solution: InfiniteWidthSolution | None = None,
    tol: float = 1e-6,
) -> NetworkGrade:
    """Compare a two-layer network to the infinitely wide one of the maximum margin.

    Parameters
    ----------
    network : ReLUNetwork or (array_like of shape (J, D), array_like of shape (J,))
        A network of one hidden layer without biases, or its first- and second-layer weights.
    X : array_like of shape (N, D)
        Inputs.
    y : array_like of shape (N,)
        Labels, -1 or +1.
    activation : str or (float, float)
        As in `InfiniteWidthProblem`.
    solution : InfiniteWidthSolution, optional
        Of the same data and activation with the hard margin, if it is there already.
    tol : float
        Gap to which the optimum is computed where it is not given.

    Raises
    ------
    ValueError
        Shapes that do not fit, a network with biases or with more hidden layers, a solution of
        other data.
    """
    weights, readout = _two_layers(network)
    if solution is None:
        solution = max_margin(X, y, tol=tol, activation=activation, start=weights)
    problem = solution.problem
    if not (np.array_equal(problem.X, X) and np.array_equal(problem.y, y)):
        raise ValueError("the solution belongs to other data: pass that of these X and y")
    weights = as_features(weights, problem.X.shape[1])
    if readout.shape != (len(weights),):
        raise ValueError(f"{len(weights)} units need as many weights, got shape {readout.shape}")
    norm, min_margin = problem.primal_bound(weights, readout)
    share = (0.0, 0.0)
    if norm < np.inf:
        best = solution.certificate
        # The largest margin is 1 / optimum, so that margins have the inverse fraction of norms.
        # Rounding alone takes it above 1.
        share = (best.lower / norm, min(best.upper / norm, 1.0))
    # The directions of the units in the row space; a unit orthogonal to all inputs has none.
    inside = weights @ problem.basis
    lengths = np.linalg.norm(inside, axis=1)
    units = inside[lengths > 0] / lengths[lengths > 0, None]
    refit_norm, alpha = _refit(problem, units)
    # One more unit where |h| of the refit's dual variables is largest, and a refit with it.
    peaks = Oracle(problem, np.random.default_rng(0)).peaks(alpha, np.inf)
    escape_norm, _ = _refit(problem, np.vstack([units, peaks.points[:1]]))
    return NetworkGrade(
        path_norm=float(np.abs(readout) @ np.linalg.norm(weights, axis=1)),
        min_margin=min_margin,
        norm=norm,
        share=share,
        refit_norm=refit_norm,
        alpha=alpha,
        escape=problem.basis @ peaks.points[0],
        escape_value=float(peaks.values[0]),
        escape_norm=escape_norm,
        solution=solution,
    )


def _refit(problem: InfiniteWidthProblem, units: Array) -> tuple[float, Array]:
    """Smallest norm of any weights of unit directions (J, r), and its dual variables (N,)."""
    norm = np.inf
    for _ in range(2):  # with the norm known the program has more digits
        solved = solve_master(problem, units, np.zeros(len(units)), norm, 0.0)
        if solved is None:
            raise ArithmeticError("HiGHS found no weights of these directions")
        coef, alpha = solved
        norm, _ = problem.primal_bound(units @ problem.basis.T, coef)
    largest = float(problem.dual_function(alpha).lengths(units).max())
    if norm < np.inf:
        # Feasible at all units of the network: |h| is at most 1 there.
        return norm, alpha / largest
    return norm, alpha


def _two_layers(network: ReLUNetwork | tuple[ArrayLike, ArrayLike]) -> tuple[Array, Array]:
    if isinstance(network, tuple):
        weights, readout = network
        return as_finite(weights, "directions", 2), as_finite(readout, "coef", 1)
    if not (network.has_margin_structure and network.homogeneous):
        raise ValueError("the network must have one hidden layer and readout_bias=False")
    first = network.hidden_weights[0].detach().double().cpu().numpy()
    return first, network.readout[0].detach().double().cpu().numpy()
