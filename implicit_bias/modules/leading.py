r"""The leading part of a module that is homogeneous only in the limit of large parameters.

    f_L(theta) = lim f(c theta) / c^L   for c to infinity,   theta the trained parameters alone

Residual blocks, low-rank updates (W_0 + B A) x of frozen weights, biases above the first layer, and
gates such as GELU have one. If f(c theta) / c^L and its gradient converge, gradient descent
goes in direction to KKT points of the leading part's margin problem, in l2. So the module at a
large c stands for its leading part: c is a power of two, which scales without rounding, and the
first at which values and gradients at c / 2, c and 2 c agree.

A limit of values alone is not enough. A softmax of trained scores tends to a hard maximum, and a
sigmoid gate to a step: these jump where the parameters vary, so no gradient leads to
where the values change. Nor does a theorem hold for parameters of degree 0 in the limit, as those
in front of a layer norm. Both are refused by name. A parameter that vanishes from the limit (the
bias of an upper layer) does no harm.

Source: Cai et al. (2025), near-homogeneous networks.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from implicit_bias.base.validation import Array
from implicit_bias.modules import homogeneity
from implicit_bias.modules.evaluate import drawn_like
from implicit_bias.modules.margins import Margins

# What the parameters are scaled by: 1 is enough for a homogeneous module.
SCALES = (1.0, *(2.0**power for power in range(40, 101, 10)))
# Share by which the values and gradients at two scales may differ.
AGREEMENT = 1e-11
# Digits of a measured degree that count.
DIGITS = 9
# A jump: what is left of a difference on a part of the way as short as 2^-HALVINGS, as a share.
HALVINGS, JUMP = 30, 1e-6
# Smallest change on the way, as a share of the outputs, in which a jump is looked for.
NOTHING = 1e-4
# Intervals into which each step of the search for a jump cuts the way, a power of two.
INTERVALS = 8
# Samples on which jumps are looked for.
PROBES = 16


def leading_part(gradients: Margins, degree: float | None = None) -> tuple[Margins, float]:
    """Find the leading part f_L of a module, and its degree L.

    Parameters
    ----------
    gradients : Margins
        Of the module itself.
    degree : float, optional
        L, where it is known: then nothing is checked but that the limit exists.

    Returns
    -------
    Margins
        The margins of the leading part; all 0 where it vanishes at theta, as that of (W_0 + B A) x
        does at B = 0.
    float
        L: the larger one of those at theta and at random parameters, which no term of the module
        vanishes at.

    Raises
    ------
    HomogeneityError
        There is no limit, or it jumps, or a parameter is of degree 0 in it.
    """
    here = _limit(gradients)
    if degree is None:
        generic = gradients.restricted(gradients.shapes, drawn_like(gradients.theta))
        there = _limit(generic)
        limits = [limit for limit in (here, there) if limit is not None]
        if not limits:
            raise homogeneity.HomogeneityError(_without_limit(gradients))
        degree = max(L for _, L in limits)
        if any(c > 1.0 for c, _ in limits):
            # At random parameters all samples may be off, so that terms of less degree are left.
            leads = there is not None and there[1] == degree
            point, (c, L) = (generic, limits[-1]) if leads else (gradients, limits[0])
            _check(point.at_scale(c, L))
    if here is not None and here[1] == degree:
        return gradients.at_scale(*here), degree
    c = SCALES[1]
    values, scaled = (
        np.abs(gradients.at_scale(s, degree).margins(gradients.theta)) for s in (1, c)
    )
    if scaled.max() > AGREEMENT * values.max():
        raise homogeneity.HomogeneityError(_without_limit(gradients))
    # What is left at this theta, of a lower degree, vanishes when it is divided by c^infinity.
    return gradients.at_scale(c, math.inf), degree


def margins_in_the_limit(leading: Margins) -> Array:
    """Margins (n,) of a leading part at its parameters; 0 where that of the module has less degree.

    Of a sample at which all terms of the largest degree are 0 (units that are off, beside a
    shortcut) a lower one is left at any c, divided by too large a power of it.
    """
    margins, (scale, degree) = leading.margins(leading.theta), leading.scaled
    if scale == 1.0 or not math.isfinite(degree):
        return margins
    further = leading.at_scale(2.0 * scale, degree).margins(leading.theta)
    return np.where(
        np.abs(further - margins) <= homogeneity.HOMOGENEITY_TOLERANCE * np.abs(margins), margins, 0
    )


def _limit(gradients: Margins) -> tuple[float, float] | None:
    """Return the first scale c at which a module is homogeneous, and its degree."""
    for c in SCALES:
        try:
            L = homogeneity.measured_degree(gradients.at_scale(c, 0.0), None, AGREEMENT)
        except homogeneity.OtherGradientsError:
            raise
        except homogeneity.HomogeneityError:
            continue
        if c > 1.0 or homogeneity.scales_far_beyond(gradients, L, AGREEMENT):
            return c, round(L, DIGITS)
    return None


def _without_limit(gradients: Margins) -> str:
    return (
        f"{_named(gradients)}the outputs of the module at c theta, over a power of c, tend to no "
        f"limit up to c = {SCALES[-1]:.0e}, or their gradients do not, so there is no leading "
        "part: leave out what does not scale, or freeze its parameters (requires_grad_(False))"
    )


def _named(gradients: Margins) -> str:
    """Name the function to blame, and where it is, if there is one."""
    seen = homogeneity.functions_used(gradients, homogeneity.OF_DEGREE_0)
    return "".join(
        f"{homogeneity.TRAPS[name][0]} ({name} in {homogeneity.listed(places)}): "
        for name, places in seen.items()
    )


def _check(leading: Margins) -> None:
    """Refuse a limit that jumps, or that has parameters of degree 0.

    Raises
    ------
    HomogeneityError
        It names functions and parameters.
    """
    jumping = [name for name in leading.shapes if _jumps(leading, name)]
    still = homogeneity.directions(leading, 10 * AGREEMENT)
    normalised = homogeneity.functions_used(leading, homogeneity.NORMALISATIONS)
    if jumping or still or normalised:
        parts = homogeneity.listed(jumping or still) or "the parameters in front of it"
        what = f"{'jumps' if jumping else 'is of degree 0'} in {parts}"
        raise homogeneity.HomogeneityError(
            f"{_named(leading)}the limit of the module for large parameters {what}, and no theorem "
            "says where its training goes: freeze these (requires_grad_(False)), or leave out what "
            "does not scale"
        )


def _jumps(leading: Margins, name: str) -> bool:
    """Whether the outputs jump on the way from one value of a parameter to a random one.

    Of a continuous function, the largest change over an interval falls with its length.
    """
    theta = leading.parameters(leading.theta)
    other = drawn_like(theta[name], seed=1)
    inputs = tuple(tensor[:PROBES] for tensor in leading.inputs)

    def outputs(share: float) -> torch.Tensor:
        moved = torch.lerp(theta[name], other, share)
        with torch.no_grad():
            return leading.outputs_at(leading.flat({**theta, name: moved}), *inputs)

    low, length, ends = 0.0, 1.0, [outputs(0.0), outputs(1.0)]
    first = NOTHING * float(ends[0].abs().max())
    while length > 2.0**-HALVINGS:
        length /= INTERVALS
        points = [ends[0], *(outputs(low + i * length) for i in range(1, INTERVALS)), ends[1]]
        changes = [float((b - a).abs().max()) for a, b in zip(points, points[1:], strict=False)]
        steepest, first = int(np.argmax(changes)), max(first, *changes)
        if not changes[steepest] > JUMP * first:
            return False
        low, ends = low + steepest * length, points[steepest : steepest + 2]
    return True
