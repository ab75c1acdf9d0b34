"""Values behind the figures: the released ones, ours by their operators, and the corrected ones.

=============  ========  =====================  ====================  ==========================
side           source    SVM-GLN                SVM-L2                all other models
=============  ========  =====================  ====================  ==========================
"published"    "paper"   the released values    the released values   the released values
"published"    "ours"    "svm-gln-published"    "svm-l2-osqp"         our run of their protocol
"corrected"    "ours"    "svm-gln"              "svm-l2"              our run of their protocol
=============  ========  =====================  ====================  ==========================

"SVM-L2 formula" is on the corrected side, too: eq. (23)/(25) as printed, folded by units. Errors of
networks are those of the networks trained exactly as released, wherever their table has them.

Two more things differ between the sides.

- At median thresholds the published disagreements are with the trained network in the contexts of
  its random thresholds ("gd-gln-redrawn", see as_published.py); the corrected ones with the network
  as it was trained.
- In a context without training samples a shallow SVM predicts 0. The published code counts that as
  an error, and as a disagreement with any network; the corrected value is that of a fair coin, half
  of each.

The table of values has one row a model and cell:

=============  ==============================================================================
column         meaning
=============  ==============================================================================
side, source   see above
model          as the paper names it
train_size, units, hyperplanes, seed, threshold, momentum
               N, H, k and the rest of the setting; threshold is "" for ReLU networks
error          share of the validation samples that are misclassified
disagreement   share on which model and trained network of the same cell differ
gd_error       error of that network
state          "solved"; "failed": the solver, or the cell, failed; "no solution": proven so
left_out       whether training samples were left out because nothing separates them
their_failure  corrected side: whether the published solver had failed on this cell
=============  ==============================================================================

Source: Lippl, Abbott, Chung (2022), figures 2 to 5.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, Self, TypeAlias

import numpy as np
import pandas as pd

from benchmarks.lippl2022 import published
from benchmarks.lippl2022.grids import MODELS as GRIDS
from benchmarks.lippl2022.grids import exported
from benchmarks.page import Kept

Side: TypeAlias = Literal["published", "corrected"]

SIDES: tuple[Side, ...] = ("published", "corrected")
TRAIN_SIZES = (500, 1000, 2000)
MORE_SEEDS = ("gln-seeds", "relu-seeds")
# Validation images of the published split.
N_VALIDATION = 12_000
CELL_COLUMNS = ("train_size", "units", "hyperplanes", "seed", "threshold", "momentum")

# What differs between the sides, and what is the same on both.
OPERATORS: dict[Side, dict[str, str]] = {
    "published": {"svm-gln-published": "SVM-GLN", "svm-l2-osqp": "SVM-L2"},
    "corrected": {"svm-gln": "SVM-GLN", "svm-l2": "SVM-L2", "svm-l2-formula": "SVM-L2 formula"},
}
SHARED = {
    name: title
    for name, title in published.NAMES.items()
    if title not in OPERATORS["published"].values()
}
# Networks that disagreements are with, of those in a cell the first.
TRAINED: dict[Side, tuple[str, ...]] = {
    "published": published.NETWORKS,
    "corrected": ("gd-gln", "gd-shallow", "gd-relu"),
}
# Network that an SVM is compared with.
NETWORK = {
    "SVM-GLN": "GD-GLN",
    "SVM-L2": "GD-GLN",
    "SVM-shallow": "GD-shallow",
    "SVM-RC": "GD-ReLU",
    "SVM-LC": "GD-ReLU",
    "SVM-HL": "GD-ReLU",
    "SVM-gates": "GD-ReLU",
    "SVM-L2 formula": "GD-GLN",
}
RELU = ("GD-ReLU", "SVM-RC", "SVM-LC", "SVM-HL", "SVM-gates")
# Their gates do not come from a trained network, so their errors know no momentum.
MOMENTUM_FREE = ("SVM-GLN", "SVM-L2", "SVM-L2 formula", "SVM-shallow", "SVM-RC")


@dataclass(frozen=True, eq=False)
class Tables:
    """Results of the study, as grids.py and published.py lay them out.

    Attributes
    ----------
    cells, models, pairs : DataFrame
        One row a cell; a cell and model; a cell and pair of models.
    points : DataFrame
        One row a released value: theirs, ours, and how they compare.
    exact : DataFrame
        One row a network trained exactly as released; without rows if there are none.
    optimality : DataFrame
        One row a cell of l2_optimality.py; without rows if there are none.
    neighbours : DataFrame
        One row a cell and SVM of neighbours.py; without rows if there are none.
    more_seeds : DataFrame
        Corrected values of the grids of further seeds, by which some claims are judged, too.
    """

    cells: pd.DataFrame
    models: pd.DataFrame
    pairs: pd.DataFrame
    points: pd.DataFrame
    exact: pd.DataFrame = field(default_factory=pd.DataFrame)
    optimality: pd.DataFrame = field(default_factory=pd.DataFrame)
    neighbours: pd.DataFrame = field(default_factory=pd.DataFrame)
    more_seeds: pd.DataFrame = field(default_factory=pd.DataFrame)

    @classmethod
    def read(cls, kept: Kept) -> Self:
        """Read the tables that are kept of the study.

        Raises
        ------
        DataError
            One of them is missing; the message names the command that measures it.
        """
        grids = {grid: kept[grid] for grid in GRIDS}
        further = exported({grid: grids.pop(grid) for grid in MORE_SEEDS})
        return cls(
            **exported(grids),
            more_seeds=our_values(cls(**further, points=pd.DataFrame()), "corrected"),
            points=kept["published"],
            exact=kept["exact_networks"],
            optimality=kept["l2_optimality"],
            neighbours=kept["neighbours"],
        )

    def study(self) -> Tables:
        """Keep what the paper's grid has: its data, classes, protocol and training sizes."""
        return self._where(in_study)

    def beyond(self) -> Tables:
        """Keep the rest."""
        return self._where(lambda frame: ~in_study(frame))

    def further_splits(self) -> dict[int, Tables]:
        """Return the cells of each further split of the paper's data, by its seed."""
        seeds = sorted(set(self.cells["split_seed"]) - {1})
        return {
            seed: replace(self._where(partial(in_study, split_seed=seed)), exact=pd.DataFrame())
            for seed in seeds
        }

    def _where(self, chosen: Callable[[pd.DataFrame], pd.Series[bool]]) -> Tables:
        cells, models, pairs = (
            frame[chosen(frame)] for frame in (self.cells, self.models, self.pairs)
        )
        return replace(self, cells=cells, models=models, pairs=pairs)


def exact_networks(models: pd.DataFrame, exact: pd.DataFrame) -> pd.DataFrame:
    """Give networks the errors of the exact ones, where those are known.

    Parameters
    ----------
    models : DataFrame
        A row a cell and model, of the paper's grid.
    exact : DataFrame
        A row a network trained exactly as released.
    """
    if exact.empty:
        return models
    known = exact.rename(columns={"hidden_units": "units", "model": "title"}).assign(
        threshold=published.thresholds(exact),
        exact_error=1.0 - exact["ours"],
    )
    networks = {name: title for name, title in SHARED.items() if name.startswith("gd-")}
    keys = ["title", *CELL_COLUMNS]
    frame = models.assign(title=models["model"].map(networks))
    frame = frame.merge(known[[*keys, "exact_error"]], on=keys, how="left")
    errors = frame["exact_error"].fillna(frame["validation_error"])
    return frame.assign(validation_error=errors).drop(columns=["title", "exact_error"])


def in_study(frame: pd.DataFrame, split_seed: int = 1) -> pd.Series[bool]:
    """Whether each row is of a cell of the paper's grid, or of that grid on another split."""
    return published.of_paper(frame, split_seed) & frame["train_size"].isin(TRAIN_SIZES)


def all_values(tables: Tables) -> pd.DataFrame:
    """Lay out the table of the module's head."""
    study, paper = tables.study(), paper_values(tables.points)
    values = pd.concat([paper, *(our_values(study, side) for side in SIDES)], ignore_index=True)
    keys = ["model", *CELL_COLUMNS]
    failed = pd.MultiIndex.from_frame(paper.loc[paper["state"] == "failed", keys])
    theirs = pd.MultiIndex.from_frame(values[keys]).isin(failed)
    return values.assign(their_failure=theirs & (values["side"] == "corrected"))


def paper_values(points: pd.DataFrame) -> pd.DataFrame:
    """Lay out the published values.

    Accuracies of SVMs with fixed gates have no momentum there; theirs is here that of the network
    that they are compared with.
    """
    points = points[points["model"].isin([*NETWORK, *NETWORK.values()])]
    keys = ["model", *CELL_COLUMNS]
    accuracy, agreement = (
        points.loc[points["metric"] == metric, [*keys, "theirs"]].rename(columns={"theirs": metric})
        for metric in ("val_accuracy", "agreement_with_GD")
    )
    free = accuracy["momentum"].isna()
    of_fixed_gates = accuracy[free].drop(columns="momentum")
    frame = pd.concat(
        [
            accuracy[~free].merge(agreement, on=keys, how="left"),
            of_fixed_gates.merge(agreement, on=[key for key in keys if key != "momentum"]),
        ]
    )
    frame = frame.assign(
        side="published",
        source="paper",
        error=1.0 - frame["val_accuracy"],
        disagreement=1.0 - frame["agreement_with_GD"],
        state=np.where(frame["val_accuracy"].isna(), "failed", "solved"),
        left_out=False,
    )
    return _arranged(_with_network(frame, list(CELL_COLUMNS)))


def our_values(study: Tables, side: Side) -> pd.DataFrame:
    """Lay out one side of our results."""
    names = OPERATORS[side] | SHARED
    models = exact_networks(study.models, study.exact)
    models = models[models["model"].isin(list(names))]
    frame = models.assign(
        name=models["model"],
        model=models["model"].map(names),
        error=models["validation_error"],
        state=np.where(models["validation_error"].isna(), "no solution", "solved"),
        left_out=models["dropped"].fillna(0) > 0,
        side=side,
        source="ours",
    )
    frame = _with_network(frame, ["cell"])
    frame = frame.merge(_disagreement(study.pairs, side), on=["cell", "name"], how="left")
    if side == "corrected":
        frame = _with_a_fair_coin(frame)
    else:
        # Where the network has not been moved there is nothing to set beside the published value.
        unlike = (frame["threshold"] == "median") & frame["network"].isin(published.NOT_MOVED)
        frame = frame.assign(disagreement=frame["disagreement"].mask(unlike))
    frame = pd.concat([frame, _failed(study.cells, names, side)])
    # Cells of several grids have models in common: one row is enough, the one that says most.
    order = frame.assign(unsolved=frame["state"] != "solved").sort_values(
        ["unsolved", "preference"], kind="stable"
    )
    return _arranged(order).drop_duplicates(["model", *CELL_COLUMNS], ignore_index=True)


def _disagreement(pairs: pd.DataFrame, side: Side) -> pd.DataFrame:
    """Disagreement of each model with the network of its cell: columns cell, name and that."""
    frame = published.with_networks(pairs, TRAINED[side], ["cell"])
    frame = frame[~frame["name"].isin(TRAINED[side])]
    return frame[["cell", "name", "network", "disagreement", "preference"]]


def _with_network(frame: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Add the error of the network that each model is compared with."""
    networks = frame[frame["model"].isin(list(NETWORK.values()))]
    errors = networks[[*keys, "model", "error"]].rename(
        columns={"model": "network_model", "error": "gd_error"}
    )
    frame = frame.assign(network_model=frame["model"].map(NETWORK))
    return frame.merge(errors, on=[*keys, "network_model"], how="left")


def _with_a_fair_coin(frame: pd.DataFrame) -> pd.DataFrame:
    """Let half of the samples in contexts that training never saw be right."""
    shallow = frame["model"] == "SVM-shallow"
    half = 0.5 * frame["unseen"].where(shallow, 0) / N_VALIDATION
    return frame.assign(error=frame["error"] - half, disagreement=frame["disagreement"] - half)


def _failed(cells: pd.DataFrame, names: dict[str, str], side: Side) -> pd.DataFrame:
    """One row for each model of a cell that failed as a whole."""
    failed = cells[cells["status"] == "failed"]
    rows = failed.assign(model=failed["models"].str.split(",")).explode("model")
    rows = rows[rows["model"].isin(list(names))]
    return rows.assign(
        model=rows["model"].map(names),
        side=side,
        source="ours",
        state="failed",
        left_out=False,
        error=np.nan,
        disagreement=np.nan,
        gd_error=np.nan,
    )


def _arranged(frame: pd.DataFrame) -> pd.DataFrame:
    relu = frame["model"].isin(RELU)
    frame = frame.assign(
        threshold=frame["threshold"].mask(relu, ""),
        momentum=frame["momentum"].astype(float),
        left_out=frame["left_out"].astype(bool),
    )
    columns = ["side", "source", "model", *CELL_COLUMNS, "error", "disagreement", "gd_error"]
    return frame[[*columns, "state", "left_out"]].reset_index(drop=True)


def of_momentum(values: pd.DataFrame, momentum: float) -> pd.DataFrame:
    """Choose the rows of a momentum.

    An SVM whose gates come from no network has the same error in cells of any momentum, so such
    cells stand in where none of this momentum has it; what they say of their network does not
    count.
    """
    this = values["momentum"] == momentum
    others = values[~this & values["model"].isin(MOMENTUM_FREE)].assign(
        disagreement=np.nan, gd_error=np.nan, momentum=momentum
    )
    keys = ["side", "source", "model", *CELL_COLUMNS]
    chosen = pd.concat([values[this], others])
    chosen = chosen.sort_values("state", key=lambda state: state != "solved", kind="stable")
    return chosen.drop_duplicates(keys).sort_values(keys, ignore_index=True)
