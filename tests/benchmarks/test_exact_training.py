"""The table of all released networks: cells, order, resumption and counts."""

import os
from dataclasses import asdict, replace
from io import StringIO
from itertools import permutations, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from benchmarks import harness
from benchmarks.harness import Options, Run
from benchmarks.lippl2022 import exact_training as exact
from benchmarks.lippl2022 import further_models, learned_contexts
from implicit_bias.datasets import DATA_VARIABLE, Dataset
from implicit_bias.problem.gating import HyperplaneContexts
from implicit_bias.protocols import lippl2022
from implicit_bias.protocols.released_training import released_relu
from implicit_bias.protocols.released_training import released_shallow_gln as shallow_gln

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
    return lippl2022.draw_contexts(
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


def test_summary_counts() -> None:
    rows = [
        asdict(replace(RELU, seed=seed))
        | {"released": 0.5, "ours": 0.5 + images / 12_000, "images": images}
        | {"released_loss": 0.1, "loss": 0.1 + 1e-5 * images, "seconds": 1.0}
        for seed, images in enumerate([0, 1, -3])
    ]
    (counts,) = exact.summary(pd.DataFrame(rows)).to_dict("records")
    assert counts == {
        "networks": 3,
        "to_the_digit": 1,
        "one_image": 1,
        "further": 1,
        "largest": 3,
        "loss_to_the_digit": 1,
        "seconds": 1.0,
    }


def test_outputs_of_one_unit() -> None:
    network = shallow_gln(contexts(1), seed=1)
    X = np.random.default_rng(1).normal(size=(3000, 5))
    np.testing.assert_allclose(further_models.outputs(network, X), network.decision(X), atol=1e-6)


def test_agreements_are_counted_by_what_is_exact() -> None:
    """Those that are not the released ones are listed, each with the shift that it needs."""
    cell = asdict(RELU) | {"released": 0.9, "drawn": np.nan, "gap": 1e-10, "osqp": np.nan}
    rows = [
        cell | {"seed": seed, "agreement": 0.9 + apart / 12_000, "svm_images": of_svm}
        | {"network_images": of_network, "network_loss": loss}
        | {"svm_shift": 0.01 * abs(apart), "network_shift": 0.5}
        for seed, apart, of_svm, of_network, loss in [
            (1, 0, 0, 0, 0), (2, -1, 0, 0, 1e-6), (3, 5, 2, 0, 0), (4, 7, 0, 0, 1e-4),
            (5, 0, np.nan, np.nan, 0),
        ]
    ]  # fmt: skip
    table = pd.DataFrame(rows)
    found = exact.agreement_summary(table)
    assert set(found["SVM"]) == {"SVM-RC"}
    counts = found.set_index("the released one").drop(columns="SVM")
    assert list(counts.loc["network and SVM"])[:5] == [2, 1, 2, 1, "0.01"]
    assert list(counts.loc["the network alone"])[:5] == [1, 0, 0, 5, "0.05"]
    assert list(counts.loc["not the network"])[:5] == [2, 1, 1, 7, "0.07"]
    listed = counts[counts.index.str.contains("seed")]
    assert listed.index.str.extract(r"seed (\d)")[0].tolist() == ["2", "3", "4"]
    assert listed["furthest"].tolist() == [1, 5, 7]
    table.attrs["wanted"] = 9
    text = exact.EXPERIMENTS["exact_agreements"].found(table)
    assert "5 of 9" in text
    assert "1 of 3 agreements are the released ones" in text
    assert "where the SVM, too, has the released accuracy, 1 of 2." in text
    assert exact.EXPERIMENTS["exact_agreements"].verdict(table) is harness.Verdict.FALLS


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


def test_ranges_over_trainings_hold_each_of_their_ends() -> None:
    table = pd.DataFrame(
        {"released": [0.80, 0.81, 0.9], "least": [0.80, 0.80, 0.80], "most": [0.81, 0.81, 0.81]}
    )
    assert learned_contexts.within(table).tolist() == [True, True, False]


def test_share_within_the_range_of_draws_of_one_kind() -> None:
    """By brute force: one of K + 1 draws of one kind is an extreme with probability 2 / (K + 1)."""
    orders = list(permutations(range(learned_contexts.TRAININGS + 1)))
    inside = [min(rest) < first < max(rest) for first, *rest in orders]
    assert np.mean(inside) == pytest.approx(learned_contexts.EXPECTED)


@pytest.mark.slow
@pytest.mark.skipif(
    not (Path(os.environ.get(DATA_VARIABLE, "/nowhere")) / "mnist").is_dir(),
    reason=f"MNIST is not in ${DATA_VARIABLE}",
)
def test_the_last_bit_moves_gates_of_training_samples() -> None:
    cell = exact.Cell("GD-ReLU", 500, 10, 1, 2, None, 0.0)
    found = learned_contexts.measured(cell, exact.Images(), repeats=2)
    assert found["flips"] >= 1
    assert found["least"] < found["most"]
