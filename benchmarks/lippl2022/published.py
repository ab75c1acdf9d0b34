r"""Point by point: our values by the published operators and protocol beside the published ones.

The published file is in long form, with the columns model, train_size, hidden_units, hyperplanes,
seed, median_init, momentum, metric (train_accuracy, val_accuracy, agreement_with_GD) and value;
an empty value is a cell on which their solver failed.

verdict          meaning
===============  ============================================================================
to the digit     an SVM with fixed gates: within `DIGIT`, about one of 12,000 images
within 0.001     the same: within `CLOSE`
differs          the same: not even that; ``reason`` says why, where we know
within spread    what rests on gradient descent, whose random batches and initial weights are
                 not known: |ours - theirs| <= 2 sqrt(2) s, s the standard deviation over seeds.
                 If theirs and ours were draws of one distribution, one in twenty would not be
beyond spread    the same: not
their failure    their solver failed; ours is certified
no solution      their solver failed, and with our trained network nothing separates all training
                 samples. Ours, where there is one, is of those that are left
not computed     we have no such cell (yet)
===============  ============================================================================

s is pooled over the thresholds, momenta and sources (theirs, ours) of a model, N, H, k and metric,
each with at least two seeds, without networks whose units died in training. The published
agreements of SVM-GLN, SVM-L2 and SVM-shallow are with networks trained without momentum; at median
thresholds, with gd-gln-redrawn (see as_published.py).

Source: Lippl, Abbott, Chung (2022), their published results.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.harness import Experiment, Options, Run, Verdict, markdown_table, option
from implicit_bias.certificate import Status
from implicit_bias.datasets.files import DataError

# Names the published values, where no option does.
VARIABLE = "LIPPL2022_CSV"

# Our models and the published ones that they repeat; the first that a cell has is compared.
NAMES = {
    "gd-gln": "GD-GLN",
    "svm-gln-published": "SVM-GLN",
    "svm-l2-osqp": "SVM-L2",
    "svm-l2-published": "SVM-L2",
    "gd-shallow": "GD-shallow",
    "svm-shallow": "SVM-shallow",
    "gd-relu": "GD-ReLU",
    "svm-rc": "SVM-RC",
    "svm-lc": "SVM-LC",
    "svm-hl": "SVM-HL",
    "svm-gates": "SVM-gates",
}
# Networks that models are compared with; the first that a cell has.
NETWORKS = ("gd-gln-redrawn", "gd-gln", "gd-shallow", "gd-relu")
NOT_MOVED = ("gd-gln", "gd-shallow")
# Their accuracies depend on no training.
FIXED = ("SVM-GLN", "SVM-L2", "SVM-shallow", "SVM-RC")
# Momentum of the networks that the other SVMs are compared with.
COMPARED_MOMENTUM = 0.0
CELL = ["model", "train_size", "units", "hyperplanes", "seed", "threshold"]
KEY = [*CELL, "momentum", "metric"]
METRICS = ("train_accuracy", "val_accuracy", "agreement_with_GD")

DIGIT, CLOSE = 1e-4, 1e-3
# Standard deviations of the difference of two draws.
SPREADS = 2.0

# Why a value is not the published one.
EARLY = "their solver stopped early; ours is the certified solution"
REDRAWN = "theirs is with the network in the contexts of its random thresholds, ours not"
SILENT = "units of our network died in training: it predicts 0 on most inputs, which is an error"
LEFT_OUT = "ours leaves out samples that nothing separates from the rest, which are errors here"
NO_SOLUTION = "no solution"
VERDICTS = (
    "to the digit",
    "within 0.001",
    "within spread",
    "differs",
    "beyond spread",
    "their failure",
    NO_SOLUTION,
    "not computed",
)
NOT_THE_SAME = ("differs", "beyond spread")


@dataclass(frozen=True, kw_only=True)
class PublishedOptions(Options):
    """Where the published values are."""

    published: Path | None = option(None, f"CSV of the published values (default: ${VARIABLE})")


def published_values(file: Path | None) -> pd.DataFrame:
    """Read the published values, by default those that the environment names.

    Raises
    ------
    DataError
        There are none.
    """
    file = file or Path(os.environ.get(VARIABLE, ""))
    if not file.is_file():
        raise DataError(f"name the CSV of the published values: --published, or ${VARIABLE}")
    return pd.read_csv(file)


def _measure(run: Run[PublishedOptions]) -> Iterator[pd.DataFrame]:
    values = published_values(run.options.published)
    models, pairs = (
        pd.read_parquet(run.file.with_name(f"{name}.parquet")) for name in ("models", "pairs")
    )
    yield compared(theirs(values), ours(models, pairs))


def _verdict(table: pd.DataFrame) -> Verdict:
    differing = table[table["verdict"].isin(NOT_THE_SAME)]
    return Verdict.of(differing.empty, bool((differing["reason"] != "").all()))


def _counts(table: pd.DataFrame) -> pd.DataFrame:
    """Count the verdicts on each model and metric, in words."""
    counts = table.pivot_table(
        index=["model", "metric"], columns="verdict", values="seed", aggfunc="size", fill_value=0
    )
    counts = counts[[verdict for verdict in VERDICTS if verdict in counts]].astype(str)
    largest = table["difference"].abs().groupby([table["model"], table["metric"]]).max()
    known = ["" if np.isnan(largest[key]) else f"{largest[key]:.4f}" for key in counts.index]
    return counts.assign(**{"largest difference": known}).reset_index()


def _differing(table: pd.DataFrame) -> str:
    """List the cells that are neither equal nor explained."""
    lines = []
    differing = table[table["verdict"].isin(NOT_THE_SAME)]
    for (model, reason), rows in differing.groupby(["model", "reason"]):
        many = "value" if len(rows) == 1 else "values"
        lines.append(f"- {model}, {len(rows)} {many}: {reason or 'not explained'}")
        if not reason:
            lines += [f"  - {_describe(row)}" for row in rows.to_dict("records")]
    return "\n".join(lines) or "Nothing."


def theirs(frame: pd.DataFrame) -> pd.DataFrame:
    """Lay out the published values: one row a `KEY`, with ``theirs``.

    The momentum is nan where a value depends on none. Of SVM-RC the accuracies of the rows with
    momentum are taken: at N = 500 those without have the values of seed 1 at every seed.
    """
    frame = frame.rename(columns={"hidden_units": "units", "value": "theirs"})
    median = frame["median_init"].map({True: "median", False: "random"})
    agreement = frame["metric"] == "agreement_with_GD"
    momentum = frame["momentum"].mask(frame["momentum"].isna() & agreement, COMPARED_MOMENTUM)
    free = frame["model"].isin(FIXED) & ~agreement
    order = frame["momentum"].sort_values(ascending=False, kind="stable").index
    frame = frame.assign(
        threshold=median.fillna("median"),  # ReLU networks have none; ours have the default
        momentum=momentum.mask(free),
    )[[*KEY, "theirs"]]
    return frame.loc[order].drop_duplicates(KEY).sort_index()


def ours(models: pd.DataFrame, pairs: pd.DataFrame) -> pd.DataFrame:
    """Lay out the values of the study: one row a `KEY`, with ``ours`` and where it is from."""
    models = models[
        (models["dataset"] == "mnist")
        & (models["protocol"] == "lippl2022")
        & models["positive"].isna()
        & (models["split_seed"] == 1)
        & models["model"].isin(list(NAMES))
    ]
    origin = {"model": "our_model", "grid": "grid", "cell": "cell", "gap": "gap"}
    kept = [*CELL[1:], "momentum", "dropped", "status", *origin]
    wide = models[[*kept, "train_error", "validation_error"]].rename(columns=origin)
    wide = wide.merge(_agreement(pairs), on=["grid", "cell", "our_model"], how="left")
    wide["model"] = wide["our_model"].map(NAMES)
    wide["train_accuracy"] = 1.0 - wide["train_error"]
    wide["val_accuracy"] = 1.0 - wide["validation_error"]
    facts = ["our_model", "network", "dropped", "gap", "status", "grid", "cell"]
    long = wide.melt(
        [*CELL, "momentum", *facts], list(METRICS), var_name="metric", value_name="ours"
    )
    long = long[long["ours"].notna() | _proven_inseparable(long)]
    free = long["model"].isin(FIXED) & (long["metric"] != "agreement_with_GD")
    long["momentum"] = long["momentum"].mask(free)
    order = long.assign(
        by_model=long["our_model"].map({name: i for i, name in enumerate(NAMES)}),
        by_network=long["network"].map({name: i for i, name in enumerate(NETWORKS)}),
    ).sort_values(["by_model", "by_network"], kind="stable")
    return long.loc[order.index].drop_duplicates(KEY).reset_index(drop=True)


def _agreement(pairs: pd.DataFrame) -> pd.DataFrame:
    """Agreement of each model with the network of its cell."""
    both = [
        pairs[pairs[one].isin(NETWORKS)].rename(columns={one: "network", other: "our_model"})
        for one, other in (("first", "second"), ("second", "first"))
    ]
    frame = pd.concat(both)
    frame["agreement_with_GD"] = 1.0 - frame["disagreement"]
    order = np.argsort(frame["network"].map(NETWORKS.index), kind="stable")
    frame = frame.iloc[order].drop_duplicates(["grid", "cell", "our_model"])
    return frame[["grid", "cell", "our_model", "network", "agreement_with_GD"]]


def compared(published: pd.DataFrame, study: pd.DataFrame) -> pd.DataFrame:
    """Join both, and judge each published value: see the module's head."""
    table = published.merge(study, on=KEY, how="left")
    table["difference"] = table["ours"] - table["theirs"]
    group = ["model", "train_size", "units", "hyperplanes", "metric"]
    table = table.merge(_spread(published, study, group), on=group, how="left")
    distance = table["difference"].abs()
    trained = ~table["model"].isin(FIXED) | (table["metric"] == "agreement_with_GD")
    verdicts = [
        (
            table["theirs"].isna() & ((table["dropped"] > 0) | _proven_inseparable(table)),
            NO_SOLUTION,
        ),
        (table["ours"].isna(), "not computed"),
        (table["theirs"].isna(), "their failure"),
        (trained & (distance <= SPREADS * np.sqrt(2) * table["spread"]), "within spread"),
        (trained, "beyond spread"),
        (distance <= DIGIT, "to the digit"),
        (distance <= CLOSE, "within 0.001"),
    ]
    table["verdict"] = np.select(
        [mask.to_numpy() for mask, _ in verdicts], [name for _, name in verdicts], "differs"
    )
    return table.assign(reason=_reasons(table).where(table["verdict"].isin(NOT_THE_SAME), ""))


def _proven_inseparable(frame: pd.DataFrame) -> pd.Series[bool]:
    """Whether our solver proved that nothing separates the training samples."""
    return frame["status"] == Status.NOT_SEPARABLE.label


def _silent(frame: pd.DataFrame) -> pd.Series[bool]:
    """Whether our value is worse than a coin's, because a ReLU network predicts 0."""
    relu = (frame["our_model"] == "gd-relu") | (frame["network"] == "gd-relu")
    return relu & (frame["ours"] < 0.5)


def _reasons(table: pd.DataFrame) -> pd.Series[str]:
    """Say what would explain a difference, where we know of something."""
    agreement = table["metric"] == "agreement_with_GD"
    reasons = [
        (table["our_model"] == "svm-l2-published", EARLY),
        (agreement & (table["threshold"] == "median") & table["network"].isin(NOT_MOVED), REDRAWN),
        (_silent(table), SILENT),
        ((table["dropped"] > 0) & (table["metric"] == "train_accuracy"), LEFT_OUT),
    ]
    masks = [mask.to_numpy() for mask, _ in reasons]
    return pd.Series(np.select(masks, [text for _, text in reasons], ""), table.index)


def _spread(published: pd.DataFrame, study: pd.DataFrame, group: list[str]) -> pd.DataFrame:
    """Pooled standard deviation over seeds of each group."""
    values = pd.concat(
        [
            published.rename(columns={"theirs": "value"}).assign(source="theirs"),
            study[~_silent(study)].rename(columns={"ours": "value"}).assign(source="ours"),
        ]
    ).dropna(subset="value")
    cell = [*group, "threshold", "momentum", "source"]
    values["momentum"] = values["momentum"].fillna(-1.0)
    over_seeds = values.groupby(cell)["value"]
    values["square"] = (values["value"] - over_seeds.transform("mean")) ** 2
    values["seeds"] = over_seeds.transform("size")
    several = values[values["seeds"] > 1]
    freedom = (1.0 - 1.0 / several["seeds"]).groupby([several[name] for name in group]).sum()
    variance = several.groupby(group)["square"].sum() / freedom
    return (variance**0.5).rename("spread").reset_index()


def summary(table: pd.DataFrame) -> str:
    """Write the counts of each verdict, and what differs."""
    return (
        f"# The published values, point by point\n\n{markdown_table(_counts(table))}\n\n"
        f"## What differs\n\n{_differing(table)}\n"
    )


def _describe(row: Mapping[Hashable, Any]) -> str:
    cell = ", ".join(f"{name} {row[name]}" for name in KEY[1:] if pd.notna(row[name]))
    return f"{cell}: theirs {row['theirs']:.6f}, ours {row['ours']:.6f} (cell {row['cell']})"


EXPERIMENT = Experiment(
    claim="Our values, by the published operators and protocol, are the published ones.",
    how="The verdicts are those of the head of `benchmarks/lippl2022/published.py`.",
    measure=_measure,
    found=lambda table: f"What differs of {len(table)} values:\n\n{_differing(table)}",
    rule="It stands if no value differs, and in part if those that do are explained.",
    verdict=_verdict,
    tabulate=_counts,
    options=PublishedOptions,
)
