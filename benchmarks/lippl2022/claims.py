"""Which conclusions of the paper stand: each computed from the tables.

How a claim is judged, and why so, is said before its numbers. Signs are judged by `paired.Paired`:
the mean of paired differences over matched cells, with an interval clustered by seed; sizes by
themselves, against a bound that the rule names, and against another one. The main text of the paper
shows median thresholds only, so what it says is judged by them; appendix C.1 speaks of random ones.
Each claim has a control; those of agreement and prediction have the exact SVM-L2 beside SVM-GLN:
what both have is no merit of the norm. A claim is open as long as the tables hold no cell that
bears on it; no number of a finding is typed by hand.

Source: Lippl, Abbott, Chung (2022) [L], sections 4 and 5 and figures 2 to 5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Sized
from functools import partial
from typing import TypeVar

import numpy as np
import pandas as pd

from benchmarks.harness import Judged, Verdict, otherwise
from benchmarks.lippl2022 import l2_optimality, neighbours
from benchmarks.lippl2022.figures import chance, disagreements, task_names
from benchmarks.lippl2022.paired import (
    Paired,
    Pairs,
    all_of,
    difference,
    matched,
    side_by_side,
    signed,
)
from benchmarks.lippl2022.values import RELU, Tables, of_momentum, our_values
from benchmarks.words import span

GLN_KEYS = ("train_size", "units", "hyperplanes", "threshold", "seed")
RELU_KEYS = ("train_size", "units", "seed", "momentum")
BEST_KEYS = ("train_size", "seed")
THRESHOLDS = ("median", "random")
POINT = 0.01  # a percentage point
NARROWEST, NARROW, WIDE = 10, 20, 100
# The N of ten seeds; all others have those that are released.
TEN_SEEDS, RELEASED_SEEDS = 500, 3
# What claims say of SVM-L2 minus SVM-GLN, and the sign of each.
SIGNS = {
    "error": 1,
    "least error": 1,
    f"error at H = {WIDE} minus that at H = {NARROWEST}": -1,
    f"error at H = {WIDE}, four contexts, medians": -1,
    f"error at H = {WIDE}, four contexts, random thresholds": -1,
}
# Widest GLN of figure 3c: with two contexts it has as many parameters as the widest FReLU.
WIDEST_GLN = 50
# Share of the cells that "tends to" and "uniformly" ask for.
MOST = 0.9


class Unmeasured(Exception):
    """No cell is measured of those that a claim is about."""


FoundT = TypeVar("FoundT")


def needed(found: FoundT | None) -> FoundT:
    """Return what a claim rests on.

    Raises
    ------
    Unmeasured
        There is none of it.
    """
    if found is None or (isinstance(found, Sized) and not len(found)):
        raise Unmeasured
    return found


# --- gated linear networks -----------------------------------------------------------------


def better_norm(values: pd.DataFrame, tables: Tables) -> Judged:
    """Sign of SVM-L2 minus SVM-GLN."""
    rows = _corrected(values, ("SVM-GLN", "SVM-L2"))
    found = _by_threshold(rows, "error", "SVM-L2", "SVM-GLN")
    shown = needed(found.get("median"))
    folded = pd.concat([_folded(values, ("SVM-GLN",)), rows[rows["model"] == "SVM-L2"]])
    error = _medians(rows[rows["model"] == "SVM-GLN"])["error"].mean()
    return Judged(
        shown.judged(),
        f"Error, SVM-L2 minus SVM-GLN: {shown}.",
        "a sum of norms over groups that are no units, those of the released code, in the place of "
        f"SVM-GLN: {_by_threshold(folded, 'error', 'SVM-L2', 'SVM-GLN')}. Where "
        "this is as large, it is not the units as groups that make the difference.",
        [
            f"That is {percent(shown.mean / error)} of SVM-GLN's error. By thresholds: {found}.",
            f"By width: {_each_width(_matched(_medians(rows), 'error'), 'SVM-L2', 'SVM-GLN')}.",
            _other_splits(tables, "error", "SVM-L2", "SVM-GLN"),
            _other_tasks(tables),
        ],
    )


def _other_splits(tables: Tables, column: str, first: str, second: str) -> str:
    """Return first minus second on each further split of the data."""
    found: dict[int, Paired] = {}
    widths: set[int] = set()
    for seed, split in tables.further_splits().items():
        table = _matched(our_values(split, "corrected"), column)
        each = difference(table, first, second)
        if each is not None:
            found[seed] = each
            widths |= set(_known(table, first, second)["units"])
    if not found:
        return ""
    listed = "; ".join(f"split {seed} {each}" for seed, each in found.items())
    of_widths = pd.Series(list(widths), dtype=float)
    return (
        f"The same on further splits of the data (N = 500, H = {_listed(of_widths)}, "
        f"two contexts, medians): {listed}."
    )


def _other_tasks(tables: Tables) -> str:
    """Return the same difference on other classes and data."""
    models = tables.beyond().models
    rows = models[models["model"].isin(["svm-gln", "svm-l2"]) & (models["split_seed"] == 1)]
    if rows.empty:
        return ""
    rows = rows.assign(task=task_names(rows))
    table = matched(rows, "validation_error", ["task", "train_size", "units", "seed"])
    texts = []
    for task, part in table.groupby("task"):
        found = difference(part, "svm-l2", "svm-gln")
        if found is not None:
            texts.append(f"{task} {found}")
    return f"On other tasks (medians): {'; '.join(texts)}." if texts else ""


def much_worse(values: pd.DataFrame, tables: Tables) -> Judged:
    """Size of SVM-L2 minus SVM-GLN, released and corrected, and its causes one by one."""
    theirs, kept, released = needed(_kept_of_gap(values, "error"))
    by_size = "; ".join(
        f"{signed((part['SVM-L2'] - part['SVM-GLN']).mean())} points at N = {size:,}"
        for size, part in released.groupby("train_size")
    )
    largest = (released["SVM-L2"] - released["SVM-GLN"]).max()
    share = kept.mean / theirs.mean
    return Judged(
        Verdict.of(share >= 0.5),
        f"Error, SVM-L2 minus SVM-GLN: released {theirs}; exact {kept}.",
        _formula(values),
        [
            f"Released: {by_size}; the largest of the {len(released)} differences is "
            f"{signed(largest)} points.",
            "The steps from the exact norm to the released values are drawn below, in the picture "
            "of the causes.",
            _optimality(tables),
            "The released agreements at median thresholds have one more cause, the thresholds that "
            "a checkpoint lacks: see the claim on a tenth of the images.",
        ],
        remark=otherwise(Verdict.of(share >= 0.1), "a tenth"),
    )


def _kept_of_gap(
    values: pd.DataFrame, column: str, width: int | None = None
) -> tuple[Paired, Paired, pd.DataFrame] | None:
    """SVM-L2 minus SVM-GLN at medians, released and ours, on the settings that are released.

    Returns
    -------
    tuple or None
        Released, ours, and the settings with the released values.
    """
    models = ("SVM-GLN", "SVM-L2")
    was, rows = _medians(_released(values, models)), _medians(_corrected(values, models))
    if width is not None:
        two = (was["units"] == width) & (was["hyperplanes"] == 1)
        was, rows = was[two], rows[(rows["units"] == width) & (rows["hyperplanes"] == 1)]
    released = _known(_matched(was, column), "SVM-L2", "SVM-GLN")
    ours = _known(_matched(rows, column), "SVM-L2", "SVM-GLN")
    same = ours.merge(released[list(GLN_KEYS)], on=list(GLN_KEYS))
    theirs, kept = (difference(part, "SVM-L2", "SVM-GLN") for part in (released, same))
    return None if theirs is None or kept is None else (theirs, kept, released)


def _formula(values: pd.DataFrame) -> str:
    """Say what the printed formula alone does, with units as groups."""
    rows = _corrected(values, ("SVM-L2", "SVM-L2 formula"))
    return (
        "the formula as printed, but with units as groups, is a norm. It errs more than the exact "
        f"one by {_by_threshold(rows, 'error', 'SVM-L2 formula', 'SVM-L2')}. The rest of the "
        "released gap is due to the released groups, which leave the solution open."
    )


def _optimality(tables: Tables) -> str:
    """Whether OSQP's solution is optimal."""
    table = tables.optimality
    if table.empty:
        return ""
    return f"Are the released solutions optimal? {l2_optimality.EXPERIMENT.found(table)}"


def groups(values: pd.DataFrame, tables: Tables) -> Judged:
    """SVM-GLN with the released groups against the right ones."""
    right = _corrected(values, ("SVM-GLN",))
    both = pd.concat(
        [
            _folded(values, ("SVM-GLN",)).assign(model="folded"),
            right.assign(model="right"),
            _corrected(values, ("SVM-L2",)),
        ]
    )
    table = _matched(both, "error")
    found = needed(difference(table, "right", "folded"))
    moved = (table["right"] - table["folded"]).dropna()

    def by(bound: float) -> Verdict:
        small = abs(found.mean) < bound
        return Verdict.of(small and moved.abs().max() < 2 * bound, small)

    return Judged(
        by(0.5 * POINT),
        f"Error with the right groups minus that with the released ones: {found}, from "
        f"{span(moved, signed)} points in single settings.",
        "SVM-L2, which knows no groups, errs more than SVM-GLN with the right groups by "
        f"{difference(table, 'SVM-L2', 'right')}.",
        [
            f"{percent(table['right'].mean())} instead of {percent(table['folded'].mean())}; "
            f"{_by_threshold(both, 'error', 'right', 'folded')}."
        ],
        remark=otherwise(by(0.2 * POINT), "a fifth of a point"),
    )


def errors_agree(values: pd.DataFrame, tables: Tables) -> Judged:
    """Error of SVM-GLN against that of the trained network."""
    ours = _with_network(_medians(_corrected(values, ("SVM-GLN", "SVM-L2"))))
    theirs = _with_network(_medians(_released(values, ("SVM-GLN",))))
    own, theirs = needed(ours[ours["model"] == "SVM-GLN"]), needed(theirs)
    was, now = theirs["distance"].mean(), own["distance"].mean()
    of_norm = difference(_matched(ours, "distance"), "SVM-L2", "SVM-GLN")
    both = pd.concat([own.assign(model="ours"), theirs.assign(model="released")])
    correlations = "; ".join(
        f"{model} {_correlation(rows)} (within N = 500 "
        f"{_correlation(rows.query('train_size == 500'))})"
        for model, rows in ours.groupby("model")
    )
    # Unless SVM-L2 is surely farther from the network, it predicts as well.
    merit = of_norm is None or of_norm.judged() is Verdict.STANDS
    return Judged(
        Verdict.of(now <= was + 0.5 * POINT, now <= 2 * was),
        f"The errors of SVM-GLN and GD-GLN lie {share(own, 'distance')} of the images apart; as "
        f"released {percent(was)}; those of SVM-L2 and GD-GLN "
        f"{share(ours[ours['model'] == 'SVM-L2'], 'distance')}.",
        f"the distance of the exact SVM-L2 minus that of SVM-GLN is {of_norm}.",
        [
            f"{len(own)} cells, N = {_listed(own['train_size'])}, no momentum; {len(theirs)} "
            "released ones. Our distance minus the released one: "
            f"{difference(_matched(both, 'distance'), 'ours', 'released')}.",
            _other_splits(tables, "error", "SVM-GLN", "GD-GLN"),
            f"Correlation with the network's error over the cells: {correlations}; released "
            f"SVM-GLN {_correlation(theirs)}.",
        ],
        remark=("" if merit else ", but not because of the norm")
        + otherwise(Verdict.of(now <= was, now <= 2 * was), "the released distance"),
    )


def weakly_correlated(values: pd.DataFrame, tables: Tables) -> Judged:
    """Correlation of SVM-L2 with the network."""
    values = pd.concat([values, tables.more_seeds])
    ours = _with_network(_medians(_corrected(values, ("SVM-GLN", "SVM-L2"))))
    of_l2 = ours[ours["model"] == "SVM-L2"]
    weak, weaker = (~_beyond(of_l2, bound) for bound in (0.5, 0.7))
    needed(weak)
    of_gln = ours[ours["model"] == "SVM-GLN"]
    return Judged(
        Verdict.each(weak),
        f"Correlation within one N: {_by_seeds(of_l2)}.",
        f"SVM-GLN has {_by_seeds(of_gln)}; over all cells {_correlation(of_gln)}, SVM-L2 "
        f"{_correlation(of_l2)}.",
        [
            _sure(of_l2, 0.5),
            "Means and intervals over the seeds, by Fisher's transformation. In the released "
            "values SVM-L2 has "
            + _correlation(_with_network(_medians(_released(values, ("SVM-L2",)))))
            + " over all cells.",
        ],
        remark=otherwise(Verdict.each(weaker), "0.7"),
    )


def _within(rows: pd.DataFrame) -> dict[int, Paired]:
    """Correlation of error and network's error within each N: its z a seed, by Fisher."""
    found = {}
    for size, part in rows.groupby("train_size"):
        z = {
            seed: np.arctanh(group["error"].corr(group["gd_error"]))
            for seed, group in part.groupby("seed")
            if len(group) > 2
        }
        known = pd.Series(z, dtype=float).replace([np.inf, -np.inf], np.nan).dropna()
        if len(known):
            found[int(str(size))] = Paired.of(known, known.index.to_series())
    return found


def _beyond(rows: pd.DataFrame, bound: float) -> pd.Series[bool]:
    """Whether the correlation within each N is at least a bound."""
    over = {size: np.tanh(z.mean) >= bound for size, z in _within(rows).items()}
    return pd.Series(over, dtype=bool)


def _sure(rows: pd.DataFrame, bound: float) -> str:
    """Say at which N the whole interval is on one side of a bound."""
    z = np.arctanh(bound)
    sure = [size for size, each in _within(rows).items() if each.low > z or each.high < z]
    where = f"at N = {_listed(pd.Series(sure, dtype=float))}" if sure else "at no N"
    return f"The interval is on one side of the bound {where}."


def _by_seeds(rows: pd.DataFrame) -> str:
    """Say the correlations within each N, with their intervals over the seeds."""
    texts = (
        f"{np.tanh(z.mean):.2f} [{np.tanh(z.low):.2f} to {np.tanh(z.high):.2f}] at N = {size:,}"
        + (f", {z.seeds} seeds" if z.seeds > RELEASED_SEEDS else "")
        for size, z in _within(rows).items()
    )
    return "; ".join(texts).replace("-", "−")


def nearer(values: pd.DataFrame, tables: Tables, threshold: str = "median") -> Judged:
    """Disagreement of SVM-L2 minus that of SVM-GLN with the network."""

    def shown(values: pd.DataFrame) -> pd.DataFrame:
        rows = _corrected(values, ("SVM-GLN", "SVM-L2"))
        return rows[rows["threshold"] == threshold]

    def compare(values: pd.DataFrame) -> Paired | None:
        return difference(_matched(shown(values), "disagreement"), "SVM-L2", "SVM-GLN")

    verdict, found, remark = _by_ten_seeds_too(values, tables, compare)
    formula = _corrected(values, ("SVM-GLN", "SVM-L2 formula"))
    means = shown(values).groupby("model")["disagreement"].mean()
    return Judged(
        verdict,
        f"Disagreement with GD-GLN, SVM-L2 minus SVM-GLN: {found}.",
        "a third norm, the printed formula with units as groups, in the place of SVM-L2: "
        + str(_by_threshold(formula, "disagreement", "SVM-L2 formula", "SVM-GLN"))
        + ".",
        [
            "Mean disagreements: "
            + "; ".join(f"{model} {percent(mean)}" for model, mean in means.items())
            + ".",
            _other_splits(tables, "disagreement", "SVM-L2", "SVM-GLN")
            if threshold == "median"
            else "",
        ],
        remark,
    )


def much_nearer(values: pd.DataFrame, tables: Tables) -> Judged:
    """Size of the same difference, beside the released one."""
    theirs, kept, _ = needed(_kept_of_gap(values, "disagreement"))
    rows, part = _corrected(values, ("SVM-GLN", "SVM-L2")), kept.mean / theirs.mean
    return Judged(
        Verdict.of(part >= 0.5),
        f"Disagreement with GD-GLN, SVM-L2 minus SVM-GLN: released {theirs}; exact {kept}.",
        "over all settings "
        + str(_by_threshold(rows, "disagreement", "SVM-L2", "SVM-GLN"))
        + "; of random thresholds the paper says “more” alone.",
        remark=otherwise(Verdict.of(part >= 0.1), "a tenth"),
    )


def below_chance(values: pd.DataFrame, tables: Tables) -> Judged:
    """Disagreement of SVM-GLN and trained network, against chance."""
    both = _corrected(values, ("SVM-GLN", "SVM-L2")).dropna(subset=["disagreement", "gd_error"])
    ours = needed(_medians(both[both["model"] == "SVM-GLN"]))
    below = ours["disagreement"] < chance(ours["gd_error"])
    under = {name: _under(both[both["model"] == name]) for name in ("SVM-GLN", "SVM-L2")}
    return Judged(
        Verdict.of(below.mean() >= MOST, below.mean() > 0.5),
        f"Chance minus the disagreement of SVM-GLN and GD-GLN: {under['SVM-GLN']['median']}.",
        f"the same of the exact SVM-L2: {under['SVM-L2']}.",
        [f"By thresholds: {under['SVM-GLN']}."],
        otherwise(Verdict.each(below, 0.5), "all cells"),
    )


def a_tenth(values: pd.DataFrame, tables: Tables) -> Judged:
    """Size of that disagreement."""
    both = _corrected(values, ("SVM-GLN", "SVM-L2")).dropna(subset=["disagreement", "gd_error"])
    theirs = _released(values, ("SVM-GLN",)).dropna(subset=["disagreement", "gd_error"])
    ours = both[both["model"] == "SVM-GLN"]
    shown, released = needed(_medians(ours)), _medians(theirs)
    mean, random = shown["disagreement"].mean(), ours[ours["threshold"] == "random"]
    control = both[both["model"] == "SVM-L2"]
    return Judged(
        Verdict.of(mean > 0.1),
        f"SVM-GLN and GD-GLN disagree on {share(shown, 'disagreement')} of the images; as released "
        f"on {percent(released['disagreement'].mean())}.",
        "the exact SVM-L2 and GD-GLN disagree on "
        f"{percent(_medians(control)['disagreement'].mean())}.",
        [
            f"With random thresholds on {percent(random['disagreement'].mean())}.",
            _moved(values, ours, theirs),
        ],
        remark=otherwise(Verdict.of(mean > 0.05), "5 %"),
    )


def _under(rows: pd.DataFrame) -> Pairs:
    """Chance minus disagreement, for each kind of thresholds."""
    under = rows.assign(chance=chance(rows["gd_error"]))
    return Pairs.by(under, "threshold", "chance", "disagreement")


def _moved(values: pd.DataFrame, ours: pd.DataFrame, theirs: pd.DataFrame) -> str:
    """Say where the released disagreements at medians come from, with the evidence."""
    rows = values[(values["side"] == "published") & (values["source"] == "ours")]
    rows = of_momentum(rows[rows["model"] == "SVM-GLN"], 0.0)
    moved = rows[rows["threshold"] == "median"]
    parts = {"moved": moved, "own": ours, "released": theirs}
    table = _matched(
        pd.concat([part.assign(model=name) for name, part in parts.items()]), "disagreement"
    )
    table = _known(table, *parts)
    table = table[table["threshold"] == "median"] if len(table) else table
    if table.empty:
        return ""
    images = (table["moved"] - table["released"]).abs() * 12_000
    return (
        "At medians the released disagreements are with the network in other contexts. A "
        "checkpoint holds no thresholds, and the released script that fits the SVMs gives the "
        "network the random ones of the seed. In these contexts the exact network disagrees with "
        f"SVM-GLN of the released groups on {percent(table['moved'].mean())} over {len(table)} "
        "settings, where "
        f"{percent(table['released'].mean())} are released: "
        f"{int((images.round() == 0).sum())} of them to the image, "
        f"{int((images.round() <= 3).sum())} within 3, all within {int(images.round().max())} of "
        f"12,000. In the contexts in which it was trained it disagrees on "
        f"{percent(table['own'].mean())}."
    )


def direction(values: pd.DataFrame, tables: Tables) -> Judged:
    """Sign of SVM-GLN minus GD-GLN."""
    rows = _corrected(values, ("SVM-GLN", "SVM-L2", "GD-GLN"))
    found = _by_threshold(rows, "error", "SVM-GLN", "GD-GLN")
    shown = needed(found.get("median"))
    beside = _by_threshold(_folded(values, ("SVM-GLN", "GD-GLN")), "error", "SVM-GLN", "GD-GLN")
    return Judged(
        shown.judged(-1),
        f"Error, SVM-GLN minus GD-GLN: {shown}.",
        "the error of the exact SVM-L2 minus that of GD-GLN is "
        f"{_by_threshold(rows, 'error', 'SVM-L2', 'GD-GLN')}.",
        [
            f"By thresholds: {found}; with the released groups {beside}: what differs between the "
            "two at random thresholds comes from the groups.",
            _other_splits(tables, "error", "SVM-GLN", "GD-GLN"),
        ],
    )


def two_layers(values: pd.DataFrame, tables: Tables) -> Judged:
    """SVM-L2 of two layers against shallow SVMs, the best of all settings."""
    best = _best(values, ("SVM-L2", "SVM-GLN", "GD-GLN", "SVM-shallow", "GD-shallow"))
    found = needed(difference(best, "SVM-shallow", "SVM-L2"))
    return Judged(
        found.judged(),
        f"Least error, SVM-shallow minus SVM-L2: {found}.",
        f"SVM-GLN gains {difference(best, 'SVM-shallow', 'SVM-GLN')}, GD-GLN, beside shallow "
        f"networks, {difference(best, 'GD-shallow', 'GD-GLN')}: so depth helps with any norm.",
        [_means(best)],
    )


def further(values: pd.DataFrame, tables: Tables) -> Judged:
    """Sign of the least error of SVM-L2 minus that of SVM-GLN."""
    best = _best(values, ("SVM-L2", "SVM-GLN"))
    narrow = _best(values[values["units"] == NARROWEST], ("SVM-L2", "SVM-GLN"))
    verdict, found, remark = _by_ten_seeds_too(values, tables, _least_apart)
    ten = _of_ten_seeds(values, tables)
    return Judged(
        verdict,
        f"Least error, SVM-L2 minus SVM-GLN: {found}.",
        f"of the narrowest networks alone, H = {NARROWEST}: "
        f"{difference(narrow, 'SVM-L2', 'SVM-GLN')}.",
        [
            "All settings, by three seeds: "
            f"{Pairs.by(best, 'train_size', 'SVM-L2', 'SVM-GLN', '{pair} at N = {name}', '; ')}. "
            f"By ten seeds with median thresholds alone {_least_apart(_medians(ten))}."
        ],
        remark,
    )


def _least_apart(values: pd.DataFrame) -> Paired | None:
    """Least error of SVM-L2 minus that of SVM-GLN."""
    return difference(_best(values, ("SVM-L2", "SVM-GLN")), "SVM-L2", "SVM-GLN")


def _by_ten_seeds_too(
    values: pd.DataFrame,
    tables: Tables,
    compare: Callable[[pd.DataFrame], Paired | Pairs | None],
    sign: int = 1,
) -> tuple[Verdict, str, str]:
    """Judge a sign by all N, and by ten seeds at the N that has them: in part if one stands.

    The last word is on a sign that falls where the opposite is not shown, either.
    """
    known = [each for each in map(compare, (values, _of_ten_seeds(values, tables))) if each]
    if not known:
        raise Unmeasured
    first, *others = (each.judged(sign) for each in known)
    verdict = all_of((first, *(Verdict.of(other is Verdict.STANDS) for other in others)))
    single = [pair for each in known for pair in _several(each)]
    shown = any(each.judged(-sign) is Verdict.STANDS for each in single)
    remark = ", nor does the opposite" if verdict is Verdict.FALLS and not shown else ""
    words = [str(known[0]), *(" and ".join(map(str, _several(each))) for each in known[1:])]
    return verdict, "; by ten seeds ".join(words), remark


def _several(found: Paired | Pairs) -> list[Paired]:
    """Return the differences of one comparison."""
    return list(found.values()) if isinstance(found, Pairs) else [found]


def _of_ten_seeds(values: pd.DataFrame, tables: Tables) -> pd.DataFrame:
    """Values of the N that has ten seeds, without rows where there are no more than three."""
    every = pd.concat([values, tables.more_seeds]) if len(tables.more_seeds) else values[:0]
    return every[every["train_size"] == TEN_SEEDS]


def what_seeds_say(values: pd.DataFrame, tables: Tables) -> Judged:
    """Whether four claims on signs have the verdicts of three seeds by ten, too."""
    three, ten = values[values["train_size"] == TEN_SEEDS], needed(_of_ten_seeds(values, tables))
    few, many = _signs(three), _signs(ten)
    same = [few[name].judged(sign) is many[name].judged(sign) for name, sign in SIGNS.items()]
    stand = [
        sum(found[name].judged(sign) is Verdict.STANDS for name, sign in SIGNS.items())
        for found in (many, few)
    ]
    turned = sum(few[name].mean * many[name].mean < 0 for name in SIGNS)
    return Judged(
        Verdict.of(all(same), np.mean(same) > 0.5),
        f"SVM-L2 minus SVM-GLN: {Pairs(dict(list(many.items())[:2]), '{name} {pair}', '; ')}.",
        f"of three seeds, the same N: {few}.",
        [f"Of all seeds: {many}. Of the {len(SIGNS)} means {turned} has another sign."],
        f": {sum(same)} of {len(same)} are the same; {stand[0]} stand by ten seeds, {stand[1]} by "
        "three",
    )


def _signs(values: pd.DataFrame) -> Pairs:
    """SVM-L2 minus SVM-GLN as the claims of `SIGNS` compare them."""
    medians = _medians(_corrected(values, ("SVM-GLN", "SVM-L2")))
    widest = _at(values, WIDE, 2)
    found = (
        difference(_matched(medians, "error"), "SVM-L2", "SVM-GLN"),
        _least_apart(values),
        _caught_up(medians[medians["hyperplanes"] == 1]),
        *(widest.get(threshold) for threshold in THRESHOLDS),
    )
    return needed(_complete(dict(zip(SIGNS, found, strict=True))))


def essential(values: pd.DataFrame, tables: Tables) -> Judged:
    """Share of the gain of depth that SVM-L2 has, too."""
    best = _best(values, ("SVM-L2", "SVM-GLN", "SVM-shallow"))
    known = needed(_known(best, "SVM-L2", "SVM-GLN", "SVM-shallow"))
    gains = {name: known["SVM-shallow"] - known[name] for name in ("SVM-L2", "SVM-GLN")}
    known = known.assign(part=gains["SVM-L2"] / gains["SVM-GLN"])
    part = gains["SVM-L2"].mean() / gains["SVM-GLN"].mean()
    return Judged(
        Verdict.of(part <= 0.5),
        f"Of the error that the best SVM-GLN of two layers saves over the best shallow SVM, the "
        f"best SVM-L2 saves {share(known, 'part')}.",
        f"SVM-GLN saves {difference(known, 'SVM-shallow', 'SVM-GLN')}.",
        remark=otherwise(Verdict.of(part <= 0.9), "nine tenths"),
    )


def few_units(values: pd.DataFrame, tables: Tables) -> Judged:
    """Whether SVM-L2 falls behind where units are few, and by how much."""
    theirs, kept, _ = needed(_kept_of_gap(values, "error", NARROWEST))

    def caught(values: pd.DataFrame) -> Paired | None:
        rows = _medians(_corrected(values, ("SVM-GLN", "SVM-L2")))
        return _caught_up(rows[rows["hyperplanes"] == 1])

    sign, found, _ = _by_ten_seeds_too(values, tables, caught, -1)
    ten = caught(_of_ten_seeds(values, tables))
    large, less = (Verdict.of(kept.mean / theirs.mean >= part) for part in (0.5, 0.1))
    by_ten = f", “in particular” by ten seeds {ten.judged(-1).value}" if ten else ""
    return Judged(
        all_of((large, sign)),
        f"Error at H = {NARROWEST}, SVM-L2 minus SVM-GLN: released {theirs}; exact {kept}; at H = "
        f"{WIDE} minus that: {found}.",
        f"four contexts a unit, at H = {NARROWEST}: {_at(values, NARROWEST, 2)}.",
        remark=f": “much worse” {large.value}{by_ten}" + otherwise(all_of((less, sign)), "a tenth"),
    )


def _caught_up(rows: pd.DataFrame) -> Paired | None:
    """SVM-L2 minus SVM-GLN at the largest width minus that at the least."""
    table = _known(_matched(rows, "error"), "SVM-L2", "SVM-GLN")
    table = table.assign(behind=table["SVM-L2"] - table["SVM-GLN"])
    keys = ("threshold", "train_size", "hyperplanes", "seed")
    return difference(side_by_side(table, "behind", "units", keys), WIDE, NARROWEST)


def _at(values: pd.DataFrame, width: int, hyperplanes: int, released: bool = False) -> Pairs:
    """Error of SVM-L2 minus that of SVM-GLN at one width, by thresholds."""
    models = ("SVM-GLN", "SVM-L2")
    rows = _released(values, models) if released else _corrected(values, models)
    rows = rows[(rows["units"] == width) & (rows["hyperplanes"] == hyperplanes)]
    return _by_threshold(rows, "error", "SVM-L2", "SVM-GLN")


def towards_the_limit(values: pd.DataFrame, tables: Tables) -> Judged:
    """Error of networks near the limit minus that of the released training."""
    models = tables.study().models
    limit = models[models["model"] == "limit-gln"].drop_duplicates(list(GLN_KEYS))
    limit = limit.assign(model="limit", error=limit["validation_error"])
    both = pd.concat([limit, _corrected(values, ("GD-GLN",))])
    found = _by_threshold(both, "error", "limit", "GD-GLN")
    shown = needed(found.get("median"))
    svm = _by_threshold(_corrected(values, ("SVM-GLN", "GD-GLN")), "error", "SVM-GLN", "GD-GLN")
    return Judged(
        shown.judged(-1),
        f"Error, near the limit minus GD-GLN: {found}.",
        f"SVM-GLN, the limit itself, minus GD-GLN, over all settings: {svm}.",
        [f"{len(limit)} settings; networks and limit as in the question of finite time."],
        remark=", at medians",
    )


def without_medians(values: pd.DataFrame, tables: Tables) -> Judged:
    """Error of networks of random thresholds minus that at medians."""

    def compare(values: pd.DataFrame, model: str = "GD-GLN") -> Paired | None:
        keys = ("train_size", "units", "hyperplanes", "seed")
        table = side_by_side(_corrected(values, (model,)), "error", "threshold", keys)
        return difference(table, *THRESHOLDS[::-1])

    verdict, found, remark = _by_ten_seeds_too(values, tables, compare)
    return Judged(
        verdict,
        f"Error of GD-GLN, without medians minus with them: {found}.",
        f"of SVM-GLN {compare(values, 'SVM-GLN')}.",
        remark=remark,
    )


def _both_signs(
    values: pd.DataFrame, tables: Tables, network: tuple[str, str], chosen: str, words: str
) -> Judged:
    """Judge SVM-L2 minus SVM-GLN, and of SVM-GLN and GD-GLN the first minus the second."""

    def matched_cells(values: pd.DataFrame) -> pd.DataFrame:
        rows = _corrected(values, ("SVM-GLN", "SVM-L2", "GD-GLN"))
        return _matched(rows.query(chosen), "error")

    def compare(values: pd.DataFrame) -> Pairs:
        return _minus(matched_cells(values), ("SVM-L2", "SVM-GLN"), network)

    verdict, found, remark = _by_ten_seeds_too(values, tables, compare)
    table = matched_cells(values)
    return Judged(
        verdict,
        f"{words}: {found}.",
        "with two contexts and medians, see the claims on section 4.1.",
        [
            f"{first} minus {second}: {_each_width(table, first, second)}."
            for first, second in (("SVM-L2", "SVM-GLN"), network)
        ],
        remark,
    )


def overtakes(values: pd.DataFrame, tables: Tables) -> Judged:
    """SVM-L2 minus SVM-GLN at the largest width, four contexts a unit."""
    formula = _corrected(values, ("SVM-GLN", "SVM-L2 formula"))
    formula = formula[(formula["units"] == WIDE) & (formula["hyperplanes"] == 2)]
    at_widest = partial(_at, width=WIDE, hyperplanes=2)
    verdict, found, remark = _by_ten_seeds_too(values, tables, at_widest, -1)
    return Judged(
        verdict,
        f"Error at H = {WIDE}, four contexts, SVM-L2 minus SVM-GLN: {found}.",
        "the printed formula with units as groups in the place of SVM-L2: "
        + str(_by_threshold(formula, "error", "SVM-L2 formula", "SVM-GLN"))
        + ".",
        [
            f"In the released values {_at(values, WIDE, 2, released=True)}. With two contexts a "
            f"unit {_at(values, WIDE, 1)}."
        ],
        remark,
    )


def finite_time(values: pd.DataFrame, tables: Tables) -> Judged:
    """Disagreement in finite and in infinite time."""
    frame = needed(
        disagreements(tables).dropna(subset=["infinite"]).drop_duplicates(list(GLN_KEYS))
    )
    kinds = ["train_size", "hyperplanes", "threshold", "units"]
    by_kind = frame.groupby(kinds)[["finite", "infinite"]].mean()
    known = by_kind.dropna()
    less, a_tenth_of = (known["infinite"] < part * known["finite"] for part in (0.5, 0.1))
    rows = "; ".join(
        f"N = {size:,}, {2**k} contexts, {threshold} thresholds, H = {width}: "
        f"{percent(finite)} → {percent(infinite)}"
        for (size, k, threshold, width), finite, infinite in zip(
            known.index, known["finite"], known["infinite"], strict=True
        )
    )
    return Judged(
        Verdict.each(less),
        "Disagreement with SVM-GLN, near the limit minus GD-GLN: "
        f"{Paired.of(frame['infinite'] - frame['finite'], frame['seed'])}; "
        f"{percent(frame['finite'].mean())} becomes {percent(frame['infinite'].mean())}, less than "
        f"half in {int(less.sum())} of {len(known)} kinds of cells ({len(frame)} settings).",
        _l2_at_the_limit(tables, frame),
        [
            f"{rows}.",
            "The norm at margin 1 exceeds its certified optimum by "
            f"{percent(frame['infinite_excess'].mean())} there (the largest: "
            f"{percent(frame['infinite_excess'].max())}). The finite network is the exactly "
            "trained one of the same contexts, without momentum; the other starts from orthogonal "
            "weights of its own, without the readout's bias, in float64. So this says where such "
            "training goes, for these settings, and not that every training does.",
        ],
        remark=", for the settings measured and accelerated descent"
        + otherwise(Verdict.each(a_tenth_of), "a tenth"),
    )


def _l2_at_the_limit(tables: Tables, frame: pd.DataFrame) -> str:
    """Say how far SVM-L2 is from SVM-GLN, near which the networks end, in the same settings."""
    known = _norms_apart(tables).merge(frame[list(GLN_KEYS)].drop_duplicates())
    if known.empty:
        return "the exact SVM-L2 is not measured in these settings."
    return (
        f"the exact SVM-L2 and SVM-GLN, near which these networks end, differ on "
        f"{percent(known['disagreement'].mean())} of the images there ({len(known)} settings)."
    )


def _norms_apart(tables: Tables) -> pd.DataFrame:
    """Disagreements of the exact SVM-L2 and SVM-GLN, a row a setting."""
    pairs, norms = tables.study().pairs, ["svm-gln", "svm-l2"]
    both = pairs[pairs["first"].isin(norms) & pairs["second"].isin(norms)]
    return both.drop_duplicates(list(GLN_KEYS))


def similar(values: pd.DataFrame, tables: Tables) -> Judged:
    """Difference of neighbouring predictors, of SVM-L2 minus that of SVM-GLN."""
    rows = needed(tables.neighbours)
    table = _matched(rows, "neighbours")
    found = Pairs.by(table, "threshold", "svm-l2", "svm-gln")
    return Judged(
        found.judged(),
        f"Difference of neighbouring predictors over their size, SVM-L2 minus SVM-GLN: {found}.",
        f"by width {_each_width(table, 'svm-l2', 'svm-gln')}.",
        [f"Means: {_of_norms(rows, 'neighbours')}. {_cells_measured(rows)}"],
    )


def sparsity(values: pd.DataFrame, tables: Tables) -> Judged:
    """Units that do not matter, of SVM-GLN minus those of SVM-L2, at the largest width."""
    models = tables.study().models
    rows = tables.neighbours
    wide = needed(rows[rows["units"] == WIDE] if len(rows) else rows)
    found = Pairs.by(_matched(wide, "unused"), "threshold", "svm-gln", "svm-l2")
    folded = models[(models["units"] == WIDE) & (models["model"] == "svm-gln-published")]
    folded = folded.drop_duplicates(list(GLN_KEYS))
    folded = folded.assign(unused=1 - folded["active_units"] / folded["units"])
    return Judged(
        found.judged(),
        f"Units that do not matter at H = {WIDE}, SVM-GLN minus SVM-L2: {found}.",
        "groups that are no units, those of the released code: "
        + " and ".join(
            f"{share(part, 'unused')} ({name} thresholds)"
            for name, part in folded.groupby("threshold")
        )
        + "; so it is a sum of norms that leaves groups out, whatever they are.",
        [f"Means: {_of_norms(wide, 'unused')}. {_cells_measured(rows)}"],
    )


def hardly(values: pd.DataFrame, tables: Tables) -> Judged:
    """How much the norm changes the predictors, and how little the least error."""
    found, rows = needed(_least_apart(values)), needed(tables.neighbours)
    means = rows.groupby("model")["neighbours"].mean()
    factor = means["svm-l2"] / means["svm-gln"]
    ten = needed(_least_apart(_of_ten_seeds(values, tables)))
    small = all(max(-each.low, each.high) < POINT for each in (found, ten))

    def by(bound: float) -> Verdict:
        return Verdict.of(factor >= bound and small, factor >= bound or small)

    return Judged(
        by(1.5),
        f"Neighbours of SVM-L2 differ {factor:.1f} times as much as those of SVM-GLN; least error, "
        f"SVM-L2 minus SVM-GLN: {found}; by ten seeds {ten}.",
        "the two SVMs of a cell disagree on "
        f"{percent(_norms_apart(tables)['disagreement'].mean())} of the images.",
        [_cells_measured(rows)],
        remark=otherwise(by(2), "a factor of 2"),
    )


def _of_norms(rows: pd.DataFrame, column: str) -> str:
    """Mean of a column of neighbours.py for each norm and kind of thresholds."""
    means = rows.groupby(["threshold", "model"])[column].mean().unstack()
    return ", ".join(
        f"SVM-GLN {percent(row['svm-gln'])}, SVM-L2 {percent(row['svm-l2'])} ({name} thresholds)"
        for name, row in means.iterrows()
    )


def _cells_measured(rows: pd.DataFrame) -> str:
    """Say how many of the cells are measured."""
    return f"{len(rows) // 2} of {len(neighbours.settings(False))} cells are measured."


# --- ReLU networks -------------------------------------------------------------------------


def beyond_glns(values: pd.DataFrame, tables: Tables) -> Judged:
    """ReLU networks against GLNs, and learned contexts against random ones, the best of each."""
    best = _best_relu(values, ("GD-ReLU", "SVM-RC", "SVM-LC"), ("GD-GLN", "SVM-GLN"))
    found = needed(_minus(best, ("GD-GLN", "GD-ReLU"), ("SVM-RC", "SVM-LC")))
    return Judged(
        found.judged(),
        f"Least errors: {found}.",
        "gates that are not learned gain nothing over a GLN: SVM-GLN minus SVM-RC "
        f"{difference(best, 'SVM-GLN', 'SVM-RC')}.",
        [_means(best)],
    )


def random_contexts(values: pd.DataFrame, tables: Tables) -> Judged:
    """Correlation of SVM-RC with the network."""
    every = pd.concat([values, tables.more_seeds])
    rows = _relu(every).dropna(subset=["error", "gd_error"])
    random = rows[rows["model"] == "SVM-RC"]
    strong, stronger = (_beyond(random, bound) for bound in (0.5, 0.7))
    needed(strong)
    others = "; ".join(
        f"{name} {_by_seeds(rows[rows['model'] == name])}" for name in ("SVM-LC", "SVM-HL")
    )
    alive = random[random["gd_error"] < 0.5]
    return Judged(
        Verdict.each(strong),
        f"Correlation within one N: {_by_seeds(random)}.",
        f"{others}.",
        [
            _sure(random, 0.5),
            f"Without networks that err on more than half of the images, which are "
            f"{len(random) - len(alive)} of {len(random)}: {_by_seeds(alive)}.",
            f"Over all cells {_correlation(random)}. By momentum: "
            + "; ".join(
                f"{momentum:g}: {_by_seeds(part)}" for momentum, part in random.groupby("momentum")
            )
            + ".",
        ],
        remark=otherwise(Verdict.each(stronger), "0.7"),
    )


def random_apart(values: pd.DataFrame, tables: Tables) -> Judged:
    """Size of the disagreement of SVM-RC and its network."""
    rows = _relu(values).dropna(subset=["disagreement"])
    parts = dict(list(rows.groupby("model")))
    random = needed(parts.get("SVM-RC"))
    mean = random["disagreement"].mean()
    others = [f"{name} on {share(parts[name], 'disagreement')}" for name in RELU if name in parts]
    return Judged(
        Verdict.of(mean > 0.1),
        f"SVM-RC and GD-ReLU disagree on {share(random, 'disagreement')} of the images.",
        f"of all SVMs: {', '.join(others)}.",
        remark=otherwise(Verdict.of(mean > 0.15), "15 %"),
    )


def learned_apart(values: pd.DataFrame, tables: Tables) -> Judged:
    """Size of the disagreement of SVM-LC and its network, beside the released one."""
    ours, released = _relu(values), _released(values, RELU, momentum=None)
    learned, theirs = (
        needed(rows[rows["model"] == "SVM-LC"].dropna(subset=["disagreement"]))
        for rows in (ours, released)
    )
    mean, was = (rows["disagreement"].mean() for rows in (learned, theirs))
    hidden = ours[ours["model"] == "SVM-HL"].dropna(subset=["disagreement"])
    return Judged(
        Verdict.of(mean >= was / 2),
        f"SVM-LC and GD-ReLU disagree on {share(learned, 'disagreement')} of the images; as "
        f"released on {percent(was)}.",
        f"SVM-HL, on the hidden layer itself, disagrees on {share(hidden, 'disagreement')}.",
        remark=otherwise(Verdict.of(mean > 0.1), "10 %"),
    )


def random_below_chance(values: pd.DataFrame, tables: Tables) -> Judged:
    """Disagreement of SVM-RC and its network, against chance."""
    rows = _relu(values).dropna(subset=["disagreement", "gd_error"])
    rows = rows.assign(chance=chance(rows["gd_error"]))
    random, learned = (rows[rows["model"] == name] for name in ("SVM-RC", "SVM-LC"))
    found = needed(difference(random, "chance", "disagreement"))
    below = found.positive / found.cells
    return Judged(
        Verdict.of(below >= MOST, below > 0.5),
        f"Chance minus the disagreement of SVM-RC and GD-ReLU: {found}.",
        f"the same of SVM-LC: {difference(learned, 'chance', 'disagreement')}.",
        remark=otherwise(Verdict.of(below == 1, below > 0.5), "all cells"),
    )


def consistent(values: pd.DataFrame, tables: Tables) -> Judged:
    """How much nearer to the network learned contexts are than random ones."""
    ours = _relu(values)
    table = matched(ours, "disagreement", RELU_KEYS)
    found = needed(difference(table, "SVM-RC", "SVM-LC"))
    known = table.dropna(subset=["SVM-RC", "SVM-LC"])
    part = known["SVM-LC"].mean() / known["SVM-RC"].mean()
    gates = known.dropna(subset=["SVM-gates"]) if "SVM-gates" in known else known.iloc[:0]
    control = (
        "SVM-gates, a linear SVM on the open gates alone, disagrees on "
        f"{percent(gates['SVM-gates'].mean())} ({len(gates)} cells)."
        if len(gates)
        else "SVM-gates is not measured."
    )
    failed = ours[ours["their_failure"]]
    left = failed.loc[failed["left_out"], "model"].value_counts()
    return Judged(
        Verdict.of(part <= 2 / 3),
        f"Disagreement with GD-ReLU: SVM-RC {percent(known['SVM-RC'].mean())}, SVM-LC "
        f"{percent(known['SVM-LC'].mean())}; difference {found}.",
        control,
        [
            f"The released solver failed on {len(failed)} programs of SVMs of ReLU networks. Of "
            f"these {left.sum()} have no solution: ours separate the samples that remain when some "
            f"are left out ({', '.join(f'{name} {count}' for name, count in left.items())}); "
            f"{int((failed['state'] != 'solved').sum())} have no predictor."
        ],
        remark=otherwise(Verdict.of(part <= 0.5), "a half"),
    )


def learned_against_gln(values: pd.DataFrame, tables: Tables) -> Judged:
    """LC and RC against GLNs, the best of the sizes of figure 3c."""
    best = _best_relu(values, ("SVM-RC", "SVM-LC"), ("SVM-GLN", "SVM-L2"))
    found = needed(_minus(best, ("SVM-GLN", "SVM-LC"), ("SVM-RC", "SVM-GLN")))
    equal = []
    for units in (NARROWEST, WIDEST_GLN):
        at = values[values["units"] == units], values[values["units"] == 2 * units]
        pair = _best_relu(at[1], ("SVM-RC", "SVM-LC"), ("SVM-GLN",), at[0])
        equal.append(
            f"RC and LC of {2 * units} units minus a GLN of {units} "
            f"{difference(pair, 'SVM-RC', 'SVM-GLN')} and "
            f"{difference(pair, 'SVM-LC', 'SVM-GLN')}"
        )
    return Judged(
        found.judged(),
        f"Least errors: {found}.",
        "the exact SVM-L2 in the place of SVM-GLN: L2 minus LC is "
        f"{difference(best, 'SVM-L2', 'SVM-LC')}, RC minus L2 "
        f"{difference(best, 'SVM-RC', 'SVM-L2')}.",
        [
            _means(best),
            f"At equal numbers of parameters: {'; '.join(equal)}.",
        ],
    )


def learned_against_random(values: pd.DataFrame, tables: Tables) -> Judged:
    """LC against RC, width by width."""
    relu = _relu(values)
    table = _known(matched(relu, "error", RELU_KEYS), "SVM-RC", "SVM-LC")
    total = needed(difference(table, "SVM-RC", "SVM-LC"))
    by_point = table.groupby(["train_size", "units", "momentum"])[["SVM-RC", "SVM-LC"]].mean()
    holds = by_point["SVM-RC"] > by_point["SVM-LC"]
    whole = _known(matched(relu[~relu["left_out"]], "error", RELU_KEYS), "SVM-RC", "SVM-LC")
    sure = total.judged() is Verdict.STANDS
    return Judged(
        Verdict.of(sure and holds.all(), sure or holds.mean() >= MOST),
        f"Error, SVM-RC minus SVM-LC: {total}; means over seeds above 0 at "
        f"{int(holds.sum())} of {len(holds)} points of the figure.",
        f"where SVM-LC leaves no sample out, {difference(whole, 'SVM-RC', 'SVM-LC')}. SVM-RC has "
        "one unit more than SVM-LC, always on, as released.",
        [
            f"{_each_width(table, 'SVM-RC', 'SVM-LC')}. By momentum: "
            f"{Pairs.by(table, 'momentum', 'SVM-RC', 'SVM-LC', '{name}: {pair}', '; ')}."
        ],
    )


def distance_with_width(values: pd.DataFrame, tables: Tables) -> Judged:
    """Whether LC falls behind the network and its hidden layer as the width grows."""
    relu = _relu(values)
    kept = matched(relu[~relu["left_out"]], "error", RELU_KEYS)
    found = Pairs(_grown(kept, NARROW), "to {name} {pair}", "; ")
    if len(found) < 2:
        raise Unmeasured
    everything = matched(relu, "error", RELU_KEYS)
    by_size = "; ".join(
        f"{each['GD-ReLU']} at N = {size:,}"
        for size, part in kept.groupby("train_size")
        if "GD-ReLU" in (each := _grown(part, NARROW))
    )
    return Judged(
        found.judged(),
        f"Distance of SVM-LC's error from H = {NARROW} to H = {WIDE}, change: {found}.",
        "with the cells in which SVMs leave samples out, from H = "
        f"{NARROWEST}: {Pairs(_grown(everything, NARROWEST), 'to {name} {pair}', '; ')}.",
        [f"To GD-ReLU: {by_size}. SVM-LC minus GD-ReLU: {_each_width(kept, 'SVM-LC', 'GD-ReLU')}."],
    )


def _grown(table: pd.DataFrame, narrow: int) -> dict[str, Paired]:
    """Error of LC minus that of another model, at the largest width minus at a narrow one."""
    found = {}
    for other in ("GD-ReLU", "SVM-HL"):
        known = _known(table, "SVM-LC", other)
        known = known.assign(behind=known["SVM-LC"] - known[other])
        wide = side_by_side(known, "behind", "units", ("train_size", "seed", "momentum"))
        if (change := difference(wide, WIDE, narrow)) is not None:
            found[other] = change
    return found


def _hidden(
    values: pd.DataFrame, first: str, second: str, sign: int, column: str = "error"
) -> Judged:
    """Sign of one model of ReLU networks minus another, without cells that leave samples out."""
    relu = _relu(values)
    found = needed(difference(matched(relu, column, RELU_KEYS), first, second))
    kept = difference(matched(relu[~relu["left_out"]], column, RELU_KEYS), first, second)
    return Judged(
        found.judged(sign),
        f"{column.capitalize()}, {first} minus {second}: {found}.",
        f"where no SVM leaves samples out, {kept}.",
    )


def hidden_layer(values: pd.DataFrame, tables: Tables) -> Judged:
    """HL against the network: the best of the widths of the figure, and of the same widths."""
    models = ("SVM-HL", "GD-ReLU")
    rows = values[(values["side"] == "corrected") & values["model"].isin(models)]
    drawn = rows[(rows["model"] == "SVM-HL") | (rows["units"] <= WIDE)]
    compared = {
        "as in the figure": difference(_least(drawn), *models),
        "of the same widths": difference(_best_relu(values, models, ()), *models),
    }
    found, cells = needed(_complete(compared)), _hidden(values, *models, -1)
    theirs = matched(_released(values, models, momentum=None), "error", RELU_KEYS)
    more = ""
    if "units" in theirs:
        more = f"Released, H up to {WIDE}: {difference(theirs[theirs['units'] <= WIDE], *models)}."
    return Judged(
        found.judged(-1),
        f"Least error, SVM-HL minus GD-ReLU: {found}.",
        f"cell by cell, of the same widths. {cells.result} And {cells.control}",
        [more],
    )


def without_momentum(values: pd.DataFrame, tables: Tables) -> Judged:
    """Signs of the claims on SVM-RC, SVM-LC and SVM-HL without momentum."""
    rows = of_momentum(_relu(values), 0.0)
    pairs = ("SVM-RC", "SVM-LC"), ("SVM-LC", "SVM-HL")
    found = {
        f"{column}, {name}": pair
        for column in ("error", "disagreement")
        for name, pair in _minus(matched(rows, column, RELU_KEYS), *pairs).items()
    }
    signs = Pairs(needed(found), "{name} {pair}", "; ")
    return Judged(
        signs.judged(), f"Without momentum: {signs}.", "with both, see the claims on 5.2."
    )


def momentum(values: pd.DataFrame, tables: Tables) -> Judged:
    """Consistency and error with and without momentum."""
    relu = _relu(values)
    found = needed(_without_momentum(relu))
    return Judged(
        found.judged(),
        f"Without momentum minus with it: {found}.",
        f"from H = {WIDEST_GLN} on, {_without_momentum(relu[relu['units'] >= WIDEST_GLN])}.",
    )


def _without_momentum(relu: pd.DataFrame) -> Pairs:
    """Error and disagreements without momentum minus with it."""
    compared = {
        "error of GD-ReLU": ("GD-ReLU", "error"),
        "disagreement of SVM-LC": ("SVM-LC", "disagreement"),
        "of SVM-HL": ("SVM-HL", "disagreement"),
    }
    keys = ("train_size", "units", "seed")
    found = {
        words: difference(
            side_by_side(relu[relu["model"] == model], column, "momentum", keys), 0.0, 0.9
        )
        for words, (model, column) in compared.items()
    }
    return _complete(found)


def sparsely(values: pd.DataFrame, tables: Tables) -> Judged:
    """Units that SVM-LC uses: of the network itself the theory says nothing."""
    models = tables.study().models
    wide = models[(models["model"] == "svm-lc") & (models["units"] == WIDE)]
    if wide.empty or "active_units" not in wide:
        raise Unmeasured
    return Judged(
        Verdict.UNTESTED,
        "Contexts of a ReLU network move while it trains; the theorem is of fixed ones.",
        f"SVM-LC, of contexts that stay, uses {wide['active_units'].mean():.0f} of {WIDE} units.",
    )


# --- helpers -------------------------------------------------------------------------------


def _minus(table: pd.DataFrame, *pairs: tuple[str, str]) -> Pairs:
    """First model minus second, of each of some pairs; none where one is missing."""
    return _complete(
        {f"{one} minus {other}": difference(table, one, other) for one, other in pairs}
    )


def _complete(pairs: Mapping[str, Paired | None]) -> Pairs:
    """Join differences by their names; none where one is missing."""
    known = {name: each for name, each in pairs.items() if each is not None}
    return Pairs(known if len(known) == len(pairs) else {}, "{name} {pair}", "; ")


def _medians(rows: pd.DataFrame) -> pd.DataFrame:
    """Keep median thresholds, the only ones that the main text shows."""
    return rows[rows["threshold"] == "median"]


def _best(values: pd.DataFrame, models: Sequence[str]) -> pd.DataFrame:
    """Least corrected error over all settings of each N and seed, a column a model."""
    ours = values[(values["side"] == "corrected") & values["model"].isin(models)]
    return _least(ours[ours["units"] <= WIDE])


def _best_relu(
    values: pd.DataFrame,
    models: Sequence[str],
    glns: Sequence[str],
    of_glns: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Least error of ReLU models, and of GLNs of at most as many parameters, as in figure 3c."""
    gln = _medians(values if of_glns is None else of_glns)
    gln = gln[(gln["side"] == "corrected") & gln["model"].isin(glns)]
    gln = gln[(gln["hyperplanes"] == 1) & (gln["units"] <= WIDEST_GLN)]
    relu = _relu(values)
    return _least(pd.concat([gln, relu[relu["model"].isin(models)]]))


def _means(best: pd.DataFrame) -> str:
    """Say the least errors of all models at each N."""
    means = best.groupby("train_size").mean().drop(columns="seed")
    texts = [
        f"{', '.join(f'{name} {percent(mean)}' for name, mean in row.items())} at N = {size:,}"
        for size, row in means.iterrows()
    ]
    return f"Least error of each seed, mean: {'; '.join(texts)}."


def _least(rows: pd.DataFrame) -> pd.DataFrame:
    known = rows.dropna(subset=["error"])
    least = known.loc[known.groupby(["model", *BEST_KEYS])["error"].idxmin()]
    return matched(least, "error", BEST_KEYS)


def _corrected(values: pd.DataFrame, models: Sequence[str]) -> pd.DataFrame:
    """Our values of the corrected side, without momentum."""
    rows = values[(values["side"] == "corrected") & values["model"].isin(models)]
    return of_momentum(rows, 0.0)


def _folded(values: pd.DataFrame, models: Sequence[str]) -> pd.DataFrame:
    """Our values with the groups of the released code, without momentum."""
    rows = values[(values["side"] == "published") & (values["source"] == "ours")]
    return of_momentum(rows[rows["model"].isin(models)], 0.0)


def _released(
    values: pd.DataFrame, models: Sequence[str], momentum: float | None = 0.0
) -> pd.DataFrame:
    """Released values, of a momentum or of all."""
    rows = values[(values["source"] == "paper") & values["model"].isin(models)]
    return rows if momentum is None else of_momentum(rows, momentum)


def _relu(values: pd.DataFrame) -> pd.DataFrame:
    """Our values of ReLU networks and their SVMs, both momenta, of the widths of the figures."""
    rows = values[(values["side"] == "corrected") & values["model"].isin(RELU)]
    return rows[rows["units"] <= WIDE]


def _matched(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    return matched(rows, column, GLN_KEYS)


def _known(table: pd.DataFrame, *models: str) -> pd.DataFrame:
    """Rows in which all of these models are known; none where one has no column."""
    if not set(models) <= set(table.columns):
        return table.iloc[:0].reindex(columns=list(dict.fromkeys([*table.columns, *models])))
    return table.dropna(subset=list(models))


def _by_threshold(rows: pd.DataFrame, column: str, first: str, second: str) -> Pairs:
    """First minus second, for each kind of thresholds."""
    return Pairs.by(_matched(rows, column), "threshold", first, second)


def _each_width(table: pd.DataFrame, first: str, second: str) -> Pairs:
    """First minus second, width by width."""
    return Pairs.by(table, "units", first, second, "{pair} at H = {name}", "; ")


def _with_network(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows with the network's error, and the distance of the two."""
    known = rows.dropna(subset=["error", "gd_error"])
    return known.assign(distance=(known["error"] - known["gd_error"]).abs())


def _correlation(rows: pd.DataFrame) -> str:
    return f"{rows['error'].corr(rows['gd_error']):.2f}" if len(rows) > 2 else "unknown"


def _listed(column: pd.Series[float]) -> str:
    texts = [f"{value:,g}" for value in sorted(set(column))]
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)


def percent(share: float) -> str:
    """Write a share: "16.5 %", and "0.02 %" where one digit would leave nothing."""
    if not np.isfinite(share):
        return "unknown"
    digits = ".1f" if share == 0 or abs(share) >= 5e-4 else ".1g"
    return f"{100 * share:{digits}}\u00a0%"


def share(rows: pd.DataFrame, column: str) -> str:
    """Write the mean of a share with its interval over the seeds: "6.7 % [6.1 % to 7.4 %]"."""
    found = Paired.of(rows[column], rows["seed"])
    interval = "no interval"
    if np.isfinite(found.low):
        interval = f"{percent(found.low)} to {percent(found.high)}"
    return f"{percent(found.mean)} [{interval}]"


# Of each claim of the study, by its name.
JUDGES: dict[str, Callable[[pd.DataFrame, Tables], Judged]] = {
    "norm": better_norm,
    "nearer": nearer,
    "errors": errors_agree,
    "direction": direction,
    "l2": much_worse,
    "weak": weakly_correlated,
    "tenth": a_tenth,
    "chance": below_chance,
    "much-nearer": much_nearer,
    "layers": two_layers,
    "further": further,
    "few": few_units,
    "essential": essential,
    "nearing": towards_the_limit,
    "similar": similar,
    "sparse": sparsity,
    "worse": without_medians,
    "still-nearer": partial(nearer, threshold="random"),
    "overtakes": overtakes,
    "four": partial(
        _both_signs,
        network=("GD-GLN", "SVM-GLN"),
        chosen=f"threshold == 'median' and hyperplanes == 2 and units < {WIDE}",
        words=f"Errors at four contexts, H below {WIDE}",
    ),
    "alike": partial(
        _both_signs,
        network=("SVM-GLN", "GD-GLN"),
        chosen="threshold == 'random'",
        words="Errors without medians",
    ),
    "relu-gln": beyond_glns,
    "rc": random_contexts,
    "rc-tenth": random_apart,
    "rc-chance": random_below_chance,
    "learned": consistent,
    "hl-lc": lambda values, _: _hidden(values, "SVM-LC", "SVM-HL", 1),
    "hl": hidden_layer,
    "hl-nearer": lambda values, _: _hidden(values, "SVM-LC", "SVM-HL", 1, "disagreement"),
    "lc-gln": learned_against_gln,
    "lc-rc": learned_against_random,
    "lc-apart": learned_apart,
    "lc-width": distance_with_width,
    "sparsely": sparsely,
    "momentum": momentum,
    "unaffected": without_momentum,
    "hardly": hardly,
    "seeds": what_seeds_say,
    "groups": groups,
    "time": finite_time,
}


def judge(values: pd.DataFrame, tables: Tables) -> dict[str, Judged]:
    """Judge every claim."""
    return {name: judge_one(name, values, tables) for name in JUDGES}


def judge_one(name: str, values: pd.DataFrame, tables: Tables) -> Judged:
    """Judge a claim; where nothing is measured it is open."""
    try:
        return JUDGES[name](values, tables)
    except Unmeasured:
        return Judged()
