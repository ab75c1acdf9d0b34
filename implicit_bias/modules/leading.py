r"""The leading-order part of a module that is homogeneous only in the limit of large parameters.

    f_L(theta) = lim f(c theta) / c^L   for c to infinity,   theta the trained parameters alone

Residual blocks, low-rank updates (W_0 + B A) x of frozen weights, biases above the first layer, and
gates such as GELU have one. If f(c theta) / c^L and its gradient converge, gradient descent
converges in direction to KKT points of the leading-order part's margin problem, in l2. So the
module at a large c stands for its leading-order part: c is a power of two, which scales without
rounding, and the first at which values and gradients at c / 2, c and 2 c agree.

A limit of values alone is not enough. A softmax of trained scores tends to a hard maximum, and a
sigmoid gate to a step: these jump where the parameters vary, so no gradient leads to
where the values change. Nor does a theorem hold for parameters of degree 0 in the limit, as those
in front of a layer norm. Both are refused by name. A parameter that vanishes from the limit (the
bias of an upper layer) does no harm.

Source: Cai et al. (2025), near-homogeneous networks.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from implicit_bias.base.deadline import NEVER, Deadline
from implicit_bias.base.validation import Array
from implicit_bias.base.wording import listed_parts
from implicit_bias.modules import homogeneity
from implicit_bias.modules.evaluate import drawn_like
from implicit_bias.modules.forward_watch import functions_used
from implicit_bias.modules.homogeneity import NORMALISATIONS, OF_DEGREE_0, TRAPS
from implicit_bias.modules.margins import Margins
from implicit_bias.modules.partial_degrees import HOMOGENEITY_TOLERANCE, scale_invariant


@dataclass(frozen=True, kw_only=True)
class LimitSearch:
    """Looks for the scale at which a module stands for its leading-order part.

    Parameters
    ----------
    scales : tuple of float
        The scales c that are tried, in this order: 1 will do for a homogeneous module.
    agreement : float
        Share by which the values and gradients at two scales may differ.
    digits : int
        Decimals to which the degree is rounded.
    """

    scales: tuple[float, ...] = (1.0, *(2.0**power for power in range(40, 101, 10)))
    agreement: float = 1e-11
    digits: int = 9

    def limit(self, function: Margins, deadline: Deadline = NEVER) -> tuple[float, float] | None:
        """Return the first scale c at which a module is homogeneous, and its degree.

        Raises
        ------
        TimeoutError
            The deadline has passed before a scale was found, or the last one was tried.
        """
        for c in self.scales:
            if deadline.passed:
                raise TimeoutError(
                    "max_seconds was over before the degree of the leading-order part was known, "
                    "which takes some 30 passes over all samples: pass a larger one, or fewer "
                    "samples"
                )
            # At scale c the degree is measured from values and gradients at c / 2, c and 2 c.
            try:
                L = homogeneity.measured_degree(function.at_scale(c, 0.0), None, self.agreement)
            except homogeneity.OtherGradientsError:
                raise
            except homogeneity.HomogeneityError:
                continue
            # At c = 1 it may scale near theta alone, which is no limit.
            if c > 1.0 or homogeneity.scales_far_beyond(function, L, self.agreement):
                return c, round(L, self.digits)
        return None


class LeadingPart(NamedTuple):
    """The leading-order part of a module.

    Attributes
    ----------
    margins : Margins
        Its margins; all 0 where it vanishes at theta, as that of (W_0 + B A) x does at B = 0.
    degree : float
        L: the larger one of the degrees at theta and at random parameters. At theta a term may
        vanish; at random parameters none does.
    not_checked : tuple of str
        Parameters in which a jump of the limit was not looked for, for lack of time.
    """

    margins: Margins
    degree: float
    not_checked: tuple[str, ...] = ()


def leading_part(
    function: Margins,
    degree: float | None = None,
    *,
    deadline: Deadline = NEVER,
    jumps: bool = True,
) -> LeadingPart:
    """Find the leading-order part f_L of a module, and its degree L.

    Parameters
    ----------
    function : Margins
        Of the module itself.
    degree : float, optional
        L, if it is known. Then nothing is checked but that the limit exists.
    deadline : Deadline
        When to end. Jumps are looked for in a fraction of the time that is left.
    jumps : bool
        Whether to look for jumps of the limit, which take some hundred passes over a few samples
        for each parameter.

    Raises
    ------
    HomogeneityError
        There is no limit, or it jumps, or a parameter is of degree 0 in it.
    TimeoutError
        The deadline has passed before a limit was found.
    """
    search = LimitSearch()
    not_checked: tuple[str, ...] = ()
    # --- the limit here, and where no term vanishes
    here = search.limit(function, deadline)
    if degree is None:
        generic = function.restricted(function.shapes, drawn_like(function.theta))
        there = search.limit(generic, deadline)
        limits = [limit for limit in (here, there) if limit is not None]
        if not limits:
            raise homogeneity.HomogeneityError(_without_limit(function))
        degree = max(L for _, L in limits)
        # A module that is homogeneous as it is (c = 1) needs no check of its limit.
        if any(c > 1.0 for c, _ in limits):
            # At random parameters the units may be off on all samples, so that only terms of lower
            # degree are left there: then the limit at theta is checked.
            if there is not None and there[1] == degree:
                checked = generic.at_scale(*there)
            else:
                assert here is not None  # one of both has the degree
                checked = function.at_scale(*here)
            not_checked = _check(checked, deadline, jumps=jumps)
    if here is not None and here[1] == degree:
        return LeadingPart(function.at_scale(*here), degree, not_checked)

    # At this theta the term of degree L vanishes: what is left has a lower degree, so that divided
    # by c^L it is far smaller at a large c than at 1.
    c = search.scales[1]
    values = np.abs(function.at_scale(1.0, degree).margins(function.theta))
    scaled = np.abs(function.at_scale(c, degree).margins(function.theta))
    if scaled.max() > search.agreement * values.max():
        raise homogeneity.HomogeneityError(_without_limit(function))
    # The leading-order part is 0 here. Divided by c^infinity all outputs and gradients are 0, too.
    return LeadingPart(function.at_scale(c, math.inf), degree, not_checked)


def margins_in_the_limit(leading: Margins) -> Array:
    """Margins (n,) of a leading-order part, which are 0 where the module's have a lower degree.

    All terms of degree L may be 0 for a sample, as where all units beside a shortcut are off. Then
    a term of a lower degree, divided by c^L, is left at any finite c. It changes with c.
    """
    margins = leading.margins(leading.theta)
    scale, degree = leading.scaled
    if scale == 1.0 or not math.isfinite(degree):
        return margins
    further = leading.at_scale(2.0 * scale, degree).margins(leading.theta)
    stays = np.abs(further - margins) <= HOMOGENEITY_TOLERANCE * np.abs(margins)
    return np.where(stays, margins, 0.0)


def _without_limit(function: Margins) -> str:
    return (
        f"{_known_functions(function)}the outputs of the module at c theta, over a power of c, "
        f"tend to no limit, or their gradients do not, so there is no "
        "leading-order part: leave out what does not scale, or freeze its parameters "
        "(requires_grad_(False))"
    )


def _known_functions(function: Margins) -> str:
    """Name the functions to blame, and where they are, if there are any."""
    found = ""
    seen = functions_used(function, OF_DEGREE_0)
    for name, places in seen.items():
        what, _ = TRAPS[name]
        found += f"{what} ({name} in {listed_parts(places)}): "
    return found


def _check(leading: Margins, deadline: Deadline, *, jumps: bool) -> tuple[str, ...]:
    """Refuse a limit that jumps, or that has parameters of degree 0.

    Returns
    -------
    tuple of str
        Parameters in which there was no time to look for jumps.

    Raises
    ------
    HomogeneityError
        It names functions and parameters.
    """
    unscaled = scale_invariant(leading, 10 * LimitSearch.agreement)
    normalised = functions_used(leading, NORMALISATIONS)
    jumping = list[str]()
    not_checked = list[str]()
    if jumps:
        search = JumpSearch()
        limit = deadline.sooner(search.share)
        for name in leading.shapes:
            try:
                if search.finds(leading, name, limit):
                    jumping.append(name)
            except TimeoutError:
                not_checked.append(name)
    if jumping or unscaled or normalised:
        parts = listed_parts(jumping or unscaled) or "the parameters in front of it"
        what = "jumps" if jumping else "is of degree 0"
        raise homogeneity.HomogeneityError(
            f"{_known_functions(leading)}the limit of the module for large parameters {what} in "
            f"{parts}, and no theorem says where its training goes: freeze these "
            "(requires_grad_(False)), or leave out what does not scale"
        )
    return tuple(not_checked)


@dataclass(frozen=True, kw_only=True)
class JumpSearch:
    """Looks for a jump of the outputs between two values of a parameter.

    Of a continuous function, the largest change over an interval falls with its length; so the
    interval of the largest change is cut into parts, again and again, until the change is small or
    the interval is.

    Parameters
    ----------
    intervals : int
        Parts into which an interval is cut, a power of two.
    shortest : float
        Length of the last interval, as a fraction of the way.
    jump : float
        Fraction of the largest change that has to be left over the shortest interval.
    smallest_change : float
        Changes below this fraction of the outputs do not count.
    samples : int
        Samples whose outputs are looked at.
    share : float
        Most that the search in all parameters may take of the time that is left.
    """

    intervals: int = 8
    shortest: float = 2.0**-30
    jump: float = 1e-6
    smallest_change: float = 1e-4
    samples: int = 16
    share: float = 0.25

    def finds(self, leading: Margins, name: str, deadline: Deadline = NEVER) -> bool:
        """Whether there is one on the way from the value of a parameter to a random one.

        Raises
        ------
        TimeoutError
            The deadline has passed.
        """
        theta = leading.parameters(leading.theta)
        # Not the seed of `leading_part`'s random parameters: these may be theta, and the way would
        # have no length.
        other = drawn_like(theta[name], seed=1)
        inputs = tuple(tensor[: self.samples] for tensor in leading.inputs)

        def outputs(share: float) -> torch.Tensor:
            moved = torch.lerp(theta[name], other, share)
            with torch.no_grad():
                return leading.outputs_at(leading.flat({**theta, name: moved}), *inputs)

        low = 0.0
        length = 1.0
        at_low = outputs(0.0)
        at_high = outputs(1.0)
        largest = self.smallest_change * float(at_low.abs().max())
        while length > self.shortest:
            deadline.check()
            length /= self.intervals
            inner = [outputs(low + i * length) for i in range(1, self.intervals)]
            points = [at_low, *inner, at_high]
            changes = [float((b - a).abs().max()) for a, b in itertools.pairwise(points)]
            steepest = int(np.argmax(changes))
            largest = max(largest, *changes)
            if not changes[steepest] > self.jump * largest:
                return False
            low += steepest * length
            at_low = points[steepest]
            at_high = points[steepest + 1]
        return True
