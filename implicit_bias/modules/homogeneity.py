"""The degree of homogeneity of a module, or the part that breaks it, by name, and a cure.

All tests are of what the module computes: its outputs and gradients with some parameters scaled, or
at 0. Its forward pass is watched (`forward_watch`) only to name the functions of `TRAPS` that it
calls.

A module of degree L has, for c > 0,

    (1)  q(c theta) = c^L q(theta),    (2)  grad q(c theta) = c^(L-1) grad q(theta),
    (3)  <theta, grad q(theta)> = L q(theta),    Euler's identity.

Powers of 2 scale homogeneous arithmetic without rounding, so c is 2 and 1/2.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import torch
from torch import Tensor

from implicit_bias.base.packaged import table_of
from implicit_bias.base.validation import Array
from implicit_bias.base.wording import percent
from implicit_bias.modules.evaluate import drawn_like
from implicit_bias.modules.forward_watch import (
    ADDITIONS,
    BIASED,
    WATCHED,
    ForwardWatch,
    functions_used,
    listed,
    watched,
)
from implicit_bias.modules.margins import Margins

__all__ = [
    "HOMOGENEITY_TOLERANCE",
    "WATCHED",
    "HomogeneityError",
    "OtherGradientsError",
    "degree_of",
    "functions_used",
    "listed",
    "of_degree_0",
]

# Largest share by which a homogeneous module may miss (1) or (2), by rounding.
HOMOGENEITY_TOLERANCE = 1e-6
# (3) may miss by the tolerance times this share of its terms, of which most may cancel.
ROUNDED_SHARE = 1e-6
# The power of 2 that parameters are scaled by to see what is cut off far above its size now.
FAR_BITS = 40
# The most bits that outputs may gain by that: beyond the range of float64 nothing is known.
MOST_BITS = 1000
# A parameter to blame is looked for among at most so many, each of them with a few forward passes.
MOST_TENSORS = 12
# The scale at which terms of lower degrees are lost, and the share that counts as lost.
LARGE = 2.0**20
LOST = 1e-3
# The largest degree of a polynomial of the parameters' scale that is looked for.
LARGEST_DEGREE = 6
# Terms of such a polynomial count from this share of the outputs on.
SMALLEST_TERM = 1e-5


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


_KINDS = table_of("modules/homogeneity.toml")
# Functions that break homogeneity, with what they are, and what to do.
TRAPS = dict[str, tuple[str, str]]()
# Those that tend to degree 0, where some jump, and of these the normalisations.
OF_DEGREE_0 = set[str]()
for _kind in _KINDS.values():
    OF_DEGREE_0.update(_kind["of_degree_0"])
    for _name in (*_kind["of_degree_0"], *_kind["growing"]):
        TRAPS[_name] = (_kind["what"], _kind["cure"])
NORMALISATIONS: list[str] = _KINDS["normalisation"]["of_degree_0"]


# --- the degree ----------------------------------------------------------------------------------


def degree_of(gradients: Margins, degree: float | None = None) -> float:
    """Measure the degree L of margins that are not all 0; where it is given, check it.

    Raises
    ------
    HomogeneityError
        There is none, and the message names the part that breaks it, with a cure; or another one
        than is given.
    """
    try:
        L = measured_degree(gradients, degree)
    except OtherGradientsError:
        raise
    except HomogeneityError as error:
        if degree is not None:
            raise
        cause, leads = _cause(gradients)
        raise HomogeneityError(f"{cause} ({error.deviation})", leads=leads) from error
    if scales_far_beyond(gradients, L):
        return L
    used = functions_used(gradients, TRAPS)
    where = "".join(f" ({name} in {listed(places)})" for name, places in used.items())
    raise HomogeneityError(
        f"the module scales with degree {L:.4g} where its parameters are about as large as now, "
        "but not where they are far larger, as they are in the limit",
        f"leave out what cuts off large outputs or activations{where}, and cases by their size",
    )


def scales_far_beyond(
    gradients: Margins, degree: float, tolerance: float = HOMOGENEITY_TOLERANCE
) -> bool:
    """Whether margins of this degree near the parameters have it where these are far larger, too.

    Those of outputs or activations that are cut off, far above what they are, do not.
    """
    bits = min(FAR_BITS, int(MOST_BITS / degree))
    here = gradients.margins(gradients.theta)
    far = gradients.at_scale(2.0**bits, degree).margins(gradients.theta)
    # The degree was measured over one bit, so that its error counts that often.
    near = np.abs(far - here).max() <= (bits + 1) * tolerance * np.abs(here).max()
    return bool(near or not np.isfinite(far).all())


def measured_degree(
    gradients: Margins, degree: float | None, tolerance: float = HOMOGENEITY_TOLERANCE
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
    theta = gradients.theta
    # One random combination of the margins, in which nothing cancels by symmetry.
    weights = np.random.default_rng(0).random(len(gradients.pairs))

    # --- the margins (1)
    margins = gradients.margins(theta)
    scaled = [gradients.margins(scale * theta) for scale in scales]
    # Squares of the margins may under- or overflow, their shares of the largest do not. No degree
    # fits where outputs vanish or overflow.
    largest = np.abs(margins).max()
    size = np.linalg.norm(margins / largest)
    degrees = list[float]()
    for scale, found in zip(scales, scaled, strict=True):
        ratio = np.linalg.norm(found / largest) / size
        degrees.append(float(np.log(ratio) / np.log(scale)))
    L = sum(degrees) / 2 if degree is None else degree
    deviations = list[float]()
    for scale, found in zip(scales, scaled, strict=True):
        deviations.append(_deviation(found, scale**L * margins))

    # --- their gradients (2), which take longer, and are not asked for in vain
    gradient = np.empty(0)
    if np.max(deviations) <= tolerance:
        gradient = gradients.combine(theta, weights).cpu().numpy()
        parts = gradients.parameters(torch.from_numpy(gradient))
        broken = [name for name, part in parts.items() if not part.isfinite().all()]
        if broken and gradients.scaled[0] == 1.0:  # else it may be for want of a limit
            raise OtherGradientsError(
                f"gradients in {listed(broken)} are NaN or infinite, though the outputs are "
                "finite: is there a root or a norm at 0, or a torch.where whose other branch is "
                "NaN?",
                "clamp what such a branch is given, before it computes",
            )
        for scale in scales:
            found = gradients.combine(scale * theta, weights).cpu().numpy()
            deviations.append(_deviation(found, scale ** (L - 1.0) * gradient))

    deviation = float(np.max(deviations))  # which is nan where one is, unlike that of `max`
    if deviation <= tolerance and not L > HOMOGENEITY_TOLERANCE:
        raise HomogeneityError(
            f"the module scales with degree {L:.4g} in its parameters, so larger ones have no "
            "larger margins: leave out normalisation by what is trained, and divisions by it"
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
    rounded = ROUNDED_SHARE * float(np.abs(terms).sum())
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


@np.errstate(divide="ignore", invalid="ignore")  # where all are 0: nan
def _deviation(found: Array, expected: Array) -> float:
    """Largest difference, relative to the largest value."""
    return float(np.abs(found - expected).max() / np.abs(expected).max())


# --- parameters of degree 0 ----------------------------------------------------------------------


def of_degree_0(gradients: Margins) -> tuple[str, ...]:
    """Names of the parameters, not 0, whose size changes no output, as directions do.

    Alone, or with all others of the same part: weight and bias in front of a layer norm. By Euler's
    identity <W, grad q> = 0 in these, which one backward pass tells of a random combination of the
    margins. Only those of which it holds are scaled.
    """
    theta = gradients.parameters(gradients.theta)
    v = _random_combination(gradients)
    terms = {name: theta[name] * v[name] for name in theta}

    def has_degree_0(names: list[str]) -> bool:
        product = sum(float(terms[name].sum()) for name in names)
        size = sum(float(terms[name].abs().sum()) for name in names)
        if abs(product) > HOMOGENEITY_TOLERANCE * size:  # not where it is nan
            return False
        return abs(_degree_in(gradients, names)) <= HOMOGENEITY_TOLERANCE

    parts = dict[str, list[str]]()
    for name in theta:
        parts.setdefault(name.rpartition(".")[0], []).append(name)
    found = list[str]()
    for names in parts.values():
        for name in names:
            if theta[name].any() and (has_degree_0([name]) or has_degree_0(names)):
                found.append(name)
    return tuple(found)


def directions(gradients: Margins, tolerance: float = HOMOGENEITY_TOLERANCE) -> list[str]:
    """Names of the parameters whose size changes no output, though they themselves do."""
    v = _random_combination(gradients)
    sizes = {name: float(part.abs().max()) for name, part in v.items()}
    least = tolerance * max(sizes.values())
    return [name for name in of_degree_0(gradients) if sizes[name] > least]


def _random_combination(gradients: Margins) -> dict[str, Tensor]:
    """Gradient of a random combination of the margins, by parameter."""
    weights = np.random.default_rng(0).random(len(gradients.pairs))
    return gradients.parameters(gradients.combine(gradients.theta, weights))


# --- degrees in some parameters ------------------------------------------------------------------


def _scaled(gradients: Margins, scales: Mapping[str, float]) -> Array:
    """Compute the outputs (N, K) with some parameters scaled."""
    parts = gradients.parameters(gradients.theta).items()
    scaled = {name: scales.get(name, 1.0) * part for name, part in parts}
    return gradients.outputs(gradients.flat(scaled))


def _degree_in(gradients: Margins, names: Collection[str], at_0: Collection[str] = ()) -> float:
    """Degree of all outputs together in some parameters, others at 0; nan where there is none."""
    return float(_degrees(gradients, names, at_0, by_sample=False)[0])


@np.errstate(divide="ignore", invalid="ignore")  # of outputs that are 0: nan
def _degrees(
    gradients: Margins, names: Collection[str], at_0: Collection[str] = (), *, by_sample: bool
) -> Array:
    """Degrees of the outputs of each sample, (N,), or of all together, (1,); nan without."""
    scaled = list[Array]()
    for scale in (0.5, 1.0, 2.0):
        scales = dict.fromkeys(names, scale) | dict.fromkeys(at_0, 0.0)
        outputs = _scaled(gradients, scales)
        scaled.append(outputs if by_sample else outputs.reshape(1, -1))
    down, original, up = scaled
    size = np.abs(original).max(axis=1)
    most = np.abs(up).max(axis=1)
    factor = most / size
    error_up = np.abs(up - factor[:, None] * original).max(axis=1) / most
    error_down = np.abs(factor[:, None] * down - original).max(axis=1) / size
    fits = (np.maximum(error_up, error_down) <= HOMOGENEITY_TOLERANCE) & down.any(axis=1)
    return np.where(fits, np.log2(factor), np.nan)


def _degree_without(gradients: Margins, names: Collection[str]) -> float:
    """Degree with some parameters at 0; 0 where the rest is not homogeneous, or nothing."""
    return float(np.nan_to_num(_degree_in(gradients, gradients.shapes.keys() - names, names)))


# --- why a module is not homogeneous -------------------------------------------------------------


def _cause(gradients: Margins) -> tuple[str, bool]:
    """Why a module is not homogeneous and what to do, and whether its leading part may help."""
    try:
        return _known_cause(gradients) or _measured_cause(gradients)
    except ValueError as failed:  # of the module, at parameters for which it has no value
        return f"the module is not homogeneous, and {failed}", False


def _without_zeros(gradients: Margins) -> Margins:
    """Return the margins where no parameter is 0.

    What is 0 now, a bias before training say, shows nothing of the term that it adds.
    """
    theta = gradients.theta
    drawn = theta.square().mean().sqrt() * drawn_like(theta)
    return gradients.restricted(gradients.shapes, torch.where(theta == 0, drawn, theta))


def _few_samples(gradients: Margins) -> Margins:
    """Return the margins of the first samples, on which a cause is found soon."""
    return gradients.of_samples(np.arange(min(WATCHED, len(gradients.labels))))


def _known_cause(gradients: Margins) -> tuple[str, bool] | None:
    """Find a function that is known not to scale, or biases, by name in one forward pass."""
    gradients = _without_zeros(gradients)
    watch, outputs = watched(gradients, {*TRAPS, *BIASED}, trained=True)
    last = watch.last(outputs)
    if last not in (None, "log_softmax", *NORMALISATIONS, *BIASED):
        return (
            f"the module returns what {last} makes, which does not scale: return logits, that is, "
            f"what {last} is given, and leave it to the loss"
        ), False
    traps = [name for name in watch.seen if name in TRAPS]
    for name in traps:
        if name == last == "log_softmax":  # differences of its outputs are those of the logits
            continue
        what, cure = TRAPS[name]
        in_front = watch.in_front_of(name)
        of = f", computed from {listed(in_front)}" if in_front else ""
        leads = OF_DEGREE_0.isdisjoint(traps)
        return f"{what}: {name} in {watch.listed(watch.seen[name])}{of}: {cure}", leads
    biases = _known_biases(gradients, watch)
    few = _few_samples(gradients)
    if biases:
        outputs_without = _scaled(few, dict.fromkeys(biases, 0.0))
        degree = _degree_in(few, few.shapes.keys() - biases, biases)
        if not (outputs_without.any() and np.isnan(degree)):
            return _of_biases(biases, watch), True
    return None


def _known_biases(gradients: Margins, watch: ForwardWatch) -> list[str]:
    return [name for name in watch.biases if name in gradients.shapes]


def _measured_cause(gradients: Margins) -> tuple[str, bool]:
    """Find the parameters to blame by outputs with some of them scaled, or at 0."""
    gradients = _without_zeros(gradients)
    few = _few_samples(gradients)
    names = gradients.shapes
    watch, _ = watched(gradients, {*TRAPS, *BIASED}, trained=True)
    vectors = [name for name, shape in names.items() if len(shape) <= 1]
    many = len(names) > MOST_TENSORS

    # --- in a large module, the first sum of terms of two degrees
    found = _unlike_terms(few, vectors) if many else None
    if found is not None:
        place, powers = found
        biases = _known_biases(gradients, watch)
        also = f"biases ({listed(biases)}; bias=False) and " if biases else ""
        sums = " and ".join(f"{power:.4g}" for power in sorted(powers))
        return (
            f"{also}a skip connection: {watch.listed([place])} adds terms of degrees {sums}. "
            "Give all paths the same number of trained layers"
        ), True

    # --- samples of different degrees
    degrees = _degrees(gradients, names, by_sample=True)
    if np.ptp(degrees) > HOMOGENEITY_TOLERANCE:  # not where a sample has none
        first = int(degrees.argmin())
        other = int(degrees.argmax())
        return (
            f"samples of different degrees: {degrees[first]:.4g} at sample {first}, "
            f"{degrees[other]:.4g} at sample {other}. Only the samples of the least degree keep a "
            "share of the gradient, so training goes to a KKT point of their program alone: give "
            "all contexts paths of the same number of layers, or diagnose the samples of one degree"
        ), False

    # --- vectors that are factors or biases
    added = [] if many else _added_terms(gradients)
    biases = [name for name in added if len(names[name]) <= 1]
    if biases and not np.isnan(_degree_in(gradients, names.keys() - biases)):
        return (
            f"factors: with {listed(biases)} held fast the module is homogeneous, as with the "
            "slopes of a PReLU. Freeze them: requires_grad_(False)"
        ), False
    if biases:
        return _of_biases(biases, watch), True

    # --- outputs that are a polynomial of the parameters' scale: a skip connection
    unknown = (
        "the module is not homogeneous: use layers and activations that scale; a bias, a skip "
        "connection or an update of frozen weights adds a term of another degree"
    )
    if many:
        return unknown, False
    far = few.at_scale(2.0**FAR_BITS, 0.0)
    leads = not (np.isnan(_degree_in(far, far.shapes)) or directions(far))
    for without in ([], vectors):
        mixed = _mixed_degrees(few, without)
        if len(mixed) > 1:
            return _of_a_skip_connection(few, vectors, added, mixed), leads
    return unknown, leads


def _of_biases(biases: list[str], watch: ForwardWatch) -> str:
    """Say that biases are to blame."""
    kinds = dict.fromkeys(type(part).__name__ for part in watch.owners(biases))
    of = f" of {' and '.join(kinds)} layers" if kinds else ""
    return (
        f"biases{of}: with {listed(biases)} set to 0 the module is homogeneous. Leave them out "
        "(bias=False, readout_bias=False), or freeze them at 0; a constant feature of the "
        "inputs does as well"
    )


def _of_a_skip_connection(
    few: Margins, vectors: list[str], added: list[str], degrees: list[int]
) -> str:
    """Say that terms of several degrees are added, and by which parameters as far as is known."""
    # Biases above the first layer are lost beside the rest at a large scale.
    large = dict.fromkeys(few.shapes, LARGE)
    size = _scaled(few, large)
    biases = list[str]()
    for name in vectors:
        if _deviation(_scaled(few, large | {name: 0.0}), size) < LOST:
            biases.append(name)
    also = f"biases ({listed(biases)}; bias=False) and " if biases else ""
    sums = " and ".join(f"{degree:d}" for degree in degrees)
    through, frozen = "", ""
    if added and not biases and len(degrees) == 2:
        # What leaves the longer path is the shortcut; else it has no weights of its own.
        if _degree_without(few, added[:1]) > sum(degrees) / 2:
            through = f" ({listed(added)})"
            frozen = ", or train with the shortcut's weights frozen at 0"
        else:
            through = f" (beside {listed(added)})"
    return (
        f"{also}a skip connection: the outputs are a sum of terms of degrees "
        f"{sums}{through}. Give all paths the same number of trained layers{frozen}"
    )


def _unlike_terms(
    gradients: Margins, at_0: Collection[str]
) -> tuple[str, tuple[float, float]] | None:
    """Find where terms of two degrees are added: the part of the module, and the degrees.

    The terms of all sums are written down at the parameters and at twice these, some at 0. The
    first sum of terms that both scale, but by different powers, is a skip connection.
    """
    once = watched(gradients, ADDITIONS, trained=False, scale=1.0, at_0=at_0)[0].sums
    twice = watched(gradients, ADDITIONS, trained=False, scale=2.0, at_0=at_0)[0].sums
    for (place, one, other), (_, one_doubled, other_doubled) in zip(once, twice, strict=False):
        degrees = _power(one, one_doubled), _power(other, other_doubled)
        if abs(degrees[0] - degrees[1]) > HOMOGENEITY_TOLERANCE:  # not where one is nan
            return place, degrees
    return None


def _power(tensor: Tensor, doubled: Tensor) -> float:
    """Degree of a tensor, by its values at twice the parameters; nan where it does not scale."""
    size = float(tensor.abs().max())
    most = float(doubled.abs().max())
    if not (size > 0.0 and most > 0.0):
        return float("nan")
    missed = float((doubled - (most / size) * tensor).abs().max())
    if missed > HOMOGENEITY_TOLERANCE * most:
        return float("nan")
    return float(np.log2(most / size))


def _added_terms(gradients: Margins) -> list[str]:
    """Parameters without which (at 0) the module is homogeneous: each of one set that must go.

    The set are the vectors and scalars, biases as a rule; where these are not to blame, a single
    parameter. What a few samples name is checked on all of them, and asked of all where it fails.
    """
    for some in (_few_samples(gradients), gradients):
        added = _terms_added_in(some)
        if _degree_without(gradients, added) > 0 or _degree_without(gradients, added[:1]) > 0:
            return added
    return []


def _terms_added_in(gradients: Margins) -> list[str]:
    vectors = [name for name, shape in gradients.shapes.items() if len(shape) <= 1]
    if vectors and _degree_without(gradients, vectors) > 0:
        needed = list[str]()
        for name in vectors:
            others = [other for other in vectors if other != name]
            if not _degree_without(gradients, others) > 0:
                needed.append(name)
        return needed or vectors
    # The shortcut is what leaves the paths of the largest degree.
    degrees = {name: _degree_without(gradients, [name]) for name in gradients.shapes}
    largest = max(degrees.values())
    return [name for name, degree in degrees.items() if degree == largest > 0]


def _mixed_degrees(gradients: Margins, without: Collection[str]) -> list[int]:
    """Degrees of outputs that are a polynomial of the scale of all parameters but some, at 0.

    Empty if they are none.
    """
    at_0 = dict.fromkeys(without, 0.0)
    scales = np.linspace(0.5, 2.0, LARGEST_DEGREE + 4)
    rows = list[Array]()
    for scale in scales.tolist():
        rows.append(_scaled(gradients, dict.fromkeys(gradients.shapes, scale) | at_0).reshape(-1))
    outputs = np.stack(rows)
    powers = scales[:, None] ** np.arange(LARGEST_DEGREE + 1)
    terms, *_ = np.linalg.lstsq(powers, outputs)
    size = np.abs(outputs).max()
    if np.abs(powers @ terms - outputs).max() > HOMOGENEITY_TOLERANCE * size:
        return []
    return np.flatnonzero(np.abs(terms).max(axis=1) > SMALLEST_TERM * size).tolist()
