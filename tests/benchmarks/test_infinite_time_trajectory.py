"""SVM-LC along a training: against the same numbers from the parts."""

import numpy as np
import pandas as pd
import pytest

from benchmarks.infinite_time.trajectory import (
    TrajectoryPoint,
    context_trajectory,
    trajectory_figure,
)
from implicit_bias import GatedReLUSVC, ReLUClassifier
from implicit_bias.runs.configuration import RunConfig
from implicit_bias.runs.data import Data, load_data
from implicit_bias.runs.models import ModelFactory

CONFIG = RunConfig(train_size=150, units=12, steps=300)


@pytest.fixture(scope="module")
def data() -> Data:
    return load_data(CONFIG)


@pytest.fixture(scope="module")
def points(data: Data) -> list[TrajectoryPoint]:
    return list(context_trajectory(CONFIG, data, (0, 10, 300, 9999)))


@pytest.mark.slow
def test_points_are_the_parts_numbers(points: list[TrajectoryPoint], data: Data) -> None:
    assert [point.step for point in points] == [0, 10, 300]
    assert points[0].gates_changed == 0.0
    assert points[0].gates_left == points[-1].gates_changed > 0.0
    assert points[-1].gates_left == 0.0
    train, validation = data.parts.train, data.parts.validation
    trained = ModelFactory(CONFIG, data).build("gd-relu").fit(train.X, train.y)
    assert isinstance(trained, ReLUClassifier)
    last = points[-1]
    assert last.disagreement == last.disagreement_at_end
    assert last.network_error == pytest.approx(1 - trained.score(validation.X, validation.y))
    svm = GatedReLUSVC(gates=trained).fit(train.X, train.y)
    assert last.dropped == 0
    assert last.error == pytest.approx(1 - svm.score(validation.X, validation.y))
    assert last.optimum == pytest.approx(svm.solution_.certificate.lower)


@pytest.mark.slow
def test_picture(points: list[TrajectoryPoint]) -> None:
    figure = trajectory_figure(pd.DataFrame([vars(point) for point in points]))
    errors, _, norm = figure.axes
    _, of_svm = errors.get_lines()
    np.testing.assert_array_equal(
        np.asarray(of_svm.get_ydata()), [100 * point.error for point in points]
    )
    (optima,) = norm.get_lines()
    np.testing.assert_array_equal(
        np.asarray(optima.get_ydata()), [point.optimum for point in points]
    )
