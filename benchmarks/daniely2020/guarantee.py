"""What theorem 3 and corollary 4 guarantee in numbers, at sizes that run and beyond."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pandas as pd

from benchmarks.daniely2020.parity_descent import (
    ParitySizes,
    corollary_4_sizes,
    published_step,
    sizes_for,
    theorem_3_order,
    theorem_3_terms,
)
from benchmarks.harness import Experiment, Verdict, rows_of, whole

RUN, LEAST, COROLLARY = "a run of ours", "least for the bound", "corollary 4 as printed"
# n, k, q and T of runs: those of the later steps, and the largest of the first step's page.
RUNS = ((11, 3, 100, 400), (13, 3, 100, 400), (1001, 3, 1000, 10000), (1001, 7, 1000, 10000))
EPS = (0.5, 0.1, 0.01)
DELTA = 0.1


def measure(quick: bool) -> pd.DataFrame:
    """One row for each set of sizes; there is nothing to make smaller."""
    return pd.DataFrame(rows())


def rows() -> Iterator[dict[str, Any]]:
    """Sizes of runs, the least for which the bound is eps, and those of corollary 4."""
    for n, k, pairs, steps in RUNS:
        terms = asdict(theorem_3_terms(n, k, pairs, steps))
        yield _row(RUN, k, math.nan, ParitySizes(pairs, steps, n)) | terms
    for k in (3, 7):
        for eps in EPS:
            yield _row(LEAST, k, eps, sizes_for(eps, k))
            yield _row(COROLLARY, k, eps, corollary_4_sizes(eps, k, DELTA))


def _row(what: str, k: int, eps: float, sizes: ParitySizes) -> dict[str, Any]:
    return {
        "what": what,
        "k": k,
        "eps": eps,
        **asdict(sizes),
        "bound": theorem_3_order(sizes.n_bits, k, sizes.pairs, sizes.steps),
        "width_needed": k**7 * math.log(k / DELTA),
        "bits_needed": float(k**10),
    }


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """Sizes and bounds."""
    return pd.DataFrame(
        {
            "sizes": row["what"],
            "k": str(row["k"]),
            "eps": "–" if math.isnan(row["eps"]) else f"{row['eps']:g}",
            "q": f"{row['pairs']:.3g}",
            "T": f"{row['steps']:.3g}",
            "n": f"{row['n_bits']:.3g}",
            "bound on the loss": f"{row['bound']:.3g}",
            "eta_t": f"{published_step(row['k'], row['pairs'], row['steps']):.1g}",
        }
        for row in rows_of(frame)
    )


def found(frame: pd.DataFrame) -> str:
    """In words."""
    runs, printed = frame[frame["what"] == RUN], frame[frame["what"] == COROLLARY]
    at_half = frame[(frame["what"] == LEAST) & (frame["eps"] == EPS[0])]
    least: Any = {row["k"]: row for row in rows_of(at_half)}
    one: Any = rows_of(runs)[0]
    terms = ", ".join(
        f"{one[name]:.3g}"
        for name in (
            "regulariser",
            "moved_units",
            "moved_by_decay",
            "comparison",
            "first_layer",
            "gradients",
        )
    )
    over = printed["bound"] / printed["eps"]
    return (
        f"At sizes that run the bound is {runs['bound'].min():.2g} or more, and the loss of g = 0 "
        f"is 1: it says nothing. (The six terms of its proof at n = {one['n_bits']:.0f}, k = "
        f"{one['k']}, q = {one['pairs']:.0f}, T = {one['steps']:.0f}, constants 1: {terms}.) For a "
        f"bound of at most {EPS[0]:g} there suffice q = {least[3]['pairs']:.1e} pairs and n = "
        f"{least[3]['n_bits']:.0e} bits with k = 3, and q = {least[7]['pairs']:.0e} and n "
        f"= {least[7]['n_bits']:.0e} with k = 7, the least k of the theorem. At the sizes of "
        f"corollary 4 as printed the bound is {over.min():.2g} to {over.max():.3g} times eps, and "
        "the ratio grows as eps falls: with q of the order of eps^-1 k^16 the term k^8 / sqrt(q) "
        "is of the order of sqrt(eps). It takes q of the order of eps^-2 k^16, with which T is "
        "right as printed, and then n of the order of eps^-6 k^34.\n\n"
        "The theorem also asks for k <= O(n^(1/10)) and q >= Omega(k^7 log(k/delta)): with "
        f"constants 1 and delta = {DELTA:g}, n >= {least[7]['bits_needed']:.1e} and q >= "
        f"{least[7]['width_needed']:.1e} for k = 7."
    )


def verdict(frame: pd.DataFrame) -> Verdict:
    """Judge the claim by the rule."""
    printed = frame[frame["what"] == COROLLARY]
    ratio = (printed["bound"] / printed["eps"]).groupby(printed["k"])
    return Verdict.of((ratio.max() <= 4).all(), False)


EXPERIMENT = Experiment(measure=whole(measure), found=found, verdict=verdict, tabulate=tabulate)
