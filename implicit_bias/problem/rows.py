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
offsets    (P, J)       J = 1 and all ones with an intercept, J = K - 1 with many classes, all of
                        which have samples; J = 0 without an intercept
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

from implicit_bias.base.validation import Array, UnsuitableError
from implicit_bias.norms import GroupNorm, Norm
from implicit_bias.problem.constraints import Constraints, Integers
from implicit_bias.problem.features import Features, feature_norms, zero_features
from implicit_bias.problem.margin_problem import MarginProblem


@dataclass(frozen=True, eq=False)
class Rows:
    """The constraints of a margin problem; see the module's head.

    Attributes
    ----------
    constraints : Constraints
        Their samples and classes.
    """

    X: Array
    y: Array
    gates: sp.csr_array
    groups: Integers
    constraints: Constraints

    def __len__(self) -> int:
        """P."""
        return len(self.y)

    @property
    def samples(self) -> Integers:
        """Sample of each row, (P,)."""
        return self.constraints.samples

    @property
    def owners(self) -> Integers:
        """Class of each row's sample, (P,)."""
        return self.constraints.owners

    @property
    def rivals(self) -> Integers | None:
        """With many classes, the rival of each row, (P,)."""
        return None if len(self.alpha_shape) == 1 else self.constraints.rivals

    @property
    def alpha_shape(self) -> tuple[int, ...]:
        """Shape of the problem's dual variables."""
        return self.constraints.alpha_shape

    @property
    def offset_classes(self) -> Integers:
        """The classes whose offsets the columns of ``offsets`` are."""
        return self.constraints.offset_classes

    @cached_property
    def offsets(self) -> Array:
        """Which offsets a row has, (P, J)."""
        return np.asarray(self.constraints.offsets * self.y[:, None])

    @property
    def n_offsets(self) -> int:
        """J."""
        return len(self.offset_classes)

    @property
    def n_groups(self) -> int:
        """G."""
        return int(self.groups.max()) + 1

    @cached_property
    def feature_norms(self) -> Array:
        """Norm of the features of each row, shape (P,)."""
        return feature_norms(self.gates, self.X)

    @cached_property
    def zero_features(self) -> NDArray[np.bool_]:
        """Rows whose features are all 0, shape (P,)."""
        return zero_features(self.gates, self.X)

    def values(self, alpha: Array) -> Array:
        """Dual variables of the rows, shape (P,), from those of the problem."""
        return self.constraints.values(alpha)

    def alpha(self, values: Array) -> Array:
        """Dual variables of the problem, (N,) or (N, K), from those of the rows; 0 elsewhere."""
        return self.constraints.alpha(values)

    def features(self, columns: NDArray[np.bool_] | None = None) -> sp.csr_array:
        """y_p gates_pm X_pd of all columns m, or of some, shape (P, M' D), m first."""
        gates, D = self.gates, self.X.shape[1]
        if columns is not None:
            gates = gates[:, np.flatnonzero(columns)]
        gates = gates.tocoo()
        place = np.repeat(gates.row, D)
        column = (gates.col[:, None] * D + np.arange(D)).ravel()
        data = (gates.data[:, None] * (self.X * self.y[:, None])[gates.row]).ravel()
        kept = data != 0
        shape = (len(self), gates.shape[1] * D)
        return sp.csr_array((data[kept], (place[kept], column[kept])), shape=shape)

    def intercept(self, offsets: Array) -> float | Array:
        """Return the offset of the problem, or (K,) of its classes, from those of columns (J,)."""
        found = self.constraints.of_classes(offsets)
        return float(found[0]) if self.rivals is None else found

    def subset(self, index: Integers) -> Rows:
        """Return some of the rows."""
        parts = (self.X[index], self.y[index], self.gates[index])
        return Rows(*parts, self.groups, self.constraints.subset(index))


def rows_of(problem: MarginProblem, where: NDArray[np.bool_] | None = None) -> Rows:
    """Return the constraints of a problem; with K classes, those of K - 1 of them as columns.

    Parameters
    ----------
    problem : MarginProblem
        The problem, of any norm.
    where : ndarray of bool, shape (N,) or (N, K), optional
        Which constraints, as in dual variables; all by default.
    """
    if problem.classes is None:
        rows = Rows(
            X=problem.X,
            y=problem.y,
            gates=problem.plain_gates,
            groups=problem.plain_groups,
            constraints=problem.constraints,
        )
        return rows if where is None else rows.subset(np.flatnonzero(where))
    samples, rivals = row_index(problem, where)
    reduced = problem.classes - 1
    groups = problem.plain_groups
    apart = np.repeat(np.arange(reduced) * (int(groups.max()) + 1), len(groups))
    return pair_rows(problem, samples, rivals, reduced, np.tile(groups, reduced) + apart)


def row_index(
    problem: MarginProblem, where: NDArray[np.bool_] | None = None
) -> tuple[Integers, Integers]:
    """Return samples and rivals of the constraints of a problem with many classes, by samples.

    These are the pairs (n, k), k != y_n, all or where (N, K) says. Pairs whose rival has no
    samples are left out where an offset separates them: the rival's equation, of weights that none
    of its own samples balances, makes their dual variables 0.
    """
    rows = problem.constraints.undecided()
    rows = rows if where is None else rows.subset(rows.values(where))
    return rows.samples, rows.rivals


def merged_classes(problem: MarginProblem) -> Integers:
    """Return the kind of each class, (K,): those without samples share the last one.

    They are interchangeable, so under a norm that treats all classes alike the mean of their
    coefficients is as good as any: one class stands for them, however many there are.
    """
    present = np.unique(problem.owners)
    kinds = np.full(problem.classes or 2, len(present))
    kinds[present] = np.arange(len(present))
    return kinds


def count_kinds(problem: MarginProblem) -> int:
    """Count the `merged_classes`."""
    return int(merged_classes(problem).max()) + 1


def merged_pairs(
    problem: MarginProblem, pairs: tuple[Integers, Integers]
) -> tuple[Integers, Integers]:
    """Return pairs whose rivals, if they have no samples, are the first class without any."""
    kinds = merged_classes(problem)
    _, firsts = np.unique(kinds, return_index=True)
    samples, rivals = pairs[0], firsts[kinds[pairs[1]]]
    kept = np.unique(samples * len(kinds) + rivals)
    return kept // len(kinds), kept % len(kinds)


def worst_rows(margins: Array, samples: Integers, below: float, count: int) -> Integers:
    """Return the rows of the smallest margins, in order: first one a sample, at most this many.

    Parameters
    ----------
    margins : ndarray of shape (P,)
        Margins of all rows.
    samples : ndarray of int, shape (P,)
        Their samples.
    below : float
        Rows of this margin or more are none.
    count : int
        How many to return at most.
    """
    index = np.flatnonzero(margins < below)
    smallest = np.full(int(samples.max(initial=-1)) + 1, np.inf)
    np.minimum.at(smallest, samples[index], margins[index])
    worst = smallest[smallest < np.inf]
    if len(worst) > count > 0:
        # Only the worst row of each sample, and only of the worst samples: the rest need no order.
        limit = np.partition(worst, count - 1)[count - 1]
        index = index[margins[index] <= np.minimum(smallest[samples[index]], limit)]
    order = index[np.argsort(margins[index], kind="stable")]
    first = np.sort(np.unique(samples[order], return_index=True)[1])
    ranked = np.concatenate([order[first], np.delete(order, first)])
    return np.sort(ranked[:count])


def equal_alpha(problem: MarginProblem) -> Array:
    """Return equal dual variables, of sum 1 for each sample."""
    rows = problem.constraints
    return rows.alpha(np.full(len(rows), 1.0 / (rows.n_classes - 1)))


def alpha_of_zero(problem: MarginProblem) -> Array:
    """Return dual variables of the value of zeta = 0 where the largest C is 1, (N,) or (N, K)."""
    rows, each = problem.constraints, problem.shares[problem.constraints.samples]
    if not problem.intercept:
        return rows.alpha(each / (rows.n_classes - 1))
    sums = np.bincount(problem.owners, problem.shares, minlength=rows.n_classes)
    weights = sums.astype(np.float64)
    parts = _even_flow(weights) / np.where(weights > 0, weights, 1.0)[:, None]
    return rows.alpha(each * parts[rows.owners, rows.rivals])


def _even_flow(weights: Array) -> Array:
    """Weights that classes send to each other, (J, J), each as much as it receives.

    That is as much as its samples weigh, or those of all others. The classes are arcs of a circle:
    turned by half of it, none lies on itself.
    """
    arcs = np.minimum(weights, weights.sum() - weights)
    ends = np.cumsum(arcs)
    starts, half = ends - arcs, ends[-1] / 2
    flow = np.zeros((len(arcs), len(arcs)))
    for turn in (half, -half):
        last = np.minimum(ends[:, None] + turn, ends)
        flow += np.maximum(last - np.maximum(starts[:, None] + turn, starts), 0.0)
    return flow


def grouped_rows(problem: MarginProblem, pairs: tuple[Integers, Integers] | None = None) -> Rows:
    """Return the constraints with the columns of all classes, in groups of Euclidean norms.

    Parameters
    ----------
    problem : MarginProblem
        The problem.
    pairs : tuple of two ndarrays of int, optional
        With many classes, the samples and rivals to take; all of `row_index` by default.

    Raises
    ------
    ValueError
        The norm is no sum of Euclidean norms over groups.
    """
    if problem.classes is None:
        return rows_of(group_form(problem))
    X, gates, groups = gate_form(problem)
    samples, rivals = row_index(problem) if pairs is None else pairs
    rows = pair_rows(problem, samples, rivals, problem.classes, groups.ravel(), gates)
    return replace(rows, X=X[samples])


def gate_form(problem: MarginProblem) -> tuple[Array, sp.csr_array, Integers]:
    """Return inputs, gates and groups under which a norm is a sum of Euclidean norms over groups.

    Where the norm tells features apart, they take the place of gates, and the inputs are 1.

    Returns
    -------
    X : ndarray of shape (N, D)
        Inputs.
    gates : csr_array of shape (N, M)
        Gates without a metric.
    groups : ndarray of int, shape (K, M)
        Group of each gate of each class; K = 1 with two classes.

    Raises
    ------
    ValueError
        The norm is no sum of Euclidean norms over groups.
    """
    if problem.classes is None:
        posed = group_form(problem)
        return posed.X, posed.plain_gates, posed.plain_groups[None]
    gates, norm = problem.plain_gates, problem.norm
    if problem.metric is not None:
        norm = GroupNorm(problem.plain_groups, apart=problem.gate_norm.apart)
    shape = (problem.classes, gates.shape[1], problem.X.shape[1])
    groups = _euclidean_groups(norm, shape)
    if (groups == groups[..., :1]).all():
        return problem.X, gates, groups[..., 0]
    return np.ones((problem.n_samples, 1)), _features(problem), groups.reshape(len(groups), -1)


def all_rows(problem: MarginProblem, pairs: tuple[Integers, Integers] | None = None) -> Rows:
    """Return pairs as rows for a norm without groups, with the columns of all classes in one."""
    samples, rivals = row_index(problem) if pairs is None else pairs
    n_classes = problem.classes or 2
    groups = np.zeros(n_classes * problem.plain_gates.shape[1], dtype=np.int64)
    return pair_rows(problem, samples, rivals, n_classes, groups)


def group_form(problem: MarginProblem) -> MarginProblem:
    """Return a problem of two classes under a group norm that is the same program.

    Its coefficients, reshaped to those of the problem, are the problem's.

    Raises
    ------
    ValueError
        The norm is no sum of Euclidean norms over groups.
    """
    if problem.norm is problem.gate_norm:
        return problem
    groups = _euclidean_groups(problem.norm, problem.norm_shape)[0]
    y, C, intercept = problem.y, problem.C, problem.intercept
    ones = np.ones((problem.n_samples, 1))
    return MarginProblem(ones, y, _features(problem), groups.ravel(), C=C, intercept=intercept)


def _euclidean_groups(norm: Norm, shape: tuple[int, ...]) -> Integers:
    found = norm.partition(shape)
    if found is None or found.inner != "l2":
        raise UnsuitableError(
            f"this solver takes norms that are sums of Euclidean norms over groups, not {norm!r}: "
            "choose solver='auto'"
        )
    return found.groups


def _features(problem: MarginProblem) -> sp.csr_array:
    """z_m(x_n) x_n of all gates, (N, M' D), m first."""
    parts = [problem.plain_gates[:, [m]].toarray() * problem.X for m in range(problem.n_gates)]
    return sp.csr_array(np.hstack(parts))


def pair_rows(
    problem: MarginProblem,
    samples: Integers,
    rivals: Integers,
    n_blocks: int,
    groups: Integers,
    gates: sp.csr_array | None = None,
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
    gates : csr_array of shape (N, M'), optional
        The plain gates by default.
    """
    owners = problem.owners[samples]
    rows = replace(problem.constraints, samples=samples, owners=owners, rivals=rivals)
    plain = problem.plain_gates if gates is None else gates
    features = Features(problem.X, plain, np.zeros(plain.shape[1], dtype=np.int64))
    of_rows = features.of_rows(replace(rows, width=n_blocks))
    return Rows(of_rows.X, np.ones(len(rows)), of_rows.sparse_gates, groups, rows)
