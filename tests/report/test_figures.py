"""Figures: the numbers that they show, and axes that can be read."""

from dataclasses import replace

import numpy as np
import pytest

from implicit_bias.networks import Network
from implicit_bias.report.figures.base import looks
from implicit_bias.report.figures.limit import decay_exponent, limit_plots
from implicit_bias.report.figures.training import training_plots
from implicit_bias.report.style import logarithmic, panel, style
from implicit_bias.training.limit import LimitConfig, LimitResult, train_to_limit
from report.written import Report
from training.samples import X, Y, gln


@pytest.mark.parametrize("high", [1.001, 1.3, 9.0, 99.0, 1e4])
@pytest.mark.parametrize("low", [1.1, 6.0])
def test_a_log_axis_has_three_numbers(low: float, high: float) -> None:
    figure, ax = panel()
    ax.plot([0.0, 1.0], [low, low * high])
    logarithmic(ax, x=False)
    figure.draw_without_rendering()
    bottom, top = ax.get_ylim()
    shown = {f"{tick:g}" for tick in ax.get_yticks() if bottom <= tick <= top}
    assert 3 <= len(shown) <= 9
    assert ax.get_xscale() == "linear"


def test_the_excess_is_drawn_of_the_points_that_separate(plane: Report) -> None:
    network = plane.comparison.model("GD-GLN")
    with style():
        (plot,) = training_plots(plane.comparison, looks(plane.comparison))
        plot.figure.draw_without_rendering()  # a layout that collapses warns
    (line,) = plot.figure.axes[0].get_lines()
    expected = [
        point.norm / point.min_margin / network.known_margin.optimum - 1
        if point.min_margin > 0
        else np.nan
        for point in network.history
    ]
    np.testing.assert_allclose(np.asarray(line.get_ydata()), expected)


@pytest.mark.parametrize("norm", [0.0, 1e-300])
def test_an_excess_that_no_logarithm_has_ends_within_its_picture(
    plane: Report, norm: float
) -> None:
    """As of a network whose norm is below the optimum, by rounding."""
    network, *others = plane.comparison.models
    *history, last = network.history
    changed = replace(network, history=(*history, replace(last, norm=norm)))
    comparison = replace(plane.comparison, models=(changed, *others))
    with style():
        (plot,) = training_plots(comparison, looks(comparison))
        plot.figure.draw_without_rendering()
    assert float(plot.figure.axes[0].texts[0].get_position()[1]) == 0.0


@pytest.fixture(scope="module")
def result() -> LimitResult:
    config = LimitConfig(steps=300)

    def measure(network: Network) -> dict[str, float]:
        return {"own": 1.0 / network.norm()}

    return train_to_limit(gln(), X, Y, config, optimum=1e-3, measure=measure)


def test_exponent_of_the_tail() -> None:
    steps = np.geomspace(1, 1000, 31)
    values = np.where(steps < 99, 7.0, 3.0 * steps**-1.5)
    assert decay_exponent(steps.tolist(), values.tolist()) == pytest.approx(-1.5)
    gaps = np.where(np.arange(31) % 3, values, 0.0)
    assert decay_exponent(steps.tolist(), gaps.tolist()) == pytest.approx(-1.5)
    assert np.isnan(decay_exponent([], []))
    assert np.isnan(decay_exponent([1, 2, 3], [0.0, np.inf, 1.0]))


@pytest.mark.slow
def test_plots(result: LimitResult) -> None:
    names = ("excess", "disagreement", "min_margin", "own")
    with style():
        plots = list(limit_plots("net", result, names))
    # Without a reference there is no disagreement.
    assert [plot.name for plot in plots] == ["excess", "min-margin", "own"]
    frame = result.frame()
    for plot, column in zip(plots, ("excess", "min_margin", "own"), strict=True):
        (ax,) = plot.figure.axes
        assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
        plot.figure.draw_without_rendering()
        ticks = [*ax.get_xticklabels(), *ax.get_yticklabels()]
        texts = [tick.get_text().replace("\N{MINUS SIGN}", "-") for tick in ticks]
        assert all(float(text or 1) > 0 for text in texts)  # plain numbers
        (line,) = ax.get_lines()
        shown = frame[(frame["step"] > 0) & (frame[column] > 0) & np.isfinite(frame[column])]
        np.testing.assert_array_equal(line.get_xdata(), shown["step"])
        np.testing.assert_array_equal(line.get_ydata(), shown[column])
        rate = decay_exponent(frame["step"].tolist(), frame[column].tolist())
        assert line.get_label() == f"net, ~ steps^{rate:.2g}"


def test_a_history_without_positive_steps(result: LimitResult) -> None:
    start = replace(result, history=result.history[:1])
    assert not list(limit_plots("start", start, ["norm"]))
