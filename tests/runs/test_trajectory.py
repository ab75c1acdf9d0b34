"""SVM-LC along a training: against the same numbers from the parts."""

from pathlib import Path

import pandas as pd
import pytest

from implicit_bias import GatedReLUSVC, ReLUClassifier
from implicit_bias.report.page import write_trajectory
from implicit_bias.runs.configuration import RunConfig
from implicit_bias.runs.data import Data, load_data
from implicit_bias.runs.models import ModelFactory
from implicit_bias.runs.trajectory import TrajectoryPoint, context_trajectory

CONFIG = RunConfig(train_size=150, units=12, steps=300)


@pytest.fixture(scope="module")
def data() -> Data:
    return load_data(CONFIG)


@pytest.fixture(scope="module")
def points(data: Data) -> list[TrajectoryPoint]:
    return list(context_trajectory(CONFIG, data, (0, 10, 300, 9999)))


@pytest.mark.parametrize("progress", [False, True])
def test_models_of_a_configuration_are_silent_unless_asked(
    progress: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    config = RunConfig(train_size=40, units=4, steps=5, models=("gd-gln", "gd-relu"))
    fitted = dict(ModelFactory(config, load_data(config), progress=progress).fit())
    assert list(fitted) == ["gd-gln", "gd-relu"]
    out, errors = capsys.readouterr()
    assert out == ""
    assert errors.count("training") == 2 * progress


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


def test_table_and_picture(points: list[TrajectoryPoint], tmp_path: Path) -> None:
    frame = pd.DataFrame([vars(point) for point in points])
    picture = write_trajectory(tmp_path, frame)
    assert picture.read_bytes().startswith(b"\x89PNG")
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "trajectory.parquet"), frame)
    assert len(pd.read_csv(tmp_path / "trajectory.csv")) == 3
