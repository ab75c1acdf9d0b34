"""The benchmark of ordinary tables: draws, the C of peers, grades, what is said, busy processes."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from benchmarks import catalogue, harness, page
from benchmarks.speed import ordinary, runs, tables
from benchmarks.speed.ordinary import Table
from implicit_bias import MarginProblem, Status, certify, max_margin, solve
from implicit_bias.base.validation import Array

STUDY = catalogue.study("speed")
ENTRY = STUDY.entry("tables")


# --- the tables --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ordinary.KINDS)
def test_a_kind_and_a_seed_are_one_problem(kind: str) -> None:
    table = ordinary.draw(kind, 5, most=400)
    assert table == ordinary.draw(kind, 5, most=400)
    assert table != ordinary.draw(kind, 6, most=400)
    assert 200 <= table.N <= 400
    problem, again = table.problem(), table.problem()
    assert problem.X.shape == (table.N, table.D)
    assert (problem.classes or 2) == len(np.unique(problem.y)) == table.K
    assert (problem.X == again.X).all()
    assert (problem.y == again.y).all()
    assert (problem.gates != again.gates).sum() == 0
    assert problem.hard_margin == np.isinf(table.C)
    assert problem.intercept == table.intercept


def test_separable_tables_are() -> None:
    for seed in range(3):
        table = ordinary.draw("separable", seed)
        assert np.linalg.matrix_rank(table.samples()[0]) == table.N


def test_gates_are_the_sides_of_a_median() -> None:
    table = Table(N=100, D=6, norm=ordinary.GATED, H=3)
    gates = np.asarray(table.problem().gates)
    for unit in range(3):
        one, other = gates[:, 2 * unit], gates[:, 2 * unit + 1]
        assert set(one) == {0.0, 1.0}
        assert (one + other == 1.0).all()
        assert one.sum() == 50


def test_labels_of_two_classes_are_signs() -> None:
    assert set(Table(N=50, D=5).samples()[1]) == {-1, 1}
    assert set(Table(N=50, D=5, K=9).samples()[1]) == set(range(9))


# --- C' of the squared norm --------------------------------------------------------------------


def noisy() -> tuple[Array, Array]:
    """Two features, some labels wrong."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(14, 2))
    return X, np.where(X @ [1.0, 0.5] + rng.normal(size=14) > 0.2, 1.0, -1.0)


def objective(X: Array, y: Array, w: Array, b: float, C: float) -> float:
    """Return ||w|| + C sum_n max(0, 1 - y_n (<w, x_n> + b))."""
    total = float(np.hypot(*w))
    for x_n, y_n in zip(X, y, strict=True):
        total += C * max(0.0, 1.0 - y_n * (w[0] * x_n[0] + w[1] * x_n[1] + b))
    return total


def best_offset(X: Array, y: Array, w: Array, C: float) -> float:
    """Return the least objective over b: it is at a kink."""
    return min(objective(X, y, w, y_n - float(x_n @ w), C) for x_n, y_n in zip(X, y, strict=True))


def least(value: Callable[[Array], float]) -> float:
    """Return the minimum of a convex function of two numbers: grids around the best, ever finer."""
    best, width = np.zeros(2), 4.0
    for _ in range(24):
        steps = np.linspace(-width, width, 9)
        tried = [best + [a, b] for a in steps for b in steps]
        best = min(tried, key=value)
        width *= 0.5
    return value(best)


@pytest.mark.parametrize("C", [0.3, 2.0])
def test_liblinear_with_the_matched_c_minimises_the_norm(C: float) -> None:
    X, y = noisy()
    problem = max_margin(X, y, C=C)
    expected = least(lambda w: objective(X, y, w, 0.0, C))
    assert solve(problem).certificate.upper == pytest.approx(expected, rel=1e-5)
    found = tables.liblinear(problem, matched(problem), 1e-9)
    assert objective(X, y, found.coef[0], 0.0, C) == pytest.approx(expected, rel=1e-6)
    unmatched = tables.liblinear(problem, 0.1 * C, 1e-9)
    assert objective(X, y, unmatched.coef[0], 0.0, C) > 1.001 * expected


@pytest.mark.parametrize("C", [0.3, 2.0])
def test_libsvm_with_the_matched_c_minimises_the_norm(C: float) -> None:
    X, y = noisy()
    problem = max_margin(X, y, C=C, intercept=True)
    expected = least(lambda w: best_offset(X, y, w, C))
    found = tables.libsvm(problem, matched(problem), 1e-9)
    assert isinstance(found.intercept, float)
    value = objective(X, y, found.coef[0], found.intercept, C)
    assert value == pytest.approx(expected, rel=1e-6)
    assert certify(problem, found.coef, found.alpha, found.intercept).gap < 1e-6
    unmatched = tables.libsvm(problem, 0.1 * C, 1e-9)
    assert best_offset(X, y, unmatched.coef[0], C) > 1.001 * expected


def test_liblinear_has_the_loss_of_many_classes() -> None:
    X, y = Table(N=60, D=5, K=3).samples()
    C = 0.2
    problem = max_margin(X, y, C=C)
    W = tables.liblinear(problem, matched(problem), 1e-9).coef[:, 0]
    total = float(np.sqrt((W**2).sum()))
    for x_n, y_n in zip(X, y, strict=True):
        rivals = [W[k] @ x_n for k in range(3) if k != y_n]
        total += C * max(0.0, 1.0 - (W[y_n] @ x_n - max(rivals)))
    assert total == pytest.approx(solve(problem, tol=1e-9).certificate.lower, rel=1e-6)


def test_a_hard_margin_is_a_large_c() -> None:
    X, y = noisy()
    X = X + 3.0 * y[:, None]
    for intercept in (False, True):
        problem = max_margin(X, y, intercept=intercept)
        peer = tables.libsvm if intercept else tables.liblinear
        found = peer(problem, matched(problem), 1e-9)
        upper = certify(problem, found.coef).upper
        assert upper == pytest.approx(solve(problem).certificate.lower, rel=1e-5)


def matched(problem: MarginProblem) -> float:
    found = solve(problem, tol=tables.MATCHING)
    answer = tables.Found(found.coef, found.intercept, found.alpha)
    optimum = tables.optimum_of(problem, answer, found.certificate.lower)
    return tables.matched_C(float(np.max(problem.C)), optimum)


# --- the peers ---------------------------------------------------------------------------------

SMALL = [
    Table(N=60, D=5),
    Table(N=60, D=5, intercept=True),
    Table(N=30, D=40, C=np.inf, wrong=0.0),
    Table(N=60, D=5, K=3, C=0.1),
    Table(N=60, D=5, K=3, C=0.1, intercept=True),
    Table(N=60, D=5, norm=ordinary.GATED, H=2, intercept=True),
    Table(N=60, D=5, K=3, norm=ordinary.GATED, H=2),
    Table(N=60, D=5, norm="l1", C=0.1, intercept=True),
    Table(N=30, D=40, norm="l1", C=np.inf),
    Table(N=60, D=5, K=3, norm="l1", C=0.1),
    Table(N=60, D=5, norm="linf", C=0.1),
    Table(N=60, D=5, K=3, norm="linf", C=0.1, intercept=True),
    Table(N=60, D=5, K=3, norm="spectral", C=0.1),
    Table(N=60, D=5, K=3, norm="nuclear", C=0.1, intercept=True),
]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of what the peers call
@pytest.mark.parametrize("table", SMALL, ids=lambda table: table.name)
def test_every_peer_has_the_same_optimum(table: Table) -> None:
    problem = table.problem()
    optimum = solve(problem, tol=1e-8)
    assert optimum.status is Status.OPTIMAL
    peers = 0
    for solver in tables.WORDS:
        for formulation in tables.formulations(solver, table):
            found = tables.answer_of(
                solver,
                formulation,
                problem,
                tol=tables.TOLERANCES[solver][-1],
                matched=matched(problem) if table.norm == "l2" else np.nan,
                seconds=60.0,
            )
            offset = found.intercept if table.intercept else None
            bounds = certify(problem, found.coef, found.alpha, offset)
            excess = tables.excess(bounds.upper, optimum.certificate.lower)
            assert excess < 1e-5, (solver, formulation)
            if found.alpha is not None:
                assert bounds.gap < 1e-4, (solver, formulation)
            peers += solver != tables.NATIVE
    assert peers >= 2


def test_peers_of_another_program_are_left_out() -> None:
    def peers(**options: Any) -> set[str]:
        table = Table(N=60, D=5, **options)
        return {solver for solver in tables.WORDS if tables.formulations(solver, table)}

    assert "liblinear" in peers() - peers(intercept=True)
    assert "libsvm" in peers(intercept=True) - peers() - peers(intercept=True, K=3)
    assert "liblinear" in peers(K=3)
    assert not {"liblinear", "libsvm", "highs"} & peers(norm=ordinary.GATED, H=2)
    assert "highs" in peers(norm="l1") & peers(norm="linf", K=3)
    assert "ecos" not in peers(norm="nuclear", K=3)
    names = [table.name for table in tables.GRID]
    assert len(set(names)) == len(names) >= 20


# --- grades ------------------------------------------------------------------------------------


def answer(seconds: float, upper: float, lower: float = 0.0, **more: Any) -> dict[str, Any]:
    return {"outcome": "answered", "seconds": seconds, "upper": upper, "lower": lower, **more}


STOPPED = {"outcome": "time limit", "detail": "more than 9 s"}


def test_an_excess_is_over_the_best_lower_bound() -> None:
    assert tables.excess(3.0, 2.0) == 0.5
    assert tables.excess(3.0, 0.0) == np.inf
    assert tables.excess_of(answer(1.0, 3.0, 2.0), 2.5) == pytest.approx(0.2)
    assert tables.excess_of(answer(1.0, 3.0, 2.5), 2.0) == pytest.approx(0.2)
    assert tables.excess_of(answer(1.0, 3.0, 2.0), np.nan) == 0.5
    assert tables.excess_of(STOPPED, 2.0) == np.inf
    assert tables.reached(answer(1.0, 1.0 + 9e-7), 1.0)
    assert not tables.reached(answer(1.0, 1.0 + 2e-6), 1.0)


def test_the_fastest_of_those_near_enough_is_the_better() -> None:
    slow, fast, far = answer(2.0, 1.0 + 1e-9), answer(1.0, 1.0 + 1e-7), answer(0.1, 1.1)
    assert tables.better(fast, slow, 1.0)
    assert not tables.better(slow, fast, 1.0)
    assert tables.better(slow, far, 1.0)
    assert not tables.better(far, slow, 1.0)
    assert tables.better(far, STOPPED, 1.0)


def test_tolerances_are_asked_for_until_one_is_near_enough() -> None:
    uppers = {1e-3: 1.1, 1e-5: 1.01, 1e-7: 1.0 + 1e-8, 1e-9: 1.0}
    tried = []

    def ask(tol: float) -> dict[str, Any]:
        tried.append(tol)
        return answer(1.0, uppers[tol]) if tol in uppers else STOPPED

    assert tables.tightened(ask, list(uppers), 1.0)["upper"] == 1.0 + 1e-8
    assert tried == [1e-3, 1e-5, 1e-7]
    # Of one that is stopped before, its nearest answer is left.
    assert tables.tightened(ask, [1e-3, 1e-5, 1e-8, 1e-9], 1.0)["upper"] == 1.01
    assert tried[3:] == [1e-3, 1e-5, 1e-8]


# --- a table that is measured ------------------------------------------------------------------


def row(table: Table, solver: str, **facts: Any) -> dict[str, Any]:
    blank: dict[str, Any] = dict.fromkeys(("detail", "status", "formulation", "busy"), "")
    blank |= dict.fromkeys(("tol", "seconds", "busy_seconds", "lower", "upper", "gap"), np.nan)
    blank |= {"limit": 9.0, "machine": "x86_64", "threads": 1.0}
    if "busy_seconds" in facts:
        blank["busy"] = "answered"
    return {**asdict(table), "solver": solver, **blank, **facts}


def measured() -> pd.DataFrame:
    first, second = tables.GRID[0], tables.GRID[15]
    rows = [
        row(second, "native", **answer(0.5, 2.0 + 1e-7, 2.0), busy_seconds=0.9),
        row(second, "highs", **answer(1.5, 2.0, 1.9), formulation="simplex", busy_seconds=3.0),
        row(second, "scs", **answer(0.1, 2.1, 1.0), formulation="primal"),
        row(first, "liblinear", **answer(0.1, 1.0), formulation="squared", busy_seconds=0.2),
        row(first, "native", **answer(0.4, 1.0, 1.0 - 1e-7), busy_seconds=0.3),
        row(first, "ecos", **STOPPED, formulation="primal"),
    ]
    return pd.DataFrame(rows)


def test_races_are_between_those_near_enough() -> None:
    frame = measured()
    first, second = harness.rows_of(tables.races(frame))  # in the order of the grid
    assert first["table"] == tables.GRID[0].name
    assert (first["seconds"], first["peer_seconds"]) == (0.4, 0.1)
    assert (first["busy_seconds"], first["peer_busy_seconds"]) == (0.3, 0.2)
    assert first["fastest_seconds"] == "LIBLINEAR"
    # SCS was faster, but 5 % from the optimum.
    assert (second["seconds"], second["peer_seconds"]) == (0.5, 1.5)
    for most, expected in [(1.0, [False, True]), (2.0, [False, True]), (4.0, [True, True])]:
        assert tables.keeps_up(tables.races(frame), most).tolist() == expected


def test_verdicts() -> None:
    frame = measured()
    assert tables.verdict(frame, 4.0) is harness.Verdict.STANDS
    assert tables.verdict(frame) is harness.Verdict.FALLS  # half are not most
    native = frame["solver"] == "native"
    far = frame.assign(upper=frame["upper"].where(~native, 1.01 * frame["upper"]))
    assert tables.verdict(far, 4.0) is harness.Verdict.FALLS
    # A bound that another solver has counts for all.
    lower = frame["lower"].where(frame["solver"] != "liblinear", 1.0)
    assert tables.graded(frame.assign(lower=lower))["excess"].min() == 0.0
    silent = frame.assign(busy_seconds=frame["busy_seconds"].where(~native))
    assert tables.verdict(silent, 4.0) is harness.Verdict.FALLS


def test_the_table_of_the_page_has_every_row() -> None:
    frame = measured()
    shown = pd.DataFrame(tables.tabulate(frame))
    assert len(shown) == len(frame)
    by_solver = {(line["table"], line["solver"]): line for line in harness.rows_of(shown)}
    first, second = tables.GRID[0].name, tables.GRID[15].name
    assert by_solver[first, "ECOS"]["idle, s"] == "> 9"
    assert by_solver[first, "LIBLINEAR"]["idle, s"] == "0.1"
    assert by_solver[first, "LIBLINEAR"]["busy, s"] == "0.2"
    assert by_solver[first, "LIBLINEAR"]["idle / native"] == "0.25"
    assert by_solver[second, "SCS"]["excess"] == "5e-02"
    text = page.findings(page.Result(STUDY, ENTRY, frame))
    assert f"| {first} | LIBLINEAR |" in text
    assert "19 of 21" in text  # not measured yet
    figure = tables.draw(frame)
    answered, silent = figure.axes[:2]
    hollow = [line for line in silent.lines if line.get_marker() not in ("", "None")]
    assert len(hollow) == 2
    assert [text.get_text() for text in answered.get_yticklabels()] == [first, second]


def test_a_peer_needs_the_native_row() -> None:
    table = tables.GRID[0]
    with pytest.raises(harness.Misuse, match="native"):
        tables.known_optimum(table, [])
    known = row(table, "native", **answer(1.0, 2.0, 1.0), size=3.0, largest=0.5)
    optimum = tables.known_optimum(table, [known])
    assert optimum == (1.0, 3.0, 0.5)
    assert tables.matched_C(0.1, optimum) == pytest.approx(0.3)
    assert tables.matched_C(np.inf, optimum) == tables.HARD * 1.5
    with pytest.raises(harness.Misuse):
        tables.known_optimum(replace(table, seed=4), [known])


# --- processes ---------------------------------------------------------------------------------


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_busy_processes_end_with_the_block() -> None:
    with tables.busy(2) as spinning:
        assert len(set(spinning)) == 2
        assert all(alive(process) for process in spinning)
    assert not any(alive(process) for process in spinning)
    with pytest.raises(ZeroDivisionError), tables.busy(1) as spinning:
        raise ZeroDivisionError
    assert not alive(spinning[0])


@pytest.mark.slow
def test_busy_processes_end_with_their_caller() -> None:
    """Even with one that is killed in the middle of the block."""
    script = (
        "from benchmarks.speed.tables import busy\n"
        "import time\n"
        "with busy(1) as spinning:\n"
        "    print(spinning[0], flush=True)\n"
        "    time.sleep(600)\n"
    )
    caller = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert caller.stdout is not None
    process = int(caller.stdout.readline())
    caller.kill()
    caller.wait()
    caller.stdout.close()
    end = time.monotonic() + 60.0
    while alive(process) and time.monotonic() < end:
        time.sleep(0.1)
    assert not alive(process)


@pytest.mark.filterwarnings("ignore")
def test_facts_come_in_three_stages() -> None:
    question = tables.Question(
        table=Table(N=60, D=5),
        solver="native",
        formulation="auto",
        tol=1e-6,
        matched=np.nan,
        seconds=60.0,
    )
    before, timed, bounds = tables.stages(question)
    assert before["threads"] >= 1
    assert 1 <= timed["runs"] <= tables.MAX_RUNS
    assert timed["seconds"] > 0
    assert bounds["outcome"] == runs.ANSWERED
    assert bounds["gap"] <= 1e-6
    assert bounds["size"] > 0
    assert 0 < bounds["largest"] <= 1.0 + 1e-9
