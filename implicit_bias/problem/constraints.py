r"""The constraints of a margin problem: one per pair of a sample and a rival class.

        <b_p (x) phi(x_n(p)), zeta> + <b_p, offset>  >=  1 - xi_n(p),      p = 1 .. R

where n(p) is the sample of constraint p. Each constraint, or row, has an owner, the class y_n of
its sample, and a rival, one of the other classes k; b_p = e_{y_n} - e_k. Scores f (N, K') =
phi(x_n)' zeta are those of the first K' classes; the other classes score 0. So labels -1 and +1 are
the case K' = 1 and need no other formulas. There class 0 is +1, as the first classes are those with
scores. Labels 0 and 1 are numbered the other way: of them 1 stands for +1 (`margin_problem`).

=================  ====  =================  ======================================================
labels             K'    R                  b_p in R^K'
=================  ====  =================  ======================================================
-1 and +1          1     N                  y_n: class 0 is y = +1, and class 1 (y = -1) scores 0
classes 0 .. K-1   K     N (K - 1)          e_{y_n} - e_k
=================  ====  =================  ======================================================

Only differences of scores matter. So K' = K - 1 is enough for V(alpha) = 0, and for the offsets:
the columns of the last class are minus the sum of the others' (`narrowed`). The Gram matrix of the
constraints is that of the samples under one more mask, <b_p, b_q>. As a graph, the classes are the
nodes and the constraints the edges. Then sum_p alpha_p b_p = 0, the equation of the intercept, says
that alpha is a flow that no class gains or loses.

============  =======  ===========================================================================
samples       (R,)     n(p), in ascending order
owners        (R,)     y_n, the class that is to win
rivals        (R,)     k, the class that is to lose
alpha, q      (R,)     dual variables and margins
a             (N, K')  sum of alpha_p b_p over the constraints of a sample: V = sum_n a_n (x) phi_n
============  =======  ===========================================================================
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from implicit_bias.base.validation import Array

Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Constraints:
    """Some constraints of a problem; see the module's head.

    Methods take float64 numbers or exact ones, in arrays of objects.

    Attributes
    ----------
    samples, owners, rivals : ndarray of int, shape (R,)
        Sample, its class, and the class to win against.
    n_samples, n_classes : int
        N, and how many classes there are: 2 for labels -1 and +1.
    width : int
        K', the classes that have scores.
    alpha_shape : tuple of int
        Shape of the problem's dual variables, (N,) or (N, K).
    intercept : bool
        Whether the classes have free offsets.
    """

    samples: Integers
    owners: Integers
    rivals: Integers
    n_samples: int
    n_classes: int
    width: int
    alpha_shape: tuple[int, ...]
    intercept: bool

    @classmethod
    def of_labels(cls, y: NDArray[Any], classes: int | None, intercept: bool) -> Constraints:
        """Return all constraints of labels (N,): -1 and +1, or 0 .. K - 1 with K classes."""
        n = len(y)
        # Only here do the two forms of labels differ.
        if classes is None:
            owners = (y < 0).astype(np.int64)  # class 0 is +1, class 1 is -1 and scores 0
            n_classes = 2
            width = 1
            alpha_shape: tuple[int, ...] = (n,)
        else:
            owners = y.astype(np.int64)
            n_classes = classes
            width = classes
            alpha_shape = (n, classes)
        samples, rivals = np.nonzero(owners[:, None] != np.arange(n_classes))
        return cls(
            samples=samples,
            owners=owners[samples],
            rivals=rivals,
            n_samples=n,
            n_classes=n_classes,
            width=width,
            alpha_shape=alpha_shape,
            intercept=intercept,
        )

    def __len__(self) -> int:
        """R."""
        return len(self.samples)

    @property
    def sample_classes(self) -> Integers:
        """Class of each sample, (N,), if these are all constraints; ``owners`` has it by row."""
        return self.by_sample(self.owners)[:, 0]

    def by_sample(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values (R,) of all constraints as (N, K - 1), those of a sample in a row."""
        return values.reshape(self.n_samples, self.n_classes - 1)

    # --- between rows, samples and the problem: ``values`` are numbers of the rows, (R,)

    def alpha_of_rows(self, alpha: NDArray[Any]) -> NDArray[Any]:
        """Dual variables of the rows, (R,), from those of the problem, (N,) or (N, K)."""
        return alpha.reshape(-1)[self._places]

    def alpha(self, values: NDArray[Any], elsewhere: Any = 0) -> NDArray[Any]:
        """Dual variables of the problem, (N,) or (N, K), from those of the rows: ``values``.

        Entries without a row among these, as those of a sample's own class, are ``elsewhere``.
        """
        alpha = np.full(self.alpha_shape, elsewhere, dtype=values.dtype)
        alpha.reshape(-1)[self._places] = values
        return alpha

    def equal_alpha(self) -> Array:
        """Return dual variables of the problem: equal within each sample, and of sum 1 there."""
        return self.alpha(np.full(len(self), 1.0 / (self.n_classes - 1)))

    def totals(self, values: NDArray[Any]) -> NDArray[Any]:
        """Sum of each sample's values, (N,): with a soft margin it is at most C_n."""
        totals = np.zeros(self.n_samples, dtype=values.dtype)
        np.add.at(totals, self.samples, values)
        return totals

    def smallest(self, values: NDArray[Any]) -> NDArray[Any]:
        """Smallest of each sample's values, (N,); inf for a sample without rows."""
        smallest = np.full(self.n_samples, np.inf, dtype=values.dtype)
        # The rows of a sample lie together, from its first one on. If each sample has one row, as
        # with two classes, there is nothing to reduce.
        if len(self._first) < len(values):
            values = np.minimum.reduceat(values, self._first)
        smallest[self.samples[self._first]] = values
        return smallest

    # --- between the rows and the classes

    def margins(self, scores: NDArray[Any]) -> NDArray[Any]:
        """<b_p, f(x_n(p))> of the rows, (R,), from scores (N, K'), rounded once."""
        table = self._with_unscored(scores).reshape(-1)
        return table[self._own_places] - table[self._rival_places]

    def margin_errors(self, score_errors: Array) -> Array:
        """Bounds on the errors of margins, (R,), from those of scores, (N, K'): their sums.

        A margin is a difference of two scores, and the errors of both add up.
        """
        table = self._with_unscored(score_errors).reshape(-1)
        return np.asarray(table[self._own_places] + table[self._rival_places])

    def weights(self, values: NDArray[Any]) -> NDArray[Any]:
        """Sum of alpha_p b_p over the rows of each sample, (N, K'); ``values`` are the alpha_p."""
        # b_p = e_{y_n} - e_k: each row adds its value to one entry, and takes it from another.
        table = np.zeros(self.n_samples * self.n_classes, dtype=values.dtype)
        np.add.at(table, self._own_places, values)
        np.subtract.at(table, self._rival_places, values)
        return table.reshape(self.n_samples, self.n_classes)[:, : self.width]

    @property
    def label_vectors(self) -> sp.csr_array:
        """The label vectors b_p, shape (R, K')."""
        return self.of_each_class(sp.csr_array(np.ones((len(self), 1))))

    def of_each_class(self, columns: sp.csr_array) -> sp.csr_array:
        """b_p (x) c_p, shape (R, K' m), of columns c (R, m): those of class 0 first."""
        # c_p goes into the columns of the own class, and minus c_p into those of the rival.
        m = columns.shape[1]
        row = np.repeat(np.arange(len(self)), np.diff(columns.indptr))
        own = columns.indices + m * self.owners[row]
        rival = columns.indices + m * self.rivals[row]
        places = np.append(own, rival)
        scored = places < m * self.width
        # A class without scores has no columns.
        data = np.append(columns.data, -columns.data)[scored]
        rows = np.append(row, row)[scored]
        return sp.csr_array((data, (rows, places[scored])), (len(self), m * self.width))

    @property
    def offset_classes(self) -> Integers:
        """Classes with an intercept, (J,): all but the last, as only differences count."""
        if not self.intercept:
            return np.arange(0)
        return np.arange(self.n_classes - 1)

    @cached_property
    def offset_columns(self) -> Array:
        """What free offsets, (J,), are multiplied by in each row: entries of b_p, shape (R, J)."""
        return self._label_entries(self.offset_classes)

    def of_classes(self, offsets: NDArray[Any]) -> NDArray[Any]:
        """Offsets (K',) of all classes from those that are free, (J,); the others are 0."""
        intercept = np.zeros(self.width, dtype=offsets.dtype)
        intercept[self.offset_classes] = offsets
        return intercept

    def free_offsets(self, intercept: Array) -> Array:
        """Return the free offsets, (J,), from those of all classes, (K'): inverts `of_classes`."""
        # Only differences matter, so that all offsets may be shifted until the last class has 0.
        whole = np.append(intercept, np.zeros(self.n_classes - self.width))
        return whole[self.offset_classes] - whole[-1]

    # --- some of the rows

    def subset(self, index: Integers | NDArray[np.bool_]) -> Constraints:
        """Return some of the rows; in ascending order, so that those of a sample are together."""
        return replace(
            self,
            samples=self.samples[index],
            owners=self.owners[index],
            rivals=self.rivals[index],
        )

    def narrowed(self) -> Constraints:
        """Return the rows with scores of all classes but the last, whose score is then 0."""
        return replace(self, width=self.n_classes - 1)

    def label_entries_of_touched(self) -> Array:
        """Entries of b_p for the classes that occur in these rows, but for the last: (R, J).

        The entry for the last class is minus the sum of the others.
        """
        touched = np.unique(np.append(self.owners, self.rivals))
        return self._label_entries(touched[:-1])

    def heaviest_and_some_of_each_class(self, weights: Array, count: int) -> Integers:
        """Return at most ``count`` rows: half of them those of the largest weights (R,).

        The other half are rows of each class, evenly spaced.
        """
        if len(self) <= count:
            return np.arange(len(self))
        # Weights are estimates. Where they are wrong, the rows of every class are needed.
        heaviest = np.argsort(-weights, kind="stable")[: count // 2]
        each = count // (2 * len(np.unique(self.owners)))
        return np.union1d(heaviest, evenly_spaced(self.owners, each))

    def _label_entries(self, classes: Integers) -> Array:
        """Entries of b_p of some classes, shape (R, J)."""
        own = self.owners[:, None] == classes
        rival = self.rivals[:, None] == classes
        return own - rival.astype(np.float64)

    @cached_property
    def _first(self) -> Integers:
        """First row of each sample that has rows, in their order."""
        return np.flatnonzero(np.diff(self.samples, prepend=-1))

    @cached_property
    def _places(self) -> Integers:
        """Place of each row's dual variable in the problem's array, (N,) or (N, K), flattened."""
        if len(self.alpha_shape) == 1:
            return self.samples
        return self._rival_places  # alpha_nk belongs to the rival k

    @cached_property
    def _own_places(self) -> Integers:
        """Place of the own class's score among all, row-major: sample, class."""
        return self.samples * self.n_classes + self.owners

    @cached_property
    def _rival_places(self) -> Integers:
        """Place of the rival's score among all, row-major: sample, class."""
        return self.samples * self.n_classes + self.rivals

    def _with_unscored(self, scores: NDArray[Any]) -> NDArray[Any]:
        """Scores of all classes, (N, n_classes): 0 for a class without scores."""
        if self.width == self.n_classes:
            return scores
        table = np.zeros((self.n_samples, self.n_classes), dtype=scores.dtype)
        table[:, : self.width] = scores
        return table


def worst_rows(margins: Array, samples: Integers, below: float, count: int) -> Integers:
    """Choose the rows of the smallest margins, the worst of each sample first.

    They are returned in ascending order of their indices.

    Parameters
    ----------
    margins : ndarray of shape (R,)
        Margins of all rows.
    samples : ndarray of int, shape (R,)
        Their samples.
    below : float
        Rows with this margin or more are left out.
    count : int
        Most rows to return; further rows of a sample come after the worst of every one.
    """
    index = np.flatnonzero(margins < below)
    # The worst margin of each sample, and inf for samples without such a row.
    smallest = np.full(int(samples.max(initial=-1)) + 1, np.inf)
    np.minimum.at(smallest, samples[index], margins[index])
    worst = smallest[smallest < np.inf]
    if len(worst) > count > 0:
        # Only the worst row of each sample, and only of the worst samples: the rest need no order.
        limit = np.partition(worst, count - 1)[count - 1]
        index = index[margins[index] <= np.minimum(smallest[samples[index]], limit)]
    # Among rows in the order of margins, the first one of each sample is its worst.
    order = index[np.argsort(margins[index], kind="stable")]
    first = np.sort(np.unique(samples[order], return_index=True)[1])
    ranked = np.concatenate([order[first], np.delete(order, first)])
    return np.sort(ranked[:count])


def evenly_spaced(labels: NDArray[np.generic], count: int) -> Integers:
    """Return indices of at most this many entries of each label, evenly spaced, in order."""
    chosen = []
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        few = min(len(members), count)
        chosen.append(members[np.linspace(0, len(members) - 1, few).astype(np.int64)])
    return np.sort(np.concatenate(chosen))
