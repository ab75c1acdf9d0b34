"""The models of a configuration."""

import pytest

from implicit_bias.runs.configuration import RunConfig
from implicit_bias.runs.data import load_data
from implicit_bias.runs.models import ModelFactory


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
