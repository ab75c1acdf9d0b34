r"""Ten seeds of three norms: what shared weights do, and where the norm of the GLN helps.

All cells have N = 500, two contexts, and thresholds at medians. A third SVM has the same predictors
and shared weights, but no groups:

    SVM-GLN   sum_h ||zeta_h||           SVM-L2   sum_gamma ||beta_gamma||^2
    SVM-zeta  sum_h ||zeta_h||^2

An image shares a unit with a training sample where both are in the same context of it. *Known* is
the share of the units that an image shares with the `NEAREST` training samples which share most. By
quarters of the images, from the least known to the best, the errors say whether SVM-GLN gains where
contexts are new. An image far from all samples is known less in any contexts; so the same is done
with other contexts, of a seed that no SVM of the cell has.

====================  =========================================================================
model                 "svm-gln", "svm-l2" or "svm-zeta"
error, gap            validation error, and relative gap of the certificate
neighbours, unused    as in `neighbours`
known_1 .. known_4    error in the quarters of the images, from the least known to the best
other_1 .. other_4    the same in quarters by the other contexts
====================  =========================================================================

Source: Lippl, Abbott, Chung (2022), introduction and section 4.2.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.bench import Part, part
from benchmarks.lippl2022.as_published import one_group
from benchmarks.lippl2022.cells import Models, Setting
from benchmarks.lippl2022.matching import matched, minus
from benchmarks.lippl2022.neighbours import MODELS, additive_predictors, shape
from implicit_bias.base.validation import Array
from implicit_bias.estimators.svm import GatedSVC, MarginSVC
from implicit_bias.problem.gating import HyperplaneContexts

COST = 3
NEAREST, QUARTERS = 10, 4
UNITS, SEEDS = (10, 20, 100), tuple(range(1, 11))
GLN, L2 = MODELS
ZETA = "svm-zeta"
KEYS = ("units", "seed")


def measure(quick: bool) -> Iterator[Part]:
    """Yield a part for each cell."""
    if quick:
        for seed in (1, 2):
            yield part(cell, dataset="digits", train_size=100, units=4, seed=seed)
        return
    for units in UNITS:
        for seed in SEEDS:
            yield part(cell, dataset="mnist", train_size=500, units=units, seed=seed)


def cell(**setting: Any) -> Iterator[dict[str, Any]]:
    """Solve the SVMs of a cell."""
    models = Models(Setting(models=MODELS, **setting))
    train, images = models.data.parts.train, models.data.parts.validation
    others = Models(Setting(**setting | {"seed": setting["seed"] + 1}), models.data).contexts
    place = {
        "known": quarters(known(models.contexts, train.X, images.X)),
        "other": quarters(known(others, train.X, images.X)),
    }
    fitted = dict(models.fit())
    zeta = GatedSVC(one_group(models.contexts), **models.svm_options())
    fitted[ZETA] = zeta.fit(train.X, train.y)
    for name, model in fitted.items():
        assert isinstance(model, MarginSVC)
        wrong = model.predict(images.X) != images.y
        row = {"model": name, "error": wrong.mean(), "gap": model.solution_.certificate.gap}
        row |= shape(additive_predictors(model, models.setting.units))
        for kind, quarter in place.items():
            for number in range(QUARTERS):
                inside = wrong[quarter == number]
                row[f"{kind}_{number + 1}"] = inside.mean() if len(inside) else np.nan
        yield row


def known(contexts: HyperplaneContexts, X: Array, images: Array) -> Array:
    """Share of the units (n,) that images (n, D) share with the nearest samples X (N, D)."""
    ours = contexts.gates(images).toarray().astype(np.float32)
    theirs = contexts.gates(X).toarray().astype(np.float32)
    nearest = np.partition(ours @ theirs.T, -NEAREST, axis=1)[:, -NEAREST:]
    return np.asarray(nearest.mean(axis=1) / contexts.n_units)


def quarters(values: Array) -> NDArray[np.int64]:
    """Quarter (n,) of each value, 0 of the least; equal values are in one."""
    inner = np.quantile(values, np.arange(1, QUARTERS) / QUARTERS)
    return np.searchsorted(inner, values).astype(np.int64)


def numbers(frame: pd.DataFrame) -> dict[str, Any]:
    """Say how far SVM-zeta goes from SVM-L2 to SVM-GLN, and where SVM-GLN gains."""
    errors = matched(frame, "error", KEYS)
    apart = matched(frame, "neighbours", KEYS)
    gains = gains_by_quarter(frame)
    gains["own"] = gains["known_1"] - gains[f"known_{QUARTERS}"]
    gains["others"] = gains["other_1"] - gains[f"other_{QUARTERS}"]
    return {
        "seeds": int(frame["seed"].nunique()),
        "zeta_neighbours": way(apart),
        "zeta_error": way(errors),
        "zeta_minus_gln": minus(errors, ZETA, GLN),
        "new_contexts": minus(gains, "known_1", f"known_{QUARTERS}"),
        "beyond": minus(gains, "own", "others"),
    }


def way(table: pd.DataFrame) -> float:
    """Return how far SVM-zeta is on the way from SVM-L2 to SVM-GLN, by means of the cells."""
    return float((table[L2] - table[ZETA]).mean() / (table[L2] - table[GLN]).mean())


def gains_by_quarter(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the error of SVM-L2 minus that of SVM-GLN in each quarter: a row a cell."""
    columns = [f"{kind}_{n + 1}" for kind in ("known", "other") for n in range(QUARTERS)]
    by_model = frame.set_index(["model", *KEYS])[columns]
    return pd.DataFrame(by_model.loc[L2] - by_model.loc[GLN]).reset_index()
