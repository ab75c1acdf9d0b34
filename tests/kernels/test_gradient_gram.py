"""The Gram matrix of an activation: brute force, closed forms, and the theorems on small cases."""

import itertools
import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
import torch
from numpy.polynomial import hermite_e
from scipy.stats import norm
from torch import Tensor
from torch.nn import functional

from drawn import sphere
from example_modules import drawn
from implicit_bias.base.validation import Array
from implicit_bias.kernels import gradient_gram as module
from implicit_bias.kernels.dual_kernels import HERMITE_TERMS, Dual, hermite_coefficients
from implicit_bias.kernels.gated_least_squares import limit_kernel
from implicit_bias.kernels.gradient_gram import (
    ACTIVATIONS,
    Activation,
    correlations,
    eigenvalues,
    finite_eigenvalues,
    finite_gram,
    gaussian_weights,
    infinite_gram,
    normalise,
    polynomial,
)

# Closed forms and quadrature agree to this; matrices of moderate size to the second.
TIGHT, CLOSE = 1e-11, 1e-9
RHO = np.linspace(-1, 1, 41)
SINE = Activation("sine", torch.sin)
ERF = Activation("erf", torch.erf)
SMOOTH = ["swish", "tanh", "quadratic", "cubic"]


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
    X, phi = sphere(5, 3), ACTIVATIONS[name]
    weights, readouts = drawn(7, 3).requires_grad_(), drawn(7, 2, seed=1).requires_grad_()
    biases = drawn(7, seed=2)
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
    X, tanh = sphere(4, 3), ACTIVATIONS["tanh"]
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
    X, phi = sphere(6, 3), ACTIVATIONS[name]
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
    for wrong in (5, torch.tensor(5.0)):
        with pytest.raises(TypeError, match="weights"):
            finite_gram(X, phi, cast(Any, wrong))
    with pytest.raises(ValueError, match="no units"):
        finite_eigenvalues(X, phi, [])


def test_blocks_hold_few_gates_and_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def seen(z: Tensor) -> Tensor:
        sizes.append(z.numel())
        return torch.tanh(z)

    X = sphere(7, 4)
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


def test_weights_readouts_and_biases_are_arrays_or_tensors() -> None:
    X, W, readouts, biases = sphere(4, 2), *(torch.arange(1.0, n + 1) for n in (8, 4, 4))
    given: dict[str, Any] = {"readouts": readouts, "biases": biases}
    known = finite_gram(X, SINE, [W.reshape(4, 2)], **given)
    as_arrays: dict[str, Any] = {name: values.tolist() for name, values in given.items()}
    np.testing.assert_allclose(finite_gram(X, SINE, [W.reshape(4, 2).numpy()], **as_arrays), known)
    with pytest.raises(ValueError, match="biases"):  # which would be one a sample
        finite_gram(X, SINE, [W.reshape(4, 2)], biases=biases[:, None])
    for name in given:
        with pytest.raises(ValueError, match=name):
            finite_gram(X, SINE, [W.reshape(4, 2)], **{**given, name: np.full(4, np.nan)})


def test_weights_must_fit() -> None:
    with pytest.raises(ValueError, match="no units"):
        finite_gram(sphere(3, 2), SINE, [])
    with pytest.raises(ValueError, match=r"X has 2 features, but weights have the shape \(8, 3\)"):
        finite_gram(sphere(3, 2), SINE, gaussian_weights(8, 3))


@pytest.mark.parametrize("name", ["relu", "selu", "elu", "swish", "tanh"])
def test_finite_width_goes_to_infinite_width(name: str) -> None:
    X, phi = sphere(10, 5), ACTIVATIONS[name]
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
    X = sphere(6, 3)
    rho = X @ X.T
    expected = rho * kappa_relu(np.clip(rho, -1, 1))
    np.testing.assert_allclose(infinite_gram(X, ACTIVATIONS["relu"]), expected, atol=1e-7)
    np.testing.assert_allclose(limit_kernel(X), expected, atol=1e-7)  # GaLU's is the same
    with pytest.raises(ValueError, match=r"row \d of X has length 2, not 1: pass normalise"):
        infinite_gram(2 * X, ACTIVATIONS["relu"])
    with pytest.raises(ValueError, match="hidden_layers must be at least 1"):
        infinite_gram(X, ACTIVATIONS["relu"], hidden_layers=0)
    for wrong in (
        np.zeros((0, 0)),
        [1.0, 1.0],
        [[1.0, 5.0], [0.0, 1.0]],
        [[0.0, 1.0], [1.0, 0.0]],
        -1.0,
        np.nan,
    ):
        with pytest.raises(ValueError, match="readouts"):
            infinite_gram(X, ACTIVATIONS["relu"], readouts=wrong)


def test_gram_where_no_gradients_are_recorded() -> None:
    X, phi = sphere(3, 2), Activation("tanh", torch.tanh)
    expected = finite_gram(X, phi, gaussian_weights(8, 2))
    with torch.no_grad():
        np.testing.assert_array_equal(finite_gram(X, phi, gaussian_weights(8, 2)), expected)


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_directions_are_found_where_squares_leave_the_range(scale: float) -> None:
    X = sphere(6, 3)
    np.testing.assert_allclose(normalise(scale * X), X, rtol=1e-13)


@pytest.mark.parametrize("name", ["relu", "tanh"])
def test_classes_and_trained_readouts_at_infinite_width(name: str) -> None:
    X, phi, width = sphere(5, 3), ACTIVATIONS[name], 2**16
    readouts = drawn(width, 2, seed=1)
    finite = finite_gram(X, phi, gaussian_weights(width, 3), readouts=readouts, train_readouts=True)
    limit = infinite_gram(X, phi, readouts=np.eye(2), train_readouts=True)
    np.testing.assert_allclose(finite, limit, atol=0.05)
    assert (limit[:5, 5:] == 0).all()
    hidden = limit[:5, :5] - infinite_gram(X, phi)
    np.testing.assert_allclose(hidden, phi.dual(X @ X.T), atol=1e-7)
    np.testing.assert_allclose(infinite_gram(X, phi, readouts=4.0), 4 * infinite_gram(X, phi))


@pytest.mark.parametrize("phi", [*map(ACTIVATIONS.get, SMOOTH), SINE], ids=lambda phi: phi.name)
def test_kappa_is_its_hermite_series(phi: Activation) -> None:
    powers = RHO[:, None] ** np.arange(HERMITE_TERMS)
    np.testing.assert_allclose(powers @ phi.hermite_squares, phi.kappa(RHO), atol=CLOSE)


def test_hermite_coefficients_of_a_polynomial() -> None:
    # phi' = 3 z^2 = 3 He_2 + 3, and He_2 / sqrt(2) is normalised.
    found = hermite_coefficients(ACTIVATIONS["cubic"].derivative, 6)
    np.testing.assert_allclose(found, [3, 0, 3 * math.sqrt(2), 0, 0, 0], atol=TIGHT)


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
    X, phi, width = sphere(6, 4), ACTIVATIONS[name], 2**17
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
    X, phi = sphere(12, 2), ACTIVATIONS[name]
    diagonal = float(phi.kappa(1.0))
    before = 0.0
    for count, rho in enumerate(itertools.islice(correlations(X, phi), 12), 1):
        smallest = eigenvalues(rho)[-1]
        assert smallest >= before - TIGHT
        before = smallest
        gram = eigenvalues(infinite_gram(X, phi, hidden_layers=count))
        assert diagonal * smallest - TIGHT <= gram[-1] <= diagonal + TIGHT


# --- spectrum ------------------------------------------------------------------------------


def test_polynomial_is_evaluated() -> None:
    phi = polynomial([1.0, 0.0, -2.0, 0.5])
    z = torch.linspace(-2, 2, 5, dtype=torch.float64)
    torch.testing.assert_close(phi.value(z), 1 - 2 * z**2 + 0.5 * z**3)
    torch.testing.assert_close(phi.derivative(z), -4 * z + 1.5 * z**2)
    assert phi.name == "1 - 2 z^2 + 0.5 z^3"
    assert polynomial([0.0, 1.0, 11.0, -1.0]).name == "z + 11 z^2 - z^3"
    with pytest.raises(ValueError, match="is constant"):
        polynomial([3.0, 0.0])
    with pytest.raises(ValueError, match="coefficients contains NaN"):
        polynomial([0.0, math.nan])
    for wrong in (np.ones(3), np.ones((2, 3)), np.triu(np.ones((2, 2))), [[math.nan]]):
        with pytest.raises(ValueError, match="gram"):
            eigenvalues(wrong)  # type: ignore[arg-type]


def test_the_displayed_elu_is_another_function() -> None:
    """A slip of the paper: min(x, 0) (e^x - 1) has a jump in its first derivative."""
    z = torch.tensor(-1e-9, dtype=torch.float64, requires_grad=True)
    (displayed,) = torch.autograd.grad(z * torch.expm1(z), z)
    assert abs(float(displayed)) < 1e-6
    assert float(ACTIVATIONS["elu"].derivative(z)) == pytest.approx(1.0, abs=1e-6)


def test_duals_are_bounded_at_their_ends() -> None:
    """Correlations that rounding pushed out of [-1, 1] are taken for its ends."""
    dual = Dual.of(torch.tanh, "tanh")
    assert float(dual(1 + 1e-15)) == float(dual(1.0))
