"""Gates: against loops and dicts, seeds, thresholds."""

import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import cloud, dense
from implicit_bias.base.validation import Array
from implicit_bias.problem.gating import (
    THRESHOLD_SCALE,
    WEIGHT_SCALE,
    Gating,
    GlobalContexts,
    HyperplaneContexts,
    NoGates,
    UnitGates,
    _median,
)

X, _ = cloud(40, 5)
TEST, _ = cloud(60, 5, seed=9)

GATINGS: dict[str, Callable[[], Gating]] = {
    "none": lambda: NoGates(5),
    "contexts": lambda: HyperplaneContexts.random(X, 4, 2, random_state=0),
    "one-context": lambda: HyperplaneContexts.random(X, 3, 0, random_state=0),
    "global": lambda: GlobalContexts.collapse(
        HyperplaneContexts.random(X, 2, 3, random_state=0), X
    ),
    "units": lambda: UnitGates.random(X, 6, random_state=0),
    "sigmoid": lambda: UnitGates.random(X, 6, firing="sigmoid", random_state=0),
    "single-precision": lambda: HyperplaneContexts.from_hyperplanes(
        X, TEST[:4, None], np.zeros((4, 1)), single_precision=True
    ),
    "single-precision-units": lambda: UnitGates(
        TEST[:4], np.zeros(4), ">=", always_on=True, single_precision=True
    ),
}


@pytest.fixture(params=GATINGS)
def gating(request: pytest.FixtureRequest) -> Gating:
    return GATINGS[request.param]()


# --- every gating ----------------------------------------------------------------------------


def test_rows_do_not_depend_on_each_other(gating: Gating) -> None:
    whole = dense(gating.gates(TEST))
    assert gating.n_features == 5
    assert whole.shape == (60, len(gating.groups))
    assert gating.unseen(TEST).shape == (60,)
    assert not gating.unseen(X).any()
    one = np.vstack([dense(gating.gates(row[None])) for row in TEST])
    np.testing.assert_allclose(whole, one, atol=1e-12)


@pytest.mark.parametrize("draw", [HyperplaneContexts.random, UnitGates.random])
def test_training_gates_do_not_depend_on_the_batch(draw: Callable[..., Gating]) -> None:
    """The median of an odd number of samples lies on one of them: rounding must not decide."""
    inputs = np.random.default_rng(0).normal(size=(501, 300))
    fitted = draw(inputs, 50, random_state=0)
    one = np.vstack([dense(fitted.gates(row[None])) for row in inputs])
    np.testing.assert_array_equal(dense(fitted.gates(inputs)), one)


@pytest.mark.parametrize("draw", [HyperplaneContexts.random, UnitGates.random])
@pytest.mark.parametrize("n_distinct", [2, 51])
def test_equal_samples_have_equal_gates(draw: Callable[..., Gating], n_distinct: int) -> None:
    """Thresholds lie between samples that differ, not in the rounding between equal ones."""
    distinct = np.random.default_rng(0).normal(size=(n_distinct, 300))
    inputs = np.concatenate([distinct, distinct[:3], distinct])
    gates = dense(draw(inputs, 50, random_state=0).gates(inputs))
    for row, same in zip(inputs, gates, strict=True):
        first = np.flatnonzero((inputs == row).all(axis=1))[0]
        np.testing.assert_array_equal(same, gates[first])


def test_median_of_equal_projections() -> None:
    """It is moved up to the middle of the next gap, or down where there is none above."""
    columns = np.array([[0.0, 1.0, 1.0, 1.0 + 1e-15, 2.0], [0.0, 1.0, 1.0, 1.0, 1.0], [3.0] * 5])
    np.testing.assert_allclose(_median(columns.T), [1.5, 0.5, 0.0], atol=1e-12)


def test_wrong_number_of_features(gating: Gating) -> None:
    with pytest.raises(ValueError, match="4 features"):
        gating.gates(TEST[:, :4])


# --- hyperplane contexts ---------------------------------------------------------------------


def loop_contexts(fitted: HyperplaneContexts, inputs: Array) -> list[list[int]]:
    """Context of each sample and unit: bits from the first hyperplane on."""
    n_units, n_hyperplanes = fitted.thresholds.shape
    found = []
    for x in inputs:
        row = []
        for h in range(n_units):
            bits = ""
            for j in range(n_hyperplanes):
                bits += "1" if float(fitted.weights[h, j] @ x) > fitted.thresholds[h, j] else "0"
            row.append(int("0" + bits, base=2))
        found.append(row)
    return found


Fitted = tuple[HyperplaneContexts, Array, Array]


@st.composite
def fitted_contexts(draw: st.DrawFn) -> Fitted:
    """Draw contexts, the samples of which they were made, and others."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, d = draw(st.integers(1, 12)), draw(st.integers(1, 5))
    train, test = rng.normal(size=(n, d)), rng.normal(size=(7, d))
    sizes = draw(st.integers(1, 5)), draw(st.integers(0, 4))
    drawn = HyperplaneContexts.random(train, *sizes, random_state=rng)
    # A median of an odd number of samples lies on one of them: rounding must not decide.
    thresholds = drawn.thresholds + 1e-6
    return HyperplaneContexts.from_hyperplanes(train, drawn.weights, thresholds), train, test


@settings(max_examples=50)
@given(fitted_contexts())
def test_contexts_against_loops(drawn: Fitted) -> None:
    fitted, train, test = drawn
    n_units, n_hyperplanes = fitted.thresholds.shape
    n_contexts = 2**n_hyperplanes
    assert fitted.n_contexts == n_contexts
    seen = [set(column) for column in zip(*loop_contexts(fitted, train), strict=True)]
    expected = np.zeros((7, n_units * n_contexts))
    unseen = np.zeros(7)
    for row, contexts in enumerate(loop_contexts(fitted, test)):
        for h, c in enumerate(contexts):
            expected[row, h * n_contexts + c] = 1
            unseen[row] += c not in seen[h]
    np.testing.assert_array_equal(fitted.gates(test).toarray(), expected)
    np.testing.assert_array_equal(fitted.unseen(test), unseen)
    assert fitted.groups.tolist() == [h for h in range(n_units) for _ in range(n_contexts)]
    occurs = [[c in contexts for c in range(n_contexts)] for contexts in seen]
    np.testing.assert_array_equal(fitted.occurs, occurs)


@settings(max_examples=50)
@given(fitted_contexts())
def test_joint_contexts_against_dicts(drawn: Fitted) -> None:
    local, train, test = drawn
    fitted = GlobalContexts.collapse(local, train)
    occurring = sorted({tuple(contexts) for contexts in loop_contexts(local, train)})
    column = {contexts: m for m, contexts in enumerate(occurring)}
    expected = np.zeros((7, len(column)))
    unseen = np.zeros(7)
    for row, contexts in enumerate(loop_contexts(local, test)):
        if tuple(contexts) in column:
            expected[row, column[tuple(contexts)]] = 1
        else:
            unseen[row] = 1
    np.testing.assert_array_equal(fitted.gates(test).toarray(), expected)
    np.testing.assert_array_equal(fitted.unseen(test), unseen)
    assert fitted.groups.tolist() == [0] * len(column)
    assert (fitted.gates(train).sum(axis=1) == 1).all()


def test_first_hyperplane_is_most_significant() -> None:
    axes = np.eye(3)[None]  # one unit, one hyperplane an axis
    fitted = HyperplaneContexts.from_hyperplanes(np.zeros((1, 3)), axes, np.zeros((1, 3)))
    assert fitted.contexts(np.eye(3)).ravel().tolist() == [4, 2, 1]
    assert fitted.contexts(np.zeros((1, 3))).tolist() == [[0]]  # strictly greater fires


# --- unit gates ------------------------------------------------------------------------------


@pytest.mark.parametrize(("firing", "always_on"), [(">", False), (">=", True), ("sigmoid", False)])
def test_unit_gates_against_loops(firing: Any, always_on: bool) -> None:
    rng = np.random.default_rng(0)
    weights = rng.integers(-2, 3, (4, 5)).astype(np.float64)
    thresholds = rng.integers(-2, 3, 4).astype(np.float64)
    inputs = rng.integers(-2, 3, (50, 5)).astype(np.float64)  # so that ties are exact
    fitted = UnitGates(weights, thresholds, firing, always_on)
    expected = np.ones((50, 4 + always_on))
    ties = 0
    for n, h in itertools.product(range(50), range(4)):
        excess = sum(weights[h] * inputs[n]) - thresholds[h]
        ties += excess == 0
        if firing == "sigmoid":
            expected[n, h] = 1 / (1 + math.exp(-excess))
        else:
            expected[n, h] = excess > 0 or (firing == ">=" and excess == 0)
    assert ties
    np.testing.assert_allclose(fitted.gates(inputs), expected, rtol=1e-12)
    assert fitted.groups.tolist() == list(range(4 + always_on))
    assert not fitted.unseen(inputs).any()


@pytest.mark.parametrize("n_units", [3, 5, 9])
def test_orthogonal_directions(n_units: int) -> None:
    W = UnitGates.random(X, n_units, init="orthogonal", random_state=0).weights
    gram = W @ W.T if n_units <= 5 else W.T @ W
    np.testing.assert_allclose(gram, np.eye(len(gram)), atol=1e-12)


# --- seeds and thresholds --------------------------------------------------------------------


draw_contexts: Any = partial(HyperplaneContexts.random, X, 4, 2)
draw_units: Any = partial(UnitGates.random, X, 4)
Draw = Callable[..., HyperplaneContexts | UnitGates]


@pytest.fixture(params=[draw_contexts, draw_units])
def draw(request: pytest.FixtureRequest) -> Draw:
    return request.param


def test_seeds_are_reproducible(draw: Draw) -> None:
    first, again, other = draw(random_state=1), draw(random_state=1), draw(random_state=2)
    generator = draw(random_state=np.random.default_rng(1))
    for same in (again, generator):
        np.testing.assert_array_equal(first.weights, same.weights)
        np.testing.assert_array_equal(first.thresholds, same.thresholds)
    assert not np.isclose(first.weights, other.weights).any()
    assert not np.isclose(draw().weights, draw().weights).any()  # no seed: fresh draws


def test_threshold_rules(draw: Draw) -> None:
    median, zero, drawn = (
        draw(random_state=0, threshold=rule) for rule in ("median", "zero", "random")
    )
    # The rule changes no draw.
    np.testing.assert_array_equal(median.weights, zero.weights)
    np.testing.assert_array_equal(median.weights, drawn.weights)
    projections = np.einsum("...d,nd->n...", median.weights, X)
    np.testing.assert_allclose(median.thresholds, np.median(projections, axis=0))
    assert not zero.thresholds.any()
    assert len(np.unique(drawn.thresholds)) == drawn.thresholds.size
    given = np.arange(drawn.thresholds.size).reshape(drawn.thresholds.shape)
    np.testing.assert_array_equal(draw(random_state=0, threshold=given).thresholds, given)


def test_median_of_a_reference() -> None:
    fitted = draw_contexts(random_state=0, reference=TEST)
    projections = np.einsum("hkd,nd->nhk", fitted.weights, TEST)
    np.testing.assert_allclose(fitted.thresholds, np.median(projections, axis=0))
    assert (fitted.fires(TEST).sum(axis=0) == 30).all()


def test_scales_of_the_draws() -> None:
    rng = np.random.default_rng(0)
    contexts = draw_contexts(random_state=0, threshold="random")
    np.testing.assert_array_equal(contexts.weights, rng.normal(0.0, WEIGHT_SCALE, (4, 2, 5)))
    np.testing.assert_array_equal(contexts.thresholds, rng.normal(0.0, THRESHOLD_SCALE, (4, 2)))
    drawn = UnitGates.random(X, 4000, threshold="random", random_state=0)
    ratio = drawn.thresholds.std() / drawn.weights.std()
    assert ratio == pytest.approx(THRESHOLD_SCALE / WEIGHT_SCALE, rel=0.05)
    assert drawn.weights.std() == pytest.approx(1 / math.sqrt(5), rel=0.02)


# --- errors ----------------------------------------------------------------------------------


def given_contexts(*shape: int) -> HyperplaneContexts:
    """Of 2^40 contexts no memory has a place for each."""
    weights = np.ones((*shape, X.shape[1]))
    return HyperplaneContexts.from_hyperplanes(X, weights, np.zeros(shape))


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: HyperplaneContexts.random(X, 0), "n_units"),
        (lambda: HyperplaneContexts.random(X, 1, 17), "n_hyperplanes"),
        (lambda: given_contexts(1, 40), "n_hyperplanes"),
        (lambda: draw_contexts(threshold="mean"), "threshold"),
        (lambda: draw_contexts(threshold=np.zeros((2, 4))), "shape"),
        (lambda: draw_units(firing="<"), "firing"),
    ],
)
def test_errors_name_the_argument(call: Callable[[], object], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        call()
