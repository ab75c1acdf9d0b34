"""GD-ReLU against SVM-RC, SVM-LC and SVM-HL on MNIST, beside the published values.

    IMPLICIT_BIAS_DATA=... python benchmarks/lippl2022/relu.py --published lippl2022.csv

Each cell (N, H, seed) is trained and solved with the published protocol. Where samples cannot be
separated, those that the soft margin misclassifies are left out, and counted: the published
solver failed on such cells.

Source: Lippl, Abbott, Chung (2022), section 5, figures 3 and 5.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer
from rich.console import Console
from rich.table import Table
from sklearn.exceptions import ConvergenceWarning

from implicit_bias.comparison import compare
from implicit_bias.experiments.setting import Setting, fit_models, load_data

MODELS = ("gd-relu", "svm-rc", "svm-lc", "svm-hl")
PUBLISHED_NAMES = {"gd-relu": "GD-ReLU", "svm-rc": "SVM-RC", "svm-lc": "SVM-LC", "svm-hl": "SVM-HL"}


def main(
    train_size: int = 1000,
    units: str = "10,20,50,100",
    seeds: str = "1,2,3",
    momentum: float = 0.9,
    published: Annotated[Path | None, typer.Option(help="CSV of the published values.")] = None,
    out: Path = Path("benchmarks/results/relu.parquet"),
) -> None:
    """Fit all cells, print the table of means, and save every cell."""
    rows = []
    for width in (int(text) for text in units.split(",")):
        for seed in (int(text) for text in seeds.split(",")):
            setting = Setting(
                dataset="mnist",
                protocol="lippl2022",
                train_size=train_size,
                models=MODELS,
                units=width,
                seed=seed,
                momentum=momentum,
                on_failure="drop",
            )
            rows += cell_rows(setting)
    frame = pd.DataFrame(rows)
    if published is not None:
        frame = frame.merge(published_values(published, momentum), how="left")
    out.parent.mkdir(parents=True, exist_ok=True)
    frame.to_parquet(out)
    show(frame)


def cell_rows(setting: Setting) -> list[dict[str, Any]]:
    """Fit one cell; one row a model."""
    data = load_data(setting)
    train, validation = data.parts.train, data.parts.validation
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the rows say what was left out
        models = dict(fit_models(setting, data))
    result = compare(models, validation.X, validation.y, train=(train.X, train.y))
    rows = []
    for name in MODELS:
        view = models[name].margin_view()
        solution = None if view is None else view.solution
        disagreement = 0.0 if name == "gd-relu" else result.pair("gd-relu", name).disagreement
        rows.append(
            {
                "train_size": setting.train_size,
                "hidden_units": setting.units,
                "seed": setting.seed,
                "model": name,
                "error": result.model(name).error,
                "disagreement": disagreement,
                "dropped": 0 if view is None else len(view.dropped),
                "gap": None if solution is None else solution.certificate.gap,
                "status": None if solution is None else solution.status.name,
            }
        )
    return rows


def published_values(file: Path, momentum: float) -> pd.DataFrame:
    """Read the published error and disagreement of each cell; NaN where their solver failed."""
    values = pd.read_csv(file)
    values = values[values["momentum"] == momentum]
    wide = values.pivot_table(
        index=["model", "train_size", "hidden_units", "seed"], columns="metric", values="value"
    ).reset_index()
    names = {published: name for name, published in PUBLISHED_NAMES.items()}
    return pd.DataFrame(
        {
            "model": wide["model"].map(names),
            "train_size": wide["train_size"],
            "hidden_units": wide["hidden_units"],
            "seed": wide["seed"],
            "published_error": 1 - wide["val_accuracy"],
            "published_disagreement": 1 - wide["agreement_with_GD"],
        }
    ).dropna(subset="model")


def show(frame: pd.DataFrame) -> None:
    """Print means over the seeds, in per cent, with the published ones in brackets."""
    table = Table(
        "H", *[f"{name}: error" for name in MODELS], *MODELS[1:], "lc left out", "hl left out"
    )
    for width, cells in frame.groupby("hidden_units"):
        by_model = dict(list(cells.groupby("model")))
        texts = [_percent(by_model[name], "error") for name in MODELS]
        texts += [_percent(by_model[name], "disagreement") for name in MODELS[1:]]
        texts += [_left_out(by_model[name]) for name in MODELS[2:]]
        table.add_row(str(width), *texts)
    Console(width=190).print(table, "error; then disagreement with gd-relu; (published)")


def _left_out(cells: pd.DataFrame) -> str:
    """List the samples left out, seed by seed; "-" where there is no solution at all."""
    solved = cells["status"] != "NOT_SEPARABLE"
    return "/".join(
        str(n) if known else "-" for n, known in zip(cells["dropped"], solved, strict=True)
    )


def _percent(cells: pd.DataFrame, column: str) -> str:
    text = f"{100 * cells[column].mean():.1f}"
    known = cells.get(f"published_{column}", pd.Series(dtype=float)).dropna()
    return f"{text} ({100 * known.mean():.1f}, n={len(known)})" if len(known) else text


if __name__ == "__main__":
    typer.run(main)
