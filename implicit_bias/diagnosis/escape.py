r"""Escape from a KKT point of a two-layer ReLU network: whether one more unit lowers its norm.

In l2, at a KKT point with multipliers lambda, every active unit of direction w has
|u(w)| = 1, where

    u(w) = sum_n a_n relu(<w, x_n>),    a_n = sum_k lambda_nk (e_{y_n} - e_k)

(lambda_n y_n with two labels) is the pull on the readout of a new unit w. A unit vector with
|u(w)| > 1 *suggests* that the norm can be lowered. It proves nothing, for the multipliers need not
be unique: of x = (1,-3), (1,0), (1,3), all of label +1, and one unit (1,0), lambda = (1/2, 0, 1/2)
gives 1.58, and lambda = (0, 1, 0) proves that the network is the best one. So a unit is claimed
only after the problem with it has been solved: the unit is added, all weights are improved by
tangent programs, and the network that comes out has a smaller norm at the same margin than the
network without it, improved in the same way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from implicit_bias.base.deadline import NEVER, Deadline
from implicit_bias.base.validation import Array
from implicit_bias.diagnosis.function_space import flat_inputs, two_layer_relu
from implicit_bias.modules.margin_gradients import MarginGradients
from implicit_bias.modules.multipliers import Multipliers, TangentProgram, best_multipliers
from implicit_bias.modules.subject import Subject
from implicit_bias.norms.tensors import PARAMETER_NORMS

# Up to this gap a point is near enough to a KKT point for the multipliers to say where to look.
FAR = 0.1
# A pull of more than 1 by this share makes a unit a candidate.
SUGGESTS = 1e-3
# Local searches: random starts beside the samples themselves, and steps of each.
RANDOM_STARTS, SEARCH_STEPS = 200, 100
# Share of the network's norm that a new unit begins with; the share by which it must lower it.
FIRST_SIZE, CLAIMED = 1e-3, 1e-5
# Tangent programs at most, and the share by which one must lower the norm.
PROGRAMS, PROGRESS = 30, 1e-7
# Candidates that are tried, and the seconds for all.
TRIED, SECONDS = 2, 10.0


@dataclass(frozen=True, eq=False)
class Escape:
    """Whether one more ReLU unit lowers the norm.

    Attributes
    ----------
    pull : float
        Largest |u(w)| found; above 1 it suggests that a unit helps.
    direction : ndarray of shape (D,)
        That w, of norm 1.
    claimed : bool
        Whether a network with one more unit was found whose norm is smaller.
    saving : float
        The share by which it is smaller (than the network as it is, improved without the unit);
        0 where nothing is claimed.
    unit : tuple of ndarray, shapes (D,) and (K,), or None
        Weights into and out of the unit in that network, at smallest margin 1.
    """

    pull: float
    direction: Array
    claimed: bool
    saving: float
    unit: tuple[Array, Array] | None


class TwoLayer(nn.Module):
    """f(x) = readout relu(hidden x)."""

    def __init__(self, hidden: Tensor, readout: Tensor) -> None:
        super().__init__()
        self.hidden, self.readout = nn.Parameter(hidden), nn.Parameter(readout)

    def forward(self, X: Tensor) -> Tensor:
        """Compute the outputs (n, K) of inputs (n, D)."""
        return (X @ self.hidden.T).relu() @ self.readout.T


def find_escape(found: Multipliers, deadline: Deadline = NEVER) -> Escape | None:
    """Search for a unit that lowers the norm of a two-layer ReLU network, near a KKT point in l2.

    Parameters
    ----------
    found : Multipliers
        The best ones; with those of other modules, in other norms and far from a KKT point there
        is nothing to search for.
    deadline : Deadline
        When to end: what is not claimed by then is not.
    """
    program = found.program
    if program.norm != PARAMETER_NORMS["l2"] or abs(program.degree - 2.0) > 1e-6 or found.gap > FAR:
        return None
    if deadline.passed:
        return None
    both = two_layer_relu(program)
    if both is None:
        return None
    (hidden, readout), X = both, flat_inputs(program.gradients)
    labels = program.gradients.labels, program.gradients.classes
    table = torch.tensor(found.weights).to(X).reshape(len(X), -1)
    pull = torch.einsum("nr,nrk->nk", table, program.gradients.combinations)  # a (N, K)
    directions, sizes = _search(X, pull)
    best = int(sizes.argmax())
    escape = Escape(float(sizes[best]), directions[best].cpu().numpy(), False, 0.0, None)
    if escape.pull <= 1.0 + SUGGESTS:
        return escape
    deadline = deadline.within(SECONDS)
    without, _ = _improved(TwoLayer(hidden, readout), X, labels, deadline)
    for place in _distinct(directions, sizes):
        w, size = directions[place], FIRST_SIZE * float(hidden.norm() + readout.norm())
        out = pull.T @ (X @ w).relu()
        start = TwoLayer(
            torch.cat([hidden, size * w[None]]),
            torch.cat([readout, size * (out / out.norm())[:, None]], dim=1),
        )
        norm, module = _improved(start, X, labels, deadline)
        if norm < without * (1.0 - CLAIMED):
            weights = (part.detach().cpu().numpy() for part in module.parameters())
            return Escape(
                pull=escape.pull,
                direction=w.cpu().numpy(),
                claimed=True,
                saving=1.0 - norm / without,
                unit=(next(weights)[-1], next(weights)[:, -1]),
            )
    return escape


def _search(X: Tensor, pull: Tensor) -> tuple[Tensor, Tensor]:
    """Local maxima w (S, D) of |u(w)| on the sphere, and |u(w)| (S,).

    |u| is convex where its readout's signs are held, so each step goes to the sphere's best point
    for the linear function that it is in the present cell.
    """
    generator = torch.Generator().manual_seed(0)
    random = torch.randn(RANDOM_STARTS, X.shape[1], generator=generator, dtype=X.dtype).to(X)
    few = X[torch.randperm(len(X), generator=generator)[:RANDOM_STARTS].to(X.device)]
    w = torch.cat([random, few, -few])
    w = w / w.norm(dim=1, keepdim=True).clamp_min(1e-300)
    best, sizes = w, torch.zeros(len(w)).to(X)
    for _ in range(SEARCH_STEPS):
        gates = (w @ X.T > 0).to(X)  # (S, N)
        u = (gates * (w @ X.T)) @ pull  # (S, K)
        size = u.norm(dim=1)
        better = size > sizes
        best, sizes = torch.where(better[:, None], w, best), torch.where(better, size, sizes)
        if not bool(better.any()):
            break
        along = (gates * ((u / size.clamp_min(1e-300)[:, None]) @ pull.T)) @ X
        w = along / along.norm(dim=1, keepdim=True).clamp_min(1e-300)
    return best, sizes


def _distinct(directions: Tensor, sizes: Tensor) -> list[int]:
    """Places of the best candidates that are not the same direction."""
    chosen = list[int]()
    for place in sizes.argsort(descending=True).tolist():
        if len(chosen) == TRIED or sizes[place] <= 1.0 + SUGGESTS:
            break
        if all(float(directions[place] @ directions[other]) < 0.99 for other in chosen):
            chosen.append(place)
    return chosen


def _improved(
    module: TwoLayer, X: Tensor, labels: tuple[Any, int | None], deadline: Deadline
) -> tuple[float, TwoLayer]:
    """Lower the norm at smallest margin 1 by tangent programs; return it, and the network.

    The tangent program's solution says in which direction; a line search along it judges by the
    network itself, so what is returned is attained.
    """
    gradients, norm = MarginGradients(module, (X,), *labels), PARAMETER_NORMS["l2"]

    def scaled(theta: Tensor) -> TangentProgram | None:
        point = Subject(gradients.restricted(gradients.shapes, theta), degree=2.0)
        return point.at_margin_1(norm) if point.min_margin > 0 else None

    at = scaled(gradients.theta)
    for _ in range(PROGRAMS):
        if at is None or deadline.passed:
            break
        change = best_multipliers(at, deadline=deadline).combination - at.theta
        tried = [scaled(at.theta + 0.5**k * change) for k in range(12)]
        best = min(filter(None, tried), key=lambda point: point.size, default=at)
        if not best.size < at.size * (1.0 - PROGRESS):
            break
        at = best
    if at is None:
        return math.inf, module
    return at.size, TwoLayer(*at.gradients.parameters(at.theta).values())
