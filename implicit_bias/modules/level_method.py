r"""A level method for tangent problems of many gradients, or in a norm that no solver takes.

On the simplex of multipliers, phi(lambda) = ||J' lambda||_* is to be least: L / phi is the lower
bound (`tangent_program`). Each evaluation, a backward pass and one through it, gives a direction
w_t = maximiser(J' lambda_t) of norm 1 and the cut

    (1)   phi(lambda) >= <J w_t, lambda>.

The next lambda is the nearest to the best one, in relative entropy, at which all cuts are below a
level between the bounds,

    (2)   lambda ~ centre * exp(-sum_t mu_t J w_t),   mu >= 0 maximizing a smooth concave function
                                                      of T numbers.

For fractions mu_t of sum 1, w = sum_t mu_t w_t has norm 1 at most, so min(J w) is a lower bound on
phi and, where it is positive, L w / min(J w) is feasible in the tangent problem: an upper bound.
Each step has such fractions, the mu of (2). The fractions that give the highest bound are the
solution of a linear program, which takes longer, and is solved now and then.

Source: Ben-Tal and Nemirovski (2005), "Non-Euclidean restricted memory level method for large-scale
convex optimization".
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.optimize import linprog, minimize
from scipy.special import softmax
from torch import Tensor

from implicit_bias.base.deadline import Deadline
from implicit_bias.base.validation import Array
from implicit_bias.modules.tangent_program import Multipliers, loss_weights


@dataclass(frozen=True, kw_only=True)
class LevelMethod:
    """Improves multipliers step by step, each with bounds.

    Parameters
    ----------
    level : float
        The level is at this fraction of the way from the lower to the upper bound on phi.
    most_cuts : int
        Most cuts that are kept.
    cut_entries : int
        Most entries of the directions of all cuts together; ten cuts are kept in any case.
    linear_every : int
        Steps from one linear program to the next.
    most_steps : int
        Steps at most.
    all_pairs : float
        The step (2) leaves a weight of 0 as it is. So the centre is the best multipliers and some
        weight of all pairs, together this fraction of theirs, which is halved after each better
        lambda.
    temperature : float
        Half of the weight of all pairs is in proportion to the loss's weights at this temperature,
        which is next to 0 on all but the smallest margins; the other half is the same on each.
    smallest_weight : float
        Pairs of a smaller fraction of the largest weight are left out of the arithmetic of a step.
    largest_mu : float
        Bound on mu times the level, in (2).
    projection_steps : int
        Iterations for mu.
    """

    level: float = 0.7
    most_cuts: int = 100
    cut_entries: int = 2**25
    linear_every: int = 10
    most_steps: int = 5000
    all_pairs: float = 0.1
    temperature: float = 10.0
    smallest_weight: float = 1e-9
    largest_mu: float = 1e6
    projection_steps: int = 200

    def improve(
        self,
        starts: Sequence[Multipliers],
        enough: Callable[[Multipliers], bool],
        deadline: Deadline,
    ) -> Multipliers:
        """Improve the best of some multipliers; what is found is no worse than any of them.

        Parameters
        ----------
        starts : sequence of Multipliers
            For one tangent problem; at least one.
        enough : callable
            Whether the bounds are near enough to each other.
        deadline : Deadline
            No step begins that would end after it, if it took as long as the last one.
        """
        # Both bounds are on the same optimum, so they may come from two of the starts.
        shortest = min(starts, key=lambda found: found.upper)
        best = max(starts, key=lambda found: found.lower)
        best = replace(
            best, upper=shortest.upper, direction=shortest.direction, method="level method"
        )
        program = best.program
        degree = program.degree
        size = program.size
        for_all = loss_weights(program.margins, program.function.rivals, self.temperature)
        for_all = 0.5 * for_all / for_all.sum() + 0.5 / len(for_all)
        for_all *= self.all_pairs

        # theta itself is the first cut: J theta = L q.
        cuts = _Cuts(
            slopes=degree * program.margins[None] / size,
            directions=program.theta[None] / size,
            mu=np.zeros(1),
        )
        cuts = self._with_cut(cuts, best)
        centre = best.weights / best.weights.sum() + for_all
        took = 0.0
        for step in range(self.most_steps):
            if enough(best):
                break
            if not deadline.allows(took):
                return replace(best, method="stopped")
            began = time.perf_counter()

            # --- the next lambda (2); the optimum is L over the least phi, so an upper bound on it
            # gives a lower one on phi
            lower = degree / best.upper
            upper = degree / best.lower
            level = lower + self.level * (upper - lower)
            weights, cuts = self._project(cuts, centre, level)

            # --- a direction, by the fractions of (2) and now and then by the best ones
            candidates = [cuts.mu / (cuts.mu.sum() or 1.0)]
            if step % self.linear_every == 0:
                candidates.append(self._best_fractions(cuts, centre))
            for fractions in candidates:
                slopes = fractions @ cuts.slopes
                # Only if L / min(J w) is less than the upper bound is w worth its norm.
                if slopes.min() * best.upper > degree:
                    w = torch.tensor(fractions).to(program.theta) @ cuts.directions
                    best = program.with_better_upper(best, w, slopes)

            # --- the bound and the cut (1) of that lambda
            found = program.bound_by(weights)
            cuts = self._with_cut(cuts, found)
            if found.lower > best.lower:
                for_all = for_all / 2.0
                best = best.with_better_lower(found)
                centre = weights + for_all
            took = time.perf_counter() - began
        return best

    def _with_cut(self, cuts: _Cuts, found: Multipliers) -> _Cuts:
        """Add the cut at some weights; if there are too many, leave out the one of least mu."""
        program = found.program
        v = found.combination
        # The maximiser depends on the direction of v alone. Scaled to largest entry 1, v has no
        # entries so small that float64 rounds them.
        parts = program.function.parameters(v / (v.abs().max() or 1.0))
        w = program.function.flat(program.norm.maximiser(parts))
        keep = np.arange(len(cuts.mu))
        if len(keep) >= max(10, min(self.most_cuts, self.cut_entries // len(w))):
            keep = np.delete(keep, cuts.mu.argmin())
        return _Cuts(
            slopes=np.vstack([cuts.slopes[keep], program.jvp(w)]),
            directions=torch.cat([cuts.directions[torch.tensor(keep)], w[None]]),
            mu=np.append(cuts.mu[keep], 0.0),
        )

    def _best_fractions(self, cuts: _Cuts, centre: Array) -> Array:
        """Return the fractions (T,) of the cuts that give the highest bound, by a linear program.

        It has the pairs of positive weight at the centre alone. That makes the fractions less good,
        not the bound wrong, which the caller computes over all pairs.
        """
        slopes = cuts.slopes[:, centre > self.smallest_weight * centre.max()]
        count, width = slopes.shape
        # min t s.t. <J w_t, lambda> <= t, sum(lambda) = 1: the fractions are the multipliers.
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
        fractions = np.maximum(-found.ineqlin.marginals, 0.0)
        return np.asarray(fractions / (fractions.sum() or 1.0))

    def _project(self, cuts: _Cuts, centre: Array, level: float) -> tuple[Array, _Cuts]:
        """Return weights (n,), nearest to the centre with all cuts at most at the level.

        mu solves  max -log sum_n exp(log centre_n - <mu, slopes_n>) - level sum(mu).

        What is solved for, and kept in the cuts, is level mu, of order 1 whatever the level is.
        """
        tiny = np.finfo(float).tiny  # instead of 0, for logarithms and quotients
        log_centre = np.log(np.maximum(centre, tiny))
        near = log_centre > log_centre.max() + math.log(self.smallest_weight)
        slopes = cuts.slopes[:, near] / max(level, tiny)
        start = log_centre[near]

        def dual(mu: Array) -> tuple[float, Array]:
            """Return minus that function, and its gradient, of level mu."""
            logarithms = start - mu @ slopes
            largest = logarithms.max()
            weights = np.exp(logarithms - largest)
            total = weights.sum()
            value = float(np.log(total) + largest + mu.sum())
            return value, 1.0 - slopes @ (weights / total)

        found = minimize(
            dual,
            cuts.mu,
            jac=True,
            method="L-BFGS-B",
            bounds=[(0.0, self.largest_mu)] * len(slopes),
            options={"maxiter": self.projection_steps},
        )
        mu = np.asarray(found.x)
        weights = np.zeros(len(centre))
        weights[near] = softmax(start - mu @ slopes)
        return weights, replace(cuts, mu=mu)


@dataclass(frozen=True, eq=False)
class _Cuts:
    """Cuts (1): slopes J w_t (T, n), directions w_t (T, P), and mu (T,) of the last step."""

    slopes: Array
    directions: Tensor
    mu: Array
