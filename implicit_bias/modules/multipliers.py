r"""The best multipliers of a KKT point, in any norm of the parameters, with bounds on both sides.

theta is scaled to smallest margin 1, J are the gradients of the margins q, L the degree. For any
multipliers lambda >= 0 and v = J' lambda, Fenchel's inequality and Euler's <theta, v> = L <lambda,
q> give

    1/2 ||theta||^2 + 1/2 ||v||_*^2 - L sum(lambda)  >=  L <lambda, q - 1>  >=  0,

which is 0 exactly where theta is a KKT point of  min 1/2 ||theta||^2 s.t. q >= 1  with these
multipliers. The best lambda is the dual solution of the *tangent program*

    min ||w||  s.t.  J w >= L,       dual  max L sum(lambda)  s.t.  ||J' lambda||_* <= 1,

a maximum-margin problem on the gradients in which theta is feasible. So any lambda gives a lower
bound on its optimum, any w an upper one, and

    gap = 1 - (optimum / ||theta||)^2  <=  1 - (L sum(lambda) / (||theta|| ||v||_*))^2.

**l2.** The program is the hard-margin SVM of the gradients. It needs no more of them than J J' of
a working set of pairs: those of the smallest margins, to which those join whose constraint the
solution of the others breaks, until none does. Pairs without weight leave. Each program is one of
`nonnegative_squares`, exact to rounding.

**The largest of norms of tensors** (l_inf, spectral, both). An interior point (`tensor_balls`) on a
working set that grows on the way.

**Other norms, few gradients.** The same working set, each program by `solve`: a linear program in
l1 (and in l_inf, where rounding stops the interior point), a conic one otherwise.

**Other norms, many gradients.** Weights of the loss first, of all temperatures s, as lambda_n ~
exp(-s q_n) and at large s only the least margins count. Then a level method on
phi(lambda) = ||J' lambda||_* over the simplex: each evaluation (a backward pass, and one through
it) gives w_t = maximiser(J' lambda_t) and the cut phi(lambda) >= <J w_t, lambda>. The next lambda
is the nearest to the best one, in relative entropy, at which all cuts are below a level,

    lambda ~ centre * exp(-sum_t mu_t J w_t),   mu >= 0 maximising a smooth concave function of T
                                                numbers.

For shares mu_t of sum 1, w = sum_t mu_t w_t has norm 1 at most, so min(J w) is a lower bound on phi
and, where it is positive, L w / min(J w) is feasible in the tangent program: an upper bound. Each
step has such shares; the best of the cuts, by a linear program that takes longer, are found
now and then.

Source: Lyu and Li (2020); Tsilivis et al. (2024) for other norms; Ben-Tal and Nemirovski (2005),
"Non-Euclidean restricted memory level method for large-scale convex optimization".
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linprog, minimize
from scipy.special import softmax
from torch import Tensor

from implicit_bias.base.deadline import NEVER, Deadline
from implicit_bias.base.validation import Array
from implicit_bias.bounds.run_certificate import weights_of_margins
from implicit_bias.modules.margin_gradients import MarginGradients
from implicit_bias.modules.nonnegative_squares import nonnegative_squares
from implicit_bias.modules.tensor_balls import CentralPath, has_balls
from implicit_bias.norms import tensors
from implicit_bias.problem import max_margin
from implicit_bias.problem.constraints import worst_rows
from implicit_bias.solvers.base import SolveError
from implicit_bias.solvers.iteration import Breakdown
from implicit_bias.solvers.rounds import solve_on_some
from implicit_bias.solvers.solve import solve

# Pairs that enter a program at a time, those of the smallest margins first.
WORKING_SET = 1000
# Share by which a pair outside the working set may miss its constraint; where the gap need not be
# known exactly, as a share of what it is to be known to.
CONSTRAINT_TOLERANCE, ROUGH_SHARE = 1e-9, 0.1
# Relative gap of the programs of working sets in l2 over that share.
PROGRAM_SHARE = 0.1
# Gradients of single pairs that are computed at a time, between looks at the clock.
ROWS_AT_A_TIME = 64
# Rows that join at a time for each pair of a broken constraint, where a pair has several.
ROWS_OF_A_PAIR = 2
# Shares of a new direction that are tried, the rest of it the best one.
BLENDS = np.linspace(1.0, 0.0, 20, endpoint=False)
# Norms whose tangent programs are linear, and the largest number of gradient entries (pairs by
# parameters) of the first program by a solver: in l1 few parameters matter; of conic ones, and the
# fewest pairs that it must have room for.
LINEAR_ENTRIES, CONIC_ENTRIES, LEAST_PAIRS = {"l1": 2**23, "linf": 2**18}, 2**14, 128
# Entries of the rows of an interior point, the fewest pairs that must have room, the pairs that it
# begins with, and its most steps. Pairs join that are nearer to the margin than this share of the
# median one, in a step this share of the set at most.
ROW_ENTRIES, FEWEST_ROWS, FIRST_ROWS, MOST_NEWTON, NEAR, GROWTH = 2**26, 512, 256, 100, 0.1, 0.25
# Relative gap to which programs are solved, the largest one that counts as exact, and the steps
# without progress after which an interior point ends.
PROGRAM_TOLERANCE, LARGEST_GAP, PATIENCE = 1e-10, 1e-6, 4
# Seconds that a search may take, but in l2; the passes through a module that its first step takes.
SECONDS, PASSES = 25.0, 10.0
# Temperatures of the loss's weights, relative to a smallest margin of 1.
TEMPERATURES = tuple(float(s) for s in np.geomspace(1.0, 1e4, 9))
# The smallest weight that has a logarithm.
SMALLEST = 1e-300
# The level method: cuts kept, entries of their maximisers kept, where the level is between the
# bounds, the steps from one linear program to the next, and the most steps.
MOST_CUTS, CUT_ENTRIES, LEVEL, LINEAR_EVERY, MOST_STEPS = 100, 2**25, 0.7, 10, 5000
# To what the KKT gap is to be known where it is not exactly; or to this share of itself if that is
# less, but not to less than the last.
KNOWN, SHARE_KNOWN, LEAST_KNOWN = 1e-3, 0.1, 1e-6
# What is added to the weights of a centre, and its temperature.
SPREAD, SPREAD_TEMPERATURE = 0.1, 10.0
# Pairs of a smaller share of the largest weight are left out of a step; mu / level is at most this.
SMALLEST_WEIGHT, LARGEST_MU, PROJECTION_STEPS = 1e-9, 1e6, 200

# Share of the time left that an exact program may take where the level method is to follow, and how
# far apart bounds of the gap may be by then if an interior point is to go on.
EXACT_SHARE, WIDE = 0.5, 0.02

Method = Literal["exact", "interior point", "level method", "stopped"]


@dataclass(frozen=True, eq=False)
class TangentProgram:
    """min ||w|| s.t. J w >= L, at parameters of smallest margin 1.

    Attributes
    ----------
    gradients : MarginGradients
        The margins and their gradients.
    theta : Tensor of shape (P,)
        Parameters of smallest margin 1.
    degree : float
        L.
    norm : ParameterNorm
        The geometry.
    margins : ndarray of shape (n,)
        Margins at theta.
    scale : float
        The module's own parameters over theta.
    """

    gradients: MarginGradients
    theta: Tensor
    degree: float
    norm: tensors.ParameterNorm
    margins: Array
    scale: float = 1.0

    @cached_property
    def size(self) -> float:
        """||theta||."""
        return self.norm.value(self.gradients.parameters(self.theta))

    @property
    def normalised_margin(self) -> float:
        """1 / ||theta||^L; 0 or inf where that is beyond float64."""
        with np.errstate(over="ignore", divide="ignore"):
            return float(np.float64(self.size) ** -self.degree)

    @property
    def scales(self) -> dict[str, float]:
        """Scale of each tensor in the norm; see `norms.tensors`."""
        unit = self.norm.unit if isinstance(self.norm, tensors.ComposedNorm) else lambda name: 1.0
        return {name: unit(name) for name in self.gradients.shapes}

    @cached_property
    def units(self) -> Tensor:
        """The same, of each parameter (P,)."""
        scales, shapes = self.scales, self.gradients.shapes
        return self.gradients.flat(
            {k: torch.full(shape, scales[k]).to(self.theta) for k, shape in shapes.items()}
        )

    def slopes(self, direction: Tensor) -> Array:
        """J w (n,) of a direction w (P,)."""
        return self.gradients.slopes(self.theta, direction)

    def judge(self, weights: Array, v: Tensor | None = None) -> Multipliers:
        """Scale given weights lambda >= 0 (n,), not all 0, and compute the bound they prove.

        v is J' lambda, where it is known.
        """
        v = self.gradients.combine(self.theta, weights) if v is None else v
        size = self.norm.dual(self.gradients.parameters(v))
        lower = self.degree * float(weights.sum()) / size if size > 0 else 0.0
        scale = lower / size if size > 0 else 0.0  # the square of a size may be 0
        scale = scale if np.isfinite(scale) else 1.0  # float64 does not hold them at that scale
        bounds = lower, self.size
        return Multipliers(self, scale * weights, scale * v, *bounds, self.theta, "exact")

    def with_direction(self, found: Multipliers, w: Tensor, slopes: Array) -> Multipliers:
        """Put a feasible multiple of w beside the multipliers, if its norm is less than theta's."""
        least = float(slopes.min())
        if least <= 0:
            return found
        feasible = (self.degree / least) * w
        upper = self.norm.value(self.gradients.parameters(feasible))
        return replace(found, upper=upper, direction=feasible) if upper < found.upper else found


@dataclass(frozen=True, eq=False)
class Multipliers:
    """Multipliers, and the bounds on the optimum of the tangent program that they prove.

    Attributes
    ----------
    program : TangentProgram
        The tangent program.
    weights : ndarray of shape (n,)
        lambda >= 0, scaled so that ||v||_*^2 = L sum(lambda), where the KKT gap is least.
    combination : Tensor of shape (P,)
        v = J' lambda.
    lower : float
        L sum(lambda) / ||v||_* = ||v||_*, a lower bound on the optimum.
    upper : float
        Norm of a feasible w: an upper bound; that of theta where nothing better is known.
    direction : Tensor of shape (P,)
        That w, with J w >= L.
    method : {"exact", "interior point", "level method", "stopped"}
        How they were found. "exact" is the best there is, to rounding or a solver's 1e-10;
        "stopped" is whatever was known when the time was up.
    """

    program: TangentProgram
    weights: Array
    combination: Tensor
    lower: float
    upper: float
    direction: Tensor
    method: Method

    def raised(self, found: Multipliers) -> Multipliers:
        """Take over weights that prove a higher lower bound; the upper bound stays."""
        if found.lower <= self.lower:
            return self
        return replace(found, upper=self.upper, direction=self.direction, method=self.method)

    @property
    def gap(self) -> float:
        """Relative KKT gap of these multipliers, in [0, 1]."""
        return kkt_gap(self.lower, self.program.size)

    @property
    def gap_lower(self) -> float:
        """A lower bound on the gap of the best multipliers there are."""
        if self.method == "exact":
            return self.gap
        return min(self.gap, kkt_gap(self.upper, self.program.size))


def kkt_gap(lower: float, size: float) -> float:
    """Relative KKT gap 1 - (lower / ||theta||)^2, in [0, 1], of a lower bound and ||theta||."""
    return min(1.0, max(0.0, 1.0 - (lower / size) ** 2))


def accuracy(gap: float, known: float) -> float:
    """To what a gap is to be known: as asked, or to a tenth of itself if that is less."""
    return max(min(known, SHARE_KNOWN * gap), LEAST_KNOWN)


def at_margin_1(theta: Tensor, degree: float, min_margin: float) -> Tensor:
    """Scale parameters theta (P,) of smallest margin ``min_margin`` > 0 to smallest margin 1.

    ``degree`` is L: margins of parameters scaled by c are c^L times as large.
    """
    return theta * min_margin ** (-1.0 / degree)


def best_multipliers(
    tangent: TangentProgram,
    *,
    seconds: float = SECONDS,
    starts: Sequence[Array] | None = None,
    deadline: Deadline = NEVER,
    known: float | None = None,
) -> Multipliers:
    """Find the multipliers of least KKT gap.

    Parameters
    ----------
    tangent : TangentProgram
        The module at smallest margin 1, and the geometry.
    seconds : float
        Limit on the time of the search in norms other than l2, where no ``deadline`` is sooner.
    starts : sequence of ndarray of shape (n,)
        Weights from the best of which the level method goes on, so that what it finds is no worse
        than any; by default those of the loss, of all temperatures, and the best ones in l2.
    deadline : Deadline
        When to end in any case, with the bounds so far. A step of the search is not begun where the
        last one took longer than what is left; where nothing is left, or less than `PASSES` passes
        through the module take, the bounds are those of the start, or of the loss's weights.
    known : float, optional
        The search ends where the gap is known to this, or to a tenth of itself if that is less. By
        default where it is known exactly in l2, to `KNOWN` otherwise.
    """
    kind = tensors.up_to_scales(tangent.norm)
    if deadline.end < np.inf:
        began = time.perf_counter()
        weights = loss_weights(tangent.margins, tangent.gradients.rivals)
        first = tangent.judge(weights if starts is None else starts[0])
        took = time.perf_counter() - began
        if not deadline.allows(PASSES * took):
            tempered = tempered_weights(tangent.margins, tangent.gradients.rivals)
            judged = [first, *_judged(tangent, tempered, deadline, took)]
            return replace(max(judged, key=lambda found: found.lower), method="stopped")
    if kind == "l2":
        return _in_l2(tangent, None if starts is None else starts[0], deadline, known)
    stopped, own = list[Multipliers](), deadline.within(seconds)
    within, size = KNOWN if known is None else known, len(tangent.theta)
    most, n = LINEAR_ENTRIES.get(kind, CONIC_ENTRIES), len(tangent.margins)
    few = min(n, LEAST_PAIRS) * size <= most
    balls = has_balls(tangent.norm, tangent.gradients.shapes)
    try:
        if balls and min(n, FEWEST_ROWS) * size <= ROW_ENTRIES:
            inside = _in_balls(tangent, own, known)
            close = inside.gap - inside.gap_lower <= accuracy(inside.gap, within)
            ended = own.passed or inside.method in ("exact", "stopped")
            if ended or (close and (known is not None or not few)):
                return _ended_by(deadline, own, inside, "interior point")
            stopped.append(inside)
        if few:
            limit = own if kind == "l1" else deadline
            found = _on_working_sets(tangent, limit.sooner(EXACT_SHARE), most // size)
            if found.method == "exact":
                return found
            stopped.append(found)
    except (SolveError, ValueError, TimeoutError):
        pass  # no solver takes the norm, or none succeeds in time
    if starts is None:
        in_l2 = replace(tangent, norm=tensors.PARAMETER_NORMS["l2"])
        near = _in_l2(in_l2, None, own.sooner(EXACT_SHARE))
        starts = [near.weights, *tempered_weights(tangent.margins, tangent.gradients.rivals)]
    judged = _judged(tangent, starts, own) or [tangent.judge(starts[0])]
    found = _by_levels([*judged, *stopped], own, within)
    return _ended_by(deadline, own, found, "level method")


def _ended_by(deadline: Deadline, own: Deadline, found: Multipliers, method: Method) -> Multipliers:
    """Say whether the caller's deadline has ended a search, or the search's own, or neither."""
    if found.method != "stopped" and not deadline.passed:
        return found
    if found.method == "exact":
        return found
    return replace(found, method="stopped" if deadline.end <= own.end else method)


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


def loss_weights(margins: Array, rivals: int, temperature: float = 1.0) -> Array:
    """Weights -dL/dq of the logistic loss, or of cross-entropy, up to a factor; the largest is 1.

    Parameters
    ----------
    margins : ndarray of shape (n,)
        Margins, those of a sample together.
    rivals : int
        Their number a sample.
    temperature : float
        What the margins are multiplied with first.
    """
    return weights_of_margins(temperature * margins.reshape(-1, rivals)).reshape(-1)


def tempered_weights(margins: Array, rivals: int) -> list[Array]:
    """Return the `loss_weights` of all temperatures."""
    return [loss_weights(margins, rivals, s) for s in TEMPERATURES]


# --- in the balls of tensors ---------------------------------------------------------------------


def _in_balls(tangent: TangentProgram, deadline: Deadline, known: float | None) -> Multipliers:
    """By an interior point on the pairs that w comes near to, those of the smallest margins first.

    Raises
    ------
    ValueError
        The gradients of single samples are not to be had.
    TimeoutError
        Not even the first of them are to be had in time.
    """
    norm, units, degree = cast("tensors.ComposedNorm", tangent.norm), tangent.units, tangent.degree
    pairs = np.arange(len(tangent.margins)) % len(tangent.gradients.pairs)
    chosen = np.argsort(tangent.margins[: len(tangent.gradients.pairs)], kind="stable")[:FIRST_ROWS]

    def rows(places: NDArray[np.int64]) -> Tensor:
        return torch.tensor(_rows_in_time(tangent, places, deadline)).to(units) * units

    def judged(J: Tensor, weights: Tensor) -> Multipliers:
        table = np.zeros(len(tangent.margins))
        table[chosen] = weights.cpu().numpy()
        return tangent.judge(table, (J.T @ weights) / units)

    J = rows(chosen)
    best = replace(judged(J, torch.ones_like(J[:, 0])), method="interior point")
    path = CentralPath(norm, tangent.gradients.shapes, J, degree / best.lower)
    half, excess, mu, waited = deadline.sooner(EXACT_SHARE), np.inf, np.inf, 0
    took = 0.0
    for _ in range(MOST_NEWTON):
        if not deadline.allows(took):
            best = replace(best, method="stopped")
            break
        began = time.perf_counter()
        try:
            path.advance()
        except (Breakdown, torch.linalg.LinAlgError):  # type: ignore[attr-defined]
            break
        w = units * path.w
        slopes = tangent.slopes(w)
        best = tangent.with_direction(best.raised(judged(path.J, path.weights)), w, slopes)
        asked = 0.0 if known is None else accuracy(best.gap, known)
        last, excess = (excess, mu), best.upper / best.lower - 1.0
        mu = path.mu
        closer = excess < last[0] / 2.0 if excess <= LARGEST_GAP else 0.0 < mu < 0.9 * last[1]
        waited = 0 if closer else waited + 1
        done = excess <= PROGRAM_TOLERANCE or waited == PATIENCE
        width = best.gap - best.gap_lower
        if done or width <= asked or deadline.passed or (half.passed and width > WIDE):
            break
        near = path.m + NEAR * float(np.median(slopes[chosen] - path.m))
        slopes[chosen] = np.inf
        joining = worst_rows(slopes, pairs, near, int(GROWTH * len(chosen)) + 1)
        if (len(chosen) + len(joining)) * len(units) > ROW_ENTRIES:
            break
        if len(joining):
            try:
                path.join(rows(joining))
            except TimeoutError:
                best = replace(best, method="stopped")
                break
            chosen = np.append(chosen, joining)
        took = time.perf_counter() - began
    agree = best.upper <= (1.0 + LARGEST_GAP) * best.lower
    return replace(best, method="exact") if agree else best


def _rows_in_time(tangent: TangentProgram, places: NDArray[np.int64], deadline: Deadline) -> Array:
    """J (m, P) of some pairs, of a few of them at a time.

    Raises
    ------
    TimeoutError
        The next ones would take longer than what is left, by the time that the last ones took.
    """
    parts, took = list[Array](), 0.0
    for start in range(0, len(places), ROWS_AT_A_TIME):
        if not deadline.allows(took):
            raise TimeoutError("the time is up")
        began = time.perf_counter()
        few = places[start : start + ROWS_AT_A_TIME]
        parts.append(tangent.gradients.rows(tangent.theta, few))
        took = time.perf_counter() - began
    return np.concatenate(parts)


# --- exactly, on working sets --------------------------------------------------------------------


def _on_working_sets(tangent: TangentProgram, deadline: Deadline, most: int) -> Multipliers:
    """Solve on the pairs of the smallest margins, to which those join whose constraint w breaks.

    ``most`` is the size of the first set, and the number that joins at a time, if not WORKING_SET.
    """
    took = 0.0

    def solved(chosen: NDArray[np.int64]) -> tuple[Multipliers, Tensor, Array]:
        nonlocal took
        began = time.perf_counter()
        weights = np.zeros(len(tangent.margins))
        weights[chosen], w = _program(tangent, chosen, deadline)
        found = tangent.judge(weights), w, tangent.slopes(w)
        took = time.perf_counter() - began
        return found

    found, w, slopes = solve_on_some(
        solved,
        lambda found: found[2],
        tangent.margins,
        below=tangent.degree * (1.0 - CONSTRAINT_TOLERANCE),
        count=min(WORKING_SET, most),
        fits=lambda size: deadline.allows(took),
    )
    if not deadline.allows(took):
        found = replace(found, method="stopped")
    return tangent.with_direction(found, w, slopes)


def _in_l2(
    tangent: TangentProgram, start: Array | None, deadline: Deadline, known: float | None = None
) -> Multipliers:
    """Best multipliers in l2, where w = S^2 J' lambda, from the pairs of weight at the start.

    Of a working set J S^2 J' is held. Pairs whose weight is next to none beside the slack of their
    constraints leave it as long as the bound rises. Of several rows of one pair (`kinks.Pieces`),
    nearly the same, the worst one joins first, and few at a time. Where the gap need not be known
    exactly, directions between the best one and a new one are tried, too: the former has slack
    where the latter breaks a constraint.
    """
    scale, tolerance = tangent.scales, CONSTRAINT_TOLERANCE
    pairs = np.arange(len(tangent.margins)) % len(tangent.gradients.pairs)
    gram, chosen, kept = np.zeros((0, 0)), np.zeros(0, dtype=np.int64), np.zeros(0, dtype=bool)
    if start is None:
        start = np.zeros(len(tangent.margins))
        start[np.argsort(tangent.margins, kind="stable")[:WORKING_SET]] = 1.0
    joining, best = np.flatnonzero(start), replace(tangent.judge(start), lower=0.0)
    a, along = np.zeros(0), tangent.degree * tangent.margins
    while True:
        began = time.perf_counter()
        size, chosen = int(kept.sum()), np.append(chosen[kept], joining)
        added = tangent.gradients.gram(tangent.theta, joining, scale, chosen)
        gram = np.block([[gram[kept][:, kept], added[:, :size].T], [added]])
        guess = np.append(a[kept], np.ones(len(joining)))
        a = nonnegative_squares(gram, guess, deadline, tolerance=tolerance * PROGRAM_SHARE)
        weights = np.zeros(len(tangent.margins))
        weights[chosen] = a
        found = tangent.judge(weights)
        w = tangent.units**2 * found.combination
        slopes = tangent.slopes(w)
        rose = found.lower > (1.0 + CONSTRAINT_TOLERANCE) * best.lower
        best = best.raised(found)
        direction, its_slopes = best.direction, along
        for share in BLENDS if known is not None else (1.0,):
            mixed = share * slopes + (1.0 - share) * its_slopes
            blend = tangent.with_direction(best, share * w + (1.0 - share) * direction, mixed)
            if blend is not best:
                best, along = blend, (tangent.degree / mixed.min()) * mixed
        slack, slopes[chosen] = slopes[chosen] - tangent.degree, np.inf
        enough = False
        if known is not None:
            asked = accuracy(best.gap, known)
            enough = best.gap - kkt_gap(best.upper, tangent.size) <= asked
            tolerance = ROUGH_SHARE * asked
        least = tangent.degree * (1.0 - tolerance)
        most = min(WORKING_SET, ROWS_OF_A_PAIR * len(np.unique(pairs[slopes < least])))
        joining = worst_rows(slopes, pairs, least, most)
        late = not deadline.allows(time.perf_counter() - began)
        if enough or not len(joining) or late:
            agree = best.upper <= (1.0 + max(2.0 * tolerance, LARGEST_GAP)) * best.lower
            return replace(best, method="exact" if agree else "stopped")
        kept = (found.weights[chosen] * np.diag(gram) >= slack) | (not rose)


def _program(
    tangent: TangentProgram, chosen: NDArray[np.int64], deadline: Deadline
) -> tuple[Array, Tensor]:
    """Best multipliers in any norm that a solver takes, and w."""
    kind = tensors.up_to_scales(tangent.norm)
    rows = _rows_in_time(tangent, chosen, deadline)
    deadline.check()
    norm: Any = FlatNorm(tangent.norm, tangent.gradients)
    if kind in LINEAR_ENTRIES:  # of theta over its scales, a norm that linear programs take
        norm, rows = kind, rows * tangent.units.cpu().numpy()
    problem = max_margin(rows, np.ones(len(rows)), norm)
    solution = solve(problem, tol=PROGRAM_TOLERANCE, max_seconds=deadline.left)
    if not solution.certificate.gap <= LARGEST_GAP:
        raise SolveError(solution)
    w = tangent.degree * torch.tensor(solution.coef.reshape(-1)).to(tangent.theta)
    return np.maximum(solution.alpha, 0.0), tangent.units * w if kind in LINEAR_ENTRIES else w


@dataclass(frozen=True, eq=False)
class FlatNorm:
    """A norm of parameters as one of coefficients: all of them in a row."""

    norm: tensors.ParameterNorm
    gradients: MarginGradients

    def value(self, coef: Array) -> float:
        """||theta|| of a row (P,)."""
        return self.norm.value(self._parameters(coef))

    def dual(self, V: Array) -> float:
        """||v||_* of a row (P,)."""
        return self.norm.dual(self._parameters(V))

    def atom(self, zeta: Any, shape: tuple[int, ...], cp: Any) -> Any:
        """Return the norm of an expression (P,) in CVXPY."""
        shapes, parts, start = self.gradients.shapes, {}, 0
        for name, size in shapes.items():
            parts[name] = zeta[start : start + size.numel()]
            start += size.numel()
        return self.norm.atom(parts, shapes, cp)

    def _parameters(self, coef: Array) -> dict[str, Tensor]:
        return self.gradients.parameters(torch.tensor(coef.reshape(-1)))


# --- the level method ----------------------------------------------------------------------------


def _by_levels(starts: Sequence[Multipliers], deadline: Deadline, known: float) -> Multipliers:
    """Improve the best of some multipliers while there is time; results are bounds at any time.

    The bounds on phi are L over those on the optimum of the tangent program.
    """
    least = min(starts, key=lambda found: found.upper)
    best = max(starts, key=lambda found: found.lower)
    best = replace(best, upper=least.upper, direction=least.direction, method="level method")
    tangent = best.program
    degree, size = tangent.degree, tangent.size
    # Pairs of weight 0 would keep it: all are given some, those of the smallest margins most.
    spread = loss_weights(tangent.margins, tangent.gradients.rivals, SPREAD_TEMPERATURE)
    spread *= SPREAD / spread.sum()
    # theta itself is the first cut: J theta = L q.
    cuts = _Cuts(degree * tangent.margins[None] / size, tangent.theta[None] / size, np.zeros(1))
    cuts = cuts.with_(best)
    centre = best.weights / best.weights.sum() + spread
    took = 0.0
    for step in range(MOST_STEPS):
        if best.gap - best.gap_lower <= accuracy(best.gap, known):
            break
        if not deadline.allows(took):
            return replace(best, method="stopped")
        began = time.perf_counter()
        lower, upper = degree / best.upper, degree / best.lower
        level = lower + LEVEL * (upper - lower)
        weights, cuts = cuts.project(np.log(np.maximum(centre, SMALLEST)), level)
        for shares in (cuts.shares, *([] if step % LINEAR_EVERY else [cuts.best_shares(centre)])):
            slopes = shares @ cuts.slopes
            if slopes.min() * best.upper > degree:
                along = torch.tensor(shares).to(tangent.theta) @ cuts.directions
                best = tangent.with_direction(best, along, slopes)
        found = tangent.judge(weights)
        cuts = cuts.with_(found)
        if found.lower > best.lower:
            spread = spread / 2.0
            best, centre = best.raised(found), weights + spread
        took = time.perf_counter() - began
    return best


@dataclass(frozen=True, eq=False)
class _Cuts:
    """Cuts phi(lambda) >= <J w_t, lambda>.

    Slopes J w_t (T, n), directions w_t (T, P), and the multipliers mu_t (T,) of the last step.
    """

    slopes: Array
    directions: Tensor
    mu: Array

    def with_(self, found: Multipliers) -> _Cuts:
        """Add the cut at some weights; of too many, leave out the one of least multiplier."""
        program, v = found.program, found.combination
        # Its direction alone counts, which numbers near the least of float64 would spoil.
        parts = program.gradients.parameters(v / (v.abs().max() or 1.0))
        direction = program.gradients.flat(program.norm.maximiser(parts))
        keep = np.arange(len(self.slopes))
        if len(keep) >= max(10, min(MOST_CUTS, CUT_ENTRIES // len(direction))):
            keep = np.delete(keep, self.mu.argmin())
        return _Cuts(
            np.vstack([self.slopes[keep], program.slopes(direction)]),
            torch.cat([self.directions[torch.tensor(keep)], direction[None]]),
            np.append(self.mu[keep], 0.0),
        )

    @property
    def shares(self) -> Array:
        """Shares (T,) of the cuts in the last step: any shares prove a lower bound."""
        return self.mu / (self.mu.sum() or 1.0)

    def best_shares(self, centre: Array) -> Array:
        """Return the shares (T,) of the cuts that prove most, by a linear program.

        Over pairs of some weight at the centre. Over all of them the shares prove what they prove.
        """
        slopes = self.slopes[:, centre > SMALLEST_WEIGHT * centre.max()]
        count, width = slopes.shape
        found = linprog(
            np.append(np.zeros(width), 1.0),
            A_ub=np.hstack([slopes, -np.ones((count, 1))]),
            b_ub=np.zeros(count),
            A_eq=np.append(np.ones(width), 0.0)[None],
            b_eq=[1.0],
            bounds=[*[(0.0, None)] * width, (None, None)],
        )
        if found.status != 0:
            return np.full(count, 1.0 / count)
        shares = np.maximum(-found.ineqlin.marginals, 0.0)
        return np.asarray(shares / (shares.sum() or 1.0))

    def project(self, log_centre: Array, level: float) -> tuple[Array, _Cuts]:
        """Return weights (n,), nearest to the centre with all cuts at most at the level.

        The weights solve  max_mu -log sum_n exp(log_centre_n - <mu, slopes_n>) - level sum(mu).
        """
        # Pairs of next to no weight at the centre get none, so they need not be in the arithmetic.
        near = log_centre > log_centre.max() + math.log(SMALLEST_WEIGHT)
        slopes, start = self.slopes[:, near] / max(level, 1e-300), log_centre[near]

        def dual(mu: Array) -> tuple[float, Array]:
            logarithms = start - mu @ slopes
            largest = logarithms.max()
            weights = np.exp(logarithms - largest)
            total = weights.sum()
            return float(np.log(total) + largest + mu.sum()), 1.0 - slopes @ (weights / total)

        bounds = [(0.0, LARGEST_MU)] * len(slopes)
        options = {"maxiter": PROJECTION_STEPS}
        found = minimize(dual, self.mu, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        mu = np.asarray(found.x)
        weights = np.zeros(len(log_centre))
        weights[near] = softmax(start - mu @ slopes)
        return weights, replace(self, mu=mu)
