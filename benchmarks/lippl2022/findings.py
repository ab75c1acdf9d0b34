"""What the pages say with numbers: from the tables of the grids and of the published values."""

from collections.abc import Mapping
from functools import lru_cache

import pandas as pd
from matplotlib.figure import Figure

from benchmarks.harness import Row
from benchmarks.lippl2022 import claims, figures
from benchmarks.lippl2022.claims import percent
from benchmarks.lippl2022.published import NOT_THE_SAME, SAME, telling
from benchmarks.lippl2022.values import Tables, all_values
from benchmarks.page import Judged, Kept

VERSIONS = ("version", "commit", "python", "numpy", "scipy", "torch", "cvxpy")


@lru_cache(maxsize=1)
def _of(kept: Kept) -> tuple[Tables, pd.DataFrame]:
    """Read all tables, and lay out what they say in one."""
    tables = Tables.read(kept)
    return tables, all_values(tables)


@lru_cache(maxsize=1)
def judge(kept: Kept) -> Mapping[str, Judged]:
    """Judge every claim."""
    tables, values = _of(kept)
    return claims.judge(values, tables)


def draw(name: str, kept: Kept) -> Figure:
    """Draw a picture of several tables."""
    tables, values = _of(kept)
    return figures.draw(name, values, tables)


def words(kept: Kept) -> Row:
    """Return the values that the texts of the pages name."""
    tables, _ = _of(kept)
    known, singly = telling(tables.points), kept["exact_networks"]
    networks = known[known["model"].str.startswith("GD")]
    l2 = known[(known["model"] == "SVM-L2") & (known["metric"] == "val_accuracy")]
    return {
        "networks": f"{(networks['verdict'] == SAME[0]).sum():,} of {len(networks):,}",
        "singly": f"{(singly['images'] == 0).sum()} of {len(singly)}",
        "l2_same": f"{(l2['verdict'] == SAME[0]).sum()} of {len(l2)}",
        "compared": len(known),
        "same": int(known["verdict"].isin(SAME).sum()),
        "part": percent(known["verdict"].isin(SAME).mean()),
        "origin": origin(tables.cells),
    }


def origin(cells: pd.DataFrame) -> str:
    """Say what computed the cells, and when."""
    found = {name: sorted({_version(each) for each in cells[name].dropna()}) for name in VERSIONS}
    first, last = cells["finished"].min()[:10], cells["finished"].max()[:10]
    listed = "; ".join(f"{name} {', '.join(versions)}" for name, versions in found.items())
    return f"They were computed from {first} to {last} by: {listed}."


def _version(name: str) -> str:
    """Abbreviate a commit, and say whether files differed from it."""
    return name.removesuffix("+")[:12] + (" and changes" if name.endswith("+") else "")


# --- tables ------------------------------------------------------------------------------------


def differing(kept: Kept) -> pd.DataFrame:
    """List the published values that ours are not."""
    points = _of(kept)[0].points
    rows = points[points["verdict"].isin(NOT_THE_SAME)]
    setting = [
        f"N = {row['train_size']:,}, H = {row['units']}, k = {row['hyperplanes']}, "
        f"{row['threshold']}, seed {row['seed']}"
        for row in rows.to_dict("records")
    ]
    columns = rows[["model", "metric", "verdict", "reason"]].replace(
        {"reason": {"": "not explained"}}
    )
    columns.insert(2, "setting", setting)
    columns.insert(3, "released", rows["theirs"].map("{:.4f}".format))
    columns.insert(4, "ours", rows["ours"].map("{:.4f}".format))
    return columns.assign(cell=rows["cell"].str[:8])
