r"""How much neighbouring predictors differ, and how many units matter, under both norms.

    python -m benchmarks lippl2022 neighbours

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

from typing import Any

import numpy as np
import pandas as pd

from benchmarks.harness import Experiment, Frames, Row, Rows, Run, Verdict, growing
from benchmarks.lippl2022.cells import Models, Setting
from benchmarks.lippl2022.gln_predictors import AdditivePredictors
from benchmarks.sizes import grid
from implicit_bias.base.wording import percent
from implicit_bias.estimators.svm import GLNSVC

MODELS = ("svm-gln", "svm-l2")
AXES: dict[str, tuple[Any, ...]] = {
    "train_size": (500, 1000, 2000),
    "units": (10, 20, 50, 100),
    "hyperplanes": (1, 2),
    "threshold": ("median", "random"),
    "seed": (1, 2, 3),
}
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


def shape(predictors: AdditivePredictors) -> Row:
    """How much neighbours differ, and how many units are not used."""
    effects = predictors.effect_norms
    return {
        "neighbours": neighbour_difference(predictors),
        "unused": float(np.mean(effects < MATTERS * effects.max())),
    }


def cell(**setting: Any) -> Models:
    """Return what makes the models of a cell of the paper."""
    return Models(Setting(models=MODELS, **setting))


def rows(**setting: Any) -> Rows:
    """Solve both SVMs of a cell."""
    models = cell(**setting)
    images = models.data.parts.validation
    for name, model in models.fit():
        assert isinstance(model, GLNSVC)
        yield {
            "model": name,
            **shape(AdditivePredictors.from_coef(model.coef_, models.setting.units)),
            "error": float(np.mean(model.predict(images.X) != images.y)),
            "gap": model.solution_.certificate.gap,
        }


def settings(quick: bool) -> list[Row]:
    """Return the cells."""
    axes = {name: values[:1] for name, values in AXES.items()} if quick else AXES
    return grid(**axes)


def _measure(run: Run[Any]) -> Frames:
    return growing(run, settings(run.quick), rows)


def _found(table: pd.DataFrame) -> str:
    cells = len(table) // len(MODELS)
    return (
        f"{cells} of {len(settings(False))} cells are measured. What they say is judged with the "
        "claims on similar predictors and on sparsity."
    )


def _tabulate(table: pd.DataFrame) -> pd.DataFrame:
    """Means over N, contexts and seeds."""
    means = table.groupby(["threshold", "units", "model"])[["neighbours", "unused", "error"]].mean()
    return means.map(percent).reset_index().astype(str)


EXPERIMENT = Experiment(
    _measure, _found, _tabulate, lambda table: Verdict.OPEN if table.empty else Verdict.ANSWERED
)
