"""What theorem 3 and corollary 4 guarantee in numbers, at sizes that run and beyond."""

import math
from dataclasses import asdict, fields
from typing import Any

import pandas as pd

from benchmarks.daniely2020 import parity_descent as descent
from benchmarks.harness import Experiment, Row, Rows, Verdict, rows_of, whole

RUN, LEAST, COROLLARY = "a run of ours", "least for the bound", "the proof of corollary 4"
# n, k, q and T of runs: those of the later steps, and the largest of the first step's page.
RUNS = ((11, 3, 100, 400), (13, 3, 100, 400), (1001, 3, 1000, 10000), (1001, 7, 1000, 10000))
EPS = (0.5, 0.1, 0.01)
KS = (7, 11)  # from the least of the theorem on
DELTA = 0.1


def measure(quick: bool) -> pd.DataFrame:
    """One row for each set of sizes; there is nothing to make smaller."""
    return pd.DataFrame(rows())


def rows() -> Rows:
    """Sizes of runs, the least for which the bound is eps, and those of corollary 4."""
    for n, k, pairs, steps in RUNS:
        terms = asdict(descent.theorem_3_terms(n, k, pairs, steps))
        yield _row(RUN, k, math.nan, descent.ParitySizes(pairs, steps, n)) | terms
    for k in KS:
        for eps in EPS:
            yield _row(LEAST, k, eps, descent.sizes_for(eps, k, DELTA))
            yield _row(COROLLARY, k, eps, descent.corollary_4_sizes(eps, k, DELTA))


def _row(what: str, k: int, eps: float, sizes: descent.ParitySizes) -> Row:
    return {
        "what": what,
        "k": k,
        "eps": eps,
        **asdict(sizes),
        "bound": descent.theorem_3_order(sizes.n_bits, k, sizes.pairs, sizes.steps),
    }


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """Sizes and bounds, with the steps that are published for them."""
    steps = map(descent.published_step, frame["k"], frame["pairs"], frame["steps"])
    eps = frame["eps"].map("{:g}".format).replace("nan", "–")
    return frame.assign(eps=eps, step=list(steps))


def found(frame: pd.DataFrame) -> str:
    """In words."""
    runs, printed, least = (frame[frame["what"] == what] for what in (RUN, COROLLARY, LEAST))
    one: Any = rows_of(runs)[0]
    first: Any = rows_of(least)[0]
    names = [each.name for each in fields(descent.Theorem3Terms)]
    terms = ", ".join(f"{one[name]:.3g}" for name in names)
    over, proved = (rows["bound"] / rows["eps"] for rows in (printed, least))
    return (
        f"At sizes polynomial in k, 1/eps and log(1/delta) the bound of theorem 3 is at most "
        f"{proved.max():.2f} eps. For eps = {first['eps']:g} and k = {first['k']}, the least k of "
        f"the theorem, they are q = {first['pairs']:.0e} pairs, T = {first['steps']:.0e} steps and "
        f"n = {first['n_bits']:.0e} bits. The exponents of the corollary's one-line proof are "
        f"others: at its sizes the bound is {over.min():.2g} to {over.max():.3g} times eps, and "
        "the ratio grows as eps falls.\n\n"
        f"At sizes that run the bound is {runs['bound'].min():.2g} or more, and the loss of g = 0 "
        f"is 1: there it says nothing. The six terms of its proof at n = {one['n_bits']:.0f}, k = "
        f"{one['k']}, q = {one['pairs']:.0f}, T = {one['steps']:.0f}, constants 1, are {terms}."
    )


def verdict(frame: pd.DataFrame) -> Verdict:
    """Judge the claim by the rule."""
    least = frame[frame["what"] == LEAST]
    return Verdict.of((least["bound"] <= least["eps"]).all())


EXPERIMENT = Experiment(whole(measure), found, tabulate, verdict)
