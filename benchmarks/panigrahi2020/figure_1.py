"""Figure 1 in one table: eigenvalues at the start, losses and steps, an activation a row."""

import math
from typing import Any

import pandas as pd

from benchmarks.panigrahi2020 import spectra, training

READS = ("spectra", "training")


def numbers(eigenvalues: pd.DataFrame, curves: pd.DataFrame) -> dict[str, Any]:
    """Return the table."""
    shares, losses = spectra.numbers(eigenvalues), training.numbers(curves)
    lines = list[dict[str, Any]]()
    for activation in training.COMPARED:
        line: dict[str, Any] = {"activation": activation}
        for n in sorted(set(eigenvalues["n"][eigenvalues["data"] == spectra.HALF])):
            share = shares[f"half_circle_{n}_{activation}"]
            line[f"λ_min/λ_max, n = {n}"] = f"{share:.2g}" if share else "below 1e-23"
        for n in (10, 50):
            line[f"loss, n = {n}"] = f"{losses[f'loss_{activation}_{n}']:.3f}"
        for n in (10, 50):
            steps = losses[f"steps_{activation}_{n}"]
            line[f"steps to 0.1, n = {n}"] = f"{steps:,.0f}" if math.isfinite(steps) else "> 10⁶"
        lines.append(line)
    return {"table": pd.DataFrame(lines)}
