"""The released values: errors of all models, and how often they disagree with their network.

They are read from ``lippl2022.csv`` of the data folder, or of ``published`` beside it. Without that
file the archive of the released repository (19 MB) is downloaded, and the values are taken from its
``data/*/*/metrics.csv`` (networks, the last validation accuracy) and ``accs.csv`` (SVMs). Either
way a checksum of the values is verified. The repository has no licence, so that the table has only
the values that other modules use.

====================  ==========================================================================
model                 as the paper names it
train_size, units, hyperplanes, threshold, seed, momentum
                      N, H, k and the rest of the setting; no momentum where a value has none
error                 share of the 12,000 validation images that are misclassified
from_network          share on which the model and its network differ
====================  ==========================================================================

Both are nan where the released solver failed.

Source: https://github.com/sflippl/implicit-bias-glns of Lippl, Abbott, Chung (2022).
"""

from __future__ import annotations

import hashlib
import os
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.bench import Part, part
from implicit_bias.datasets.files import DATA_VARIABLE, DataError

COST = 0.1
COMMIT = "002054c83b2d436e822592504013dd74297dd562"
ARCHIVE = f"https://github.com/sflippl/implicit-bias-glns/archive/{COMMIT}.zip"
# Of the values as `checksum` writes them.
SHA256 = "e3a0a8a9000356f2e52ffff0ffa1ed4bba5c0acdb9802eec70dbd1fddd53a28a"
FILE = "lippl2022.csv"
# Folder of the archive, and of the SVMs the folder or the end of the name that tells them apart.
MODELS = {
    ("deep_gln", None): "GD-GLN",
    ("relu_net", None): "GD-ReLU",
    ("deep_gln_cp", "implicit_bias"): "SVM-GLN",
    ("deep_gln_cp", "architecture"): "SVM-L2",
    ("shallow_gln_cp", None): "SVM-shallow",
    ("relu_net", "random_contexts"): "SVM-RC",
    ("relu_net", "learned_contexts"): "SVM-LC",
    ("relu_net", "hidden_layer"): "SVM-HL",
}
KEYS = ["model", "train_size", "units", "hyperplanes", "threshold", "seed", "momentum"]
VALUES = ["error", "from_network"]


def measure(quick: bool) -> Iterator[Part]:
    """Yield the only part; it is the same when quick."""
    yield part(released, commit_of_values=COMMIT[:7])


def released(commit_of_values: str) -> pd.DataFrame:
    """Read the released values, from a file or from the repository.

    Raises
    ------
    DataError
        The values are not the released ones.
    """
    file = find_file()
    if file is not None:
        table = read_file(file)
    else:
        table = read_archive(download())
    found = checksum(table)
    if found != SHA256:
        raise DataError(
            f"{file or ARCHIVE} does not have the released values: their SHA-256 is {found}, "
            f"expected {SHA256}. Delete the file to download them"
        )
    return table


def find_file() -> Path | None:
    """Return the file of released values in the data folder, or beside it; None without one."""
    folder = Path(os.environ.get(DATA_VARIABLE, "data"))
    for file in (folder / FILE, folder.parent / "published" / FILE):
        if file.is_file():
            return file
    return None


def read_file(file: Path) -> pd.DataFrame:
    """Read the values from a file in long form: a row a model, setting and metric."""
    frame = pd.read_csv(file).rename(columns={"hidden_units": "units"})
    frame = frame[frame["model"].isin(MODELS.values())]
    thresholds = {True: "median", False: "random"}
    frame["threshold"] = frame["median_init"].map(thresholds).fillna("median")
    metrics = {"val_accuracy": "error", "agreement_with_GD": "from_network"}
    frame = frame[frame["metric"].isin(metrics)]
    frame["metric"] = frame["metric"].map(metrics)
    frame["value"] = 1.0 - frame["value"]
    wide = frame.set_index([*KEYS, "metric"])["value"].unstack().reset_index()
    return arranged(wide)


def download() -> Path:
    """Download the archive of the repository into the cache, and return its file.

    Raises
    ------
    DataError
        There is no network, or pooch is not installed.
    """
    cure = f"Put {FILE} into the folder that {DATA_VARIABLE} names"
    try:
        import pooch
    except ImportError as error:
        raise DataError(
            f"the released values are downloaded by pooch: pip install 'implicit-bias[images]'. "
            f"{cure}"
        ) from error
    try:
        # GitHub may compress the archive anew, so that not its bytes but its values are verified.
        return Path(pooch.retrieve(ARCHIVE, None, fname=f"implicit-bias-glns-{COMMIT[:7]}.zip"))
    except OSError as error:  # of requests, too
        raise DataError(f"cannot download {ARCHIVE}: {error}. {cure}") from error


def read_archive(archive: Path) -> pd.DataFrame:
    """Read the values from the archive of the repository."""
    rows = []
    name = re.compile(r"/data/(\w+)/([^/]+)/(?:(\w+)/)?(metrics|accs)\.csv$")
    with zipfile.ZipFile(archive) as files:
        for path in files.namelist():
            place = name.search(path)
            if place is None:
                continue
            kind, setting, objective, content = place.groups()
            if kind == "deep_gln_cp":
                objective = setting.partition("constraints_")[2]
            model = MODELS.get((kind, objective))
            if model is None:
                continue
            with files.open(path) as file:
                values = read_values(pd.read_csv(file), content)
            rows.append({"model": model, **read_setting(setting, model), **values})
    return arranged(pd.DataFrame(rows))


def read_values(frame: pd.DataFrame, content: str) -> dict[str, float]:
    """Return error and disagreement from one file of the archive."""
    if content == "metrics":  # one row an epoch
        accuracy = frame["val_acc"].dropna().iloc[-1]
        return {"error": 1.0 - accuracy, "from_network": float("nan")}
    accuracies = frame.set_index("type")["acc"]
    return {
        "error": 1.0 - accuracies["val"],
        "from_network": 1.0 - accuracies.get("comparison", float("nan")),
    }


def read_setting(name: str, model: str) -> dict[str, Any]:
    """Read a setting from the name of its folder, "shd_1-ld_10-cs_1-mom_0.0-ts_500-mi_True"."""
    options = dict(re.findall(r"(shd|ld|cs|mom|ts|mi|hd|is)_([\w.]+)", name.partition("-con")[0]))
    return {
        "train_size": int(options["ts"]),
        "units": int(options.get("ld") or options.get("hd") or 1),
        "hyperplanes": int(options.get("shd", 1)),
        "threshold": "random" if options.get("mi") == "False" else "median",
        "seed": int(options.get("cs") or options["is"]),
        "momentum": float(options.get("mom", "nan")),
    }


def arranged(frame: pd.DataFrame) -> pd.DataFrame:
    """Sort rows and columns, with six digits, as in the file."""
    values = frame[VALUES].astype(float).round(6)
    table = pd.concat([frame[KEYS], values], axis=1)
    table["momentum"] = table["momentum"].astype(float)
    return table.sort_values(KEYS, ignore_index=True)


def checksum(table: pd.DataFrame) -> str:
    """Return the SHA-256 of a table of values, written as CSV with six digits."""
    text = table.to_csv(index=False, float_format="%.6f", lineterminator="\n")
    return hashlib.sha256(text.encode()).hexdigest()


def numbers(frame: pd.DataFrame) -> dict[str, Any]:
    """Say how many values are released."""
    return {"values": len(frame), "failures": int(frame["error"].isna().sum())}
