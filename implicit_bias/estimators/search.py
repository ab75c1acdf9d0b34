"""The C of a soft margin, chosen by cross-validation on the training samples.

The values of C lie between that up to which zeta = 0 is a solution (`smallest_C`) and that of the
soft margin that is solved where the hard one has no solution, evenly on a log scale. Samples are
left out in turn, a fold at a time, and the problem of the others is solved along the values. What
counts is the share of the weight of all samples that is wrong when it is left out, so that with
class_weight="balanced" all classes count alike. Gates stay those of all training inputs: no label
has a say in them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from implicit_bias.base.options import SolverOptions
from implicit_bias.base.validation import Array
from implicit_bias.base.wording import percent
from implicit_bias.bounds.certificate import Status
from implicit_bias.problem import Architecture
from implicit_bias.solvers.paths import path_over_C, smallest_C
from implicit_bias.solvers.relaxation import DEFAULT_SOFT_C

FOLDS = 5
VALUES = 10
# Predictions need no more.
TOLERANCE = 1e-3


@dataclass(frozen=True, eq=False)
class SearchOfC:
    """What cross-validation has found for some values of C.

    Attributes
    ----------
    values : ndarray of shape (n,)
        The values of C, ascending.
    errors : ndarray of shape (n,)
        Share of the training samples that are wrong when they are left out, by weight.
    folds : int
        In how many parts they were left out.

    Examples
    --------
    >>> print(SearchOfC(np.array([0.1, 1.0]), np.array([0.125, 0.0625]), 5))
    C = 1: wrong on 6.2 % of the training samples where these are left out (5-fold \
cross-validation), the least of 2 values from 0.1 to 1 (up to 12 %)
    """

    values: Array
    errors: Array
    folds: int

    @property
    def C(self) -> float:
        """The value that is wrong least often; of several the smallest."""
        return float(self.values[np.argmin(self.errors)])

    def __str__(self) -> str:
        least, most = (percent(end, space=" ") for end in (self.errors.min(), self.errors.max()))
        return (
            f"C = {self.C:g}: wrong on {least} of the training samples where these are left out "
            f"({self.folds}-fold cross-validation), the least of {len(self.values)} values from "
            f"{self.values[0]:g} to {self.values[-1]:g} (up to {most})"
        )


def search_C(  # noqa: N802 - C is a name
    architecture: Architecture,
    X: Array,
    y: Array,
    weights: Array,
    intercept: bool,
    solving: SolverOptions,
) -> SearchOfC:
    """Find the C of a soft margin by cross-validation.

    Parameters
    ----------
    architecture : Architecture
        Gates and groups.
    X : ndarray of shape (N, D)
        Training inputs.
    y : ndarray of shape (N,)
        Labels, -1 and +1 or 0 .. K - 1.
    weights : ndarray of shape (N,)
        Of the samples, positive.
    intercept : bool
        Whether the predictor has a free offset.
    solving : SolverOptions
        How to solve.

    Raises
    ------
    ValueError
        A class has one sample only.
    KeyboardInterrupt
        Ctrl-C.
    """
    from sklearn.model_selection import StratifiedKFold

    fewest = int(np.unique(y, return_counts=True)[1].min())
    if fewest < 2:
        raise ValueError("C='auto' leaves samples out in turn: a class of one sample needs another")
    folds, largest = min(FOLDS, fewest), weights.max()
    problem = architecture.problem(X, y, weights, intercept)
    ends = smallest_C(problem) / largest, DEFAULT_SOFT_C / problem.scale
    grid = np.geomspace(min(ends), ends[1], VALUES + 1)[1:]
    values = np.array([float(f"{C:.3g}") for C in grid])  # as they are shown
    wrong = np.zeros((len(y), VALUES))
    tol = max(TOLERANCE, solving.tol)
    parts = StratifiedKFold(folds, shuffle=True, random_state=0).split(X, y)
    for fold, rest in parts:
        posed = architecture.problem(X[fold], y[fold], weights[fold], intercept)
        path = path_over_C(posed, values * weights[fold].max(), solving.solver, tol, solving.device)
        for n, found in enumerate(path):
            if found.status is Status.INTERRUPTED:
                raise KeyboardInterrupt
            decision = architecture.decision(X[rest], found.coef) + found.intercept
            chosen = np.sign(decision) if decision.ndim == 1 else decision.argmax(axis=1)
            wrong[rest, n] = chosen != y[rest]
    return SearchOfC(values, weights @ wrong / weights.sum(), folds)
