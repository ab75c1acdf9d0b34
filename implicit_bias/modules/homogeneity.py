"""The degree of homogeneity of a module, or the part that breaks it, by name, and a cure.

All tests are of what the module computes: its outputs and gradients with some parameters scaled, or
at 0. Its forward pass is watched only to name the functions of `TRAPS` that it calls.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.overrides import TorchFunctionMode

from implicit_bias.base.packaged import table_of
from implicit_bias.base.validation import Array
from implicit_bias.base.wording import percent
from implicit_bias.modules.evaluate import drawn_like, evaluate, values_of
from implicit_bias.modules.margins import Margins

# Largest share by which a homogeneous module may miss c^L, by rounding.
HOMOGENEITY_TOLERANCE = 1e-6
# Euler's identity may miss by that share of this share of its terms, of which most may cancel.
ROUNDED_SHARE = 1e-6
# Largest power of 2 that parameters are scaled by to see what is cut off far above its size now,
# and the most bits that outputs may gain: beyond the range of float64 nothing is known.
FAR_BITS, MOST_BITS = 40, 1000
# Functions that add a bias, their third argument.
BIASED = ("linear", *(f"conv{of}{k}d" for of in ("", "_transpose") for k in (1, 2, 3)))
# Those that add two tensors.
ADDITIONS = ("add", "iadd", "radd")
OF_NO_NAME = (
    "the module is not homogeneous: use layers and activations that scale; a bias, a skip "
    "connection or an update of frozen weights adds a term of another degree"
)
# A parameter to blame is looked for among at most so many, each of them with a few forward passes.
MOST_TENSORS = 12
# Samples on which the forward pass is watched, and the cause of a refusal is looked for; the first
# of them, on which a module is refused before all samples are evaluated.
WATCHED, FIRST = 4, 2
# Scale at which terms of lower degrees are lost, by this share; the largest one of a polynomial.
LARGE, LOST, LARGEST_DEGREE = 2.0**20, 1e-3, 6


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
TRAPS: dict[str, tuple[str, str]] = {
    name: (kind["what"], kind["cure"])
    for kind in _KINDS.values()
    for name in (*kind["of_degree_0"], *kind["growing"])
}
# Those that tend to degree 0, where some jump, and of these the normalisations.
OF_DEGREE_0 = {name for kind in _KINDS.values() for name in kind["of_degree_0"]}
NORMALISATIONS: list[str] = _KINDS["normalisation"]["of_degree_0"]


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
    except HomogeneityError as error:
        if degree is not None or isinstance(error, OtherGradientsError):
            raise
        leads = False
        try:
            cause, leads = _cause(gradients)
        except ValueError as failed:  # of the module, at parameters for which it has no value
            cause = f"the module is not homogeneous, and {failed}"
        raise HomogeneityError(f"{cause} ({error.deviation})", leads=leads) from error
    if goes_on(gradients, L):
        return L
    used = functions_used(gradients, TRAPS)
    where = "".join(f" ({name} in {listed(places)})" for name, places in used.items())
    raise HomogeneityError(
        f"the module scales with degree {L:.4g} where its parameters are about as large as now, "
        "but not where they are far larger, as they are in the limit",
        f"leave out what cuts off large outputs or activations{where}, and cases by their size",
    )


def goes_on(gradients: Margins, degree: float, tolerance: float = HOMOGENEITY_TOLERANCE) -> bool:
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

    Not the margins alone must scale, by c^L, but also the gradients, by c^(L-1): a bias unit that
    is still 0 shows in nothing else. Powers of 2 scale homogeneous arithmetic without rounding.
    Gradients and margins must also obey Euler's identity, on which the KKT gap rests: those of a
    module that detaches a part scale, but are of another function.
    """
    # Gradients of one random combination of the margins, in which nothing cancels by symmetry.
    weights = np.random.default_rng(0).random(len(gradients.pairs))

    def slopes(scale: float) -> Array:
        return gradients.combine(scale * gradients.theta, weights).cpu().numpy()

    scales = (2.0, 0.5)
    margins = gradients.margins(gradients.theta)
    scaled = [gradients.margins(scale * gradients.theta) for scale in scales]
    # No degree fits where outputs vanish or overflow. Squares of the margins may underflow or
    # overflow, too, their shares of the largest do not.
    largest = np.abs(margins).max()
    size = np.linalg.norm(margins / largest)
    degrees = [
        float(np.log(np.linalg.norm(found / largest) / size) / np.log(scale))
        for scale, found in zip(scales, scaled, strict=True)
    ]
    L = sum(degrees) / 2 if degree is None else degree
    deviations = [
        _deviation(found, scale**L * margins) for scale, found in zip(scales, scaled, strict=True)
    ]
    gradient = np.empty(0)
    if np.max(deviations) <= tolerance:  # gradients take longer, and are not asked for in vain
        gradient = slopes(1.0)
        parts = gradients.parameters(torch.from_numpy(gradient)).items()
        broken = [name for name, part in parts if not part.isfinite().all()]
        if broken and gradients.scaled[0] == 1.0:  # else it may be for want of a limit
            raise OtherGradientsError(
                f"gradients in {listed(broken)} are NaN or infinite, though the outputs are "
                "finite: is there a root or a norm at 0, or a torch.where whose other branch is "
                "NaN?",
                "clamp what such a branch is given, before it computes",
            )
        deviations += [_deviation(slopes(scale), scale ** (L - 1.0) * gradient) for scale in scales]
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
    theta = gradients.theta.cpu().numpy()
    missed: float = abs(float(theta @ gradient) - L * float(weights @ margins))
    terms = float(np.abs(theta) @ np.abs(gradient))
    allowed: float = max(L * float(weights @ np.abs(margins)), ROUNDED_SHARE * terms)
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


def few_samples(gradients: Margins) -> Margins:
    """Return the margins of the first samples, on which a cause is found soon."""
    return gradients.of_samples(np.arange(min(WATCHED, len(gradients.labels))))


def _cause(gradients: Margins) -> tuple[str, bool]:
    """Why a module is not homogeneous and what to do, and whether its leading part may help.

    Layers that are known not to scale are looked for by name, in one forward pass of a few samples.
    Only where there is none the module is evaluated with some of its parameters scaled, or at 0.
    """
    # What is 0 now, a bias before training say, shows nothing of the term that it adds.
    drawn = gradients.theta.square().mean().sqrt() * drawn_like(gradients.theta)
    theta = torch.where(gradients.theta == 0, drawn, gradients.theta)
    gradients = gradients.restricted(gradients.shapes, theta)
    few = few_samples(gradients)
    # --- by name
    watch, outputs = _watched(gradients, {*TRAPS, *BIASED}, trained=True)
    last = watch.last(outputs)
    traps = [name for name in watch.seen if name in TRAPS]
    if last not in (None, "log_softmax", *NORMALISATIONS, *BIASED):
        return (
            f"the module returns what {last} makes, which does not scale: return logits, that is, "
            f"what {last} is given, and leave it to the loss"
        ), False
    for name in traps:
        if name == last == "log_softmax":  # differences of its outputs are those of the logits
            continue
        what, cure = TRAPS[name]
        in_front = watch.in_front_of(name)
        of = f", computed from {listed(in_front)}" if in_front else ""
        leads = not OF_DEGREE_0 & set(traps)
        return f"{what}: {name} in {watch.listed(watch.seen[name])}{of}: {cure}", leads
    biases = [name for name in watch.biases if name in gradients.shapes]
    if biases and not _breaks_without(few, biases):
        return _of_biases(biases, watch), True
    # --- by what it computes
    vectors = [name for name, shape in gradients.shapes.items() if len(shape) <= 1]
    if len(gradients.shapes) > MOST_TENSORS:
        found = _unlike_terms(few, vectors)
        if found is not None:
            place, powers = found
            also = f"biases ({listed(biases)}; bias=False) and " if biases else ""
            sums = " and ".join(f"{power:.4g}" for power in sorted(powers))
            return (
                f"{also}a skip connection: {watch.listed([place])} adds terms of degrees {sums}. "
                "Give all paths the same number of trained layers"
            ), True
    degrees = _degrees(gradients, gradients.shapes, by_sample=True)
    if np.ptp(degrees) > HOMOGENEITY_TOLERANCE:  # not where a sample has none
        first, other = int(degrees.argmin()), int(degrees.argmax())
        return (
            f"samples of different degrees: {degrees[first]:.4g} at sample {first}, "
            f"{degrees[other]:.4g} at sample {other}. Only the samples of the least degree keep a "
            "share of the gradient, so training goes to a KKT point of their program alone: give "
            "all contexts paths of the same number of layers, or diagnose the samples of one degree"
        ), False
    added = _added_terms(gradients) if len(gradients.shapes) <= MOST_TENSORS else []
    biases = [name for name in added if len(gradients.shapes[name]) <= 1]
    others = gradients.shapes.keys() - biases
    if biases and not np.isnan(_degrees(gradients, others)).any():
        return (
            f"factors: with {listed(biases)} held fast the module is homogeneous, as with the "
            "slopes of a PReLU. Freeze them: requires_grad_(False)"
        ), False
    if biases:
        return _of_biases(biases, watch), True
    if len(gradients.shapes) > MOST_TENSORS:
        return OF_NO_NAME, False
    far = few.at_scale(2.0**FAR_BITS, 0.0)
    leads = not (np.isnan(_degrees(far, far.shapes)[0]) or directions(far))
    for without in [[], vectors]:
        mixed = _mixed_degrees(few, without)
        if len(mixed) > 1:
            sums = " and ".join(f"{degree:d}" for degree in mixed)
            # Biases above the first layer are lost beside the rest at a large scale.
            large = dict.fromkeys(gradients.shapes, LARGE)
            size = _scaled(few, large)
            biased = [v for v in vectors if _deviation(_scaled(few, large | {v: 0.0}), size) < LOST]
            also = f"biases ({listed(biased)}; bias=False) and " if biased else ""
            through, frozen = "", ""
            if added and not biased and len(mixed) == 2:
                # What leaves the longer path is the shortcut; else it has no weights of its own.
                own = _degree_without(few, added[:1]) > sum(mixed) / 2
                through = f" ({'' if own else 'beside '}{listed(added)})"
                frozen = ", or train with the shortcut's weights frozen at 0" * own
            return (
                f"{also}a skip connection: the outputs are a sum of terms of degrees "
                f"{sums}{through}. Give all paths the same number of trained layers{frozen}"
            ), leads
    return OF_NO_NAME, leads


def _unlike_terms(
    gradients: Margins, at_0: Collection[str]
) -> tuple[str, tuple[float, float]] | None:
    """Find where terms of two degrees are added: the part of the module, and the degrees.

    The terms of all sums are written down at the parameters and at twice these, some at 0. The
    first sum of terms that both scale, but by different powers, is a skip connection.
    """
    once, twice = (
        _watched(gradients, ADDITIONS, trained=False, scale=scale, at_0=at_0)[0].sums
        for scale in (1.0, 2.0)
    )
    for (place, *terms), (_, *scaled) in zip(once, twice, strict=False):
        degrees = _power(terms[0], scaled[0]), _power(terms[1], scaled[1])
        if abs(degrees[0] - degrees[1]) > HOMOGENEITY_TOLERANCE:  # not where one is nan
            return place, degrees
    return None


def _power(tensor: Tensor, doubled: Tensor) -> float:
    """Degree of a tensor, by its values at twice the parameters; nan where it does not scale."""
    size, most = float(tensor.abs().max()), float(doubled.abs().max())
    if not (size > 0.0 and most > 0.0):
        return float("nan")
    missed = float((doubled - (most / size) * tensor).abs().max())
    return float(np.log2(most / size)) if missed <= HOMOGENEITY_TOLERANCE * most else float("nan")


def _of_biases(biases: list[str], watch: _Watch) -> str:
    """Say that biases are to blame."""
    kinds = dict.fromkeys(type(part).__name__ for name, part in watch.parts(biases))
    of = f" of {' and '.join(kinds)} layers" if kinds else ""
    return (
        f"biases{of}: with {listed(biases)} set to 0 the module is homogeneous. Leave them out "
        "(bias=False, readout_bias=False), or freeze them at 0; a constant feature of the "
        "inputs does as well"
    )


def _breaks_without(gradients: Margins, names: Collection[str]) -> bool:
    """Whether the module has outputs with some parameters at 0, and is not homogeneous there."""
    rest = gradients.shapes.keys() - names
    at_0 = dict.fromkeys(names, 0.0)
    return bool(_scaled(gradients, at_0).any() and np.isnan(_degrees(gradients, rest, names)[0]))


def listed(names: list[str] | tuple[str, ...]) -> str:
    """List parts or parameters of a module by name, the first four of them."""
    shown = [repr(name) if name else "the module's forward" for name in names]
    return ", ".join(shown[:4]) + (f" and {len(shown) - 4} more" if len(shown) > 4 else "")


def _scaled(gradients: Margins, scales: Mapping[str, float]) -> Array:
    """Compute the outputs (N, K) with some parameters scaled."""
    parts = gradients.parameters(gradients.theta).items()
    scaled = {name: scales.get(name, 1.0) * part for name, part in parts}
    return gradients.outputs(gradients.flat(scaled))


def of_degree_0(gradients: Margins) -> tuple[str, ...]:
    """Names of the parameters, not 0, whose size changes no output, as directions do.

    Alone, or with all others of the same part: weight and bias in front of a layer norm. By Euler's
    identity <W, grad q> = 0 in these, which one backward pass tells of a random combination of the
    margins. Only those of which it holds are scaled.
    """
    theta = gradients.parameters(gradients.theta)
    weights = np.random.default_rng(0).random(len(gradients.pairs))
    v = gradients.parameters(gradients.combine(gradients.theta, weights))
    products = {name: float((theta[name] * v[name]).sum()) for name in theta}
    terms = {name: float((theta[name] * v[name]).abs().sum()) for name in theta}

    def still(names: list[str]) -> bool:
        product, size = sum(products[name] for name in names), sum(terms[name] for name in names)
        if abs(product) > HOMOGENEITY_TOLERANCE * size:  # not where it is nan
            return False
        return abs(_degrees(gradients, names)[0]) <= HOMOGENEITY_TOLERANCE

    parts = dict[str, list[str]]()
    for name in theta:
        parts.setdefault(name.rpartition(".")[0], []).append(name)
    return tuple(
        name
        for names in parts.values()
        for name in names
        if theta[name].any() and (still([name]) or still(names))
    )


def directions(gradients: Margins, tolerance: float = HOMOGENEITY_TOLERANCE) -> list[str]:
    """Names of the parameters whose size changes no output, though they themselves do."""
    weights = np.random.default_rng(0).random(len(gradients.pairs))
    v = gradients.parameters(gradients.combine(gradients.theta, weights))
    sizes = {name: float(part.abs().max()) for name, part in v.items()}
    least = tolerance * max(sizes.values())
    return [name for name in of_degree_0(gradients) if sizes[name] > least]


@np.errstate(divide="ignore", invalid="ignore")  # of outputs that are 0: nan
def _degrees(
    gradients: Margins,
    names: Collection[str],
    at_0: Collection[str] = (),
    *,
    by_sample: bool = False,
) -> Array:
    """Degree in some parameters of the outputs, (1,), or of each sample's, (N,); nan without.

    Others are at 0.
    """
    without = dict.fromkeys(at_0, 0.0)
    scales = (_scaled(gradients, dict.fromkeys(names, by) | without) for by in (0.5, 1.0, 2.0))
    down, original, up = (outputs if by_sample else outputs.reshape(1, -1) for outputs in scales)
    least, size, most = (np.abs(outputs).max(axis=1) for outputs in (down, original, up))
    factor = most / size
    errors = (
        np.abs(up - factor[:, None] * original).max(axis=1) / most,
        np.abs(factor[:, None] * down - original).max(axis=1) / size,
    )
    fits = (np.maximum(*errors) <= HOMOGENEITY_TOLERANCE) & (least > 0)
    return np.where(fits, np.log2(factor), np.nan)


def _added_terms(gradients: Margins) -> list[str]:
    """Parameters without which (at 0) the module is homogeneous: each of one set that must go.

    The set are the vectors and scalars, biases as a rule; where these are not to blame, a single
    parameter. What a few samples name is checked on all of them, and asked of all where it fails.
    """
    for some in (few_samples(gradients), gradients):
        added = _terms_added_in(some)
        if any(_degree_without(gradients, names) > 0 for names in (added, added[:1])):
            return added
    return []


def _terms_added_in(gradients: Margins) -> list[str]:
    vectors = [name for name, shape in gradients.shapes.items() if len(shape) <= 1]
    if vectors and _degree_without(gradients, vectors) > 0:
        needed = [
            name
            for name in vectors
            if not _degree_without(gradients, [other for other in vectors if other != name]) > 0
        ]
        return needed or vectors
    # The shortcut is what leaves the paths of the largest degree.
    degrees = {name: _degree_without(gradients, [name]) for name in gradients.shapes}
    largest = max(degrees.values())
    return [name for name, degree in degrees.items() if degree == largest > 0]


def _degree_without(gradients: Margins, names: Collection[str]) -> float:
    """Degree with some parameters at 0; 0 where the rest is not homogeneous, or nothing."""
    return float(np.nan_to_num(_degrees(gradients, gradients.shapes.keys() - names, names)[0]))


def _mixed_degrees(gradients: Margins, without: Collection[str]) -> list[int]:
    """Degrees of outputs that are a polynomial of the scale of all parameters but some, at 0.

    Empty if they are none.
    """
    scales, at_0 = np.linspace(0.5, 2.0, LARGEST_DEGREE + 4), dict.fromkeys(without, 0.0)
    outputs = np.stack(
        [
            _scaled(gradients, dict.fromkeys(gradients.shapes, by) | at_0).reshape(-1)
            for by in scales.tolist()
        ]
    )
    powers = scales[:, None] ** np.arange(LARGEST_DEGREE + 1)
    terms, *_ = np.linalg.lstsq(powers, outputs)
    size = np.abs(outputs).max()
    if np.abs(powers @ terms - outputs).max() > HOMOGENEITY_TOLERANCE * size:
        return []
    return np.flatnonzero(np.abs(terms).max(axis=1) > 1e-5 * size).tolist()


class _Watch(TorchFunctionMode):
    """Writes down which functions a forward pass calls, and in which part of the module."""

    def __init__(self, module: nn.Module, functions: Collection[str], *, trained: bool) -> None:
        super().__init__()
        self.functions, self.trained = functions, trained
        self.module = module
        self.seen, self.results = dict[str, list[str]](), dict[str, Any]()
        # What a function was given that depends on trained parameters; the names of biases that are
        # added to such tensors.
        self.given, self.biases = dict[str, list[Tensor]](), list[str]()
        # Place and terms of each sum of two tensors of the same shape.
        self.sums = list[tuple[str, Tensor, Tensor]]()
        self.leaves, self.trained_names = dict[str, Tensor](), dict[int, str]()
        # Parts by their names, and where the pass is now.
        self.names = {part: name for name, part in module.named_modules()}
        self.places = [""]

    def enter(self, part: nn.Module, given: object) -> None:
        """Note that a part begins; torch's own tracker fails in a module that takes gradients."""
        self.places.append(self.names.get(part, self.places[-1]))

    def leave(self, part: nn.Module, given: object, outputs: object) -> None:
        """Note that a part is done."""
        self.places.pop()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name = getattr(func, "__name__", "").strip("_")
        if name in BIASED:
            self._note_bias(args, kwargs or {})
        elif name in ADDITIONS and name in self.functions:
            terms = [term.detach().clone() for term in args[:2] if isinstance(term, Tensor)]
            if len(terms) == 2 and terms[0].shape == terms[1].shape:
                self.sums.append((self.places[-1], terms[0], terms[1]))
        elif name in self.functions and (
            not self.trained or (found := _trained_among(name, args, kwargs or {}))
        ):
            if self.trained:
                self.given.setdefault(name, []).extend(found)
            places = self.seen.setdefault(name, [])
            if self.places[-1] not in places:
                places.append(self.places[-1])
        result = func(*args, **(kwargs or {}))
        if name in self.functions:
            self.results[name] = result
        return result

    def _note_bias(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note a trained bias of a linear layer or convolution whose input is trained, too."""
        given = args[0] if args else kwargs.get("input")
        bias = args[2] if len(args) > 2 else kwargs.get("bias")
        if isinstance(given, Tensor) and given.requires_grad and isinstance(bias, Tensor):
            name = self.trained_names.get(id(bias))
            if name is not None and name not in self.biases:
                self.biases.append(name)

    def in_front_of(self, function: str) -> list[str]:
        """Names of the trained parameters from which a function's input was computed."""
        given = [tensor.sum() for tensor in self.given.get(function, [])]
        leaves = {name: self.leaves[name] for name in self.trained_names.values()}
        with torch.enable_grad():
            slopes = torch.autograd.grad(
                sum(given, torch.zeros(())), list(leaves.values()), allow_unused=True
            )
        return [name for name, slope in zip(leaves, slopes, strict=True) if slope is not None]

    def parts(self, names: Collection[str]) -> list[tuple[str, nn.Module]]:
        """Parts of the module, by their names, that own some parameters."""
        owners = dict.fromkeys(name.rpartition(".")[0] for name in names)
        own = dict(self.module.named_modules())
        return [(owner, own[owner]) for owner in owners if owner in own and owner]

    def listed(self, places: list[str]) -> str:
        """List parts by name and type."""
        own = dict(self.module.named_modules())
        kinds = dict.fromkeys(type(own[place]).__name__ for place in places if place in own)
        if "" in places:  # by no layer of its own
            return listed(places)
        return listed(places) + (f" ({', '.join(kinds)})" if kinds else "")

    def last(self, outputs: Tensor) -> str | None:
        """Return the function that gave the module's outputs, as they are or as a view of them."""
        where = outputs.untyped_storage().data_ptr()
        tensors = ((name, t) for name, t in self.results.items() if isinstance(t, Tensor))
        return next((name for name, t in tensors if t.untyped_storage().data_ptr() == where), None)


def _trained_among(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    """Tensors that depend on trained parameters, of those that a function does not scale in."""
    # Its input, or query and key; affine weights after a normalisation scale.
    given = args[:2] or tuple(kwargs.values())[:2]
    if name == "multi_head_attention_forward":  # its values and its last layer may be trained
        projections = ("q_proj_weight", "k_proj_weight")
        given = (*given, *args[5:9], *(kwargs.get(key) for key in projections))
    return [value for value in given if isinstance(value, Tensor) and value.requires_grad]


def functions_used(
    gradients: Margins, functions: Collection[str], *, trained: bool = True
) -> dict[str, list[str]]:
    """Which of some functions of torch a forward pass calls, and in which parts of the module.

    By default only those calls count whose input depends on trained parameters.
    """
    return _watched(gradients, functions, trained=trained)[0].seen


def _watched(
    gradients: Margins,
    functions: Collection[str],
    *,
    trained: bool,
    scale: float = 1.0,
    at_0: Collection[str] = (),
) -> tuple[_Watch, Tensor]:
    """Evaluate a module under a watch, its parameters scaled or at 0; returns its outputs, too."""
    module = gradients.module
    watch, values = _Watch(module, functions, trained=trained), values_of(module)
    for name, part in gradients.parameters(gradients.theta).items():
        own = torch.zeros_like(part) if name in at_0 else scale * part
        values[name] = watch.leaves[name] = own.detach().requires_grad_(trained)
        watch.trained_names[id(values[name])] = name
    hooks = register_module_forward_pre_hook(watch.enter), register_module_forward_hook(watch.leave)
    with torch.set_grad_enabled(trained), hooks[0], hooks[1], watch:
        return watch, evaluate(module, values, tuple(t[:WATCHED] for t in gradients.inputs))
