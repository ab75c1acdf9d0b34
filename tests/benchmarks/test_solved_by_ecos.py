"""SVMs solved once more by ECOS: which cells, the program, and what is said of them."""

from typing import Any

import pandas as pd

from benchmarks.lippl2022 import solved_by_ecos
from benchmarks.lippl2022.as_published import by_ecos
from cases import separable
from implicit_bias import certify, solve


def agreement(model: str, width: int, off: int, **other: Any) -> dict[str, Any]:
    """Return a row of the exact agreements, this many images off."""
    row = {"model": model, "train_size": 500, "hidden_units": width, "hyperplanes": 1, "seed": 1}
    row |= {"median_init": None, "momentum": 0.0, "released": 0.8, "drawn": float("nan")}
    row |= {"agreement": 0.8 + off / 12_000, "network_images": 0.0, "network_loss": 0.0}
    return row | {"svm_images": float(off)} | other


def test_cells_are_those_that_miss_and_controls() -> None:
    rows = [
        agreement("GD-ReLU", 20, 1),
        agreement("GD-ReLU", 10, 0),
        agreement("GD-GLN", 10, 3, hyperplanes=2, median_init=False),
        agreement("GD-GLN", 10, 0, median_init=False),
        agreement("GD-GLN", 10, 0, median_init=False, seed=2),
        agreement("GD-GLN", 10, 5, median_init=True),  # in other contexts than it was trained in
        agreement("GD-ReLU", 100, 5),  # hours of ECOS
        agreement("GD-ReLU", 20, 2, train_size=1000),
        agreement("GD-ReLU", 20, 2, network_images=4.0),  # not the released network
        agreement("GD-shallow", 1, 2),
    ]
    chosen = solved_by_ecos.chosen(pd.DataFrame(rows))
    assert [(cell.model, cell.hidden_units, cell.hyperplanes) for cell in chosen] == [
        ("GD-ReLU", 20, 1),
        ("GD-ReLU", 10, 1),
        ("GD-GLN", 10, 2),
        ("GD-GLN", 10, 1),
    ]
    assert [solved_by_ecos.size(cell) for cell in chosen] == [15_700, 7_850, 31_400, 15_700]


def test_ecos_solves_the_same_program() -> None:
    problem = separable("gln")
    coef, _ = by_ecos(problem)
    optimum = solve(problem, tol=1e-9).certificate
    assert optimum.lower <= certify(problem, coef=coef).upper <= (1 + 1e-3) * optimum.upper
