r"""One group on one Gram matrix: exchanges of the support vectors, from those of fewer rows.

The KKT conditions (`interior_point`) with a = d alpha and r = Q a + e beta - b,

        r_p >= 0  where a_p = 0,   r_p = 0  where 0 < a_p < d C_p,   r_p <= 0  where a_p = d C_p;
        e' a = 0;   a' Q a = d^2

are equations once the sets are known: the free rows F, and those at the box U. The equations of
some sets are solved, what breaks its own set's conditions is exchanged, all at once, and where
nothing does, the problem is solved: Newton's method on conditions that are piecewise smooth. Each
step costs a Cholesky factorization of order |F|, bordered by e,

        [ Q_FF  e ] [a]      [b']
        [ e'    0 ] [beta] = [c']

The hard margin does not need d, and where U is not empty a is linear in d, so that ||V(a)|| = d is
a quadratic equation for it. All that this needs is Q, one Gram matrix: nothing passes through the
features but zeta = V(a), in the end. The first sets are those of an eighth of the rows, from which
those of twice as many are found, and so on: most steps are on few rows. The exchanges need not
converge. On Gram matrices of data they do, in a handful of steps. Where they make no headway (inner
products that have lost the digits that matter, data that are not separable) the fall-back solves.

======  ==========  ======================================================================
alpha   (P,)        dual variables of rows scaled to norm 1 by nu_p; a = d alpha
d       ()          group scale, ||V(a)||
Q       (P, P)      (B B') o (X X') o (Z Z'), of one group
e       (P, J)      of the intercept's equation; J = 0 without one
======  ==========  ======================================================================

The data are scaled as in `scaling`. The rows are constraints, whose label vectors b_p are
one more mask: <b_p, b_q> is y_p y_q, or <e_{y_n} - e_k, e_{y_m} - e_l> of many classes.

Source: Judice and Pires (1994), exchanges of many indices at once; Hintermueller, Ito and Kunisch
(2002), as a semismooth Newton method.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import ClassVar, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from implicit_bias.base.deadline import Deadline
from implicit_bias.bounds.certificate import Status
from implicit_bias.problem import MarginProblem, sparse_is_faster
from implicit_bias.problem.euclidean import euclidean_form
from implicit_bias.problem.gating import dense
from implicit_bias.problem.masked_gram import mask_into
from implicit_bias.solvers.base import Answer, Start
from implicit_bias.solvers.iteration import NativeSolver, RowSolver, Run, Steps, zero_answer
from implicit_bias.solvers.scaled_rows import TINY
from implicit_bias.solvers.scaling import Layout, ScaledProblem

Ended = TypeVar("Ended")
Bounds: TypeAlias = Generator[tuple[float, float], None, Ended]


class RowSet(IntEnum):
    """The set that a row is in, as a number: alpha_p = 0, free, and at the box."""

    AT_ZERO = 0
    FREE = 1
    AT_BOX = 2


@dataclass(frozen=True, kw_only=True)
class OneGroup(RowSolver):
    """Exchanges of the support vectors of one group, from those of fewer rows.

    What it does not take are more groups, and samples of many classes that share a finite C.

    Parameters
    ----------
    fallback : NativeSolver
        Solves what the method does not take, and where it makes no headway. The tolerances, the
        limits on iterations and time, the device and the rows are those of this solver.
    aim : float
        The fraction of the tolerance to reach: the certificate rounds differently.
    max_steps, patience : int
        Steps on one level at most, and steps after which it gives up where the number of rows in
        the wrong set has not fallen below its smallest value there.
    growths : tuple of float
        Fraction of F by which it may grow in a step: all at once, or slowly where that leads
        nowhere.
    most_levels, first_rows : int
        Levels at most, and rows of the first one at least.
    rough : float
        Fraction of a level's rows that may still be in the wrong set when the next one begins.
    nearly : float
        Bounds are computed where at most this fraction of all rows is in the wrong set: with more
        they are too far apart to be worth a product.
    ridges : tuple of float
        Fractions of the mean of the diagonal of Q_FF: the first that makes Q_FF definite is added.
    refinements : int
        Solutions with another ridge than the first are corrected this often.
    rounding : float
        Conditions that are broken by less, relative to b or to the largest a, are kept.
    rounding_of_squares : float
        Fraction of (sum |a|)^2 that a' Q a may be wrong by.
    balance : float
        e' alpha counts as 0 where it is at most this fraction of |e|' alpha.
    block : int
        Rows of the Gram matrix computed at once.
    seed : int
        Levels take the rows in a random order, which has nothing to do with that of the data.
    """

    takes_classes: ClassVar[bool] = True

    fallback: NativeSolver
    aim: float = 0.9
    max_steps: int = 50
    patience: int = 4
    growths: tuple[float, ...] = (math.inf, 0.25)
    most_levels: int = 4
    first_rows: int = 100
    rough: float = 0.07
    nearly: float = 0.01
    ridges: tuple[float, ...] = (1e-14, 1e-12, 1e-10, 1e-8)
    refinements: int = 2
    rounding: float = 1e-10
    rounding_of_squares: float = 1e-15
    balance: float = 1e-9
    block: int = 256
    seed: int = 0

    name: ClassVar[str] = "one-group"
    # What `SolveStats.detail` says where the exchanges do not end.
    fell_back: ClassVar[str] = "no headway on one Gram matrix: the fall-back solved"

    @property
    def own_limit(self) -> int:
        """Steps of all levels and iterations of the fall-back, at most."""
        return len(self.growths) * self.most_levels * self.max_steps + self.fallback.own_limit

    def prepare(self, problem: MarginProblem, start: Start | None) -> Run:
        """Set up the exchanges; the Gram matrix is formed by the first step."""
        return _Exchanges(self, problem, start)

    def levels(self, n_rows: int) -> list[int]:
        """Rows of each level: about an eighth of them, then twice as many."""
        sizes = [n_rows]
        while len(sizes) < self.most_levels and sizes[0] >= 2 * self.first_rows:
            sizes.insert(0, -(-sizes[0] // 2))
        return sizes


@dataclass(frozen=True, eq=False)
class _Solved:
    """What the equations of some sets of the first n rows say."""

    a: Tensor  # (n,)
    products: Tensor  # (n,), Q a
    beta: Tensor  # (J,)

    @property
    def d(self) -> Tensor:
        """||V(a)||, ()."""
        # Where V(a) is nearly 0 rounding may make a' Q a negative.
        return (self.a @ self.products).clamp(min=0.0).sqrt()


class _Exchanges(Run):
    """Exchanges of the active set, then the fall-back if need be.

    Attributes
    ----------
    lower, upper, violation : float
        The best bounds of the exchanges, of the scaled problem, and what the coefficients lack of
        unit margin.
    alpha, primal : Tensor, and tuple of Tensor
        What attains them: dual variables (P,), and those of the coefficients with d and beta.
    ungraded : _Solved or None
        The newest point of all rows, of which no bounds have been computed.
    """

    def __init__(self, solver: OneGroup, problem: MarginProblem, start: Start | None) -> None:
        self.solver = solver
        self.problem = problem
        self.start = start
        self.deadline = Deadline.after(solver.max_seconds)
        self.lower = 0.0
        self.upper = math.inf
        self.violation = math.inf
        self.primal: tuple[Tensor, Tensor, Tensor] | None = None
        self.ungraded: _Solved | None = None
        # The best bounds of all, in the problem's units: the fall-back begins anew.
        self._best_lower = 0.0
        self._best_upper = math.inf
        self._fallback: Run | None = None  # from its first step on

    def steps(self) -> Steps:
        """Exchange until the sets are right; where there is no headway the fall-back solves."""
        if (yield from self._from_fewer_rows()):
            return Status.OPTIMAL
        solver = self.solver
        method = replace(
            solver.fallback,
            tolerances=solver.tolerances,
            max_seconds=self.deadline.left,
            device=solver.device,
        )
        if isinstance(method, RowSolver):
            method = replace(method, rows=solver.rows)
        fallback = method.prepare(self.problem, self.start)
        steps = fallback.steps()
        while True:
            try:
                lower, upper = next(steps)
            except StopIteration as end:
                self._fallback = fallback
                ended: Status = end.value
                return ended
            self._fallback = fallback
            yield self._best_bounds(lower, upper)

    def answer(self) -> Answer:
        """Return what attains the best bounds of the method that is at work."""
        if self._fallback is not None:
            return self._fallback.answer()
        if self.primal is None:
            return zero_answer(self.problem)
        # A limit may have come before few rows were wrong.
        if self.ungraded is not None:
            self._grade(self.ungraded)
        scaled = self.scaled
        a, d, beta = self.primal
        coef = self.problem.coef_of(scaled.alpha_of(a), d.cpu().numpy() / scaled.scale)
        return Answer(scaled.alpha_of(self.alpha), coef, scaled.intercept(beta))

    def _best_bounds(self, lower: float, upper: float) -> tuple[float, float]:
        """Return the best bounds so far, in the problem's units."""
        self._best_lower = max(lower, self._best_lower)
        self._best_upper = min(upper, self._best_upper)
        return self._best_lower, self._best_upper

    # --- levels: the sets of few rows first ----------------------------------------------------

    def _from_fewer_rows(self) -> Bounds[bool]:
        """Find the active set, from that of the start if there is one: whether that solved it."""
        solver = self.solver
        problem = self.problem
        rows = solver.chosen(problem)
        _, groups = euclidean_form(problem)
        # With many classes C bounds the sum of a sample's rows, and no row has a box of its own.
        shared_box = rows.width > 1 and not problem.hard_margin
        if groups.any() or shared_box:
            return False
        sizes = solver.levels(len(rows))
        if len(sizes) > 1:
            rows = rows.subset(np.random.default_rng(solver.seed).permutation(len(rows)))
        layout = Layout.of_groups(problem, rows)
        scaled = ScaledProblem(layout, torch.device(solver.device))
        self.scaled = scaled
        self.alpha = torch.zeros_like(scaled.b)
        self.primal = self.alpha, scaled.full(scaled.n_groups, 0.0), scaled.offset()
        self.gram = _Gram(_row_products(layout, 1.0 / scaled.nu), scaled.b, len(rows), solver.block)
        if self.start is not None:
            alpha = scaled.start_alpha(self.start)
            at_box = alpha >= (1.0 - solver.rounding) * scaled.C
            sets = torch.where(alpha > 0.0, RowSet.FREE, RowSet.AT_ZERO).masked_fill_(
                at_box, RowSet.AT_BOX
            )
            if (yield from self._solve_levels([len(rows)], sets)):
                return True
        free = torch.full((sizes[0],), RowSet.FREE, device=scaled.device)
        if (yield from self._solve_levels(sizes, free)):
            return True
        self.detail = solver.fell_back
        return False

    def _solve_levels(self, sizes: list[int], sets: Tensor) -> Bounds[bool]:
        """Find the sets of more and more rows, from those (n,) of the first level."""
        point: _Solved | None = None
        for size in sizes:
            self.gram.extend(size)
            if point is not None:
                # The new rows have alpha = 0; those that fall short of the margin become free.
                more = (0, size - len(sets))
                sets = pad(sets, more, value=RowSet.AT_ZERO)
                a = pad(point.a, more)
                sets, _ = self._exchanged(_Solved(a, self._products(a), point.beta), sets)
            for growth in self.solver.growths:
                found = yield from self._solve_level(sets, growth)
                if found is not None:
                    break
            if found is None:
                return False
            point, sets = found
        return self._converged

    def _solve_level(self, sets: Tensor, growth: float) -> Bounds[tuple[_Solved, Tensor] | None]:
        """Exchange rows until nearly none, or on the last level none, is in the wrong set.

        None where they cannot be solved for, or their number does not fall any more.
        """
        solver = self.solver
        scaled = self.scaled
        size = len(sets)
        last = size == len(scaled.b)
        fewest = size + 1
        waited = 0
        for _ in range(solver.max_steps):
            point = self._solve(sets)
            if point is None:
                return None
            sets, breaches = self._exchanged(point, sets, growth)
            allowed = solver.rough
            if last:
                allowed = solver.nearly
            few = breaches <= allowed * size
            if last:
                self.ungraded = point
                if few:
                    self._grade(point)
            yield self._best_bounds(self.lower / scaled.scale, self.upper / scaled.scale)
            if self._converged or (few and (breaches == 0 or not last)):
                return point, sets
            waited += 1
            if breaches < fewest:
                waited = 0
            fewest = min(fewest, breaches)
            if waited == solver.patience:
                return None
        return None

    # --- one step: solve the equations of the sets, exchange what breaks their conditions ------

    def _products(self, a: Tensor) -> Tensor:
        """Q a of the first n rows, shape (n,) or (n, k)."""
        return self.gram.values[: len(a), : len(a)] @ a

    def _solve(self, sets: Tensor) -> _Solved | None:
        """Solve the equations of the sets; None where they have no solution, or by rounding."""
        scaled = self.scaled
        n = len(sets)
        F = torch.nonzero(sets == RowSet.FREE)[:, 0]
        if not len(F):
            return None
        # With the rows at the box at a_U = d C_U the equations of the free rows are
        # Q_FF a_F + e_F beta = b_F - d Q_FU C_U: a = parts (1, d)' is linear in d. A hard margin
        # has no rows at the box, and one part.
        parts = scaled.e.new_zeros((n, 1 + scaled.soft))
        right = scaled.b[F, None]
        if scaled.soft:
            parts[:, 1] = torch.where(sets == RowSet.AT_BOX, scaled.C[:n], 0.0)
            right = torch.hstack([right, -self._products(parts[:, 1:])[F]])
        # What the free rows have to make up for in e' a = 0. Without an offset e has no columns.
        imbalance = scaled.e[:n].T @ parts
        solved = self._solve_bordered(F, scaled.e[F], right, -imbalance)
        if solved is None:
            return None
        parts[F], beta = solved
        products = self._products(parts)
        if not scaled.soft:
            return _Solved(parts[:, 0], products[:, 0], beta[:, 0])
        d = _smallest_root(parts.T @ products)
        if not d > 0.0:
            return None
        shares = torch.stack([torch.ones_like(d), d])
        return _Solved(parts @ shares, products @ shares, beta @ shares)

    def _solve_bordered(
        self, F: Tensor, B: Tensor, b: Tensor, c: Tensor
    ) -> tuple[Tensor, Tensor] | None:
        """Solve Q_FF x + B y = b, B' x = c; None where rounding has made Q_FF indefinite.

        Parameters
        ----------
        F : Tensor of int
            The free rows.
        B, b, c : Tensor of shape (F, J), (F, k) and (J, k)
            The border and the right sides.
        """
        first = self.solver.ridges[0]
        for ridge in self.solver.ridges:
            L = self.gram.among(F).T  # by columns, as LAPACK overwrites it
            diagonal = L.diagonal()
            diagonal.add_(diagonal.mean(), alpha=ridge)
            info = torch.empty((), dtype=torch.int32, device=L.device)
            torch.linalg.cholesky_ex(L, out=(L, info))
            if not info:
                break
        else:
            return None
        found = _solve_with_factor(L, B, b, c)
        if found is None or ridge == first:
            return found
        # The larger ridge has solved another system: corrections without it lead back to this one.
        x, y = found
        Q = self.gram.among(F).T
        for _ in range(self.solver.refinements):
            correction = _solve_with_factor(L, B, b - Q @ x - B @ y, c - B.T @ x)
            if correction is None:
                return None
            x = x + correction[0]
            y = y + correction[1]
        return x, y

    def _exchanged(
        self, point: _Solved, sets: Tensor, growth: float = np.inf
    ) -> tuple[Tensor, int]:
        """Let rows that break the condition of their set leave it, and count them.

        Of those beyond the margin that fall short only the worst leave, up to this fraction of F.
        """
        scaled = self.scaled
        n = len(sets)
        free = sets == RowSet.FREE
        b = scaled.b[:n]
        # Free rows with a < 0 go to AT_ZERO, those with a > d C to AT_BOX, all others stay.
        changed = torch.where(free & ~(point.a >= 0.0), RowSet.AT_ZERO, sets)
        if scaled.soft:
            changed = torch.where(free & (point.a > point.d * scaled.C[:n]), RowSet.AT_BOX, changed)
        # Rows at zero need r >= 0, rows at the box r <= 0; else they become free. The sign of the
        # condition is FREE - sets: 1 at zero, -1 at the box, and 0 for free rows, which have none.
        r = point.products - b
        if scaled.n_offsets:
            r += scaled.e[:n] @ point.beta
        joining = (RowSet.FREE - sets) * r < -self.solver.rounding * b
        breaches = int((joining | (changed != sets)).sum())
        if not math.isinf(growth):
            short = joining & (sets == RowSet.AT_ZERO)
            worst = _largest(-r / b, short, growth * int(free.sum()))
            joining = (joining & ~short) | worst
        return changed.masked_fill_(joining, RowSet.FREE), breaches

    # --- bounds --------------------------------------------------------------------------------

    @property
    def _converged(self) -> bool:
        """Whether the bounds are near enough."""
        tolerances = self.solver.tolerances
        near = self.upper <= (1.0 + self.solver.aim * tolerances.gap) * self.lower
        return near and self.violation <= tolerances.feasibility

    def _grade(self, point: _Solved) -> None:
        """Take the bounds of a point of all rows into account."""
        scaled = self.scaled
        self.ungraded = None
        d = point.d
        # Upper: zeta = V(a). Where entries of a cancel, a'Q a may be anything below the rounding of
        # its terms.
        rounding = self.solver.rounding_of_squares * point.a.abs().sum().square()
        norm = float((d.square() + rounding).sqrt())
        margins = point.products + scaled.e @ point.beta
        upper, violation = scaled.upper(norm, margins)
        if upper < self.upper:
            scale = scaled.to_margin_1(norm, upper)
            self.upper = upper
            self.violation = violation
            self.primal = point.a, scale * scaled.full(1, 1.0), scale * point.beta
        # Lower: alpha within the box, over ||V(alpha)||.
        alpha = torch.minimum(point.a.clamp(min=0.0), d * scaled.C)
        products = point.products
        if (alpha != point.a).any():
            products = self._products(alpha)
        norm_of_V = float((alpha @ products).clamp(min=0.0).sqrt())
        largest = max(norm_of_V, float((alpha / scaled.C).max()), TINY)
        lower = float(scaled.b @ alpha) / largest
        if scaled.n_offsets:
            allowed = self.solver.balance * (scaled.e.abs().T @ alpha)
            if ((scaled.e.T @ alpha).abs() > allowed).any():
                lower = 0.0
        if lower > self.lower:
            self.lower = lower
            self.alpha = alpha / largest


# --- linear algebra ------------------------------------------------------------------------------


def _solve_with_factor(L: Tensor, B: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor] | None:
    """Solve L L' x + B y = b, B' x = c; None where the numbers overflow."""
    if not B.shape[1]:
        return torch.cholesky_solve(b, L), c
    W = torch.linalg.solve_triangular(L, B, upper=False)
    h = torch.linalg.solve_triangular(L, b, upper=False)
    schur = W.T @ W
    right = W.T @ h - c
    if not (schur.isfinite().all() and right.isfinite().all()):
        return None
    y = torch.linalg.lstsq(schur, right).solution
    return torch.linalg.solve_triangular(L.T, h - W @ y, upper=True), y


class _Gram:
    """Inner products of rows, each computed once, in the order in which the rows come.

    Parameters
    ----------
    products : callable
        Writes those of some rows (a slice) with all up to their last one (a slice) into a tensor.
    like : Tensor
        Whose type and device they have.
    room : int
        For this many rows there is room at once.
    block : int
        Rows that are computed at once.
    """

    def __init__(
        self,
        products: Callable[[slice, slice, Tensor], None],
        like: Tensor,
        room: int,
        block: int,
    ) -> None:
        self._write_products = products
        self._size = 0
        self._block = block
        self.values = like.new_empty((room, room))

    def extend(self, size: int) -> None:
        """Compute those of this many rows: one triangle of what is not known, and mirrored."""
        for start in range(self._size, size, self._block):
            end = min(start + self._block, size)
            self._write_products(slice(start, end), slice(0, end), self.values[start:end, :end])
            self.values[:start, start:end] = self.values[start:end, :start].T
        self._size = max(size, self._size)

    def among(self, index: Tensor) -> Tensor:
        """Those of some rows (indices) with each other."""
        return self.values.index_select(0, index).index_select(1, index)


def _row_products(layout: Layout, weights: Tensor) -> Callable[[slice, slice, Tensor], None]:
    """Return what writes inner products of rows of one group, times weights (P,), for a `_Gram`."""
    device = weights.device
    features = layout.features
    rows = layout.rows
    X = torch.tensor(features.X, device=device)
    # Where few gates are on, their products are computed from a sparse matrix.
    sparse = sparse_is_faster(features.gates)
    if sparse:
        gates = features.sparse_gates
    else:
        Z = torch.tensor(dense(features.gates), device=device)

    def of_samples(new: slice, until: slice, out: Tensor) -> None:
        if sparse:
            mask = torch.tensor((gates[new] @ gates[until].T).toarray(), device=device)
            torch.mul(X[new] @ X[until].T, mask, out=out)
        else:
            mask_into(out, X[new] @ X[until].T, Z[new], Z[until])

    if layout.signed:
        signs = torch.tensor(np.where(rows.owners, -1.0, 1.0), device=device)
        X *= (weights * signs)[:, None]
        return of_samples
    # Rows of many classes share their samples' products, and have label vectors as one more mask.
    gram = X.new_empty((len(X), len(X)))
    of_samples(slice(0, len(X)), slice(0, len(X)), gram)
    place = torch.tensor(layout.place, device=device)
    b = torch.tensor(rows.label_vectors.toarray(), device=device) * weights[:, None]

    def of_pairs(new: slice, until: slice, out: Tensor) -> None:
        inner = gram.index_select(0, place[new]).index_select(1, place[until])
        mask_into(out, inner, b[new], b[until])

    return of_pairs


def _largest(values: Tensor, chosen: Tensor, most: float) -> Tensor:
    """Return those of the chosen (n,) that have the largest values, at most about this many."""
    if int(chosen.sum()) <= most:
        return chosen
    limit = values[chosen].topk(max(int(most), 1)).values[-1]
    return chosen & (values >= limit)


def _smallest_root(squares: Tensor) -> Tensor:
    """Return the smallest d > 0 with (1, d) S (1, d)' = d^2; nan where there is none."""
    constant = squares[0, 0]
    linear = squares[0, 1]
    square = squares[1, 1] - 1.0
    root = (linear.square() - constant * square).sqrt()
    # Of the two ways to write a root the one without cancellation.
    found = torch.stack([constant / (root - linear), -(root + linear) / square])
    positive = found[found > 0.0]
    return positive.min() if len(positive) else found.new_tensor(torch.nan)
