"""Features and constraints, the two parts of a problem, against loops over their definitions."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from implicit_bias.base.validation import Array
from implicit_bias.problem import MarginProblem
from implicit_bias.problem.constraints import evenly_spaced, worst_rows
from oracles import loop_rows


def draw(classes: int | None, intercept: bool, *, sparse: bool) -> MarginProblem:
    """Seven samples, one of which has no gate on."""
    rng = np.random.default_rng(0)
    gates = rng.normal(size=(7, 3)) * (rng.random((7, 3)) < 0.7)
    gates[4] = 0.0
    y = np.array([1, -1, -1, 1, -1, 1, 1]) if classes is None else np.array([0, 1, 3, 2, 0, 1, 3])
    return MarginProblem(
        X=rng.normal(size=(7, 2)),
        y=y,
        gates=sp.csr_array(gates) if sparse else gates,
        groups=np.array([0, 1, 0]),
        intercept=intercept,
        classes=classes,
    )


@pytest.fixture(
    params=[(None, False, True), (None, True, False), (4, False, False), (4, True, True)]
)
def problem(request: pytest.FixtureRequest) -> MarginProblem:
    classes, intercept, sparse = request.param
    return draw(classes, intercept, sparse=sparse)


def test_constraints_are_those_of_their_definition(problem: MarginProblem) -> None:
    rng = np.random.default_rng(1)
    rows = problem.constraints
    expected = loop_rows(problem)
    width = problem.norm_shape[0]
    scores = rng.normal(size=(7, width))
    values = rng.exponential(size=len(rows))
    labels = rows.label_vectors.toarray()
    totals = np.zeros(7)
    weights = np.zeros((7, width))
    alpha = np.full(problem.alpha_shape, np.nan)
    smallest = np.full(7, np.inf)
    assert len(rows) == len(expected)
    for p, (n, b, place) in enumerate(expected):
        margin = b @ scores[n]
        assert rows.samples[p] == n
        assert labels[p].tolist() == b.tolist()
        assert rows.margins(scores)[p] == pytest.approx(margin)
        assert rows.margin_errors(scores)[p] == pytest.approx(np.abs(b) @ scores[n])
        smallest[n] = min(smallest[n], margin)
        totals[n] += values[p]
        weights[n] += values[p] * b
        alpha[place] = values[p]
    np.testing.assert_allclose(rows.totals(values), totals)
    np.testing.assert_allclose(rows.weights(values), weights)
    np.testing.assert_allclose(rows.smallest(rows.margins(scores)), smallest)
    np.testing.assert_array_equal(rows.alpha(values, np.nan), alpha)
    np.testing.assert_array_equal(rows.alpha_of_rows(alpha), values)


def test_some_of_the_constraints(problem: MarginProblem) -> None:
    whole = problem.constraints
    index = np.array([1, 2, 5])
    some = whole.subset(index)
    narrow = whole.narrowed()
    np.testing.assert_array_equal(
        some.label_vectors.toarray(), whole.label_vectors.toarray()[index]
    )
    np.testing.assert_array_equal(some.offset_columns, whole.offset_columns[index])
    reduced = whole.label_vectors.toarray()[:, : whole.n_classes - 1]
    np.testing.assert_array_equal(narrow.label_vectors.toarray(), reduced)


def test_free_offsets_are_those_of_all_classes_but_one(problem: MarginProblem) -> None:
    """The offsets of two classes differ by as much whether one is free or both are."""
    rows = problem.constraints
    free = np.arange(1.0, 1.0 + rows.offset_columns.shape[1])
    assert len(free) == (0 if not problem.intercept else 3 if problem.classes else 1)
    scores = np.broadcast_to(rows.of_classes(free), (7, rows.width))
    np.testing.assert_allclose(rows.offset_columns @ free, rows.margins(scores))
    # Only differences count: those of all classes but the last one.
    np.testing.assert_allclose(rows.free_offsets(rows.of_classes(free)), free)
    if problem.classes:
        np.testing.assert_allclose(rows.free_offsets(rows.of_classes(free) + 5.0), free)


def test_weights_of_zero_are_one_a_sample(problem: MarginProblem) -> None:
    rows = problem.constraints
    assert rows.totals(rows.alpha_of_rows(rows.equal_alpha())).tolist() == pytest.approx([1.0] * 7)


ALL_ROWS = draw(4, False, sparse=False).constraints


def loop_worst(margins: Array, samples: list[int], most: int, below: float) -> list[int]:
    """First one row a sample, from the smallest margin on, then the others."""
    order = sorted(range(len(margins)), key=lambda p: (margins[p], p))
    order = [p for p in order if margins[p] < below]
    seen: set[int] = set()
    first = [p for p in order if not (samples[p] in seen or seen.add(samples[p]))]  # type: ignore[func-returns-value]
    return sorted([*first, *(p for p in order if p not in first)][:most])


@settings(max_examples=60)
@given(
    chosen=st.lists(st.tuples(st.integers(0, 20), st.integers(-3, 4)), min_size=1, max_size=25),
    below=st.sampled_from([np.inf, 2.0, -1.0, -9.0]),
    most=st.integers(0, 30),
)
def test_worst_rows_are_those_of_a_loop(
    chosen: list[tuple[int, int]], below: float, most: int
) -> None:
    kept = dict(chosen)
    index = np.array(sorted(kept))
    rows = ALL_ROWS.subset(index)
    margins = np.array([np.inf if kept[p] == 4 else float(kept[p]) for p in index])
    found = worst_rows(margins, rows.samples, below, most)
    assert found.tolist() == loop_worst(margins, rows.samples.tolist(), most, below)


def test_constraints_of_exact_numbers() -> None:
    """Float64 would lose the third bit of each of these."""
    rows = draw(4, True, sparse=False).constraints
    tiny = Fraction(1, 2**80)
    values: Any = np.array([Fraction(p) + tiny for p in range(len(rows))], dtype=object)
    weights = rows.weights(values)
    assert all(weights[n].sum() == 0 for n in range(7))
    assert rows.totals(values)[1] == 3 * tiny + 3 + 4 + 5
    assert rows.margins(weights)[3] == weights[1, 1] - weights[1, 0]
    assert rows.smallest(values).tolist() == [3 * n + tiny for n in range(7)]


def test_features_are_those_of_their_definition(problem: MarginProblem) -> None:
    rng = np.random.default_rng(1)
    features = problem.features
    width = problem.norm_shape[0]
    gates = features.sparse_gates.toarray()
    phi = np.stack([np.outer(z, x) for z, x in zip(gates, problem.X, strict=True)])  # (N, M, D)
    coef = rng.normal(size=(width, *features.shape))
    weights = rng.normal(size=(7, width))
    np.testing.assert_allclose(features.scores(coef), np.einsum("kmd,nmd->nk", coef, phi))
    np.testing.assert_allclose(features.adjoint(weights), np.einsum("nk,nmd->kmd", weights, phi))
    np.testing.assert_allclose(features.norms, np.sqrt((phi**2).sum(axis=(1, 2))))
    assert features.zero.tolist() == [n == 4 for n in range(7)]
    for g in range(2):
        group = phi[:, features.groups == g].reshape(7, -1)
        np.testing.assert_allclose(features.row_gram(g), group @ group.T, atol=1e-14)
    np.testing.assert_allclose(features.matrix().toarray(), phi.reshape(7, -1), atol=1e-14)
    of_group = features.matrix(features.groups == 1).toarray()
    np.testing.assert_allclose(of_group, phi[:, features.groups == 1].reshape(7, -1), atol=1e-14)
    some = features.subset(np.array([5, 0]))
    np.testing.assert_allclose(some.scores(coef), features.scores(coef)[[5, 0]])


@pytest.mark.parametrize("narrow", [False, True])
def test_features_of_rows_score_their_margins(problem: MarginProblem, narrow: bool) -> None:
    rows = problem.constraints.narrowed() if narrow else problem.constraints
    features = problem.features
    coef = np.random.default_rng(2).normal(size=(rows.width, *features.shape))
    lifted = features.of_rows(rows)
    found = lifted.scores(coef.reshape(1, -1, features.shape[1]))[:, 0]
    np.testing.assert_allclose(found, rows.margins(features.scores(coef)), atol=1e-14)
    assert lifted.groups.tolist() == features.groups.tolist() * rows.width


def test_some_samples_of_each_label_are_evenly_spaced() -> None:
    labels = np.array([2, 0, 0, 2, 0, 1, 0, 0])
    assert evenly_spaced(labels, 3).tolist() == [0, 1, 3, 4, 5, 7]  # 0: 1, 4, 7; 1: 5; 2: 0, 3
    assert evenly_spaced(labels, 1).tolist() == [0, 1, 5]
