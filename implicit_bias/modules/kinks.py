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
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from implicit_bias.base.deadline import NEVER, Deadline
from implicit_bias.base.validation import Array
from implicit_bias.modules import multipliers
from implicit_bias.modules.layer_products import LayerProducts
from implicit_bias.modules.margins import Margins, joined

# Largest relative change of a weight.
RADIUS = 1e-3
# Points drawn.
DRAWS = 16
# A combination of gradients that bends by less than this times the radius meets no kinks.
SMOOTH = 10.0
# A sample takes part if a constraint of it has less than this times L in the best direction.
SLACK = 1.25
# To what the gap is to be known: the points are drawn.
KNOWN = 1e-2
# Seconds that the search may take, and the share of the time before a deadline for drawing points:
# each step of the search evaluates all that were drawn.
SECONDS, SHARE_OF_DRAWING = 3.0, 0.25
# Share of the largest weight from which on a sample has a multiplier.
SMALLEST_WEIGHT = 1e-9
# Parameters up to which rows of the working set are held.
MOST_PARAMETERS = 2**17


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
        self.gradients, self.points, self.factors = gradients, points, factors
        self.held = torch.zeros(0, dtype=torch.int64, device=gradients.theta.device)
        self.products = list[dict[str, LayerProducts]]()

    def combine(self, theta: Tensor, weights: Array) -> Tensor:
        """J' lambda, shape (P,)."""
        parts = zip(self.points, self.factors * weights.reshape(self.factors.shape), strict=True)
        found = [self.gradients.combine(point, part) for point, part in parts if part.any()]
        return sum(found, start=torch.zeros_like(theta))

    def slopes(self, theta: Tensor, direction: Tensor) -> Array:
        """J w, shape (m n,), of a direction w (P,)."""
        found = np.stack([self.gradients.slopes(point, direction) for point in self.points])
        return (self.factors * found).reshape(-1)

    def _gradients(self, theta: Tensor, places: Tensor, names: Mapping[str, float]) -> Tensor:
        """Rows (m, P') of J in some parameters, times their scales."""
        size = sum(self.shapes[name].numel() for name in names)
        found = torch.empty(len(places), size, dtype=theta.dtype, device=theta.device)
        for point, here, pairs in self._by_points(places):
            found[here] = self.gradients._gradients(point, pairs, names)
        return found * self._factor(places)

    def _factors(self, theta: Tensor, places: Tensor) -> dict[str, LayerProducts]:
        """Rows of J that are sums of outer products, by parameter; all are held."""
        new = torch.unique(places[~torch.isin(places, self.held)])
        parts = [self.gradients._factors(point, pairs) for point, _, pairs in self._by_points(new)]
        if parts:
            self.held = torch.cat([self.held, new])
            self.products = [joined([*self.products, *parts], torch.arange(len(self.held)))]
        rows = torch.nonzero(places[:, None] == self.held)[:, 1]
        factor = self._factor(places)[:, 0]
        return {name: found.of(rows).times(factor) for name, found in self.products[0].items()}

    def _by_points(self, places: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Points, which of the rows are theirs, and the pairs of these."""
        n_pairs = self.factors.shape[1]
        for k in torch.unique(places // n_pairs).tolist():
            here = torch.nonzero(places // n_pairs == k)[:, 0]
            yield self.points[k], here, places[here] % n_pairs

    def _factor(self, places: Tensor) -> Tensor:
        """Return what rows are multiplied with, (m, 1)."""
        return torch.as_tensor(self.factors).to(self.theta).reshape(-1)[places][:, None]


def factors_at(gradients: Margins, point: Tensor, theta: Tensor, own: Array) -> Array | None:
    """Return the factors r (n,) of gradients at a point; None where one does not lead to theta.

    Parameters
    ----------
    gradients : Margins
        The margins, n of them.
    point, theta : Tensor of shape (P,)
        Where the gradients are taken, and where Euler's identity is to hold.
    own : ndarray of shape (n,)
        L times the margins at theta.
    """
    slopes = gradients.slopes(point, theta)
    return own / slopes if (slopes > 0).all() else None


def gap_across_kinks(
    best: multipliers.Multipliers, *, seconds: float = SECONDS, deadline: Deadline = NEVER
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
    if best.gap <= RADIUS or len(best.combination) > MOST_PARAMETERS or deadline.passed:
        return best.gap
    near = _near(best)
    tangent = near.program
    points, factors = [tangent.theta], [np.ones(len(tangent.margins))]
    bends = False
    for point, factor in _drawn(tangent, deadline.sooner(SHARE_OF_DRAWING)):
        bends = bends or _bend(near, point, factor) > SMOOTH * RADIUS
        points.append(point)
        factors.append(factor)
    if not bends:
        return best.gap
    pieces = Pieces(tangent.gradients, points, np.stack(factors))
    margins = np.tile(tangent.margins, len(points))
    weights = np.append(near.weights, np.zeros(len(margins) - len(near.weights)))
    found = multipliers.best_multipliers(
        replace(tangent, gradients=pieces, margins=margins),
        seconds=seconds,
        starts=[weights],
        deadline=deadline.within(seconds),
        known=KNOWN,
    )
    return min(best.gap, found.gap)


def _near(best: multipliers.Multipliers) -> multipliers.Multipliers:
    """Keep the samples with multipliers, and those nearly active in the best direction.

    Gradients nearby may break the constraints of these.
    """
    tangent = best.program
    near = tangent.slopes(best.direction) < SLACK * tangent.degree
    near |= best.weights > SMALLEST_WEIGHT * best.weights.max()
    taken = near.reshape(-1, tangent.gradients.rivals).any(axis=1)
    pairs = np.repeat(taken, tangent.gradients.rivals)
    gradients, margins = tangent.gradients.of_samples(np.flatnonzero(taken)), tangent.margins[pairs]
    program = replace(tangent, gradients=gradients, margins=margins)
    return replace(best, program=program, weights=best.weights[pairs])


def _bend(best: multipliers.Multipliers, point: Tensor, factor: Array) -> float:
    """How far the combination halfway to a point is from the mean of both ends, over its length.

    Where gradients are smooth it is of the square of the distance, even if they change a lot beside
    a combination in which they nearly cancel. Where they jump it is half of the jump, wherever on
    the way.
    """
    tangent = best.program
    half, end = (
        tangent.gradients.combine(theta, weights * best.weights)
        for theta, weights in (
            ((tangent.theta + point) / 2.0, (1.0 + factor) / 2.0),
            (point, factor),
        )
    )
    mean = (best.combination + end) / 2.0
    return float((half - mean).norm() / best.combination.norm())


def _drawn(
    tangent: multipliers.TangentProgram, deadline: Deadline
) -> Iterator[tuple[Tensor, Array]]:
    """Draw points until the deadline, with the factors r (n,) of the margins' gradients there."""
    generator, took = torch.Generator().manual_seed(0), 0.0
    for _ in range(DRAWS):
        if not deadline.allows(took):
            return
        began = time.perf_counter()
        signs = torch.randint(0, 2, tangent.theta.shape, generator=generator).to(tangent.theta)
        point = tangent.theta * (1.0 + RADIUS * (2.0 * signs - 1.0))
        own = tangent.degree * tangent.margins
        factor = factors_at(tangent.gradients, point, tangent.theta, own)
        if factor is not None:
            yield point, factor
        took = time.perf_counter() - began  # with what is done with it in between
