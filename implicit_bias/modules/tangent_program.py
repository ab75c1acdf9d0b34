r"""The tangent problem of a module at unit margin, and the bounds that multipliers prove.

theta is scaled to unit margin, J are the gradients of the margins q, L the degree. For any
multipliers lambda >= 0 and v = J' lambda, Fenchel's inequality and Euler's <theta, v> = L <lambda,
q> give

    (1)   1/2 ||theta||^2 + 1/2 ||v||_*^2 - L sum(lambda)  >=  L <lambda, q - 1>  >=  0,

which is 0 exactly where theta is a KKT point of  min 1/2 ||theta||^2 s.t. q >= 1  with these
multipliers. The best lambda is the dual solution of the *tangent problem*

    (2)   min ||w||  s.t.  J w >= L,       dual  max L sum(lambda)  s.t.  ||J' lambda||_* <= 1,

a maximum-margin problem on the gradients in which theta is feasible. So any lambda gives a lower
bound on its optimum, any feasible w an upper one, and

    (3)   gap = 1 - (optimum / ||theta||)^2  <=  1 - (L sum(lambda) / (||theta|| ||v||_*))^2.

Source: Lyu and Li (2020); Tsilivis et al. (2024) for other norms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from implicit_bias.base.deadline import Deadline
from implicit_bias.base.validation import Array
from implicit_bias.bounds.run_certificate import weights_of_margins
from implicit_bias.modules.margins import Margins
from implicit_bias.norms import tensors

Method = Literal["given", "exact", "interior point", "level method", "stopped"]


class Gradients(Protocol):
    """J (n, P), as a search for multipliers uses it: `Margins` at theta, or `kinks.Pieces`."""

    def vjp(self, theta: Tensor, weights: Array) -> Tensor:
        """J' lambda, shape (P,)."""
        ...

    def jvp(self, theta: Tensor, direction: Tensor) -> Array:
        """J w, shape (n,)."""
        ...

    def rows(self, theta: Tensor, chosen: NDArray[np.int64]) -> Array:
        """Return some rows of J, (m, P)."""
        ...

    def gram(
        self,
        theta: Tensor,
        chosen: NDArray[np.int64],
        scale: Mapping[str, float] | None,
        others: NDArray[np.int64] | None,
        deadline: Deadline,
    ) -> Array:
        """Return inner products (m, k) of some rows of J S with others."""
        ...


@dataclass(frozen=True, eq=False)
class TangentProgram:
    """min ||w|| s.t. J w >= L, at parameters of unit margin.

    Attributes
    ----------
    function : Margins
        The margins and their gradients.
    theta : Tensor of shape (P,)
        Parameters at unit margin.
    degree : float
        L.
    norm : ParameterNorm
        Norm of the steepest descent.
    margins : ndarray of shape (n,)
        Margins at theta.
    scale : float
        The module's own parameters are this times theta.
    other_gradients : Gradients or None
        J, where it is not that of ``function`` at theta. J theta is L times the margins.
    """

    function: Margins
    theta: Tensor
    degree: float
    norm: tensors.ParameterNorm
    margins: Array
    scale: float = 1.0
    other_gradients: Gradients | None = None

    @property
    def gradients(self) -> Gradients:
        """J."""
        return self.other_gradients or self.function

    @cached_property
    def size(self) -> float:
        """||theta||."""
        return self.norm.value(self.function.parameters(self.theta))

    @property
    def normalised_margin(self) -> float:
        """1 / ||theta||^L; 0 or inf where that is beyond float64."""
        with np.errstate(over="ignore", divide="ignore"):
            return float(np.float64(self.size) ** -self.degree)

    @property
    def min_margin(self) -> float:
        """Smallest margin of the module's own parameters."""
        return float(np.float64(self.scale) ** self.degree)

    @cached_property
    def scales(self) -> dict[str, float]:
        """Scale of each tensor in the norm; see `norms.tensors`."""
        names = self.function.shapes
        if isinstance(self.norm, tensors.ComposedNorm):
            return {name: self.norm.unit(name) for name in names}
        return dict.fromkeys(names, 1.0)

    @cached_property
    def scale_of_entries(self) -> Tensor:
        """Scale of the tensor of each entry of theta, shape (P,)."""
        parts = dict[str, Tensor]()
        for name, shape in self.function.shapes.items():
            parts[name] = torch.full(shape, self.scales[name], dtype=torch.float64)
        return self.function.flat(parts).to(self.theta)

    def jvp(self, direction: Tensor) -> Array:
        """J w (n,) of a direction w (P,)."""
        return self.gradients.jvp(self.theta, direction)

    def bound_by(self, weights: Array, v: Tensor | None = None) -> Multipliers:
        """Scale given weights lambda >= 0 (n,), not all 0, and compute the bound they prove.

        v is J' lambda; it is computed if it is not given.
        """
        if v is None:
            v = self.gradients.vjp(self.theta, weights)
        # lambda / ||v||_* is feasible in the dual program of (2). By Euler's identity <theta, v> is
        # positive, so v is 0 only if it underflows.
        size = self.norm.dual(self.function.parameters(v))
        lower = 0.0
        scale = 0.0
        if size > 0:
            lower = self.degree * float(weights.sum()) / size
            # (1) is least over multiples of lambda where ||v||_*^2 = L sum(lambda).
            scale = lower / size
        return Multipliers(
            program=self,
            weights=scale * weights,
            combination=scale * v,
            lower=lower,
            upper=self.size,
            direction=self.theta,
            method="given",
        )

    def with_better_upper(self, found: Multipliers, w: Tensor, slopes: Array) -> Multipliers:
        """Take over a feasible multiple of w, if its norm is below the upper bound so far.

        ``slopes`` are J w (n,).
        """
        # With the least of J w positive, (L / least) w satisfies J w >= L.
        least = float(slopes.min())
        # Otherwise no multiple of w is feasible. NaN is refused, too.
        if not least > 0:
            return found
        feasible = (self.degree / least) * w
        upper = self.norm.value(self.function.parameters(feasible))
        if upper < found.upper:
            return replace(found, upper=upper, direction=feasible)
        return found


@dataclass(frozen=True, eq=False)
class Multipliers:
    """Multipliers, and the bounds on the optimum of the tangent problem that they prove.

    Attributes
    ----------
    program : TangentProgram
        The tangent problem.
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
    method : {"given", "exact", "interior point", "level method", "stopped"}
        How they were found. "given" are a caller's. "exact" is the best there is, to rounding or a
        solver's 1e-10. The next two ended with bounds that differ: by rounding, at their own
        limits, or because the bounds are as near as was asked for. "stopped" is whatever was known
        when the caller's time was up.
    """

    program: TangentProgram
    weights: Array
    combination: Tensor
    lower: float
    upper: float
    direction: Tensor
    method: Method

    def with_better_lower(self, found: Multipliers) -> Multipliers:
        """Take over the weights of other multipliers, if they prove a higher lower bound.

        The upper bound and its direction stay.
        """
        if found.lower <= self.lower:
            return self
        # The method is that of the search, which ends as it ends whichever weights were best.
        return replace(found, upper=self.upper, direction=self.direction, method=self.method)

    @property
    def gap(self) -> float:
        """Relative KKT gap of these multipliers, in [0, 1]."""
        return kkt_gap(self.lower, self.program.size)

    @property
    def gap_lower(self) -> float:
        """A lower bound on the gap of the best multipliers there are."""
        # Both bounds agree up to a solver's 1e-10. The difference of their squares would be that
        # noise.
        if self.method == "exact":
            return self.gap
        # (3) with the upper bound in the place of the optimum.
        return min(self.gap, kkt_gap(self.upper, self.program.size))

    # In l2 twice (1) is ||theta - v||^2 + 2 L <lambda, q - 1>, by Euler's identity: so
    # gap = residual^2 + 2 slackness.

    @property
    def residual(self) -> float:
        """KKT residual epsilon / ||theta||, in [0, 1] in l2."""
        return self.epsilon / self.program.size

    @property
    def slackness(self) -> float:
        """L sum_n lambda_n (q_n - 1) / ||theta||^2, in [0, 1/2] in l2.

        At a KKT point L sum_n lambda_n q_n = ||theta||^2; this is the fraction that is not at the
        margin.
        """
        program = self.program
        return program.degree * float(self.weights @ (program.margins - 1.0)) / program.size**2

    @property
    def epsilon(self) -> float:
        """||theta - J' lambda|| in l2, of Lyu and Li's (epsilon, delta)-approximate KKT points."""
        return float((self.program.theta - self.combination).norm())

    @property
    def delta(self) -> float:
        """Largest lambda_n (q_n - 1), of the same."""
        return float((self.weights * (self.program.margins - 1.0)).max())


def kkt_gap(lower: float, size: float) -> float:
    """Relative KKT gap 1 - (lower / ||theta||)^2, in [0, 1], of a lower bound and ||theta||."""
    return min(1.0, max(0.0, 1.0 - (lower / size) ** 2))


def loss_weights(margins: Array, rivals: int, temperature: float = 1.0) -> Array:
    """Weights -dL/dq of the logistic loss, or of cross-entropy, up to a factor; the largest is 1.

    Parameters
    ----------
    margins : ndarray of shape (n,)
        Margins, sample by sample.
    rivals : int
        The number of margins of each sample.
    temperature : float
        The margins are multiplied with this first: the higher, the more the smallest ones count.
    """
    return weights_of_margins(temperature * margins.reshape(-1, rivals)).reshape(-1)


def tempered_weights(margins: Array, rivals: int) -> list[Array]:
    """Return the `loss_weights` at nine temperatures: from 1, the loss's own, to 10,000.

    At the last one next to nothing but the smallest margins has weight.
    """
    return [loss_weights(margins, rivals, s) for s in np.geomspace(1.0, 1e4, 9).tolist()]
