"""The Gram matrix of an activation: brute force, closed forms, and the theorems on small cases."""

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.polynomial import hermite_e
from scipy.stats import norm
from torch import Tensor
from torch.nn import functional

from implicit_bias.base.validation import Array
from implicit_bias.kernels import gradient_gram as module
from implicit_bias.kernels.dual_kernels import HERMITE_TERMS, Dual, hermite_coefficients
from implicit_bias.kernels.gated_least_squares import limit_kernel
from implicit_bias.kernels.gradient_gram import (
    ACTIVATIONS,
    INITIALISATIONS,
    KINKS,
    Activation,
    circle_eigenvalues,
    circle_points,
    correlations,
    eigenvalue_bounds,
    eigenvalues,
    finite_eigenvalues,
    finite_gram,
    gaussian_weights,
    infinite_gram,
    normalise,
    polynomial,
    polynomial_rank,
    preprocess,
    separation,
    smoothed_points,
    sphere_eigenvalues,
)
from implicit_bias.problem import MarginProblem

# Closed forms and quadrature agree to this; matrices of moderate size to the second.
TIGHT, CLOSE = 1e-11, 1e-9
RHO = np.linspace(-1, 1, 41)
SINE = Activation("sine", torch.sin)
ERF = Activation("erf", torch.erf)
SMOOTH = ["swish", "tanh", "quadratic", "cubic"]


def samples(n: int, d: int, seed: int = 0) -> Array:
    return normalise(np.random.default_rng(seed).standard_normal((n, d)))


def kappa_relu(rho: Array) -> Array:
    return 0.5 - np.arccos(rho) / (2 * np.pi)


# --- finite width --------------------------------------------------------------------------


@pytest.mark.parametrize("phi", [*ACTIVATIONS.values(), SINE], ids=lambda phi: phi.name)
def test_gram_is_that_of_the_gradients(phi: Activation) -> None:
    X = np.random.default_rng(0).standard_normal((6, 3))  # of any length
    (weights,) = gaussian_weights(8, 3)
    readout = torch.tensor([1.0, -1.0] * 4, dtype=torch.float64) / math.sqrt(8)
    weights.requires_grad_(True)
    gradients = [
        torch.autograd.grad(phi.value(weights @ torch.tensor(x)) @ readout, weights)[0].reshape(-1)
        for x in X
    ]
    jacobian = torch.stack(gradients)
    gram = finite_gram(X, phi, [weights.detach()])
    np.testing.assert_allclose(gram, (jacobian @ jacobian.T).numpy(), atol=TIGHT)
    np.testing.assert_array_equal(gram, gram.T)


@pytest.mark.parametrize("name", ["relu", "tanh"])
def test_gram_has_the_squares_of_the_readouts(name: str) -> None:
    """Equation 2 by the gradients themselves; with classes, biases and trained readouts, too."""
    X, phi = samples(5, 3), ACTIVATIONS[name]
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn((7, 3), generator=generator, dtype=torch.float64).requires_grad_(True)
    readouts = torch.randn((7, 2), generator=generator, dtype=torch.float64).requires_grad_(True)
    biases = torch.randn(7, generator=generator, dtype=torch.float64)
    hidden = phi.value(torch.tensor(X) @ weights.T + biases)
    outputs = (hidden @ readouts / math.sqrt(7)).T.reshape(-1)  # class after class
    rows = [torch.autograd.grad(u, (weights, readouts), retain_graph=True) for u in outputs]
    first = torch.stack([row[0].reshape(-1) for row in rows]).numpy()
    second = torch.stack([row[1].reshape(-1) for row in rows]).numpy()
    whole = finite_gram(X, phi, [weights.detach()], readouts=readouts, biases=biases)
    np.testing.assert_allclose(whole, first @ first.T, atol=TIGHT)
    both = finite_gram(
        X, phi, [weights.detach()], readouts=readouts, biases=biases, train_readouts=True
    )
    np.testing.assert_allclose(both, first @ first.T + second @ second.T, atol=TIGHT)
    single = finite_gram(X, phi, [weights.detach()], readouts=readouts[:, 1], biases=biases)
    np.testing.assert_allclose(single, whole[5:, 5:], atol=TIGHT)


def test_readouts_follow_the_blocks_of_weights() -> None:
    X, tanh = samples(4, 3), ACTIVATIONS["tanh"]
    weights = torch.cat(list(gaussian_weights(50, 3)))
    readouts = torch.linspace(-2, 2, 50, dtype=torch.float64)
    whole = finite_gram(X, tanh, [weights], readouts=readouts)
    parts = finite_gram(X, tanh, torch.split(weights, 7), readouts=readouts)
    np.testing.assert_allclose(parts, whole, atol=TIGHT)
    for wrong in (readouts[:10], torch.ones(60, dtype=torch.float64)):
        with pytest.raises(ValueError, match="readouts"):
            finite_gram(X, tanh, [weights], readouts=wrong)
        with pytest.raises(ValueError, match="biases"):
            finite_gram(X, tanh, [weights], biases=wrong)


@pytest.mark.parametrize("name", ["relu", "tanh"])
def test_eigenvalues_without_squaring(name: str) -> None:
    X, phi = samples(6, 3), ACTIVATIONS[name]
    weights = torch.cat(list(gaussian_weights(40, 3)))
    readouts = torch.linspace(-2, 2, 40, dtype=torch.float64)
    expected = eigenvalues(finite_gram(X, phi, [weights], readouts=readouts))
    found = finite_eigenvalues(X, phi, torch.split(weights, 9), readouts=readouts)
    np.testing.assert_allclose(found, expected, atol=TIGHT)
    biases = readouts / 3
    expected = eigenvalues(finite_gram(X, phi, [weights], biases=biases, train_readouts=True))
    found = finite_eigenvalues(X, phi, torch.split(weights, 9), biases=biases, train_readouts=True)
    np.testing.assert_allclose(found, expected, atol=TIGHT)
    few = finite_eigenvalues(X, phi, [weights[:1]])
    np.testing.assert_allclose(few, eigenvalues(finite_gram(X, phi, [weights[:1]])), atol=TIGHT)
    with pytest.raises(ValueError, match="no units"):
        finite_eigenvalues(X, phi, [])


@pytest.mark.parametrize("n", [6, 10])
def test_what_opposite_points_leave_at_zero_is_no_root_of_rounding(n: int) -> None:
    """On an even whole circle the harmonic of degree n / 2 has rank 1, and tanh n / 2 zeros."""
    X = circle_points(n, arc=2 * math.pi)
    values = sphere_eigenvalues(X, ACTIVATIONS["tanh"])
    expected = circle_eigenvalues(ACTIVATIONS["tanh"], n)
    np.testing.assert_allclose(values[: n // 2], expected[: n // 2], rtol=CLOSE)
    assert (values[n // 2 :] < 1e-22 * values[0]).all()


def test_eigenvalues_far_below_the_rounding_of_a_matrix() -> None:
    """At a width of one, rank 2: what is 0 is below 1e-30 of the largest, not below 1e-16."""
    X = circle_points(9, 2)
    values = finite_eigenvalues(X, polynomial([0.0, 0.0, 1.0]), gaussian_weights(30, 2))
    assert values[2] > 1e-3 * values[0]
    assert (values[3:] < 1e-28 * values[0]).all()


@pytest.mark.parametrize("name", INITIALISATIONS)
def test_initialisations_have_their_variances(name: str) -> None:
    weights, biases, readouts = INITIALISATIONS[name].draw(4000, 5, seed=2)
    expected = {"dzps": (1.0, 0.0), "fan-in": (0.2, 0.01), "fan-out": (1 / 4000, 1 / 4000)}[name]
    assert float(weights.var()) == pytest.approx(expected[0], rel=0.05)
    assert float(biases.var()) == pytest.approx(expected[1], rel=0.1)
    assert float(readouts.var()) == pytest.approx(1.0, rel=0.1)


@pytest.mark.parametrize("name", ["relu", "swish"])
def test_gram_is_that_of_a_margin_problem_with_the_gates(name: str) -> None:
    X, phi = samples(6, 3), ACTIVATIONS[name]
    (weights,) = gaussian_weights(8, 3)
    gates = phi.derivative(torch.tensor(X) @ weights.T).numpy() / math.sqrt(8)
    y = np.array([1.0, -1.0] * 3)
    problem = MarginProblem(X, y, gates, groups=np.zeros(8, dtype=int))
    expected = np.outer(y, y) * problem.gram(0)
    np.testing.assert_allclose(finite_gram(X, phi, [weights]), expected, atol=TIGHT)


def test_blocks_hold_few_gates_and_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def seen(z: Tensor) -> Tensor:
        sizes.append(z.numel())
        return torch.tanh(z)

    X = samples(7, 4)
    whole = finite_gram(X, Activation("seen", seen), gaussian_weights(1000, 4))
    assert sizes == [7000]
    sizes.clear()
    monkeypatch.setattr(module, "BLOCK", 100)
    blocks = finite_gram(X, Activation("seen", seen), gaussian_weights(1000, 4))
    assert max(sizes) <= 100
    assert sum(sizes) == 7000
    np.testing.assert_allclose(blocks, whole, atol=TIGHT)


def test_weights_come_in_blocks_of_one_stream() -> None:
    width = module.ROWS + 10
    blocks = list(gaussian_weights(width, 3, seed=5))
    assert [len(block) for block in blocks] == [module.ROWS, 10]
    assert torch.equal(blocks[0], next(gaussian_weights(module.ROWS, 3, seed=5)))
    assert not torch.equal(blocks[0], next(gaussian_weights(module.ROWS, 3, seed=6)))
    assert float(torch.cat(blocks).var()) == pytest.approx(1.0, abs=0.05)


def test_weights_must_fit() -> None:
    with pytest.raises(ValueError, match="no units"):
        finite_gram(samples(3, 2), SINE, [])
    with pytest.raises(ValueError, match=r"X has 2 features, but weights have the shape \(8, 3\)"):
        finite_gram(samples(3, 2), SINE, gaussian_weights(8, 3))


@pytest.mark.parametrize("name", ["relu", "selu", "elu", "swish", "tanh"])
def test_finite_width_goes_to_infinite_width(name: str) -> None:
    X, phi = samples(10, 5), ACTIVATIONS[name]
    limit = infinite_gram(X, phi)
    errors = [
        np.abs(finite_gram(X, phi, gaussian_weights(width, 5)) - limit).max()
        for width in (2**8, 2**16)
    ]
    # 16 times smaller on average; four standard deviations are below 4 max phi'^2 / 2^8.
    assert errors[1] < 4 * 3.1 / 2**8
    assert errors[1] < errors[0] / 4


# --- infinite width ------------------------------------------------------------------------


CLOSED_FORMS: list[tuple[Activation, Callable[[Array], Array]]] = [
    (ACTIVATIONS["relu"], kappa_relu),
    (ACTIVATIONS["leaky-relu"], lambda rho: 0.01 + 0.09 + 0.81 * kappa_relu(rho)),
    (ACTIVATIONS["quadratic"], lambda rho: 4 * rho),
    (ACTIVATIONS["cubic"], lambda rho: 9 * (1 + 2 * rho**2)),
    (polynomial([1.0, 2.0, 0.0, -1.0]), lambda rho: 4 - 12 + 9 * (1 + 2 * rho**2)),
    (SINE, lambda rho: np.cosh(rho) / math.e),
    (ERF, lambda rho: 4 / np.pi / np.sqrt(9 - 4 * rho**2)),
]


@pytest.mark.parametrize(
    ("phi", "form"), CLOSED_FORMS, ids=lambda value: getattr(value, "name", "")
)
def test_kappa_in_closed_form(phi: Activation, form: Callable[[Array], Array]) -> None:
    np.testing.assert_allclose(phi.kappa(RHO), form(RHO), atol=TIGHT)


@pytest.mark.parametrize(
    ("name", "scale", "alpha"),
    [
        ("elu", 1.0, 1.0),
        ("selu", 1.0507009873554805, 1.6732632423543772),
    ],
)
def test_kappa_of_exponential_units(name: str, scale: float, alpha: float) -> None:
    # phi' = scale on the right and scale alpha e^u on the left of 0; opposite, free and equal.
    tail = math.exp(0.5) * norm.cdf(-1)
    exact = [2 * alpha * tail, (0.5 + alpha * tail) ** 2, 0.5 + alpha**2 * math.e**2 * norm.cdf(-2)]
    found = ACTIVATIONS[name].kappa([-1.0, 0.0, 1.0])
    np.testing.assert_allclose(found, scale**2 * np.array(exact), atol=TIGHT)


@pytest.mark.parametrize("name", SMOOTH)
def test_kappa_is_the_gauss_hermite_rule_of_a_smooth_activation(name: str) -> None:
    phi = ACTIVATIONS[name]
    nodes, weights = hermite_e.hermegauss(150)
    weights = weights / weights.sum()
    slope = phi.derivative(torch.tensor(nodes)).numpy()
    for rho in (-0.9, 0.0, 0.5, 1.0):
        v = rho * nodes[:, None] + math.sqrt(1 - rho**2) * nodes[None, :]
        rule = (weights * slope) @ phi.derivative(torch.tensor(v)).numpy() @ weights
        assert float(phi.kappa(rho)) == pytest.approx(rule, abs=1e-8)


def test_covariance_of_relu() -> None:
    theta = np.arccos(RHO)
    products = (np.sin(theta) + (np.pi - theta) * RHO) / (2 * np.pi)  # arc-cosine kernel
    np.testing.assert_allclose(
        ACTIVATIONS["relu"].covariance(RHO), products - 1 / (2 * np.pi), atol=TIGHT
    )


@pytest.mark.parametrize(
    "function",
    [lambda z: functional.relu(z - 1), lambda z: torch.exp(z**2)],
    ids=["kink off 0", "no second moment"],
)
def test_quadrature_refuses(function: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(ValueError, match=r"the derivative of bad is off by .* finite width"):
        Activation("bad", function).kappa  # noqa: B018


def test_gram_at_infinite_width() -> None:
    X = samples(6, 3)
    rho = X @ X.T
    expected = rho * kappa_relu(np.clip(rho, -1, 1))
    np.testing.assert_allclose(infinite_gram(X, ACTIVATIONS["relu"]), expected, atol=1e-7)
    np.testing.assert_allclose(limit_kernel(X), expected, atol=1e-7)  # GaLU's is the same
    with pytest.raises(ValueError, match=r"row \d of X has length 2, not 1: pass normalise"):
        infinite_gram(2 * X, ACTIVATIONS["relu"])
    with pytest.raises(ValueError, match="hidden_layers must be at least 1"):
        infinite_gram(X, ACTIVATIONS["relu"], hidden_layers=0)


@pytest.mark.parametrize("name", ["relu", "tanh"])
def test_classes_and_trained_readouts_at_infinite_width(name: str) -> None:
    X, phi, width = samples(5, 3), ACTIVATIONS[name], 2**16
    generator = torch.Generator().manual_seed(1)
    readouts = torch.randn((width, 2), generator=generator, dtype=torch.float64)
    finite = finite_gram(X, phi, gaussian_weights(width, 3), readouts=readouts, train_readouts=True)
    limit = infinite_gram(X, phi, readouts=np.eye(2), train_readouts=True)
    np.testing.assert_allclose(finite, limit, atol=0.05)
    assert (limit[:5, 5:] == 0).all()
    hidden = limit[:5, :5] - infinite_gram(X, phi)
    np.testing.assert_allclose(hidden, phi.dual(X @ X.T), atol=1e-7)
    np.testing.assert_allclose(infinite_gram(X, phi, readouts=4.0), 4 * infinite_gram(X, phi))


@pytest.mark.parametrize("dimension", [2, 3, 4, 7])
@pytest.mark.parametrize("name", ["tanh", "swish", "cubic"])
def test_eigenvalues_by_harmonics(name: str, dimension: int) -> None:
    phi = ACTIVATIONS[name]
    X = samples(12, dimension)
    lifted = np.hstack([X, np.zeros((12, 2))])
    expected = eigenvalues(infinite_gram(X, phi))
    np.testing.assert_allclose(sphere_eigenvalues(lifted, phi), expected, atol=CLOSE * expected[0])
    with pytest.raises(ValueError, match="kink"):
        sphere_eigenvalues(X, ACTIVATIONS["relu"])


def test_eigenvalues_by_harmonics_are_those_of_the_circle() -> None:
    """Far below the rounding of a matrix: 1e-17 of the largest."""
    tanh = ACTIVATIONS["tanh"]
    found = sphere_eigenvalues(circle_points(64), tanh)
    expected = circle_eigenvalues(tanh, 128)[:64] / 2
    assert found[-1] < 1e-17 * found[0]
    np.testing.assert_allclose(found, expected, rtol=1e-3)


@pytest.mark.parametrize("phi", [*map(ACTIVATIONS.get, SMOOTH), SINE], ids=lambda phi: phi.name)
def test_kappa_is_its_hermite_series(phi: Activation) -> None:
    powers = RHO[:, None] ** np.arange(HERMITE_TERMS)
    np.testing.assert_allclose(powers @ phi.hermite_squares, phi.kappa(RHO), atol=CLOSE)


def test_hermite_coefficients_of_a_polynomial() -> None:
    # phi' = 3 z^2 = 3 He_2 + 3, and He_2 / sqrt(2) is normalised.
    found = hermite_coefficients(ACTIVATIONS["cubic"].derivative, 6)
    np.testing.assert_allclose(found, [3, 0, 3 * math.sqrt(2), 0, 0, 0], atol=TIGHT)


def test_hermite_squares_of_tanh_fall_as_the_root() -> None:
    # tanh' has its poles at +-i pi/2, so c_k^2 ~ exp(-pi sqrt(k)) up to powers of k.
    k = np.arange(100, 160, 2)
    squares = ACTIVATIONS["tanh"].hermite_squares[k]
    slope = np.polyfit(np.sqrt(k), np.log(squares), 1)[0]
    assert slope == pytest.approx(-math.pi, rel=0.05)


# --- depth ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["relu", "elu", "swish", "tanh"])
def test_layer_maps(name: str) -> None:
    phi = ACTIVATIONS[name]
    np.testing.assert_allclose(phi.correlation_map([0.0, 1.0]), [0, 1], atol=TIGHT)
    slope = (1 - float(phi.correlation_map(1 - 1e-6))) / 1e-6
    assert phi.expansion == pytest.approx(slope, rel=2e-3)
    assert phi.expansion > 1
    assert float(np.abs(phi.correlation_map(RHO)).max()) <= 1 + TIGHT


def test_expansion_of_a_linear_activation_is_one() -> None:
    assert polynomial([0.3, -2.0]).expansion == pytest.approx(1.0, abs=TIGHT)


@pytest.mark.parametrize("name", ["relu", "tanh"])
def test_depth_is_the_limit_of_wide_layers(name: str) -> None:
    X, phi, width = samples(6, 4), ACTIVATIONS[name], 2**17
    weights = torch.cat(list(gaussian_weights(width, 4)))
    outputs = phi.value(torch.tensor(X) @ weights.T).numpy()  # (n, width)
    outputs = (outputs - outputs.mean()) / outputs.std()
    _, one, two = itertools.islice(correlations(X, phi), 3)
    np.testing.assert_allclose(outputs @ outputs.T / width, one, atol=8 / math.sqrt(width))
    # The next layer sees unit vectors of these correlations, and nothing else of the samples.
    inputs = np.linalg.cholesky(one)
    _, after = itertools.islice(correlations(inputs, phi), 2)
    np.testing.assert_allclose(two, after, atol=1e-7)
    last = infinite_gram(inputs, phi)
    np.testing.assert_allclose(infinite_gram(X, phi, hidden_layers=2), last, atol=1e-7)


@pytest.mark.parametrize("name", ["relu", "selu", "elu", "swish", "tanh"])
def test_smallest_eigenvalue_grows_with_depth(name: str) -> None:
    X, phi = samples(12, 2), ACTIVATIONS[name]
    diagonal = float(phi.kappa(1.0))
    before = 0.0
    for count, rho in enumerate(itertools.islice(correlations(X, phi), 12), 1):
        smallest = eigenvalues(rho)[-1]
        assert smallest >= before - TIGHT
        before = smallest
        gram = eigenvalues(infinite_gram(X, phi, hidden_layers=count))
        assert diagonal * smallest - TIGHT <= gram[-1] <= diagonal + TIGHT


# --- data ----------------------------------------------------------------------------------


def test_separation_is_the_sine_of_the_smallest_angle() -> None:
    X = samples(8, 3)
    pairs = itertools.permutations(X, 2)
    brute = min(float(np.linalg.norm(b - (a @ b) * a)) for a, b in pairs)
    assert separation(X) == pytest.approx(brute, rel=CLOSE)
    assert separation(X * np.where(np.arange(8) % 2, 1, -1)[:, None]) == pytest.approx(brute)


@pytest.mark.parametrize("n", [3, 10, 51])
def test_separation_on_the_half_circle(n: int) -> None:
    X = circle_points(n)
    assert X.shape == (n, 10)
    assert np.linalg.matrix_rank(X) == 2
    assert separation(X) == pytest.approx(math.sin(math.pi / n), rel=CLOSE)


def test_separation_of_samples_that_nearly_coincide() -> None:
    angle = 1e-9  # its square is below the rounding of 1 - rho^2
    X = np.array([[1.0, 0.0], [math.cos(angle), math.sin(angle)], [0.0, 1.0]])
    assert separation(X) == pytest.approx(angle, rel=1e-6)
    assert separation([[1.0, 0.0], [-1.0, 0.0]]) == 0.0
    with pytest.raises(ValueError, match="at least two"):
        separation([[1.0, 0.0]])


def test_preprocessing_scales_fills_and_appends() -> None:
    """The paper's: one scale for all rows, a coordinate that fills up, a constant."""
    X = circle_points(10, arc=2 * math.pi)
    assert separation(X) == pytest.approx(0.0, abs=CLOSE)
    rows = np.vstack([3 * X, 1.5 * X[:1]])
    prepared = preprocess(rows)
    assert prepared.shape == (11, 12)
    np.testing.assert_allclose(prepared[:, :10], rows / (3 * math.sqrt(2)), atol=TIGHT)
    np.testing.assert_allclose(prepared[:10, 10], 0.0, atol=TIGHT)
    np.testing.assert_allclose(prepared[10, 10] ** 2, 0.5 - 0.125, atol=TIGHT)
    np.testing.assert_allclose(prepared[:, 11], math.sqrt(0.5), atol=TIGHT)
    np.testing.assert_allclose(np.linalg.norm(prepared, axis=1), 1, atol=TIGHT)
    assert (prepared @ prepared.T > -TIGHT).all()
    assert separation(prepared[:10]) > 0.4
    assert preprocess([[1.0, 0.0], [0.0, 0.0]])[1] == pytest.approx([0, 0, 0.5**0.5, 0.5**0.5])
    with pytest.raises(ValueError, match="zero"):
        preprocess([[0.0, 0.0], [0.0, 0.0]])


def test_separation_after_preprocessing_is_that_of_the_distance() -> None:
    X = preprocess(np.random.default_rng(1).standard_normal((9, 3)))
    distance = min(float(np.linalg.norm(a - b)) for a, b in itertools.combinations(X, 2))
    expected = distance * math.sqrt(1 - distance**2 / 4)
    assert separation(X) == pytest.approx(expected, rel=1e-9)
    assert distance / math.sqrt(2) <= separation(X) < distance


def test_smoothed_points_stay_in_their_span() -> None:
    X = circle_points(6)
    near = smoothed_points(X, 0.1, seed=3)
    np.testing.assert_allclose(np.linalg.norm(near, axis=1), 1, atol=TIGHT)
    assert np.linalg.matrix_rank(np.vstack([X, near]), tol=1e-9) == 2
    assert 0.01 < float(np.linalg.norm(near - X, axis=1).mean()) < 0.3
    np.testing.assert_allclose(smoothed_points(X, 0.0), X, atol=TIGHT)


def test_opposite_samples_cost_relu_its_odd_frequencies() -> None:
    # On the whole circle phi' of ReLU is 1/2 plus an odd function: 3, 3 and 5 of 10 are lost.
    relu = ACTIVATIONS["relu"]
    X = circle_points(10, arc=2 * math.pi)
    values = eigenvalues(infinite_gram(X, relu))
    assert np.count_nonzero(values < CLOSE) == 3
    assert eigenvalues(infinite_gram(preprocess(X), relu))[-1] > 1e-3


# --- spectrum ------------------------------------------------------------------------------


def monomials(X: Array, degree: int) -> Array:
    """All products of so many columns."""
    indices = itertools.combinations_with_replacement(range(X.shape[1]), degree)
    return np.column_stack([X[:, list(index)].prod(axis=1) for index in indices])


@pytest.mark.parametrize("unit_norm", [True, False])
@pytest.mark.parametrize("dimension", [1, 2, 3])
@pytest.mark.parametrize("degrees", [(1,), (2,), (3,), (4,), (1, 3), (2, 3), (1, 2, 4)], ids=str)
def test_zero_eigenvalues_of_polynomials(
    degrees: tuple[int, ...], dimension: int, unit_norm: bool
) -> None:
    """Theorem 4.3 with the exact number: at a finite width, and of the features themselves."""
    rng = np.random.default_rng(0)
    n = 40
    X = rng.standard_normal((n, dimension))
    X = normalise(X) if unit_norm else X
    rank = polynomial_rank(degrees, dimension, unit_norm=unit_norm)
    features = np.column_stack([monomials(X, degree) for degree in degrees])
    assert np.linalg.matrix_rank(features) == rank < n
    phi = polynomial([float(degree in degrees) for degree in range(max(degrees) + 1)])
    basis, _ = np.linalg.qr(rng.standard_normal((6, dimension)))
    lifted = X @ basis.T
    gram = finite_gram(lifted, phi, gaussian_weights(500, 6))
    assert np.linalg.matrix_rank(gram, hermitian=True, tol=1e-11 * np.linalg.norm(gram)) == rank


def test_a_constant_has_no_features() -> None:
    with pytest.raises(ValueError, match=r"degrees must be at least 1, got \[0, 2\]"):
        polynomial_rank([0, 2], 3)
    assert polynomial_rank([], 3) == 0


@pytest.mark.parametrize("dimension", [2, 3])
@pytest.mark.parametrize("degree", [2, 3, 4])
def test_polynomials_attain_their_rank_at_infinite_width(degree: int, dimension: int) -> None:
    X = samples(30, dimension)
    values = eigenvalues(infinite_gram(X, polynomial([0.0] * degree + [1.0])))
    assert np.count_nonzero(values > CLOSE * values[0]) == polynomial_rank([degree], dimension)


def test_polynomial_is_evaluated() -> None:
    phi = polynomial([1.0, 0.0, -2.0, 0.5])
    z = torch.linspace(-2, 2, 5, dtype=torch.float64)
    torch.testing.assert_close(phi.value(z), 1 - 2 * z**2 + 0.5 * z**3)
    torch.testing.assert_close(phi.derivative(z), -4 * z + 1.5 * z**2)
    assert phi.name == "1 - 2 z^2 + 0.5 z^3"
    assert polynomial([0.0, 1.0, 11.0, -1.0]).name == "z + 11 z^2 - z^3"
    with pytest.raises(ValueError, match="is constant"):
        polynomial([3.0, 0.0])


@pytest.mark.parametrize("dimension", [2, 3])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_eigenvalues_keep_to_their_bounds(name: str, dimension: int) -> None:
    phi, n = ACTIVATIONS[name], 25
    values = eigenvalues(infinite_gram(samples(n, dimension), phi))
    bounds = eigenvalue_bounds(phi, n, dimension)
    assert (values <= bounds + 1e-12 * values[0]).all()
    assert (np.diff(bounds) <= 0).all()
    if name in ("quadratic", "cubic"):
        rank = polynomial_rank([{"quadratic": 2, "cubic": 3}[name]], dimension)
        assert (bounds[rank:] < 1e-12 * values[0]).all()


@pytest.mark.parametrize("n", [7, 12])
@pytest.mark.parametrize("name", SMOOTH)
def test_circle_in_closed_form(name: str, n: int) -> None:
    phi = ACTIVATIONS[name]
    values = eigenvalues(infinite_gram(circle_points(n, arc=2 * math.pi), phi))
    np.testing.assert_allclose(circle_eigenvalues(phi, n), values, atol=CLOSE * values[0])


@pytest.mark.parametrize("n", [8, 15])
def test_half_circle(n: int) -> None:
    for name, share in (("tanh", 0.5), ("cubic", 0.5), ("swish", 1.0)):
        phi = ACTIVATIONS[name]
        values = eigenvalues(infinite_gram(circle_points(n), phi))
        whole = share * circle_eigenvalues(phi, 2 * n)[:n]
        assert (values <= whole + CLOSE * values[0]).all()
        if share == 0.5:  # phi' is even: equality
            np.testing.assert_allclose(values, whole, atol=CLOSE * values[0])


def test_decay_of_tanh_on_the_circle() -> None:
    # lambda_min / n ~ exp(-3/2 pi^(2/3) n^(2/3)); at n = 128 it is 1e-32, far below rounding.
    n = np.array([48, 64, 96, 128])
    smallest = [circle_eigenvalues(ACTIVATIONS["tanh"], 2 * k)[k - 1] for k in n]
    slope = np.polyfit(n ** (2 / 3), np.log(smallest / n), 1)[0]
    assert slope == pytest.approx(-1.5 * math.pi ** (2 / 3), rel=0.06)


def test_closed_form_on_the_circle_needs_a_smooth_activation() -> None:
    with pytest.raises(ValueError, match="relu fall too slowly: it has a kink"):
        circle_eigenvalues(ACTIVATIONS["relu"], 10)


@pytest.mark.parametrize(("name", "order"), KINKS.items())
def test_kinks_are_where_the_derivative_jumps(name: str, order: int) -> None:
    """Condition J_r: one-sided derivatives at 0 by autograd; those of ReLU and ELU jump by 1."""
    jumps = []
    for side in (-1e-9, 1e-9):
        z = torch.tensor(side, dtype=torch.float64, requires_grad=True)
        value = ACTIVATIONS[name].value(z)
        found = [float(value.detach())]
        for _ in range(2):
            if not value.requires_grad:
                found.append(0.0)
                continue
            (value,) = torch.autograd.grad(value, z, create_graph=True)
            found.append(float(value.detach()))
        jumps.append(found)
    below, above = (np.array(found) for found in jumps)
    steps = np.abs(above - below)
    assert (steps[:order] < 1e-6).all()
    assert steps[order] > 0.5
    if name in ("relu", "elu"):
        assert steps[order] == pytest.approx(1.0, abs=1e-6)


def test_the_displayed_elu_is_another_function() -> None:
    """A slip of the paper: min(x, 0) (e^x - 1) has a jump in its first derivative."""
    z = torch.tensor(-1e-9, dtype=torch.float64, requires_grad=True)
    (displayed,) = torch.autograd.grad(z * torch.expm1(z), z)
    assert abs(float(displayed)) < 1e-6
    assert float(ACTIVATIONS["elu"].derivative(z)) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("name", KINKS)
def test_power_of_a_kink(name: str) -> None:
    n = np.array([64, 96, 128])
    smallest = [eigenvalues(infinite_gram(circle_points(k), ACTIVATIONS[name]))[-1] for k in n]
    slope = np.polyfit(np.log(n), np.log(smallest), 1)[0]
    assert slope == pytest.approx(1 - 2 * KINKS[name], abs=0.1)


def test_duals_are_bounded_at_their_ends() -> None:
    """Correlations that rounding pushed out of [-1, 1] are taken for its ends."""
    dual = Dual.of(torch.tanh, "tanh")
    assert float(dual(1 + 1e-15)) == float(dual(1.0))
