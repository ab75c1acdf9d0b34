r"""The SVMs of [L] as their published code has them, where that is not as printed.

The published code flattens (unit, context) with the context fastest, column j = h C + c, and
folds it back in column-major order: where a sum over the contexts of a unit is meant, it is taken
over the fold g of the columns with j mod H = g.

=========  ========  ========================================================================
symbol     shape     meaning
=========  ========  ========================================================================
H, C                 hidden units, contexts of each
B          (HC, HC)  1 where two columns are in one fold, else 0
J          (HC, HC)  all ones
A          (HC, HC)  C I - B + J / (HC): their eq. (23)/(25), with the wrong fold
U          (HC, HC)  B / C - J / (HC): projection on the null space of A, of H - 1 dimensions
=========  ========  ========================================================================

svm-gln-published  the sum of the folds' norms, instead of the units'.
svm-l2-published   minimise ||A zeta||. A has the eigenvalue C on columns that differ within a
                   fold, 1 on the ones vector, and 0 on what is constant on each fold and sums to
                   zero. With the right fold these last columns would add nothing to the
                   predictor; with the wrong one they do, and cost nothing. So the program is no
                   norm, and where they alone separate the samples its optimum is 0 and its
                   solution not unique. It is solved with the eigenvalue `FREE` on them,

                       P = (I - B / C) / C^2 + J / (HC) + U / FREE^2,     the pseudo-inverse of
                                                                        A'A as FREE -> 0:

                   the solution of their program that is smallest along U. Its norm is ||A zeta||
                   up to `FREE`: next to 0 where U alone separates.
svm-l2-osqp        the same program given to OSQP through CVXPY, with the defaults of both, as the
                   released numbers were made. What it returns is optimal, too
                   (`l2_optimality.py`): the program does not choose between the two.
svm-l2-formula     their eq. (23)/(25) as printed, folded by units: ||A zeta|| with the right B. The
                   columns without penalty are now those that add nothing to the predictor, so the
                   optimum is unique. It still is not ||beta||: the weight that A gives the sums
                   over a unit is H C^2 times too small.
gd-gln-redrawn     the trained network in other contexts than it was trained in: the same
                   hyperplanes, but with the thresholds as drawn, not their medians. The published
                   agreements of SVMs with median thresholds are with this: a checkpoint has no
                   thresholds, so the released script that fits the SVMs reloads a network with
                   those of the seed.

Source: Lippl, Abbott, Chung (2022) [L], eqs. (23) to (25), and their published code.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray

from benchmarks.lippl2022.cells import Fitted, Models
from benchmarks.lippl2022.further_models import NetworkModel, in_contexts
from implicit_bias.base.validation import Array
from implicit_bias.estimators.base import BinaryClassifier, FittedMargin
from implicit_bias.estimators.networks import GLNClassifier
from implicit_bias.estimators.svm import GatedSVC
from implicit_bias.networks import GLN
from implicit_bias.problem import Architecture
from implicit_bias.problem.gating import (
    CombinedGates,
    GateMatrix,
    Gating,
    HyperplaneContexts,
    dense,
)

# Eigenvalue of A put in the place of 0. Results do not change below 0.01.
FREE = 1e-3
# Eigenvalues of a form below this share of the largest one, times its size, count as 0.
NULL = 1e-12


def folds(contexts: HyperplaneContexts) -> NDArray[np.int64]:
    """Fold of each column h C + c, shape (H C,), in the published code: j mod H."""
    columns = contexts.n_units * contexts.n_contexts
    return np.arange(columns, dtype=np.int64) % contexts.n_units


def operator(contexts: HyperplaneContexts) -> Array:
    """Return A, shape (H C, H C)."""
    size, n_contexts = contexts.n_units * contexts.n_contexts, contexts.n_contexts
    return n_contexts * np.eye(size) - _same(folds(contexts)) + 1.0 / size


def metric(contexts: HyperplaneContexts, free: float = FREE) -> Array:
    """P, shape (H C, H C), with the eigenvalue ``free`` of A on what A leaves unpenalised."""
    size, n_contexts = contexts.n_units * contexts.n_contexts, contexts.n_contexts
    mean_of_fold = _same(folds(contexts)) / n_contexts
    return _penalised(contexts, mean_of_fold) + (mean_of_fold - 1.0 / size) / free**2


def formula_metric(contexts: HyperplaneContexts) -> Array:
    """Return the pseudo-inverse of A'A with A as printed and units for folds, (H C, H C)."""
    return _penalised(contexts, _same(contexts.groups) / contexts.n_contexts)


def _penalised(contexts: HyperplaneContexts, mean_of_fold: Array) -> Array:
    """Pseudo-inverse of A'A: eigenvalue C on what differs within a fold, 1 on the ones vector."""
    size = len(mean_of_fold)
    return (np.eye(size) - mean_of_fold) / contexts.n_contexts**2 + 1.0 / size


def _same(fold: NDArray[np.int64]) -> Array:
    return (fold[:, None] == fold).astype(np.float64)


@dataclass(frozen=True, eq=False)
class Regrouped(Gating):
    """The gates of a gating in other groups.

    Parameters
    ----------
    gating : Gating
        Gates z.
    new_groups : ndarray of int, shape (M,)
        Group of each column.
    """

    gating: Gating
    new_groups: NDArray[np.int64]

    @property
    def n_features(self) -> int:
        """D, the number of input features."""
        return self.gating.n_features

    @property
    def groups(self) -> NDArray[np.int64]:
        """The new groups."""
        return self.new_groups

    def gates(self, X: ArrayLike) -> GateMatrix:
        """Gates (n, M) of the gating."""
        return self.gating.gates(X)

    def unseen(self, X: ArrayLike) -> NDArray[np.int64]:
        """Count, for each sample (n,), the units in a context that training never saw."""
        return self.gating.unseen(X)


def one_group(contexts: HyperplaneContexts) -> Regrouped:
    """Return the gates as one group."""
    return Regrouped(contexts, np.zeros_like(contexts.groups))


def under_metric(contexts: HyperplaneContexts, P: Array) -> CombinedGates:
    """Return gates Z R, R R' = P: their Euclidean norm is sqrt(tr(zeta' P^+ zeta))."""
    values, vectors = np.linalg.eigh(P)
    kept = values > NULL * len(P) * values[-1]
    R = vectors[:, kept] * np.sqrt(values[kept])
    return CombinedGates(contexts, R, np.zeros(R.shape[1], dtype=np.int64))


class OsqpL2(BinaryClassifier):
    """svm-l2-osqp: their program as they gave it to OSQP, stopped where its defaults stop it.

    Parameters
    ----------
    contexts : HyperplaneContexts
        Gates.
    """

    def __init__(self, contexts: HyperplaneContexts) -> None:
        self.contexts = contexts

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Solve minimise ||A zeta||^2 subject to y_n f(x_n) >= 1.

        Raises
        ------
        RuntimeError
            OSQP gave no coefficients.
        """
        X, signs = self._validate(X, y)
        gates = under_metric(self.contexts, metric(self.contexts))
        self.architecture_ = Architecture(gates)
        self.zeta_ = by_osqp(X, signs, self.contexts.gates(X), operator(self.contexts))
        self.coef_: Array = scipy.linalg.solve(gates.combination, self.zeta_)
        return self

    def margin_view(self) -> FittedMargin:
        """Structure and coefficients, without dual variables."""
        return FittedMargin(self.architecture_, self.coef_)

    def history(self) -> tuple[()]:
        """Nothing is trained."""
        return ()

    def _decide(self, X: Array) -> Array:
        return self.architecture_.decision(X, self.coef_)


def by_osqp(X: Array, y: Array, gates: GateMatrix, A: Array | None = None) -> Array:
    """Minimise ||A zeta||^2 subject to y_n f(x_n) >= 1 by OSQP, with its and CVXPY's defaults.

    Parameters
    ----------
    X : ndarray of shape (N, D)
        Inputs.
    y : ndarray of shape (N,)
        Labels -1 and +1.
    gates : ndarray or CSR array of shape (N, M)
        Gates.
    A : ndarray of shape (M, M), optional
        The identity where not given.

    Returns
    -------
    ndarray of shape (M, D)
        Coefficients zeta.

    Raises
    ------
    RuntimeError
        OSQP gave no coefficients.
    """
    import cvxpy as cp

    Z = dense(gates)
    zeta = cp.Variable((Z.shape[1], X.shape[1]))
    outputs = cp.sum(cp.multiply(Z @ zeta, X), axis=1)
    cost = cp.sum_squares(zeta if A is None else A @ zeta)
    program = cp.Problem(cp.Minimize(cost), [cp.multiply(y, outputs) >= 1])
    try:
        program.solve(solver="OSQP")
    except cp.SolverError as error:
        raise RuntimeError(f"OSQP gave no coefficients: {error}") from error
    if zeta.value is None:
        raise RuntimeError(f"OSQP ended {program.status} and gave no coefficients")
    return np.asarray(zeta.value, dtype=np.float64)


def gln_models(models: Models, fitted: Fitted) -> Iterator[tuple[str, BinaryClassifier]]:
    """Fit the SVMs as published and svm-l2-formula; move a gd-gln without momentum."""
    if models.setting.threshold == "median" and not models.setting.momentum:
        yield "gd-gln-redrawn", moved_to_drawn(models, fitted["gd-gln"])
    yield from published_svms(models)
    contexts = models.contexts
    yield "svm-l2-formula", _svm(models, under_metric(contexts, formula_metric(contexts)))


def moved_to_drawn(models: Models, trained: BinaryClassifier) -> NetworkModel:
    """Move a network trained at medians to the thresholds as drawn: gd-gln-redrawn."""
    train = models.data.parts.train
    assert isinstance(trained, GLNClassifier)
    assert isinstance(trained.network_, GLN)
    drawn = Models(replace(models.setting, threshold="random"), models.data).contexts
    return NetworkModel(in_contexts(trained.network_, drawn)).fit(train.X, train.y)


def published_svms(models: Models) -> Iterator[tuple[str, GatedSVC]]:
    """Fit svm-gln-published and svm-l2-published."""
    contexts = models.contexts
    yield "svm-gln-published", _svm(models, Regrouped(contexts, folds(contexts)))
    yield "svm-l2-published", _svm(models, under_metric(contexts, metric(contexts)))


def _svm(models: Models, gating: Gating) -> GatedSVC:
    train = models.data.parts.train
    return GatedSVC(gating, **models.svm_options()).fit(train.X, train.y)
