r"""The KKT gap of weights that are beside kinks, where pieces of a piecewise smooth module meet.

Training a ReLU network leads, in direction, to weights at which kinks of units run through samples.
There a margin has no gradient, and a KKT point asks for one element of Clarke's subdifferential a
sample: the convex hull of the gradients on all sides. On the way the weights are beside the kinks.
torch differentiates the side that they are on, which may be another one after each step, and the
gap of these gradients alone need not fall at all, however near the weights are.

So gradients at points within a radius count, too, as in Goldstein's subdifferential,

    v = sum_n lambda_n g_n,     g_n in conv{ r_kn grad q_n(theta_k) : k = 0, ..., m },

    theta_0 = theta,   |theta_k - theta| <= radius |theta|  entry by entry,
    r_kn = L q_n(theta) / <grad q_n(theta_k), theta>,

which is the tangent problem of `tangent_program` with m + 1 rows a pair. The factors r, near 1, let
Euler's identity hold at theta, so that the gap is 0 where v is parallel to theta and only samples
of the smallest margin have multipliers. A gap below epsilon makes theta an approximate KKT point:
to epsilon, by gradients at points within the radius (Dutta et al. 2013). The points are drawn, so
the gap is an upper bound on that of all points within the radius.

Source: Lyu and Li (2020), appendix C, for KKT points by Clarke's subdifferential, and approximate
ones; Dutta, Deb, Tulshyan, Arora (2013), "Approximate KKT points and a proximity measure for
termination"; Burke, Lewis, Overton (2005) for drawn gradients.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from implicit_bias.base.deadline import NEVER, Deadline
from implicit_bias.base.validation import Array
from implicit_bias.modules import multipliers
from implicit_bias.modules.layer_products import LayerProducts
from implicit_bias.modules.margins import Margins, joined
from implicit_bias.modules.tangent_program import Multipliers, TangentProgram


class Pieces:
    """Gradients of the same margins at several points, as rows of one J, point by point.

    They are the `Gradients` of a tangent problem. ``theta`` of each method is ignored, as each row
    has a point of its own.

    Parameters
    ----------
    function : Margins
        The margins, n of them.
    points : sequence of Tensor of shape (P,)
        Where the gradients are taken.
    factors : ndarray of shape (m, n)
        r of the head, with which each row is multiplied.
    """

    def __init__(self, function: Margins, points: list[Tensor], factors: Array) -> None:
        self.function = function
        self.points = points
        self.factors = factors
        # Rows whose layer products are kept: a working set asks for the same ones in each round.
        self.held = torch.zeros(0, dtype=torch.int64, device=function.theta.device)
        self.products = dict[str, LayerProducts]()

    def vjp(self, theta: Tensor, weights: Array) -> Tensor:
        """J' lambda, shape (P,)."""
        total = torch.zeros_like(theta)
        of_points = self.factors * weights.reshape(self.factors.shape)
        for point, of_point in zip(self.points, of_points, strict=True):
            if of_point.any():
                total += self.function.vjp(point, of_point)
        return total

    def jvp(self, theta: Tensor, direction: Tensor) -> Array:
        """J w, shape (m n,), of a direction w (P,)."""
        found = np.stack([self.function.jvp(point, direction) for point in self.points])
        return (self.factors * found).reshape(-1)

    def rows(self, theta: Tensor, chosen: NDArray[np.int64]) -> Array:
        """Return some rows of J, (m, P)."""
        places = torch.tensor(chosen, device=theta.device)
        found = np.empty((len(chosen), len(theta)))
        for point, here, pairs in self._by_points(places):
            found[here.cpu().numpy()] = self.function.rows(point, pairs.cpu().numpy())
        return self._factors(places).cpu().numpy()[:, None] * found

    def gram(
        self,
        theta: Tensor,
        chosen: NDArray[np.int64],
        scale: Mapping[str, float] | None = None,
        others: NDArray[np.int64] | None = None,
        deadline: Deadline = NEVER,
    ) -> Array:
        """J S^2 J' (m, k) of some rows and others, as `Margins.gram`."""
        return self.function.inner_products(
            chosen, others, self._layer_products, self._gradients, scale, deadline
        )

    def _gradients(self, places: Tensor, scales: Mapping[str, float]) -> Tensor:
        """Rows (m, P') of J in the parameters named in ``scales``, times these."""
        size = sum(self.function.shapes[name].numel() for name in scales)
        found = self.function.theta.new_empty(len(places), size)
        for point, here, pairs in self._by_points(places):
            found[here] = self.function.gradients(point, pairs, scales)
        return found * self._factors(places)[:, None]

    def _layer_products(self, places: Tensor, deadline: Deadline) -> dict[str, LayerProducts]:
        """Rows of J as sums of outer products, by parameter; those that are new are kept."""
        new = torch.unique(places[~torch.isin(places, self.held)])
        parts = [self.products] if len(self.held) else []
        for point, _, pairs in self._by_points(new):
            parts.append(self.function.layer_products(point, pairs, deadline))
        if len(new):
            self.held = torch.cat([self.held, new])
            self.products = joined(parts, torch.arange(len(self.held)))
        # Where each of the rows asked for is among those kept.
        rows = torch.nonzero(places[:, None] == self.held)[:, 1]
        factors = self._factors(places)
        return {name: held.of(rows).times(factors) for name, held in self.products.items()}

    def _by_points(self, places: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield each point, the places of its rows among those asked for, and their pairs."""
        n_pairs = self.factors.shape[1]
        for k in torch.unique(places // n_pairs).tolist():
            here = torch.nonzero(places // n_pairs == k)[:, 0]
            yield self.points[k], here, places[here] % n_pairs

    def _factors(self, places: Tensor) -> Tensor:
        """Return the factors r of some rows, (m,)."""
        return torch.as_tensor(self.factors).to(self.function.theta).reshape(-1)[places]


@dataclass(frozen=True, kw_only=True)
class KinkSearch:
    """The search for the gap across kinks, and what it may take.

    Parameters
    ----------
    radius : float
        Largest relative change of a weight.
    draws : int
        Points that are drawn.
    smooth : float
        There are kinks if a combination of gradients bends by more than this times the radius on
        the way to a point (`_bend`).
    slack : float
        A sample takes part if J w of one of its pairs is below this times L for the best w.
    smallest_weight : float
        A sample takes part, too, if a multiplier of it is above this fraction of the largest one.
    known : float
        The bounds on the gap may differ by this, or by a tenth of the gap if that is less: the
        points are random, so that more digits would say nothing.
    seconds : float
        Limit on the time of the search.
    share_of_drawing : float
        Fraction of the time before a deadline in which points are drawn. It is small, as each step
        of the search evaluates gradients at all points.
    most_parameters : int
        There is no search for modules of more parameters: it would keep too large rows.
    """

    radius: float = 1e-3
    draws: int = 16
    smooth: float = 10.0
    slack: float = 1.25
    smallest_weight: float = 1e-9
    known: float = 1e-2
    seconds: float = 3.0
    share_of_drawing: float = 0.25
    most_parameters: int = 2**17

    def gap(self, best: Multipliers, deadline: Deadline) -> float:
        """Find the gap across kinks; see `gap_across_kinks`."""
        parameters = len(best.combination)
        if best.gap <= self.radius or parameters > self.most_parameters or deadline.passed:
            return best.gap
        # --- the samples that count, with gradients at theta and at points drawn around it
        near = self._near(best)
        tangent = near.program
        points = [tangent.theta]
        factors = [np.ones(len(tangent.margins))]
        bends = False
        for point, factor in self._drawn(tangent, deadline.sooner(self.share_of_drawing)):
            bends = bends or _bend(near, point, factor) > self.smooth * self.radius
            points.append(point)
            factors.append(factor)
        # Where the gradients are smooth, those nearby are nearly those at theta.
        if not bends:
            return best.gap

        # --- the tangent problem with a row a pair and point, from the multipliers at theta
        pieces = Pieces(tangent.function, points, np.stack(factors))
        margins = np.tile(tangent.margins, len(points))
        weights = np.append(near.weights, np.zeros(len(margins) - len(near.weights)))
        search = multipliers.MultiplierSearch(seconds=self.seconds, known=self.known, exact=False)
        found = search.best(
            replace(tangent, other_gradients=pieces, margins=margins),
            [weights],
            deadline.within(self.seconds),
        )
        return min(best.gap, found.gap)

    def _near(self, best: Multipliers) -> Multipliers:
        """Restrict the multipliers to the samples that may have some across kinks.

        They are those that have some at theta, and those whose constraints are nearly active in the
        best direction, as a gradient nearby may break them.
        """
        tangent = best.program
        rivals = tangent.function.rivals
        near = tangent.jvp(best.direction) < self.slack * tangent.degree
        near |= best.weights > self.smallest_weight * best.weights.max()
        taken = near.reshape(-1, rivals).any(axis=1)
        pairs = np.repeat(taken, rivals)
        program = replace(
            tangent,
            function=tangent.function.of_samples(np.flatnonzero(taken)),
            margins=tangent.margins[pairs],
        )
        return replace(best, program=program, weights=best.weights[pairs])

    def _drawn(self, tangent: TangentProgram, deadline: Deadline) -> Iterator[tuple[Tensor, Array]]:
        """Draw points until the deadline, and yield them with their factors r (n,)."""
        generator = torch.Generator().manual_seed(0)
        at_theta = tangent.degree * tangent.margins
        took = 0.0
        for _ in range(self.draws):
            if not deadline.allows(took):
                return
            began = time.perf_counter()
            signs = torch.randint(0, 2, tangent.theta.shape, generator=generator)
            signs = signs.to(tangent.theta)
            point = tangent.theta * (1.0 + self.radius * (2.0 * signs - 1.0))
            slopes = tangent.function.jvp(point, tangent.theta)
            # r is positive only if <grad q_n(theta_k), theta> is, for all pairs n.
            if (slopes > 0).all():
                yield point, at_theta / slopes
            took = time.perf_counter() - began  # including the caller's work on the point


def gap_across_kinks(
    best: Multipliers,
    *,
    seconds: float = KinkSearch.seconds,
    deadline: Deadline = NEVER,
) -> float:
    """KKT gap with the gradients of points nearby, an upper bound; that of ``best`` without kinks.

    Parameters
    ----------
    best : Multipliers
        The best ones for the gradients at the weights.
    seconds : float
        Most that the search may take; out of time its bound so far is what is returned.
    deadline : Deadline
        When to end with the bound so far.

    Notes
    -----
    Of more than 2^17 parameters it is the gap of ``best``, too.
    """
    return KinkSearch(seconds=seconds).gap(best, deadline)


def _bend(best: Multipliers, point: Tensor, factor: Array) -> float:
    """How far J' lambda halfway to a point is from the mean of both ends, over its norm at theta.

    Where gradients are smooth that is of second order in the distance, even if they nearly cancel
    in J' lambda, so that it changes a lot. Where they jump it is half of the jump, wherever on the
    way that is.
    """
    # The factors r are 1 at theta, so halfway they are nearly (1 + r) / 2.
    tangent = best.program
    middle = (tangent.theta + point) / 2.0
    halfway = tangent.function.vjp(middle, (1.0 + factor) / 2.0 * best.weights)
    end = tangent.function.vjp(point, factor * best.weights)
    mean = (best.combination + end) / 2.0
    return float((halfway - mean).norm() / best.combination.norm())
