"""Why a module is not homogeneous: the part that breaks it, by name, and a cure.

It calls a function that is known not to scale (`forward_watch`); or without its vectors, biases as
a rule, it is homogeneous (`partial_degrees`); or there is a part whose outputs do not scale though
its inputs do.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from implicit_bias.base.packaged import table_of
from implicit_bias.modules.evaluate import drawn_like
from implicit_bias.modules.forward_watch import functions_used, listed, unscaled_part
from implicit_bias.modules.margins import Margins
from implicit_bias.modules.partial_degrees import degree_in, scale_invariant

_KINDS = table_of("modules/homogeneity.toml")
# Functions that break homogeneity, with what they are, and what to do.
TRAPS = dict[str, tuple[str, str]]()
# Those of them that tend to functions of degree 0 (a sigmoid to a step), and the normalisations.
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
        return Cause(f"{what}: {first} in {listed(called[first])}: {cure}", leads)

    # --- vectors that are biases, or factors of some terms
    added = _added_vectors(function)
    if added:
        return Cause(
            f"biases: with {listed(added)} set to 0 the module is homogeneous. Leave them out "
            "(bias=False, readout_bias=False), or freeze them at 0; a constant feature of the "
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
        where = f"the outputs of {listed([part])} ({kind}) do not scale, though its inputs do"
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
