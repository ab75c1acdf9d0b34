"""The effects of the paper, as released and exact: paired differences over matched cells.

Unless said otherwise GLNs are without momentum and at median thresholds, the only ones that the
main text shows. "Exact" is an SVM with the norm of the theory. A least error is over all settings
of one N and seed, chosen on the validation images that are reported, as in figures 2c and 3c.

Source: Lippl, Abbott, Chung (2022), sections 4.1 and 5.2, appendix C.1 and the discussion.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.drawing import Figure, subplots, tick_values
from benchmarks.effects import Effect
from benchmarks.lippl2022.errors import at_medians
from benchmarks.lippl2022.gln import RELEASED_SEEDS, THRESHOLDS, TRAIN_SIZES, UNITS
from benchmarks.lippl2022.matching import (
    GLN_KEYS,
    RELU_KEYS,
    correlation,
    correlation_text,
    least,
    matched,
    mean,
    minus,
)
from benchmarks.lippl2022.shallow import with_a_fair_coin
from implicit_bias.base.style import BLACK, GREY, VERMILION

READS = ("gln", "relu", "shallow", "limit", "released")
# The N of which there are ten seeds.
TEN_SEEDS = 500
# Figure 3c has GLNs of at most as many parameters as the widest ReLU network.
WIDEST_GLN = 50


def numbers(
    gln: pd.DataFrame,
    relu: pd.DataFrame,
    shallow: pd.DataFrame,
    limit: pd.DataFrame,
    released: pd.DataFrame,
) -> dict[str, Any]:
    """Return all effects."""
    few = gln[gln["seed"].isin(RELEASED_SEEDS)]
    return {
        **of_the_norm(gln, few, released),
        **beside_the_network(few, released),
        **correlations(gln, released),
        **of_the_best(gln, few, shallow, released),
        **near_the_limit(few, limit),
        **of_relu_networks(relu, few, released),
    }


def of_the_norm(gln: pd.DataFrame, few: pd.DataFrame, released: pd.DataFrame) -> dict[str, Any]:
    """Return the error of SVM-L2 minus that of SVM-GLN, and what causes the released one."""
    errors = matched(at_medians(few), "error")
    both_thresholds = matched(few[few["momentum"] == 0.0], "error")
    ten = gln[(gln["train_size"] == TEN_SEEDS) & (gln["momentum"] == 0.0)]
    theirs, same = both_sides(few, released, "error")
    their_apart, same_apart = both_sides(few, released, "from_network")
    found = {
        "l2_released": minus(theirs, "SVM-L2", "SVM-GLN"),
        "l2_exact": minus(same, "svm-l2", "svm-gln"),
        "released_settings": len(same),
        "l2_all": minus(errors, "svm-l2", "svm-gln"),
        "l2_ten": minus(matched(at_medians(ten), "error"), "svm-l2", "svm-gln"),
        "formula": minus(errors, "svm-l2-formula", "svm-l2"),
        "groups": minus(both_thresholds, "svm-gln", "svm-gln-published"),
        "few_released": minus(narrowest(theirs), "SVM-L2", "SVM-GLN"),
        "few": minus(narrowest(same), "svm-l2", "svm-gln"),
        "nearer_released": minus(their_apart, "SVM-L2", "SVM-GLN"),
        "nearer": minus(same_apart, "svm-l2", "svm-gln"),
        "widest_released": minus(matched(widest(released), "error"), "SVM-L2", "SVM-GLN"),
    }
    for threshold in THRESHOLDS:
        rows = widest(ten[ten["threshold"] == threshold])
        found[f"widest_{threshold}"] = minus(matched(rows, "error"), "svm-l2", "svm-gln")
    return found


def narrowest(table: pd.DataFrame) -> pd.DataFrame:
    """Keep the smallest networks, as in figure 2d: two contexts a unit."""
    return table[(table["units"] == min(UNITS)) & (table["hyperplanes"] == 1)]


def widest(table: pd.DataFrame) -> pd.DataFrame:
    """Keep the largest networks of figure 4c: four contexts a unit."""
    return table[(table["units"] == max(UNITS)) & (table["hyperplanes"] == 2)]


def both_sides(
    few: pd.DataFrame, released: pd.DataFrame, column: str
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the cells with both released SVMs, and the same cells as computed here."""
    rows = released[released["threshold"] == "median"]
    theirs = matched(rows[rows["model"].isin(("SVM-GLN", "SVM-L2"))], column)
    theirs = theirs.dropna()
    ours = matched(at_medians(few), column)
    return theirs, ours.merge(theirs[list(GLN_KEYS)], on=list(GLN_KEYS))


def beside_the_network(few: pd.DataFrame, released: pd.DataFrame) -> dict[str, Any]:
    """Compare SVMs with the network of their cell: errors, and predictions."""
    medians = at_medians(few)
    errors = matched(medians, "error")
    theirs = matched(released[(released["threshold"] == "median")], "error")
    of_networks = released[(released["model"] == "GD-GLN") & (released["momentum"] == 0.0)]
    networks = of_networks.set_index(list(GLN_KEYS))["error"]
    theirs["network"] = networks.reindex(pd.MultiIndex.from_frame(theirs[list(GLN_KEYS)])).array
    apart = matched(medians, "from_network")
    released_apart = released[(released["model"] == "SVM-GLN")]
    released_apart = released_apart[released_apart["threshold"] == "median"]
    return {
        "gln_minus_gd": minus(errors, "svm-gln", "gd-gln"),
        "distance": mean((errors["svm-gln"] - errors["gd-gln"]).abs(), errors["seed"]),
        "distance_l2": mean((errors["svm-l2"] - errors["gd-gln"]).abs(), errors["seed"]),
        "distance_released": mean((theirs["SVM-GLN"] - theirs["network"]).abs(), theirs["seed"]),
        "apart": mean(apart["svm-gln"], apart["seed"]),
        "apart_l2": mean(apart["svm-l2"], apart["seed"]),
        "apart_released": mean(released_apart["from_network"], released_apart["seed"]),
    }


def correlations(gln: pd.DataFrame, released: pd.DataFrame) -> dict[str, Any]:
    """Return correlations of errors with those of the network, within one N, and as released."""
    errors = matched(at_medians(gln), "error")
    found: dict[str, Any] = {}
    for size in TRAIN_SIZES:
        rows = errors[errors["train_size"] == size]
        for key, model in (("l2", "svm-l2"), ("gln", "svm-gln")):
            found[f"correlation_{key}_{size}"] = correlation(rows, model, "gd-gln")
        found[f"correlation_text_{size}"] = correlation_text(rows, "svm-l2", "gd-gln")
    theirs = released[released["threshold"] == "median"]
    networks = theirs[(theirs["model"] == "GD-GLN") & (theirs["momentum"] == 0.0)]
    l2 = theirs[theirs["model"] == "SVM-L2"]
    both = l2.merge(networks, on=list(GLN_KEYS), suffixes=("", "_of_network"))
    few = errors[errors["seed"].isin(RELEASED_SEEDS)]
    found["correlation_all"] = float(few["svm-l2"].corr(few["gd-gln"]))
    found["correlation_released"] = float(both["error"].corr(both["error_of_network"]))
    return found


def of_the_best(
    gln: pd.DataFrame, few: pd.DataFrame, shallow: pd.DataFrame, released: pd.DataFrame
) -> dict[str, Any]:
    """Compare the least errors over all settings: depth, and the norm."""
    svms = few[(few["momentum"] == 0.0) & few["model"].isin(("svm-gln", "svm-l2"))]
    best = least(pd.concat([svms, with_a_fair_coin(shallow)]))
    ten = gln[(gln["train_size"] == TEN_SEEDS) & (gln["momentum"] == 0.0)]
    theirs = least(released)
    return {
        "layers": minus(best, "svm-shallow", "svm-l2"),
        "layers_released": minus(theirs, "SVM-shallow", "SVM-L2"),
        "further": minus(best, "svm-l2", "svm-gln"),
        "further_released": minus(theirs, "SVM-L2", "SVM-GLN"),
        "further_ten": minus(least(ten), "svm-l2", "svm-gln"),
        "share_of_gain": share_of_gain(best, "svm-shallow", "svm-l2", "svm-gln"),
        "share_of_gain_released": share_of_gain(theirs, "SVM-shallow", "SVM-L2", "SVM-GLN"),
    }


def share_of_gain(table: pd.DataFrame, before: str, part: str, whole: str) -> Effect | float:
    """Return what one model saves over another, as a share of what a third one saves."""
    if not {before, part, whole} <= set(table.columns):
        return math.nan
    saved, all_saved = table[before] - table[part], table[before] - table[whole]
    return mean(saved / all_saved, table["seed"])


def near_the_limit(few: pd.DataFrame, limit: pd.DataFrame) -> dict[str, Any]:
    """Compare networks near the limit with those trained as released, in the same settings."""
    finite = few[(few["model"] == "gd-gln") & (few["momentum"] == 0.0)]
    both = limit[limit["model"] == "limit-gln"].merge(
        finite, on=list(GLN_KEYS), suffixes=("", "_finite")
    )
    if both.empty:
        return {"finite_apart": math.nan, "limit_apart": math.nan, "limit_change": math.nan}
    change = both["from_svm_gln"] - both["from_svm_gln_finite"]
    return {
        "finite_apart": float(both["from_svm_gln_finite"].mean()),
        "limit_apart": float(both["from_svm_gln"].mean()),
        "limit_change": mean(change, both["seed"]),
    }


def of_relu_networks(
    relu: pd.DataFrame, few: pd.DataFrame, released: pd.DataFrame
) -> dict[str, Any]:
    """Compare SVMs on learned, random and no contexts, and their network; both momenta."""
    narrow = relu[relu["units"] <= max(UNITS)]
    released_seeds = narrow[narrow["seed"].isin(RELEASED_SEEDS)]
    errors = matched(released_seeds, "error", RELU_KEYS)
    apart = matched(released_seeds, "from_network", RELU_KEYS)
    every = matched(narrow, "error", RELU_KEYS)
    points = errors.groupby(["train_size", "units", "momentum"])[["svm-rc", "svm-lc"]].mean()
    glns = at_medians(few)
    glns = glns[(glns["units"] <= WIDEST_GLN) & (glns["hyperplanes"] == 1)]
    best = least(pd.concat([released_seeds, glns]))
    theirs = released[released["model"].isin(("SVM-RC", "SVM-LC"))]
    their_errors = matched(theirs, "error", RELU_KEYS)
    their_apart = matched(theirs, "from_network", RELU_KEYS)
    of_all_widths = least(relu[(relu["model"] == "svm-hl") | (relu["units"] <= max(UNITS))])
    found: dict[str, Any] = {
        "learned_better": minus(errors, "svm-rc", "svm-lc"),
        "learned_better_released": minus(their_errors, "SVM-RC", "SVM-LC"),
        "points": len(points),
        "points_better": int((points["svm-rc"] > points["svm-lc"]).sum()),
        "apart_rc": mean(apart["svm-rc"], apart["seed"]),
        "apart_lc": mean(apart["svm-lc"], apart["seed"]),
        "apart_rc_released": mean(their_apart["SVM-RC"], their_apart["seed"]),
        "apart_lc_released": mean(their_apart["SVM-LC"], their_apart["seed"]),
        "hidden": minus(best, "svm-hl", "gd-relu"),
        "hidden_as_drawn": minus(of_all_widths, "svm-hl", "gd-relu"),
        "gln_minus_lc": minus(best, "svm-gln", "svm-lc"),
    }
    for size in TRAIN_SIZES:
        rows = every[every["train_size"] == size]
        found[f"correlation_rc_{size}"] = correlation_text(rows, "svm-rc", "gd-relu")
    return found


def draw(
    gln: pd.DataFrame,
    relu: pd.DataFrame,
    shallow: pd.DataFrame,
    limit: pd.DataFrame,
    released: pd.DataFrame,
) -> Figure:
    """Draw SVM-L2 minus SVM-GLN against H, released and exact, with intervals over the seeds."""
    few = gln[gln["seed"].isin(RELEASED_SEEDS)]
    figure, axes = subplots((8.4, 3.4), 1, 2, grid="y")
    titles = {"error": "errors", "from_network": "disagreements with GD-GLN"}
    for ax, (column, title) in zip(axes, titles.items(), strict=True):
        theirs, _ = both_sides(few, released, column)
        ours = matched(at_medians(few), column)
        _differences(ax, theirs, ("SVM-L2", "SVM-GLN"), "as released", GREY, "s--")
        _differences(ax, ours, ("svm-l2", "svm-gln"), "exact", VERMILION, "o-")
        ax.axhline(0, color=BLACK, linewidth=0.8)
        ax.set(xscale="log", xlabel="hidden units H", ylabel="SVM-L2 − SVM-GLN, points")
        ax.set_title(title, loc="left")
        tick_values(ax, UNITS)
        ax.legend()
    return figure


def _differences(
    ax: Any, table: pd.DataFrame, models: tuple[str, str], label: str, colour: str, line: str
) -> None:
    """Draw the difference of two models against the width."""
    widths, means, halves = [], [], []
    for units, rows in table.groupby("units"):
        effect = minus(rows, *models)
        if isinstance(effect, Effect):
            widths.append(units)
            means.append(100 * effect.mean)
            halves.append(100 * effect.half if np.isfinite(effect.half) else 0.0)
    ax.errorbar(widths, means, halves, fmt=line, color=colour, label=label, capsize=3)
