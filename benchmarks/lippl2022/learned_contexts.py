r"""How far SVM-LC depends on rounding in the network whose contexts it takes.

    python -m benchmarks lippl2022 learned-contexts --published lippl2022.csv --minutes 30

Training moves samples on to the hyperplanes of a ReLU network: some pre-activations of training
samples end so near to 0 that rounding decides their sign. SVM-LC takes these gates as given. Each
network with a released SVM-LC is trained from the weights as drawn and from some that differ in
their last bit (`exact_training.last_bits`), and SVM-LC is solved for each, with a certificate.

K trainings and the released one are draws of the same kind if the released network is one of
these. Then the released value is within the range of the K others with probability

    (K - 1) / (K + 1):

it is as likely the least or the largest of K + 1 as any other. (Ties only make it likelier.)

Columns: the cell, and

==========================  ===================================================================
released, released_agrees   validation accuracy and agreement with the network
least, most                 of our accuracies
least_agrees, most_agrees   of our agreements
flips                       largest number of gates of training samples that differ from those of
                            the weights as drawn
gates                       gates of training samples, N H
commit                      of the code that computed the row
==========================  ===================================================================

Source: Lippl, Abbott, Chung (2022), section 5.1, and their released values.
"""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pandas as pd

from benchmarks.harness import Experiment, Frames, Row, Run, Verdict
from benchmarks.lippl2022 import exact_training as exact
from benchmarks.lippl2022.published import PublishedOptions, published_values
from implicit_bias.base.wording import percent
from implicit_bias.estimators.svm import GatedReLUSVC
from implicit_bias.networks import ReLUNetwork

# Trainings from weights that differ in their last bit, beside that of the weights as drawn.
REPEATS = 4
TRAININGS = REPEATS + 1
# Share of the released values within our ranges, if the released network is one of ours.
EXPECTED = (TRAININGS - 1) / (TRAININGS + 1)


def released(frame: pd.DataFrame) -> dict[exact.Cell, tuple[float, float]]:
    """Lay out the released accuracies and agreements of SVM-LC, by the network's cell."""
    rows = frame[(frame["model"] == "SVM-LC") & frame["value"].notna()]
    rows = rows.assign(model=exact.RELU, median_init=None)
    accuracy, agreement = (
        rows[rows["metric"] == metric] for metric in ("val_accuracy", "agreement_with_GD")
    )
    agreements = dict(zip(exact.cells(agreement), agreement["value"], strict=True))
    found = {
        cell: (float(value), float(agreements[cell]))
        for cell, value in zip(exact.cells(accuracy), accuracy["value"], strict=True)
    }
    return dict(sorted(found.items(), key=lambda item: item[0].cost))


def measured(cell: exact.Cell, images: exact.Images, repeats: int = REPEATS) -> Row:
    """Return the ranges over trainings that differ in the last bit of the initial weights."""
    parts = images.split(cell.train_size)
    accuracies, agreements, gates = list[float](), list[float](), list[np.ndarray]()
    for training in exact.last_bits(cell, images, repeats):
        network = training.network
        assert isinstance(network, ReLUNetwork)
        svm = GatedReLUSVC(
            n_units=cell.hidden_units, gates=network, always_on=False, on_failure="drop"
        ).fit(parts.train.X, parts.train.y)
        signs = np.sign(svm.decision_function(parts.validation.X))
        accuracies.append(float(np.mean(signs == parts.validation.y)))
        theirs = np.sign(network.decision(parts.validation.X))
        agreements.append(float(np.mean(signs == theirs)))
        gates.append(np.asarray(network.gating().gates(parts.train.X)))
    return {
        "least": min(accuracies),
        "most": max(accuracies),
        "least_agrees": min(agreements),
        "most_agrees": max(agreements),
        "flips": max(int((each != gates[0]).sum()) for each in gates),
        "gates": gates[0].size,
    }


def _measure(run: Run[PublishedOptions]) -> Frames:
    images, values = exact.Images(), released(published_values(run.options.published))

    def row(cell: exact.Cell) -> Row:
        accuracy, agreement = values[cell]
        known = {"released": accuracy, "released_agrees": agreement}
        return asdict(cell) | known | measured(cell, images)

    yield from exact.grown(run, list(values), row)


def within(table: pd.DataFrame, suffix: str = "") -> pd.Series[bool]:
    """Whether each released value is within our range; ``suffix`` names the agreements."""
    low, high = (
        table[f"least{suffix}"] - exact.LAST_DIGIT,
        table[f"most{suffix}"] + exact.LAST_DIGIT,
    )
    return table[f"released{suffix}"].between(low, high)


def _found(table: pd.DataFrame) -> str:
    spread = table["most"] - table["least"]
    return (
        f"{exact.coverage(table)}Weights that differ in their last bit before training leave up to "
        f"{int(table['flips'].max()):,} gates of training samples otherwise (median "
        f"{table['flips'].median():.0f}), and the error of SVM-LC spreads over up to "
        f"{percent(spread.max(), 2)} of the images (median {percent(spread.median(), 2)}). "
        f"**The released accuracy is within the range of {TRAININGS} trainings in "
        f"{int(within(table).sum())} of {len(table)} cells, the released agreement in "
        f"{int(within(table, '_agrees').sum())}; {EXPECTED * len(table):.0f} are expected if the "
        "released network is one of these.**"
    )


def _verdict(table: pd.DataFrame) -> Verdict:
    if len(table) < table.attrs["wanted"] / 2:
        return Verdict.OPEN
    share = min(within(table).mean(), within(table, "_agrees").mean())
    return Verdict.of(share >= EXPECTED, share >= 0.5 * EXPECTED)


def _tabulate(table: pd.DataFrame) -> pd.DataFrame:
    counted = table[["train_size", "momentum"]].assign(
        networks=1,
        accuracy_within=within(table),
        agreement_within=within(table, "_agrees"),
        flips=table["flips"],
        largest_spread=12_000 * (table["most"] - table["least"]),
    )
    groups, most = counted.groupby(["train_size", "momentum"]), ["flips", "largest_spread"]
    names = {"flips": "most gates that differ", "largest_spread": "largest spread, images"}
    return exact.written(groups.sum().assign(**groups[most].max()).rename(columns=names))


EXPERIMENT = Experiment(_measure, _found, _tabulate, _verdict, options=PublishedOptions)
