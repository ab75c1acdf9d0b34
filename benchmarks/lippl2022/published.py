"""The released values beside ours, by the released programs and random draws, one by one.

Each released accuracy and agreement has one of ours that it should equal. Networks are trained with
the released draws; SVM-GLN has the released groups; SVM-L2 is the released program, solved by OSQP
where that was run (`l2_optimality`), else by its solution with the smallest free part. At median
thresholds the agreements of GLNs are with the network in the contexts as drawn
(`as_published.gln_models`). SVMs of ReLU networks that leave samples out are not compared.

Source: Lippl, Abbott, Chung (2022), their released values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

READS = ("gln", "relu", "shallow", "l2_optimality", "released")
KEYS = ["model", "train_size", "units", "hyperplanes", "threshold", "seed", "momentum"]
# Values that differ by less are the same: an image of 12,000 is 0.00008.
CLOSE = 1e-3
OF_GLN = {"gd-gln": "GD-GLN", "svm-gln-published": "SVM-GLN", "svm-l2-published": "SVM-L2"}
OF_RELU = {"gd-relu": "GD-ReLU", "svm-rc": "SVM-RC", "svm-lc": "SVM-LC", "svm-hl": "SVM-HL"}
# Of SVM-RC the released errors without momentum are, at N = 500, those of seed 1 at every seed.
RANDOM, RANDOM_MOMENTUM = "SVM-RC", 0.9
ORDER = ("GD-GLN", "SVM-GLN", "SVM-L2", "SVM-shallow", "GD-ReLU", "SVM-RC", "SVM-LC", "SVM-HL")


def compared(
    gln: pd.DataFrame,
    relu: pd.DataFrame,
    shallow: pd.DataFrame,
    l2_optimality: pd.DataFrame,
    released: pd.DataFrame,
) -> pd.DataFrame:
    """Lay released values and ours side by side: a row a value, ``difference`` is ours - theirs."""
    ours = pd.concat([of_glns(gln, l2_optimality), of_relu(relu), of_shallow(shallow)])
    both = released.merge(ours, on=KEYS, how="inner", suffixes=("", "_ours"))
    rows = []
    for value in ("error", "from_network"):
        part = both[["model", "momentum"]].assign(
            value=value, difference=both[f"{value}_ours"] - both[value]
        )
        rows.append(part.dropna(subset=["difference"]))
    table = pd.concat(rows, ignore_index=True)
    free = (table["model"] == RANDOM) & (table["value"] == "error")
    return table[~free | (table["momentum"] == RANDOM_MOMENTUM)]


def of_glns(gln: pd.DataFrame, l2_optimality: pd.DataFrame) -> pd.DataFrame:
    """Return our values of GLNs and their SVMs, which have no momentum of their own."""
    rows = gln[gln["model"].isin(list(OF_GLN))].copy()
    rows["model"] = rows["model"].map(OF_GLN)
    medians = rows["threshold"] == "median"
    rows["from_network"] = rows["from_redrawn"].where(medians, rows["from_network"])
    rows["momentum"] = rows["momentum"].where(rows["model"] == "GD-GLN")
    rows.loc[rows["model"] == "GD-GLN", "from_network"] = np.nan
    cells = ["train_size", "units", "hyperplanes", "threshold", "seed"]
    osqp = l2_optimality.assign(model="SVM-L2").set_index(["model", *cells])
    index = pd.MultiIndex.from_frame(rows[["model", *cells]])
    for value in ("error", "from_network"):
        column = osqp["error" if value == "error" else "from_redrawn"].reindex(index)
        rows[value] = np.where(column.isna(), rows[value], column)
    return rows[[*KEYS, "error", "from_network"]]


def of_relu(relu: pd.DataFrame) -> pd.DataFrame:
    """Return our values of ReLU networks and their SVMs, without those that leave samples out."""
    rows = relu[relu["model"].isin(list(OF_RELU)) & ~(relu["dropped"] > 0)].copy()
    rows["model"] = rows["model"].map(OF_RELU)
    rows.loc[rows["model"] == "GD-ReLU", "from_network"] = np.nan
    return rows.assign(hyperplanes=1, threshold="median")[[*KEYS, "error", "from_network"]]


def of_shallow(shallow: pd.DataFrame) -> pd.DataFrame:
    """Return our errors of SVM-shallow, with images in unseen contexts as errors."""
    rows = shallow.assign(model="SVM-shallow", units=1, momentum=np.nan, from_network=np.nan)
    return rows[[*KEYS, "error", "from_network"]]


def numbers(*tables: pd.DataFrame) -> dict[str, Any]:
    """Count the values that are the released ones, by model."""
    table = compared(*tables)
    same = table["difference"].abs() <= CLOSE
    found: dict[str, Any] = {"compared": len(table), "same": int(same.sum())}
    found["share"] = found["same"] / found["compared"] if len(table) else np.nan
    lines = []
    for model in ORDER:
        line = [model]
        for value in ("error", "from_network"):
            of_model = (table["model"] == model) & (table["value"] == value)
            count = int((same & of_model).sum())
            line.append(f"{count} of {of_model.sum()}" if of_model.any() else "-")
            if value == "error":
                found[model.lower().replace("-", "_")] = count
        lines.append(line)
    found["table"] = pd.DataFrame(lines, columns=["model", "errors", "disagreements"])
    return found
