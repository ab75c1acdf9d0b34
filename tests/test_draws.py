"""A seed draws the same gates and weights in every version: kept results can be computed again."""

import json
from pathlib import Path

import numpy as np
import torch

from implicit_bias.base.validation import Array
from implicit_bias.datasets.toys import make_toy
from implicit_bias.networks import GLN, ReLUNetwork
from implicit_bias.problem.gating import HyperplaneContexts, UnitGates

DRAWS = Path(__file__).parent / "fixtures" / "draws.json"
X = make_toy("moons", 60, noise=0.05).X


def numbers(weights: Array, thresholds: Array) -> list[float]:
    """Return some of the weights, their sum, and the sum of the thresholds."""
    return [*weights.ravel()[:4].tolist(), float(weights.sum()), float(thresholds.sum())]


def first(weights: torch.Tensor) -> list[float]:
    return weights.detach().numpy().ravel()[:4].tolist()


def test_random_draws_are_the_same() -> None:
    contexts = HyperplaneContexts.random(X, 5, 2, random_state=3)
    gates = UnitGates.random(X, 5, random_state=3)
    orthogonal = UnitGates.random(X, 2, init="orthogonal", random_state=3)
    found = {
        "contexts": numbers(contexts.weights, contexts.thresholds),
        "unit gates": numbers(gates.weights, gates.thresholds),
        "orthogonal": numbers(orthogonal.weights, orthogonal.thresholds),
        "GLN": first(GLN([contexts], seed=4).hidden_weights[0]),
        "ReLUNetwork": first(ReLUNetwork(3, [5], seed=4).hidden_weights[0]),
    }
    expected = json.loads(DRAWS.read_text())
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        # Drawn in float32, whose last digits depend on the kernels of the processor.
        np.testing.assert_allclose(found[name], values, rtol=1e-5, atol=1e-5, err_msg=name)
