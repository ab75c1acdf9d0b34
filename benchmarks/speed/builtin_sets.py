"""The classification sets that scikit-learn brings along, as they are and standardised.

Each pair of classes of iris, wine, breast cancer and the digits, with and without an intercept,
hard margin: "auto" beside ECOS, Clarabel and scikit-learn's SVC (C = 1e10, which always has an
intercept). Peers run in a process of their own, with a limit on their time.
"""

import itertools
import math
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from sklearn import datasets
from sklearn.svm import SVC

from benchmarks.harness import Experiment, Frames, Options, Row, Rows, Run, Verdict, growing, option
from benchmarks.processes import Pipe, ProcessEnded
from benchmarks.speed import runs
from benchmarks.speed.exact import find_lies
from implicit_bias import MarginProblem, Status, certify, solve
from implicit_bias.base.validation import Array
from implicit_bias.bounds.balance import repaired

SETS: dict[str, Callable[..., tuple[Array, Array]]] = {
    "iris": datasets.load_iris,
    "wine": datasets.load_wine,
    "breast cancer": datasets.load_breast_cancer,
    "digits": datasets.load_digits,
}
TOLERANCE = 1e-6
SVC_C = 1e10
PEERS = ("ecos", "clarabel", "svc")
NAMES = {"ecos": "ECOS", "clarabel": "Clarabel", "svc": "SVC"}
# Seconds for a process to import what it needs.
STARTING = 120.0


@dataclass(frozen=True)
class Case:
    """Two classes of a set."""

    data: str
    first: int
    second: int
    standardised: bool
    intercept: bool

    def problem(self) -> MarginProblem:
        """Its linear hard-margin problem."""
        X, target = _load(self.data)
        chosen = (target == self.first) | (target == self.second)
        X, y = X[chosen], np.where(target[chosen] == self.second, 1.0, -1.0)
        if self.standardised:
            spread = X.std(axis=0)
            X = (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
        one = np.ones((len(X), 1))
        return MarginProblem(X, y, one, np.zeros(1, np.int64), intercept=self.intercept)


@cache
def _load(name: str) -> tuple[Array, Array]:
    return SETS[name](return_X_y=True)


def cases(names: tuple[str, ...] = tuple(SETS)) -> Iterator[Case]:
    """All pairs of classes, ways to scale, and intercepts."""
    for name in names:
        pairs = itertools.combinations(np.unique(_load(name)[1]).tolist(), 2)
        for (first, second), standardised, intercept in itertools.product(
            pairs, (False, True), (False, True)
        ):
            yield Case(name, first, second, standardised, intercept)


# --- peers -------------------------------------------------------------------------------------


def _by_peer(peers: runs.Renewed, name: str, problem: MarginProblem, limit: float) -> Row:
    """Seconds and upper bound of a peer, and how it ended."""
    try:
        (found,) = peers.asked((name, problem), limit)
    except ProcessEnded as ended:
        return {"status": runs.outcome(ended)["outcome"], "seconds": math.nan, "gap": math.nan}
    return found


def _work(pipe: Pipe) -> None:
    warnings.simplefilter("ignore")
    for name in PEERS:
        _solved(name, runs.warm_up())
    pipe.send("ready")
    while True:
        pipe.send(_solved(*pipe.recv()))


def _solved(name: str, problem: MarginProblem) -> Row:
    began = time.perf_counter()
    if name != "svc":
        solution = solve(problem, name, TOLERANCE)
        seconds = time.perf_counter() - began
        return {
            "status": solution.status.name,
            "seconds": seconds,
            "gap": solution.certificate.gap,
        }
    machine = SVC(C=SVC_C, kernel="linear").fit(problem.X, problem.y)
    seconds = time.perf_counter() - began
    alpha = np.zeros(problem.n_samples)
    alpha[machine.support_] = np.abs(machine.dual_coef_[0])
    alpha = repaired(problem, alpha)
    gap = certify(problem, machine.coef_, alpha).gap
    return {"status": "ANSWERED", "seconds": seconds, "gap": gap}


# --- the table ---------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class SetOptions(Options):
    """What one can ask of it."""

    time_limit: float = option(10.0, "seconds of a peer")


def measure(run: Run[SetOptions]) -> Frames:
    """Solve the cases that are not in the table."""
    with closing(runs.Renewed(_work, STARTING)) as peers:
        solve(runs.warm_up())

        def row(**of_case: Any) -> Rows:
            case = Case(**of_case)
            problem = case.problem()
            row = _answer(problem) | {"limit": run.options.time_limit}
            for name in PEERS if case.intercept else PEERS[:2]:
                found = _by_peer(peers, name, problem, run.options.time_limit)
                row |= {f"{name}_{key}": value for key, value in found.items()}
            yield row

        yield from growing(run, map(asdict, cases(("iris",)) if run.quick else cases()), row)


def _answer(problem: MarginProblem) -> Row:
    solution = solve(problem, tol=TOLERANCE)
    return {
        "N": problem.n_samples,
        "status": solution.status.name,
        "solver": solution.stats.solver,
        "detail": solution.stats.detail,
        **runs.bounds_of(solution.certificate),
        "seconds": solution.stats.seconds,
        "lies": " ".join(find_lies(solution, problem, TOLERANCE)),
    }


def _answered(frame: pd.DataFrame, column: str = "status") -> pd.Series:
    return frame[column].isin([Status.OPTIMAL.name, Status.NOT_SEPARABLE.name])


def tabulate(frame: pd.DataFrame) -> Rows:
    """Count answers, and give the median seconds, of each set."""
    for (data, standardised), part in frame.groupby(["data", "standardised"], sort=False):
        row = {
            "set": f"{data}, {'standardised' if standardised else 'raw'}",
            "problems": str(len(part)),
            "optimal": str((part["status"] == Status.OPTIMAL.name).sum()),
            "not separable, proven": str((part["status"] == Status.NOT_SEPARABLE.name).sum()),
            "untrue": str((part["lies"] != "").sum()),
            "auto": f"{runs.few_digits(1e3 * part['seconds'].median())} ms",
        }
        for name in PEERS:
            seconds = part[f"{name}_seconds"]
            stopped = (part[f"{name}_status"] == runs.TIME_LIMIT).sum()
            words = (
                [f"{runs.few_digits(1e3 * seconds.median())} ms"] if seconds.notna().any() else []
            )
            row[NAMES[name]] = ", ".join(words + [f"{stopped} stopped"] * bool(stopped > 0))
        yield row


def found(frame: pd.DataFrame) -> str:
    """Say what is solved, and by whom."""
    answered, lies = _answered(frame), frame["lies"] != ""
    lines = [
        f'"auto" answers {answered.sum()} of {len(frame)} problems, '
        f"{(frame['status'] == Status.OPTIMAL.name).sum()} with an optimum to a gap of "
        f"{TOLERANCE:g} and {(frame['status'] == Status.NOT_SEPARABLE.name).sum()} with a proof; "
        f"{lies.sum()} of what it says is untrue, in exact arithmetic. The longest took "
        f"{runs.few_digits(frame['seconds'].max())} s."
    ]
    for name in PEERS:
        tried = frame[frame[f"{name}_status"].notna()]
        ratio = tried[f"{name}_seconds"] / tried["seconds"]
        stopped = (tried[f"{name}_status"] == runs.TIME_LIMIT).sum()
        good = (tried[f"{name}_gap"] <= TOLERANCE).sum()
        gap = tried.loc[tried["status"] == Status.OPTIMAL.name, f"{name}_gap"].median()
        optimal = (tried["status"] == Status.OPTIMAL.name).sum()
        limit, longer = runs.few_digits(frame["limit"].max()), runs.few_digits(ratio.median())
        lines.append(
            f"- {NAMES[name]}: certified to {TOLERANCE:g} on {good} of the {optimal} that have an "
            f"optimum (median gap {gap:.1g}), stopped after {limit} s on {stopped} of "
            f'{len(tried)}; {longer} times the time of "auto" in the median.'
        )
    return lines[0] + "\n\n" + "\n".join(lines[1:])


def verdict(frame: pd.DataFrame) -> Verdict:
    """Judge the claim by the rule."""
    return Verdict.each(_answered(frame) & (frame["lies"] == ""), 0.5)


EXPERIMENT = Experiment(measure, found, tabulate, verdict, options=SetOptions)
