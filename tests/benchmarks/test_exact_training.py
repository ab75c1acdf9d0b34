"""The table of all released networks: cells, order, resumption and counts."""

from dataclasses import asdict, replace
from io import StringIO
from itertools import permutations, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from benchmarks.harness import Options, Run
from benchmarks.lippl2022 import draws, further_models, learned_contexts
from benchmarks.lippl2022 import exact_training as exact
from benchmarks.lippl2022.released_training import released_relu
from benchmarks.lippl2022.released_training import released_shallow_gln as shallow_gln
from implicit_bias.datasets import Dataset
from implicit_bias.problem.gating import HyperplaneContexts
from mnist import needs_mnist

RELEASED = """model,train_size,hidden_units,hyperplanes,seed,median_init,momentum,metric,value
GD-GLN,500,100,2,1,True,0.0,last_batch_loss,0.00128
GD-GLN,500,100,2,1,True,0.0,val_accuracy,0.825333
GD-GLN,500,10,1,1,False,0.9,last_batch_loss,0.000203
GD-GLN,500,10,1,1,False,0.9,val_accuracy,0.828
GD-ReLU,500,50,1,1,,0.0,last_batch_loss,0.005365
GD-ReLU,500,50,1,1,,0.0,val_accuracy,0.8875
SVM-GLN,500,100,2,1,True,,agreement_with_GD,0.75
SVM-RC,500,50,1,1,True,0.9,agreement_with_GD,0.85
SVM-L2,500,50,1,1,True,,agreement_with_GD,0.65
"""
RELU = exact.Cell("GD-ReLU", 500, 50, 1, 1, None, 0.0)
WIDE = exact.Cell("GD-GLN", 500, 100, 2, 1, True, 0.0)
MOMENTUM = exact.Cell("GD-GLN", 500, 10, 1, 1, False, 0.9)


@pytest.fixture
def published() -> pd.DataFrame:
    return pd.read_csv(StringIO(RELEASED))


def contexts(n_units: int, threshold: str = "median") -> HyperplaneContexts:
    X = np.random.default_rng(0).normal(size=(40, 5))
    return draws.draw_contexts(
        X,
        n_units,
        2,
        threshold="median" if threshold == "median" else "random",
        reference=X,
        seed=1,
    )


def test_networks_without_momentum_and_narrow_ones_come_first(published: pd.DataFrame) -> None:
    table = exact.released_networks(published)
    assert list(exact.cells(table)) == [RELU, WIDE, MOMENTUM]
    np.testing.assert_allclose(table["released"], [0.8875, 0.825333, 0.828])
    np.testing.assert_allclose(table["released_loss"], [0.005365, 0.00128, 0.000203])


def test_agreements_are_those_with_gradient_descent(published: pd.DataFrame) -> None:
    agreements = exact.released_agreements(published)
    found = {cell: each.agreement for cell, each in agreements.items()}
    assert found == {WIDE: 0.75, replace(RELU, momentum=0.9): 0.85}
    assert (agreements[WIDE].of_network, agreements[WIDE].loss) == (0.825333, 0.00128)
    assert np.isnan(agreements[WIDE].of_svm)


def test_shift_is_the_smallest_with_which_signs_agree_as_asked() -> None:
    """By brute force over all sets of signs that may change."""
    generator = np.random.default_rng(0)
    for _ in range(20):
        moving, fixed = generator.normal(size=(2, 6))
        moving[0] = fixed[1] = 0.0
        wanted = int(generator.integers(0, 7))
        least = np.inf
        for changed in product([1.0, -1.0], repeat=5):
            signs = np.sign(moving) * [1.0, *changed]
            if np.sum(signs == np.sign(fixed)) == wanted:
                moved = np.abs(moving)[1:][np.array(changed) < 0]
                least = min(least, moved.max(initial=0.0))
        found = exact.shift_needed(moving, fixed, wanted / 6)
        assert found == least or np.isnan(found) and np.isinf(least)


def test_a_table_goes_on_with_the_cells_that_it_lacks(tmp_path: Path) -> None:
    """Also of networks without thresholds; a quick run measures the first one."""
    computed, file = list[exact.Cell](), tmp_path / "table.parquet"

    def row(cell: exact.Cell) -> dict[str, Any]:
        computed.append(cell)
        return asdict(cell) | {"images": 0}

    def fill(kept: pd.DataFrame, cell: exact.Cell) -> pd.DataFrame:
        run = Run(quick=True, options=Options(), kept=kept, file=file, say=lambda _: None)
        *_, table = kept, *exact.grown(run, [cell], row)
        table.to_parquet(file)
        return pd.read_parquet(file)

    table = fill(fill(fill(pd.DataFrame(), RELU), WIDE), RELU)
    assert computed == [RELU, WIDE]
    assert list(exact.cells(table)) == [RELU, WIDE]


def test_outputs_of_one_unit() -> None:
    network = shallow_gln(contexts(1), seed=1)
    X = np.random.default_rng(1).normal(size=(3000, 5))
    np.testing.assert_allclose(further_models.outputs(network, X), network.decision(X), atol=1e-6)


def test_an_output_of_zero_is_an_error() -> None:
    network = released_relu(2, 1, seed=0)
    with torch.no_grad():
        network.hidden_weights[0].copy_(torch.tensor([[1.0, 0.0]]))
        network.readout.fill_(1.0)
    X, y = np.array([[1.0, 0.0], [-1.0, 0.0], [-1.0, 0.0]]), np.array([1.0, -1.0, 1.0])
    assert exact.correct(network, Dataset("points", X, y, ("-", "+"), has_constant=False)) == 1


# --- learned contexts and the last bit ----------------------------------------------------------


def test_released_svm_lc_has_both_metrics_and_no_failures() -> None:
    frame = pd.read_csv(
        StringIO(
            RELEASED
            + "SVM-LC,500,50,1,1,,0.0,val_accuracy,0.86\n"
            + "SVM-LC,500,50,1,1,,0.0,agreement_with_GD,0.92\n"
            + "SVM-LC,500,50,1,2,,0.0,val_accuracy,\n"
            + "SVM-LC,500,50,1,2,,0.0,agreement_with_GD,\n"
        )
    )
    assert learned_contexts.released(frame) == {RELU: (0.86, 0.92)}


def test_share_within_the_range_of_draws_of_one_kind() -> None:
    """By brute force: one of K + 1 draws of one kind is an extreme with probability 2 / (K + 1)."""
    orders = list(permutations(range(learned_contexts.TRAININGS + 1)))
    inside = [min(rest) < first < max(rest) for first, *rest in orders]
    assert np.mean(inside) == pytest.approx(learned_contexts.EXPECTED)


@pytest.mark.slow
@needs_mnist
def test_the_last_bit_moves_gates_of_training_samples() -> None:
    cell = exact.Cell("GD-ReLU", 500, 10, 1, 2, None, 0.0)
    found = learned_contexts.measured(cell, exact.Images(), repeats=2)
    assert found["flips"] >= 1
    assert found["least"] < found["most"]
