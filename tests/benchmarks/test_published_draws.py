"""The published draws and training of Lippl, Abbott, Chung (2022), to the bit."""

from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.lippl2022 import draws
from implicit_bias.training import TrainingConfig

IMAGES = np.random.default_rng(0).uniform(-1, 1, (301, 30))


@pytest.fixture
def global_rng() -> Any:
    """Give the literal re-implementations torch's global generator, and restore it."""
    with torch.random.fork_rng():
        yield


@pytest.mark.usefixtures("global_rng")
@pytest.mark.parametrize(
    ("seed", "n_units", "k", "threshold"), [(1, 10, 1, "median"), (2, 4, 2, "random")]
)
def test_published_contexts(seed: int, n_units: int, k: int, threshold: Any) -> None:
    """Against the published draws, literally: from torch's global generator."""
    train = IMAGES[:100]
    torch.manual_seed(seed)
    layer = torch.nn.Linear(30, n_units * k, bias=False)
    torch.nn.init.normal_(layer.weight, std=36)
    thresholds = torch.empty(n_units * k)
    torch.nn.init.normal_(thresholds, std=9)
    with torch.no_grad():
        if threshold == "median":
            all_projections = layer(torch.tensor(IMAGES, dtype=torch.float32))
            thresholds = torch.quantile(all_projections, 0.5, dim=0)
        projections = layer(torch.tensor(train, dtype=torch.float32))
        fires = (projections > thresholds).numpy().reshape(100, n_units, k)
    state = torch.get_rng_state()
    fitted = draws.draw_contexts(
        train, n_units, k, threshold=threshold, reference=IMAGES, seed=seed
    )
    assert torch.equal(state, torch.get_rng_state())
    weights = layer.weight.detach().double().numpy().reshape(n_units, k, 30)
    np.testing.assert_array_equal(fitted.weights, weights)
    np.testing.assert_array_equal(
        fitted.thresholds, thresholds.double().numpy().reshape(n_units, k)
    )
    np.testing.assert_array_equal(fitted.fires(train), fires)


@pytest.mark.usefixtures("global_rng")
# Of an even and of an odd number of images, with fewer and with more units than inputs.
@pytest.mark.parametrize(("n", "n_units"), [(300, 40), (301, 5)])
def test_published_units(n: int, n_units: int) -> None:
    images = IMAGES[:n]
    inputs = torch.tensor(images, dtype=torch.float32)
    torch.manual_seed(3)
    weights = torch.empty(n_units, 30)
    torch.nn.init.orthogonal_(weights)
    projections = inputs @ weights.T
    thresholds = torch.stack([torch.median(column) for column in projections.unbind(1)])
    on = (projections >= thresholds).double().numpy()
    state = torch.get_rng_state()
    fitted = draws.draw_unit_gates(n_units, reference=images, seed=3)
    assert torch.equal(state, torch.get_rng_state())
    np.testing.assert_array_equal(fitted.weights, weights.double().numpy())
    np.testing.assert_array_equal(fitted.thresholds, thresholds.double().numpy())
    np.testing.assert_array_equal(fitted.gates(images), np.column_stack([on, np.ones(n)]))
    bare = draws.draw_unit_gates(n_units, reference=images, seed=3, always_on=False)
    np.testing.assert_array_equal(bare.gates(images), on)


def test_published_protocol() -> None:
    config = draws.training_config(momentum=0.9, seed=3)
    assert config == TrainingConfig(momentum=0.9, seed=3)
    assert (config.steps, config.batch_size, config.loss) == (3200, 128, "logistic")
    assert [config.step_size(step) for step in (0, 1599, 1600, 3199)] == [0.04, 0.04, 0.01, 0.01]
