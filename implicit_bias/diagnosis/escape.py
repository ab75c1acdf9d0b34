r"""Escape from a KKT point of a two-layer ReLU network: whether one more unit lowers its norm.

In l2, at a KKT point with multipliers lambda, every active unit of direction w has
|u(w)| = 1, where

    u(w) = sum_n a_n relu(<w, x_n>),    a_n = sum_k lambda_nk (e_{y_n} - e_k)

(a_n = lambda_n y_n with two labels) is the pull on the output weights of a new unit w. A unit
vector with |u(w)| > 1 *suggests* that the norm can be lowered. It proves nothing, for the
multipliers need not be unique. With x = (1,-3), (1,0), (1,3), all of label +1, and one unit (1,0),
lambda = (1/2, 0, 1/2) has a pull of 1.58, and lambda = (0, 1, 0) proves that no network is better.
So a unit is claimed only after the problem with it has been solved: it is added, all weights are
improved by tangent problems, and the network that comes out has a smaller norm at the same margin
than the network without it, improved in the same way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from implicit_bias.base.deadline import NEVER, Deadline
from implicit_bias.diagnosis.findings import Thresholds
from implicit_bias.diagnosis.function_space import flat_inputs, two_layer_relu
from implicit_bias.modules.margins import Margins
from implicit_bias.modules.multipliers import best_multipliers
from implicit_bias.modules.subject import Subject
from implicit_bias.modules.tangent_program import Multipliers, TangentProgram
from implicit_bias.norms.tensors import PARAMETER_NORMS


@dataclass(frozen=True, eq=False)
class Escape:
    """Whether one more ReLU unit lowers the norm.

    Attributes
    ----------
    pull : float
        Largest |u(w)| found; above 1 it suggests that a unit helps.
    claimed : bool
        Whether a network with one more unit was found whose norm is smaller.
    saving : float
        The fraction by which it is smaller (than the network as it is, improved without the unit);
        0 where nothing is claimed.
    """

    pull: float
    claimed: bool
    saving: float


class TwoLayer(nn.Module):
    """f(x) = output relu(hidden x)."""

    def __init__(self, hidden: Tensor, output: Tensor) -> None:
        super().__init__()
        self.hidden = nn.Parameter(hidden)
        self.output = nn.Parameter(output)

    def forward(self, X: Tensor) -> Tensor:
        """Compute the outputs (n, K) of inputs (n, D)."""
        return (X @ self.hidden.T).relu() @ self.output.T


@dataclass(frozen=True)
class EscapeSearch:
    """The search for a unit that lowers the norm.

    Attributes
    ----------
    suggests : float
        A pull of more than 1 by this fraction makes the unit of the largest pull a candidate.
    random_starts : int
        Local searches for the largest pull start from so many random directions, from as many
        samples, and from the opposites of these.
    search_steps : int
        Most steps of each search.
    first_size : float
        A new unit begins with this fraction of the sum of both layers' norms.
    least_saving : float
        A unit is claimed if it lowers the norm by this fraction.
    programs : int
        Most tangent problems for a network.
    progress : float
        The next tangent problem follows if one lowers the norm by this fraction.
    halvings : int
        How many lengths 1, 1/2, 1/4, ... of the step towards its solution are tried.
    seconds : float
        Limit on the time of all tangent problems.
    """

    suggests: float = 1e-3
    random_starts: int = 200
    search_steps: int = 100
    first_size: float = 1e-3
    least_saving: float = 1e-5
    programs: int = 30
    progress: float = 1e-7
    halvings: int = 12
    seconds: float = 10.0

    def find(self, best: Multipliers, deadline: Deadline = NEVER) -> Escape | None:
        """Search for a unit that lowers the norm of a two-layer ReLU network near a KKT point.

        Parameters
        ----------
        best : Multipliers
            The best ones; with those of other modules, in norms other than l2 and far from a KKT
            point there is nothing to search for.
        deadline : Deadline
            When to end: what is not claimed by then is not.
        """
        program = best.program
        function = program.function
        in_l2 = program.norm == PARAMETER_NORMS["l2"] and abs(program.degree - 2.0) <= 1e-6
        if not in_l2 or best.gap > Thresholds.near or deadline.passed:
            return None
        weights = two_layer_relu(program)
        if weights is None:
            return None
        hidden, output = weights
        X = flat_inputs(function)
        labels = (function.labels, function.classes)

        # --- the candidate: the direction of the largest pull ---
        # The pull a_n (N, K) of each sample on the output weights of a new unit.
        table = torch.tensor(best.weights).to(X).reshape(len(X), -1)
        a = torch.einsum("nr,nrk->nk", table, function.combinations)
        w, pull = self._largest_pull(X, a)
        suggested = Escape(pull, claimed=False, saving=0.0)
        if pull <= 1.0 + self.suggests:
            return suggested

        # --- the claim ---
        # It is claimed only if the network with it, improved by the same programs as the network
        # without it, has a smaller norm.
        deadline = deadline.within(self.seconds)
        without = self._improved_norm(TwoLayer(hidden, output), X, labels, deadline)
        # The new unit is small, balanced, and its output weights have the direction of u(w).
        size = self.first_size * float(hidden.norm() + output.norm())
        out = a.T @ (X @ w).relu()
        wider = TwoLayer(
            torch.cat([hidden, size * w[None]]),
            torch.cat([output, size * (out / out.norm())[:, None]], dim=1),
        )
        norm = self._improved_norm(wider, X, labels, deadline)
        if norm < without * (1.0 - self.least_saving):
            return Escape(pull, claimed=True, saving=1.0 - norm / without)
        return suggested

    def _largest_pull(self, X: Tensor, a: Tensor) -> tuple[Tensor, float]:
        """Return the best w (D,) of some local maxima of |u(w)| on the sphere, and |u(w)|.

        With the gates of w held fixed |u| is convex in w. Each step takes the point of the
        sphere at which the linear function that touches |u| at w is largest: its gradient,
        normalized.
        """
        generator = torch.Generator().manual_seed(0)
        random = torch.randn(self.random_starts, X.shape[1], generator=generator, dtype=X.dtype)
        some = torch.randperm(len(X), generator=generator)[: self.random_starts]
        few = X[some.to(X.device)]
        # Units along samples, and against them, are the candidates where few units are enough.
        w = torch.cat([random.to(X), few, -few])
        w = w / w.norm(dim=1, keepdim=True).clamp_min(1e-300)
        best = w
        sizes = torch.zeros(len(w)).to(X)
        for _ in range(self.search_steps):
            pre = w @ X.T  # (S, N)
            u = pre.relu() @ a  # (S, K)
            size = u.norm(dim=1)
            better = size > sizes
            if not bool(better.any()):
                break
            best = torch.where(better[:, None], w, best)
            sizes = torch.where(better, size, sizes)
            # The gradient of |u| in w, with the gates of w held.
            unit = u / size.clamp_min(1e-300)[:, None]
            along = ((pre > 0).to(X) * (unit @ a.T)) @ X
            w = along / along.norm(dim=1, keepdim=True).clamp_min(1e-300)
        largest = int(sizes.argmax())
        return best[largest], float(sizes[largest])

    def _improved_norm(
        self, module: TwoLayer, X: Tensor, labels: tuple[Any, int | None], deadline: Deadline
    ) -> float:
        """Lower the norm at unit margin by tangent problems, and return it.

        The tangent problem's solution says in which direction; a line search along it judges by the
        network itself, so what is returned is attained.
        """
        function = Margins(module, (X,), *labels)

        def at_margin_1(theta: Tensor) -> TangentProgram | None:
            point = Subject(function.restricted(function.shapes, theta), degree=2.0)
            if point.min_margin <= 0:
                return None
            return point.at_margin_1(PARAMETER_NORMS["l2"])

        at = at_margin_1(function.theta)
        if at is None:
            return math.inf
        for _ in range(self.programs):
            if deadline.passed:
                break
            # In l2 the solution of the tangent problem is J' lambda, the combination of gradients.
            change = best_multipliers(at, deadline=deadline).combination - at.theta
            tried = [at_margin_1(at.theta + 0.5**k * change) for k in range(self.halvings)]
            best = min(filter(None, tried), key=lambda point: point.size, default=at)
            if not best.size < at.size * (1.0 - self.progress):
                break
            at = best
        return at.size
