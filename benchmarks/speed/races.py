"""The native solver beside other solvers, each row one problem, graded by the same certificate.

Solvers run in a process with 8 GiB, on one thread, and peers have 120 seconds by the clock on each
row. Times are those of the processor, as they depend less on what else the machine does; those by
the clock are kept, too. A solver is asked for one tolerance after another, in one formulation after
another, until its excess over the best certified lower bound is 1e-6; the fastest such run counts,
and without one the nearest. The native solver runs before and after it, so that a ratio is one of
neighbours in time.

The problems are the parameters of `datasets`, the solvers those of `solvers`, and the grades those
of `objective`, as `benchopt run benchmarks/speed` has them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.bench import Part, part, rows_of
from benchmarks.processes import TIME_LIMIT, NoAnswer, Worker
from benchmarks.speed.bases import settings
from benchmarks.speed.guarded import started
from benchmarks.speed.objective import Objective

COST = 40
NATIVE = "native"
PEERS = ("liblinear", "libsvm", "highs", "osqp", "clarabel", "ecos", "scs")
NAMES = {
    "liblinear": "LIBLINEAR",
    "libsvm": "libsvm",
    "highs": "HiGHS",
    "osqp": "OSQP",
    "clarabel": "Clarabel",
    "ecos": "ECOS",
    "scs": "SCS",
}
# In the order in which they are measured: first those that take seconds.
DATASETS = ("tables", "linear", "wide", "gated", "many")
QUICK = ("tables", "wide")
# The excess that is asked for.
ENOUGH = 1e-6
MOST_RUNS = 5
# Another formulation may take twice the time of the best one so far, and so many seconds.
PATIENCE = 10.0
ANSWERED, UNSUITED = "answered", "unsuited"


# --- measuring -----------------------------------------------------------------------------------


def measure(quick: bool) -> Iterator[Part]:
    """Yield a part for each problem and solver."""
    for problem in problems(quick):
        for solver in (NATIVE, *PEERS):
            yield part(race, problem=problem, solver=solver)


@cache
def problems(quick: bool = False) -> dict[str, Any]:
    """Return the data sets by the words of their rows."""
    found = dict[str, Any]()
    for name in QUICK if quick else DATASETS:
        kind = import_module(f"benchmarks.speed.datasets.{name}").Dataset
        for setting in settings(kind.test_parameters if quick else kind.parameters):
            dataset = kind.get_instance(**setting)
            found[dataset.words] = dataset
    return found


@lru_cache(maxsize=1)
def posed(problem: str) -> Objective:
    """Return the objective of a row, with its problem and a first lower bound."""
    dataset = (problems() | problems(quick=True))[problem]
    objective = Objective.get_instance()
    objective.set_data(**dataset.get_data())
    return objective


def race(problem: str, solver: str) -> Iterator[dict[str, Any]]:
    """Yield the row of a solver: its best run, or why it has no answer."""
    objective = posed(problem)
    kind = import_module(f"benchmarks.speed.solvers.{solver}").Solver
    suited = [
        setting
        for setting in settings(kind.parameters)
        if not kind.unsuited(objective.problem, setting["formulation"])
    ]
    facts = {"reference": objective.reference.lower}
    if not suited:
        yield row_of(UNSUITED) | facts
        return
    beside = list[float]()
    if solver != NATIVE:
        beside.append(native_seconds(problem))
    runner = kind.get_instance(**suited[0])
    left = kind.time_limit
    best = row_of(UNSUITED)
    for setting in suited:
        if reached(best) and setting["formulation"] == best["formulation"]:
            continue  # a smaller tolerance takes longer
        # What takes so much longer than another formulation is not the best one.
        seconds = min(left, 2 * best["wall_seconds"] + PATIENCE) if reached(best) else left
        if seconds <= 0:
            break
        runner.formulation = setting["formulation"]
        runner.tol = setting["tol"]
        row = row_of(ANSWERED) | setting
        began = time.perf_counter()
        try:
            runner.use(worker_of(problem))
            began = time.perf_counter()
            found = runner.measured(runs=MOST_RUNS, seconds=seconds)
        except NoAnswer as ended:
            row |= {"outcome": ended.outcome, "detail": ended.detail}
            row["solve_seconds"] = ended.seconds
            worker_of.cache_clear()
        else:
            grade = objective.evaluate_result(**found.answer._asdict())
            row |= grade | {"solve_seconds": found.seconds, "gib": found.gib}
            row["wall_seconds"] = found.wall_seconds
        left -= time.perf_counter() - began
        if better(row, best):
            best = row
    if solver != NATIVE:
        beside.append(native_seconds(problem))
        best["native_seconds"] = float(np.mean(beside))
    yield best | facts


def row_of(outcome: str) -> dict[str, Any]:
    """Return a row without numbers."""
    facts: dict[str, Any] = {"outcome": outcome, "detail": "", "formulation": ""}
    facts |= dict.fromkeys(("tol", "solve_seconds", "wall_seconds", "native_seconds"), np.nan)
    return facts | dict.fromkeys(("gib", "value", "lower", "gap", "excess"), np.nan)


def reached(row: Mapping[str, Any]) -> bool:
    """Whether a row is as near to the optimum as is asked."""
    return bool(row["excess"] <= ENOUGH)


def better(row: Mapping[str, Any], best: Mapping[str, Any]) -> bool:
    """Whether a row is near enough in less time, or nearer; any row is better than none."""
    if reached(row) and reached(best):
        return bool(row["solve_seconds"] < best["solve_seconds"])
    if np.isnan(row["excess"]):
        return best["outcome"] == UNSUITED
    return not row["excess"] >= best["excess"]


@lru_cache(maxsize=1)
def worker_of(problem: str) -> Worker:
    """Return the process of a problem, which all of its solvers use in turn."""
    return started(**posed(problem).get_objective())


def native_seconds(problem: str) -> float:
    """Time the native solver, before or after another one."""
    kind = import_module(f"benchmarks.speed.solvers.{NATIVE}").Solver
    native = kind.get_instance(**next(settings(kind.parameters)))
    native.use(worker_of(problem))
    seconds: float = native.measured(runs=MOST_RUNS, seconds=native.time_limit).seconds
    return seconds


# --- the page ------------------------------------------------------------------------------------


def graded(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that took part; their excess is over the best lower bound of any solver."""
    rows = frame[frame["outcome"] != UNSUITED].copy()
    bounds = rows.groupby("problem", sort=False)[["lower", "reference"]].transform("max")
    lower = bounds.max(axis=1)
    rows["excess"] = (rows["value"] / lower - 1.0).clip(lower=0.0)
    return rows


def best_of(peers: pd.DataFrame) -> dict[str, Any] | None:
    """Return the fastest peer that came near enough, or else the nearest one; None without any."""
    answered = peers[peers["outcome"] == ANSWERED]
    if answered.empty:
        return None
    near = answered[answered["excess"] <= ENOUGH]
    if near.empty:
        return next(rows_of(answered.nsmallest(1, "excess")))
    return next(rows_of(near.nsmallest(1, "solve_seconds")))


def numbers(frame: pd.DataFrame) -> dict[str, Any]:
    """Return the table, and what the page says of it."""
    whole = frame.groupby("problem")["solver"].transform("size") == len(PEERS) + 1
    rows = graded(frame[whole])
    lines = list[dict[str, str]]()
    ratios = list[float]()
    alone = 0
    for problem, group in rows.groupby("problem", sort=False):
        native = next(rows_of(group[group["solver"] == NATIVE]))
        peers = group[group["solver"] != NATIVE]
        best = best_of(peers)
        if best is not None and best["excess"] <= ENOUGH:
            ratios.append(best["solve_seconds"] / best["native_seconds"])
        else:
            alone += 1
        others = peers if best is None else peers[peers["solver"] != best["solver"]]
        lines.append(line_of(str(problem), native, best, others))
    ratio = pd.Series(ratios, dtype=float)
    beside = rows.groupby("problem")["native_seconds"]
    stopped = rows.loc[rows["outcome"] == TIME_LIMIT, "solve_seconds"]
    missing = [name for name in problems() if name not in set(rows["problem"])]
    return {
        "table": pd.DataFrame(lines),
        "problems": len(lines),
        "missing": f"Not measured yet: {'; '.join(missing)}." if missing else "",
        "stopped_least": stopped.min(),
        "stopped_most": stopped.max(),
        "native_faster": int((ratio > 1).sum()),
        "peer_faster": int((ratio < 1).sum()),
        "alone": alone,
        "most": ratio.max(),
        "least": ratio.min(),
        "middle": ratio.median(),
        "spread": (beside.max() / beside.min() - 1.0).median(),
    }


def line_of(
    problem: str, native: dict[str, Any], best: dict[str, Any] | None, others: pd.DataFrame
) -> dict[str, str]:
    """Write a line of the table; the faster time is bold."""
    line = {
        "problem": problem,
        "native, s": f"**{digits(native['solve_seconds'])}**",
        "best peer, s": "none",
        "ratio": "",
        "excess": f"{native['excess']:.0e}",
        "excess of the peer": "",
        "MiB": f"{1024 * native['gib']:,.0f}",
        "MiB of the peer": "",
        "other peers, s": "; ".join(said_of(row) for row in rows_of(others)),
    }
    if best is None:
        return line
    ours = best["native_seconds"]
    theirs = best["solve_seconds"]
    line["native, s"] = f"**{digits(ours)}**"
    line["best peer, s"] = f"{NAMES[best['solver']]} {digits(theirs)}"
    if theirs < ours and best["excess"] <= ENOUGH:
        line["native, s"] = digits(ours)
        line["best peer, s"] = f"{NAMES[best['solver']]} **{digits(theirs)}**"
    line["ratio"] = digits(theirs / ours)
    line["excess of the peer"] = f"{best['excess']:.0e}"
    line["MiB of the peer"] = f"{1024 * best['gib']:,.0f}"
    return line


def digits(value: float) -> str:
    """Write a number of two digits, or a whole one."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def said_of(row: Mapping[str, Any]) -> str:
    """Write what another solver took, or why it has no answer."""
    name = NAMES[row["solver"]]
    if row["outcome"] == TIME_LIMIT:
        return f"{name} > {digits(row['solve_seconds'])}"
    if row["outcome"] != ANSWERED:
        return f"{name}: {row['outcome']}"
    near = "" if row["excess"] <= ENOUGH else f" to {row['excess']:.0e}"
    return f"{name} {digits(row['solve_seconds'])}{near}"
