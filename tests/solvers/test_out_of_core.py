"""Data in blocks give the answers of data in memory."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

from implicit_bias import MarginProblem, Status, certify, max_margin, solve, solve_out_of_core
from implicit_bias.base.validation import Array
from implicit_bias.solvers.base import BoundsAt
from implicit_bias.solvers.out_of_core import Blocks, price_blocks
from oracles import check_overlap
from system import LOCALLY, python

RTOL = 1e-6


def clouds(n: int, d: int, K: int, *, separable: bool = True) -> tuple[Array, Array]:
    """Classes by the largest of K linear functions, without what is near a boundary."""
    rng = np.random.default_rng(0)
    W = rng.normal(size=(K, d))
    X = rng.normal(size=(n, d))
    scores = X @ W.T
    ranked = np.sort(scores, axis=1)
    clear = ranked[:, -1] - ranked[:, -2] > 0.3
    y = scores.argmax(axis=1) if separable else rng.integers(0, K, n)
    labels: Array = y.astype(np.float64)
    if K == 2:
        labels = 2.0 * labels - 1.0
    return X[clear], labels[clear]


def test_worst_rows_are_those_of_a_loop() -> None:
    X = np.random.default_rng(0).normal(size=(23, 3))
    y = np.arange(23.0) % 3
    coef = np.random.default_rng(1).uniform(-1, 1, (3, 1, 3))
    offsets = np.array([0.5, -0.25, 0.0])
    scores = X @ coef[:, 0].T + offsets
    margins = np.empty(23)
    for n in range(23):
        own = int(y[n])
        margins[n] = min(scores[n, own] - scores[n, k] for k in range(3) if k != own)
    blocks = Blocks.of(da.from_array(X, chunks=((5, 0, 11, 7), (3,))), da.from_array(y, chunks=4))
    for limit, count in ((0.3, 100), (0.3, 4), (np.inf, 6), (-9.0, 5)):
        found = price_blocks(blocks, coef, offsets, 3, below=limit, count=count)
        order = [n for n in np.argsort(margins, kind="stable") if margins[n] < limit][:count]
        assert found.rows.index.tolist() == sorted(order)
        np.testing.assert_allclose(found.margins, margins[np.sort(order).astype(int)], rtol=1e-12)
        np.testing.assert_array_equal(found.rows.X, X[found.rows.index])
        np.testing.assert_array_equal(found.rows.y, y[found.rows.index])
        assert found.smallest == pytest.approx(margins.min(), rel=1e-12)
        assert margins.min() - 1e-13 < found.at_least < found.smallest


def agrees(X: Array, y: Array, norm: str, *, intercept: bool, chunk: int) -> None:
    problem = max_margin(X, y, norm, intercept=intercept)
    known = solve(problem).certificate
    found = solve_out_of_core(da.from_array(X, chunks=(chunk, -1)), y, norm, intercept=intercept)
    bounds = found.certificate
    assert found.status is Status.OPTIMAL
    assert bounds.gap <= 1e-6
    assert bounds.upper == pytest.approx(known.upper, rel=RTOL)
    # Both bounds are those of all samples at once.
    offset = found.intercept if intercept else None
    whole = certify(problem, coef=found.coef, intercept=offset)
    assert whole.upper == pytest.approx(bounds.upper, rel=1e-12)
    alpha = np.zeros(problem.alpha_shape)
    alpha[found.index] = found.alpha
    assert certify(problem, alpha=alpha).lower == pytest.approx(bounds.lower, rel=1e-12)
    np.testing.assert_array_equal(found.working.X, X[found.index])
    margins = problem.margins(problem.decision(found.coef), found.intercept)
    assert margins.min() == pytest.approx(1.0, rel=1e-9)
    assert margins[found.support].max() < 1.01
    scores = problem.decision(found.coef) + found.intercept
    np.testing.assert_allclose(found.decision(X), scores, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize(
    ("norm", "intercept"),
    [("l1", True), ("l2", False), ("linf", True), ("spectral", False), ("nuclear", True)],
)
def test_answers_are_those_in_memory_under_every_norm(K: int, norm: str, intercept: bool) -> None:
    agrees(*clouds(10_000, 6, K), norm, intercept=intercept, chunk=1500)


@pytest.mark.parametrize(("K", "intercept"), [(2, False), (4, True)])
def test_what_does_not_separate_is_proven(K: int, intercept: bool) -> None:
    X, y = clouds(1500, 4, K, separable=False)
    found = solve_out_of_core(da.from_array(X, chunks=(600, -1)), y, intercept=intercept)
    assert found.status is Status.NOT_SEPARABLE
    assert not found.coef.any()
    problem = max_margin(X, y, intercept=intercept)
    alpha = np.zeros(problem.alpha_shape)
    alpha[found.index] = found.alpha
    assert certify(problem, alpha=alpha).lower == np.inf


def test_a_conflict_far_from_the_first_samples_is_found() -> None:
    X, y = clouds(6000, 4, 2)
    X = np.vstack([X, X[77:78]])
    y = np.append(y, -y[77])
    found = solve_out_of_core(da.from_array(X, chunks=(600, -1)), y)
    assert found.status is Status.NOT_SEPARABLE
    assert found.conflict is not None
    assert found.conflict.samples.tolist() == [77, len(y) - 1]
    assert found.conflict.cause in found.message


def test_a_memory_map_in_single_precision(tmp_path: Path) -> None:
    X, y = clouds(5000, 4, 2)
    np.save(tmp_path / "X.npy", X.astype(np.float32))
    stored = np.load(tmp_path / "X.npy", mmap_mode="r")
    found = solve_out_of_core(stored, y.astype(np.int8), rows_a_block=700)
    known = solve(max_margin(np.asarray(stored, np.float64), y))
    assert found.certificate.upper == pytest.approx(known.certificate.upper, rel=RTOL)


def test_limits_end_with_bounds_that_hold() -> None:
    X, y = clouds(6000, 4, 2)
    blocks = da.from_array(X, chunks=(900, -1))
    optimum = solve(max_margin(X, y)).certificate
    lines: list[BoundsAt] = []
    first = solve_out_of_core(blocks, y, max_rounds=1, on_progress=lines.append)
    assert first.status is Status.ITERATION_LIMIT
    assert lines == list(first.history)
    assert first.certificate.lower > 0
    check_overlap(first.certificate, optimum, 0.0)
    small = solve_out_of_core(blocks, y, most_rows=20)
    assert small.status is Status.MEMORY_LIMIT
    assert small.certificate.lower <= optimum.upper


@pytest.mark.parametrize("in_a_pass", [False, True], ids=["after-a-round", "in-a-pass"])
def test_time_is_a_limit(monkeypatch: pytest.MonkeyPatch, in_a_pass: bool) -> None:
    """After a round; and between two blocks, of which no further one is read."""
    X, y = clouds(6000, 4, 2)
    now = [0.0]
    history: list[BoundsAt] = []
    rounds: list[int] = []

    def read(block: Array) -> Array:
        rounds.append(len(history))
        now[0] += 3600.0 * (in_a_pass and len(history) == 1)
        return block

    def on_progress(bounds: BoundsAt) -> None:
        history.append(bounds)
        now[0] += 3600.0 * (not in_a_pass)

    blocks = da.from_array(X, chunks=(900, -1)).map_blocks(read, meta=X[:0])
    optimum = solve(max_margin(X, y)).certificate
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    with dask.config.set(scheduler="synchronous"):
        found = solve_out_of_core(blocks, y, max_seconds=60.0, on_progress=on_progress)
    assert found.status is Status.TIME_LIMIT
    assert rounds.count(1) == int(in_a_pass)
    assert tuple(history) == found.history
    assert 0 < found.certificate.lower <= optimum.upper
    assert optimum.lower <= found.certificate.upper < np.inf


def test_time_that_is_up_before_anything_is_read() -> None:
    X, y = clouds(600, 4, 2)
    with pytest.raises(TimeoutError):
        solve_out_of_core(da.from_array(X, chunks=(90, -1)), y, max_seconds=1e-9)


def test_one_class_of_all_in_a_block() -> None:
    X, y = clouds(2000, 4, 2)
    order = np.argsort(y, kind="stable")
    agrees(X[order], y[order], "l2", intercept=True, chunk=500)


def test_arguments_are_checked() -> None:
    X, y = clouds(300, 4, 2)
    blocks = da.from_array(X, chunks=(90, -1))
    with pytest.raises(ValueError, match="labels"):
        solve_out_of_core(blocks, y + 0.5)
    with pytest.raises(ValueError, match="classes"):
        solve_out_of_core(blocks, y, classes=3)
    with pytest.raises(ValueError, match="tol"):
        solve_out_of_core(blocks, y, tol=0.0)
    with pytest.raises(ValueError, match="max_seconds"):
        solve_out_of_core(blocks, y, max_seconds=0.0)
    with pytest.raises(TypeError, match="on_progress"):
        solve_out_of_core(blocks, y, on_progress=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="X"):
        solve_out_of_core(blocks, y).decision(np.nan * X)


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """Workers that are threads of this process, so that the test is quick."""
    from distributed import Client, LocalCluster

    local = LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0", **LOCALLY
    )
    with local, Client(local):
        yield


def test_workers_of_a_cluster(cluster: None) -> None:
    agrees(*clouds(2000, 4, 2), "l2", intercept=False, chunk=350)


def test_a_cluster_that_does_not_answer(cluster: None) -> None:
    """It is not waited for beyond the limit, and what it was asked for is withdrawn."""
    from distributed import Event, get_client

    X, y = clouds(600, 4, 2)
    never = da.from_array(X, chunks=(90, -1)).map_blocks(
        lambda block: block[: Event("never").wait()], meta=X[:0]
    )
    with pytest.raises(TimeoutError):
        solve_out_of_core(never, y, max_seconds=0.5)
    Event("never").set()
    assert not get_client().futures


def test_a_problem_of_few_classes_named_so() -> None:
    X, y = clouds(2000, 4, 2)
    found = solve_out_of_core(da.from_array(X, chunks=(600, -1)), (y + 1) / 2, classes=2)
    assert isinstance(found.working, MarginProblem)
    known = solve(max_margin(X, y)).certificate.upper
    assert found.certificate.upper == pytest.approx(known / np.sqrt(2), rel=RTOL)


@pytest.mark.slow
def test_a_new_process_solves_twice() -> None:
    """The first solve imports Dask's parts, and must leave their configuration whole."""
    code = (
        "import dask.array as da, numpy as np\n"
        "from implicit_bias import solve_out_of_core\n"
        "X = np.random.default_rng(0).normal(size=(600, 2)) + 9.0\n"
        "X[:300] *= -1.0\n"
        "y = np.repeat([-1.0, 1.0], 300)\n"
        "for _ in range(2):\n"
        "    print(solve_out_of_core(da.from_array(X, chunks=(200, -1)), y).status.name)\n"
    )
    assert python(code).split() == ["OPTIMAL", "OPTIMAL"]


# --- how data are cut into blocks, and what is refused ------------------------------------------


def data(n: int = 23, d: int = 3) -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    return X, np.where(X[:, 0] > 0, 1.0, -1.0)


def on_disk(X: Array, folder: Path) -> np.memmap[Any, Any]:
    file = folder / "X.npy"
    np.save(file, X)
    return np.load(file, mmap_mode="r")


@pytest.mark.parametrize("rows", [None, 7])
def test_a_memory_map_is_read_in_blocks(tmp_path: Path, rows: int | None) -> None:
    X, y = data()
    blocks = Blocks.of(on_disk(X, tmp_path), y, rows)
    read = blocks.map(lambda X, y, start: (X, y, start))
    np.testing.assert_array_equal(np.concatenate([part[0] for part in read]), X)
    np.testing.assert_array_equal(np.concatenate([part[1] for part in read]), y)
    assert [part[2] for part in read] == list(range(0, 23, rows or 23))


def test_spread_rows_have_all_labels() -> None:
    X, y = data(100)
    y = np.where(np.arange(100) == 57, 3.0, np.arange(100) % 2)
    found = Blocks.of(da.from_array(X, chunks=(10, 3)), y).sample_evenly(20)
    assert set(found.y) == {0.0, 1.0, 3.0}
    assert 20 <= len(found) <= 30
    np.testing.assert_array_equal(found.X, X[found.index])
    np.testing.assert_array_equal(found.y, y[found.index])


def test_what_cannot_be_cut_is_refused(tmp_path: Path) -> None:
    X, y = data()
    array = da.from_array(X, chunks=(8, 3))
    file = on_disk(X, tmp_path)
    np.save(tmp_path / "F.npy", np.asfortranarray(X))
    refused: dict[str, tuple[Any, ...]] = {
        "across": (array.rechunk((8, 2)), y),
        "unknown": (array[array[:, 0] > 0], y),
        "labels": (array, y[:-1]),
        "mask": (array, np.ma.masked_array(y, y > 0)),
        "dimension": (array, y[:, None]),
        "part": (file[2:], y[2:]),
        "rows_a_block": (file, y, 0),
        "at least one row": (array[:0], y[:0]),
        "Fortran": (np.load(tmp_path / "F.npy", mmap_mode="r"), y),
    }
    for word, arguments in refused.items():
        with pytest.raises(ValueError, match=word):
            Blocks.of(*arguments)
    with pytest.raises(TypeError, match="max_margin"):
        Blocks.of(X, y)


def test_a_map_whose_file_has_other_values_is_refused(tmp_path: Path) -> None:
    X, y = data()
    file = on_disk(X, tmp_path)
    private = np.load(tmp_path / "X.npy", mmap_mode="c")
    private += 1.0  # in memory alone
    with pytest.raises(ValueError, match="mode 'c'"):
        Blocks.of(private, y)
    blocks = Blocks.of(file, y, 10)
    with (tmp_path / "X.npy").open("r+b") as opened:
        opened.truncate(300)
    with pytest.raises(ValueError, match="ends before"):
        blocks.sample_evenly(5)


def test_errors_of_a_block_name_its_rows() -> None:
    X, y = data()
    X[13, 1] = np.nan
    blocks = Blocks.of(da.from_array(X, chunks=(8, 3)), y)
    with pytest.raises(ValueError, match=r"rows 8 to 15.*NaN"):
        blocks.sample_evenly(5)
    with pytest.raises(ValueError, match="rows 8 to 15"):
        price_blocks(blocks, np.ones((1, 3)), 0.0, None, below=1.0, count=3)
