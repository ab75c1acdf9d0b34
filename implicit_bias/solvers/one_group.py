r"""One group on one Gram matrix: exchanges of the support vectors, from those of fewer rows.

The KKT conditions (`interior_point`) with a = d alpha and r = Q a + e beta - b,

        r_p >= 0  where a_p = 0,   r_p = 0  where 0 < a_p < d C_p,   r_p <= 0  where a_p = d C_p;
        e' a = 0;   a' Q a = d^2

are equations once the sets are known: the free rows F, and those at the box U. The equations of
some sets are solved, what breaks its own set's conditions is exchanged, all at once, and where
nothing does, the problem is solved: Newton's method on conditions that are piecewise smooth. Each
step costs a Cholesky factorisation of order |F|, bordered by e,

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
from abc import abstractmethod
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import ClassVar, TypeAlias, TypeVar, final

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from implicit_bias.base.deadline import Deadline
from implicit_bias.bounds.certificate import Status
from implicit_bias.problem import Constraints, Features, MarginProblem, are_few
from implicit_bias.problem.euclidean import euclidean_form
from implicit_bias.problem.gating import dense
from implicit_bias.problem.masked_gram import mask_into
from implicit_bias.solvers.base import Answer, Start
from implicit_bias.solvers.iteration import NativeSolver, RowSolver, Run, Steps, nothing_yet
from implicit_bias.solvers.scaled_rows import TINY
from implicit_bias.solvers.scaling import Layout, ScaledProblem

# Rows of a Gram matrix computed at once.
BLOCK = 256
# Share of e' alpha that may be left.
BALANCE = 1e-9
# Conditions that are broken by less, relative to b or to the largest a, are kept.
ROUNDING = 1e-10
# Share of (sum |a|)^2 that a' Q a may be wrong by.
ROUNDING_OF_SQUARES = 1e-15
# Solutions that had to change the matrix are corrected this often.
REFINEMENTS = 2
# A group scale counts as this share of the mean one at least.
LEAST_SCALE = 1e-3

Ended = TypeVar("Ended")
Bounds: TypeAlias = Generator[tuple[float, float], None, Ended]


@dataclass(frozen=True, kw_only=True)
class OneGroup(RowSolver):
    """Exchanges of the support vectors of one group, from those of fewer rows.

    What it does not take are more groups, samples of many classes that share a finite C, and a
    Gram matrix without room.

    Parameters
    ----------
    fallback : NativeSolver
        Solves what the method does not take, and where it makes no headway. Its limit on iterations
        and its own tolerances are those of this solver.
    aim : float
        The share of the tolerance to reach: the certificate rounds differently.
    max_steps, patience : int
        Steps on one level, and steps without fewer breaches than ever there, until it gives up.
    growths : tuple of float
        Share of F by which it may grow in a step: all at once, or slowly where that leads nowhere.
    most_levels, first_rows : int
        Levels at most, and rows of the first one at least.
    rough : float
        Share of a level's rows that may still be in the wrong set when the next one begins.
    nearly : float
        Share of all rows that may be where bounds are computed: with more in the wrong set, bounds
        are too far apart to be worth a product.
    ridges : tuple of float
        Shares of the mean of the diagonal of Q_FF, which are added to it: the first that makes it
        definite.
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
    seed: int = 0

    name: ClassVar[str] = "one-group"
    # What `SolveStats.detail` says where the exchanges do not end.
    fell_back: ClassVar[str] = "no headway on one Gram matrix: the fall-back solved"

    @property
    def own_limit(self) -> int:
        """Steps of all levels and iterations of the fall-back, at most."""
        return len(self.growths) * self.most_levels * self.max_steps + self.fallback.limit

    def prepare(self, problem: MarginProblem, start: Start | None) -> Run:
        """Leave all to the steps: where there is not enough room the fall-back solves."""
        return _ByLevels(self, problem, start)

    def levels(self, n_rows: int) -> list[int]:
        """Rows of each level: about an eighth of them, then twice as many."""
        sizes = [n_rows]
        while len(sizes) < self.most_levels and sizes[0] >= 2 * self.first_rows:
            sizes.insert(0, -(-sizes[0] // 2))
        return sizes


# --- bounds --------------------------------------------------------------------------------------


class _OnSupport(Run):
    """A method that may make no headway, its best bounds so far, and the fall-back.

    Bounds are those of the scaled problem, but ``told``, which are as good as any before.
    """

    def __init__(self, solver: OneGroup, problem: MarginProblem, start: Start | None) -> None:
        self.solver, self.problem, self.start = solver, problem, start
        self._deadline = Deadline.after(solver.max_seconds)
        self._at_work: Run | None = None  # the fall-back, from its first step on
        self.primal: tuple[Tensor, Tensor, Tensor] | None = None  # alpha, d, beta
        self.lower, self.upper, self.violation = 0.0, math.inf, math.inf
        self._told = 0.0, math.inf

    @abstractmethod
    def approach(self) -> Bounds[bool]:
        """Yield what `tell` returns at each step; return whether that solved the problem."""

    @final
    def steps(self) -> Steps:
        """Step until the method converges or makes no headway, then with the fall-back."""
        if (yield from self.approach()):
            return Status.OPTIMAL
        method = replace(self.solver.fallback, max_seconds=self._deadline.left)
        fallback = method.prepare(self.problem, self.start)
        steps = fallback.steps()
        while True:
            try:
                lower, upper = next(steps)
            except StopIteration as end:
                self._at_work = fallback
                ended: Status = end.value
                return ended
            self._at_work = fallback
            yield self.tell(lower, upper)

    @final
    def tell(self, lower: float, upper: float) -> tuple[float, float]:
        """Return the best bounds so far, in the problem's units: the fall-back begins anew."""
        self._told = max(lower, self._told[0]), min(upper, self._told[1])
        return self._told

    @final
    def answer(self) -> Answer:
        """Return what attains the best bounds of the method that is at work."""
        return self.own_answer() if self._at_work is None else self._at_work.answer()

    def pose(self, scaled: ScaledProblem) -> None:
        """Begin with nothing."""
        self.scaled, self.alpha = scaled, torch.zeros_like(scaled.b)
        self.primal = self.alpha, scaled.full(scaled.n_groups, 0.0), scaled.offset()

    def improve_lower(self, alpha: Tensor, largest: float) -> None:
        """Take dual variables >= 0 with max_g ||V_g|| of at most ``largest`` into account."""
        scaled = self.scaled
        largest = max(largest, float((alpha / scaled.C).max()), TINY)
        lower = float(scaled.b @ alpha) / largest
        if scaled.n_offsets:
            imbalance = (scaled.e.T @ alpha).abs() - BALANCE * (scaled.e.abs().T @ alpha)
            lower = lower if (imbalance <= 0.0).all() else 0.0
        if lower > self.lower:
            self.lower, self.alpha = lower, alpha / largest

    def improve_upper(
        self, norm: float, margins: Tensor, alpha: Tensor, d: Tensor, beta: Tensor
    ) -> None:
        """Take coefficients d_g V_g(alpha), of this norm and these margins, into account."""
        upper, violation = self.scaled.upper(norm, margins)
        if upper < self.upper:
            scale = self.scaled.to_margin_1(norm, upper)
            self.upper, self.violation = upper, violation
            self.primal = alpha, scale * d, scale * beta

    def own_bounds(self) -> tuple[float, float]:
        """Tell the bounds of this method."""
        return self.tell(self.lower / self.scaled.scale, self.upper / self.scaled.scale)

    @property
    def solved(self) -> bool:
        """Whether the bounds are near enough."""
        tolerances = self.solver.tolerances
        near = self.upper <= (1.0 + self.solver.aim * tolerances.gap) * self.lower
        return near and self.violation <= tolerances.feasibility

    def own_answer(self) -> Answer:
        """Return what attains the method's own bounds, in the problem's shapes and units."""
        if self.primal is None:
            return nothing_yet(self.problem)
        scaled, (alpha, d, beta) = self.scaled, self.primal
        coef = self.problem.coef_of(scaled.alpha(alpha), d.cpu().numpy() / scaled.scale)
        return Answer(scaled.alpha(self.alpha), coef, scaled.intercept(beta))


# --- bordered systems ----------------------------------------------------------------------------


def _bordered(
    matrix: Callable[[], Tensor], B: Tensor, b: Tensor, c: Tensor, ridges: tuple[float, ...]
) -> tuple[Tensor, Tensor] | None:
    """Solve Q x + B y = b, B' x = c; None where rounding has made Q indefinite.

    Parameters
    ----------
    matrix : callable
        Returns Q (F, F), by columns, which is overwritten.
    B, b, c : Tensor of shape (F, J), (F, k) and (J, k)
        The border and the right sides.
    ridges : tuple of float
        What is added to the diagonal of Q, as a share of its mean: the first that makes it
        definite. What any but the first one changed comes out again.
    """
    for ridge in ridges:
        L = matrix()
        diagonal = L.diagonal()
        diagonal.add_(diagonal.mean(), alpha=ridge)
        info = torch.empty((), dtype=torch.int32, device=L.device)
        torch.linalg.cholesky_ex(L, out=(L, info))
        if not info:
            break
    else:
        return None
    found = _with_factor(L, B, b, c)
    if found is None or ridge == ridges[0]:
        return found
    x, y = found
    Q = matrix()
    for _ in range(REFINEMENTS):
        correction = _with_factor(L, B, b - Q @ x - B @ y, c - B.T @ x)
        if correction is None:
            return None
        x, y = x + correction[0], y + correction[1]
    return x, y


def _with_factor(L: Tensor, B: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor] | None:
    """Solve L L' x + B y = b, B' x = c; None where the numbers overflow."""
    if not B.shape[1]:
        return torch.cholesky_solve(b, L), c
    W = torch.linalg.solve_triangular(L, B, upper=False)
    h = torch.linalg.solve_triangular(L, b, upper=False)
    schur, right = W.T @ W, W.T @ h - c
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
        For this many rows there is room at once; for more it is made.
    """

    def __init__(
        self, products: Callable[[slice, slice, Tensor], None], like: Tensor, room: int = 0
    ) -> None:
        self._products, self._size = products, 0
        self.values = like.new_empty((room, room))

    def extend(self, size: int) -> None:
        """Compute those of this many rows: one triangle of what is not known, and mirrored."""
        if size > len(self.values):
            known, self.values = self.values, self.values.new_empty((size, size))
            self.values[: self._size, : self._size] = known[: self._size, : self._size]
        for start in range(self._size, size, BLOCK):
            new, until = slice(start, min(start + BLOCK, size)), slice(0, min(start + BLOCK, size))
            self._products(new, until, self.values[new, until])
            self.values[:start, new] = self.values[new, :start].T
        self._size = max(size, self._size)

    def of(self, index: Tensor) -> Tensor:
        """Those of some rows (indices) with each other."""
        return self.values.index_select(0, index).index_select(1, index)


# --- from fewer rows -----------------------------------------------------------------------------

# The sets of rows, as numbers: alpha_p = 0, free, and at the box.
AT_ZERO, FREE, AT_BOX = 0, 1, 2


@dataclass(frozen=True, eq=False)
class _Solved:
    """What the equations of some sets of the first n rows say."""

    a: Tensor  # (n,)
    products: Tensor  # (n,), Q a
    beta: Tensor  # (J,)

    @property
    def d(self) -> Tensor:
        """||V(a)||, ()."""
        return (self.a @ self.products).clamp(min=0.0).sqrt()


class _ByLevels(_OnSupport):
    """Exchanges of the active set, then the fall-back if need be."""

    ungraded: _Solved | None = None  # the newest point of all rows

    def approach(self) -> Bounds[bool]:
        """Find the active set, from that of the start if there is one."""
        solver, problem = self.solver, self.problem
        rows = solver.chosen(problem)
        features, groups = euclidean_form(problem)
        shared = rows.width > 1 and not problem.hard_margin
        if groups.any() or shared or not solver.fits(_memory(rows, features)):
            return False
        sizes = solver.levels(len(rows))
        if len(sizes) > 1:
            rows = rows.subset(np.random.default_rng(solver.seed).permutation(len(rows)))
        layout = Layout.of_groups(problem, rows)
        scaled = ScaledProblem(layout, torch.device(solver.device))
        self.pose(scaled)
        products = _row_products(layout, 1.0 / scaled.nu)
        self.gram = _Gram(products, scaled.b, len(rows))
        if self.start is not None:
            alpha = scaled.start_alpha(self.start)
            sets = torch.where(alpha >= (1.0 - ROUNDING) * scaled.C, AT_BOX, 1 * (alpha > 0.0))
            if (yield from self._exchange([len(rows)], sets)):
                return True
        free = torch.full((sizes[0],), FREE, device=scaled.device)
        if (yield from self._exchange(sizes, free)):
            return True
        self.detail = solver.fell_back
        return False

    def _exchange(self, sizes: list[int], sets: Tensor) -> Bounds[bool]:
        """Find the sets of more and more rows, from those (n,) of the first level."""
        point: _Solved | None = None
        for size in sizes:
            self.gram.extend(size)
            if point is not None:
                more = (0, size - len(sets))
                sets, a = pad(sets, more, value=AT_ZERO), pad(point.a, more)
                grown = _Solved(a, self.products(a), point.beta)
                sets, _ = self.exchanged(grown, sets)
            for growth in self.solver.growths:
                found = yield from self._level(sets, growth)
                if found is not None:
                    break
            if found is None:
                return False
            point, sets = found
        return self.solved

    def _level(self, sets: Tensor, growth: float) -> Bounds[tuple[_Solved, Tensor] | None]:
        """Exchange rows until nearly none, or on the last level none, is in the wrong set.

        None where they cannot be solved for, or their number does not fall any more.
        """
        size, waited = len(sets), 0
        least, last, solver = size + 1, size == len(self.scaled.b), self.solver
        for _ in range(solver.max_steps):
            point = self.solve(sets)
            if point is None:
                return None
            sets, breaches = self.exchanged(point, sets, growth)
            few = breaches <= (solver.nearly if last else solver.rough) * size
            if last:
                self.ungraded = point
            if few and last:
                self.grade(point)
            yield self.own_bounds()
            if self.solved or (few and (breaches == 0 or not last)):
                return point, sets
            waited = 0 if breaches < least else waited + 1
            least = min(least, breaches)
            if waited == solver.patience:
                return None
        return None

    def own_answer(self) -> Answer:
        """Return what attains the bounds, also where a limit came before few rows were wrong."""
        if self.ungraded is not None:
            self.grade(self.ungraded)
        return super().own_answer()

    def products(self, a: Tensor) -> Tensor:
        """Q a of the first n rows, shape (n,) or (n, k)."""
        return self.gram.values[: len(a), : len(a)] @ a

    def solve(self, sets: Tensor) -> _Solved | None:
        """Solve the equations of the sets; None where they have no solution, or by rounding."""
        n, F, scaled = len(sets), torch.nonzero(sets == FREE)[:, 0], self.scaled
        if not len(F):
            return None
        # a = parts (1, d)': where nothing is at the box there is one part.
        parts, right = scaled.e.new_zeros((n, 1 + scaled.soft)), scaled.b[F, None]
        if scaled.soft:
            parts[:, 1] = torch.where(sets == AT_BOX, scaled.C[:n], 0.0)
            right = torch.hstack([right, -self.products(parts[:, 1:])[F]])
        # Without offsets the border (F, 0) and its right side (0, k) need no product.
        border, rest = scaled.e[: len(F)], parts[:0]
        if scaled.n_offsets:
            border, rest = scaled.e[F], -scaled.e[:n].T @ parts
        solved = _bordered(lambda: self.gram.of(F).T, border, right, rest, self.solver.ridges)
        if solved is None:
            return None
        parts[F], beta = solved
        products = self.products(parts)
        if not scaled.soft:
            return _Solved(parts[:, 0], products[:, 0], beta[:, 0])
        d = _smallest_root(parts.T @ products)
        shares = torch.stack([torch.ones_like(d), d])
        return _Solved(parts @ shares, products @ shares, beta @ shares) if d > 0.0 else None

    def exchanged(self, point: _Solved, sets: Tensor, growth: float = np.inf) -> tuple[Tensor, int]:
        """Let rows that break the condition of their set leave it, and count them.

        Of those beyond the margin that fall short only the worst leave, up to this share of F.
        """
        n, free, scaled = len(sets), sets == FREE, self.scaled
        b, inside = scaled.b[:n], 1 * (point.a >= 0.0)
        if scaled.soft:
            inside += point.a > point.d * scaled.C[:n]
        changed = torch.where(free, inside, sets)
        r = point.products - b
        if scaled.n_offsets:
            r += scaled.e[:n] @ point.beta
        joining = (FREE - sets) * r < -ROUNDING * b  # the sign that a bound asks for
        breaches = int((joining | (changed != sets)).sum())
        if not math.isinf(growth):
            short = joining & (sets == AT_ZERO)
            worst = _largest(-r / b, short, growth * int(free.sum()))
            joining = (joining & ~short) | worst
        return changed.masked_fill_(joining, FREE), breaches

    def grade(self, point: _Solved) -> None:
        """Take the bounds of a point of all rows into account."""
        scaled, self.ungraded = self.scaled, None
        # Where entries of a cancel, a'Q a may be anything below the rounding of its terms.
        d = point.d
        norm = float((d.square() + ROUNDING_OF_SQUARES * point.a.abs().sum().square()).sqrt())
        margins = point.products + scaled.e @ point.beta
        self.improve_upper(norm, margins, point.a, scaled.full(1, 1.0), point.beta)
        alpha = torch.minimum(point.a.clamp(min=0.0), d * scaled.C)
        products = self.products(alpha) if (alpha != point.a).any() else point.products
        self.improve_lower(alpha, float((alpha @ products).clamp(min=0.0).sqrt()))


def _memory(rows: Constraints, features: Features) -> int:
    """Bytes that a solve with these rows may take: Q, and as much for Q_FF and its factor each."""
    M, D = features.shape
    return 8 * len(rows) * (3 * len(rows) + D + rows.width * M)


def _row_products(layout: Layout, weights: Tensor) -> Callable[[slice, slice, Tensor], None]:
    """Return what writes inner products of rows of one group, times weights (P,), for a `_Gram`."""
    device, features, rows = weights.device, layout.features, layout.rows
    X = torch.tensor(features.X, device=device)
    few = features.sparse_gates if are_few(features.gates) else None
    Z = X[:, :0] if few is not None else torch.tensor(dense(features.gates), device=device)

    def of_samples(new: slice, until: slice, out: Tensor) -> None:
        if few is None:
            mask_into(out, X[new] @ X[until].T, Z[new], Z[until])
        else:
            mask = torch.tensor((few[new] @ few[until].T).toarray(), device=device)
            torch.mul(X[new] @ X[until].T, mask, out=out)

    if layout.signed:
        X *= (weights * torch.tensor(np.where(rows.owners, -1.0, 1.0), device=device))[:, None]
        return of_samples
    whole, gram = slice(0, len(X)), X.new_empty((len(X), len(X)))
    of_samples(whole, whole, gram)
    place = torch.tensor(layout.place, device=device)
    b = torch.tensor(rows.labels.toarray(), device=device) * weights[:, None]

    def of_rows(new: slice, until: slice, out: Tensor) -> None:
        inner = gram.index_select(0, place[new]).index_select(1, place[until])
        mask_into(out, inner, b[new], b[until])

    return of_rows


def _largest(values: Tensor, chosen: Tensor, most: float) -> Tensor:
    """Return those of the chosen (n,) that have the largest values, at most about this many."""
    if int(chosen.sum()) <= most:
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
