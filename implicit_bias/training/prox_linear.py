r"""Towards a KKT point by convex programs: the prox-linear method, in any norm of the parameters.

minimise  ||theta||   subject to  q(theta) >= 1,     q the margins, homogeneous of degree L.

==========  ======  ===============================================================================
symbol      shape   meaning
==========  ======  ===============================================================================
theta       (P,)    weights, at smallest margin 1
q           (n,)    margins of all pairs of a sample and a rival
J           (n, P)  their gradients; J theta = L q
s                   step size: doubled where the program foresees well, else a quarter
mu                  damping, ||theta|| / (s ||theta||_2^2), so that s has no unit; weights are in
                    units of the largest one in the programs
==========  ======  ===============================================================================

Each step linearises the margins and solves

    minimise over w   ||w|| + mu / 2 ||w - theta||_2^2   subject to   q + J (w - theta) >= 1,

then scales w to smallest margin 1. Where theta is no KKT point the program's optimum is below
||theta||, and for s small enough the norm falls by a share of what the program foresees: where
margins are smooth, the descent ends at KKT points alone.

At kinks of the module the margins have no linearisation, and steps that know one side of them
become ever shorter. So where the norm does not fall after a step shorter than `FAR_STEP`, the
gradients at w join the program as further rows, which hold at theta with its own margins
(`measure.kinks`), as in a bundle method; once nothing is foreseen with them they are dropped, and s
is quartered. The descent ends where the gradients at theta foresee nothing, or s vanishes.

Steepest descent in l1 or linf reaches a gap of some tenths in thousands of steps, as its steps must
decay; this one comes to 1e-6 and below in tens where no kink is near, each a quadratic or conic
program of P variables. It is for small networks: gradients of pairs near the margin are held, and
at most `MOST_ENTRIES` numbers of them.

Which KKT point is reached is not decided as by the paths of training: of several the method
finds one. It starts from the module's own weights, so a training by steepest descent can be
finished by it. Until the samples are separated the steps are those of accelerated gradient descent,
whatever the norm: they never raise the loss, while steepest descent in linf may kill all units.

Source: Drusvyatskiy, Lewis (2018), "Error bounds, quadratic growth, and linear convergence of
proximal methods", for the prox-linear method; Tsilivis et al. (2024) for KKT points in any norm.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from implicit_bias.base.validation import Array
from implicit_bias.measure.homogeneity import HomogeneityError
from implicit_bias.measure.kinks import Pieces, factors_at
from implicit_bias.measure.multipliers import FlatNorm, at_margin_1
from implicit_bias.solvers.rounds import solve_on_some
from implicit_bias.training.configuration import LimitConfig
from implicit_bias.training.objective import FIRST_STEP_SIZE, Objective, State
from implicit_bias.training.trainee import Trainee

# Entries of the gradients that a program may have (pairs by parameters): some ten seconds a step.
MOST_ENTRIES = 2**21
# A pair outside the program joins it where its linearised margin misses 1 by this.
MISSED = 1e-7
# A step is taken if the norm falls by this share of what was foreseen; from the second share on
# the next one is longer, below the third shorter.
TAKEN, LONGER, SHORTER = 0.1, 0.75, 0.25
# A foreseen decrease below this share of the norm is rounding.
ROUNDING = 1e-13
# Gradients at the end of a failed step join if it was shorter than this: those farther away say
# little of theta, and margins without kinks let steps of this size be taken.
FAR_STEP = 1.2
# No step size is smaller.
LEAST_STEP = 1e-12


@final
class ProxLinear(Objective):
    """The prox-linear method; the state's weights are at smallest margin 1 once it is positive.

    Parameters
    ----------
    trainee : Trainee
        Module and samples.
    config : LimitConfig
        How to train.
    before : Objective
        Does the steps until the samples are separated.
    first_pairs : int
        Pairs of the first program, those of the smallest margins, and most that join at a time.

    Raises
    ------
    HomogeneityError
        A module with a bias, or one that is homogeneous in the limit only.
    ValueError
        More gradients than the programs can hold.
    """

    def __init__(
        self, trainee: Trainee, config: LimitConfig, before: Objective, first_pairs: int = 200
    ) -> None:
        super().__init__(trainee, config)
        trainee.check_homogeneous()
        if trainee.leading:
            raise HomogeneityError(
                "the prox-linear method scales a module to smallest margin 1, where one that is "
                "homogeneous in the limit only is still another: take another method"
            )
        self.before, self.first_pairs = before, first_pairs
        count = sum(weights.numel() for weights in self.parameters)
        first = min(len(trainee.gradients.pairs), first_pairs)
        if count * first > MOST_ENTRIES:
            raise ValueError(
                f"the prox-linear method holds the gradients of {count} parameters at {first} "
                "pairs or more, which is too much: take another method"
            )

    def start(self) -> State:
        """Return the state at the module's present weights, at margin 1 if they separate."""
        return self._at_margin_1(super().start())

    def advance(self, state: State) -> State | None:
        """Do one step; None where no step lowers the norm at margin 1."""
        if not state.min_margin > 0:
            following = self.before.advance(state)
            return None if following is None else self._at_margin_1(following)
        self.set_weights(state.weights)
        theta, q = state.weights, self.trainee.gradients.margins(state.weights)
        here = Pieces(self.trainee.gradients, [theta], np.ones((1, len(q))))
        pieces, size, s = here, self._size(theta), state.step_size
        unit = _unit(theta)
        evaluations = state.evaluations
        while s > LEAST_STEP:
            mu = size / unit / (s * float((theta / unit).square().sum()))
            w = self._program(pieces, theta, q, mu)
            evaluations += 1
            if w is None:
                pieces, s = here, s / 4.0
                continue
            change = (w - theta) / unit
            foreseen = size - self._size(w) - 0.5 * mu * unit * float(change @ change)
            if not foreseen > ROUNDING * size:
                if pieces is here:
                    return None
                pieces, s = here, s / 4.0  # the points were too far away
                continue
            weights = self._scaled(w, float(self.trainee.gradients.margins(w).min()))
            share = -math.inf if weights is None else (size - self._size(weights)) / foreseen
            if weights is not None and share >= TAKEN:
                log_loss, min_margin = self.value(weights)
                longer = 2.0 if share >= LONGER else 0.25 if share < SHORTER else 1.0
                return state.after(
                    weights, log_loss, min_margin, longer * s, evaluations=evaluations
                )
            if s < FAR_STEP:
                own = self.trainee.degree * q
                factor = factors_at(self.trainee.gradients, w, theta, own)
                pieces = pieces if factor is None else pieces.beside(w, factor)
            s /= 4.0
        return None

    def _size(self, weights: Tensor) -> float:
        """||theta|| of weights (P,)."""
        return self.trainee.norm.value(self.by_name(weights))

    def _scaled(self, weights: Tensor, min_margin: float) -> Tensor | None:
        """Return weights (P,) at smallest margin 1; None where it is not positive."""
        if not min_margin > 0:
            return None
        return at_margin_1(weights, self.trainee.degree, min_margin)

    def _at_margin_1(self, state: State) -> State:
        """Begin the method where a state separates the samples."""
        weights = self._scaled(state.weights, state.min_margin)
        if weights is None:
            return state
        log_loss, min_margin = self.value(weights)
        return replace(
            state,
            weights=weights,
            velocity=torch.zeros_like(weights),
            age=0,
            log_loss=log_loss,
            min_margin=min_margin,
            step_size=FIRST_STEP_SIZE,
        )

    def _program(self, pieces: Pieces, theta: Tensor, q: Array, mu: float) -> Tensor | None:
        """Solve the program of a step, on rows to which those join that its solution misses."""
        margins = np.tile(q, len(pieces.points))

        def linearised(w: Tensor | None) -> Array:
            if w is None:  # a program that fails ends the rounds
                return np.full_like(margins, np.inf)
            return margins + pieces.slopes(theta, w - theta)

        return solve_on_some(
            lambda chosen: self._solved(pieces, theta, margins, mu, chosen),
            linearised,
            margins,
            below=1.0 - MISSED,
            count=self.first_pairs,
            fits=lambda size: len(theta) * size <= MOST_ENTRIES,
        )

    def _solved(
        self, pieces: Pieces, theta: Tensor, margins: Array, mu: float, chosen: NDArray[np.int64]
    ) -> Tensor | None:
        """Solve the program of some rows; None where the solver fails."""
        from implicit_bias.solvers.cvxpy_solver import proximal_margin  # loads cvxpy

        unit, norm = _unit(theta), FlatNorm(self.trainee.norm, pieces)
        rows, at = unit * pieces.rows(theta, chosen), theta.cpu().numpy() / unit
        w = proximal_margin(norm, rows, 1.0 - margins[chosen], at, mu)
        return None if w is None else torch.tensor(unit * w).to(theta)


def _unit(theta: Tensor) -> float:
    """Return the unit of weights in a program, which ``mu`` rests on: the largest of theta."""
    return float(theta.abs().max())
