r"""Point by point: our values by the released operators and protocol beside the released ones.

The released file is in long form, with the columns model, train_size, hidden_units, hyperplanes,
seed, median_init, momentum, metric (train_accuracy, val_accuracy, agreement_with_GD; of networks
val_accuracy and last_batch_loss) and value; an empty value is a cell on which their solver failed.
The networks are trained with the released draws, so every value has one that it should equal.

verdict          meaning
===============  ============================================================================
to the digit     within `DIGIT`, about one of 12,000 images
within 0.001     within `CLOSE`
differs          not even that; ``reason`` says why, where we know
other draws      of, or with, a network that is not (yet) trained with the released draws
their failure    their solver failed; ours is certified
no solution      their solver failed, and with our trained network nothing separates all
                 training samples. Ours, where there is one, is of those that are left
not computed     we have no such cell (yet)
===============  ============================================================================

Accuracies of networks are those of the table of exact_training.py where it has them, and so are
the agreements; the rest is from the grids. The released agreements of SVM-GLN, SVM-L2 and
SVM-shallow are with networks trained without momentum; at median thresholds, with gd-gln-redrawn
(see as_published.py).

Source: Lippl, Abbott, Chung (2022), their released results.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks import catalogue
from benchmarks.harness import Experiment, Frames, Options, Run, Verdict, option, read
from benchmarks.lippl2022.grids import MODELS as GRIDS
from benchmarks.lippl2022.grids import exported
from implicit_bias.bounds.certificate import Status
from implicit_bias.datasets.files import DataError

# The tables that have our values, beside those of the grids.
BESIDE = ("exact_networks", "exact_agreements", "learned_contexts")
# Names the file of the released values, where no option does.
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
# At median thresholds the published agreements are not with these.
NOT_MOVED = ("gd-gln", "gd-shallow")
# Networks of the protocol are trained with the released draws in all cells that finished later.
EXACT_SINCE = "2026-11-22T01:00:00+00:00"
# Their accuracies depend on no training.
FIXED = ("SVM-GLN", "SVM-L2", "SVM-shallow", "SVM-RC")
# The released SVMs whose agreements exact_training.py measures, by their network.
OF_NETWORK = {"GD-GLN": "SVM-GLN", "GD-shallow": "SVM-shallow", "GD-ReLU": "SVM-RC"}
# Momentum of the networks that the other SVMs are compared with.
COMPARED_MOMENTUM = 0.0
CELL = ["model", "train_size", "units", "hyperplanes", "seed", "threshold"]
KEY = [*CELL, "momentum", "metric"]
METRICS = ("train_accuracy", "val_accuracy", "agreement_with_GD")

DIGIT, CLOSE = 1e-4, 1e-3
# The released values have six digits.
LAST_DIGIT = 5.5e-7

# Why a value is not the released one.
MANY = "their program has many solutions: theirs is OSQP's, ours has the smallest free part"
ROUNDING = "the ReLU network differs: rounding decides whether an image crosses a gate early on"
GATES = (
    "gates of training samples next to a learned hyperplane depend on rounding in the network: "
    "see the table of learned contexts"
)
NO_SOLUTION, OTHER_DRAWS = "no solution", "other draws"
VERDICTS = (
    "to the digit",
    "within 0.001",
    "differs",
    OTHER_DRAWS,
    "their failure",
    NO_SOLUTION,
    "not computed",
)
SAME, NOT_THE_SAME = ("to the digit", "within 0.001"), ("differs",)
# Rest on a trained ReLU network.
ON_RELU = ("GD-ReLU", "SVM-LC", "SVM-HL", "SVM-gates")


@dataclass(frozen=True, kw_only=True)
class PublishedOptions(Options):
    """Where the released values are."""

    published: Path | None = option(None, f"CSV of the released values (default: ${VARIABLE})")


def published_values(file: Path | None) -> pd.DataFrame:
    """Read the released values, by default those that the environment names.

    Raises
    ------
    DataError
        There are none.
    """
    file = file or Path(os.environ.get(VARIABLE, ""))
    if not file.is_file():
        raise DataError(f"name the CSV of the released values: --published, or ${VARIABLE}")
    return pd.read_csv(file)


def _measure(run: Run[PublishedOptions]) -> Frames:
    values = theirs(published_values(run.options.published))
    study, folder = catalogue.study("lippl2022"), run.file.parents[2]
    networks, agreements, learned, *packed = (
        read(study, study.entry(name), folder) for name in (*BESIDE, *GRIDS)
    )
    tables = exported(dict(zip(GRIDS, packed, strict=True)))
    known = ours(tables["models"], tables["pairs"])
    exact = with_exact(known, networks, agreements, other_draws(tables["cells"]))
    yield with_learned(compared(values, exact), learned)


def _verdict(table: pd.DataFrame) -> Verdict:
    known = table[table["verdict"].isin([*SAME, *NOT_THE_SAME])]
    return Verdict.each(known["verdict"].isin(SAME), 0.9)


def _counts(table: pd.DataFrame) -> pd.DataFrame:
    """Count the verdicts on each model and metric, in words."""
    counts = table.pivot_table(
        index=["model", "metric"], columns="verdict", values="seed", aggfunc="size", fill_value=0
    )
    counts = counts[[verdict for verdict in VERDICTS if verdict in counts]].astype(str)
    counts = counts.replace("0", "")
    largest = table["difference"].abs().groupby([table["model"], table["metric"]]).max()
    known = ["" if np.isnan(largest[key]) else f"{largest[key]:.4f}" for key in counts.index]
    return counts.assign(**{"largest difference": known}).reset_index()


def _differing(table: pd.DataFrame) -> str:
    """Count the values that are not the released ones, by model and reason."""
    differing = table[table["verdict"].isin(NOT_THE_SAME)]
    return "\n".join(
        f"- {model}, {len(rows)} {'value' if len(rows) == 1 else 'values'}: "
        f"{reason or 'not explained'}"
        for (model, reason), rows in differing.groupby(["model", "reason"])
    )


def theirs(frame: pd.DataFrame) -> pd.DataFrame:
    """Lay out the released values: one row a `KEY`, with ``theirs``.

    The momentum is nan where a value depends on none. Of SVM-RC the accuracies of the rows with
    momentum are taken: at N = 500 those without have the values of seed 1 at every seed.
    """
    frame = frame.rename(columns={"hidden_units": "units", "value": "theirs"})
    frame = frame[frame["metric"].isin(METRICS)]
    agreement = frame["metric"] == "agreement_with_GD"
    momentum = frame["momentum"].mask(frame["momentum"].isna() & agreement, COMPARED_MOMENTUM)
    free = frame["model"].isin(FIXED) & ~agreement
    order = frame["momentum"].sort_values(ascending=False, kind="stable").index
    frame = frame.assign(threshold=thresholds(frame), momentum=momentum.mask(free))
    frame = frame[[*KEY, "theirs"]]
    return frame.loc[order].drop_duplicates(KEY).sort_index()


def ours(models: pd.DataFrame, pairs: pd.DataFrame) -> pd.DataFrame:
    """Lay out the values of the study: one row a `KEY`, with ``ours`` and where it is from."""
    models = models[of_paper(models) & models["model"].isin(list(NAMES))]
    origin = {"model": "our_model", "grid": "grid", "cell": "cell", "gap": "gap"}
    kept = [*CELL[1:], "momentum", "dropped", "status", *origin]
    wide = models[[*kept, "train_error", "validation_error"]].rename(columns=origin)
    of_model = ["grid", "cell", "our_model"]
    apart = with_networks(pairs, NETWORKS, of_model[:2]).rename(columns={"name": "our_model"})
    wide = wide.merge(apart[[*of_model, "network", "disagreement"]], on=of_model, how="left")
    wide["agreement_with_GD"] = 1.0 - wide["disagreement"]
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


def of_paper(frame: pd.DataFrame, split_seed: int = 1) -> pd.Series[bool]:
    """Whether each row is of the paper's data and protocol, at any N, or of another split."""
    published = frame["dataset"] == "mnist"
    classes = frame["positive"].isna() & frame["negative"].isna()
    return published & classes & (frame["split_seed"] == split_seed)


def with_networks(
    pairs: pd.DataFrame, networks: Sequence[str], cell: Sequence[str]
) -> pd.DataFrame:
    """Lay pairs out by the model: its ``name``, and the first ``network`` of those of its cell.

    ``preference`` is the network's place among them.
    """
    both = [
        pairs[pairs[one].isin(networks)].rename(columns={one: "network", other: "name"})
        for one, other in (("first", "second"), ("second", "first"))
    ]
    frame = pd.concat(both)
    frame = frame.assign(preference=frame["network"].map(list(networks).index))
    frame = frame.sort_values("preference", kind="stable")
    return frame.drop_duplicates([*cell, "name"])


def thresholds(frame: pd.DataFrame) -> pd.Series[str]:
    """Name the thresholds of released values; ReLU networks have none, and ours the default."""
    return frame["median_init"].map({True: "median", False: "random"}).fillna("median")


def exact_values(networks: pd.DataFrame, agreements: pd.DataFrame) -> pd.DataFrame:
    """Lay out the tables of exact_training.py: one row a `KEY`, with ``ours``.

    An agreement at median thresholds is that with the network in the contexts as drawn.
    """
    drawn = agreements["drawn"].fillna(agreements["agreement"])
    model = agreements["model"].map(OF_NETWORK)
    agreements = agreements.assign(metric="agreement_with_GD", ours=drawn, model=model)
    frame = pd.concat([networks.assign(metric="val_accuracy"), agreements], ignore_index=True)
    frame = frame.rename(columns={"hidden_units": "units"})
    return frame.assign(threshold=thresholds(frame))[[*KEY, "ours"]]


def other_draws(cells: pd.DataFrame) -> frozenset[str]:
    """Cells of MNIST whose networks were trained with draws of their own."""
    old = (cells["dataset"] == "mnist") & (cells["finished"] < EXACT_SINCE)
    return frozenset(cells.loc[old, "cell"])


def with_exact(
    study: pd.DataFrame,
    networks: pd.DataFrame,
    agreements: pd.DataFrame,
    others: frozenset[str],
) -> pd.DataFrame:
    """Put exact values in the place of those of the grids, and say what has other draws.

    Parameters
    ----------
    study : DataFrame
        See `ours`.
    networks, agreements : DataFrame
        The tables of exact_training.py.
    others : set of str
        See `other_draws`.
    """
    exact = exact_values(networks, agreements)
    merged = study.merge(exact.rename(columns={"ours": "exact"}), on=KEY, how="outer")
    trained = merged["network"].notna() | merged["model"].str.startswith("GD-")
    on_network = trained & (merged["metric"].eq("agreement_with_GD") | merged["network"].isna())
    known = merged["exact"].notna()
    return merged.assign(
        ours=merged["exact"].fillna(merged["ours"]),
        other_draws=on_network & ~known & merged["cell"].isin(others),
        our_model=merged["our_model"].fillna("exact"),
        cell=merged["cell"].mask(known & merged["cell"].isin(others)).fillna(""),
    ).drop(columns="exact")


def compared(published: pd.DataFrame, study: pd.DataFrame) -> pd.DataFrame:
    """Join both, and judge each released value: see the module's head."""
    table = published.merge(study, on=KEY, how="left")
    table["difference"] = table["ours"] - table["theirs"]
    distance = table["difference"].abs()
    verdicts = [
        (
            table["theirs"].isna() & ((table["dropped"] > 0) | _proven_inseparable(table)),
            NO_SOLUTION,
        ),
        (table["ours"].isna(), "not computed"),
        (table["theirs"].isna(), "their failure"),
        (table["other_draws"].eq(True), OTHER_DRAWS),
        (distance <= DIGIT, "to the digit"),
        (distance <= CLOSE, "within 0.001"),
    ]
    table["verdict"] = np.select(
        [np.asarray(mask) for mask, _ in verdicts], [name for _, name in verdicts], "differs"
    )
    compared = (table["model"] == "SVM-RC") & (table["metric"] == "agreement_with_GD")
    on_relu = _on_another_relu(table) & (table["model"].isin(ON_RELU) | compared)
    masks = [
        ~table["verdict"].isin(NOT_THE_SAME),
        table["our_model"] == "svm-l2-published",
        on_relu,
    ]
    return table.assign(reason=np.select(masks, ["", MANY, ROUNDING], ""))


def with_learned(table: pd.DataFrame, learned: pd.DataFrame) -> pd.DataFrame:
    """Give values of SVM-LC the reason `GATES` where it is shown for their cell.

    Parameters
    ----------
    table : DataFrame
        See `compared`.
    learned : DataFrame
        The table of learned_contexts.py: ranges over trainings that differ in the last bit.
    """
    columns = {"val_accuracy": "", "agreement_with_GD": "_agrees"}
    ranges = pd.concat(
        learned.assign(metric=metric, low=learned[f"least{end}"], high=learned[f"most{end}"])
        for metric, end in columns.items()
    ).rename(columns={"hidden_units": "units"})
    keys = ["train_size", "units", "seed", "momentum", "metric"]
    beside = table[[*keys]].merge(ranges[[*keys, "low", "high"]], on=keys, how="left")
    low, high = beside["low"].to_numpy() - LAST_DIGIT, beside["high"].to_numpy() + LAST_DIGIT
    differs = table["verdict"].isin(NOT_THE_SAME) & (table["reason"] == "")
    shown = differs & (table["model"] == "SVM-LC") & table["theirs"].between(low, high)
    return table.assign(reason=table["reason"].mask(shown, GATES))


def _proven_inseparable(frame: pd.DataFrame) -> pd.Series[bool]:
    """Whether our solver proved that nothing separates the training samples."""
    return frame["status"] == Status.NOT_SEPARABLE.label


def _on_another_relu(table: pd.DataFrame) -> pd.Series[bool]:
    """Whether the ReLU network of a row's setting has not the released accuracy itself."""
    keys = ["train_size", "units", "seed", "momentum"]
    networks = table[(table["model"] == "GD-ReLU") & (table["metric"] == "val_accuracy")]
    differing = networks[networks["difference"].abs() > LAST_DIGIT]
    wrong = pd.MultiIndex.from_frame(differing[keys])
    return pd.Series(pd.MultiIndex.from_frame(table[keys]).isin(wrong), table.index)


def telling(table: pd.DataFrame) -> pd.DataFrame:
    """Keep the values that can be compared and can differ: all training accuracies are 1."""
    compared = table["verdict"].isin([*SAME, *NOT_THE_SAME])
    return table[compared & (table["metric"] != "train_accuracy")]


def _found(table: pd.DataFrame) -> str:
    known = telling(table)
    return (
        f"**{known['verdict'].isin(SAME).sum():,} of {len(known):,} values that can be compared "
        f"are ours within 0.001, without training accuracies.** What differs of "
        f"{len(table):,} values:\n\n{_differing(table)}"
    )


EXPERIMENT = Experiment(_measure, _found, _counts, _verdict, options=PublishedOptions)
