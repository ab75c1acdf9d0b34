r"""The KKT gap of weights that are beside kinks, where pieces of a piecewise smooth module meet.

Training a ReLU network leads, in direction, to weights at which kinks of units run through samples.
There a margin has no gradient, and a KKT point asks for one element of Clarke's subdifferential a
sample: the convex hull of the gradients on all sides. On the way the weights are beside the kinks.
torch differentiates the side that they are on, which may be another one after each step, and the
gap of these gradients alone need not fall at all, however near the weights are.

So gradients within a radius are let in, as in Goldstein's subdifferential,

    v = sum_n lambda_n g_n,     g_n in conv{ r_kn grad q_n(theta_k) : k = 0, ..., m },

    theta_0 = theta,   |theta_k - theta| <= radius |theta|  entry by entry,
    r_kn = L q_n(theta) / <grad q_n(theta_k), theta>,

which is the tangent program of `multipliers` with m + 1 rows a pair. The factors r, near 1, let
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
from torch import Tensor

from implicit_bias.base.deadline import NEVER, Deadline
from implicit_bias.base.validation import Array
from implicit_bias.modules import multipliers
from implicit_bias.modules.layer_products import LayerProducts
from implicit_bias.modules.margins import Margins, joined


class Pieces(Margins):
    """Gradients of the same margins at several points, as rows of one J: point by point.

    Parameters
    ----------
    gradients : Margins
        The margins, n of them.
    points : sequence of Tensor of shape (P,)
        Where the gradients are taken, whatever theta the methods are given.
    factors : ndarray of shape (m, n)
        What each row is multiplied with.
    """

    def __init__(self, gradients: Margins, points: list[Tensor], factors: Array) -> None:
        vars(self).update(vars(gradients))  # module, samples and parameters are the same
        self.gradients = gradients
        self.points = points
        self.factors = factors
        # Rows whose layer products are held: those of a working set are asked for again and again.
        self.held = torch.zeros(0, dtype=torch.int64, device=gradients.theta.device)
        self.products = dict[str, LayerProducts]()

    def combine(self, theta: Tensor, weights: Array) -> Tensor:
        """J' lambda, shape (P,)."""
        total = torch.zeros_like(theta)
        of_points = self.factors * weights.reshape(self.factors.shape)
        for point, of_point in zip(self.points, of_points, strict=True):
            if of_point.any():
                total += self.gradients.combine(point, of_point)
        return total

    def slopes(self, theta: Tensor, direction: Tensor) -> Array:
        """J w, shape (m n,), of a direction w (P,)."""
        found = np.stack([self.gradients.slopes(point, direction) for point in self.points])
        return (self.factors * found).reshape(-1)

    def _gradients(self, theta: Tensor, places: Tensor, scales: Mapping[str, float]) -> Tensor:
        """Rows (m, P') of J in the parameters that have scales, times these."""
        size = sum(self.shapes[name].numel() for name in scales)
        found = torch.empty(len(places), size, dtype=theta.dtype, device=theta.device)
        for point, here, pairs in self._by_points(places):
            found[here] = self.gradients._gradients(point, pairs, scales)
        return found * self._factors(places)[:, None]

    def _layer_products(self, theta: Tensor, places: Tensor) -> dict[str, LayerProducts]:
        """Rows of J that are sums of outer products, by parameter; all are held."""
        new = torch.unique(places[~torch.isin(places, self.held)])
        parts = [self.products] if len(self.held) else []
        for point, _, pairs in self._by_points(new):
            parts.append(self.gradients._layer_products(point, pairs))
        if len(new):
            self.held = torch.cat([self.held, new])
            self.products = joined(parts, torch.arange(len(self.held)))
        rows = torch.nonzero(places[:, None] == self.held)[:, 1]
        factors = self._factors(places)
        return {name: held.of(rows).times(factors) for name, held in self.products.items()}

    def _by_points(self, places: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Points, which of the rows are theirs, and the pairs of these."""
        n_pairs = self.factors.shape[1]
        for k in torch.unique(places // n_pairs).tolist():
            here = torch.nonzero(places // n_pairs == k)[:, 0]
            yield self.points[k], here, places[here] % n_pairs

    def _factors(self, places: Tensor) -> Tensor:
        """Return what rows are multiplied with, (m,)."""
        return torch.as_tensor(self.factors).to(self.theta).reshape(-1)[places]


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
        A combination of gradients that bends by less than this times the radius meets no kinks.
    slack : float
        A sample takes part if a constraint of it has less than this times L in the best direction.
    smallest_weight : float
        Share of the largest weight from which on a sample has a multiplier.
    known : float
        To what the gap is to be known, or to a tenth of itself: the points are drawn.
    seconds : float
        Time for the search.
    share_of_drawing : float
        Share of the time before a deadline for drawing points: each step of the search evaluates
        all that were drawn.
    most_parameters : int
        Parameters up to which rows of the working set are held.
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

    def gap(self, best: multipliers.Multipliers, deadline: Deadline) -> float:
        """Find it; see `gap_across_kinks`."""
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
        # Where gradients are smooth, those nearby say nothing that those at theta do not.
        if not bends:
            return best.gap

        # --- the tangent program with a row a pair and point, from the multipliers at theta
        pieces = Pieces(tangent.gradients, points, np.stack(factors))
        margins = np.tile(tangent.margins, len(points))
        weights = np.append(near.weights, np.zeros(len(margins) - len(near.weights)))
        search = multipliers.MultiplierSearch(seconds=self.seconds, known=self.known, exact=False)
        found = search.best(
            replace(tangent, gradients=pieces, margins=margins),
            [weights],
            deadline.within(self.seconds),
        )
        return min(best.gap, found.gap)

    def _near(self, best: multipliers.Multipliers) -> multipliers.Multipliers:
        """Keep the samples with multipliers, and those nearly active in the best direction.

        Gradients nearby may break the constraints of these.
        """
        tangent = best.program
        rivals = tangent.gradients.rivals
        near = tangent.slopes(best.direction) < self.slack * tangent.degree
        near |= best.weights > self.smallest_weight * best.weights.max()
        taken = near.reshape(-1, rivals).any(axis=1)
        pairs = np.repeat(taken, rivals)
        program = replace(
            tangent,
            gradients=tangent.gradients.of_samples(np.flatnonzero(taken)),
            margins=tangent.margins[pairs],
        )
        return replace(best, program=program, weights=best.weights[pairs])

    def _drawn(
        self, tangent: multipliers.TangentProgram, deadline: Deadline
    ) -> Iterator[tuple[Tensor, Array]]:
        """Draw points until the deadline, with the factors r (n,) of the margins' gradients."""
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
            slopes = tangent.gradients.slopes(point, tangent.theta)
            if (slopes > 0).all():  # else a gradient leads away from theta
                yield point, at_theta / slopes
            took = time.perf_counter() - began  # with what is done with it in between


def gap_across_kinks(
    best: multipliers.Multipliers,
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


def _bend(best: multipliers.Multipliers, point: Tensor, factor: Array) -> float:
    """How far the combination halfway to a point is from the mean of both ends, over its length.

    Where gradients are smooth it is of the square of the distance, even if they change a lot beside
    a combination in which they nearly cancel. Where they jump it is half of the jump, wherever on
    the way.
    """
    tangent = best.program
    middle = (tangent.theta + point) / 2.0
    halfway = tangent.gradients.combine(middle, (1.0 + factor) / 2.0 * best.weights)
    end = tangent.gradients.combine(point, factor * best.weights)
    mean = (best.combination + end) / 2.0
    return float((halfway - mean).norm() / best.combination.norm())
