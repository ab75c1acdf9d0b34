"""The replication of Lippl, Abbott, Chung (2022): its models and tables, on small measures."""

import json
import math
import zipfile
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from benchmarks.__main__ import main
from benchmarks.lippl2022 import (
    as_published,
    draws,
    fold,
    released,
    released_training,
)
from benchmarks.lippl2022.cells import Models, Setting, measured
from benchmarks.lippl2022.gln import cell as gln_cell
from implicit_bias.estimators.networks import GLNClassifier
from implicit_bias.problem.gating import HyperplaneContexts
from mnist import DIGIT, check_released, needs_mnist

ROUNDING = 1e-9


def drawn_contexts(X: np.ndarray, n_units: int = 3, n_hyperplanes: int = 2) -> HyperplaneContexts:
    return HyperplaneContexts.random(X, n_units, n_hyperplanes, random_state=0)


@pytest.fixture
def X() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(60, 4))


# --- as-published operators --------------------------------------------------------------------


def test_folds_are_what_their_reshapes_make(X: np.ndarray) -> None:
    """Flattened in row-major order, folded back in column-major order."""
    gating = drawn_contexts(X)
    unit_of = np.arange(gating.n_units * gating.n_contexts).reshape(
        (gating.n_units, gating.n_contexts), order="F"
    )
    folds = as_published.folds(gating)
    assert [set(np.flatnonzero(folds == g)) for g in range(3)] == [set(row) for row in unit_of]
    assert not np.array_equal(folds, gating.groups)


def test_operator_is_their_formula(X: np.ndarray) -> None:
    """Sum over all columns / HC - sum over the fold + C zeta, for random coefficients."""
    gating = drawn_contexts(X)
    H, C = gating.n_units, gating.n_contexts
    zeta = np.random.default_rng(1).normal(size=(H * C, 5))
    folded = zeta.T.reshape((5, H, C), order="F")  # [d, g, c] is column g + H c
    theirs = folded.sum((1, 2), keepdims=True) / (H * C) - folded.sum(2, keepdims=True) + C * folded
    ours = as_published.operator(gating) @ zeta
    np.testing.assert_allclose(ours.T, theirs.reshape((5, H * C), order="F"), atol=ROUNDING)


def test_the_formula_with_the_right_fold_has_no_free_direction(X: np.ndarray) -> None:
    """On zeta that a predictor can have, its norm is that of A folded by units, by brute force."""
    gating = drawn_contexts(X)
    H, C = gating.n_units, gating.n_contexts
    rng = np.random.default_rng(1)
    zeta = gating.gates(X).toarray().T @ rng.normal(size=(len(X), 5))  # the range of all V
    by_unit = zeta.reshape(H, C, 5)  # column h C + c: row-major
    theirs = by_unit.sum((0, 1)) / (H * C) - by_unit.sum(1, keepdims=True) + C * by_unit
    metric = as_published.formula_metric(gating)
    norm = np.sqrt(np.trace(zeta.T @ np.linalg.pinv(metric) @ zeta))
    assert norm == pytest.approx(np.linalg.norm(theirs), rel=1e-9)
    # Its mask, times C^2: units whose contexts coincide, - H / C + H C.
    chosen = gating.contexts(X)
    agree = (chosen[:, None] == chosen).sum(2)
    gates = gating.gates(X).toarray()
    np.testing.assert_allclose(C**2 * gates @ metric @ gates.T, agree - H / C + H * C, atol=1e-9)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the released training see few samples."""
    monkeypatch.setattr(released_training, "SAMPLES_SEEN", 4_000)


def small_setting(**changes: Any) -> Setting:
    facts: dict[str, Any] = {
        "dataset": "digits",
        "train_size": 80,
        "units": 4,
        "tol": 1e-8,
        "momentum": 0.9,
    }
    return Setting(**facts | changes)


def test_the_released_check_is_repeated_in_both_orders() -> None:
    """To the digits of the comment in the released code."""
    (by_rows,), (by_columns,) = fold.folded("C"), fold.folded("F")
    assert by_rows["norm"] == pytest.approx(by_rows["by_definition"], rel=1e-12)
    assert round(by_rows["norm"], 4) == 168.4071
    assert round(by_columns["norm"], 4) == 168.4024


SMALL_CELL: dict[str, Any] = {
    "dataset": "digits",
    "train_size": 80,
    "units": 4,
    "hyperplanes": 1,
    "threshold": "median",
    "seed": 1,
}


@pytest.mark.usefixtures("short")
def test_a_cell_has_the_models_of_the_released_code() -> None:
    rows = {row["model"]: row for row in gln_cell(**SMALL_CELL, momentum=0.0)}
    further = ["svm-gln-published", "svm-l2-published", "svm-l2-formula"]
    assert list(rows) == ["gd-gln", "svm-gln", "svm-l2", "gd-gln-redrawn", *further]
    assert all(rows[name]["status"] == "optimal" for name in ("svm-gln", "svm-l2", *further))
    assert rows["svm-gln-published"]["norm"] != pytest.approx(rows["svm-gln"]["norm"], rel=1e-3)


@pytest.mark.usefixtures("short")
def test_disagreements_of_a_row_are_those_of_the_models() -> None:
    """By the predictions themselves."""
    setting = small_setting(models=("gd-gln", "svm-gln", "svm-l2"))
    rows = {row["model"]: row for row in measured(setting)}
    models = Models(setting)
    images = models.data.parts.validation
    fitted = dict(models.fit())
    predicted = {name: model.predict(images.X) for name, model in fitted.items()}
    row, l2 = rows["svm-l2"], predicted["svm-l2"]
    assert row["error"] == np.mean(l2 != images.y)
    assert row["from_network"] == np.mean(l2 != predicted["gd-gln"])
    assert row["from_svm_gln"] == np.mean(l2 != predicted["svm-gln"])
    assert math.isnan(row["from_redrawn"])


@pytest.mark.usefixtures("short")
def test_a_moved_network_keeps_its_weights_but_not_its_contexts() -> None:
    """Outputs written out: row h C + c of the contexts it is moved to, and the readout's bias."""
    setting = small_setting(models=("gd-gln",), hyperplanes=2)
    models = Models(setting)
    X = models.data.parts.validation.X
    (network,) = (model for _, model in models.fit())
    assert isinstance(network, GLNClassifier)
    moved = as_published.moved_to_drawn(models, network)
    drawn = draws.draw_contexts(
        models.data.parts.train.X,
        4,
        2,
        threshold="random",
        reference=models.data.everything.X,
        seed=setting.seed,
    )
    coef = network.network_.coef().reshape(4, 4, -1)
    chosen = drawn.contexts(X)
    assert (chosen != models.contexts.contexts(X)).any()
    expected = sum(np.einsum("nd,nd->n", X, coef[h, chosen[:, h]]) for h in range(4))
    expected += network.network_.readout_bias_value
    np.testing.assert_allclose(moved.decision_function(X), expected, rtol=1e-5, atol=1e-5)


# --- comparisons -------------------------------------------------------------------------------


def test_released_values_are_read_from_their_archive(tmp_path: Path) -> None:
    """The last accuracy of a network, both values of an SVM, and a failure."""
    files = {
        "deep_gln/shd_1-ld_10-cs_2-mom_0.9-ts_500-mi_True/metrics.csv": (
            "val_acc,epoch\n0.5,0\n,1\n0.8,1\n,2\n"
        ),
        "deep_gln_cp/shd_2-ld_20-cs_3-ts_1000-mi_False-constraints_architecture/accs.csv": (
            ",type,acc\n0,train,1.0\n1,val,0.75\n2,comparison,0.7\n"
        ),
        "relu_net/hd_10-is_1-mom_0.0-ts_500/learned_contexts/accs.csv": (
            ",type,acc\n0,train,\n1,val,\n2,comparison,\n"
        ),
    }
    archive = tmp_path / "archive.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for name, text in files.items():
            file.writestr(f"implicit-bias-glns-1/data/{name}", text)
    table = released.read_archive(archive).set_index("model")
    assert set(table.index) == {"GD-GLN", "SVM-L2", "SVM-LC"}
    network, l2 = table.loc["GD-GLN"], table.loc["SVM-L2"]
    assert network["error"] == pytest.approx(0.2)
    assert (network["units"], network["seed"], network["momentum"]) == (10, 2, 0.9)
    assert (l2["hyperplanes"], l2["threshold"], l2["train_size"]) == (2, "random", 1000)
    assert (l2["error"], l2["from_network"]) == pytest.approx((0.25, 0.3))
    assert table["momentum"].isna().to_dict() == {"GD-GLN": False, "SVM-L2": True, "SVM-LC": False}
    assert table["error"].isna().to_dict() == {"GD-GLN": False, "SVM-L2": False, "SVM-LC": True}


# --- the real thing ----------------------------------------------------------------------------


@pytest.mark.slow
@needs_mnist
def test_a_published_cell_has_the_released_values() -> None:
    """The SVMs of the released program, to the digit."""
    cell = SMALL_CELL | {"dataset": "mnist", "train_size": 500, "units": 10}
    errors = pd.DataFrame(gln_cell(**cell, momentum=0.0)).set_index("model")["error"]
    assert errors["svm-gln-published"] == pytest.approx(1 - 0.84975, abs=1e-6)
    assert errors["svm-gln"] == pytest.approx(1 - 0.849583, abs=1e-6)


@pytest.mark.slow
@needs_mnist
@pytest.mark.parametrize(
    ("options", "accuracies"),
    [
        ("--units 20 --hyperplanes 2 --threshold random --seed 2", [0.83275, 0.83925]),
        ("--units 10 --momentum 0.9", [0.8365, 0.849583]),
    ],
)
def test_released_cells(options: str, accuracies: list[float]) -> None:
    """`--seed`, `--threshold` and `--momentum` as released, and what they are if not given.

    The network's accuracies are the released ones, and the SVM's with thresholds at medians.
    """
    words = f"lippl2022 cell --train-size 500 --hyperplanes 1 {options} --model gd-gln"
    with redirect_stdout(StringIO()) as output:
        assert main([*words.split(), "--model", "svm-gln", "--json"]) == 0
    rows = json.loads(output.getvalue())["models"]
    assert [row["model"] for row in rows] == ["gd-gln", "svm-gln"]
    check_released([1 - row["error"] for row in rows], accuracies, DIGIT)
