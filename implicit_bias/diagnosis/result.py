"""`Diagnosis`: what was measured of a module, in numbers, and what these say."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from implicit_bias.base.validation import Array, check_count, detached
from implicit_bias.diagnosis.box import BoxLimit
from implicit_bias.diagnosis.escape import Escape
from implicit_bias.diagnosis.findings import (
    WORDS,
    Code,
    Finding,
    GapBounds,
    Thresholds,
    Topic,
)
from implicit_bias.diagnosis.function_space import FunctionSpace
from implicit_bias.diagnosis.layers import Layer
from implicit_bias.diagnosis.regime import Regime
from implicit_bias.modules.tangent_program import Method

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Findings that a verdict begins with, before where the module is in the max-margin problem.
FIRST_LINES = (
    Code.AT_OPTIMUM,
    Code.ABOVE_OPTIMUM,
    Code.NEAR_IN_THE_BOX,
    Code.NOT_NEAR_IN_THE_BOX,
)


@dataclass(frozen=True, eq=False, repr=False)
class Diagnosis:
    r"""How far a module is from the KKT points that its training converges to.

    .. math:: \text{gap} = 1 - \left(\frac{\text{optimum}}{\|\theta\|}\right)^2, \qquad
        \text{optimum} = \min_w \; \|w\| \quad \text{subject to} \quad J w \ge L

    at unit margin, with the gradients J of the margins and the degree L of the module. The gap
    is 0 at KKT points and nowhere else.

    All but `min_margin` and the layers' directions is at unit margin, and so does not change
    when the module is scaled.

    Attributes
    ----------
    norm : str
        The norm of the steepest descent.
    degree : float
        L, the degree of homogeneity in the trained parameters.
    min_margin : float
        Smallest margin of the module as it is: y_n f(x_n), or f_{y_n}(x_n) - f_k(x_n).
    normalised_margin : float
        min_margin / ||theta||^L.
    parameter_norm : float
        ||theta|| at unit margin.
    gap : float
        Relative KKT gap in [0, 1] of the multipliers: 1 - (L sum lambda)^2 / (||theta||^2
        ||J' lambda||_*^2). 0 exactly at the KKT points of min 1/2 ||theta||^2 s.t. margins >= 1.
        Where ``method`` is not "exact" it is an upper bound on the gap of the best multipliers.
    gap_lower : float
        A lower bound on that of the best multipliers; the same as ``gap`` where these are exact.
    gap_across_kinks : float
        An upper bound on the gap with the gradients on all sides of the kinks (a ReLU at 0) within
        0.1 % of the weights, of which multipliers may combine several a sample: gradient descent
        ends on kinks, and torch differentiates one side alone. The same as ``gap`` without kinks.
    method : {"exact", "interior point", "level method", "stopped"}
        How the multipliers were found: "exact" by bounds that agree, the next two with bounds that
        differ by rounding or at the method's own limits; "stopped" is what was known at
        ``max_seconds``.
    margins : ndarray of shape (N,) or (N, K)
        Margins; inf at the labels, which have none.
    multipliers : ndarray of shape (N,) or (N, K)
        lambda >= 0; 0 at the labels.
    gaps : dict from norm to float
        Upper bounds on the gap in each norm, from the best multipliers in ``norm`` and the loss's
        weights at all temperatures; in that of ``norm``, ``gap``.
    layers : tuple of Layer
        Bounds layer by layer.
    escape : Escape or None
        One more unit of a two-layer ReLU network; None for others, and where no KKT point is near.
    function_space : FunctionSpace or None
        The predictor beside the optimum of its own norm, where the module is recognized.
    box : BoxLimit or None
        Where the weights are in the limit with weight decay, of optimizer objects that have it and
        a ``loss`` that is a function of outputs and targets; None without.
    checks : tuple of Finding
        What was found of the module and of its training, as `findings`.
    seconds : float
        Wall time.
    trained_by : str
        The optimizers whose norm this is, with what their limit depends on; empty where they
        are not known, or converge elsewhere.
    rest : float or None
        Of a leading-order part f_L of the module f: largest ``abs(f - f_L)`` on the samples over
        the largest ``abs(f_L)``. None where the module itself was measured.
    epsilon, delta : float
        Of Lyu and Li's (epsilon, delta)-approximate KKT points: ||theta - sum_n lambda_n grad q_n||
        and the largest lambda_n (q_n - 1), at unit margin; nan in other norms than l2.
    regime : Regime or None
        Whether the training has left the start's tangent kernel (lazy or rich); None without
        ``start``, or where no time was left.

    Notes
    -----
    Lyu and Li (2020) for epsilon and delta; Tsilivis, Vardi, Kempe (2024) for KKT points in any
    norm.

    Examples
    --------
    >>> import torch
    >>> from implicit_bias import diagnose
    >>> module = torch.nn.Linear(2, 1, bias=False)
    >>> _ = module.weight.data.copy_(torch.tensor([[1.0, 1.0]]))
    >>> found = diagnose(module, torch.eye(2), [1, 1])
    >>> round(found.gap, 6), found.norm
    (0.0, 'l2')
    """

    norm: str
    degree: float
    min_margin: float
    normalised_margin: float
    parameter_norm: float
    gap: float
    gap_lower: float
    gap_across_kinks: float
    method: Method
    margins: Array
    multipliers: Array
    gaps: Mapping[str, float]
    layers: tuple[Layer, ...]
    escape: Escape | None
    function_space: FunctionSpace | None
    box: BoxLimit | None
    checks: tuple[Finding, ...]
    seconds: float
    trained_by: str = ""
    rest: float | None = None
    epsilon: float = math.nan
    delta: float = math.nan
    regime: Regime | None = None

    @property
    def farthest_layer(self) -> Layer | None:
        """The layer of the largest KKT gap of its own; None where the gap of one is not known."""
        # A layer without a bound may be the farthest one.
        if any(math.isnan(layer.gap) for layer in self.layers):
            return None
        return max(self.layers, key=lambda layer: layer.gap, default=None)

    @property
    def direction(self) -> Tensor | None:
        """A change of the farthest layer that lowers its norm and no margin below 1."""
        layer = self.farthest_layer
        if layer is None:
            return None
        return layer.direction

    @property
    def sample_shares(self) -> Array:
        """Fraction of the multipliers that each sample has, shape (N,).

        At a KKT point the weights are, up to scale, the gradients of the margins in these
        proportions, so this is what the network remembers of each sample. Samples of next to no
        fraction could be left out.
        """
        # The sum over the rivals of a sample, if there are several.
        weights = self.multipliers.reshape(len(self.multipliers), -1).sum(axis=1)
        return np.asarray(weights / (weights.sum() or 1.0))

    def largest_shares(self, count: int = 16) -> list[tuple[int, float, str]]:
        """Return the samples with the largest fractions of the sum of multipliers.

        Parameters
        ----------
        count : int
            How many samples, at most.

        Returns
        -------
        list of (int, float, str)
            Index, fraction, and which class is held against which; "" where there are two classes.
        """
        shares = self.sample_shares
        found = list[tuple[int, float, str]]()
        # Searches leave multipliers that are 0 but for rounding: these samples hold nothing.
        positive = np.count_nonzero(shares > Thresholds.no_share * shares.max())
        for n in np.argsort(-shares, kind="stable")[: min(count, positive)]:
            classes = ""
            if self.multipliers.ndim == 2:
                # A sample's margin over its own class is inf.
                own = self.margins[n].argmax()
                classes = f"{own} against {self.multipliers[n].argmax()}"
            found.append((int(n), float(shares[n]), classes))
        return found

    @property
    def on_kinks(self) -> bool:
        """Whether a KKT point is much nearer than the gradients at the weights say."""
        if self.gap <= Thresholds.at:
            return False
        # Against the lower bound: the kinks must explain the difference, not a search that ended
        # early.
        return self.gap_across_kinks <= Thresholds.clearly_below * self.gap_lower

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All that was found, the most important first; the first one says where the module is.

        What the numbers say, and in between what stands between the training and the limit; then
        what makes the numbers mean less, and what they are about.
        """
        standing = self._standing()
        checks = self.checks
        if standing.code in (Code.KKT_POINT, Code.NEAR):
            # Nothing keeps a training from where it is, unless its limit is another one, and it
            # need not get nearer.
            unneeded = (Topic.OBSTACLE, Topic.RATE)
            checks = tuple(check for check in checks if check.code.topic not in unneeded)
        found = [standing]
        # Where the training has another limit, the optimum is of a problem that it does not solve.
        found += _about(checks, Topic.OTHER_LIMIT)
        found += self._of_predictor()
        found += _about(checks, Topic.OBSTACLE, Topic.ABOUT)
        found += self._details()
        found += _about(checks, Topic.RATE, Topic.DETAIL, Topic.CAVEAT)
        return tuple(found)

    def _standing(self) -> Finding:
        """Say how near the module is to a KKT point, of which norm."""
        # With gradients across kinks a KKT point may be nearer than with those at the weights.
        gap = min(self.gap, self.gap_across_kinks)
        details = {"norm": self.norm, "gap": GapBounds(self.gap_lower, self.gap)}
        if self.gap <= Thresholds.at:
            return Finding(Code.KKT_POINT, self.gap, details=details)
        others = [norm for norm in self.gaps if norm != self.norm]
        # Gaps of two norms compare only where one is near 0 and clearly below the other.
        other = min(others, key=self.gaps.__getitem__, default=None)
        if other is not None:
            lower = min(self.gap_lower, self.gap_across_kinks)
            clearly_nearer = min(Thresholds.near, Thresholds.clearly_below * lower)
            if self.gaps[other] <= clearly_nearer:
                names = {"other": other, "descent": WORDS["descents"].get(other, other)}
                return Finding(
                    Code.OTHER_NORM_IS_NEARER, self.gaps[other], details={**details, **names}
                )
        if gap <= Thresholds.near:
            return Finding(Code.NEAR, gap, details=details)
        # The upper bound is not near 0, but the gap itself may be.
        if min(gap, self.gap_lower) <= Thresholds.near:
            return Finding(Code.PERHAPS_NEAR, gap, details=details)
        return Finding(Code.FAR, gap, details=details)

    def _of_predictor(self) -> list[Finding]:
        """Say how far the predictor is above the certified optimum of its own norm, if known."""
        space = self.function_space
        if space is None or math.isnan(space.excess):
            return []
        about = {"norm": space.norm, "family": space.family}
        if space.excess <= Thresholds.worth_naming:
            return [Finding(Code.AT_OPTIMUM, max(space.excess, 0.0), details=about)]
        found = [Finding(Code.ABOVE_OPTIMUM, space.excess, details=about)]
        if space.dead_units:
            found.append(Finding(Code.DEAD_UNITS, float(space.dead_units)))
        return found

    def _details(self) -> list[Finding]:
        """Say what the numbers alone show: kinks, a search that was stopped, the farthest layer."""
        found = list[Finding]()
        # At a KKT point the next question is whether it is the optimum.
        near = min(self.gap, self.gap_across_kinks) <= Thresholds.near
        if near and self.escape is not None and self.escape.claimed:
            found.append(Finding(Code.ONE_MORE_UNIT, self.escape.saving))
        if self.on_kinks:
            found.append(Finding(Code.ACROSS_KINKS, self.gap_across_kinks))
        if self.method == "stopped":
            found.append(Finding(Code.STOPPED))
        layer = self.farthest_layer
        if layer is not None and layer.gap > Thresholds.worth_naming:
            found.append(Finding(Code.LAYER, layer.gap, (layer.name,)))
        return found

    @property
    def warnings(self) -> tuple[str, ...]:
        """What makes these numbers mean less, each with its cure."""
        return tuple(str(finding) for finding in self.findings if finding.code.warns)

    @property
    def advice(self) -> str:
        """What brings the training nearer to the limit: cures of what is in the way, a line each.

        Where nothing is, how to train longer.
        """
        standing, *others = self.findings
        obstacles = [finding for finding in others if finding.code.keeps_from_limit]
        cures = [standing.cure, *(finding.cure for finding in obstacles)]
        # Advice on the rate is for trainings that nothing else keeps from the limit.
        if not any(cures):
            cures = [finding.cure for finding in others if finding.code.topic is Topic.RATE]
        return "\n".join(cure for cure in dict.fromkeys(cures) if cure)

    @property
    def verdict(self) -> str:
        """Three lines at most: where the module is, what matters most of it, what to do.

        The first line is about the predictor where its own norm has a certified optimum, and about
        the problem with weight decay where that describes the weights. Else the second line is the
        finding that `findings` has next, unless that is advice on the rate.
        """
        standing, *others = self.findings
        lines = [standing.found]
        if others and others[0].code in FIRST_LINES:
            lines = [others[0].found, standing.found]
        elif others and others[0].code.topic is not Topic.RATE:
            lines.append(others[0].found)
        # One line of what to do: the first of these that says anything.
        for cure in (self.advice, *(finding.cure for finding in others[:2])):
            if cure:
                lines.append(cure)
                break
        # A cure may have lines for details, of which a verdict shows the first.
        return "\n".join(line.splitlines()[0] for line in lines)

    def __str__(self) -> str:
        return self.verdict

    def __repr__(self) -> str:
        code = self.findings[0].code
        gap = f"gap={self.gap:.3g}"
        if self.method != "exact" and code is not Code.KKT_POINT:
            gap = f"gap between {self.gap_lower:.3g} and {self.gap:.3g}"
        return (
            f"Diagnosis({code}, norm={self.norm!r}, degree={self.degree:.4g}, "
            f"min_margin={self.min_margin:.4g}, {gap})"
        )

    def plot(self) -> Figure:
        """Draw margins with their multipliers, gaps by norm, and the layers' bounds if any."""
        from implicit_bias.diagnosis.figures import draw_diagnosis

        return draw_diagnosis(self)

    def plot_support(self, images: Tensor | ArrayLike, count: int = 16) -> Figure:
        """Draw the samples with the largest multipliers, and the class each is held against.

        Parameters
        ----------
        images : Tensor or array_like of shape (N, height, width), (N, 1 or 3, height, width)
            The samples as images, each brought to the range of its own values.
        count : int
            How many samples, at most.
        """
        from implicit_bias.diagnosis.figures import draw_support

        check_count(count, "count")
        return draw_support(self, np.asarray(detached(images)), count)


def _about(checks: Sequence[Finding], *topics: Topic) -> list[Finding]:
    """Return the findings of some topics, in their order."""
    return [check for check in checks if check.code.topic in topics]
