r"""Was the released SVM-L2 solved to its end? Their program, their solver, and a certificate.

The released operator A (`as_published.operator`) leaves H - 1 directions of the gates without a
penalty, U their projection. The program minimises |A zeta|^2 over zeta with margins of at least 1.
With the weight `FREE` on U a certified lower bound L^2 on |A zeta|^2 + FREE^2 |U zeta|^2 is known,
so every feasible zeta has

    |A zeta|^2 >= L^2 - FREE^2 |U zeta|^2.

Scaled to smallest margin 1, the solution of OSQP is feasible; the bound at its own |U zeta| says
how much lower any solution can be that uses the free directions no more than it does. That is a
bound of real numbers up to the rounding of L, which the certificate measures in float64.

The cells have N = 500 and H = 10 or 20. The bound is computed with two contexts and medians
(``with_bound``); elsewhere only the error of OSQP's solution is kept.

====================  =========================================================================
objective             |A zeta|^2 of OSQP's solution, scaled to smallest margin 1
smallest_margin       of OSQP's solution as returned
bound                 lower bound on |A zeta|^2 of all solutions with no larger free part
ours                  |A zeta|^2 of the solution with the smallest free part
free, ours_free       |U zeta| of both
error, ours_error     validation error of both
apart                 share of the validation images on which the two solutions differ
from_redrawn          disagreement of OSQP's solution and the network in the contexts as drawn
====================  =========================================================================

Source: Lippl, Abbott, Chung (2022), eqs. (23) to (25), and their released code.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.bench import Part, part
from benchmarks.lippl2022 import gln
from benchmarks.lippl2022.as_published import OsqpL2, metric, moved_to_drawn, operator, under_metric
from benchmarks.lippl2022.cells import Models, Setting
from benchmarks.lippl2022.gln import TRAIN_SIZES
from implicit_bias.base.validation import Array
from implicit_bias.estimators.svm import GatedSVC

COST = 35
UNITS = (10, 20)
# Eigenvalue on the free directions: small enough for the bound, large enough for float64.
FREE, TOLERANCE = 1e-4, 1e-9
# Objectives below this are 0 to the solver's own tolerance: no lower one is possible.
ZERO = 1e-9
# A solution is optimal where the bound leaves less than this share of its objective.
SLACK = 1e-3


def measure(quick: bool) -> Iterator[Part]:
    """Yield a part for each cell."""
    if quick:
        setting = {"train_size": 60, "units": 3, "hyperplanes": 1, "threshold": "median"}
        yield part(cell, dataset="digits", seed=1, with_bound=True, **setting)
        return
    for setting in gln.settings(TRAIN_SIZES[:1], UNITS):
        bounded = setting["hyperplanes"] == 1 and setting["threshold"] == "median"
        yield part(cell, with_bound=bounded, **setting)


def cell(with_bound: bool, **setting: Any) -> Iterator[dict[str, Any]]:
    """Solve their program by OSQP, and with a certificate if asked for."""
    models = Models(Setting(models=("gd-gln",), **setting))
    contexts, parts = models.contexts, models.data.parts
    train, images = parts.train, parts.validation
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # CVXPY's: the row says how good its end is
        theirs = OsqpL2(contexts).fit(train.X, train.y)
    signs = np.sign(theirs.decision_function(images.X))
    error = float(np.mean(signs != images.y))
    if not with_bound:
        yield {"error": error}
        return
    gates = under_metric(contexts, metric(contexts, FREE))
    svm = GatedSVC(gates, tol=TOLERANCE, on_failure="raise")
    ours = svm.fit(train.X, train.y)
    ours_signs = np.sign(ours.decision_function(images.X))
    network = moved_to_drawn(models, models.fit_one("gd-gln"))
    drawn_signs = np.sign(network.decision_function(images.X))
    certificate = ours.solution_.certificate
    A = operator(contexts)
    margin = float((train.y * theirs.decision_function(train.X)).min())
    free = _free_part(theirs.zeta_ / margin, A)
    zeta = gates.combination @ ours.coef_ / certificate.min_margin
    yield {
        "error": error,
        "objective": float(np.square(np.linalg.norm(A @ theirs.zeta_) / margin)),
        "smallest_margin": margin,
        "bound": max(0.0, certificate.lower**2 - (FREE * free) ** 2),
        "ours": float(np.square(np.linalg.norm(A @ zeta))),
        "free": free,
        "ours_free": _free_part(zeta, A),
        "ours_error": float(np.mean(ours_signs != images.y)),
        "apart": float(np.mean(signs != ours_signs)),
        "from_redrawn": float(np.mean(signs != drawn_signs)),
    }


def _free_part(zeta: Array, A: Array) -> float:
    """|U zeta| (H C, D): U projects on the null space of A."""
    values, vectors = np.linalg.eigh(A)
    null = vectors[:, np.abs(values) < 1e-9]
    return float(np.linalg.norm(null.T @ zeta))


def optimal(table: pd.DataFrame) -> pd.Series[bool]:
    """Whether OSQP's solution is proven optimal, to `SLACK`."""
    proven = table["objective"] - table["bound"] <= SLACK * table["objective"]
    return proven | (table["objective"] < ZERO)


def numbers(frame: pd.DataFrame) -> dict[str, Any]:
    """Say how many solutions are optimal, and how different two optimal ones are."""
    bounded = frame[frame["with_bound"]]
    return {
        "cells": len(frame),
        "bounded": len(bounded),
        "optimal": int(optimal(bounded).sum()),
        "apart": float(bounded["apart"].mean()),
        "error_osqp": float(bounded["error"].mean()),
        "error_smallest": float(bounded["ours_error"].mean()),
    }
