"""Why a module is not homogeneous: the part that breaks it, by name, and a cure.

Two ways to find it, on a few samples where these are enough:

1. The forward pass is watched (`forward_watch`): it calls a function that is known not to scale, or
   adds biases.
2. Outputs are measured with some parameters scaled, or at 0 (`partial_degrees`): without some
   parameters the module is homogeneous, or the outputs are a sum of terms of several degrees.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from implicit_bias.base.packaged import table_of
from implicit_bias.base.validation import Array
from implicit_bias.modules.evaluate import drawn_like
from implicit_bias.modules.forward_watch import (
    ADDITIONS,
    BIASED,
    WATCHED,
    ForwardWatch,
    listed,
    watched,
)
from implicit_bias.modules.margins import Margins
from implicit_bias.modules.partial_degrees import (
    HOMOGENEITY_TOLERANCE,
    degree_in,
    degree_without,
    degrees_in,
    deviation_of,
    directions,
    scaled_outputs,
)

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


class Cause(NamedTuple):
    """Why a module is not homogeneous.

    Attributes
    ----------
    words : str
        The part that breaks it, and a cure.
    leads : bool
        Whether its leading part may help.
    """

    words: str
    leads: bool


@dataclass(frozen=True, kw_only=True)
class CauseSearch:
    """The search for the part that breaks homogeneity.

    Parameters
    ----------
    most_tensors : int
        A parameter to blame is looked for among at most so many, each of them with a few passes.
    far_scale : float
        Scale of the parameters at which the module is nearly its leading part.
    large_scale, lost : float
        At this scale terms of lower degrees are lost: they are less than this share.
    largest_degree : int
        The largest degree of a polynomial of the parameters' scale that is looked for.
    smallest_term : float
        Terms of such a polynomial count from this share of the outputs on.
    """

    most_tensors: int = 12
    far_scale: float = 2.0**40
    large_scale: float = 2.0**20
    lost: float = 1e-3
    largest_degree: int = 6
    smallest_term: float = 1e-5

    def cause(self, gradients: Margins) -> Cause:
        """Find it, at parameters of which none is 0.

        What is 0 now, a bias before training say, shows nothing of the term that it adds.
        """
        theta = gradients.theta
        drawn = theta.square().mean().sqrt() * drawn_like(theta)
        without_zeros = torch.where(theta == 0, drawn, theta)
        gradients = gradients.restricted(gradients.shapes, without_zeros)
        try:
            watch, outputs = watched(gradients, {*TRAPS, *BIASED}, trained=True)
            known = _of_known_functions(gradients, watch, watch.last(outputs))
            return known or self._measured(gradients, watch)
        except ValueError as failed:  # of the module, at parameters for which it has no value
            return Cause(f"the module is not homogeneous, and {failed}", False)

    def _measured(self, gradients: Margins, watch: ForwardWatch) -> Cause:
        """Find the parameters to blame by outputs with some of them scaled, or at 0."""
        few = _few_samples(gradients)
        shapes = gradients.shapes
        vectors = [name for name, shape in shapes.items() if len(shape) <= 1]
        are_many = len(shapes) > self.most_tensors

        # --- in a large module, the first sum of terms of two degrees
        found = _unlike_terms(few, vectors) if are_many else None
        if found is not None:
            place, powers = found
            also = _also_biases(_biases_of(gradients, watch))
            sums = " and ".join(f"{power:.4g}" for power in sorted(powers))
            return Cause(
                f"{also}a skip connection: {watch.listed([place])} adds terms of degrees {sums}. "
                "Give all paths the same number of trained layers",
                True,
            )

        # --- samples of different degrees
        degrees = degrees_in(gradients, shapes, by_sample=True)
        if np.ptp(degrees) > HOMOGENEITY_TOLERANCE:  # not where a sample has none
            first = int(degrees.argmin())
            other = int(degrees.argmax())
            return Cause(
                f"samples of different degrees: {degrees[first]:.4g} at sample {first}, "
                f"{degrees[other]:.4g} at sample {other}. Only the samples of the least degree "
                "keep a share of the gradient, so training goes to a KKT point of their program "
                "alone: give all contexts paths of the same number of layers, or diagnose the "
                "samples of one degree",
                False,
            )

        # --- vectors that are factors or biases
        added = [] if are_many else _added_terms(gradients)
        biases = [name for name in added if len(shapes[name]) <= 1]
        if biases and not np.isnan(degree_in(gradients, shapes.keys() - biases)):
            return Cause(
                f"factors: with {listed(biases)} held fast the module is homogeneous, as with the "
                "slopes of a PReLU. Freeze them: requires_grad_(False)",
                False,
            )
        if biases:
            return _of_biases(biases, watch)

        # --- outputs that are a polynomial of the parameters' scale: a skip connection
        leads = False
        if not are_many:
            far = few.at_scale(self.far_scale, 0.0)
            leads = not (np.isnan(degree_in(far, shapes)) or directions(far))
            for without in ([], vectors):
                mixed = self._mixed_degrees(few, without)
                if len(mixed) > 1:
                    return Cause(self._of_a_skip_connection(few, vectors, added, mixed), leads)
        return Cause(
            "the module is not homogeneous: use layers and activations that scale; a bias, a skip "
            "connection or an update of frozen weights adds a term of another degree",
            leads,
        )

    def _of_a_skip_connection(
        self, few: Margins, vectors: list[str], added: list[str], degrees: list[int]
    ) -> str:
        """Say that terms of several degrees are added, and by which parameters if it is known."""
        # Biases above the first layer are lost beside the rest at a large scale.
        large = dict.fromkeys(few.shapes, self.large_scale)
        outputs = scaled_outputs(few, large)
        biases = list[str]()
        for name in vectors:
            if deviation_of(scaled_outputs(few, large | {name: 0.0}), outputs) < self.lost:
                biases.append(name)
        through = ""
        frozen = ""
        if added and not biases and len(degrees) == 2:
            # What leaves the longer path is the shortcut; else it has no weights of its own.
            if degree_without(few, added[:1]) > sum(degrees) / 2:
                through = f" ({listed(added)})"
                frozen = ", or train with the shortcut's weights frozen at 0"
            else:
                through = f" (beside {listed(added)})"
        sums = " and ".join(f"{degree:d}" for degree in degrees)
        return (
            f"{_also_biases(biases)}a skip connection: the outputs are a sum of terms of degrees "
            f"{sums}{through}. Give all paths the same number of trained layers{frozen}"
        )

    def _mixed_degrees(self, gradients: Margins, without: Collection[str]) -> list[int]:
        """Degrees of outputs that are a polynomial of the scale of all parameters but some, at 0.

        Empty if they are none.
        """
        at_0 = dict.fromkeys(without, 0.0)
        scales = np.linspace(0.5, 2.0, self.largest_degree + 4)
        rows = list[Array]()
        for scale in scales.tolist():
            found = scaled_outputs(gradients, dict.fromkeys(gradients.shapes, scale) | at_0)
            rows.append(found.reshape(-1))
        outputs = np.stack(rows)
        powers = scales[:, None] ** np.arange(self.largest_degree + 1)
        terms, *_ = np.linalg.lstsq(powers, outputs)
        size = np.abs(outputs).max()
        if np.abs(powers @ terms - outputs).max() > HOMOGENEITY_TOLERANCE * size:
            return []
        return np.flatnonzero(np.abs(terms).max(axis=1) > self.smallest_term * size).tolist()


def _few_samples(gradients: Margins) -> Margins:
    """Return the margins of the first samples, on which a cause is found soon."""
    return gradients.of_samples(np.arange(min(WATCHED, len(gradients.labels))))


# --- by the functions that a forward pass calls --------------------------------------------------


def _of_known_functions(gradients: Margins, watch: ForwardWatch, last: str | None) -> Cause | None:
    """Blame a function that is known not to scale, or biases; ``last`` gave the outputs."""
    if last not in (None, "log_softmax", *NORMALISATIONS, *BIASED):
        return Cause(
            f"the module returns what {last} makes, which does not scale: return logits, that is, "
            f"what {last} is given, and leave it to the loss",
            False,
        )
    called = [name for name in watch.seen if name in TRAPS]
    for name in called:
        if name == last == "log_softmax":  # differences of its outputs are those of the logits
            continue
        what, cure = TRAPS[name]
        in_front = watch.in_front_of(name)
        of = f", computed from {listed(in_front)}" if in_front else ""
        leads = OF_DEGREE_0.isdisjoint(called)
        return Cause(f"{what}: {name} in {watch.listed(watch.seen[name])}{of}: {cure}", leads)
    biases = _biases_of(gradients, watch)
    if biases:
        few = _few_samples(gradients)
        outputs_without = scaled_outputs(few, dict.fromkeys(biases, 0.0))
        degree = degree_in(few, few.shapes.keys() - biases, biases)
        if not (outputs_without.any() and np.isnan(degree)):
            return _of_biases(biases, watch)
    return None


def _biases_of(gradients: Margins, watch: ForwardWatch) -> list[str]:
    return [name for name in watch.biases if name in gradients.shapes]


def _of_biases(biases: list[str], watch: ForwardWatch) -> Cause:
    """Say that biases are to blame."""
    kinds = dict.fromkeys(type(part).__name__ for part in watch.owners(biases))
    of = f" of {' and '.join(kinds)} layers" if kinds else ""
    return Cause(
        f"biases{of}: with {listed(biases)} set to 0 the module is homogeneous. Leave them out "
        "(bias=False, readout_bias=False), or freeze them at 0; a constant feature of the "
        "inputs does as well",
        True,
    )


def _also_biases(biases: list[str]) -> str:
    return f"biases ({listed(biases)}; bias=False) and " if biases else ""


# --- by what is added to what --------------------------------------------------------------------


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
        if degree_without(gradients, added) > 0 or degree_without(gradients, added[:1]) > 0:
            return added
    return []


def _terms_added_in(gradients: Margins) -> list[str]:
    vectors = [name for name, shape in gradients.shapes.items() if len(shape) <= 1]
    if vectors and degree_without(gradients, vectors) > 0:
        needed = list[str]()
        for name in vectors:
            others = [other for other in vectors if other != name]
            if not degree_without(gradients, others) > 0:
                needed.append(name)
        return needed or vectors
    # The shortcut is what leaves the paths of the largest degree.
    degrees = {name: degree_without(gradients, [name]) for name in gradients.shapes}
    largest = max(degrees.values())
    return [name for name, degree in degrees.items() if degree == largest > 0]
