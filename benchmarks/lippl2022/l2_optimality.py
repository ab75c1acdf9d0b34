r"""Was the released SVM-L2 solved to its end? Their program, their solver, and a certificate.

    python -m benchmarks lippl2022 l2-optimality --published lippl2022.csv --minutes 15

The released operator A (`as_published.operator`) leaves H - 1 directions of the gates without a
penalty, U their projection. The program minimises |A zeta|^2 over zeta with margins of at least 1.
With the weight `FREE` on U a certified lower bound L^2 on |A zeta|^2 + FREE^2 |U zeta|^2 is known,
so every feasible zeta has

    |A zeta|^2 >= L^2 - FREE^2 |U zeta|^2.

Scaled to smallest margin 1, the solution of OSQP is feasible; the bound at its own |U zeta| says
how much lower any solution can be that uses the free directions no more than it does. That is a
bound of real numbers up to the rounding of L, which the certificate measures in float64.

Columns: the cell, and

====================  =========================================================================
objective             |A zeta|^2 of OSQP's solution, scaled to smallest margin 1
smallest_margin       of OSQP's solution as returned
bound                 lower bound on |A zeta|^2 of all solutions with no larger free part
ours                  |A zeta|^2 of the solution with the smallest free part
free, ours_free       |U zeta| of both
error, ours_error     validation error of both
released              released validation error; nan if unknown
apart                 share of the validation images on which the two solutions differ
agreement             of OSQP's solution with the exact network, moved to the contexts as drawn
released_agreement    released agreement; nan if unknown
commit                of the code that computed the row
====================  =========================================================================

Source: Lippl, Abbott, Chung (2022), eqs. (23) to (25), and their released code.
"""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd

from benchmarks.harness import Experiment, Frames, Row, Rows, Run, Verdict, growing
from benchmarks.lippl2022.as_published import OsqpL2, metric, moved_to_drawn, operator, under_metric
from benchmarks.lippl2022.cells import Models, Setting
from benchmarks.lippl2022.grids import clean_commit
from benchmarks.lippl2022.published import PublishedOptions, published_values
from benchmarks.sizes import grid
from benchmarks.words import span
from implicit_bias.base.validation import Array
from implicit_bias.base.wording import percent
from implicit_bias.estimators.svm import GatedSVC

# Eigenvalue on the free directions: small enough for the bound, large enough for float64.
FREE, TOLERANCE = 1e-4, 1e-9
WIDTHS, SEEDS = (10, 20), (1, 2, 3)
# Objectives below this are 0 to the solver's own tolerance: no lower one is possible.
ZERO = 1e-9
# A solution is optimal where the bound leaves less than this share of its objective.
SLACK = 1e-3
DIGIT = 0.5 / 12_000
# Share of the images on which two optimal solutions are other predictors.
APART = 0.01


def settings() -> list[Setting]:
    """Return the cells: N = 500, two contexts, median thresholds."""
    cells = grid(units=WIDTHS, seed=SEEDS)
    return [Setting(train_size=500, **cell, models=("gd-gln",)) for cell in cells]


def measured(setting: Setting, published: pd.DataFrame) -> Row:
    """Solve their program by OSQP and with a certificate, and lay both side by side: a row."""
    models = Models(setting)
    contexts, parts = models.contexts, models.data.parts
    train, images = parts.train, parts.validation
    theirs = OsqpL2(contexts).fit(train.X, train.y)
    gates = under_metric(contexts, metric(contexts, FREE))
    svm = GatedSVC(gates, tol=TOLERANCE, on_failure="raise")
    ours = svm.fit(train.X, train.y)
    A = operator(contexts)
    bound = ours.solution_.certificate
    margin = float((train.y * theirs.decision_function(train.X)).min())
    zeta = gates.combination @ ours.coef_
    free = _free_part(theirs.zeta_ / margin, A)
    moved = moved_to_drawn(models, models.fit_one("gd-gln"))
    signs = [np.sign(model.decision_function(images.X)) for model in (theirs, ours, moved)]
    return {
        "train_size": setting.train_size,
        "units": setting.units,
        "hyperplanes": setting.hyperplanes,
        "seed": setting.seed,
        "objective": float(np.square(np.linalg.norm(A @ theirs.zeta_) / margin)),
        "smallest_margin": margin,
        "bound": max(0.0, bound.lower**2 - (FREE * free) ** 2),
        "ours": float(np.square(np.linalg.norm(A @ zeta) / bound.min_margin)),
        "free": free,
        "ours_free": _free_part(zeta / bound.min_margin, A),
        "error": float(np.mean(signs[0] != images.y)),
        "ours_error": float(np.mean(signs[1] != images.y)),
        "released": 1.0 - _released(published, setting, "val_accuracy"),
        "apart": float(np.mean(signs[0] != signs[1])),
        "agreement": float(np.mean(signs[0] == signs[2])),
        "released_agreement": _released(published, setting, "agreement_with_GD"),
    }


def _free_part(zeta: Array, A: Array) -> float:
    """|U zeta| (H C, D): U projects on the null space of A."""
    values, vectors = np.linalg.eigh(A)
    null = vectors[:, np.abs(values) < 1e-9]
    return float(np.linalg.norm(null.T @ zeta))


def _released(published: pd.DataFrame, setting: Setting, metric: str) -> float:
    """Return a released value of SVM-L2 at the thresholds of a cell; nan if there is none."""
    wanted = {
        "model": "SVM-L2",
        "train_size": setting.train_size,
        "hidden_units": setting.units,
        "hyperplanes": setting.hyperplanes,
        "seed": setting.seed,
        "median_init": setting.threshold == "median",
        "metric": metric,
    }
    rows = published[(published[list(wanted)] == pd.Series(wanted)).all(axis=1)]
    return float(rows["value"].iloc[0]) if len(rows) else np.nan


def _measure(run: Run[PublishedOptions]) -> Frames:
    published, commit = published_values(run.options.published), clean_commit(run)
    cells = settings()[: 1 if run.quick else None]
    if run.quick:
        cells = [replace(cells[0], train_size=100)]
    by_cell = {(setting.units, setting.seed): setting for setting in cells}

    def row(units: int, seed: int) -> Rows:
        with warnings.catch_warnings(action="ignore"):  # CVXPY's: the row says how good its end is
            yield measured(by_cell[units, seed], published) | {"commit": commit}

    return growing(run, [{"units": units, "seed": seed} for units, seed in by_cell], row)


def optimal(table: pd.DataFrame) -> pd.Series[bool]:
    """Whether OSQP's solution is proven optimal, to `SLACK`."""
    proven = table["objective"] - table["bound"] <= SLACK * table["objective"]
    return proven | (table["objective"] < ZERO)


def to_the_digit(table: pd.DataFrame) -> pd.Series[bool]:
    """Whether OSQP's solution has the released validation error."""
    return (table["error"] - table["released"]).abs() < DIGIT


def _found(table: pd.DataFrame) -> str:
    objectives = "; ".join(
        f"{span(part, '.4g')} at H = {width}"
        for width, part in table["objective"].groupby(table["units"])
    )
    near = _relative(table)
    beside = "" if np.isnan(near) else f", within {near:.1g} of that of ours where it is not 0"
    return (
        f"**OSQP's solution is optimal to {SLACK:g} of its objective in "
        f"{int(optimal(table).sum())} of {len(table)} cells, and two optimal solutions disagree on "
        f"{percent(table['apart'].mean())} of the images.** {len(table)} of "
        f"{len(settings())} cells are measured. It is optimal among all solutions that use "
        "the free directions no more than it does; its "
        f"objective is {objectives}{beside}. It repeats the released validation error to the "
        f"digit in {int(to_the_digit(table).sum())}. The two optimal solutions err on "
        f"{percent(table['error'].mean())} (OSQP's) and {percent(table['ours_error'].mean())} (the "
        "one with the smallest free part)."
    )


def _relative(table: pd.DataFrame) -> float:
    above = table[table["objective"] >= ZERO]
    return float(((above["objective"] - above["ours"]).abs() / above["ours"]).max())


def _verdict(table: pd.DataFrame) -> Verdict:
    holds = optimal(table) & (table["apart"] > APART)
    return Verdict.of(holds.sum() == len(settings()), holds.mean() >= 0.5)


EXPERIMENT = Experiment(_measure, _found, pd.DataFrame, _verdict, options=PublishedOptions)
