"""Predictors: against loops over all joint contexts, and norms against CVXPY."""

import itertools
from collections.abc import Callable
from typing import Any, TypeAlias

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from benchmarks.lippl2022 import gln_predictors as gln
from cases import ROUNDING, cloud
from example_modules import seeded
from implicit_bias import MarginProblem
from implicit_bias.base.validation import Array
from implicit_bias.networks import GLN
from implicit_bias.problem import decision
from implicit_bias.problem.gating import HyperplaneContexts

Contexts: TypeAlias = NDArray[np.int64]

X, Y = cloud(24, 4)
# H, C and D of a two-layer network, and a seed of its coefficients.
Sizes: TypeAlias = tuple[int, int, int, int]
SIZE, SEED = st.integers(1, 3), st.integers(0, 1000)
SIZES = st.tuples(SIZE, SIZE, SIZE, SEED)
# Units and hyperplanes a unit, of one to three hidden layers.
LAYERS = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 2)), min_size=1, max_size=3)
# What a conic solver leaves of the optimum.
CONIC_RTOL = 1e-5


def examples(count: int, **drawn: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test on so many examples, the same ones each time."""
    return lambda test: settings(max_examples=count)(given(**drawn)(test))


def two_layers(sizes: Sizes) -> tuple[Array, gln.AdditivePredictors, Contexts]:
    """Coefficients zeta (H * C, D), their predictors, and all joint contexts.

    Some units have no effect, some no coefficients at all.
    """
    n_units, n_contexts, n_features, seed = sizes
    rng = np.random.default_rng(seed)
    zeta = rng.normal(size=(n_units, n_contexts, n_features))
    kind = rng.integers(4, size=n_units)
    zeta[kind == 0] = zeta[kind == 0, :1]
    zeta[kind == 1] = 0.0
    coef = zeta.reshape(-1, n_features)
    found = gln.AdditivePredictors.from_coef(coef, n_units)
    return coef, found, all_contexts(n_units, n_contexts)


def all_contexts(n_units: int, n_contexts: int) -> Contexts:
    return np.array(list(itertools.product(range(n_contexts), repeat=n_units)))


def loop_predictor(coef: Array, contexts: Contexts, n_contexts: int) -> Array:
    """beta_gamma = sum_h zeta_{h, gamma_h}."""
    beta = np.zeros(coef.shape[1])
    for h, c in enumerate(contexts):
        beta += coef[h * n_contexts + c]
    return beta


def group_norm(coef: Array, n_units: int) -> float:
    """sum_h ||zeta_h||."""
    return sum(float(np.linalg.norm(unit)) for unit in np.split(coef, n_units))


def conic_norm(beta: Array, n_units: int, n_contexts: int) -> float:
    """Solve for the norm of (20) by its definition; beta has one row for each of `all_contexts`."""
    zeta = [cp.Variable((n_contexts, beta.shape[1])) for _ in range(n_units)]
    equal = [
        sum(zeta[h][int(c)] for h, c in enumerate(gamma)) == row
        for gamma, row in zip(all_contexts(n_units, n_contexts), beta, strict=True)
    ]
    program = cp.Problem(cp.Minimize(sum(cp.norm(unit, "fro") for unit in zeta)), equal)
    return float(program.solve(solver=cp.CLARABEL))


def deep(layers: list[tuple[int, int]], seed: int, *, readout_bias: bool = False) -> GLN:
    """GLN of hidden layers (units, hyperplanes) whose weights are Gaussian."""
    gatings = [
        HyperplaneContexts.random(X, units, hyperplanes, random_state=seed + layer)
        for layer, (units, hyperplanes) in enumerate(layers)
    ]
    return seeded(GLN(gatings, readout_bias=readout_bias), seed)


NETWORKS = st.builds(deep, LAYERS, SEED)


# --- two layers: which predictors there are --------------------------------------------------


@examples(10, sizes=SIZES)
def test_predictors_of_coefficients_are_their_sums(sizes: Sizes) -> None:
    coef, found, contexts = two_layers(sizes)
    expected = [loop_predictor(coef, gamma, sizes[1]) for gamma in contexts]
    np.testing.assert_allclose(found.at(contexts), expected, atol=ROUNDING)
    np.testing.assert_allclose(found.mean, np.mean(expected, axis=0), atol=ROUNDING)
    assert found.effects.shape == sizes[:3]


@examples(10, sizes=SIZES)
def test_free_predictors_are_free_and_determine_all(sizes: Sizes) -> None:
    n_units, n_contexts, n_features, seed = sizes
    free = gln.free_predictors(n_units, n_contexts)
    assert free.shape == (n_units * (n_contexts - 1) + 1, n_units)
    rng = np.random.default_rng(seed)
    beta = rng.normal(size=(len(free), n_features))  # any at all
    completed = gln.AdditivePredictors.through(free, beta, n_contexts)
    np.testing.assert_allclose(completed.at(free), beta, atol=ROUNDING)

    contexts = all_contexts(n_units, n_contexts)
    network = gln.AdditivePredictors.from_coef(completed.coef(), n_units)
    np.testing.assert_allclose(network.at(contexts), completed.at(contexts), atol=ROUNDING)


# --- two layers: their norm ------------------------------------------------------------------


@examples(10, sizes=SIZES)
def test_norm_is_the_least_of_all_coefficients(sizes: Sizes) -> None:
    """And there are coefficients of that norm, with the same predictors."""
    _, found, contexts = two_layers(sizes)
    n_units, least = sizes[0], found.coef()
    expected = conic_norm(found.at(contexts), *sizes[:2])
    assert found.norm() == pytest.approx(expected, rel=CONIC_RTOL, abs=CONIC_RTOL)
    same = gln.AdditivePredictors.from_coef(least, n_units)
    np.testing.assert_allclose(same.at(contexts), found.at(contexts), atol=ROUNDING)
    assert group_norm(least, n_units) == pytest.approx(found.norm())


# --- more layers -----------------------------------------------------------------------------


@examples(10, network=NETWORKS)
def test_a_deep_network_is_the_two_layer_network_of_its_paths(network: GLN) -> None:
    paths, coef = gln.path_contexts(network.gatings, X), gln.path_coef(network)
    assert paths.n_units == np.prod([gating.n_units for gating in network.gatings])
    predicted = decision(X, paths.gates(X), coef)
    np.testing.assert_allclose(predicted, network.decision(X), rtol=1e-9, atol=1e-9)
    assert gln.path_norm(network) == pytest.approx(group_norm(coef, paths.n_units))


@examples(10, network=NETWORKS)
def test_norm_of_the_paths_is_at_most_that_of_the_weights(network: GLN) -> None:
    sizes = [float(weights.detach().norm()) for weights in network.parameters()]
    assert gln.path_norm(network) <= np.prod(sizes) * (1 + ROUNDING)
    if len(sizes) == 2:
        assert gln.path_norm(network) == pytest.approx(network.norm())
        np.testing.assert_allclose(gln.path_coef(network), network.coef(), atol=ROUNDING)


@examples(10, network=NETWORKS)
def test_given_its_upper_layers_a_network_has_two_layers(network: GLN) -> None:
    gates, coef = gln.first_layer_gates(network, X), gln.first_layer_coef(network)
    groups = network.gatings[0].groups
    predicted = decision(X, gates, coef)
    np.testing.assert_allclose(predicted, network.decision(X), rtol=1e-9, atol=1e-9)
    # Each unit in the column of its context.
    np.testing.assert_array_equal(gates != 0, network.gatings[0].gates(X).toarray() != 0)
    leaving = [*network.hidden_weights, network.readout][1].detach().norm(dim=0).numpy()
    units = np.split(network.hidden_weights[0].detach().numpy(), network.gatings[0].n_units)
    norms = [s * float(np.linalg.norm(unit)) for s, unit in zip(leaving, units, strict=True)]
    found = MarginProblem(X, Y, gates, groups).group_norms(coef)
    np.testing.assert_allclose(found, norms)
