"""The figure of a training towards its limit has the numbers of its history."""

from pathlib import Path

import numpy as np

from implicit_bias.training.figures import draw_limit, write_limit
from implicit_bias.training.limit import LimitConfig, train_to_limit
from training.samples import X, Y, gln


def test_a_training_towards_the_limit_is_drawn(tmp_path: Path) -> None:
    result = train_to_limit(gln(), X, Y, LimitConfig(steps=300), optimum=1e-3)
    margins, distance = draw_limit(result).axes
    frame = result.frame()
    frame = frame[frame["step"] > 0]
    margin, bound = margins.get_lines()
    np.testing.assert_array_equal(margin.get_xdata(), frame["step"])
    np.testing.assert_array_equal(margin.get_ydata(), frame["normalised_margin"])
    np.testing.assert_allclose(np.asarray(bound.get_ydata()), 1 / 1e-3)
    (line,) = distance.get_lines()
    separated = frame[np.isfinite(frame["excess"])]
    np.testing.assert_array_equal(line.get_ydata(), separated["excess"])
    assert (distance.get_xscale(), distance.get_yscale()) == ("log", "log")
    file = write_limit(tmp_path / "sub" / "net.png", result)
    assert file.read_bytes().startswith(b"\x89PNG")
