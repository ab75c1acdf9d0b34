r"""One group: a quadratic program on one Gram matrix, solved by exchanging its active set.

With one group of Euclidean norm the whole structure is in one mask, and with a = d alpha and
d = ||zeta|| the optimality conditions are linear but for d, which the hard margin does not need:

        r = Q a + e beta - b,   e' a = 0,   ||V(a)|| = d
        L  a_p = 0,             r_p >= 0    beyond the margin
        F  0 <= a_p <= d c_p,   r_p = 0     on the margin
        U  a_p = d c_p,         r_p <= 0    short of it (soft margin only)

Then zeta = V(a). For given sets the equations are

        [ Q_FF  e_F ] [a_F ]   [ b_F ]       [ Q_FU c_U ]
        [ e_F'  0   ] [beta] = [ 0   ]  - d  [ e_U' c_U ]

one Cholesky factorisation of order |F|. Where U is not empty a is linear in d, and ||V(a)|| = d is
a quadratic equation for it. Then every row that breaks the condition of its set leaves it, all at
once, until none does: Newton's method on conditions that are piecewise linear. It need not
converge. On Gram matrices of data it does, in a handful of steps; elsewhere, or where inner
products have lost the digits that matter, the fall-back solves.

The first sets are those of an eighth of the rows, from which those of twice as many are found, and
so on: most steps are on few rows. All they need is Q. Nothing passes through the features but
zeta, in the end.

======  =======  ==========================================================================
Q       (P, P)   (y y') o (X X') o (Z Z') of rows scaled to norm 1 by nu_p; see `rows`
b       (P,)     sigma / nu_p, sigma the root mean square of nu
e       (P, J)   y_p b_p offsets_p; J = 0 without an intercept
c       (P,)     C nu_p
======  =======  ==========================================================================

With many classes the rows are pairs, and <e_{y_n} - e_k, e_{y_m} - e_l> is one more mask.

Source: Hintermueller, Ito and Kunisch (2002), the primal-dual active set as Newton's method;
Judice and Pires (1994), exchanges of many indices at once.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from implicit_bias.base.validation import Array
from implicit_bias.problem import MarginProblem, are_few
from implicit_bias.problem.masked_gram import mask_into
from implicit_bias.problem.rows import Rows, grouped_rows
from implicit_bias.solvers.base import Start
from implicit_bias.solvers.iteration import Answer, Approach, NativeSolver, Run
from implicit_bias.solvers.scaled_problem import TINY

# Steps on one level, and steps without fewer breaches than ever there, until it gives up.
MAX_STEPS, PATIENCE = 50, 4
# Share of F by which it may grow in a step: all at once, or slowly where that leads nowhere.
GROWTHS = (np.inf, 0.25)
MOST_LEVELS = 4
# Rows of the first level at least, and the share of a level's rows that may still be in the wrong
# set when the next one begins.
FIRST_ROWS, ROUGH = 100, 0.04
# What is added to the diagonal of Q_FF, which is 1: the first that makes it definite.
RIDGES, REFINEMENTS = (1e-14, 1e-12, 1e-10, 1e-8), 2
# Conditions that are broken by less, relative to b or to the largest a, are kept.
ROUNDING = 1e-10
# Share of (sum |a|)^2 that a' Q a may be wrong by.
ROUNDING_OF_SQUARES = 1e-15
# Rows of Q computed at once.
BLOCK = 256
# The solver aims a little below the tolerance, because the certificate rounds differently.
AIM = 0.9
# Levels take the rows in a random order, which has nothing to do with that of the data.
SEED = 0
# Share of e' a that rounding alone may leave.
BALANCE = 1e-9
# What `SolveStats.detail` says where the exchanges do not end.
FELL_BACK = "no headway on one Gram matrix: the fall-back solved"


@dataclass(frozen=True, kw_only=True)
class OneGroup(NativeSolver):
    """The native solver of one group: a few factorisations of its support vectors' Gram matrix.

    Parameters
    ----------
    fallback : NativeSolver
        Solves where the exchanges do not end, the Gram matrix has no room, there is more than one
        group, or samples of many classes share a finite C. Its limit on iterations and its own
        tolerances are those of this solver.
    rows : Rows, optional
        The constraints to solve with, from `grouped_rows`: a working set. All by default.
    """

    takes_classes: ClassVar[bool] = True

    fallback: NativeSolver
    rows: Rows | None = None

    name: ClassVar[str] = "one-group"

    @property
    def own_limit(self) -> int:
        """Steps of all levels and iterations of the fall-back, at most."""
        return len(GROWTHS) * MOST_LEVELS * MAX_STEPS + self.fallback.limit

    def prepare(self, problem: MarginProblem, start: Start | None) -> Run:
        """Leave all to the steps: where there is not enough room the fall-back solves."""
        return _OneGroupRun(self, problem, start)


class _OneGroupRun(Approach):
    """Exchanges of the active set, then the fall-back if need be."""

    def __init__(self, solver: OneGroup, problem: MarginProblem, start: Start | None) -> None:
        super().__init__(problem, solver.fallback, start)
        self._solver = solver

    def approach(self) -> Generator[tuple[float, float], None, bool]:
        """Find the active set, from that of the start if there is one."""
        solver, problem = self._solver, self.problem
        rows = grouped_rows(problem) if solver.rows is None else solver.rows
        shared = rows.rivals is not None and not problem.hard_margin
        if rows.n_groups > 1 or shared or not solver.fits(peak_memory(rows)):
            return False
        program = _Program(rows, problem.C, torch.device(solver.device))
        best = _Best(program)
        self.found = lambda: best.answer(problem)
        sets = None if self.start is None else program.sets_of(self.start)
        if sets is not None and (yield from self._exchange(program, best, [len(rows)], sets)):
            return True
        sizes = _levels(len(rows))
        if (yield from self._exchange(program, best, sizes, program.all_free(sizes[0]))):
            return True
        self.detail = FELL_BACK
        return False

    def _exchange(
        self, program: _Program, best: _Best, sizes: list[int], sets: _Sets
    ) -> Generator[tuple[float, float], None, bool]:
        """Find the sets of more and more rows, from those of the first level."""
        point: _Point | None = None
        for size in sizes:
            program.extend(size)
            if point is not None:
                sets, _ = program.exchanged(program.grown(point, size), sets.grown(size))
            for growth in GROWTHS:
                found = yield from self._level(program, best, sets, growth)
                if found is not None:
                    break
            if found is None:
                return False
            point, sets = found
        return self._is_solved(best)

    def _level(
        self, program: _Program, best: _Best, sets: _Sets, growth: float
    ) -> Generator[tuple[float, float], None, tuple[_Point, _Sets] | None]:
        """Exchange rows until nearly none, or on the last level none, is in the wrong set.

        None where they cannot be solved for, or their number does not fall any more.
        """
        size, waited = len(sets.free), 0
        least = size + 1
        for _ in range(MAX_STEPS):
            point = program.solve(sets)
            if point is None:
                return None
            sets, breaches = program.exchanged(point, sets, growth)
            few = breaches <= ROUGH * size
            if few and size == len(program):
                best.update(point)
            yield self.best_so_far(best.lower / program.scale, best.upper / program.scale)
            if self._is_solved(best) or (few and (breaches == 0 or size < len(program))):
                return point, sets
            waited = 0 if breaches < least else waited + 1
            least = min(least, breaches)
            if waited == PATIENCE:
                return None
        return None

    def _is_solved(self, best: _Best) -> bool:
        tolerances = self._solver.tolerances
        return best.gap <= AIM * tolerances.gap and best.violation <= tolerances.feasibility


def peak_memory(rows: Rows) -> int:
    """Bytes that a solve with these rows may take: Q, and as much for Q_FF and its factor each."""
    return 8 * (3 * len(rows) ** 2 + rows.X.size + len(rows) * rows.gates.shape[1])


def _levels(n_rows: int) -> list[int]:
    """Rows of each level: about an eighth of them, then twice as many."""
    sizes = [n_rows]
    while len(sizes) < MOST_LEVELS and sizes[0] >= 2 * FIRST_ROWS:
        sizes.insert(0, -(-sizes[0] // 2))
    return sizes


@dataclass(frozen=True, eq=False)
class _Sets:
    """F and U of the first n rows of a program, bool (n,)."""

    free: Tensor
    at_box: Tensor

    def grown(self, size: int) -> _Sets:
        """Add rows, which are in L."""
        rest = self.free.new_zeros(size - len(self.free))
        return _Sets(torch.cat([self.free, rest]), torch.cat([self.at_box, rest]))


@dataclass(frozen=True, eq=False)
class _Point:
    """What the equations of some sets of the first n rows say."""

    a: Tensor  # (n,)
    products: Tensor  # (n,), Q a
    d: Tensor  # (), ||V(a)||
    beta: Tensor  # (J,)


class _Program:
    """The quadratic program, its rows in random order, and Q of the first ones."""

    def __init__(self, rows: Rows, C: float, device: torch.device) -> None:
        self.rows, self._device = rows, device
        self.order = np.random.default_rng(SEED).permutation(len(rows))
        norms = rows.feature_norms[self.order]
        self.scale = float(np.sqrt(np.mean(norms**2))) or 1.0
        self.nu = self._tensor(np.where(norms > 0, norms, self.scale))
        self.b, self.c = self.scale / self.nu, C * self.nu
        self.soft = C < np.inf
        y = self._tensor(rows.y[self.order])
        self.e = (y * self.b)[:, None] * self._tensor(rows.offsets[self.order])
        self._gram = _Gram(rows, self.order, y / self.nu)

    def __len__(self) -> int:
        """Return P."""
        return len(self.order)

    def extend(self, size: int) -> None:
        """Compute Q of this many rows."""
        self._gram.extend(size)

    def all_free(self, size: int) -> _Sets:
        """Return the first rows, all of them free."""
        free = torch.ones(size, dtype=torch.bool, device=self._device)
        return _Sets(free, ~free)

    def sets_of(self, start: Start) -> _Sets | None:
        """Return the sets of a start; None where nothing is free."""
        whole = np.zeros(self.rows.alpha_shape)
        whole[: len(start.alpha)] = start.alpha
        alpha = self._tensor(self.rows.values(whole)[self.order]) * self.nu
        at_box = alpha >= (1.0 - ROUNDING) * self.c
        free = (alpha > 0.0) & ~at_box
        return _Sets(free, at_box) if free.any() else None

    def products(self, a: Tensor) -> Tensor:
        """Q a of the first n rows, shape (n,)."""
        return self._gram.Q[: len(a), : len(a)] @ a

    def grown(self, point: _Point, size: int) -> _Point:
        """Add rows, with a = 0, to a point."""
        a = torch.cat([point.a, point.a.new_zeros(size - len(point.a))])
        return _Point(a, self.products(a), point.d, point.beta)

    def solve(self, sets: _Sets) -> _Point | None:
        """Solve the equations of the sets; None where they have no solution, or by rounding."""
        n, F = len(sets.free), torch.nonzero(sets.free)[:, 0]
        if not len(F):
            return None
        e = self.e[:n]
        at_box = torch.where(sets.at_box, self.c[:n], 0.0) if self.soft else None
        right, balance = self.b[F, None], self.e.new_zeros((e.shape[1], 1))
        if at_box is not None:
            right = torch.hstack([right, -self.products(at_box)[F, None]])
            balance = torch.hstack([balance, -e.T @ at_box[:, None]])
        solved = self._gram.solve(F, e[F], right, balance)
        if solved is None:
            return None
        a = right.new_zeros((n, right.shape[1]))
        a[F] = solved[0]
        if at_box is not None:
            a[:, 1] += at_box
        products = self.products(a)
        squares = a.T @ products
        if at_box is None:
            d = squares[0, 0].clamp(min=0.0).sqrt()
            return _Point(a[:, 0], products[:, 0], d, solved[1][:, 0])
        d = _smallest_root(squares)
        parts = torch.stack([torch.ones_like(d), d])
        return _Point(a @ parts, products @ parts, d, solved[1] @ parts) if d > 0.0 else None

    def exchanged(self, point: _Point, sets: _Sets, growth: float = np.inf) -> tuple[_Sets, int]:
        """Let rows that break the condition of their set leave it, and count them.

        Of those beyond the margin that fall short only the worst leave, up to this share of F.
        """
        n = len(point.a)
        b, free, at_box = self.b[:n], sets.free, sets.at_box
        r = point.products - b
        if len(point.beta):
            r += self.e[:n] @ point.beta
        below, short = free & (point.a < 0.0), r < -ROUNDING * b
        if not self.soft:
            short &= ~free
            joining = _largest(-r / b, short, growth * int(free.sum()))
            return _Sets((free & ~below) | joining, at_box), int((below | short).sum())
        above = free & (point.a > point.d * self.c[:n])
        beyond = at_box & (r > ROUNDING * b)
        short &= ~(free | at_box)
        joining = beyond | _largest(-r / b, short, growth * int(free.sum()))
        changed = _Sets((free & ~below & ~above) | joining, (at_box & ~beyond) | above)
        return changed, int((below | above | beyond | short).sum())

    def _tensor(self, values: Array) -> Tensor:
        return torch.tensor(values, dtype=torch.float64, device=self._device)


class _Gram:
    """Q of the first rows, computed as it is needed.

    Parameters
    ----------
    rows : Rows
        The constraints.
    order : ndarray of int, shape (P,)
        Their order.
    weights : Tensor of shape (P,)
        What rows are multiplied by, in this order: y_p / nu_p.
    """

    def __init__(self, rows: Rows, order: NDArray[np.int64], weights: Tensor) -> None:
        device = weights.device
        self._size = 0
        self.Q = weights.new_empty((len(order), len(order)))
        self._place: Tensor | None = None
        if rows.rivals is None:
            self._X = torch.from_numpy(rows.X[order]).to(device).mul_(weights[:, None])
            weights = torch.ones_like(weights)
        else:  # each sample's inputs once
            _, first, place = np.unique(rows.samples, return_index=True, return_inverse=True)
            X = torch.tensor(rows.X[first], device=device)
            self._place, self._X = torch.tensor(place[order], device=device), X @ X.T
        self._few = are_few(rows.gates)
        if self._few:
            self._sparse = sp.csr_array(sp.diags_array(weights.cpu().numpy()) @ rows.gates[order])
        else:
            gates = torch.from_numpy(rows.gates.toarray()[order])
            self._Z = gates.to(device).mul_(weights[:, None])

    def solve(self, index: Tensor, e: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor] | None:
        """Solve Q_FF x + e y = b, e' x = c for some rows; None where rounding forbids it.

        b (F, k) and c (J, k) may have several columns.
        """
        for ridge in RIDGES:
            L = self._of(index).T  # which is symmetric, and stored by columns like this
            L.diagonal().add_(ridge)
            info = torch.empty((), dtype=torch.int32, device=L.device)
            torch.linalg.cholesky_ex(L, out=(L, info))
            if not info:
                return self._refined(L, index, e, b, c, 0 if ridge == RIDGES[0] else REFINEMENTS)
        return None

    def _refined(
        self, L: Tensor, index: Tensor, e: Tensor, b: Tensor, c: Tensor, times: int
    ) -> tuple[Tensor, Tensor]:
        """Solve with a factor; what its ridge changed comes out again."""
        x, y = _bordered(L, e, b, c)
        Q = self._of(index) if times else L
        for _ in range(times):
            dx, dy = _bordered(L, e, b - Q @ x - e @ y, c - e.T @ x)
            x, y = x + dx, y + dy
        return x, y

    def _of(self, index: Tensor) -> Tensor:
        """Q_FF of some rows (indices)."""
        return self.Q.index_select(0, index).index_select(1, index)

    def extend(self, size: int) -> None:
        """Compute Q of this many rows, as far as it is not known: one triangle, and mirrored."""
        for start in range(self._size, size, BLOCK):
            new, known = slice(start, min(start + BLOCK, size)), slice(0, start)
            until = slice(0, new.stop)
            out = self.Q[new, until]
            if self._few:
                mask = (self._sparse[new] @ self._sparse[until].T).toarray()
                torch.mul(self._inputs(new, until), torch.tensor(mask, device=out.device), out=out)
            else:
                mask_into(out, self._inputs(new, until), self._Z[new], self._Z[until])
            self.Q[known, new] = out[:, known].T
        self._size = max(size, self._size)

    def _inputs(self, rows: slice, columns: slice) -> Tensor:
        """<x_p, x_q>."""
        if self._place is None:
            return self._X[rows] @ self._X[columns].T
        return self._X.index_select(0, self._place[rows]).index_select(1, self._place[columns])


def _bordered(L: Tensor, e: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """Solve L L' x + e y = b, e' x = c."""
    if not e.shape[1]:
        return torch.cholesky_solve(b, L), c
    W = torch.linalg.solve_triangular(L, e, upper=False)
    h = torch.linalg.solve_triangular(L, b, upper=False)
    y = torch.linalg.lstsq(W.T @ W, W.T @ h - c).solution
    return torch.linalg.solve_triangular(L.T, h - W @ y, upper=True), y


def _largest(values: Tensor, chosen: Tensor, most: float) -> Tensor:
    """Return those of the chosen (n,) that have the largest values, at most about this many."""
    if math.isinf(most) or int(chosen.sum()) <= most:
        return chosen
    limit = values[chosen].topk(max(int(most), 1)).values[-1]
    return chosen & (values >= limit)


def _smallest_root(squares: Tensor) -> Tensor:
    """Return the smallest d > 0 with (1, d) S (1, d)' = d^2; nan where there is none."""
    constant, linear, square = squares[0, 0], squares[0, 1], squares[1, 1] - 1.0
    root = (linear.square() - constant * square).sqrt()
    # Of the two ways to write a root the one without cancellation.
    found = torch.stack([constant / (root - linear), -(root + linear) / square])
    positive = found[found > 0.0]
    return positive.min() if len(positive) else found.new_tensor(torch.nan)


class _Best:
    """The best bounds so far, in the program's units, and what attains them."""

    def __init__(self, program: _Program) -> None:
        self._program = program
        self.lower, self.upper, self.violation = 0.0, np.inf, np.inf
        self._alpha = self._a = torch.zeros_like(program.b)
        self._beta = program.e.new_zeros(program.e.shape[1])

    @property
    def gap(self) -> float:
        """Relative gap."""
        return (self.upper - self.lower) / self.lower if self.lower > 0 else np.inf

    def update(self, point: _Point) -> None:
        """Take a point of all rows into account."""
        program = self._program
        b, c, e = program.b, program.c, program.e
        # Where entries of a cancel, a'Q a may be anything below the rounding of its terms.
        norm = float((point.d.square() + ROUNDING_OF_SQUARES * point.a.abs().sum().square()).sqrt())
        margins = point.products + e @ point.beta
        if program.soft:
            upper, violation = norm + float(c @ (b - margins).clamp(min=0.0)), 0.0
        else:
            smallest = float((margins / b).min())
            upper = norm / smallest if smallest > 0 else np.inf
            violation = max(1.0 - smallest, 0.0)
        if upper < self.upper:
            self.upper, self.violation = upper, violation
            self._a, self._beta = point.a, point.beta
        alpha = torch.minimum(point.a.clamp(min=0.0), point.d * c)
        clipped = bool((alpha != point.a).any())
        products = program.products(alpha) if clipped else point.products
        largest = max(float((alpha @ products).clamp(min=0.0).sqrt()), float((alpha / c).max()))
        balanced = (e.T @ alpha).abs() <= BALANCE * (e.abs().T @ alpha)
        lower = float(b @ alpha) / max(largest, TINY) if balanced.all() else 0.0
        if lower > self.lower:
            self.lower, self._alpha = lower, alpha / largest

    def answer(self, problem: MarginProblem) -> Answer:
        """Return what attains the bounds, in the problem's shapes and units."""
        program = self._program

        def of_problem(values: Tensor) -> Array:
            whole = np.empty(len(program))
            whole[program.order] = (values / program.nu).cpu().numpy()
            return program.rows.alpha(whole)

        V = problem.dual_vectors(of_problem(self._a / program.scale))
        ones = np.ones(problem.gate_norm.n_groups)
        return Answer(
            alpha=of_problem(self._alpha),
            coef=problem.gate_norm.aligned(V, ones),
            intercept=program.rows.intercept(self._beta.cpu().numpy()),
        )
