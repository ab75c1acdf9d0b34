"""Along the training of a GLN: the fast network, and what is said of a table."""

import numpy as np
import pytest
import torch

from benchmarks.lippl2022 import training_paths as paths
from implicit_bias.networks import GLN
from implicit_bias.problem.gating import HyperplaneContexts


@pytest.mark.parametrize("bias", [True, False])
def test_products_of_matrices_are_the_network(bias: bool) -> None:
    X = np.random.default_rng(0).normal(size=(7, 4))
    contexts = HyperplaneContexts.random(X, 3, 1, random_state=0)
    network = GLN([contexts], readout_bias=True, seed=0)
    masked = paths.Masked(network, bias=bias)
    outputs = masked(torch.tensor(X), torch.tensor(contexts.gates(X).toarray())).detach()
    shift = 0.0 if bias else network.readout_bias_value
    np.testing.assert_allclose(outputs + shift, network.decision(X))
    np.testing.assert_allclose(paths.now(masked)[0], network.coef())
