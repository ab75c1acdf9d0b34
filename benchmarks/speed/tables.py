r"""Time "auto" beside its peers on ordinary noisy tables, on an idle machine and on a busy one.

Every peer solves the program of `MarginProblem`, or one with the same optimum. Those that penalise
the squared norm (LIBLINEAR, LIBSVM, skglm, and the quadratic program of Clarabel and SCS) get a C'
that is matched to C outside the timing:

        minimise  ||w|| + C sum_n xi_n              0 in w / ||w|| + C d(sum_n xi_n)
        minimise  ||w||^2 / 2 + C' sum_n xi_n       0 in w + C' d(sum_n xi_n)

At the optimum w of the first, C' = C ||w|| makes w the optimum of the second; its dual variables
are ||w|| alpha. For a hard margin any C' above the largest of these will do.

An answer is graded by `certify`: its excess is the certified upper bound of its coefficients over
the best certified lower bound that any solver has for the table, minus 1. A peer is asked for one
tolerance after another until its excess is small enough; that run counts, in the formulation that
takes least time. An answer that takes less than two seconds is timed up to five times, and the
median counts. Beside two processes that multiply matrices it is timed once more.
"""

import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, NamedTuple, cast

import cvxpy as cp
import numpy as np
import pandas as pd
import scipy.optimize
import scipy.sparse as sp
import torch
from matplotlib.lines import Line2D
from sklearn.svm import SVC, LinearSVC

from benchmarks.drawing import Figure, subplots
from benchmarks.harness import (
    Experiment,
    Frames,
    Misuse,
    Row,
    Rows,
    Run,
    Verdict,
    option,
    parts,
    rows_of,
)
from benchmarks.processes import Pipe, ProcessEnded
from benchmarks.speed import runs
from benchmarks.speed.formulations import Formulated, Formulation
from benchmarks.speed.ordinary import GATED, Table
from implicit_bias import MarginProblem, certify, solve
from implicit_bias.base.validation import Array
from implicit_bias.norms import L2
from implicit_bias.report.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION
from implicit_bias.solvers import Tolerances
from implicit_bias.solvers.cvxpy_solver import BACKENDS, CvxpySolver

# The excess that is asked for, and the gap of the optimum by which C' is matched.
EXCESS, MATCHING = 1e-6, 1e-9
# A solve is repeated up to so many times while all of its runs take less than so many seconds.
MAX_RUNS, RUN_SECONDS = 5, 2.0
# Formulations with a Gram matrix of all samples are tried up to so many of these.
MOST_GRAM = 3000
# A hard margin is a soft one whose C' is so many times the largest dual variable.
HARD = 10.0
# Processes that keep a machine busy, and seconds for one of ours to import what it needs.
BUSY, STARTING = 2, 120.0
# Seconds that another formulation of a peer has beyond those of its fastest one.
PATIENCE = 5.0


# --- the tables --------------------------------------------------------------------------------

GRID = [
    # Two classes, the l2 norm: LIBLINEAR without an intercept, LIBSVM with one.
    Table(N=200, D=5),
    Table(N=1000, D=20, C=0.1),
    Table(N=1000, D=20, intercept=True),
    Table(N=10_000, D=50, C=0.1),
    Table(N=10_000, D=50, C=0.1, intercept=True),
    Table(N=100_000, D=20, C=0.01),
    Table(N=20_000, D=500, C=0.001),
    Table(N=300, D=400, C=np.inf, wrong=0.0),
    # More classes, the l2 norm.
    Table(N=2000, D=50, K=5, C=0.01),
    Table(N=2000, D=50, K=10, C=0.1),
    Table(N=9800, D=100, K=5, C=0.01, intercept=True),
    # One group for each unit.
    Table(N=3000, D=20, norm=GATED, H=11, C=100.0),
    Table(N=10_000, D=20, norm=GATED, H=5, intercept=True),
    Table(N=1800, D=20, K=5, norm=GATED, H=3, intercept=True),
    Table(N=500, D=100, norm=GATED, H=10, C=np.inf, wrong=0.0),
    # Other norms.
    Table(N=2000, D=100, norm="l1", C=0.1),
    Table(N=2000, D=50, K=3, norm="l1", C=0.1, intercept=True),
    Table(N=2000, D=100, norm="linf", C=0.1),
    Table(N=1500, D=20, K=5, norm="linf", C=0.01, intercept=True),
    Table(N=1000, D=30, K=5, norm="spectral", C=0.1),
    Table(N=1000, D=30, K=5, norm="nuclear", C=0.1, intercept=True),
]
QUICK = [
    Table(N=200, D=5),
    Table(N=200, D=5, intercept=True),
    Table(N=200, D=5, K=3, norm="linf"),
]


# --- the solvers -------------------------------------------------------------------------------

NATIVE = "native"
WORDS = {
    NATIVE: "native",
    "liblinear": "LIBLINEAR",
    "libsvm": "LIBSVM",
    "skglm": "skglm",
    "highs": "HiGHS",
    "clarabel": "Clarabel",
    "ecos": "ECOS",
    "scs": "SCS",
}
# Tolerances that a solver is asked for, one after the other. CVXPY's get a tenth of them.
TOLERANCES = {
    NATIVE: (EXCESS,),
    "liblinear": (1e-3, 1e-5, 1e-7, 1e-9),
    "libsvm": (1e-3, 1e-5, 1e-7),
    "skglm": (1e-4, 1e-6, 1e-8),
    "highs": (1e-7, 1e-9),
    "clarabel": (1e-6, 1e-8),
    "ecos": (1e-6, 1e-8),
    "scs": (1e-6, 1e-8),
}
# Of each iterative solver: many more steps than its time allows.
ENDLESS = 10**8
# Formulations that penalise the squared norm.
MATCHED = ("squared", "squared, rows")


def formulations(solver: str, table: Table) -> tuple[str, ...]:
    """Return those in which a solver takes a table; none where it solves another program."""
    euclidean = table.norm == "l2"
    installed = find_spec("skglm") is not None
    match solver:
        case "native":
            return ("auto",)
        case "liblinear" if euclidean and not table.intercept:  # it would penalise an intercept
            return ("squared",)
        case "libsvm" if euclidean and table.intercept and table.K == 2:  # else one against one
            return ("squared",)
        case "skglm" if euclidean and not table.intercept and table.K == 2 and installed:
            return ("squared",)
        case "highs" if table.norm in ("l1", "linf"):
            return ("simplex", "interior point")
        case "clarabel" | "ecos" | "scs":
            semidefinite = table.norm in ("spectral", "nuclear")
            if solver == "ecos" and semidefinite:
                return ()
            in_groups = table.K == 2 and table.norm in ("l2", GATED)
            found = ["primal"]
            if not in_groups:
                found.append("rows")
            elif table.N <= MOST_GRAM:
                found += ["reduced", "dual"]
            if euclidean and solver != "ecos":
                found.append("squared, rows")
            if euclidean and solver == "ecos" and table.K > 2:
                found.remove("primal")  # whose atom of the norm CVXPY keeps from ECOS
            return tuple(found)
    return ()


class Found(NamedTuple):
    """What a solver returns; dual variables where it has them."""

    coef: Array
    intercept: float | Array
    alpha: Array | None = None
    status: str = ""


def answer_of(
    solver: str,
    formulation: str,
    problem: MarginProblem,
    *,
    tol: float,
    matched: float,
    seconds: float,
) -> Found:
    """Solve a problem with a tolerance of the solver's own, and C' = ``matched``."""
    match solver, formulation:
        case "native", _:
            native = solve(problem, "auto", tol)
            return Found(native.coef, native.intercept, native.alpha, native.status.name)
        case "liblinear", _:
            return liblinear(problem, matched, tol)
        case "libsvm", _:
            return libsvm(problem, matched, tol)
        case "skglm", _:
            return skglm(problem, matched, tol)
        case "highs", _:
            return linear_program(problem, formulation, tol, seconds)
        case _, "squared, rows":
            return program_of_rows(problem, matched, solver, tol, seconds)
        case _, "rows":
            return program_of_rows(problem, None, solver, tol, seconds)
    peer = Formulated(
        backend=solver,
        formulation=cast(Formulation, formulation),
        tolerances=Tolerances(gap=tol),
        max_seconds=seconds,
    )
    candidate = peer.run(problem)
    return Found(candidate.coef, candidate.intercept, candidate.alpha, candidate.status.name)


def liblinear(problem: MarginProblem, C: float, tol: float) -> Found:
    """Minimise ||w||^2 / 2 + C sum xi by coordinate ascent; of many classes, Crammer and Singer."""
    kind = "ovr" if problem.classes is None else "crammer_singer"
    svc = LinearSVC(
        loss="hinge",
        multi_class=kind,
        C=C,
        tol=tol,
        fit_intercept=False,
        max_iter=ENDLESS,
        random_state=0,
    )
    coef = svc.fit(problem.X, problem.y).coef_
    return Found(coef.reshape(problem.coef_shape), problem.no_offset)


def libsvm(problem: MarginProblem, C: float, tol: float) -> Found:
    """Minimise ||w||^2 / 2 + C sum xi of two classes with an intercept, in the dual."""
    svc = SVC(kernel="linear", C=C, tol=tol, cache_size=1000).fit(problem.X, problem.y)
    alpha = np.zeros(problem.n_samples)
    alpha[svc.support_] = np.abs(svc.dual_coef_[0]) / np.linalg.norm(svc.coef_)
    return Found(svc.coef_, float(svc.intercept_[0]), alpha)


def skglm(problem: MarginProblem, C: float, tol: float) -> Found:
    """Minimise ||w||^2 / 2 + C sum xi of two classes by working sets of the dual."""
    from skglm.estimators import LinearSVC as WorkingSetSVC

    svc = WorkingSetSVC(C=C, tol=tol, max_iter=1000, max_epochs=ENDLESS, fit_intercept=False)
    return Found(svc.fit(problem.X, problem.y).coef_.reshape(problem.coef_shape), 0.0)


class ConstraintRows(NamedTuple):
    """All constraints A zeta + E b + S xi >= 1 at once."""

    A: sp.csr_array
    E: sp.csr_array
    S: sp.csr_array


def constraints_of(problem: MarginProblem) -> ConstraintRows:
    """Return the constraints, a row for each pair of a sample and a rival class."""
    rows = problem.constraints
    gates = sp.csr_array(problem.gates).toarray()
    features = np.einsum("nm,nd->nmd", gates, problem.X).reshape(problem.n_samples, -1)
    A = rows.of_each_class(sp.csr_array(features)[rows.samples])
    E = rows.labels[:, : rows.width * problem.intercept]
    S = sp.eye_array(problem.n_samples, format="csr")[rows.samples]
    return ConstraintRows(A, E, S)


def linear_program(problem: MarginProblem, formulation: str, tol: float, seconds: float) -> Found:
    """Solve a problem under l1 or l_inf as one linear program, by HiGHS.

    Variables are p and m of zeta = p - m, or of l_inf zeta and t >= |zeta|; then b, then xi.
    """
    A, E, S = constraints_of(problem)
    A = A / problem.scale
    P = A.shape[1]
    maximum = problem.norm.value(np.ones(problem.norm_shape)) == 1.0  # l_inf; l1 counts entries
    if maximum:
        parts = [A, sp.csr_array((A.shape[0], 1))]
        cost = np.append(np.zeros(P), 1.0)
        bounds = [(None, None)] * P + [(0.0, None)]
    else:
        parts = [A, -A]
        cost = np.ones(2 * P)
        bounds = [(0.0, None)] * (2 * P)
    n_zeta = len(cost)
    parts.append(E)
    cost = np.append(cost, np.zeros(E.shape[1]))
    bounds += [(None, None)] * E.shape[1]
    if not problem.hard_margin:
        parts.append(S)
        cost = np.append(cost, problem.box * problem.scale)
        bounds += [(0.0, None)] * problem.n_samples
    left = [-sp.hstack(parts, format="csr")]
    right = [-np.ones(A.shape[0])]
    if maximum:
        one = np.ones((P, 1))
        rest = sp.csr_array((P, len(cost) - n_zeta))
        left += [sp.hstack([sign * sp.eye_array(P), -one, rest]) for sign in (1.0, -1.0)]
        right += [np.zeros(P), np.zeros(P)]
    options = {
        "primal_feasibility_tolerance": tol,
        "dual_feasibility_tolerance": tol,
        "time_limit": seconds,
    }
    method = "highs-ds"
    if formulation == "interior point":
        method = "highs-ipm"
        options["ipm_optimality_tolerance"] = max(tol, 1e-12)
    found = scipy.optimize.linprog(
        cost,
        sp.vstack(left, format="csc"),
        np.concatenate(right),
        bounds=bounds,
        method=method,
        options=options,
    )
    if found.x is None:
        raise RuntimeError(found.message)
    zeta = found.x[:P]
    if not maximum:
        zeta = zeta - found.x[P : 2 * P]
    offset = np.zeros(problem.norm_shape[0])
    if problem.intercept:
        offset = found.x[n_zeta : n_zeta + E.shape[1]]
    multipliers = np.maximum(-found.ineqlin.marginals[: A.shape[0]], 0.0)
    return Found(
        zeta.reshape(problem.coef_shape) / problem.scale,
        problem.as_intercept(offset),
        problem.constraints.alpha(multipliers / problem.scale),
    )


def program_of_rows(
    problem: MarginProblem, C: float | None, solver: str, tol: float, seconds: float
) -> Found:
    """Minimise Omega(zeta) + C sum xi, or with a C' ||zeta||^2 / 2 + C' sum xi, by a conic solver.

    The variable is u = s zeta with s = `problem.scale`.
    """
    A, E, S = constraints_of(problem)
    u = cp.Variable(A.shape[1])
    margins = (A / problem.scale) @ u
    if problem.intercept:
        b = cp.Variable(E.shape[1])
        margins = margins + E @ b
    if C is not None:
        cost = 0.5 * cp.sum_squares(u)
        weights = np.full(problem.n_samples, C * problem.scale**2)
    else:
        cost = cp.norm(u)
        if not isinstance(problem.norm, L2):
            cost = problem.norm.atom(u, problem.norm_shape, cp)
        weights = problem.box * problem.scale
    if np.isfinite(weights).all():
        xi = cp.Variable(problem.n_samples, nonneg=True)
        margins = margins + S @ xi
        cost = cost + weights @ xi
    reached = margins >= 1
    program = cp.Problem(cp.Minimize(cost), [reached])
    backend = BACKENDS[solver]
    steps = {backend.iteration_option: backend.max_iterations}
    backend.solve(program, CvxpySolver.safety * tol, seconds, **steps)
    offset = np.zeros(problem.norm_shape[0])
    if problem.intercept:
        offset = b.value
    multipliers = np.maximum(reached.dual_value, 0.0) / problem.scale
    if C is not None:
        multipliers /= np.linalg.norm(u.value)
    return Found(
        u.value.reshape(problem.coef_shape) / problem.scale,
        problem.as_intercept(offset),
        problem.constraints.alpha(multipliers),
        program.status,
    )


# --- C' of the squared norm --------------------------------------------------------------------


class Optimum(NamedTuple):
    """What the peers of a table need to know of its optimum."""

    lower: float
    size: float
    largest: float


def optimum_of(problem: MarginProblem, found: Found, lower: float) -> Optimum:
    """Return the best lower bound, ||w||_2, and the largest dual variable of a sample."""
    assert found.alpha is not None
    largest = float(problem.totals(found.alpha).max())
    return Optimum(lower, float(np.linalg.norm(found.coef)), largest)


def matched_C(C: float, optimum: Optimum) -> float:  # noqa: N802 - C is a name
    """Return the C' of the squared norm with the same optimum; see the module's head."""
    if np.isinf(C):
        return HARD * optimum.largest * optimum.size
    return C * optimum.size


# --- one run, in a process that can be stopped -------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Question:
    """A run that is asked for."""

    table: Table
    solver: str
    formulation: str
    tol: float
    matched: float
    seconds: float

    def answer(self, problem: MarginProblem) -> Found:
        """Solve a problem as is asked."""
        return answer_of(
            self.solver,
            self.formulation,
            problem,
            tol=self.tol,
            matched=self.matched,
            seconds=self.seconds,
        )


@lru_cache(maxsize=2)
def _problem(table: Table) -> MarginProblem:
    return table.problem()


def _work(pipe: Pipe) -> None:
    warnings.simplefilter("ignore")
    solve(runs.warm_up())
    pipe.send("ready")
    while True:
        for facts in stages(pipe.recv()):
            pipe.send(facts)


def stages(question: Question) -> Iterator[Row]:
    """Yield facts of a run as they come: before it, after it, and graded."""
    problem = _problem(question.table)
    # What a solver imports, compiles and sets up once is no part of its time.
    small = replace(question.table, N=60, D=5, C=1.0, H=min(question.table.H, 2))
    replace(question, matched=1.0).answer(_problem(small))
    yield {"threads": torch.get_num_threads()}
    seconds: list[float] = []
    while not seconds or (len(seconds) < MAX_RUNS and sum(seconds) < RUN_SECONDS):
        fresh = replace(problem)  # a problem keeps what was once computed of it
        began = time.perf_counter()
        found = question.answer(fresh)
        seconds.append(time.perf_counter() - began)
    yield {"seconds": statistics.median(seconds), "runs": len(seconds), "status": found.status}
    bounds = certify(problem, found.coef, found.alpha, _offset(problem, found))
    facts = {"outcome": runs.ANSWERED, **runs.bounds_of(bounds)}
    if question.solver == NATIVE:
        optimum = optimum_of(problem, found, bounds.lower)
        facts |= {"size": optimum.size, "largest": optimum.largest}
    yield facts


def _offset(problem: MarginProblem, found: Found) -> float | Array | None:
    return found.intercept if problem.intercept else None


def asked(worker: runs.Renewed, question: Question, limit: float) -> Row:
    """Return the facts of a run; why there are none, where it takes longer than its limit."""
    facts: Row = {}
    try:
        for more in worker.asked(question, limit, answers=3):
            facts |= more
    except ProcessEnded as ended:
        return {"outcome": runs.CRASHED, "detail": str(ended)} | runs.outcome(ended)
    return facts


@contextmanager
def busy(processes: int = BUSY) -> Iterator[list[int]]:
    """Keep so many processes multiplying matrices, each with one thread; their ids."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", SPIN]
    spinning: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(processes):
            spinning.append(subprocess.Popen(command, stdout=subprocess.PIPE, env=environment))
        for process in spinning:
            assert process.stdout is not None
            process.stdout.readline()  # it multiplies from now on
        yield [process.pid for process in spinning]
    finally:
        for process in spinning:
            process.kill()
        for process in spinning:
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


# Ends with its caller, even if that was killed.
SPIN = """
import os
import numpy
caller = os.getppid()
matrix = numpy.ones((300, 300))
print("ready", flush=True)
while os.getppid() == caller:
    matrix @ matrix
"""


# --- one row: a solver on a table, idle and busy -----------------------------------------------


@dataclass(frozen=True, kw_only=True)
class TableOptions(runs.RowOptions):
    """What one can ask of it."""

    time_limit: float = option(30.0, "seconds of a run")


def measure(run: Run[TableOptions]) -> Frames:
    """Measure the rows that are missing, table by table, the native solver first."""
    wanted = {
        f"{table.name} {solver}": (table, solver)
        for table in (QUICK if run.quick else GRID)
        for solver in WORDS
        if formulations(solver, table)
    }
    limit = run.options.time_limit
    with closing(runs.Renewed(_work, STARTING)) as worker:
        yield from runs.missing_rows(
            run,
            wanted,
            lambda of: {**asdict(of[0]), "solver": of[1]},
            lambda of, rows: measure_row(worker, *of, rows, limit),
        )


def measure_row(
    worker: runs.Renewed, table: Table, solver: str, rows: Sequence[Row], limit: float
) -> Row:
    """Time a solver in its best formulation, idle and busy; the row says if it does not answer."""
    row: Row = {"limit": limit, "machine": runs.machine()}
    row |= dict.fromkeys(("outcome", "detail", "status", "formulation", "busy"), "")
    numbers = ("tol", "seconds", "busy_seconds", "runs", "threads", "lower", "upper", "gap")
    row |= dict.fromkeys((*numbers, "size", "largest"), np.nan)
    optimum = Optimum(np.nan, np.nan, np.nan)
    if solver != NATIVE:
        optimum = known_optimum(table, rows)

    def ask(formulation: str, tol: float, seconds: float) -> Row:
        question = Question(
            table=table,
            solver=solver,
            formulation=formulation,
            tol=tol,
            matched=matched_C(table.C, optimum),
            seconds=seconds,
        )
        return {"formulation": formulation, "tol": tol} | asked(worker, question, seconds)

    best: Row = {}
    for formulation in formulations(solver, table):
        if formulation in MATCHED and not optimum.size > 0:
            found = {"outcome": runs.NOT_TRIED, "detail": "no optimum to match C by, or w = 0"}
        else:
            # What takes so much longer than another formulation is not the best one.
            seconds = limit
            if reached(best, optimum.lower):
                seconds = min(limit, best["seconds"] + PATIENCE)
            found = tightened(
                lambda tol: ask(formulation, tol, seconds),  # noqa: B023 - called at once
                TOLERANCES[solver],
                optimum.lower,
            )
        if not best or better(found, best, optimum.lower):
            best = found
    row |= best
    if reached(row, optimum.lower):
        with busy():
            found = ask(row["formulation"], row["tol"], limit)
        row |= {"busy": found["outcome"], "busy_seconds": found.get("seconds", np.nan)}
    if solver == NATIVE and table.norm == "l2" and row["outcome"] == runs.ANSWERED:
        exact = ask("auto", MATCHING, limit)
        if exact["outcome"] == runs.ANSWERED:
            row |= {name: exact[name] for name in ("size", "largest")}
            row["lower"] = max(row["lower"], exact["lower"])
    return row


def known_optimum(table: Table, rows: Sequence[Row]) -> Optimum:
    """Return what the native row of a table says.

    Raises
    ------
    Misuse
        There is no such row.
    """
    for row in rows:
        if row["solver"] == NATIVE and runs.made(Table, row) == table:
            return Optimum(row["lower"], row["size"], row["largest"])
    raise Misuse(f"peers are graded beside the native solver: first --only '{table.name} {NATIVE}'")


def excess(upper: float, lower: float) -> float:
    """Return by how much an upper bound exceeds the best lower bound, as a fraction of that."""
    return upper / lower - 1.0 if lower > 0 else np.inf


def excess_of(row: Row, lower: float) -> float:
    """Return the excess of a row over a lower bound, if one is known, or over its own."""
    if row.get("outcome") != runs.ANSWERED:
        return np.inf
    return excess(row["upper"], max(row["lower"], np.nan_to_num(lower)))


def reached(row: Row, lower: float) -> bool:
    """Whether a row comes as near to the optimum as is asked."""
    return excess_of(row, lower) <= EXCESS


def better(row: Row, other: Row, lower: float) -> bool:
    """Whether a row is as near as is asked in less time than another, or else just nearer."""
    if reached(row, lower) and reached(other, lower):
        return bool(row["seconds"] < other["seconds"])
    return excess_of(row, lower) < excess_of(other, lower)


def tightened(ask: Callable[[float], Row], tolerances: Sequence[float], lower: float) -> Row:
    """Ask for one tolerance after the other until an answer is near enough; return the best."""
    best: Row = {}
    for tol in tolerances:
        found = ask(tol)
        if not best or better(found, best, lower):
            best = found
        if reached(found, lower) or found["outcome"] != runs.ANSWERED:
            break
    return best


# --- what it shows -----------------------------------------------------------------------------


def graded(frame: pd.DataFrame) -> pd.DataFrame:
    """Add to each row its table's name and the excess over the best lower bound; in one order."""
    rows = frame.assign(table=[runs.made(Table, row).name for row in rows_of(frame)])
    best = rows.groupby("table")["lower"].transform("max")
    known = np.isfinite(rows["upper"]) & (best > 0)
    rows["excess"] = (rows["upper"] / best - 1.0).where(known)
    rows["reached"] = (rows["outcome"] == runs.ANSWERED) & (rows["excess"] <= EXCESS)
    names = dict.fromkeys(table.name for table in [*GRID, *QUICK])
    order = {name: place for place, name in enumerate(names)}
    solvers = list(WORDS)
    place = rows["table"].map(order).fillna(len(order)) * len(solvers)
    place = place + rows["solver"].map(solvers.index)
    return rows.loc[place.sort_values(kind="stable").index]


def races(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a row a table: seconds of the native solver, and of the fastest peer, idle and busy.

    Only runs that come as near as is asked take part; NaN where there is none.
    """
    found = []
    for name, rows in graded(frame).groupby("table", sort=False):
        race: Row = {"table": name}
        near = rows[rows["reached"]]
        for column in ("seconds", "busy_seconds"):
            native = near[near["solver"] == NATIVE][column]
            peers = near[near["solver"] != NATIVE].dropna(subset=[column])
            race[column] = native.min()
            race[f"peer_{column}"] = peers[column].min()
            ranked = rows_of(peers.sort_values(column))
            race[f"fastest_{column}"] = WORDS[ranked[0]["solver"]] if ranked else ""
        found.append(race)
    return pd.DataFrame(found)


def keeps_up(race: pd.DataFrame, most: float) -> pd.Series:
    """Whether the native solver answers, idle and busy, in so many times the best peer's time."""
    holds = race["seconds"].notna() & race["busy_seconds"].notna()
    for column in ("seconds", "busy_seconds"):
        holds &= ~(race[column] > most * race[f"peer_{column}"])
    return holds


def tabulate(frame: pd.DataFrame) -> Rows:
    """Write a line for each solver on each table."""
    for _, rows in graded(frame).groupby("table", sort=False):
        native = rows[(rows["solver"] == NATIVE) & rows["reached"]]["seconds"].min()
        for row in rows_of(rows):
            ratio = row["seconds"] / native
            yield {
                "table": row["table"],
                "solver": WORDS[row["solver"]],
                "formulation": row["formulation"].replace("auto", ""),
                "idle, s": _seconds(row, "outcome", "seconds"),
                "busy, s": _seconds(row, "busy", "busy_seconds"),
                "idle / native": runs.few_digits(ratio) if np.isfinite(ratio) else "",
                "excess": f"{max(row['excess'], 0.0):.0e}" if np.isfinite(row["excess"]) else "",
            }


def _seconds(row: Row, outcome: str, seconds: str) -> str:
    if row[outcome] == runs.TIME_LIMIT:
        return f"> {row['limit']:g}"
    if row[outcome] == runs.ANSWERED:
        return runs.few_digits(row[seconds])
    return str(row[outcome])


def found(frame: pd.DataFrame) -> str:
    """Say where the native solver answers, where it is the fastest, and where it is not."""
    race = races(frame)
    lines = []
    said = []
    for words, column in (("idle", "seconds"), ("busy", "busy_seconds")):
        ahead = race[column].notna() & ~(race[column] > race[f"peer_{column}"])
        said.append(
            f"{words}, {race[column].notna().sum()} of {len(race)} tables to an excess of "
            f"{EXCESS:g}, {ahead.sum()} of them before every peer"
        )
    lines.append(f"**The native solver solves, {'; '.join(said)}.**")
    lost = [
        f"- {row['table']}: {row['fastest_seconds']} takes {_of(row['peer_seconds'])} s, native "
        f"{_of(row['seconds'])} s; the machine busy, {row['fastest_busy_seconds'] or 'no peer'} "
        f"{_of(row['peer_busy_seconds'])} s, native {_of(row['busy_seconds'])} s."
        for row in rows_of(race[~keeps_up(race, 1.0)])
        if row["fastest_seconds"]
    ]
    if lost:
        lines += ["Tables on which a peer is faster, idle or busy:", "\n".join(lost)]
    near = graded(frame)
    peers = [
        f"- {WORDS[solver]}: {int(rows['reached'].sum())} of {len(rows)} tables to that excess."
        for solver, rows in parts(near[near["solver"] != NATIVE], "solver")
    ]
    missing = [WORDS["skglm"]] if "skglm" not in set(frame["solver"]) else []
    lines.append("\n".join(peers))
    lines += [f"{name} was not installed, or takes none of these tables." for name in missing]
    unmeasured = {table.name for table in GRID} - set(near["table"])
    if unmeasured and len(unmeasured) < len(GRID):
        lines.append(f"Not measured yet: {len(unmeasured)} of {len(GRID)} tables.")
    threads = sorted({f"{count:.0f}" for count in frame["threads"].dropna()})
    lines.append(
        f"Limit {frame['limit'].max():g} s for each run; threads: {', '.join(threads)}, "
        f"{', '.join(sorted(set(frame['machine'])))}."
    )
    return "\n\n".join(filter(None, lines))


def _of(seconds: float) -> str:
    return "no answer in" if np.isnan(seconds) else runs.few_digits(seconds)


def verdict(frame: pd.DataFrame, most: float = 2.0) -> Verdict:
    """Judge the claim by the rule."""
    return Verdict.each(keeps_up(races(frame), most), 0.5)


# --- the picture -------------------------------------------------------------------------------

COLOURS = {
    NATIVE: BLACK,
    "liblinear": ORANGE,
    "libsvm": PURPLE,
    "skglm": SKY,
    "highs": GREY,
    "clarabel": BLUE,
    "ecos": VERMILION,
    "scs": GREEN,
}
MARKERS = {NATIVE: "*", "liblinear": "P", "libsvm": "X", "skglm": "D", "highs": "v"}
MARKERS |= {"clarabel": "o", "ecos": "s", "scs": "^"}


def draw(frame: pd.DataFrame) -> Figure:
    """Seconds of each solver that comes near enough, full if idle and hollow if busy.

    Those that do not stand apart from the times.
    """
    rows = graded(frame)
    tables = list(dict.fromkeys(rows["table"]))
    solvers = [solver for solver in WORDS if (rows["solver"] == solver).any()]
    shared: dict[str, Any] = {"sharey": True, "width_ratios": [3.4, 0.35 * len(solvers)]}
    figure, axes = subplots((10.0, 1.6 + 0.42 * len(tables)), 1, 2, **shared)
    for row in rows_of(rows):
        solver = row["solver"]
        look = {"linestyle": "", "marker": MARKERS[solver], "color": COLOURS[solver]}
        place = tables.index(row["table"])
        if not row["reached"]:
            axes[1].plot(solvers.index(solver), place, markerfacecolor="none", **look)
            continue
        # A lane a solver, so that equal times do not hide one another.
        lane = place + 0.7 * ((solvers.index(solver) + 0.5) / len(solvers) - 0.5)
        axes[0].plot(row["seconds"], lane, **look)
        axes[0].plot(row["busy_seconds"], lane, markerfacecolor="none", **look)
    axes[0].set(xscale="log", xlabel="seconds; hollow: beside two busy processes")
    axes[0].set_yticks(range(len(tables)), labels=tables)
    axes[0].set_ylim(len(tables) - 0.5, -0.5)
    axes[0].grid(visible=True, axis="x", alpha=0.3)
    axes[1].set_xlim(-0.6, len(solvers) - 0.4)
    axes[1].set_xticks(range(len(solvers)), labels=[WORDS[each] for each in solvers], rotation=90)
    axes[1].set_title("not as near", fontsize="small")
    for ax in axes:
        ax.tick_params(axis="y", length=0)
        for edge in range(1, len(tables)):
            ax.axhline(edge - 0.5, color=GREY, linewidth=0.4, alpha=0.5)
    handles = [
        Line2D([], [], linestyle="", marker=MARKERS[each], color=COLOURS[each], label=WORDS[each])
        for each in solvers
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=8, frameon=False)
    return figure


EXPERIMENT = Experiment(measure, found, tabulate, verdict, draw, options=TableOptions)
