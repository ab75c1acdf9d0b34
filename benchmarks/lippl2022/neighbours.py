r"""How much neighbouring predictors differ, and how many units matter, under both norms.

Every cell of figures 2 to 4 has two SVMs with the same predictors, one a norm: SVM-GLN and SVM-L2.
They are solved again, since the grids keep no coefficients. In the joint context gamma a predictor
is beta_gamma = B + sum_h delta_{h,gamma_h} (`gln_predictors`). Neighbours are joint contexts that
differ in one unit; over all C^H of them, all units, and all pairs of contexts of a unit,

    mean ||beta_gamma - beta_gamma'||^2 = 2 / (H (C - 1)) sum_h ||delta_h||^2,
    mean ||beta_gamma||^2               = ||B||^2 + 1 / C sum_h ||delta_h||^2,

because the effects of a unit sum to 0. Both are of the predictors alone, whatever the coefficients.

Columns: the cell, and

====================  =========================================================================
model                 "svm-gln" or "svm-l2"
neighbours            root of the ratio of the two means: 0 where all predictors are equal
unused                share of the units whose ||delta_h|| is below `MATTERS` of the largest
error                 validation error
gap                   of the certificate
====================  =========================================================================

Source: Lippl, Abbott, Chung (2022), introduction and section 4.2; the two means are derived here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.bench import Part, part
from benchmarks.lippl2022 import gln
from benchmarks.lippl2022.cells import Models, Setting
from benchmarks.lippl2022.gln import THRESHOLDS, UNITS
from benchmarks.lippl2022.gln_predictors import AdditivePredictors
from benchmarks.lippl2022.matching import matched, minus
from implicit_bias.estimators.svm import MarginSVC
from implicit_bias.problem.gating import CombinedGates

COST = 10
MODELS = ("svm-gln", "svm-l2")
# Share of the largest effect of a unit below which another unit does not matter.
MATTERS = 0.01


def neighbour_difference(predictors: AdditivePredictors) -> float:
    """RMS difference of neighbouring predictors over the RMS norm of predictors.

    Examples
    --------
    >>> neighbour_difference(AdditivePredictors([1.0], [[[1.0], [-1.0]]]))
    1.4142135623730951
    """
    n_units, n_contexts = predictors.n_units, predictors.n_contexts
    effects = np.square(predictors.effect_norms).sum()
    apart = 2 * effects / (n_units * (n_contexts - 1))
    size = np.square(predictors.mean).sum() + effects / n_contexts
    return float(np.sqrt(apart / size))


def shape(predictors: AdditivePredictors) -> dict[str, float]:
    """How much neighbours differ, and how many units are not used."""
    effects = predictors.effect_norms
    return {
        "neighbours": neighbour_difference(predictors),
        "unused": float(np.mean(effects < MATTERS * effects.max())),
    }


def additive_predictors(model: MarginSVC, n_units: int) -> AdditivePredictors:
    """Return the predictors of an SVM on the contexts of a GLN, or on combinations of them."""
    coef = model.coef_
    gating = model.architecture_.gating
    if isinstance(gating, CombinedGates):  # SVM-L2 is posed so: zeta = R u
        coef = gating.combination @ coef
    return AdditivePredictors.from_coef(coef, n_units)


def measure(quick: bool) -> Iterator[Part]:
    """Yield a part for each cell."""
    if quick:
        setting = {"train_size": 100, "units": 4, "hyperplanes": 1, "threshold": "median"}
        yield part(cell, dataset="digits", seed=1, **setting)
        return
    for setting in gln.settings():
        yield part(cell, **setting)


def cell(**setting: Any) -> Iterator[dict[str, Any]]:
    """Solve both SVMs of a cell."""
    models = Models(Setting(models=MODELS, **setting))
    images = models.data.parts.validation
    for name, model in models.fit():
        assert isinstance(model, MarginSVC)
        yield {
            "model": name,
            **shape(additive_predictors(model, models.setting.units)),
            "error": float(np.mean(model.predict(images.X) != images.y)),
            "gap": model.solution_.certificate.gap,
        }


def numbers(frame: pd.DataFrame) -> dict[str, Any]:
    """Compare both norms: similar neighbours, and units that do not matter at H = 100."""
    means = frame.groupby("model")["neighbours"].mean()
    found: dict[str, Any] = {"factor": float(means["svm-l2"] / means["svm-gln"])}
    for threshold in THRESHOLDS:
        rows = frame[frame["threshold"] == threshold]
        similar = matched(rows, "neighbours")
        sparse = matched(rows[rows["units"] == max(UNITS)], "unused")
        found[f"similar_{threshold}"] = minus(similar, "svm-l2", "svm-gln")
        found[f"sparse_{threshold}"] = minus(sparse, "svm-gln", "svm-l2")
    return found
