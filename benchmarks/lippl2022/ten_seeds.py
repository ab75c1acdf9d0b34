r"""Both norms at ten seeds of the contexts, at N = 500: what is sure, where it helps, and FReLUs.

    python -m benchmarks lippl2022 ten-seeds

The paper has three seeds, and so have its networks. The SVMs of N = 500 cost seconds each, so they
are solved for ten: with two contexts and medians, and with four contexts at the largest width,
where SVM-L2 is said to begin to outperform, by medians and at random.

Where the norm helps. An image shares a unit with a training sample where both are in the same
context of it. *Known* is the share of the units that an image shares with the `NEAREST` training
samples which share most. By quarters of the images, from the least known to the best, the errors of
both SVMs say whether SVM-GLN gains where contexts are new. An image far from all samples is known
less in any contexts; so the same is done with other contexts, of a seed that no SVM has.

FReLUs. With H units of two contexts a GLN has 2 H D parameters, as a FReLU of 2 H units. SVM-RC has
an orthogonal matrix of hyperplanes, as released, or the Gaussian one of a GLN of as many units;
one unit more is always on.

Columns: the cell, and

====================  =========================================================================
model                 "svm-gln", "svm-l2"; "svm-rc" and "svm-rc-gaussian", with twice the units
error                 validation error
neighbours, unused    of both norms, as in `neighbours`
known_1 .. known_4    error in the quarters of the images, from the least known to the best
other_1 .. other_4    the same in quarters by the other contexts
known                 mean of what is known of the images, the same for all models
gap                   of the certificate
====================  =========================================================================

Source: Lippl, Abbott, Chung (2022), introduction and section 5.2.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.drawing import Figure, mean_bars, subplots, tick_values
from benchmarks.harness import Judged, Row, Rows
from benchmarks.lippl2022 import draws
from benchmarks.lippl2022.gln_predictors import AdditivePredictors
from benchmarks.lippl2022.neighbours import MODELS, cell, shape
from benchmarks.lippl2022.paired import Paired, Pairs, matched, minus, signed
from benchmarks.sizes import grid, sized
from implicit_bias.base.validation import Array
from implicit_bias.base.wording import percent
from implicit_bias.estimators.svm import GatedSVC, MarginSVC
from implicit_bias.problem.gating import HyperplaneContexts, UnitGates
from implicit_bias.report.style import BLACK, COLOURS, GREY, MARKERS, VERMILION

NEAREST, QUARTERS = 10, 4
CELL = ("units", "hyperplanes", "threshold", "seed")
GLN, L2 = MODELS
RC, GAUSSIAN = "svm-rc", "svm-rc-gaussian"
LABELS = {GLN: "SVM-GLN", L2: "SVM-L2", RC: "SVM-RC", GAUSSIAN: "SVM-RC, Gaussian"}


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Seeds, widths, hyperplanes a unit of the widest once more, and N."""

    seeds: tuple[int, ...] = tuple(range(1, 11))
    units: tuple[int, ...] = (10, 20, 100)
    most_hyperplanes: int = 2
    train_size: int = 500


QUICK = Sizes(seeds=(1, 2), units=(10,), train_size=100)


def settings(sizes: Sizes) -> list[Row]:
    """Return the cells, all seeds of one after the other."""
    wide = {"units": sizes.units[-1], "hyperplanes": sizes.most_hyperplanes}
    cells = grid(units=sizes.units, hyperplanes=(1,), threshold=("median",))
    cells += [wide | {"threshold": threshold} for threshold in ("median", "random")]
    return [each | {"seed": seed} for each in cells for seed in sizes.seeds]


# What a cell has drawn serves the one before as other contexts.
drawn_once = lru_cache(maxsize=2)(cell)


def known(contexts: HyperplaneContexts, X: Array, images: Array) -> Array:
    """Share of the units (n,) that images (n, D) share with the nearest samples X (N, D)."""
    ours, theirs = (contexts.gates(each).toarray().astype(np.float32) for each in (images, X))
    nearest = np.partition(ours @ theirs.T, -NEAREST, axis=1)[:, -NEAREST:]
    return np.asarray(nearest.mean(axis=1) / contexts.n_units)


def quarters(values: Array) -> NDArray[np.int64]:
    """Quarter (n,) of each value, 0 of the least; equal values are in one."""
    inner = np.quantile(values, np.arange(1, QUARTERS) / QUARTERS)
    return np.searchsorted(inner, values).astype(np.int64)


def rows(sizes: Sizes, **setting: Any) -> Rows:
    """Solve the SVMs of a cell."""
    factory = drawn_once(train_size=sizes.train_size, **setting)
    parts, everything = factory.data.parts, factory.data.everything.X
    X, images = parts.train.X, parts.validation
    units, seed = factory.setting.units, factory.setting.seed
    others = drawn_once(train_size=sizes.train_size, **setting | {"seed": seed + 1}).contexts
    known_by = {
        "known": known(factory.contexts, X, images.X),
        "other": known(others, X, images.X),
    }
    models = dict(factory.fit())
    if setting["hyperplanes"] == 1:
        drawn = draws.draw_contexts(
            X, 2 * units, threshold="median", reference=everything, seed=seed
        )
        gates = {
            RC: draws.draw_unit_gates(2 * units, reference=everything, seed=seed),
            GAUSSIAN: UnitGates(
                drawn.weights[:, 0], drawn.thresholds[:, 0], ">", True, single_precision=True
            ),
        }
        for name, each in gates.items():
            models[name] = GatedSVC(each, **factory.svm_options()).fit(X, parts.train.y)
    for name, model in models.items():
        assert isinstance(model, MarginSVC)
        wrong = model.predict(images.X) != images.y
        row = {"model": name, "error": wrong.mean(), "known": known_by["known"].mean()}
        for kind, values in known_by.items():
            place = quarters(values)
            row |= {f"{kind}_{each + 1}": wrong[place == each].mean() for each in range(QUARTERS)}
        if name in MODELS:
            row |= shape(AdditivePredictors.from_coef(model.coef_, units))
        yield row | {"gap": model.solution_.certificate.gap}


# --- what the table says -----------------------------------------------------------------------


def of_threshold(frame: pd.DataFrame, threshold: str = "median") -> pd.DataFrame:
    """Errors of all models side by side, a row a cell."""
    return matched(frame[frame["threshold"] == threshold], "error", CELL)


def gains(frame: pd.DataFrame, by: str) -> pd.DataFrame:
    """SVM-L2 minus SVM-GLN in each quarter, at medians: a row a cell, columns 1 to 4."""
    columns = {f"{by}_{quarter}": quarter for quarter in range(1, QUARTERS + 1)}
    medians = frame[frame["threshold"] == "median"].set_index(["model", *CELL])[list(columns)]
    gained = pd.DataFrame(medians.loc[L2] - medians.loc[GLN])
    return gained.rename(columns=columns).reset_index()


def judge(frame: pd.DataFrame) -> dict[str, Judged]:
    """Judge each claim by its rule."""
    own, other = gains(frame, "known"), gains(frame, "other")
    beyond = own.assign(own=own[1] - own[QUARTERS], other=other[1] - other[QUARTERS])
    new = Pairs(
        {
            "": minus(own, 1, QUARTERS),
            "more than by other contexts ": minus(beyond, "own", "other"),
        },
        "{name}{pair}",
        "; ",
    )
    means = own[list(range(1, QUARTERS + 1))].mean()
    table = of_threshold(frame).dropna(subset=[RC])
    equal = Pairs.by(table, "units", GLN, RC, "{pair} at H = {name}", "; ")
    return {
        "where": Judged(
            verdict=new.judged(),
            result="By ten seeds: gain on the quarter of the images whose contexts training knows "
            f"least minus that on the best known: {new}.",
            control=f"by quarters of other contexts: {minus(other, 1, QUARTERS)}.",
            evidence=(
                "From the least known quarter to the best, SVM-L2 minus SVM-GLN: "
                f"{', '.join(map(signed, means))} points.",
            ),
        ),
        "equal": Judged(
            verdict=equal.judged(),
            result="By ten seeds: error, SVM-GLN with H units minus SVM-RC with 2 H: "
            + ", ".join(f"{signed(pair.mean)} points at H = {h}" for h, pair in equal.items())
            + ".",
            evidence=(f"{equal}.",),
            control="Gaussian hyperplanes in the place of orthogonal ones, error of SVM-RC: "
            f"{minus(table, GAUSSIAN, RC)}.",
        ),
    }


def found(frame: pd.DataFrame) -> str:
    """Say what the table rests on."""
    known = frame.groupby("units")["known"].mean()
    return (
        f"{len(frame.groupby(list(CELL)))} cells; the largest certified gap is "
        f"{frame['gap'].max():.0e}. Of its units an image shares with the {NEAREST} nearest "
        "samples "
        + ", ".join(f"{percent(share)} at H = {units}" for units, share in known.items())
        + "."
    )


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """Mean errors of all models, and how much neighbours differ."""
    means = frame.pivot_table(
        index=["threshold", "hyperplanes", "units"], columns="model", values=["error", "neighbours"]
    )
    means.columns = means.columns.map("{0[1]}, {0[0]}".format)
    return (
        means.map(lambda share: "–" if pd.isna(share) else percent(share)).reset_index().astype(str)
    )


def draw(frame: pd.DataFrame) -> Figure:
    """Draw gains by quarter, and errors against the width."""
    figure, (left, right) = subplots((8.6, 3.8), 1, 2, grid="y")
    places = np.arange(1, QUARTERS + 1)
    for by, label, colour, marker, shift in (
        ("known", "own contexts", VERMILION, "o", -0.05),
        ("other", "other contexts", GREY, "s", 0.05),
    ):
        table = gains(frame, by)
        pairs = [Paired.of(table[quarter], table["seed"]) for quarter in places]
        means = np.array([pair.mean for pair in pairs])
        half = np.array([pair.high for pair in pairs]) - means
        look = {"color": colour, "marker": marker, "label": label, "capsize": 3}
        left.errorbar(places + shift, 100 * means, 100 * half, **look)
    left.axhline(0, color=BLACK, lw=0.8)
    left.set(
        xlabel="quarter of the images, least known first",
        ylabel="error, SVM-L2 minus SVM-GLN, points",
        xticks=places,
    )
    table = of_threshold(frame).dropna(subset=[RC])
    for (name, label), colour, marker in zip(LABELS.items(), COLOURS, MARKERS, strict=False):
        look = {"color": colour, "marker": marker, "label": label, "capsize": 3}
        mean_bars(right, table, "units", name, **look)
    right.set(
        xlabel="units H of the GLN; SVM-RC has 2 H", ylabel="validation error, %", xscale="log"
    )
    tick_values(right, table["units"])
    for ax in (left, right):
        ax.legend()
    return figure


EXPERIMENT = sized(settings, rows, found, tabulate, draw=draw, judge=judge, quick=QUICK)
