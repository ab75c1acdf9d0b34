r"""The best multipliers of a KKT point, in any norm of the parameters, with bounds on both sides.

They are the dual solution of the tangent program (2) of `tangent_program`,

    min ||w||  s.t.  J w >= L,       dual  max L sum(lambda)  s.t.  ||J' lambda||_* <= 1.

**Working sets.** That is the margin problem ``max_margin(J, 1, norm)``, which `solve` solves on a
working set of pairs: those of the smallest margins, to which those join whose constraint the
solution breaks, until none does. Held of the set is

- in l2 its Gram matrix J J' alone, whatever the number of parameters (`margins` computes it without
  J): a Cholesky factor R with R R' = J J' makes the same problem;
- in other norms the rows of J, over the norm's scales of the tensors.

A norm that is put together of norms of tensors, the largest spectral norm say, is a norm over
blocks of the rows (`norms.blocks`); where it is a maximum, `solvers.block_balls` solves.

**Many gradients, or a norm that no solver takes.** The level method (`level_method`), from the
weights of the loss at several temperatures s: as lambda_n ~ exp(-s q_n), at large s only the least
margins count.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
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
    Method,
    Multipliers,
    TangentProgram,
    kkt_gap,
    loss_weights,
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

__all__ = [
    "Method",
    "MultiplierSearch",
    "Multipliers",
    "TangentProgram",
    "best_multipliers",
    "kkt_gap",
    "loss_weights",
    "tempered_weights",
]


@dataclass(frozen=True, kw_only=True)
class MultiplierSearch:
    """The search for the multipliers of least KKT gap, and what it may take.

    Parameters
    ----------
    seconds : float
        Time for it in norms other than l2, where no deadline is sooner.
    passes : float
        With less time than this many passes through the module take nothing is searched for.
    known : float
        To what the level method finds the gap, and working sets that are not ``exact``.
    known_share, least_known : float
        It is to be known to this share of itself where that is less, but not to less than the last.
    first_pairs : int
        Pairs of the first working set, and that join at a time, at most.
    beside_start : int
        Pairs of the smallest margins that are in the first set beside those of weight at a start.
    rows_of_a_pair : int
        Where a pair has several rows (`kinks`), nearly the same, so many join for each pair whose
        constraint is broken.
    clear_slack, clear_weight : float
        A pair leaves the working set where its constraint has a slack of more than this share of L,
        and its multiplier is below this share of the mean one, as long as the bound rises.
    exact : bool
        Whether working sets are exchanged until both bounds agree, or until the gap is known.
    broken : float
        A constraint counts as broken where it is missed by more than this share.
    rough : float
        The same where the search is not ``exact``, as a share of what the gap is to be known to.
    program_share : float
        Relative gap to which the problem of a working set is solved, over ``broken``.
    agree : float
        Bounds that differ by less than this count as exact.
    exact_share : float
        Share of the time that working sets may take by a conic solver, which may take hours.
    native_entries, native_pairs : int
        Entries of the rows of a working set that this package's solvers take, and the fewest pairs
        that there must be room for.
    conic_entries, conic_pairs : int
        The same for norms that only a conic solver takes.
    rows_at_a_time : int
        Rows of J that are computed between looks at the clock.
    level_method : LevelMethod
        What follows where working sets do not end.
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
        """Find them; see `best_multipliers`."""
        # --- so little time that the weights of the loss must do
        if deadline.end < np.inf:
            began = time.perf_counter()
            tempered = tempered_weights(tangent.margins, tangent.gradients.rivals)
            first = tangent.judge(tempered[0] if starts is None else starts[0])
            took = time.perf_counter() - began
            if not deadline.allows(self.passes * took):
                judged = [first, *_judged(tangent, tempered, deadline, took)]
                return replace(max(judged, key=lambda found: found.lower), method="stopped")

        # --- on working sets
        if _is_l2(tangent.norm):
            return self._on_working_sets(
                tangent, _GramMatrix(tangent, self.broken), starts, deadline
            )
        own = deadline.within(self.seconds)
        unfinished = list[Multipliers]()
        held = self._rows(tangent, own)
        if held is not None:
            limit = own.sooner(self.exact_share) if held.conic else own
            try:
                found = self._on_working_sets(tangent, held, starts, limit)
            except (ValueError, TimeoutError):
                pass  # gradients of single samples are not to be had, or not in time
            else:
                if found.method == "exact":
                    return found
                if self._is_known(found) or own.passed:
                    return _ended(replace(found, method="interior point"), deadline, own)
                unfinished.append(found)

        # --- by the level method
        if starts is None:
            in_l2 = replace(tangent, norm=PARAMETER_NORMS["l2"])
            limit = own.sooner(self.exact_share)
            near = self._on_working_sets(in_l2, _GramMatrix(in_l2, self.broken), None, limit)
            starts = [near.weights, *tempered_weights(tangent.margins, tangent.gradients.rivals)]
        judged = _judged(tangent, starts, own) or [tangent.judge(starts[0])]
        found = self.level_method.improve([*judged, *unfinished], self._is_known, own)
        return _ended(found, deadline, own)

    def _on_working_sets(
        self,
        tangent: TangentProgram,
        held: _GramMatrix | _Rows,
        starts: Sequence[Array] | None,
        deadline: Deadline,
    ) -> Multipliers:
        """Solve on some pairs, price all, exchange.

        The result's method is "exact" where both bounds agree, else "stopped".
        """
        degree = tangent.degree
        pairs = np.arange(len(tangent.margins)) % len(tangent.gradients.pairs)
        # The first set: pairs of weight, then those of the smallest margins, at theta itself.
        by_margin = np.argsort(tangent.margins, kind="stable")
        at_theta = by_margin[by_margin < len(tangent.gradients.pairs)]
        joining = at_theta[: self.first_pairs]
        if starts is not None:
            has_weight = starts[0] > self.level_method.smallest_weight * starts[0].max()
            of_weight = by_margin[has_weight[by_margin]]
            others = at_theta[~has_weight[at_theta]]
            joining = np.append(of_weight, others[: self.beside_start])[: self.first_pairs]
        joining = joining[: held.most_pairs]
        chosen = np.zeros(0, dtype=np.int64)
        stays = np.zeros(0, dtype=bool)

        ones = np.zeros(len(pairs))
        ones[joining] = 1.0
        best = replace(tangent.judge(ones), lower=0.0, method="stopped")
        broken = self.broken
        while True:
            began = time.perf_counter()
            # --- the problem of the working set
            held.exchange(chosen, stays, joining)
            chosen = np.append(chosen[stays], joining)
            solution = held.solved(self.program_share * broken, deadline)
            weights = np.zeros(len(pairs))
            weights[chosen] = np.maximum(solution.alpha, 0.0)

            # --- bounds for all pairs: any weights prove a lower one; w has to be feasible for all,
            # so what it misses the constraints by lengthens it
            found = tangent.judge(weights)
            w = held.direction(solution, found)
            slopes = tangent.slopes(w)
            rose = found.lower > (1.0 + self.broken) * best.lower
            best = best.raised(found)
            best = tangent.with_direction(best, w, slopes)

            if not self.exact:
                if self._is_known(best):
                    return best
                broken = self.rough * self._asked(best)

            # --- who joins
            below = degree * (1.0 - broken)
            of_set = slopes[chosen]
            slopes[chosen] = np.inf
            count = self.rows_of_a_pair * len(np.unique(pairs[slopes < below]))
            count = min(count, self.first_pairs, held.most_pairs - len(chosen))
            if count > 0:
                joining = worst_rows(slopes, pairs, below, count)
            separated = np.isfinite(solution.certificate.upper)
            late = not deadline.allows(time.perf_counter() - began)
            if count <= 0 or late or not separated:
                agree = best.upper <= (1.0 + max(2.0 * broken, self.agree)) * best.lower
                return replace(best, method="exact") if agree else best

            # --- who stays
            heavy = weights[chosen] > self.clear_weight * weights[chosen].mean()
            near = of_set < (1.0 + self.clear_slack) * degree
            stays = heavy | near | (not rose)

    def _rows(self, tangent: TangentProgram, deadline: Deadline) -> _Rows | None:
        """Return what holds rows of J, where a solver takes the norm and there is room."""
        norm = _of_rows(tangent)
        if norm is None:
            return None
        conic = isinstance(norm, OverBlocks) and not has_block_balls(norm)
        entries = self.conic_entries if conic else self.native_entries
        fewest = self.conic_pairs if conic else self.native_pairs
        most = entries // len(tangent.theta)
        if most < min(fewest, len(tangent.margins)):
            return None
        return _Rows(tangent, norm, most, self.rows_at_a_time, deadline, conic=conic)

    def _asked(self, found: Multipliers) -> float:
        """To what the gap is to be known."""
        return max(min(self.known, self.known_share * found.gap), self.least_known)

    def _is_known(self, found: Multipliers) -> bool:
        """Whether the bounds on the gap are near enough."""
        return found.gap - found.gap_lower <= self._asked(found)


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
        The module at smallest margin 1, and the geometry.
    seconds : float
        Limit on the time of the search in norms other than l2, where no ``deadline`` is sooner.
    starts : sequence of ndarray of shape (n,)
        Weights: the first working set are the pairs of weight in the first ones, and what the level
        method finds is no worse than any. By default those of the smallest margins, and for the
        level method those of the loss at all temperatures and the best ones in l2.
    deadline : Deadline
        When to end in any case, with the bounds so far. A step of the search is not begun where the
        last one took longer than what is left; with next to no time the bounds are those of the
        start, or of the loss's weights.
    """
    return MultiplierSearch(seconds=seconds).best(tangent, starts, deadline)


def _judged(
    tangent: TangentProgram, candidates: Sequence[Array], deadline: Deadline, took: float = 0.0
) -> list[Multipliers]:
    """Judge some weights while there is time, each as long as the last one took."""
    judged = list[Multipliers]()
    for weights in candidates:
        if not deadline.allows(took):
            break
        began = time.perf_counter()
        judged.append(tangent.judge(weights))
        took = time.perf_counter() - began
    return judged


def _ended(found: Multipliers, deadline: Deadline, own: Deadline) -> Multipliers:
    """Say that a search was stopped where the caller's deadline ended it, not its own limit."""
    if found.method == "stopped" or deadline.passed:
        method: Method = "stopped" if deadline.end <= own.end else "level method"
        return replace(found, method=method)
    return found


# --- what is held of a working set ---------------------------------------------------------------


class _GramMatrix:
    """G = J S^2 J' of the set, in l2 with scales S of the tensors."""

    def __init__(self, tangent: TangentProgram, broken: float) -> None:
        self.tangent = tangent
        self.most_pairs = len(tangent.margins)
        self.broken = broken
        self.pairs = np.zeros(0, dtype=np.int64)
        self.gram = np.zeros((0, 0))
        self.factor = np.zeros((0, 0))
        self.pivots = np.zeros(0, dtype=np.int64)

    def exchange(
        self, chosen: NDArray[np.int64], stays: NDArray[np.bool_], joining: NDArray[np.int64]
    ) -> None:
        """Compute the products of those that join with all."""
        tangent = self.tangent
        kept = self.gram[stays][:, stays]
        self.pairs = np.append(chosen[stays], joining)
        added = tangent.gradients.gram(tangent.theta, joining, tangent.scales, self.pairs)
        self.gram = np.block([[kept, added[:, : len(kept)].T], [added]])

    def solved(self, tolerance: float, deadline: Deadline) -> Solution:
        """Solve with the rows of a factor R as features, R R' = G."""
        self.factor, self.pivots = _factor(self.gram)
        problem = max_margin(self.factor, np.ones(len(self.gram)))
        return _solution(problem, tolerance, deadline)

    def direction(self, solution: Solution, found: Multipliers) -> Tensor:
        """S^2 J' lambda, of norm ||v||_*; where that is rough, the solution's own direction.

        An interior point of relative gap e has multipliers to the root of e, while its coefficients
        u are feasible to all digits. They are w = S^2 J' (lambda + delta) with R' (lambda + delta)
        = u, for which delta of the pivots of R is enough.
        """
        tangent = self.tangent
        weights = found.weights[self.pairs]
        combination = found.combination
        smallest = float((self.gram @ weights).min())  # of J w, with w by the multipliers
        is_rough = smallest < (1.0 - self.broken) * tangent.degree
        if is_rough and len(self.pivots) and np.isfinite(solution.certificate.upper):
            u = tangent.degree * solution.coef.reshape(-1)
            missed = u - self.factor.T @ weights
            delta = np.zeros(len(self.pairs))
            delta[self.pivots] = solve_triangular(self.factor[self.pivots].T, missed)
            if float((self.gram @ (weights + delta)).min()) > smallest:  # but for rounding
                of_all = np.zeros(len(tangent.margins))
                of_all[self.pairs] = delta
                combination = combination + tangent.gradients.combine(tangent.theta, of_all)
        return tangent.units**2 * combination


class _Rows:
    """J S of the set, and the norm of theta over the scales S."""

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
        """Compute the rows of those that join, a few at a time.

        Raises
        ------
        TimeoutError
            The next ones would take longer than what is left, by the time that the last ones took.
        """
        parts = [self.rows[stays]]
        took = 0.0
        for start in range(0, len(joining), self._at_a_time):
            if not self._deadline.allows(took):
                raise TimeoutError("the time is up")
            began = time.perf_counter()
            few = joining[start : start + self._at_a_time]
            J = self.tangent.gradients.rows(self.tangent.theta, few)
            parts.append(J * self.tangent.units.cpu().numpy())
            took = time.perf_counter() - began
        self.rows = np.concatenate(parts)

    def solved(self, tolerance: float, deadline: Deadline) -> Solution:
        """Solve with the rows as features."""
        problem = max_margin(self.rows, np.ones(len(self.rows)), self.norm)
        return _solution(problem, tolerance, deadline)

    def direction(self, solution: Solution, found: Multipliers) -> Tensor:
        """Return the coefficients, times the scales, at which the least of J w is L."""
        w = torch.tensor(solution.coef.reshape(-1)).to(self.tangent.theta)
        return self.tangent.degree * self.tangent.units * w


def _factor(gram: Array) -> tuple[Array, NDArray[np.int64]]:
    """Return R (n, r) with R R' = G (n, n), r the rank of G, and the r pivots.

    By a pivoted Cholesky factorisation of the correlations, so that rows of any size keep their
    digits. The rows of the pivots are lower triangular.
    """
    sizes = np.sqrt(np.diag(gram))
    inverse = np.divide(1.0, sizes, out=np.zeros_like(sizes), where=sizes > 0)
    L, order, rank, _ = dpstrf(gram * inverse[:, None] * inverse, lower=1)
    rows = np.zeros((len(gram), max(rank, 1)))
    rows[order - 1] = np.tril(L)[:, : max(rank, 1)]
    return sizes[:, None] * rows, order[:rank] - 1


def _solution(problem: MarginProblem, tolerance: float, deadline: Deadline) -> Solution:
    """Solve a problem; where rounding stops the interior point on blocks, nobody else tries."""
    if has_block_balls(problem.norm):
        method: Solver = BlockBalls(tolerances=Tolerances(gap=tolerance), max_seconds=deadline.left)
        return solve(problem, method)
    return solve(problem, tol=tolerance, max_seconds=deadline.left)


def _is_l2(norm: ParameterNorm) -> bool:
    """Whether a norm is l2, of theta over scales of the tensors."""
    return isinstance(norm, ComposedNorm) and norm.inner == norm.outer == L2()


def _of_rows(tangent: TangentProgram) -> Norm | None:
    """Return the norm of parameters over their scales as one of a row; None where it is unknown."""
    norm = tangent.norm
    if not (isinstance(norm, ComposedNorm) and isinstance(norm.outer, Entrywise)):
        return None
    blocks = list[Block]()
    for name, shape in tangent.gradients.shapes.items():
        inner = norm.inner_of(name)
        if not isinstance(inner, ConjugatedNorm):
            return None
        blocks.append(Block(inner, matrix_shape(shape)))
    # One norm of entries within and over all tensors is that of all entries.
    if norm.outer in (L1(), LInf()) and all(block.norm == norm.outer for block in blocks):
        return norm.outer
    return OverBlocks(tuple(blocks), norm.outer)
