"""Which conclusions of the paper stand: each computed from the tables, with the cells it rests on.

How a claim is judged, and why so, is said before its numbers. Signs are judged by `paired.Paired`:
the mean of paired differences over matched cells, with an interval clustered by seed; sizes by
themselves, in percentage points. Median and random thresholds are kept apart. Each claim has a
control; those of agreement and prediction have the exact SVM-L2 beside SVM-GLN: what both have is
no merit of the norm. A claim is open as long as the tables hold no cell that bears on it; no number
of a finding is typed by hand.

Source: Lippl, Abbott, Chung (2022) [L], sections 4 and 5 and figures 2 to 5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import numpy as np
import pandas as pd

from benchmarks.harness import Verdict
from benchmarks.lippl2022 import l2_optimality
from benchmarks.lippl2022.figures import SHALLOW, chance, disagreements, task_name
from benchmarks.lippl2022.paired import (
    Paired,
    Pairs,
    all_of,
    difference,
    matched,
    side_by_side,
    signed,
)
from benchmarks.lippl2022.published import other_draws
from benchmarks.lippl2022.values import (
    CELL_COLUMNS,
    NETWORK,
    RELU,
    Tables,
    of_momentum,
    our_values,
)
from benchmarks.page import Judged

GLN_KEYS = ("train_size", "units", "hyperplanes", "threshold", "seed")
RELU_KEYS = ("train_size", "units", "seed", "momentum")
THRESHOLDS = ("median", "random")
POINT = 0.01  # a percentage point
SHORT = 8  # of the key of a cell, to tell them apart by eye
# Widths at which random contexts have as many parameters as a GLN, and the others.
NARROW, WIDE = (10, 20, 50), 100


def judged(
    verdict: Verdict,
    result: str,
    control: str,
    evidence: Iterable[str] = (),
    cells: Iterable[str] = (),
) -> Judged:
    """Judge a claim, and name the cells that its numbers come from."""
    keys = list(dict.fromkeys(cell for cell in cells if cell))
    first = ", ".join(f"`{key[:SHORT]}`" for key in keys[:3])
    rests = f"Rests on {len(keys)} cells, the first of them {first}." if keys else ""
    texts = tuple(text for text in (*evidence, rests) if text)
    return Judged(verdict=verdict, result=result, control=control, evidence=texts)


# --- gated linear networks -----------------------------------------------------------------


def better_norm(values: pd.DataFrame, tables: Tables) -> Judged:
    """Sign of SVM-L2 minus SVM-GLN."""
    rows = _corrected(values, ("SVM-GLN", "SVM-L2"))
    found = _by_threshold(rows, "error", "SVM-L2", "SVM-GLN")
    if not found:
        return Judged()
    by_width = {
        name: _each_width(_matched(rows[rows["threshold"] == name], "error"), "SVM-L2", "SVM-GLN")
        for name in THRESHOLDS
    }
    folded = pd.concat([_folded(values, ("SVM-GLN",)), rows[rows["model"] == "SVM-L2"]])
    return judged(
        found.judged(),
        f"The error of the exact SVM-L2 minus that of SVM-GLN is {found}.",
        "a sum of norms over groups that are no units, those of the released code, in the place of "
        f"SVM-GLN: {_by_threshold(folded, 'error', 'SVM-L2', 'SVM-GLN')}. Where "
        "this is as large, it is not the units as groups that make the difference.",
        [
            "Size: that is "
            + " and ".join(
                f"{percent(each.mean / _mean_error(rows, 'SVM-GLN', name)).replace('-', '−')} of "
                f"SVM-GLN's error with {name} thresholds"
                for name, each in found.items()
            )
            + ".",
            f"By width: {by_width['median']} (medians); {by_width['random']} (random thresholds).",
            _other_splits(tables, "error", "SVM-L2", "SVM-GLN"),
            _other_tasks(tables),
        ],
        rows["cell"],
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
    tasks = rows[["dataset", "positive", "negative"]].astype(object)
    tasks = tasks.where(tasks.notna(), None)
    rows = rows.assign(task=[task_name(*task) for task in tasks.itertuples(index=False)])
    table = matched(rows, "validation_error", ["task", "train_size", "units", "seed"])
    texts = []
    for task, part in table.groupby("task"):
        found = difference(part, "svm-l2", "svm-gln")
        if found is not None:
            texts.append(f"{task} {found}")
    return f"On other tasks (medians): {'; '.join(texts)}." if texts else ""


def much_worse(values: pd.DataFrame, tables: Tables) -> Judged:
    """Size of SVM-L2 minus SVM-GLN, released and corrected, and its causes one by one."""
    released = _matched(_released(values, ("SVM-GLN", "SVM-L2")), "error")
    rows = _corrected(values, ("SVM-GLN", "SVM-L2"))
    ours = _matched(rows, "error")
    was, now = _known(released, "SVM-L2", "SVM-GLN"), _known(ours, "SVM-L2", "SVM-GLN")
    same = now.merge(was[list(GLN_KEYS)], on=list(GLN_KEYS))
    theirs, kept = difference(was, "SVM-L2", "SVM-GLN"), difference(same, "SVM-L2", "SVM-GLN")
    if theirs is None or kept is None:
        return Judged()
    by_size = "; ".join(
        f"{signed((part['SVM-L2'] - part['SVM-GLN']).mean())} points at N = {size:,}"
        for size, part in was.groupby("train_size")
    )
    largest = (was["SVM-L2"] - was["SVM-GLN"]).max()
    return judged(
        Verdict.of(kept.mean >= 0.5 * theirs.mean),
        f"In the released values SVM-L2 errs more than SVM-GLN by {theirs}; with the exact norm of "
        f"beta and the right groups, on the same settings, by {kept}.",
        _formula(values, released),
        [
            f"Released: {by_size}; the largest of the {len(was)} differences is "
            f"{signed(largest)} points.",
            _causes(values, tables),
            _optimality(tables),
            "The released agreements of SVM-L2 at median thresholds have one more cause, the "
            "thresholds that a checkpoint lacks; that is judged with the conclusion on chance.",
        ],
        rows["cell"],
    )


def _formula(values: pd.DataFrame, released: pd.DataFrame) -> str:
    """Say what the printed formula alone does, with the right fold, beside the released gap."""
    rows = _corrected(values, ("SVM-L2", "SVM-L2 formula"))
    found = _by_threshold(rows, "error", "SVM-L2 formula", "SVM-L2")
    if not found:
        return "the printed formula, folded by units, is not measured."
    sizes = rows.loc[rows["model"] == "SVM-L2 formula", "train_size"]
    there = released[released["train_size"].isin(sizes)]
    texts = []
    for threshold, each in found.items():
        gap = difference(there[there["threshold"] == threshold], "SVM-L2", "SVM-GLN")
        texts.append(f"{each} with {threshold} thresholds, where the released gap is {gap}")
    return (
        "the formula as printed but folded by units, which is a norm, errs more than the exact one "
        f"by {'; '.join(texts)} (N = {_listed(sizes)}). Where the first is the smaller, the fold, "
        "and the solution that it leaves open, make the rest."
    )


# The steps from the norm of the theory to the released values of SVM-L2, in words.
STEPS = {
    "svm-l2": "the exact norm of beta",
    "svm-l2-formula": "eq. (23)/(25) as printed, folded by units",
    "svm-l2-published": "the same formula with the fold of the released code, its solution with "
    "the smallest free part",
    "svm-l2-osqp": "the same program by OSQP, as released",
}


def _causes(values: pd.DataFrame, tables: Tables) -> str:
    """Errors at N = 500, two contexts and medians, along `STEPS`, and the released ones."""
    models = tables.study().models
    chosen = (
        (models["train_size"] == 500)
        & (models["hyperplanes"] == 1)
        & (models["threshold"] == "median")
    )
    rows = models[chosen & models["model"].isin([*STEPS, "svm-gln"])]
    known = {str(name): part for name, part in rows.groupby("model")}
    released = _released(values, ("SVM-L2",))
    released = released[
        (released["train_size"] == 500)
        & (released["hyperplanes"] == 1)
        & (released["threshold"] == "median")
    ]
    texts = [
        f"{words} {_row(known[name].groupby('units')['validation_error'].mean())}"
        for name, words in STEPS.items()
        if name in known
    ]
    if not texts:
        return ""
    theirs = released.groupby("units")["error"].mean()
    if len(theirs):
        texts.append(f"released {_row(theirs)}")
    return (
        "The causes one by one, errors at N = 500, two contexts, medians, mean over the seeds: "
        + "; ".join(texts)
        + f".{_largest_step(rows)}"
    )


def _largest_step(rows: pd.DataFrame) -> str:
    """Name the step along `STEPS` that changes the error most, over the settings of all steps."""
    table = _matched(rows, "validation_error")
    if not set(STEPS) <= set(table):
        return ""
    means = table.dropna(subset=list(STEPS))[list(STEPS)].mean()
    steps = means.diff().dropna()
    if steps.empty:
        return ""
    first = list(STEPS)[list(STEPS).index(str(steps.idxmax())) - 1]
    return (
        f" Of these steps the largest, {signed(steps.max())} points over the settings that have "
        f"all, is that from “{STEPS[first]}” to “{STEPS[str(steps.idxmax())]}”."
    )


def _row(errors: pd.Series[float]) -> str:
    return ", ".join(f"{percent(error)} (H = {width})" for width, error in errors.dropna().items())


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
    found = difference(table, "right", "folded")
    if found is None:
        return Judged()
    moved = (table["right"] - table["folded"]).dropna()
    small = abs(found.mean) < 0.5 * POINT
    return judged(
        Verdict.of(small and moved.abs().max() < POINT, small),
        f"The right groups change the error of SVM-GLN by {found}, from {signed(moved.min())} to "
        f"{signed(moved.max())} points in single settings.",
        "SVM-L2, which knows no groups, errs more than SVM-GLN with the right groups by "
        f"{difference(table, 'SVM-L2', 'right')}.",
        [
            f"{percent(table['right'].mean())} instead of {percent(table['folded'].mean())}; "
            f"{_by_threshold(both, 'error', 'right', 'folded')}."
        ],
        right["cell"],
    )


def errors_agree(values: pd.DataFrame, tables: Tables) -> Judged:
    """Error of SVM-GLN against that of the trained network."""
    ours = _with_network(_corrected(values, ("SVM-GLN", "SVM-L2")))
    theirs = _with_network(_released(values, ("SVM-GLN",)))
    own = ours[ours["model"] == "SVM-GLN"]
    if own.empty or theirs.empty:
        return Judged()
    was, now = theirs["distance"].mean(), own["distance"].mean()
    of_l2 = ours.loc[ours["model"] == "SVM-L2", "distance"]
    beside = f"those of the exact SVM-L2 and GD-GLN {points(of_l2.mean())}; " if len(of_l2) else ""
    control = _by_threshold(ours, "distance", "SVM-L2", "SVM-GLN")
    both = pd.concat([own.assign(model="ours"), theirs.assign(model="released")])
    nearer_by = _by_threshold(both, "distance", "ours", "released")
    correlations = "; ".join(
        f"{model} {_correlation(rows)} (within N = 500 {_correlation(_of_size(rows, 500))})"
        for model, rows in ours.groupby("model")
    )
    return judged(
        Verdict.of(now <= was + 0.5 * POINT, now <= 2 * was),
        f"The errors of SVM-GLN and the exactly trained GD-GLN lie {points(now)} apart on average, "
        f"{beside}in the released values those of SVM-GLN lie {points(was)} apart.",
        f"the distance of the exact SVM-L2 minus that of SVM-GLN is {control}. So "
        "most of what SVM-GLN predicts, SVM-L2 predicts, too.",
        [
            f"{len(own)} cells, N = {_listed(own['train_size'])}, no momentum; {len(theirs)} "
            f"released ones. Our distance minus the released one: {nearer_by}.",
            _other_splits(tables, "error", "SVM-GLN", "GD-GLN"),
            f"Correlation with the network's error over the cells: {correlations}; released "
            f"SVM-GLN {_correlation(theirs)}.",
        ],
        ours["cell"],
    )


def weakly_correlated(values: pd.DataFrame, tables: Tables) -> Judged:
    """Correlation of SVM-L2 with the network."""
    ours = _with_network(_corrected(values, ("SVM-GLN", "SVM-L2")))
    table = {
        (str(model), size): _of_size(rows, size)["error"].corr(_of_size(rows, size)["gd_error"])
        for model, rows in ours.groupby("model")
        for size in sorted(set(rows["train_size"]))
        if len(_of_size(rows, size)) > 2
    }
    of_l2 = {size: value for (model, size), value in table.items() if model == "SVM-L2"}
    if not of_l2:
        return Judged()
    overall = {model: _correlation(rows) for model, rows in ours.groupby("model")}
    weak = [value < 0.5 for value in of_l2.values()]

    def within(chosen: str) -> str:
        return "; ".join(
            f"{value:.2f} at N = {size:,} {_by_seed(ours, model, size)}"
            for (model, size), value in table.items()
            if model == chosen
        )

    return judged(
        Verdict.of(all(weak), any(weak)),
        f"Within one N the error of the exact SVM-L2 correlates with that of GD-GLN with "
        f"{within('SVM-L2')}; over all cells with {overall['SVM-L2']}.",
        f"SVM-GLN has {within('SVM-GLN')}; over all cells {overall.get('SVM-GLN', 'unknown')}.",
        [
            "In brackets the interval over the seeds, by Fisher's transformation. In the released "
            "values SVM-L2 has "
            + _correlation(_with_network(_released(values, ("SVM-L2",))))
            + " over all cells."
        ],
        ours["cell"],
    )


def _by_seed(rows: pd.DataFrame, model: str, size: int) -> str:
    """Interval of the correlation with the network over the seeds, within one N."""
    part = _of_size(rows[rows["model"] == model], size)
    z = {
        seed: np.arctanh(group["error"].corr(group["gd_error"]))
        for seed, group in part.groupby("seed")
        if len(group) > 2
    }
    known = pd.Series(z, dtype=float).replace([np.inf, -np.inf], np.nan).dropna()
    if len(known) < 2:
        return "[no interval]"
    found = Paired.of(known, known.index.to_series())
    return f"[{np.tanh(found.low):.2f} to {np.tanh(found.high):.2f}]"


def nearer(values: pd.DataFrame, tables: Tables) -> Judged:
    """Disagreement of SVM-L2 minus that of SVM-GLN with the network."""
    rows = _corrected(values, ("SVM-GLN", "SVM-L2"))
    formula = _corrected(values, ("SVM-GLN", "SVM-L2 formula"))
    found = _by_threshold(rows, "disagreement", "SVM-L2", "SVM-GLN")
    if not found:
        return Judged()
    means = rows.groupby(["threshold", "model"])["disagreement"].mean()
    return judged(
        found.judged(),
        f"The disagreement of the exact SVM-L2 with GD-GLN minus that of SVM-GLN is {found}.",
        "a third norm, the printed formula folded by units, in the place of SVM-L2: "
        + str(_by_threshold(formula, "disagreement", "SVM-L2 formula", "SVM-GLN"))
        + ".",
        [
            "Mean disagreements: "
            + "; ".join(
                f"{model} {percent(mean)} ({threshold})"
                for threshold, model, mean in means.reset_index().itertuples(index=False)
            )
            + f". {_draws(rows)}"
            + _exact_alone(rows),
            _other_splits(tables, "disagreement", "SVM-L2", "SVM-GLN"),
        ],
        rows["cell"],
    )


def below_chance(values: pd.DataFrame, tables: Tables) -> Judged:
    """Disagreement of SVM-GLN and trained network, against chance."""
    both = _corrected(values, ("SVM-GLN", "SVM-L2")).dropna(subset=["disagreement", "gd_error"])
    ours = both[both["model"] == "SVM-GLN"]
    theirs = _released(values, ("SVM-GLN",)).dropna(subset=["disagreement", "gd_error"])
    if ours.empty:
        return Judged()
    below = ours["disagreement"] < chance(ours["gd_error"])
    holds = [bool(below.all()), bool(ours["disagreement"].mean() > 0.1)]
    control = both[both["model"] == "SVM-L2"]
    texts = []
    for threshold, rows in ours.groupby("threshold"):
        released = theirs[theirs["threshold"] == threshold]
        beside = control[control["threshold"] == threshold]
        parts = [f"chance {percent(chance(rows['gd_error']).mean())}"]
        if len(beside):
            parts.append(f"exact SVM-L2 {percent(beside['disagreement'].mean())}")
        if len(released):
            parts.append(f"released {percent(released['disagreement'].mean())}")
        mean = percent(rows["disagreement"].mean())
        texts.append(f"{mean} with {threshold} thresholds ({', '.join(parts)})")
    return judged(
        (Verdict.FALLS, Verdict.IN_PART, Verdict.STANDS)[sum(holds)],
        f"SVM-GLN and GD-GLN disagree on {percent(ours['disagreement'].mean())} of the images, "
        f"below chance in {int(below.sum())} of {len(ours)} cells; the exact SVM-L2 and GD-GLN on "
        f"{percent(control['disagreement'].mean())}.",
        f"chance minus the disagreement of the exact SVM-L2 is {_under(control)}; "
        f"of SVM-GLN, {_under(ours)}.",
        [
            f"{' and '.join(texts)}. {_draws(ours)}",
            _moved(values, ours, theirs),
        ],
        both["cell"],
    )


def _under(rows: pd.DataFrame) -> Pairs:
    """Chance minus disagreement, for each kind of thresholds."""
    under = rows.assign(chance=chance(rows["gd_error"]))
    return Pairs.by(under, "threshold", "chance", "disagreement")


def _moved(values: pd.DataFrame, ours: pd.DataFrame, theirs: pd.DataFrame) -> str:
    """Say where the released disagreements at medians come from, with the evidence."""
    rows = values[(values["side"] == "published") & (values["source"] == "ours")]
    rows = of_momentum(rows[rows["model"] == "SVM-GLN"], 0.0)
    moved = rows[(rows["threshold"] == "median") & ~rows["other_draws"]]
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
        "At medians the released disagreements are with the network in other contexts: a "
        "checkpoint holds no thresholds, and the released script that fits the SVMs reloads the "
        "network with those of the seed. So moved, the exact network disagrees with SVM-GLN of "
        f"the released groups on {percent(table['moved'].mean())} over {len(table)} settings, "
        f"where {percent(table['released'].mean())} are released: "
        f"{int((images.round() == 0).sum())} of them to the image, "
        f"{int((images.round() <= 3).sum())} within 3, all within {int(images.round().max())} of "
        f"12,000. Where it was trained, on "
        f"{percent(table['own'].mean())}."
    )


def direction(values: pd.DataFrame, tables: Tables) -> Judged:
    """Sign of SVM-GLN minus GD-GLN."""
    rows = _corrected(values, ("SVM-GLN", "SVM-L2", "GD-GLN"))
    found = _by_threshold(rows, "error", "SVM-GLN", "GD-GLN")
    if len(found) < 2:
        return Judged()
    l2 = _by_threshold(rows, "error", "SVM-L2", "GD-GLN")
    beside = _by_threshold(_folded(values, ("SVM-GLN", "GD-GLN")), "error", "SVM-GLN", "GD-GLN")
    return judged(
        all_of([found["median"].judged(-1), found["random"].judged(1)]),
        f"The error of SVM-GLN minus that of GD-GLN is {found}.",
        f"the error of the exact SVM-L2 minus that of GD-GLN is {l2}.",
        [
            f"With the released groups it is {beside}: what differs between the two "
            "at random thresholds comes from the fold.",
            _other_splits(tables, "error", "SVM-GLN", "GD-GLN"),
        ],
        rows["cell"],
    )


def overtakes(values: pd.DataFrame, tables: Tables) -> Judged:
    """SVM-L2 minus SVM-GLN at the largest width."""
    rows = _corrected(values, ("SVM-GLN", "SVM-L2"))
    found = _by_threshold(rows[rows["units"] == WIDE], "error", "SVM-L2", "SVM-GLN")
    if not found:
        return Judged()
    formula = _corrected(values, ("SVM-GLN", "SVM-L2 formula"))
    formula = formula[formula["units"] == WIDE]
    caught = _caught_up(rows)
    return judged(
        found.judged(-1),
        f"At H = {WIDE} the error of the exact SVM-L2 minus that of SVM-GLN is {found}.",
        "the printed formula folded by units in the place of SVM-L2: "
        + str(_by_threshold(formula, "error", "SVM-L2 formula", "SVM-GLN"))
        + ".",
        [
            f"That difference at H = {WIDE} minus that at H = {NARROW[0]} is "
            f"{caught}: below 0, SVM-L2 catches up."
            if caught
            else ""
        ],
        rows.loc[rows["units"] == WIDE, "cell"],
    )


def _caught_up(rows: pd.DataFrame) -> Pairs:
    """SVM-L2 minus SVM-GLN at the largest width minus that at the least, by thresholds."""
    table = _known(_matched(rows, "error"), "SVM-L2", "SVM-GLN")
    table = table.assign(behind=table["SVM-L2"] - table["SVM-GLN"])
    keys = ("threshold", "train_size", "hyperplanes", "seed")
    wide = side_by_side(table, "behind", "units", keys)
    return Pairs.by(wide, "threshold", WIDE, NARROW[0])


def two_layers(values: pd.DataFrame, tables: Tables) -> Judged:
    """Two layers against one, the best of all settings."""
    pairs = (("GD-GLN", "GD-shallow"), ("SVM-GLN", "SVM-shallow"))
    return _layers(values, pairs, ("SVM-L2", "SVM-shallow"))


def l2_of_two_layers(values: pd.DataFrame, tables: Tables) -> Judged:
    """Whether SVM-L2 of two layers beats shallow SVMs."""
    return _layers(values, (("SVM-L2", "SVM-shallow"),), ("SVM-GLN", "SVM-shallow"))


def _layers(
    values: pd.DataFrame, pairs: Sequence[tuple[str, str]], control: tuple[str, str]
) -> Judged:
    names = [name for pair in pairs for name in pair]
    ours = values[
        (values["side"] == "corrected") & values["model"].isin([*names, *control, *SHALLOW])
    ]
    ours = ours.dropna(subset=["error"])
    least = ours.groupby(["train_size", "model", "seed"])["error"].min()
    by_seed = least.unstack("model").reset_index()
    gains = {pair: difference(by_seed, pair[1], pair[0]) for pair in (*pairs, control)}
    table = least.groupby(level=[0, 1]).mean().unstack().reindex(columns=names).dropna()
    if table.empty:
        return Judged()
    holds = [bool(row[deep] < row[flat]) for _, row in table.iterrows() for deep, flat in pairs]
    texts = [
        f"{deep} {percent(row[deep])}, {flat} {percent(row[flat])} at N = {size:,}"
        for size, row in table.iterrows()
        for deep, flat in pairs
    ]
    used = ours[ours["train_size"].isin(table.index) & ours["model"].isin(names)]
    best = used.loc[used.groupby(["train_size", "model", "seed"])["error"].idxmin(), "cell"]
    return judged(
        Verdict.of(all(holds), any(holds)),
        f"The best two-layer model errs less than the best shallow one in {sum(holds)} of "
        f"{len(holds)} comparisons ({' and '.join(deep for deep, _ in pairs)}; N = "
        f"{_listed(table.index.to_series())}); shallow minus two layers: "
        + "; ".join(f"{pair[0]} {gains[pair]}" for pair in pairs)
        + ".",
        f"{control[0]} gains {gains[control]}.",
        [f"Least error of each seed, mean: {'; '.join(texts)}."],
        best,
    )


def finite_time(values: pd.DataFrame, tables: Tables) -> Judged:
    """Disagreement in finite and in infinite time."""
    frame = disagreements(tables).dropna(subset=["infinite"])
    if frame.empty:
        return Judged()
    kinds = ["train_size", "hyperplanes", "threshold", "units"]
    by_kind = frame.groupby(kinds)[["finite", "infinite"]].mean()
    known = by_kind.dropna()
    less = known["infinite"] < 0.5 * known["finite"]
    rows = "; ".join(
        f"N = {size:,}, {2**k} contexts, {threshold} thresholds, H = {width}: "
        f"{percent(finite)} → {percent(infinite)}"
        for (size, k, threshold, width), finite, infinite in zip(
            known.index, known["finite"], known["infinite"], strict=True
        )
    )
    return judged(
        Verdict.FALLS if not less.any() else Verdict.IN_PART,
        f"In {int(less.sum())} of {len(known)} kinds of cells measured ({len(frame)} cells), "
        "accelerated training towards the limit leaves less than half of the disagreement with "
        f"SVM-GLN: {percent(frame['finite'].mean())} becomes "
        f"{percent(frame['infinite'].mean())}, a difference of "
        f"{Paired.of(frame['infinite'] - frame['finite'], frame['seed'])}.",
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
        frame["cell"],
    )


def _l2_at_the_limit(tables: Tables, frame: pd.DataFrame) -> str:
    """Say how far SVM-L2 is from SVM-GLN, near which the networks end, in the same settings."""
    pairs = tables.study().pairs
    keys = list(GLN_KEYS)
    norms = {"svm-gln", "svm-l2"}
    both = pairs[pairs["first"].isin(norms) & pairs["second"].isin(norms)]
    known = both.drop_duplicates(keys).merge(frame[keys].drop_duplicates(), on=keys)
    if known.empty:
        return "the exact SVM-L2 is not measured in these settings."
    return (
        f"the exact SVM-L2 and SVM-GLN, near which these networks end, differ on "
        f"{percent(known['disagreement'].mean())} of the images there ({len(known)} settings)."
    )


def sparsity(values: pd.DataFrame, tables: Tables) -> Judged:
    """Units that the SVMs use."""
    models = tables.study().models
    if "active_units" not in models:
        return Judged()
    wide = models[(models["units"] == WIDE) & models["active_units"].notna()]
    wide = wide.assign(unused=1 - wide["active_units"] / wide["units"])
    rows = wide[wide["model"] == "svm-gln"].drop_duplicates(list(GLN_KEYS))
    if rows.empty:
        return Judged()
    folded = wide[wide["model"] == "svm-gln-published"].drop_duplicates(list(GLN_KEYS))
    by_threshold = rows.groupby("threshold")["unused"].mean()
    detail = rows.groupby(["threshold", "train_size", "hyperplanes"])["active_units"].mean()
    relu = models[(models["model"] == "svm-lc") & (models["units"] == WIDE)]
    beside = (
        f" SVM-LC uses {relu['active_units'].mean():.0f} of {WIDE} on average." if len(relu) else ""
    )
    return judged(
        Verdict.of((by_threshold >= 0.2).all(), (by_threshold >= 0.2).any()),
        f"At H = {WIDE} SVM-GLN leaves "
        + " and ".join(
            f"{percent(value)} of the units unused with {name} thresholds"
            for name, value in by_threshold.items()
        )
        + ".",
        f"groups that are no units, those of the released code: {_unused(folded)}; so it is a sum "
        "of norms that leaves groups out, whatever they are.",
        [
            f"With intervals: {_unused(rows)}.",
            "Units in use, a hundredth of the largest norm or more: "
            + "; ".join(
                f"{value:.0f} ({threshold}, N = {size:,}, {2**k} contexts)"
                for threshold, size, k, value in detail.reset_index().itertuples(index=False)
            )
            + f".{beside}",
        ],
        rows["cell"],
    )


def _unused(rows: pd.DataFrame) -> str:
    """Share of the unused groups by thresholds, with its interval over the seeds."""
    texts = []
    for name, part in rows.groupby("threshold"):
        found = Paired.of(part["unused"], part["seed"])
        texts.append(
            f"{percent(found.mean)} [{percent(found.low)} to {percent(found.high)}] with {name} "
            "thresholds"
        )
    return " and ".join(texts) or "not measured"


# --- ReLU networks -------------------------------------------------------------------------


def relu_order(values: pd.DataFrame, tables: Tables) -> Judged:
    """Random contexts, learned ones, and the hidden layer against the trained ReLU network."""
    ours = _relu(values)
    wide = matched(ours, "disagreement", RELU_KEYS)
    order = ["SVM-RC", "SVM-LC", "SVM-HL"]
    if not set(order) <= set(wide):
        return Judged()
    known = wide.dropna(subset=order)
    falls = (known["SVM-RC"] > known["SVM-LC"]) & (known["SVM-LC"] > known["SVM-HL"])
    errors = ours.groupby("model")["error"].mean()
    rescued = ours[ours["their_failure"] & (ours["state"] == "solved")]
    unsolved = ours[ours["state"] != "solved"]
    gates = known["SVM-gates"].dropna() if "SVM-gates" in known else known["SVM-RC"].iloc[:0]
    control = (
        "SVM-gates, a linear SVM on the open gates alone, disagrees on "
        f"{percent(gates.mean())} ({len(gates)} cells; SVM-RC on "
        f"{percent(known.loc[gates.index, 'SVM-RC'].mean())} there)."
        if len(gates)
        else "SVM-gates is not measured."
    )
    steps = [difference(known, one, other) for one, other in pairwise(order)]
    return judged(
        Verdict.of(falls.mean() >= 0.9, falls.mean() > 0.5),
        f"The disagreement falls from SVM-RC ({percent(known['SVM-RC'].mean())}) over SVM-LC "
        f"({percent(known['SVM-LC'].mean())}) to SVM-HL ({percent(known['SVM-HL'].mean())}) in "
        f"{int(falls.sum())} of {len(known)} cells.",
        control,
        [
            f"The disagreement of RC minus that of LC is {steps[0]}, of LC minus that of HL "
            f"{steps[1]}.",
            "Mean error: "
            + ", ".join(f"{m} {percent(errors[m])}" for m in RELU if m in errors)
            + f". N = {_listed(known['train_size'])}, momentum {_listed(known['momentum'])}.",
            f"{len(rescued)} programs that the released solver failed on are solved here, "
            f"{int(rescued['left_out'].sum())} of them with training samples left out; "
            f"{len(unsolved)} have no predictor.",
        ],
        ours["cell"],
    )


def learned_against_gln(values: pd.DataFrame, tables: Tables) -> Judged:
    """LC and RC against a GLN of the same size."""
    gln = _corrected(values, ("SVM-GLN", "SVM-L2"))
    gln = gln[(gln["hyperplanes"] == 1) & (gln["threshold"] == "median")]
    relu = of_momentum(_relu(values), 0.0)
    keys = ("train_size", "units", "seed")
    table = matched(pd.concat([gln, relu]), "error", keys)
    narrow = table[table["units"].isin(NARROW)] if len(table) else table
    lc, rc = (difference(narrow, name, "SVM-GLN") for name in ("SVM-LC", "SVM-RC"))
    if lc is None or rc is None:
        return Judged()
    at_wide = difference(table[table["units"] == WIDE], "SVM-RC", "SVM-GLN")
    rc_not_better = rc.mean >= 0
    shown = ["SVM-RC", "SVM-GLN", "SVM-LC"]
    means = narrow.groupby("train_size")[shown].mean()
    least = narrow.groupby(["train_size", "seed"])[shown].min().groupby(level=0).mean()
    return judged(
        Verdict.of(lc.judged(-1) is Verdict.STANDS and rc_not_better, lc.mean < 0 or rc_not_better),
        f"With H up to 50 the error of SVM-LC minus that of SVM-GLN is {lc}; that of SVM-RC minus "
        f"that of SVM-GLN is {rc}.",
        "the exact SVM-L2 in the place of SVM-GLN: LC minus L2 is "
        f"{difference(narrow, 'SVM-LC', 'SVM-L2')}, RC minus L2 "
        f"{difference(narrow, 'SVM-RC', 'SVM-L2')}.",
        [
            *(
                f"{words}: "
                + "; ".join(
                    f"RC {percent(row['SVM-RC'])}, GLN {percent(row['SVM-GLN'])}, LC "
                    f"{percent(row['SVM-LC'])} at N = {size:,}"
                    for size, row in table.iterrows()
                )
                + "."
                for words, table in (("Means", means), ("Least error of each seed, mean", least))
            ),
            ""
            if at_wide is None
            else f"At H = {WIDE}, of which no RC is released, SVM-RC minus SVM-GLN is {at_wide}.",
        ],
        relu["cell"],
    )


def learned_against_random(values: pd.DataFrame, tables: Tables) -> Judged:
    """LC against RC, width by width."""
    relu = _relu(values)
    table = matched(relu, "error", RELU_KEYS)
    apart = {
        float(str(m)): difference(part, "SVM-RC", "SVM-LC") for m, part in table.groupby("momentum")
    }
    found = _each_width(table, "SVM-RC", "SVM-LC")
    total = difference(table, "SVM-RC", "SVM-LC")
    if not found or total is None:
        return Judged()
    return judged(
        found.judged(),
        f"The error of SVM-RC minus that of SVM-LC is {total}.",
        "networks with and without momentum learn other contexts: "
        + "; ".join(f"momentum {m:g} {each}" for m, each in apart.items())
        + ". SVM-RC has one unit more than SVM-LC, always on, as released.",
        [f"{found}."],
        relu["cell"],
    )


def distance_with_width(values: pd.DataFrame, tables: Tables) -> Judged:
    """Whether LC falls behind the network as the width grows."""
    relu = _relu(values)
    table = _alive(matched(relu, "error", RELU_KEYS))
    found = _grown(table, "SVM-LC")
    if found is None:
        return Judged()
    by_width = _each_width(table, "SVM-LC", "GD-ReLU")
    by_size = {int(str(n)): _grown(part, "SVM-LC") for n, part in table.groupby("train_size")}
    return judged(
        found.judged(),
        f"From H = {NARROW[0]} to H = {WIDE} the difference of the errors of SVM-LC and GD-ReLU "
        f"changes by {found}; "
        + ", ".join(
            f"{signed(each.mean)} at N = {size:,}" for size, each in by_size.items() if each
        )
        + ".",
        f"the same of SVM-HL, on the hidden layer: {_grown(table, 'SVM-HL') or 'not measured'}; of "
        f"SVM-RC: {_grown(table, 'SVM-RC') or 'not measured'}.",
        [
            f"SVM-LC minus GD-ReLU, {by_width}.",
        ],
        relu["cell"],
    )


def _grown(table: pd.DataFrame, model: str) -> Paired | None:
    """Error of a model minus the network's, at the largest width minus at the least."""
    if not {model, "GD-ReLU"} <= set(table):
        return None
    table = table.assign(behind=table[model] - table["GD-ReLU"])
    wide = side_by_side(table, "behind", "units", ("train_size", "seed", "momentum"))
    return difference(wide, WIDE, NARROW[0])


def hidden_layer(values: pd.DataFrame, tables: Tables) -> Judged:
    """HL against the network, of the same widths."""
    relu = _relu(values)
    ours = _alive(matched(relu, "error", RELU_KEYS))
    found = difference(ours, "SVM-HL", "GD-ReLU")
    if found is None:
        return Judged()
    released = _released(values, ("SVM-HL", "GD-ReLU"), momentum=None)
    table = _alive(matched(released, "error", RELU_KEYS))
    theirs = difference(table[table["units"] <= WIDE], "SVM-HL", "GD-ReLU") if len(table) else None
    best = relu.dropna(subset=["error"]).groupby(["train_size", "model", "seed"])["error"].min()
    means = best.groupby(level=[0, 1]).mean().unstack()
    return judged(
        found.judged(-1),
        f"At the same width the error of SVM-HL minus that of GD-ReLU is {found}.",
        f"the error of SVM-LC minus that of GD-ReLU is {difference(ours, 'SVM-LC', 'GD-ReLU')}.",
        [
            "" if theirs is None else f"In the released values with H up to {WIDE} it is {theirs}.",
            "Least error of each seed with H up to 100, mean: "
            + "; ".join(
                f"HL {percent(row['SVM-HL'])}, GD {percent(row['GD-ReLU'])} at N = {size:,}"
                for size, row in means.iterrows()
            )
            + ".",
        ],
        relu["cell"],
    )


def momentum(values: pd.DataFrame, tables: Tables) -> Judged:
    """Consistency and error with and without momentum."""
    relu = _relu(values)
    found = _without_momentum(relu)
    if len(found) < 3:
        return Judged()
    wide = _without_momentum(relu[relu["units"] >= NARROW[-1]])
    return judged(
        found.judged(),
        f"Without momentum minus with it, {found}.",
        f"from H = {NARROW[-1]} on, {wide}.",
        ["Narrow networks in which momentum kills units are among the cells of the verdict."],
        relu["cell"],
    )


def _without_momentum(relu: pd.DataFrame) -> Pairs:
    """Error and disagreements without momentum minus with it."""
    compared = {
        "the error of GD-ReLU": ("GD-ReLU", "error"),
        "the disagreement of SVM-LC": ("SVM-LC", "disagreement"),
        "the disagreement of SVM-HL": ("SVM-HL", "disagreement"),
    }
    keys = ("train_size", "units", "seed")
    found = {
        words: difference(
            side_by_side(relu[relu["model"] == model], column, "momentum", keys), 0.0, 0.9
        )
        for words, (model, column) in compared.items()
    }
    known = {words: each for words, each in found.items() if each is not None}
    return Pairs(known, "{name} is {pair}", "; ")


# --- helpers -------------------------------------------------------------------------------


def _corrected(values: pd.DataFrame, models: Sequence[str]) -> pd.DataFrame:
    """Our values of the corrected side, without momentum."""
    rows = values[(values["side"] == "corrected") & values["model"].isin(models)]
    return of_momentum(rows, 0.0)


def _folded(values: pd.DataFrame, models: Sequence[str]) -> pd.DataFrame:
    """Our values with the groups of the released code, without momentum."""
    rows = values[(values["side"] == "published") & (values["source"] == "ours")]
    return of_momentum(rows[rows["model"].isin(models)], 0.0)


def _mean_error(rows: pd.DataFrame, model: str, threshold: str) -> float:
    chosen = rows[(rows["model"] == model) & (rows["threshold"] == threshold)]
    return float(chosen["error"].mean())


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


def _alive(table: pd.DataFrame) -> pd.DataFrame:
    """Leave out networks that are worse than a coin: momentum can kill all of their units."""
    return table[table["GD-ReLU"] < 0.5] if "GD-ReLU" in table else table


def _matched(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    return matched(rows, column, GLN_KEYS)


def _known(table: pd.DataFrame, *models: str) -> pd.DataFrame:
    """Rows in which all of these models are known; none where one has no column."""
    if not set(models) <= set(table.columns):
        return table.iloc[:0].reindex(columns=[*GLN_KEYS, *models])
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


def _of_size(rows: pd.DataFrame, size: int) -> pd.DataFrame:
    return rows[rows["train_size"] == size]


def _correlation(rows: pd.DataFrame) -> str:
    return f"{rows['error'].corr(rows['gd_error']):.2f}" if len(rows) > 2 else "unknown"


def _draws(rows: pd.DataFrame) -> str:
    """Say how many disagreements are not with the exactly trained network."""
    known = rows[rows["disagreement"].notna()]
    other = int(known["other_draws"].sum())
    if not other:
        return f"All {len(known)} are with the exactly trained network."
    return (
        f"Of {len(known)} disagreements {other} are with networks of the same protocol whose "
        "random draws are others than the released ones."
    )


def _exact_alone(rows: pd.DataFrame) -> str:
    """Return the paired difference over exactly trained networks, where there are others, too."""
    exact = rows[~rows["other_draws"]]
    if len(exact) == len(rows):
        return ""
    found = _by_threshold(exact, "disagreement", "SVM-L2", "SVM-GLN")
    return f" With the exactly trained ones alone, SVM-L2 minus SVM-GLN is {found}."


def network_draws(values: pd.DataFrame, tables: Tables) -> str:
    """Say which of our errors and disagreements are of, or with, exactly trained networks."""
    ours = values[(values["side"] == "corrected") & (values["source"] == "ours")]
    trained = ours[ours["model"].isin(list(NETWORK.values())) & ours["error"].notna()]
    exact = ~trained["cell"].isin(other_draws(tables.cells))
    if len(tables.exact):
        keys = ["model", *CELL_COLUMNS]
        thresholds = tables.exact["median_init"].map({True: "median", False: "random"})
        table = tables.exact.rename(columns={"hidden_units": "units"})
        table = table.assign(threshold=thresholds.fillna(""))
        known = pd.MultiIndex.from_frame(table[keys])
        exact |= pd.MultiIndex.from_frame(trained[keys]).isin(known)
    texts = [
        f"{int(exact[part.index].sum())} of {len(part)} with momentum {momentum:g}"
        for momentum, part in trained.groupby("momentum")
    ]
    disagreements = ours[ours["disagreement"].notna()]
    others = [
        f"{int(part['other_draws'].sum())} of {len(part)} of SVMs with {network}"
        for network, part in disagreements.groupby(disagreements["model"].map(NETWORK))
    ]
    return (
        f"Errors of exact networks: {' and '.join(texts) or 'none'}. Disagreements with networks "
        "of the same protocol whose random draws are others than the released ones: "
        f"{', '.join(others) or 'none'}."
    )


def _listed(column: pd.Series[float]) -> str:
    texts = [f"{value:,g}" for value in sorted(set(column))]
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)


def percent(share: float) -> str:
    """Write a share: "16.5 %", and "0.02 %" where one digit would leave nothing."""
    if not np.isfinite(share):
        return "unknown"
    digits = ".1f" if share == 0 or abs(share) >= 5e-4 else ".1g"
    return f"{100 * share:{digits}}\u00a0%"


def points(share: float) -> str:
    """Write a difference of shares: "0.8 points"."""
    return f"{100 * share:.1f}\u00a0points"


# Of each claim of the study, by its name.
JUDGES: dict[str, Callable[[pd.DataFrame, Tables], Judged]] = {
    "norm": better_norm,
    "l2": much_worse,
    "groups": groups,
    "errors": errors_agree,
    "weak": weakly_correlated,
    "nearer": nearer,
    "chance": below_chance,
    "direction": direction,
    "overtakes": overtakes,
    "layers": two_layers,
    "layers-l2": l2_of_two_layers,
    "time": finite_time,
    "sparse": sparsity,
    "relu": relu_order,
    "lc-gln": learned_against_gln,
    "lc-rc": learned_against_random,
    "lc-width": distance_with_width,
    "hl": hidden_layer,
    "momentum": momentum,
}
