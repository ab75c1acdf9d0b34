"""Parities: the source's start, the first step exactly, the later steps, and their bounds."""

import math
from fractions import Fraction
from itertools import product
from typing import Any, Literal

import numpy as np
import pytest
import torch

from benchmarks.daniely2020 import parity_descent as descent
from benchmarks.daniely2020 import parity_first_step as parity
from benchmarks.daniely2020.linear_methods import hinge_loss
from benchmarks.daniely2020.network import Schedule, descend
from benchmarks.daniely2020.parity_separation import guaranteed_margin, separating_layer
from drawn import on_the_cube
from implicit_bias.base.validation import Array
from implicit_bias.datasets.parities import ParityDistribution, cube
from oracles import fractions

ROUNDING = 1e-12


def halves(distribution: ParityDistribution) -> tuple[Array, Array]:
    """Probabilities of all inputs in the uniform and in the easy half."""
    bits = cube(distribution.n_bits)
    uniform = np.full(len(bits), 1.0 / len(bits))
    return uniform, 2.0 * distribution.probabilities(bits) - uniform


# --- the start ----------------------------------------------------------------------------------


def test_the_start_is_the_papers() -> None:
    n, k, q = 30, 3, 4000
    network = parity.start(n, k, q, random_state=3)
    w, b, u = network.weights, network.biases, network.readout
    assert (len(w), len(b), len(u)) == (2 * q, 2 * q, 2 * q)
    np.testing.assert_allclose([(w == v).mean() for v in (-1, 0, 1)], 1 / 3, atol=0.01)
    np.testing.assert_array_equal(b, 1 / 24)
    assert np.abs(u).max() <= 10
    assert np.mean(u[:q] ** 2) == pytest.approx(100 / 3, rel=0.05)
    np.testing.assert_array_equal(w[:q], w[q:])
    np.testing.assert_array_equal(u[:q], -u[q:])


def test_the_printed_pairing_does_not_start_at_0_and_the_other_does() -> None:
    """As printed, g = sum_i u_i clip(<w_i, x> + b_i, -6, 6): n = 13, k = 3, q = 100."""
    bits = cube(13)
    cancelling, printed = (
        parity.start(13, 3, 100, printed=p, random_state=0) for p in (False, True)
    )
    np.testing.assert_allclose(cancelling.outputs(bits), 0.0, atol=1e-10)
    half = parity.TwoLayers(*(v[:100] for v in (printed.weights, printed.biases, printed.readout)))
    clipped = np.clip(bits @ half.weights.T / math.sqrt(13) + half.biases, -6, 6) @ half.readout
    np.testing.assert_allclose(printed.outputs(bits), clipped, atol=1e-10)
    assert np.abs(printed.outputs(bits)).max() > 30


# --- exact averages -----------------------------------------------------------------------------


@pytest.mark.parametrize("function", [parity.gate, parity.relu6])
@pytest.mark.parametrize(
    ("relevant", "scale", "values"),
    [
        ((3,), 2.0, (-1.0, 1.0)),
        ((1, 4, 6), 1 / 3, (-1.0, 0.0, 1.0)),
    ],
)
def test_label_averages_are_the_expectations(
    relevant: tuple[int, ...], scale: float, function: object, values: tuple[float, ...]
) -> None:
    distribution = ParityDistribution(9, relevant)
    bits, y, _ = on_the_cube(distribution)
    rng = np.random.default_rng(0)
    signs = rng.choice(values, size=(25, 9))
    biases = rng.uniform(-4, 7, 25)  # so that ReLU6 saturates, too
    assert callable(function)
    found = parity.label_averages(distribution, signs, scale, biases, function=function)
    hidden = function(scale * bits @ signs.T + biases)
    columns = np.column_stack([bits, np.ones(len(bits))])
    for half, p in zip((found.uniform, found.easy), halves(distribution), strict=True):
        expected = (hidden * (p * y)[:, None]).T @ columns
        np.testing.assert_allclose(half, expected, atol=ROUNDING)


# --- lemmas 5 to 9 ------------------------------------------------------------------------------


def all_weights(n: int) -> Array:
    """Every w in {-1, 0, 1}^n, so that shares over w are probabilities."""
    return np.array(list(product((-1.0, 0.0, 1.0), repeat=n)))


@pytest.mark.parametrize("relevant", [(0, 1, 2), (0, 2, 3, 5, 6)])
def test_lemma_7_good_units_see_nothing_off_A(relevant: tuple[int, ...]) -> None:
    n = 7
    distribution = ParityDistribution(n, relevant)
    w = all_weights(n)
    good = parity.is_good(distribution, w)
    np.testing.assert_array_equal(good, w[:, list(relevant)].sum(axis=1) == 0)
    assert good.mean() == pytest.approx(parity.good_share(len(relevant)))
    assert good.mean() >= 1 / (14 * math.sqrt(len(relevant)))  # lemma 9
    bits, y, p = on_the_cube(distribution)
    gates = parity.gate(bits @ w[good].T / math.sqrt(n) + 1 / 24)
    off = [j for j in range(n) if j not in relevant]
    columns = np.column_stack([bits[:, off], np.ones(len(bits))])
    # Of both halves; the paper says it of the easy one.
    for half in (*halves(distribution), p):
        np.testing.assert_allclose((gates * (half * y)[:, None]).T @ columns, 0, atol=ROUNDING)


def test_first_step_is_the_gradient_on_the_whole_distribution() -> None:
    distribution = ParityDistribution(9, (1, 4, 6))
    bits, y, p = on_the_cube(distribution)
    initial = parity.start(9, 3, 15, random_state=1)
    found = parity.first_step(distribution, initial)
    history = descend(bits, y, initial, Schedule(step=0.1, steps=1), probabilities=p)
    by_descent = history[-1].network
    for name in ("weights", "biases", "readout"):
        np.testing.assert_allclose(getattr(found, name), getattr(by_descent, name), atol=ROUNDING)
    # Lemma 14.
    assert np.abs(found.readout).max() <= descent.first_readout_bound(9, 3)
    # A good unit has alpha u / sqrt(n) on A, up to the uniform half, and 0 off A.
    good = parity.is_good(distribution, initial.weights)
    off = np.setdiff1d(np.arange(9), distribution.relevant)
    np.testing.assert_allclose(found.weights[good][:, off], 0, atol=ROUNDING)
    np.testing.assert_allclose(found.biases[good], 1 / 24, atol=ROUNDING)


# --- lemmas 10 to 12 ----------------------------------------------------------------------------


@pytest.mark.parametrize("k", [3, 7])
def test_least_error_at_the_ceiling_in_exact_arithmetic(k: int) -> None:
    """Rational numbers: attained by one u, and by no other of a grid that holds it."""

    def cut(values: Any, ceiling: int) -> Any:
        return np.minimum(np.maximum(values, 0), ceiling)

    points = fractions(np.arange(-k, k + 1))
    for r in range(-k, k + 1, 2):
        sign, h = (1 if r > 0 else -1), max(abs(r), 6 - abs(r))
        expected = Fraction(h * max(0, abs(r) + k - 6), h + k)
        assert parity.ceiling_error(k, r) == pytest.approx(float(expected), abs=0)
        slopes = [Fraction(h + 6 - abs(r), h + k), Fraction(1)]
        slopes += [Fraction(i, 7) for i in range(-7, 22, 2)]
        target = cut(abs(r) - sign * points, 6)
        copies = (cut(abs(r) - sign * slope * points, 48 * k * abs(r)) for slope in slopes)
        assert min(abs(copy - target).max() for copy in copies) == expected


def test_worst_errors_and_ranges_are_over_all_inputs() -> None:
    r = -3
    distribution = ParityDistribution(9, (0, 3, 8))
    bits = cube(9)
    units = parity.first_step(distribution, parity.start(9, 3, 20, random_state=5))
    hidden, z = units.hidden(bits), bits[:, [0, 3, 8]].sum(axis=1)
    by_hand = np.abs(abs(r) * 24 * hidden - parity.psi(r, z)[:, None]).max(axis=0)
    np.testing.assert_allclose(parity.worst_errors(distribution, units, r), by_hand, atol=1e-10)
    sums, lowest, highest = parity.hidden_ranges(distribution, units)
    settings = bits[:, [0, 3, 8]]
    for at, setting in enumerate(cube(3)):
        rows = (settings == setting).all(axis=1)
        assert sums[at] == setting.sum()
        np.testing.assert_allclose(lowest[at], hidden[rows].min(axis=0), atol=ROUNDING)
        np.testing.assert_allclose(highest[at], hidden[rows].max(axis=0), atol=ROUNDING)


@pytest.mark.parametrize("least", ["max", "sum"])
def test_lemma_12_a_separating_layer_after_one_step(least: Literal["max", "sum"]) -> None:
    distribution = ParityDistribution(11, (2, 5, 7))
    bits, y, _ = on_the_cube(distribution)
    units = parity.first_step(distribution, parity.start(11, 3, 60, random_state=0))
    layer = separating_layer(distribution, units, least=least)
    assert layer is not None
    margins = y * (units.hidden(bits) @ layer.readout)
    assert margins.min() >= layer.margin - 1e-9
    assert layer.margin == pytest.approx(1.0)
    assert layer.margin == pytest.approx(guaranteed_margin(distribution, units, layer.readout))
    if least == "sum":
        assert layer.n_used <= 2**3
    # The constant B of the lemma is a small number.
    assert layer.norm <= 20 * 3**5 / math.sqrt(60)


# --- theorem 3, and the steps after the first ---------------------------------------------------


def test_theorem_13_on_random_hinges() -> None:
    """f_t(theta) = max(0, 1 - <theta, x_t>): online gradient descent, from anywhere."""
    eta = 0.3
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 4))
    first = theta = 3 * rng.normal(size=4)
    losses, norms = [], []
    for x in X:
        losses.append(max(0.0, 1 - theta @ x))
        gradient = -x if theta @ x < 1 else np.zeros(4)
        norms.append(np.linalg.norm(gradient))
        theta = theta - eta * gradient
    for star in (np.zeros(4), theta, *rng.normal(size=(20, 4))):
        at_star = np.maximum(0.0, 1 - X @ star)
        lengths = float(np.linalg.norm(star)), float(np.linalg.norm(first))
        published = descent.online_descent_bound(at_star, *lengths, norms, eta)
        sharper = descent.online_descent_bound(at_star, *lengths, norms, eta, sharper=True)
        assert np.mean(losses) <= sharper + ROUNDING
        assert published - sharper == pytest.approx(0.5 * eta * np.mean(np.square(norms)))


def test_lemmas_14_to_16_along_a_descent() -> None:
    n, k, eta, decay = 7, 3, 0.003, 0.3
    distribution = ParityDistribution(n, (0, 2, 5))
    bits, y, p = on_the_cube(distribution)
    schedule = Schedule(step=eta, decay=decay, steps=30, record=3)
    history = descend(bits, y, parity.start(n, k, 30), schedule, probabilities=p)
    first = history[1].network
    fixed = np.random.default_rng(0).normal(size=60)
    before = hinge_loss(y, first.hidden(bits) @ fixed, p)
    assert np.abs(first.readout).max() <= descent.first_readout_bound(n, k)
    for point in history[2:]:
        now, t = point.network, point.step
        bound = descent.movement_bound(n, k, eta, decay, t)
        way = eta * t
        assert bound.readout == pytest.approx(6 * way + k / math.sqrt(n))
        assert bound.bias == pytest.approx(6 * way**2 + way * k / math.sqrt(n))
        assert bound.weights == pytest.approx(bound.bias + 2 * way * decay * n / k)
        assert np.abs(now.readout).max() <= bound.readout
        assert np.linalg.norm(now.weights - first.weights, axis=1).max() <= bound.weights
        assert np.abs(now.biases - first.biases).max() <= bound.bias
        moved = abs(hinge_loss(y, now.hidden(bits) @ fixed, p) - before)
        allowed = descent.moved_loss_bound(bound, float(np.linalg.norm(fixed)), 60)
        inner = 6 * way**2 + way * k / math.sqrt(n) + way * decay * n / k
        assert allowed == pytest.approx(2 * np.linalg.norm(fixed) * math.sqrt(60) * inner)
        assert moved <= allowed


def test_later_steps_descend_the_regularised_hinge_loss() -> None:
    """Against automatic differentiation of the objective, at the second step."""
    distribution = ParityDistribution(6, (0, 2, 5))
    bits, y, p = on_the_cube(distribution)
    schedule = Schedule(step=0.01, decay=0.3, steps=2)
    start = parity.start(6, 3, 3, random_state=1)
    _, first, second = descend(bits, y, start, schedule, probabilities=p)
    names = ("weights", "biases", "readout")
    before = [torch.tensor(getattr(first.network, name), requires_grad=True) for name in names]
    weights, biases, readout = before
    hidden = (torch.tensor(bits) @ weights.T / 6**0.5 + biases).clamp(0, 6)
    losses = (1 - torch.tensor(y) * (hidden @ readout)).relu()
    # The biases are not regularised.
    squares = weights.square().sum() + readout.square().sum()
    torch.autograd.backward(torch.tensor(p) @ losses + 0.3 * squares)
    for name, value in zip(names, before, strict=True):
        assert value.grad is not None
        expected = (value - 0.01 * value.grad).detach()
        np.testing.assert_allclose(getattr(second.network, name), expected, atol=ROUNDING)
