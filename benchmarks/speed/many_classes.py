"""Time many classes under every norm: published sets, MNIST's ten digits, a million samples.

Each row is one solver on one problem, in a process of its own with limits of time and memory; each
answer is graded by the same `certify`. The peers get the whole problem: SCS and Clarabel through
CVXPY, HiGHS as one linear program, scikit-learn's LinearSVC with the margin of Crammer and Singer.
LinearSVC has no dual variables to certify with, so that its gap is measured from the lower bound of
the native solver. Rows are kept as they come. A row has the seconds by the clock and those of the
processor: where more of these, several threads computed; where more of the former, it waited. The
limits of the peers are of the processor's time, since the machine may be busy.
"""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
import scipy.optimize
from sklearn.svm import LinearSVC

from benchmarks import harness
from benchmarks.data import SEPARABLE_SETS, separable_set, ten_digits
from benchmarks.harness import Experiment, Frames, Row, Run, Verdict, option
from benchmarks.lippl2022 import draws
from benchmarks.processes import GIB, Pipe
from benchmarks.speed import runs
from benchmarks.speed.on_disk import measure_on_disk
from benchmarks.speed.scaling import Point
from implicit_bias import MarginProblem, Status, certify, max_margin, solve
from implicit_bias.base.validation import Array
from implicit_bias.datasets import load, load_digits
from implicit_bias.norms import GroupNorm
from implicit_bias.solvers.base import OnProgress, no_report
from implicit_bias.solvers.cvxpy_solver import CvxpySolver

NORMS = ("l2", "nuclear", "spectral", "l1", "linf")
# The stored margin that is not the maximum, and by how much the others may differ from it.
WRONG, AGREES = ("k10-sigma01", "linf"), 1e-5
# All published sets together, in seconds.
SETS_SECONDS = 5.0
# What a soft margin's C must be for LinearSVC to be near the hard one, times the squared features.
HARD_C = 1e4
SEED = 1
# Limits are of the processor's time; a busy machine may take so many times as long.
IDLE = 20.0


# --- the problems ------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Case:
    """A problem: data, how many samples, the norm, and the seconds that it should take."""

    data: str
    N: int
    norm: str
    line: float = math.nan
    tol: float = 1e-6

    @property
    def name(self) -> str:
        """Words for tables, and what ``--only`` looks in."""
        return f"{self.data} N={self.N} {self.norm}"

    def problem(self) -> MarginProblem:
        """Pose it."""
        return POSED.get(self.data, _published)(self)


def _published(case: Case) -> MarginProblem:
    stored = separable_set(case.data)
    return max_margin(stored["X"], stored["y"], case.norm)


def _digits(case: Case) -> MarginProblem:
    digits = load_digits(classes=("all",))
    order = np.random.default_rng(SEED).permutation(len(digits))[: case.N]
    return max_margin(digits.X[order], digits.y[order], case.norm)


def _gated(units: int) -> Callable[[Case], MarginProblem]:
    def pose(case: Case) -> MarginProblem:
        """One GLN a class: groups of classes and units."""
        y: Any
        X, y = ten_digits(case.N)
        contexts = draws.draw_contexts(
            X, units, 1, threshold="median", reference=load("mnist").X, seed=SEED
        )
        norm = GroupNorm(contexts.groups, apart=True)
        return MarginProblem(X, y, contexts.gates(X), contexts.groups, norm=norm)

    return pose


def _gaussian(separable: bool) -> Callable[[Case], MarginProblem]:
    def pose(case: Case) -> MarginProblem:
        """20 Gaussian features, classes by the largest of 5 linear functions.

        Samples near a boundary are left out, or every twentieth label is drawn anew.
        """
        rng, K = np.random.default_rng(0), 5
        W, X = rng.normal(size=(K, 20)), rng.normal(size=(case.N, 20))
        scores = X @ W.T
        y = scores.argmax(axis=1)
        if not separable:
            noisy = rng.random(case.N) < 0.05
            return max_margin(X, np.where(noisy, rng.integers(0, K, case.N), y), case.norm)
        ranked = np.sort(scores, axis=1)
        clear = ranked[:, -1] - ranked[:, -2] > 0.5
        return max_margin(X[clear], y[clear], case.norm)

    return pose


POSED: dict[str, Callable[[Case], MarginProblem]] = {
    "digits": _digits,
    "mnist": lambda case: max_margin(*ten_digits(case.N), case.norm),
    "mnist gln H=20": _gated(20),
    "mnist gln H=100": _gated(100),
    "binary mnist gln H=100": lambda case: Point(dataset="mnist", N=case.N, H=100, C=2).problem(),
    "gaussian, separable": _gaussian(True),
    "gaussian, not separable": _gaussian(False),
}
# Two classes in a file, on a local Dask cluster: `on_disk`, where no limit of the table applies.
ON_DISK = "gaussian on disk"
LINES = {"l2": 5.0, "nuclear": 20.0, "spectral": 20.0, "l1": 120.0, "linf": 120.0}
GRID = [
    *[
        Case(data=name, N=750 if name.startswith("k15") else 500, norm=norm)
        for name in SEPARABLE_SETS
        for norm in NORMS
    ],
    *[Case(data="mnist", N=1000, norm=norm) for norm in NORMS],
    *[Case(data="mnist", N=2000, norm=norm, line=LINES[norm]) for norm in NORMS],
    Case(data="mnist gln H=20", N=2000, norm="groups", line=120.0),
    Case(data="gaussian, separable", N=10**6, norm="l2", line=120.0),
    Case(data="gaussian, not separable", N=10**6, norm="l2", line=120.0),
    Case(data=ON_DISK, N=10**7, norm="l2"),
    Case(data="binary mnist gln H=100", N=60_000, norm="groups", line=100.0),
    Case(data="mnist gln H=100", N=60_000, norm="groups", line=3600.0, tol=1e-3),
]
QUICK = [Case(data="digits", N=200, norm=norm) for norm in NORMS]


# --- the solvers -------------------------------------------------------------------------------

NATIVE = "native"
# What each peer takes.
PEERS: dict[str, tuple[str, ...]] = {
    "scs": NORMS,
    "clarabel": NORMS,
    "highs": ("l1", "linf"),
    "linear svc": ("l2",),
}
# Peers are tried on these data.
AGAINST_PEERS = ("digits", "mnist")


def solvers_of(case: Case) -> Iterator[str]:
    """Name the native solver, and the peers that take a problem."""
    yield NATIVE
    if case.data in AGAINST_PEERS:
        yield from (name for name, norms in PEERS.items() if case.norm in norms)


def answer_of(
    solver: str,
    problem: MarginProblem,
    norm: str,
    tol: float,
    on_progress: OnProgress = no_report,
) -> Row:
    """Return what a solver finds: status, bounds and the method."""
    match solver:
        case "highs":
            bounds = certify(problem, *whole_linear_program(problem, norm))
        case "linear svc":
            bounds = certify(problem, linear_svc(problem, tol))
        case _:
            name = "auto" if solver == NATIVE else solver
            found = solve(problem, name, tol, on_progress=on_progress)
            method, bounds = found.stats.solver, found.certificate
            return {"status": found.status.name, "method": method, **runs.bounds_of(bounds)}
    status = Status.OPTIMAL.name if bounds.gap <= tol else ""
    return {"status": status, "method": solver, **runs.bounds_of(bounds)}


def linear_svc(problem: MarginProblem, tol: float) -> Array:
    """Return LinearSVC's coefficients (K, 1, D) at a large C."""
    svc = LinearSVC(
        multi_class="crammer_singer",
        C=HARD_C / problem.scale**2,
        tol=CvxpySolver.safety * tol,
        fit_intercept=False,
        max_iter=10**7,
    )
    return np.asarray(svc.fit(problem.X, problem.y).coef_)[:, None, :]


def whole_linear_program(problem: MarginProblem, norm: str) -> tuple[Array, Array]:
    """Return coefficients and dual variables of HiGHS on all pairs and columns at once."""
    assert problem.classes is not None
    rows = problem.constraints
    samples, rivals = rows.samples, rows.rivals
    P, (N, D), K = len(samples), problem.X.shape, problem.classes
    by_class = np.zeros((P, K, D))
    X = problem.X[samples] / problem.scale
    by_class[np.arange(P), problem.owners[samples]] = X
    by_class[np.arange(P), rivals] = -X
    A: Array = by_class.reshape(P, K * D)
    if norm == "l1":  # zeta = p - m
        A, cost = np.hstack([A, -A]), np.ones(2 * K * D)
        limits, right = A[:0], np.zeros(0)
    else:  # zeta = w - t with 0 <= w <= 2 t
        A = np.hstack([A, -A.sum(axis=1, keepdims=True)])
        cost = np.append(np.zeros(K * D), 1.0)
        limits = np.hstack([np.eye(K * D), np.full((K * D, 1), -2.0)])
        right = np.zeros(K * D)
    found = scipy.optimize.linprog(
        cost, np.vstack([-A, limits]), np.append(-np.ones(P), right), method="highs"
    )
    x = found.x
    zeta = x[: K * D] - x[K * D :] if norm == "l1" else x[:-1] - x[-1]
    alpha = np.zeros((N, K))
    alpha[samples, rivals] = np.maximum(-found.ineqlin.marginals[:P], 0.0) / problem.scale
    return zeta.reshape(K, 1, D) / problem.scale, alpha


# --- one row -----------------------------------------------------------------------------------


def measure_row(
    case: Case,
    solver: str,
    *,
    seconds: float,
    memory: float,
    say: Callable[[str], None] = lambda line: None,
) -> Row:
    """Measure a solver on a problem, and say how far it is; the row says if there is no answer."""
    row: Row = {**asdict(case), "solver": solver, "limit": seconds, "memory": memory}
    row |= {"machine": runs.machine(), "stored": stored_margin(case)}
    row |= dict.fromkeys(("outcome", "detail", "status", "method"), "")
    row |= dict.fromkeys(("lower", "upper", "gap", "seconds", "wall_seconds", "gib"), math.nan)
    limit = math.inf if solver == NATIVE else memory

    def told(bounds: str) -> None:
        say(f"{case.name}: {bounds}")

    if case.data == ON_DISK:
        return row | measure_on_disk(case.N, case.tol, lambda line: told(runs.between(line)))
    return row | runs.in_process(_work, (case, solver, seconds), IDLE * seconds, told, limit)


def _work(pipe: Pipe, case: Case, solver: str, seconds: float) -> None:
    problem = case.problem()
    solve(runs.warm_up())
    runs.limit_processor_time(seconds)
    runs.forget_peak("cpu")
    began, cpu = time.perf_counter(), time.process_time()
    found = answer_of(solver, problem, case.norm, case.tol, pipe.send)
    pipe.send(
        {
            **found,
            "outcome": runs.ANSWERED,
            "seconds": time.process_time() - cpu,
            "wall_seconds": time.perf_counter() - began,
            "gib": runs.peak_memory("cpu") / GIB,
        }
    )


def stored_margin(case: Case) -> float:
    """Return the published margin of a set, nan where there is none."""
    if case.data not in SEPARABLE_SETS:
        return math.nan
    stored = separable_set(case.data)
    name = f"margin_{case.norm}"
    return float(stored[name]) if name in stored else math.nan


# --- the table ---------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ClassOptions(runs.RowOptions):
    """What one can ask of it."""

    time_limit: float = option(600.0, "seconds of the processor for a solver")
    memory_limit: float = option(8.0, "GiB of a peer")


def measure(run: Run[ClassOptions]) -> Frames:
    """Measure the rows that are missing, the native solver's first."""
    cases = QUICK if run.quick else GRID
    wanted = [(case, solver) for case in cases for solver in solvers_of(case)]
    seconds, memory = run.options.time_limit, run.options.memory_limit
    return runs.missing_rows(
        run,
        {f"{of[0].name} {of[1]}": of for of in sorted(wanted, key=lambda of: of[1] != NATIVE)},
        lambda of: {"data": of[0].data, "N": of[0].N, "norm": of[0].norm, "solver": of[1]},
        lambda of, _: measure_row(*of, seconds=seconds, memory=memory, say=run.say),
    )


def natives(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the native solver."""
    return frame[frame["solver"] == NATIVE]


def settled(frame: pd.DataFrame) -> pd.Series:
    """Whether rows have the gap asked for, or the proof that nothing separates."""
    proof = frame["status"] == Status.NOT_SEPARABLE.name
    return (frame["outcome"] == runs.ANSWERED) & ((frame["gap"] <= frame["tol"]) | proof)


def within_line(frame: pd.DataFrame) -> pd.Series:
    """Whether rows are settled within the seconds that they should take, by the clock."""
    return settled(frame) & ~(frame["wall_seconds"] > frame["line"])


def disagreement(frame: pd.DataFrame) -> pd.Series:
    """Relative difference between the maximum margin and the stored one."""
    return (frame["stored"] * frame["upper"] - 1.0).abs()


def unmeasured(frame: pd.DataFrame) -> list[str]:
    """Name the problems that have no native row yet."""
    done = set(
        zip(natives(frame)["data"], natives(frame)["N"], natives(frame)["norm"], strict=True)
    )
    return [case.name for case in GRID if (case.data, case.N, case.norm) not in done]


def with_known_gaps(frame: pd.DataFrame) -> pd.DataFrame:
    """Measure gaps of answers that have no lower bound of their own from the native one."""
    keys = ["data", "N", "norm"]
    best = natives(frame).groupby(keys)["lower"].max().rename("best")
    from_best = frame["upper"] / frame.join(best, on=keys)["best"] - 1.0
    return frame.assign(gap=frame["gap"].where(np.isfinite(frame["gap"]), from_best))


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """Write all rows in words, the native solver above its peers."""
    rows = with_known_gaps(frame)
    rows = rows.sort_values("solver", key=lambda names: names != NATIVE, kind="stable")
    rows = rows.sort_values(["data", "N", "norm"], kind="stable")
    answered, proof = rows["outcome"] == runs.ANSWERED, rows["status"] == Status.NOT_SEPARABLE.name
    why = [
        f"no answer: {row['outcome']} ({row['limit']:g} s, {row['memory']:g} GiB)"
        for row in harness.rows_of(rows)
    ]
    native = answered & (rows["solver"] == NATIVE)
    numbers = rows.where(answered).assign(upper=rows["upper"].where(answered & ~proof))
    cells = {
        "data": rows["data"],
        "N": rows["N"].map("{:,}".format),
        "norm": rows["norm"],
        "solver": rows["solver"].mask(native, "native (" + rows["method"] + ")"),
        "seconds": numbers["wall_seconds"].map("{:.2g}".format).where(answered, why),
        "of the processor": numbers["seconds"].map("{:.2g}".format),
        "should take": rows["line"].map("{:g}".format),
        "gap": numbers["gap"].map("{:.1g}".format).mask(proof, "proof"),
        "optimum": numbers["upper"].map("{:.7g}".format),
        "margin": (1.0 / numbers["upper"]).map("{:.7g}".format),
        "stored margin": rows["stored"].map("{:g}".format),
        "GiB": numbers["gib"].map("{:.2g}".format),
    }
    return pd.DataFrame(cells).replace("nan", "")


def found(frame: pd.DataFrame) -> str:
    """Say what is reached, and name the stored margin that is wrong."""
    native = natives(frame)
    lines = [f"{int(settled(native).sum())} of {len(native)} problems are settled."]
    if unmeasured(frame):
        lines.append(f"Not measured yet: {'; '.join(unmeasured(frame))}.")
    published = native[native["data"].isin(SEPARABLE_SETS)]
    if len(published):
        stored = published[published["stored"].notna()]
        differ = disagreement(stored) > AGREES
        names = ", ".join(
            f"{row['data']} under {row['norm']}, where {row['stored']:g} is stored and the maximum "
            f"is {1.0 / row['upper']:.7g}"
            for _, row in stored[differ].iterrows()
        )
        lines.append(
            f"The published sets under all norms take "
            f"{runs.few_digits(published['wall_seconds'].sum())} s together. "
            f"{len(stored) - int(differ.sum())} of {len(stored)} stored margins are the "
            f"maximum to {AGREES:g}; not {names or 'one differs'}."
        )
    due = native[native["line"].notna()]
    if len(due):
        late = due[~within_line(due)]
        words = "; ".join(
            f"{row['data']} N={row['N']:,} {row['norm']}" for _, row in late.iterrows()
        )
        lines.append(
            f"{len(due) - len(late)} of {len(due)} rows keep to the seconds that they should take"
            + (f", not: {words}." if words else ".")
        )
    peers = [
        f"- {name}: {int(settled(rows).sum())} of {len(rows)} problems settled within "
        f"{rows['limit'].max():g} s and {rows['memory'].max():g} GiB."
        for name, rows in with_known_gaps(frame).groupby("solver", sort=False)
        if name != NATIVE
    ]
    return "\n\n".join([*lines, "\n".join(peers)]).strip()


def verdict(frame: pd.DataFrame, most: float = SETS_SECONDS) -> Verdict:
    """Judge the claim by the rule."""
    native = natives(frame)
    stored = native[native["stored"].notna()]
    right = [tuple(row) == WRONG for row in stored[["data", "norm"]].to_numpy().tolist()]
    named = bool(((disagreement(stored) > AGREES).to_numpy() == np.array(right)).all())
    quick = native[native["data"].isin(SEPARABLE_SETS)]["wall_seconds"].sum() <= most
    whole = bool(within_line(native).all() and quick) and named and not unmeasured(frame)
    return Verdict.of(whole, named and settled(native).mean() > 0.5)


EXPERIMENTS = {"classes": Experiment(measure, found, tabulate, verdict, options=ClassOptions)}
