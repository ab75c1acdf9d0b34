"""Data in blocks give the answers of data in memory."""

import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

from implicit_bias import Status, certify, max_margin, solve, solve_out_of_core
from implicit_bias.base.validation import Array
from implicit_bias.solvers.base import BoundsAt

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


def agrees(X: Array, y: Array, norm: str, *, intercept: bool, blocks: Any) -> None:
    """Whether the answer for blocks of inputs is that for the inputs in memory."""
    problem = max_margin(X, y, norm, intercept=intercept)
    known = solve(problem).certificate
    found = solve_out_of_core(blocks, y, norm, intercept=intercept, rows_per_block=1500)
    bounds = found.certificate
    assert found.status is Status.OPTIMAL
    assert bounds.gap <= 1e-6
    assert bounds.upper == pytest.approx(known.upper, rel=RTOL)
    # Both bounds are those of all samples at once, rounding errors included.
    offset = found.intercept if intercept else None
    whole = certify(problem, coef=found.coef, intercept=offset)
    assert whole.upper == pytest.approx(bounds.upper, rel=1e-12)
    alpha = np.zeros(problem.alpha_shape)
    alpha[found.index] = found.alpha
    assert certify(problem, alpha=alpha).lower == pytest.approx(bounds.lower, rel=1e-12)
    np.testing.assert_array_equal(found.problem.X, X[found.index])
    margins = problem.margins(problem.decision(found.coef), found.intercept)
    assert margins.min() == pytest.approx(1.0, rel=1e-9)
    assert margins[found.index[found.support]].max() < 1.01


@pytest.mark.slow
@pytest.mark.parametrize(
    ("norm", "K", "intercept"),
    [("l1", 2, True), ("linf", 3, True), ("spectral", 3, False), ("nuclear", 2, True)],
)
def test_answers_are_those_in_memory_under_every_norm(norm: str, K: int, intercept: bool) -> None:
    X, y = clouds(10_000, 6, K)
    agrees(X, y, norm, intercept=intercept, blocks=da.from_array(X, chunks=(1500, -1)))


@pytest.mark.parametrize("K", [2, 3])
def test_a_memory_map_in_single_precision(K: int, tmp_path: Path) -> None:
    X, y = clouds(3500, 4, K)
    np.save(tmp_path / "X.npy", X.astype(np.float32))
    stored = np.load(tmp_path / "X.npy", mmap_mode="r")
    agrees(np.asarray(stored, np.float64), y, "l2", intercept=False, blocks=stored)


def test_one_class_of_all_in_a_chunk_and_chunks_without_rows() -> None:
    X, y = clouds(3500, 4, 2)
    order = np.argsort(y, kind="stable")
    X = X[order]
    # The chunks across the features are put together.
    blocks = da.concatenate([da.from_array(X, chunks=(500, 2))[:0], da.from_array(X, chunks=900)])
    agrees(X, y[order], "l2", intercept=True, blocks=blocks)


def test_a_class_without_support_vectors() -> None:
    """Its constraints follow from those of the others, but the working set must have the class."""
    rng = np.random.default_rng(0)
    y = np.arange(4500.0) % 3
    X = rng.uniform(-0.3, 0.3, size=(len(y), 5))
    X[y == 0, 0] -= 1.0
    X[y == 1, 1] -= 1.0
    X[y == 2, :2] += 30.0
    agrees(X, y, "l2", intercept=False, blocks=da.from_array(X, chunks=(1500, -1)))


def test_no_more_than_a_block_is_read_at_once() -> None:
    X, y = clouds(6000, 4, 2)
    read = []

    class Stored:
        shape = X.shape

        def __getitem__(self, rows: Any) -> Array:
            block: Array = X[rows]
            read.append(len(block))
            return block

    agrees(X, y, "l2", intercept=False, blocks=Stored())
    assert read[0] <= 2000  # the first working set
    assert max(read[1:]) == 1500
    assert sum(read[1:]) % len(X) == 0


def test_the_upper_bound_counts_the_rounding_of_margins() -> None:
    """Inputs around 1e5 lose five digits of each margin: the bound allows for them."""
    X, y = clouds(3000, 4, 2)
    X = X + 1e5
    found = solve_out_of_core(da.from_array(X, chunks=(1500, -1)), y, intercept=True)
    coef = [Fraction(c) for c in found.coef[0].tolist()]
    margins = []
    for row, label in zip(X.tolist(), y.tolist(), strict=True):
        score = sum(c * Fraction(x) for c, x in zip(coef, row, strict=True))
        margins.append(int(label) * (score + Fraction(float(found.intercept))))
    exact = float(np.linalg.norm(found.coef)) / float(min(margins))
    assert found.certificate.upper > (1.0 + 1e-10) * exact
    assert found.certificate.upper < (1.0 + 1e-8) * exact


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
    assert found.certificate.lower == np.inf
    assert found.proof is not None
    totals = alpha.reshape(len(y), -1).sum(axis=1)
    assert found.proof.samples.tolist() == np.flatnonzero(totals).tolist()


def test_twins_that_are_far_apart_are_named_by_their_rows() -> None:
    X, y = clouds(6000, 4, 2)
    X = np.vstack([X, X[:1]])
    y = np.append(y, -y[0])
    found = solve_out_of_core(da.from_array(X, chunks=(600, -1)), y)
    assert found.status is Status.NOT_SEPARABLE
    assert found.stats.conflict is not None
    assert found.stats.conflict.samples.tolist() == [0, len(y) - 1]
    assert found.stats.conflict.cause in found.message


@pytest.mark.parametrize("in_a_pass", [False, True], ids=["after-a-round", "in-a-pass"])
def test_time_is_a_limit(monkeypatch: pytest.MonkeyPatch, in_a_pass: bool) -> None:
    """After a round; and between two blocks, of which no further one is read."""
    X, y = clouds(3500, 4, 2)
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
    assert tuple(history) == found.stats.history
    assert 0 < found.certificate.lower <= optimum.upper
    assert optimum.lower <= found.certificate.upper < np.inf


def test_what_is_refused() -> None:
    X, y = clouds(300, 4, 2)
    blocks = da.from_array(X, chunks=(90, -1))
    with pytest.raises(ValueError, match="labels"):
        solve_out_of_core(blocks, y + 0.5)
    with pytest.raises(ValueError, match="labels"):
        solve_out_of_core(blocks, y[:-1])
    with pytest.raises(ValueError, match="tol"):
        solve_out_of_core(blocks, y, tol=0.0)
    with pytest.raises(ValueError, match="compute_chunk_sizes"):
        solve_out_of_core(blocks[blocks[:, 0] > 0], y)
    with pytest.raises(ValueError, match="two dimensions"):
        solve_out_of_core(blocks[:, 0], y)


def test_a_missing_value_is_named_by_its_block() -> None:
    X, y = clouds(6000, 4, 2)
    X[1001, 2] = np.nan  # not in the first working set
    with pytest.raises(ValueError, match=r"X\[1000:2000\]"):
        solve_out_of_core(da.from_array(X, chunks=(1000, -1)), y)
