r"""The best multipliers of a KKT point, in any norm of the parameters, with bounds on both sides.

They are the dual solution of the tangent problem (2) of `tangent_program`,

    min ||w||  s.t.  J w >= L,       dual  max L sum(lambda)  s.t.  ||J' lambda||_* <= 1.

**Working sets.** That is the margin problem ``max_margin(J, 1, norm)``, which `solve` solves on a
working set of pairs: first those of the smallest margins. After each solution the pairs whose
constraint it breaks join the set, until it breaks none. Of the set the memory holds

- in l2 its Gram matrix J J' alone, whatever the number of parameters (`margins` computes it without
  J): a Cholesky factor R with R R' = J J' makes the same problem;
- in other norms the rows of J S, with S the norm's scales of the tensors.

A norm composed of norms of tensors, the largest spectral norm for example, is a norm over blocks of
a row (`norms.blocks`); where it is a maximum, `solvers.block_balls` solves.

**Many gradients, or a norm that no solver takes.** The level method (`level_method`), from the
weights of the loss at several temperatures s: as lambda_n ~ exp(-s q_n), at large s only the least
margins count.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpstrf
from torch import Tensor

from implicit_bias.base.deadline import NEVER, Deadline
from implicit_bias.base.validation import Array
from implicit_bias.modules.level_method import LevelMethod
from implicit_bias.modules.tangent_program import (
    Multipliers,
    TangentProgram,
    tempered_weights,
)
from implicit_bias.norms import L1, L2, LInf, Norm
from implicit_bias.norms.blocks import Block, OverBlocks
from implicit_bias.norms.entries import Entrywise
from implicit_bias.norms.norm import ConjugatedNorm
from implicit_bias.norms.tensors import PARAMETER_NORMS, ComposedNorm, ParameterNorm, matrix_shape
from implicit_bias.problem import MarginProblem, max_margin
from implicit_bias.problem.constraints import worst_rows
from implicit_bias.solvers.base import Solution, Solver, Tolerances
from implicit_bias.solvers.block_balls import BlockBalls, has_block_balls
from implicit_bias.solvers.solve import solve


@dataclass(frozen=True, kw_only=True)
class MultiplierSearch:
    """The search for the multipliers of least KKT gap, and what it may take.

    Parameters
    ----------
    seconds : float
        Limit on the time of the search in norms other than l2, where no deadline is sooner.
    passes : float
        No search is begun if there is less time than this many passes through the module take.
    known : float
        The level method, and working sets that are not ``exact``, end when the two bounds on the
        KKT gap differ by at most this.
    known_share, least_known : float
        A small gap is found more accurately: to the fraction ``known_share`` of itself if that is
        less than ``known``, but never to less than ``least_known``.
    first_pairs : int
        Most pairs of the first working set, and most that join it at a time.
    beside_start : int
        If a start is given, the first set has the pairs of positive weight in it, and so many more
        of the smallest margins.
    rows_of_a_pair : int
        In `kinks` a pair has several rows that are nearly the same. So many rows join for each pair
        with a broken constraint.
    clear_slack, clear_weight : float
        A pair leaves the working set if the slack of its constraint is above ``clear_slack`` times
        L and its multiplier below ``clear_weight`` times the mean one. None leaves after a round in
        which the lower bound did not rise, so that rounds cannot repeat.
    exact : bool
        Whether rounds go on until both bounds agree. If not, they end as ``known`` says.
    broken : float
        A constraint J w >= L is broken if J w is below L by more than this fraction of L.
    rough : float
        If the search is not ``exact``, this fraction of the accuracy asked for takes the place of
        ``broken``.
    program_share : float
        The problem of a working set is solved to a relative gap of this times ``broken``.
    agree : float
        Bounds whose relative difference is at most this count as exact.
    exact_share : float
        Fraction of the time for working sets where a conic solver solves, which may take hours, and
        for the start in l2 of the level method.
    native_entries, native_pairs : int
        Most entries of the rows of a working set for this package's solvers; working sets are used
        only if at least so many pairs fit.
    conic_entries, conic_pairs : int
        The same for norms that only a conic solver takes.
    rows_at_a_time : int
        Rows of J that are computed between looks at the clock.
    level_method : LevelMethod
        The method for norms without working sets, and after working sets that did not finish.
    """

    seconds: float = 25.0
    passes: float = 10.0
    known: float = 1e-3
    known_share: float = 0.1
    least_known: float = 1e-6
    first_pairs: int = 1000
    beside_start: int = 256
    rows_of_a_pair: int = 2
    clear_slack: float = 0.3
    clear_weight: float = 0.1
    exact: bool = True
    broken: float = 1e-9
    rough: float = 0.1
    program_share: float = 0.1
    agree: float = 1e-6
    exact_share: float = 0.5
    native_entries: int = 2**26
    native_pairs: int = 512
    conic_entries: int = 2**14
    conic_pairs: int = 128
    rows_at_a_time: int = 64
    level_method: LevelMethod = LevelMethod()

    def best(
        self,
        tangent: TangentProgram,
        starts: Sequence[Array] | None = None,
        deadline: Deadline = NEVER,
    ) -> Multipliers:
        """Find the multipliers of least gap; see `best_multipliers`."""
        if deadline.end < np.inf:
            # With too little time for a search: the best of the loss's weights.
            began = time.perf_counter()
            tempered = tempered_weights(tangent.margins, tangent.function.rivals)
            first = tangent.bound_by(tempered[0] if starts is None else starts[0])
            took = time.perf_counter() - began
            if not deadline.allows(self.passes * took):
                judged = [first, *_judged(tangent, tempered, deadline, took)]
                return replace(max(judged, key=lambda found: found.lower), method="stopped")
        if _is_l2(tangent.norm):
            return self._in_l2(tangent, starts, deadline)
        return self._in_another_norm(tangent, starts, deadline)

    def _in_l2(
        self, tangent: TangentProgram, starts: Sequence[Array] | None, deadline: Deadline
    ) -> Multipliers:
        """Solve on working sets of pairs, by their Gram matrix.

        The caller's deadline is the only one: the Gram matrix of a few hundred pairs is small,
        whatever the number of parameters.
        """
        try:
            working_set = _GramMatrix(tangent, self.broken, deadline)
            return self._on_working_sets(tangent, working_set, starts, deadline)
        except TimeoutError:
            # Not even the first Gram matrix was there in time: single passes do with less.
            tempered = tempered_weights(tangent.margins, tangent.function.rivals)
            candidates = [*(starts or []), *tempered]
            judged = _judged(tangent, candidates, deadline) or [tangent.bound_by(candidates[0])]
            found = self.level_method.improve(judged, self._is_accurate, deadline)
            return replace(found, method="stopped")

    def _in_another_norm(
        self, tangent: TangentProgram, starts: Sequence[Array] | None, deadline: Deadline
    ) -> Multipliers:
        """Solve on working sets of rows of J where there is room for them, else by cuts."""
        search_end = deadline.within(self.seconds)
        # Whether it is the caller's deadline that ends a search, and not the search's own limit.
        by_caller = deadline.end <= search_end.end

        # --- on working sets
        unfinished = list[Multipliers]()
        rows = self._rows(tangent, search_end)
        if rows is not None:
            # Conic solvers may take hours.
            for_rows = search_end.sooner(self.exact_share) if rows.conic else search_end
            try:
                found = self._on_working_sets(tangent, rows, starts, for_rows)
            except (ValueError, TimeoutError):
                pass  # torch cannot differentiate single samples here, or not in time
            else:
                if found.method == "exact":
                    return found
                if self._is_accurate(found):
                    return replace(found, method="interior point")
                if search_end.passed:
                    return replace(found, method="stopped" if by_caller else "interior point")
                unfinished.append(found)

        # --- by the level method, from several starts
        if starts is None:
            # The best multipliers in l2 are cheap, and often good in other norms, too.
            in_l2 = replace(tangent, norm=PARAMETER_NORMS["l2"])
            for_l2 = search_end.sooner(self.exact_share)
            starts = tempered_weights(tangent.margins, tangent.function.rivals)
            working_set = _GramMatrix(in_l2, self.broken, for_l2)
            with suppress(TimeoutError):
                best_in_l2 = self._on_working_sets(in_l2, working_set, None, for_l2)
                starts = [best_in_l2.weights, *starts]
        # The first start is judged even if the time is up: there must be bounds.
        judged = _judged(tangent, starts, search_end) or [tangent.bound_by(starts[0])]
        found = self.level_method.improve([*judged, *unfinished], self._is_accurate, search_end)
        if found.method == "stopped" and not by_caller:
            return replace(found, method="level method")
        return found

    def _on_working_sets(
        self,
        tangent: TangentProgram,
        working_set: _GramMatrix | _Rows,
        starts: Sequence[Array] | None,
        deadline: Deadline,
    ) -> Multipliers:
        """Solve on some pairs, bound the optimum over all of them, exchange pairs, and repeat.

        The result's method is "exact" where both bounds agree, "stopped" where the deadline ended
        the rounds, and else "interior point".

        Raises
        ------
        TimeoutError
            There is no time for the first set.
        """
        degree = tangent.degree
        # J has a row for each pair. In `kinks` it has a block of such rows for each of several
        # points, the first of which is theta: then this is the pair of each row.
        pairs = np.arange(len(tangent.margins)) % len(tangent.function.pairs)

        # --- the first set: rows of positive weight, then those of the smallest margins at theta
        by_margin = np.argsort(tangent.margins, kind="stable")
        at_theta = by_margin[by_margin < len(tangent.function.pairs)]
        joining = at_theta[: self.first_pairs]
        if starts is not None:
            has_weight = starts[0] > self.level_method.smallest_weight * starts[0].max()
            of_weight = by_margin[has_weight[by_margin]]
            others = at_theta[~has_weight[at_theta]]
            joining = np.append(of_weight, others[: self.beside_start])[: self.first_pairs]
        joining = joining[: working_set.most_pairs]
        chosen = np.zeros(0, dtype=np.int64)
        stays = np.zeros(0, dtype=bool)

        # Before the first solution theta is the best w that is known, and 0 the lower bound, so
        # that the first round counts as one in which it rose.
        ones = np.zeros(len(pairs))
        ones[joining] = 1.0
        best = replace(tangent.bound_by(ones), lower=0.0, method="interior point")
        broken = self.broken
        while True:
            began = time.perf_counter()
            # --- the problem of the working set
            try:
                working_set.exchange(chosen, stays, joining)
            except TimeoutError:
                if not len(chosen):
                    raise  # nothing is solved yet
                return replace(best, method="stopped")
            chosen = np.append(chosen[stays], joining)
            solution = working_set.solved(self.program_share * broken, deadline)
            weights = np.zeros(len(pairs))
            weights[chosen] = np.maximum(solution.alpha, 0.0)

            # --- bounds for all pairs: by (2) any weights prove a lower bound. For the upper one w
            # has to satisfy all constraints, so `with_better_upper` lengthens it until it does.
            found = tangent.bound_by(weights)
            w = working_set.direction(solution, found)
            slopes = tangent.jvp(w)
            rose = found.lower > (1.0 + self.broken) * best.lower
            best = best.with_better_lower(found)
            best = tangent.with_better_upper(best, w, slopes)

            if not self.exact:
                if self._is_accurate(best):
                    return best
                # A wide gap needs less accurate constraints and solutions.
                broken = self.rough * self._accuracy(best)

            # --- which rows join: those of broken constraints outside the set
            below = degree * (1.0 - broken)
            slopes_of_set = slopes[chosen]
            # Rows of the set do not join again: their constraints are broken by the solver's
            # rounding alone.
            slopes[chosen] = np.inf
            count = self.rows_of_a_pair * len(np.unique(pairs[slopes < below]))
            count = min(count, self.first_pairs, working_set.most_pairs - len(chosen))
            if count > 0:
                joining = worst_rows(slopes, pairs, below, count)

            # --- the end: none joins or there is no room, no time, or no w satisfies the set
            separated = np.isfinite(solution.certificate.upper)
            late = not deadline.allows(time.perf_counter() - began)
            if count <= 0 or late or not separated:
                if best.upper <= (1.0 + max(2.0 * broken, self.agree)) * best.lower:
                    return replace(best, method="exact")
                if late:
                    return replace(best, method="stopped")
                return best  # rounding keeps the bounds apart

            # --- which rows stay: after a round in which the bound did not rise all of them, as a
            # row that left might only come back
            heavy = weights[chosen] > self.clear_weight * weights[chosen].mean()
            near = slopes_of_set < (1.0 + self.clear_slack) * degree
            stays = heavy | near | (not rose)

    def _rows(self, tangent: TangentProgram, deadline: Deadline) -> _Rows | None:
        """Return an empty working set of rows of J; None without a solver or without room."""
        norm = _as_norm_of_vectors(tangent)
        if norm is None:
            return None
        # CVXPY and its solvers copy the rows several times, and factorize matrices that grow with
        # them.
        conic = isinstance(norm, OverBlocks) and not has_block_balls(norm)
        entries = self.conic_entries if conic else self.native_entries
        fewest = self.conic_pairs if conic else self.native_pairs
        most = entries // len(tangent.theta)
        # With room for fewer pairs than are active at the solution the rounds could not end.
        if most < min(fewest, len(tangent.margins)):
            return None
        return _Rows(tangent, norm, most, self.rows_at_a_time, deadline, conic=conic)

    def _accuracy(self, found: Multipliers) -> float:
        """Return the largest difference of the bounds on the gap at which a search may end."""
        return max(min(self.known, self.known_share * found.gap), self.least_known)

    def _is_accurate(self, found: Multipliers) -> bool:
        """Whether the bounds on the gap differ by no more than that."""
        return found.gap - found.gap_lower <= self._accuracy(found)


def best_multipliers(
    tangent: TangentProgram,
    *,
    seconds: float = MultiplierSearch.seconds,
    starts: Sequence[Array] | None = None,
    deadline: Deadline = NEVER,
) -> Multipliers:
    """Find the multipliers of least KKT gap.

    Parameters
    ----------
    tangent : TangentProgram
        The module at unit margin, and the norm.
    seconds : float
        Limit on the time of the search in norms other than l2, where no ``deadline`` is sooner.
    starts : sequence of ndarray of shape (n,)
        Weights to start from. The first working set has the pairs of positive weight in the first
        ones; what the level method finds is no worse than any. By default the first working set has
        the pairs of the smallest margins, and the level method starts from the loss's weights at
        all temperatures and from the best multipliers in l2.
    deadline : Deadline
        When to end in any case, with the bounds so far. A step of the search is not begun where the
        last one took longer than what is left. With next to no time the bounds are those of the
        start and of the loss's weights.
    """
    return MultiplierSearch(seconds=seconds).best(tangent, starts, deadline)


def _judged(
    tangent: TangentProgram, candidates: Sequence[Array], deadline: Deadline, took: float = 0.0
) -> list[Multipliers]:
    """Judge some weights, as long as there is time for one more by what the last one took."""
    judged = list[Multipliers]()
    for weights in candidates:
        if not deadline.allows(took):
            break
        began = time.perf_counter()
        judged.append(tangent.bound_by(weights))
        took = time.perf_counter() - began
    return judged


# --- working sets ---------------------------------------------------------------


class _GramMatrix:
    """A working set in l2: its Gram matrix G = J S^2 J', S the norm's scales of the tensors."""

    # Most that the first matrix may take of the time: what is left is enough for another method.
    share_of_first = 0.5

    def __init__(self, tangent: TangentProgram, broken: float, deadline: Deadline) -> None:
        self.tangent = tangent
        self.most_pairs = len(tangent.margins)
        self.broken = broken
        self.deadline = deadline
        self.pairs = np.zeros(0, dtype=np.int64)
        self.gram = np.zeros((0, 0))
        self.factor = np.zeros((0, 0))
        self.pivots = np.zeros(0, dtype=np.int64)

    def exchange(
        self, chosen: NDArray[np.int64], stays: NDArray[np.bool_], joining: NDArray[np.int64]
    ) -> None:
        """Drop the pairs that do not stay, and compute the rows of G of those that join.

        Raises
        ------
        TimeoutError
            They are not there in time.
        """
        tangent = self.tangent
        deadline = self.deadline
        if not len(self.pairs):
            deadline = deadline.sooner(self.share_of_first)
        kept = self.gram[stays][:, stays]
        self.pairs = np.append(chosen[stays], joining)
        # Products of pairs that stay are kept: each is two passes through the module.
        added = tangent.gradients.gram(tangent.theta, joining, tangent.scales, self.pairs, deadline)
        self.gram = np.block([[kept, added[:, : len(kept)].T], [added]])

    def solved(self, tolerance: float, deadline: Deadline) -> Solution:
        """Solve with the rows of a factor R as features, R R' = G."""
        self.factor, self.pivots = _factor(self.gram)
        # The program asks for J w >= L, this problem for margins of 1: its solution is w / L, and
        # `direction` multiplies by L.
        problem = max_margin(self.factor, np.ones(len(self.gram)))
        return _solution(problem, tolerance, deadline)

    def direction(self, solution: Solution, found: Multipliers) -> Tensor:
        """Return w = S^2 J' lambda, or the solution's own direction where that is less accurate.

        An interior point of relative gap e has multipliers that are accurate to the root of e only,
        while its coefficients u satisfy the constraints to all digits. These are
        w = S^2 J' (lambda + delta) with R' (lambda + delta) = u, which has a solution delta that is
        0 off the pivots of R.
        """
        tangent = self.tangent
        weights = found.weights[self.pairs]
        combination = found.combination
        smallest = float((self.gram @ weights).min())  # the least of J w for w = S^2 J' lambda
        is_rough = smallest < (1.0 - self.broken) * tangent.degree
        if is_rough and len(self.pivots) and np.isfinite(solution.certificate.upper):
            u = tangent.degree * solution.coef.reshape(-1)
            missed = u - self.factor.T @ weights
            delta = np.zeros(len(self.pairs))
            delta[self.pivots] = solve_triangular(self.factor[self.pivots].T, missed)
            if float((self.gram @ (weights + delta)).min()) > smallest:  # rounding may spoil it
                of_all = np.zeros(len(tangent.margins))
                of_all[self.pairs] = delta
                combination = combination + tangent.gradients.vjp(tangent.theta, of_all)
        return tangent.scale_of_entries**2 * combination


class _Rows:
    """A working set in another norm: its rows of J S, and the norm of w over the scales S."""

    def __init__(
        self,
        tangent: TangentProgram,
        norm: Norm,
        most_pairs: int,
        rows_at_a_time: int,
        deadline: Deadline,
        *,
        conic: bool,
    ) -> None:
        self.tangent = tangent
        self.norm = norm
        self.conic = conic
        self.most_pairs = most_pairs
        self._at_a_time = rows_at_a_time
        self._deadline = deadline
        self.rows = np.zeros((0, len(tangent.theta)))

    def exchange(
        self, chosen: NDArray[np.int64], stays: NDArray[np.bool_], joining: NDArray[np.int64]
    ) -> None:
        """Drop the rows that do not stay, and compute those that join, a few at a time.

        Raises
        ------
        TimeoutError
            The next few rows would take longer than what is left, if as long as the last few.
        """
        parts = [self.rows[stays]]
        took = 0.0
        for start in range(0, len(joining), self._at_a_time):
            if not self._deadline.allows(took):
                raise TimeoutError("the time is up")
            began = time.perf_counter()
            few = joining[start : start + self._at_a_time]
            J = self.tangent.gradients.rows(self.tangent.theta, few)
            parts.append(J * self.tangent.scale_of_entries.cpu().numpy())
            took = time.perf_counter() - began
        self.rows = np.concatenate(parts)

    def solved(self, tolerance: float, deadline: Deadline) -> Solution:
        """Solve with the rows as features."""
        problem = max_margin(self.rows, np.ones(len(self.rows)), self.norm)
        return _solution(problem, tolerance, deadline)

    def direction(self, solution: Solution, found: Multipliers) -> Tensor:
        """Return w, the coefficients times L and the scales: on the set the least of J w is L."""
        w = torch.tensor(solution.coef.reshape(-1)).to(self.tangent.theta)
        return self.tangent.degree * self.tangent.scale_of_entries * w


def _factor(gram: Array) -> tuple[Array, NDArray[np.int64]]:
    """Return R (n, r) with R R' = G (n, n), r the rank of G, and the r pivots.

    It is the pivoted Cholesky factor of the correlations, times the sizes of the rows of J, so that
    small rows keep their digits beside large ones. The rows of the pivots are lower triangular.
    """
    sizes = np.sqrt(np.diag(gram))
    inverse = np.divide(1.0, sizes, out=np.zeros_like(sizes), where=sizes > 0)
    L, order, rank, _ = dpstrf(gram * inverse[:, None] * inverse, lower=1)
    rows = np.zeros((len(gram), max(rank, 1)))
    rows[order - 1] = np.tril(L)[:, : max(rank, 1)]
    return sizes[:, None] * rows, order[:rank] - 1


def _solution(problem: MarginProblem, tolerance: float, deadline: Deadline) -> Solution:
    """Solve the problem of a working set."""
    # A solver object, unlike a name, has no fall-back: where rounding stops it, no other one tries.
    if has_block_balls(problem.norm):
        method: Solver = BlockBalls(tolerances=Tolerances(gap=tolerance), max_seconds=deadline.left)
        return solve(problem, method)
    return solve(problem, tol=tolerance, max_seconds=deadline.left)


def _is_l2(norm: ParameterNorm) -> bool:
    """Whether a norm is l2, of theta over scales of the tensors."""
    return isinstance(norm, ComposedNorm) and norm.inner == norm.outer == L2()


def _as_norm_of_vectors(tangent: TangentProgram) -> Norm | None:
    """Return the norm of the parameters over their scales as one of vectors (P,).

    None where no solver has that norm.
    """
    norm = tangent.norm
    if not (isinstance(norm, ComposedNorm) and isinstance(norm.outer, Entrywise)):
        return None
    blocks = list[Block]()
    for name, shape in tangent.function.shapes.items():
        inner = norm.inner_of(name)
        if not isinstance(inner, ConjugatedNorm):
            return None
        blocks.append(Block(inner, matrix_shape(shape)))
    # One norm of entries within and over all tensors is that of all entries.
    if norm.outer in (L1(), LInf()) and all(block.norm == norm.outer for block in blocks):
        return norm.outer
    return OverBlocks(tuple(blocks), norm.outer)
