"""The degree of homogeneity of a module, or the part that breaks it, by name, and a cure.

All tests are of what the module computes: its outputs and gradients with its parameters scaled.

A module of degree L has, for c > 0,

    (1)  q(c theta) = c^L q(theta),    (2)  grad q(c theta) = c^(L-1) grad q(theta),
    (3)  <theta, grad q(theta)> = L q(theta),    Euler's identity.

Powers of 2 scale homogeneous arithmetic without rounding, so c is 2 and 1/2.

Where a module is not homogeneous, it calls a function that is known not to scale
(`forward_watch`); or without its vectors, biases as a rule, it is homogeneous
(`partial_degrees`); or there is a part whose outputs do not scale though its inputs do.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from implicit_bias.base.package import table_of
from implicit_bias.base.wording import listed_parts, percent
from implicit_bias.modules.evaluate import PROBES, drawn_like
from implicit_bias.modules.forward_watch import functions_used, unscaled_part
from implicit_bias.modules.margins import Margins
from implicit_bias.modules.partial_degrees import (
    HOMOGENEITY_TOLERANCE,
    degree_in,
    deviation_of,
    scale_invariant,
)

_KINDS = table_of("modules/homogeneity.toml")
# Functions that break homogeneity, with what they are, and what to do.
TRAPS = dict[str, tuple[str, str]]()
# Those of them that tend to functions of degree 0 (a sigmoid to a step), and the normalizations.
OF_DEGREE_0 = set[str]()
for _kind in _KINDS.values():
    OF_DEGREE_0.update(_kind["of_degree_0"])
    for _name in (*_kind["of_degree_0"], *_kind["growing"]):
        TRAPS[_name] = (_kind["what"], _kind["cure"])
NORMALISATIONS: list[str] = _KINDS["normalization"]["of_degree_0"]


class HomogeneityError(ValueError):
    """A module that is not homogeneous in its parameters; the message has the deviation.

    Attributes
    ----------
    deviation : str
        What was measured, without advice.
    leads : bool
        Whether terms of another degree are to blame, so that ``leading=True`` may help.

    Examples
    --------
    >>> import torch
    >>> from implicit_bias import HomogeneityError, diagnose
    >>> module = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))  # with biases
    >>> _ = [torch.nn.init.ones_(part) for part in module.parameters()]
    >>> try:
    ...     diagnose(module.eval(), torch.eye(2), [1, 1])
    ... except HomogeneityError:
    ...     print("no scaling of its weights scales its outputs")
    no scaling of its weights scales its outputs
    """

    def __init__(self, deviation: str, advice: str = "", *, leads: bool = False) -> None:
        super().__init__(f"{deviation}: {advice}" if advice else deviation)
        self.deviation = deviation
        self.leads = leads


class OtherGradientsError(HomogeneityError):
    """A module that scales, but whose gradients are not those of its outputs."""


# --- the degree ----------------------------------------------------------------------------------


def degree_of(function: Margins, degree: float | None = None) -> float:
    """Measure the degree L of margins that are not all 0; where it is given, check it.

    Raises
    ------
    HomogeneityError
        There is none, and the message names the part that breaks it, with a cure; or another one
        than is given.
    """
    try:
        L = measured_degree(function, degree)
    except OtherGradientsError:
        raise
    except HomogeneityError as error:
        if degree is not None:
            raise
        first = np.arange(min(PROBES, len(function.labels)))
        cause = cause_of(function.of_samples(first))
        raise HomogeneityError(f"{cause.words} ({error.deviation})", leads=cause.leads) from error
    if scales_far_beyond(function, L):
        return L
    raise HomogeneityError(
        f"the module scales with degree {L:.4g} where its parameters are about as large as now, "
        "but not where they are far larger, as they are in the limit",
        "leave out what cuts off large outputs or activations, and cases by their size",
    )


def scales_far_beyond(
    function: Margins, degree: float, tolerance: float = HOMOGENEITY_TOLERANCE
) -> bool:
    """Whether margins that scale with a degree at the parameters do so at far larger ones, too.

    They do not if outputs or activations are clipped, at values far above those that they have now.
    """
    # Parameters gain 40 bits, unless outputs would gain more than float64 has.
    bits = min(40, int(1000 / degree))
    here = function.margins(function.theta)
    far = function.at_scale(2.0**bits, degree).margins(function.theta)
    # The degree was measured between neighbouring powers of 2: its error grows with the bits.
    near = np.abs(far - here).max() <= (bits + 1) * tolerance * np.abs(here).max()
    return bool(near or not np.isfinite(far).all())


@np.errstate(all="ignore")  # outputs that overflow have no degree: nan
def measured_degree(
    function: Margins, degree: float | None, tolerance: float = HOMOGENEITY_TOLERANCE
) -> float:
    """Degree L of margins that are not all 0, measured between theta / 2 and 2 theta, or as given.

    Raises
    ------
    HomogeneityError
        (1) or (2) does not hold: a bias unit that is still 0 shows in nothing but its gradient. Or
        L is 0 or less.
    OtherGradientsError
        (3) does not hold, on which the KKT gap rests: the gradients of a module that detaches a
        part scale, but are of another function.
    """
    scales = (2.0, 0.5)
    theta = function.theta
    # One random combination of the margins, in which nothing cancels by symmetry.
    weights = np.random.default_rng(0).random(len(function.pairs))

    # --- the margins (1)
    margins = function.margins(theta)
    scaled = [function.margins(scale * theta) for scale in scales]
    # Squares of the margins may under- or overflow, squares of their fractions of the largest do
    # not.
    largest = np.abs(margins).max()
    size = np.linalg.norm(margins / largest)
    degrees = list[float]()
    for scale, found in zip(scales, scaled, strict=True):
        ratio = np.linalg.norm(found / largest) / size
        degrees.append(float(np.log(ratio) / np.log(scale)))
    L = sum(degrees) / 2 if degree is None else degree
    deviations = list[float]()
    for scale, found in zip(scales, scaled, strict=True):
        deviations.append(deviation_of(found, scale**L * margins))

    # --- their gradients (2), which take longer: only if the margins pass
    gradient = np.empty(0)
    if np.max(deviations) <= tolerance:
        gradient = function.vjp(theta, weights).cpu().numpy()
        parts = function.parameters(torch.from_numpy(gradient))
        broken = [name for name, part in parts.items() if not part.isfinite().all()]
        # At another scale than 1 that is no error of the module: it may have no limit there.
        if broken and function.scaled[0] == 1.0:
            raise OtherGradientsError(
                f"gradients in {listed_parts(broken)} are NaN or infinite, though the outputs are "
                "finite: is there a root or a norm at 0, or a torch.where whose other branch is "
                "NaN?",
                "clamp what such a branch is given, before it computes",
            )
        for scale in scales:
            found = function.vjp(scale * theta, weights).cpu().numpy()
            deviations.append(deviation_of(found, scale ** (L - 1.0) * gradient))

    deviation = float(np.max(deviations))  # unlike `max` it is nan if any of them is
    if deviation <= tolerance and not L > HOMOGENEITY_TOLERANCE:
        raise HomogeneityError(
            f"the module scales with degree {L:.4g} in its parameters, so larger ones have no "
            "larger margins: leave out normalization by what is trained, and divisions by it"
        )
    if not deviation <= tolerance:
        raise HomogeneityError(
            f"the module is not homogeneous of degree {L:.4g} in its parameters: scaled by 2 and "
            f"by 1/2, its outputs or gradients miss that by up to {percent(deviation, space=' ')} "
            f"(degree measured upwards {degrees[0]:.4g}, downwards {degrees[1]:.4g})",
            "leave out biases and activations that do not scale",
        )

    # --- Euler's identity (3)
    terms = theta.cpu().numpy() * gradient
    missed: float = abs(float(terms.sum()) - L * float(weights @ margins))
    # The terms may cancel in the sum, which is then no measure of their rounding errors.
    rounded = 1e-6 * float(np.abs(terms).sum())
    allowed: float = max(L * float(weights @ np.abs(margins)), rounded)
    if not missed <= HOMOGENEITY_TOLERANCE * allowed:
        raise OtherGradientsError(
            f"the module scales with degree {L:.4g} in its parameters, but torch's gradients are "
            "not those of its outputs: Euler's identity <theta, grad q> = L q misses by "
            f"{percent(missed / allowed, space=' ')}",
            "leave out detach() and no_grad(), straight-through estimators and hooks that change "
            "gradients, or freeze the parameters that they keep from their gradients",
        )
    return L


# --- why there is none ---------------------------------------------------------------------------


class Cause(NamedTuple):
    """Why a module is not homogeneous.

    Attributes
    ----------
    words : str
        The part that breaks it, and a cure.
    leads : bool
        Whether its leading-order part may help.
    """

    words: str
    leads: bool


def cause_of(function: Margins, far: float = 2.0**40) -> Cause:
    """Find why a module is not homogeneous.

    Parameters
    ----------
    function : Margins
        Its margins.
    far : float
        Scale of the parameters at which the module is nearly its leading-order part, if it has one.
    """
    # A parameter that is 0 now (a bias before training) hides the term that it adds: it is drawn.
    theta = function.theta
    drawn = theta.square().mean().sqrt() * drawn_like(theta)
    function = function.restricted(function.shapes, torch.where(theta == 0, drawn, theta))

    # --- a function that is known not to scale
    called = functions_used(function, TRAPS)
    if called:
        first = next(iter(called))
        what, cure = TRAPS[first]
        # A module with functions that tend to degree 0 has no leading-order part that helps.
        leads = OF_DEGREE_0.isdisjoint(called)
        return Cause(f"{what}: {first} in {listed_parts(called[first])}: {cure}", leads)

    # --- vectors that are biases, or factors of some terms
    added = _added_vectors(function)
    if added:
        return Cause(
            f"biases: with {listed_parts(added)} set to 0 the module is homogeneous. Leave them "
            "out (bias=False, readout_bias=False), or freeze them at 0; a constant feature of the "
            "inputs does as well. Slopes of a PReLU may be frozen as they are",
            True,
        )

    # --- a part that adds terms of several degrees: at a large scale the largest one is left
    at_large = function.at_scale(far, 0.0)
    leads = not (np.isnan(degree_in(at_large, function.shapes)) or scale_invariant(at_large))
    part = unscaled_part(function)
    where = "the module is not homogeneous"
    if part is not None:
        kind = type(function.module.get_submodule(part)).__name__
        where = f"the outputs of {listed_parts([part])} ({kind}) do not scale, though its inputs do"
    return Cause(
        f"{where}: use layers and activations that scale, and give all paths (a skip connection, "
        "an update of frozen weights, the contexts of a gate) the same number of trained layers",
        leads,
    )


def _added_vectors(function: Margins) -> list[str]:
    """Return the vectors and scalars without which the module is homogeneous; none if it is not."""
    vectors = [name for name, shape in function.shapes.items() if len(shape) <= 1]

    def is_homogeneous_without(names: list[str]) -> bool:
        return degree_in(function, function.shapes.keys() - names, names) > 0

    if not vectors or not is_homogeneous_without(vectors):
        return []
    needed = list[str]()
    for name in vectors:
        # A vector breaks homogeneity if the module is not homogeneous with all others at 0.
        others = [other for other in vectors if other != name]
        if not is_homogeneous_without(others):
            needed.append(name)
    return needed or vectors
