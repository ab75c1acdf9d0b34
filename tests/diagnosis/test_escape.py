"""One more unit of a two-layer ReLU network is claimed only where it lowers the norm."""

from typing import Any

import numpy as np
from torch import nn

from diagnosis.asking import finding
from example_modules import known, of
from implicit_bias import diagnose
from implicit_bias.diagnosis import Code


def relu(hidden: Any, readout: Any) -> nn.Module:
    """Two layers of these weights."""
    return of(np.array(hidden), np.array(readout), between=nn.ReLU)


def test_a_unit_that_some_multipliers_suggest_is_not_claimed() -> None:
    """The network is the best one, which only the multipliers (0, 1, 0) prove."""
    X = np.array([[1.0, -3.0], [1.0, 0.0], [1.0, 3.0]])
    found = diagnose(relu([[1.0, 0.0]], [[1.0]]), X, [1, 1, 1])
    assert found.gap < 1e-9
    escape = known(found.escape)
    assert not escape.claimed
    assert escape.saving == 0.0


def test_a_unit_that_helps_is_claimed_with_its_saving() -> None:
    """One unit for two far samples and the near one; a unit of the far one's own is cheaper."""
    X, y = np.array([[1.0, 3.0], [1.0, -3.0]]), [1, 1]
    # By symmetry the unit (1, 0) is a KKT point; one unit a sample has norm 2 / sqrt 10 < 1.
    found = diagnose(relu([[1.0, 0.0]], [[1.0]]), X, y)
    assert found.gap < 1e-9
    escape = known(found.escape)
    assert escape.pull > 1.5
    assert escape.claimed
    assert finding(found, Code.ONE_MORE_UNIT).value == escape.saving
    assert 0 < escape.saving < 1 - (2 / np.sqrt(10)) ** 0.5 + 1e-6


def test_units_that_are_averaged_before_the_readout_are_no_such_network() -> None:
    layers = [nn.Linear(1, 4, bias=False), nn.ReLU(), nn.AvgPool1d(2), nn.Linear(2, 1, bias=False)]
    module = nn.Sequential(*layers).double()
    for part, weight in zip(module.parameters(), (0.5**0.5, 1.0), strict=True):
        nn.init.constant_(part, weight)
    found = diagnose(module, np.ones((1, 1)), [1])
    assert found.gap < 1e-9
    assert found.escape is None
