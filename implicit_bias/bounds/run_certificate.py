r"""Certificates of training runs: bounds on the optimum from an iterate, without any solver.

For a predictor that is linear in its coefficients zeta, the gradient of a loss of the margins is

    -dL/dzeta = sum_nk alpha_nk (e_{y_n} - e_k) (x) z(x_n) (x) x_n = V(alpha)

with alpha_nk = -dL/dq_nk, so that the weights alpha >= 0 of the loss are dual variables, and each
step's gradient bounds the optimum from below, by sum(alpha) / Omega_*(V(alpha)), and its iterate
bounds it from above. With an unpenalized intercept the weights obey its equation only as
t -> infinity, so that they are balanced first (`balance`).

===========  ===========================  ===================================
loss         of a sample, margins q_nk    weight of a margin
===========  ===========================  ===================================
logistic     log(1 + sum_k exp(-q_nk))    exp(-q_nk) / (1 + sum_l exp(-q_nl))
exponential  sum_k exp(-q_nk)             exp(-q_nk)
===========  ===========================  ===================================

The logistic loss of many classes is cross-entropy. Weights are evaluated as logarithms, so that
they do not underflow late in a run; only their ratios matter.

Sources: Soudry et al. (2018); Gunasekar et al. (2018) for steepest descent in any norm.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import scipy.special
from numpy.typing import ArrayLike

from implicit_bias.base.validation import Array, as_numbers, check_choice
from implicit_bias.bounds.certificate import Certificate, certificate_of
from implicit_bias.bounds.lower import checked_alpha, unit_values
from implicit_bias.bounds.upper import checked_coef, checked_offsets
from implicit_bias.problem import MarginProblem, check_problem

RunLoss: TypeAlias = Literal["logistic", "exponential"]


@np.errstate(over="ignore", divide="ignore", invalid="ignore")  # an infinite bound is no bound
def certify_run(
    problem: MarginProblem,
    model: Any,
    intercept: ArrayLike | None = None,
    *,
    loss: RunLoss = "logistic",
    weights: ArrayLike | None = None,
) -> Certificate:
    r"""Bound the optimum by an iterate of a training run and the derivatives of its loss.

    .. math:: \alpha_n = -\frac{\partial L}{\partial q_n}, \qquad -\nabla_\zeta L = V(\alpha),
        \qquad \frac{\sum_n \alpha_n}{\Omega_*(V(\alpha))} \le \text{optimum}
        \le \frac{\Omega(\zeta)}{\min_n q_n}

    with the margins q_n of the iterate zeta: the weights of a decreasing loss are dual
    variables.

    Parameters
    ----------
    problem : MarginProblem
        The max-margin problem to whose solution the run should converge in direction.
    model : linear layer, tensor, or array_like
        The coefficients as they are in the run, not normalized: an object with ``weight`` and
        ``bias``, as a `torch.nn.Linear`; or an array of the shape of the problem's coefficients,
        or (K, D) without gates.
    intercept : array_like, optional
        The offset that goes with an array, where the problem has one; 0 by default.
    loss : {"logistic", "exponential"}
        What the run minimizes; with many classes "logistic" is cross-entropy.
    weights : array_like of shape (N,) or (N, K), optional
        The weights -dL/dq of another loss, instead of those of ``loss``.

    Returns
    -------
    Certificate
        Its bounds hold for any iterate; ``gap`` 0 means that the run has converged.

    Raises
    ------
    ValueError
        Shapes that do not fit, an unknown loss, weights that are negative or not finite, an offset
        where the problem has none, or arrays that are complex or masked.
    TypeError
        Not a `MarginProblem`.

    Notes
    -----
    Soudry et al. (2018); Gunasekar et al. (2018) for steepest descent in any norm.

    Examples
    --------
    >>> import numpy as np
    >>> from implicit_bias import certify_run, max_margin
    >>> problem = max_margin(np.array([[2.0, 0.0], [0.0, 1.0]]), [1, -1])
    >>> early, late = certify_run(problem, [[1.0, -1.0]]), certify_run(problem, [[8.0, -16.0]])
    >>> late.lower <= 1.25**0.5 <= late.upper, late.gap < early.gap
    (True, True)
    """
    check_problem(problem, "certify_run")
    rows = problem.constraints
    coef, offsets = _coefficients(problem, model, intercept)
    if weights is None:
        alpha = loss_weights(problem, coef, problem.as_intercept(offsets), loss)
        values = rows.alpha_of_rows(alpha)
    else:
        values = unit_values(problem, checked_alpha(problem, weights, "weights"))
    return certificate_of(problem, coef, values, offsets)


def loss_weights(
    problem: MarginProblem, coef: Array, intercept: float | Array, loss: RunLoss = "logistic"
) -> Array:
    """Weights -dL/dq of a loss, (N,) or (N, K), times a positive number: the largest is 1.

    Parameters
    ----------
    problem : MarginProblem
        The problem.
    coef : ndarray of shape (M, D) or (K, M, D)
        Coefficients.
    intercept : float or ndarray of shape (K,)
        Offsets.
    loss : {"logistic", "exponential"}
        See the module's table.
    """
    check_choice(loss, "loss", get_args(RunLoss), "your weights")
    rows = problem.constraints
    scores = problem.decision(coef) + intercept
    margins = rows.margins(scores.reshape(problem.n_samples, -1))
    weights = weights_of_margins(rows.by_sample(margins), loss)
    return rows.alpha(weights.reshape(-1))


def weights_of_margins(margins: Array, loss: RunLoss = "logistic") -> Array:
    """Weights -dL/dq of a loss of margins, times a positive number: the largest is 1.

    Parameters
    ----------
    margins : ndarray of shape (N, R)
        q, one row per sample; infinite where there is no margin, as at a sample's own class.
    loss : {"logistic", "exponential"}
        See the module's table.

    Returns
    -------
    ndarray of shape (N, R)
        0 where a margin is infinite.

    Examples
    --------
    >>> weights_of_margins(np.array([[0.0], [np.log(3.0)]])).round(3).tolist()
    [[1.0], [0.5]]
    """
    # Over the largest weight, as logarithms: late in a run all weights themselves would underflow.
    logarithms = -margins
    if loss == "logistic":
        # Less the logarithm of 1 + sum_l exp(-q_nl).
        total = scipy.special.logsumexp(logarithms, axis=1, keepdims=True)
        logarithms = logarithms - np.logaddexp(0.0, total)
    return np.asarray(np.exp(logarithms - logarithms.max()))


def _coefficients(
    problem: MarginProblem, model: Any, intercept: ArrayLike | None
) -> tuple[Array, Array]:
    """Return coefficients in the problem's shape, and offsets (K',)."""
    given = model
    if hasattr(model, "weight") and hasattr(model, "bias"):
        given = model.weight
        if intercept is None:
            intercept = model.bias
    # A linear layer has weights (K, D), the problem coefficients (K, 1, D).
    coef = as_numbers(given, "model")
    n_outputs = problem.norm_shape[0]
    if problem.n_gates == 1 and coef.shape == (n_outputs, problem.X.shape[1]):
        coef = coef.reshape(problem.coef_shape)
    coef = checked_coef(problem, coef)
    if intercept is None:
        return coef, np.zeros(n_outputs)
    offsets = as_numbers(intercept, "intercept")
    if offsets.size == n_outputs:  # the bias of a layer with one output has shape (1,)
        offsets = offsets.reshape(np.shape(problem.no_offset))
    return coef, checked_offsets(problem, offsets)
