r"""The margin problem of Adam that takes one sample at a time: l2 in a metric of the data's own.

Of a linear model, let z_n = y_n x_n, s_n the slope of the loss at z_n, c = s / sum s. As the steps
shrink, slopes hardly change relative to each other while Adam remembers them, and with beta2 near 1
the mean of squares hardly changes within a pass. Then it is sum_n s_n^2 z_n^2 up to a factor, entry
by entry; the running means of the gradients, summed over a pass, are sum_n s_n z_n, as the weights
of each gradient add up to 1. So a pass moves w along

    M(c)^-1 sum_n c_n z_n,   M(c) = diag sqrt(sum_n c_n^2 z_n^2).

Where the direction of w converges, c tends to some c* that is 0 off the smallest margins, and w is
M(c*)^-1 sum_n c*_n z_n up to a factor: these are the KKT conditions of

    minimize  1/2 w' M(c*) w   subject to  z_n' w >= 1,    with alpha = c* up to a factor.

So M is a fixed point of c -> alpha(M(c)) / sum alpha. With |z_nj| = a_n the same for all j, M is a
multiple of the identity: l2. The problem is that of l2 on rescaled features x_n / sqrt(M).

Source: Baek, Song, Yun (2025), "Implicit bias of per-sample Adam on separable data: departure from
the full-batch regime": samples in cyclic order, logistic regression. Its abstract says that a proxy
for beta2 -> 1 maximizes a Mahalanobis margin whose matrix is a fixed point in the dual; the form of
M is derived here, not there. They assume that the direction converges; whether the fixed point is
unique is not known here.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from implicit_bias.base.validation import Array, as_finite, check_shape
from implicit_bias.problem import max_margin
from implicit_bias.solvers.solve import solve


def per_sample_adam_metric(
    X: ArrayLike,
    y: ArrayLike,
    start: ArrayLike | None = None,
    *,
    settled: float = 1e-9,
    most_steps: int = 500,
) -> tuple[Array, Array]:
    """Find the metric in which Adam with one sample at a time maximizes the margin.

    Parameters
    ----------
    X : array_like of shape (N, D)
        Inputs of a linear model without an offset.
    y : array_like of shape (N,)
        Labels, -1 and +1.
    start : array_like of shape (N,), optional
        Weights of the samples to start from, by default equal ones.
    settled : float
        The weights are a fixed point if the map changes none of them by more than this.
    most_steps : int
        Most steps towards it.

    Returns
    -------
    metric : ndarray of shape (D,)
        M: the limit maximizes the smallest margin over sqrt(sum_j M_j w_j^2). Its problem is
        ``max_margin(X / M**0.5, y)``, in which weights w of a run are ``w * M**0.5``. A feature
        that is 0 in all samples has 1.
    shares : ndarray of shape (N,)
        c, the multipliers of that problem over their sum.

    Raises
    ------
    ValueError
        Inputs or labels that do not fit, many classes.
    SolveError
        Nothing separates the samples.
    RuntimeError
        The weights do not converge.

    Examples
    --------
    >>> import numpy as np
    >>> from implicit_bias import max_margin, solve
    >>> from implicit_bias.modules.single_samples import per_sample_adam_metric
    >>> X, y = np.array([[2.0, 1.0], [1.0, 3.0]]), [1, 1]
    >>> M, shares = per_sample_adam_metric(X, y)
    >>> M.round(6).tolist()
    [2.0, 1.0]
    >>> limit = solve(max_margin(X / M**0.5, y)).coef[0] / M**0.5
    >>> limit.round(4).tolist()  # in l2 it is (0.4, 0.2)
    [0.3333, 0.3333]
    """
    problem = max_margin(X, y)
    if problem.classes is not None:
        raise ValueError("y must be -1 and +1: of many classes the metric is not known")
    squares = problem.X**2
    shares = np.full(len(squares), 1.0 / len(squares))
    if start is not None:
        shares = as_finite(start, "start", 1)
        check_shape(shares, "start", (len(squares),), "one weight per sample")
    for _ in range(most_steps):
        # M(c) of the head. A feature that is 0 in all samples is given 1, so as not to divide by 0.
        sums = shares**2 @ squares
        metric = np.sqrt(np.where(sums > 0, sums, 1.0))
        # min w' M w is l2 in the variables M^(1/2) w, with features x_n / M^(1/2).
        solution = solve(max_margin(problem.X / np.sqrt(metric), problem.y), tol=1e-10)
        solution.raise_for_status()
        target = solution.alpha / solution.alpha.sum()
        if np.abs(target - shares).max() <= settled:
            return metric, shares
        # Half of the way: the map itself may oscillate about its fixed point.
        shares = (shares + target) / 2
    raise RuntimeError(f"no fixed point in {most_steps} steps: the samples' weights oscillate")
