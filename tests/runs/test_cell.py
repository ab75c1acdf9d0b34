"""One cell: its row, its warnings, what stops it, and tables of many."""

from collections.abc import Iterator
from dataclasses import fields

import numpy as np
import pandas as pd
import pytest

from implicit_bias.estimators.base import BinaryClassifier
from implicit_bias.runs.cell import compute, tables
from implicit_bias.runs.configuration import RunConfig
from implicit_bias.runs.models import ModelFactory


def test_a_cell_has_results_of_models_and_pairs() -> None:
    config = RunConfig(train_size=60, units=3, steps=20, models=("gd-gln", "svm-gln", "svm-l2"))
    cell = compute(config)
    network, svm, _ = cell["results"]
    assert [row["model"] for row in cell["results"]] == list(config.models)
    assert (cell["units"], cell["models"]) == (3, "gd-gln,svm-gln,svm-l2")
    assert len(cell["pairs"]) == 3
    assert svm["status"] == "optimal"
    assert svm["lower"] <= svm["upper"] <= svm["lower"] * (1 + config.tol)
    assert network["optimum"] == svm["lower"]
    assert 0 < sum(row["seconds"] for row in cell["results"]) <= cell["seconds"]
    # Else a table of models beside their configuration would have a column twice.
    columns = {name for row in cell["results"] for name in row}
    assert not columns & {field.name for field in fields(RunConfig)}


def test_a_table_has_a_row_a_model_beside_the_setting_of_its_cell() -> None:
    cells = [
        {"units": units, "results": [{"model": name} for name in "ab"], "pairs": [{"kappa": 0.5}]}
        for units in (3, 4)
    ]
    found = tables(pd.DataFrame(cells))
    expected = pd.DataFrame({"units": [3, 3, 4, 4], "model": ["a", "b", "a", "b"]})
    pd.testing.assert_frame_equal(found["models"], expected)
    pd.testing.assert_frame_equal(
        found["pairs"], pd.DataFrame({"units": [3, 4], "kappa": [0.5, 0.5]})
    )


def test_warnings_are_part_of_the_row() -> None:
    cell = compute(RunConfig(dataset="xor", train_size=40, models=("svm-linear",)))
    assert "not separable" in cell["warnings"]
    assert cell["results"][0]["norm"] == np.inf


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_errors_are_for_the_caller(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(factory: ModelFactory) -> Iterator[tuple[str, BinaryClassifier]]:
        raise error("stopped")

    monkeypatch.setattr(ModelFactory, "fit", stop)
    with pytest.raises(error, match="stopped"):
        compute(RunConfig(train_size=40, models=("svm-linear",)))
