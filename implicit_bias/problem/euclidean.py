"""Sums of Euclidean norms over any groups of coefficients, as sums over groups of gate columns.

A norm may divide the features of one gate column into several groups, as the group lasso does. Then
each feature z_m(x_n) x_nd becomes a separate gate column, with the constant input 1. That is the
same problem, and its groups consist of gate columns.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from implicit_bias.base.validation import UnsuitableError
from implicit_bias.norms import L1
from implicit_bias.problem.constraints import Integers
from implicit_bias.problem.features import Features
from implicit_bias.problem.margin_problem import MarginProblem


def euclidean_form(problem: MarginProblem) -> tuple[Features, Integers]:
    """Return features, and groups of their gates, under which a norm is a sum of Euclidean norms.

    Parameters
    ----------
    problem : MarginProblem
        The problem.

    Returns
    -------
    features : Features
        Those of the samples, of shape (M, D), or each as a gate column, of shape (M D, 1). Their
        ``groups`` are those of the first class alone.
    groups : ndarray of int, shape (K', M)
        Group of each gate of each class.

    Raises
    ------
    ValueError
        The norm is no sum of Euclidean norms over groups.

    Examples
    --------
    >>> import numpy as np
    >>> from implicit_bias import max_margin
    >>> from implicit_bias.norms import GroupL2
    >>> problem = max_margin(np.ones((2, 3)), [1, -1], GroupL2([0, 1, 1]))
    >>> features, groups = euclidean_form(problem)
    >>> features.shape, groups
    ((3, 1), array([[0, 1, 1]]))
    """
    features = problem.features
    shape = problem.norm_shape
    if problem.has_group_norm:
        return features, problem.gate_norm.groups_of_rows(shape[0]).reshape(shape[0], -1)
    found = problem.partition
    if found is None or found.inner != "l2":
        raise UnsuitableError(
            "this solver takes norms that are sums of Euclidean norms over groups, not "
            f"{problem.norm!r}: choose solver='auto'"
        )
    # Where all features of each gate column are in one group, nothing need change.
    if (found.groups == found.groups[..., :1]).all():
        return features, found.groups[..., 0]
    groups = found.groups.reshape(shape[0], -1)  # in C order, as in `Features.matrix`
    return Features(np.ones((len(features), 1)), features.matrix(), groups[0]), groups


def in_groups_of_gates(problem: MarginProblem) -> MarginProblem:
    """Return the same problem of two classes under a norm of groups of gate columns.

    Its coefficients are those of the problem in another shape.

    Raises
    ------
    ValueError
        The norm is no sum of Euclidean norms over groups.
    """
    if problem.has_group_norm:
        return problem
    features, groups = euclidean_form(problem)
    return MarginProblem(
        features.X, problem.y, features.gates, groups[0], C=problem.C, intercept=problem.intercept
    )


def with_l1_for_single_entries(problem: MarginProblem) -> MarginProblem:
    """Return the problem under l1 if each group of its norm has one entry; else the problem itself.

    The norms are equal then, and there are methods for l1, such as linear programs.

    Examples
    --------
    >>> import numpy as np
    >>> from implicit_bias import max_margin
    >>> from implicit_bias.norms import GroupL2
    >>> with_l1_for_single_entries(max_margin(np.eye(2), [1, -1], GroupL2([0, 1]))).norm
    L1()
    """
    found = problem.partition
    if found is None or found.inner != "l2":
        return problem
    groups = found.groups.reshape(-1)
    # The norm of a single coefficient in all stays as it is.
    if len(groups) == 1 or len(np.unique(groups)) < len(groups):
        return problem
    return replace(problem, norm=L1())


def classes_share_groups(problem: MarginProblem) -> bool:
    """Whether the norm is a sum of l2 over groups that each have the coefficients of all classes.

    Such a norm does not change under rotations of the classes.
    """
    found = problem.partition
    if found is None or found.inner != "l2":
        return False
    return bool((found.groups == found.groups[0]).all())
