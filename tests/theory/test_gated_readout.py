"""Gated readouts and their relaxation; the free predictors of FReLU networks."""

from itertools import product

import cvxpy as cp
import numpy as np
import pytest
import torch

from implicit_bias.gating import HyperplaneContexts
from implicit_bias.theory import frelu_predictors as frelu
from implicit_bias.theory.gated_readout import (
    GatedReadoutGLN,
    bounds,
    dual_matrices,
    loss_weights,
)
from implicit_bias.validation import Array


def samples() -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(24, 3))
    return X, np.where(X[:, 0] + 0.3 * X[:, 1] > 0, 1.0, -1.0)


def network(X: Array) -> GatedReadoutGLN:
    hidden = HyperplaneContexts.random(X, 2, 1, random_state=0)
    return GatedReadoutGLN(hidden, HyperplaneContexts.random(X, 1, 1, random_state=1), seed=2)


def test_outputs_and_dual_matrices_by_loops() -> None:
    X, y = samples()
    net = network(X)
    hidden, output = net.hidden.contexts(X), net.output.contexts(X)[:, 0]
    W, w = net.weights.detach().numpy(), net.readout.detach().numpy()
    expected = [
        sum(w[h, output[n]] * W[h, hidden[n, h]] @ X[n] for h in range(2)) for n in range(len(X))
    ]
    outputs = net(*net.prepare(X)).detach().numpy()
    np.testing.assert_allclose(outputs, expected, atol=1e-12)
    weights = y * np.arange(1.0, len(X) + 1)
    V = dual_matrices(net, X, weights)
    zeta = np.einsum("ho,hcd->hocd", w, W).reshape(2, 2, -1)
    # <V, zeta> = sum_n alpha_n y_n f(x_n): what makes V the dual of zeta.
    assert np.sum(V * zeta) == pytest.approx(float(weights @ outputs))


def relaxation(net: GatedReadoutGLN, X: Array, y: Array) -> tuple[float, Array]:
    """Return the relaxation's optimum and multipliers by CVXPY."""
    Z = [cp.Variable((2, 2 * X.shape[1])) for _ in range(2)]
    hidden, output = net.hidden.contexts(X), net.output.contexts(X)[:, 0]
    D = X.shape[1]
    margins = cp.hstack(
        [
            y[n]
            * sum(
                Z[h][output[n], D * hidden[n, h] : D * (hidden[n, h] + 1)] @ X[n] for h in range(2)
            )
            for n in range(len(X))
        ]
    )
    constraint = margins >= 1
    program = cp.Problem(cp.Minimize(sum(cp.normNuc(each) for each in Z)), [constraint])
    program.solve(solver="CLARABEL")
    return float(program.value), np.asarray(constraint.dual_value)


def test_bounds_hold_the_optimum_between_them() -> None:
    X, y = samples()
    net = network(X)
    optimum, alpha = relaxation(net, X, y)
    assert bounds(net, X, y, alpha).lower == pytest.approx(optimum, rel=1e-4)
    optimiser = torch.optim.Adam(net.parameters(), lr=0.02)
    prepared, labels = net.prepare(X), torch.tensor(y)
    for _ in range(3000):
        optimiser.zero_grad()
        loss = torch.logsumexp(-labels * net(*prepared), dim=0)
        torch.autograd.backward(loss)
        optimiser.step()
    found = bounds(net, X, y, loss_weights(net, X, y))
    assert 0 < found.lower <= optimum * (1 + 1e-6)
    assert optimum * (1 - 1e-6) <= found.upper < 3 * optimum


def test_output_contexts_are_of_one_unit() -> None:
    X, _ = samples()
    contexts = HyperplaneContexts.random(X, 2, 1, random_state=0)
    with pytest.raises(ValueError, match="one unit"):
        GatedReadoutGLN(contexts, contexts)


def test_free_predictors_of_frelu_determine_all() -> None:
    zeta = np.random.default_rng(0).normal(size=(4, 3))
    everything = np.array(list(product((0, 1), repeat=4)))
    all_predictors = frelu.predictors(zeta, everything)
    for gates, beta in zip(everything, all_predictors, strict=True):
        np.testing.assert_allclose(
            beta, sum((z for z, on in zip(zeta, gates, strict=True) if on), start=np.zeros(3))
        )
    free = frelu.free_contexts(4)
    np.testing.assert_allclose(frelu.coef_through(free, frelu.predictors(zeta, free)), zeta)
    found = frelu.coef_through(everything, all_predictors)
    np.testing.assert_allclose(found, zeta, atol=1e-12)
    assert frelu.norm(found) == pytest.approx(np.linalg.norm(zeta, axis=1).sum())


def test_predictors_that_no_frelu_network_has() -> None:
    with pytest.raises(ValueError, match="determine 1 of 2"):
        frelu.coef_through([[1, 1]], [[1.0]])
    with pytest.raises(ValueError, match="no FReLU"):
        frelu.coef_through([[1, 0], [0, 1], [1, 1]], [[1.0], [1.0], [1.0]])
    with pytest.raises(ValueError, match="zeros and ones"):
        frelu.predictors([[1.0]], [[2]])
