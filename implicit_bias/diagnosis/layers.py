r"""The KKT gap layer by layer, and the direction that lowers a layer's norm.

With all other layers and the gates held fixed, f is linear in one layer W: q_n = <W, G_n>, G_n the
gradient of q_n in W. So W is feasible in a margin problem of its own, whose optimum any multipliers
lambda >= 0 bound from below:

    sum(lambda) / ||G' lambda||_*  <=  min ||W|| s.t. <W, G_n> >= 1  <=  ||W||.

The KKT gap of a layer is 1 - (lower bound / ||W||)^2. At a KKT point in l2 it is 0 in all layers,
for the layers' own multipliers are then the common ones.

Here a layer is one parameter in which the margins are of degree 1 and have no curvature. A
parameter that enters twice (u * u), or the gates of which it sets as it changes, has no such bound.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from implicit_bias.base.deadline import NEVER, Deadline
from implicit_bias.base.validation import Array
from implicit_bias.modules import multipliers
from implicit_bias.modules.evaluate import drawn_like
from implicit_bias.modules.margins import Margins
from implicit_bias.modules.tangent_program import Multipliers, TangentProgram, kkt_gap


@dataclass(frozen=True, eq=False)
class Layer:
    """One parameter of a module, beside the margin problem that holds all others.

    All is at unit margin, but the direction, which is in the module's own scale.

    Attributes
    ----------
    name : str
        Name of the parameter.
    norm : float
        ||W||, the upper bound.
    lower : float
        Lower bound on the smallest norm of this layer at which all margins are at least 1; nan
        where the margins are not linear in it, or the time was up.
    direction : Tensor or None
        A change of W: adding it (or t times it, 0 < t < 1) lowers the norm without lowering the
        smallest margin, as long as no gate changes. None where none is known.
    """

    name: str
    norm: float
    lower: float
    direction: Tensor | None = field(repr=False)

    @property
    def gap(self) -> float:
        """KKT gap 1 - (lower / norm)^2 of this layer alone, in [0, 1]; nan without a bound.

        It is an upper bound where the best multipliers are not found, as ``lower`` is too low then.
        """
        if math.isnan(self.lower) or not self.norm > 0:
            return math.nan
        return kkt_gap(self.lower, self.norm)


@dataclass(frozen=True)
class LayerBounds:
    """Lower bounds on the norm of each layer alone.

    Attributes
    ----------
    seconds : float
        Limit on the time of all layers together, in norms other than l2.
    linear_tolerance : float
        The degree in W is 1 if <W, G_n> differs from q_n by at most this fraction of the largest
        q_n.
    step : float
        Length of the step over which curvature is measured, over the norm of W.
    curvature : float
        Curvature up to this fraction of the largest q_n counts as none.
    """

    seconds: float = 4.0
    linear_tolerance: float = 1e-6
    step: float = 1e-4
    curvature: float = 1e-5

    def find(self, found: Multipliers, deadline: Deadline = NEVER) -> tuple[Layer, ...]:
        """Bound every parameter's norm from below.

        Parameters
        ----------
        found : Multipliers
            Those of the whole module; the search for a layer's own begins with them.
        deadline : Deadline
            When to end in any case, with the bounds so far. A layer has no bound if looking at
            the one before took longer than what is left.
        """
        whole = found.program
        names = list(whole.function.shapes)
        layers = list[Layer]()
        took = 0.0
        for name in names:
            # The time that is left is shared equally by the layers that are left.
            layers_left = len(names) - len(layers)
            own_deadline = deadline.sooner(1.0 / layers_left)
            began = time.perf_counter()
            alone = whole.function.restricted([name], whole.theta)
            # The same margins as a function of this layer alone, in which they are of degree 1.
            program = TangentProgram(alone, alone.theta, 1.0, whole.norm, whole.margins)
            norm = program.size
            linear = False
            if deadline.allows(took):
                linear = self._is_linear(alone, whole.margins)
                took = time.perf_counter() - began
            if not linear:
                layers.append(Layer(name, norm, math.nan, None))
                continue
            best = multipliers.best_multipliers(
                program,
                seconds=self.seconds / len(names),
                starts=[found.weights],
                deadline=own_deadline,
            )
            # The best w of the layer's program minus theta lowers the norm and keeps q >= 1. It is
            # in the module's own scale; 0 where theta is the best that is known.
            change = whole.scale * (best.direction - alone.theta).reshape(alone.shapes[name])
            direction = None
            if bool(change.any()):
                direction = change
            layers.append(Layer(name, norm, min(best.lower, norm), direction))
        return tuple(layers)

    def _is_linear(self, alone: Margins, margins: Array) -> bool:
        """Whether margins (n,) are linear in the parameters of ``alone``, near their values.

        They must be of degree 1 by Euler's identity, and the second differences of most pairs must
        vanish. A few may not, as the step may take a unit across a kink.
        """
        theta = alone.theta
        # Euler: <theta, grad q> = q for degree 1.
        size = np.abs(margins).max()
        if np.abs(alone.jvp(theta, theta) - margins).max() > self.linear_tolerance * size:
            return False
        # Curvature: q(theta + s) + q(theta - s) - 2 q(theta), of the order of s^2.
        step = drawn_like(theta)
        step *= self.step * theta.norm() / step.norm()
        change = alone.margins(theta + step) + alone.margins(theta - step) - 2.0 * margins
        return bool(np.median(np.abs(change)) <= self.curvature * self.step**2 * size)
