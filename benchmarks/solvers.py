"""Time the native solver against CVXPY's on one SVM-GLN, side by side in one run.

Each solver gets the same `MarginProblem`; each answer is graded by the same `certify`. The
native solver runs before and after each reference, so that the ratio compares neighbours in
time; the median of its runs counts.

    python benchmarks/solvers.py                         # MNIST, N=500, H=10, C=2: minutes
    python benchmarks/solvers.py --dataset digits --train-size 150 --units 5     # seconds
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Annotated

import pandas as pd
import torch
import typer
from rich.console import Console
from rich.table import Table

from implicit_bias.experiments.setting import Setting, fit_models, load_data
from implicit_bias.solvers import Solution, solve

NATIVE_RUNS = 5


def main(
    dataset: str = "mnist",
    train_size: int = 500,
    units: int = 10,
    hyperplanes: int = 1,
    tol: Annotated[float, typer.Option(help="Certified gap asked of the native solver.")] = 1e-9,
    references: Annotated[str, typer.Option(help="Separated by commas.")] = "ecos,clarabel,scs",
    out: Annotated[Path | None, typer.Option(help="Parquet file of the results.")] = None,
) -> None:
    """Print, and save on request, time and certified gap of each solver."""
    setting = Setting(
        dataset=dataset,
        protocol="lippl2022" if dataset == "mnist" else "default",
        train_size=train_size,
        units=units,
        hyperplanes=hyperplanes,
        models=("svm-gln",),
    )
    data = load_data(setting)
    train = data.parts.train
    ((_, model),) = fit_models(setting, data)  # warms up, too
    view = model.margin_view()
    assert view is not None
    problem = view.structure.problem(train.X, train.y)

    def native() -> list[Solution]:
        return [solve(problem, "interior-point", tol) for _ in range(NATIVE_RUNS)]

    rows = []
    before = native()
    for name in references.split(","):
        # 1e-7 for the reference's own tolerance: about what CVXPY's defaults reach.
        reference = solve(problem, name, 1e-6)
        after = native()
        seconds = statistics.median(run.stats.seconds for run in before + after)
        before = after
        rows.append(_row(name, reference, seconds))
    seconds = statistics.median(run.stats.seconds for run in before)
    native_row = {**_row("interior-point", before[0], seconds), "seconds": seconds}
    frame = pd.DataFrame([native_row, *rows])
    frame["ratio"] = frame["seconds"] / frame["native_seconds"]
    frame = frame.assign(dataset=dataset, N=train_size, H=units, contexts=2**hyperplanes)
    _show(frame)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        frame.to_parquet(out)


def _row(name: str, solution: Solution, native_seconds: float) -> dict[str, object]:
    return {
        "solver": name,
        "status": solution.status.name,
        "seconds": solution.stats.seconds,
        "native_seconds": native_seconds,
        "lower": solution.certificate.lower,
        "upper": solution.certificate.upper,
        "gap": solution.certificate.gap,
        "iterations": solution.stats.iterations,
        "threads": torch.get_num_threads(),
    }


def _show(frame: pd.DataFrame) -> None:
    table = Table(
        "solver", "status", "seconds", "native seconds beside it", "ratio", "certified gap"
    )
    for row in frame.to_dict(orient="records"):
        table.add_row(
            row["solver"],
            row["status"],
            f"{row['seconds']:.3f}",
            f"{row['native_seconds']:.3f}",
            f"{row['ratio']:.0f}",
            f"{row['gap']:.1e}",
        )
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
