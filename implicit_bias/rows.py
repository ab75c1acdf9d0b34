r"""The constraints of a margin problem as rows: one a sample, or one a pair of sample and rival.

        y_p (sum_m gates_pm <zeta_m, x_p> + <offsets_p, b>) >= 1   for all rows p

With two classes the rows are the samples. With many classes they are the pairs (n, k), k != y_n,
with y_p = 1, the input x_n, gates (e_{y_n} - e_k) (x) z(x_n) and offsets e_{y_n} - e_k: a problem
of two classes again, whose Gram matrix has the mask <e_{y_n} - e_k, e_{y_m} - e_l>. All that
concerns single constraints alone, proofs of non-separability and the native methods, is written
for rows.

=========  ===========  ======================================================================
X          (P, D)       inputs
y          (P,)         -1 or +1
gates      (P, M')      plain gates; those of many classes one class after another
groups     (M',)        group of each of these columns
offsets    (P, J)       J = 1 and all ones with an intercept, J = K - 1 with many classes, else 0
samples    (P,)         n
rivals     (P,)         k; None with two classes
=========  ===========  ======================================================================

Class weights sum to 0, so that the last class's columns are the negative sum of the others': K - 1
classes are enough where only V = 0 matters, and for the offsets.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from implicit_bias.problem import MarginProblem
from implicit_bias.validation import Array

Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Rows:
    """The constraints of a margin problem; see the module's head.

    Attributes
    ----------
    alpha_shape : tuple of int
        Shape of the problem's dual variables.
    """

    X: Array
    y: Array
    gates: sp.csr_array
    groups: Integers
    offsets: Array
    samples: Integers
    rivals: Integers | None
    alpha_shape: tuple[int, ...]

    def __len__(self) -> int:
        """P."""
        return len(self.y)

    @property
    def n_offsets(self) -> int:
        """J."""
        return self.offsets.shape[1]

    @property
    def n_groups(self) -> int:
        """G."""
        return int(self.groups.max()) + 1

    @cached_property
    def feature_norms(self) -> Array:
        """Norm of the features of each row, shape (P,)."""
        gate_squares = np.asarray(self.gates.multiply(self.gates).sum(axis=1)).reshape(-1)
        return np.sqrt(gate_squares * np.einsum("nd,nd->n", self.X, self.X))

    @cached_property
    def zero_features(self) -> NDArray[np.bool_]:
        """Rows whose features are all 0, shape (P,)."""
        no_gate = np.abs(self.gates).max(axis=1).toarray().reshape(-1) == 0
        zero: NDArray[np.bool_] = no_gate | (np.abs(self.X).max(axis=1) == 0)
        return zero

    def values(self, alpha: Array) -> Array:
        """Dual variables of the rows, shape (P,), from those of the problem."""
        return alpha[self._places]

    def alpha(self, values: Array) -> Array:
        """Dual variables of the problem, (N,) or (N, K), from those of the rows; 0 elsewhere."""
        alpha = np.zeros(self.alpha_shape)
        alpha[self._places] = values
        return alpha

    def subset(self, index: Integers) -> Rows:
        """Return some of the rows."""
        return replace(
            self,
            X=self.X[index],
            y=self.y[index],
            gates=self.gates[index],
            offsets=self.offsets[index],
            samples=self.samples[index],
            rivals=None if self.rivals is None else self.rivals[index],
        )

    @property
    def _places(self) -> tuple[Integers, ...]:
        return (self.samples,) if self.rivals is None else (self.samples, self.rivals)


def rows_of(problem: MarginProblem) -> Rows:
    """Return all constraints of a problem; with K classes, those of K - 1 of them as columns.

    Parameters
    ----------
    problem : MarginProblem
        The problem, of any norm.
    """
    if problem.classes is None:
        return Rows(
            X=problem.X,
            y=problem.y,
            gates=problem.plain_gates,
            groups=problem.plain_groups,
            offsets=np.ones((problem.n_samples, int(problem.intercept))),
            samples=np.arange(problem.n_samples),
            rivals=None,
            alpha_shape=problem.alpha_shape,
        )
    samples, rivals = all_pairs(problem)
    reduced = problem.classes - 1
    groups = problem.plain_groups
    apart = np.repeat(np.arange(reduced) * (int(groups.max()) + 1), len(groups))
    return pair_rows(problem, samples, rivals, reduced, np.tile(groups, reduced) + apart)


def all_pairs(problem: MarginProblem) -> tuple[Integers, Integers]:
    """Return all pairs (n, k), k != y_n, of a problem with many classes, by samples."""
    others = np.ones(problem.alpha_shape, dtype=bool)
    others[np.arange(problem.n_samples), problem.owners] = False
    samples, rivals = np.nonzero(others)
    return samples, rivals


def pair_rows(
    problem: MarginProblem, samples: Integers, rivals: Integers, n_blocks: int, groups: Integers
) -> Rows:
    """Return pairs (P,) of samples and rivals as rows, with the columns of the first classes.

    Parameters
    ----------
    problem : MarginProblem
        A problem with many classes.
    samples, rivals : ndarray of int, shape (P,)
        The pairs.
    n_blocks : int
        Classes whose columns are kept: K, or K - 1.
    groups : ndarray of int, shape (n_blocks M',)
        Group of each column.
    """
    plain = problem.plain_gates[samples]
    owners = problem.owners[samples]
    gates = class_gates(plain, owners, rivals, n_blocks)
    unit = sp.csr_array(np.ones((len(samples), int(problem.intercept))))
    offsets = class_gates(unit, owners, rivals, alone(problem)).toarray()
    return Rows(
        X=problem.X[samples],
        y=np.ones(len(samples)),
        gates=gates,
        groups=groups,
        offsets=offsets[:, : alone(problem) * int(problem.intercept)],
        samples=samples,
        rivals=rivals,
        alpha_shape=problem.alpha_shape,
    )


def alone(problem: MarginProblem) -> int:
    """K - 1: the classes that determine the last one's offset."""
    return (problem.classes or 2) - 1


def class_gates(
    gates: sp.csr_array, owners: Integers, rivals: Integers, n_blocks: int
) -> sp.csr_array:
    """(e_owner - e_rival) (x) gates, shape (P, n_blocks M), without the blocks of later classes."""
    n_rows, width = gates.shape
    place = np.repeat(np.arange(n_rows), np.diff(gates.indptr))
    rows = np.concatenate([place, place])
    columns = np.concatenate(
        [gates.indices + width * owners[place], gates.indices + width * rivals[place]]
    )
    data = np.concatenate([gates.data, -gates.data])
    kept = columns < n_blocks * width
    shape = (n_rows, n_blocks * width)
    return sp.csr_array((data[kept], (rows[kept], columns[kept])), shape=shape)
