"""Figures: the numbers that they show, and axes that can be read."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from comparison.samples import TRAIN, compared, fitted_models
from example_modules import known
from implicit_bias.base.counts import Count
from implicit_bias.base.style import BLACK, BLUE, VERMILION, Look, panel, style
from implicit_bias.comparison import ModelResult
from implicit_bias.datasets import Dataset
from implicit_bias.report.figures import (
    draw_errors,
    draw_regions,
    looks,
    margin_plots,
    plane_plots,
    support_plots,
    support_vectors,
    training_plots,
)

LOOK = Look(BLUE, "-", "o")


def drawn(ax: Axes, colour: str) -> list[list[list[float]]]:
    """Return the points of each line of a colour."""
    lines = [line for line in ax.get_lines() if line.get_color() == colour]
    return [np.asarray(line.get_xydata()).tolist() for line in lines]


def bars(ax: Axes) -> list[Rectangle]:
    """Return the bars of a histogram."""
    return [patch for patch in ax.patches if isinstance(patch, Rectangle)]


def test_errors_are_drawn_with_their_intervals() -> None:
    wrong = np.arange(100) < 12
    one = ModelResult("one", None, None, wrong=wrong, train_wrong=Count(3, 50))
    none = ModelResult("none", None, None, wrong=~wrong)
    _, ax = panel()
    draw_errors(ax, [none, one], {"one": LOOK, "none": replace(LOOK, colour=VERMILION)})
    low, high = one.count.interval
    interval, error, train_error = drawn(ax, BLUE)
    assert interval == [[100 * low, 1.0], [100 * high, 1.0]]
    assert error == [[12.0, 1.0]]
    assert train_error == [[6.0, 1.25]]
    assert drawn(ax, VERMILION)[1:] == [[[88.0, 0.0]]]  # without training samples
    assert [label.get_text() for label in ax.get_yticklabels()] == ["none", "one"]
    bottom, top = ax.get_ylim()
    assert bottom > 1 > 0 > top  # the first row is on top


def test_margins_of_one_problem_have_common_axes() -> None:
    plots = list(margin_plots(compared(), looks(compared())))
    names = ["svm", "network", "l2"]  # by problem
    assert [plot.figure.axes[0].get_title() for plot in plots] == names
    heights = []
    for name, plot in zip(names, plots, strict=True):
        margin = compared().model(name).known_margin
        (ax,) = plot.figure.axes
        heights.append([patch.get_height() for patch in bars(ax)])
        assert sum(heights[-1]) == len(margin.margins)
        assert drawn(ax, BLACK)[0][0][0] == margin.largest_margin
        # Zero is an edge: no bin has both correct and misclassified samples.
        assert 0 in np.round([patch.get_x() for patch in bars(ax)], 12)
    tops = [plot.figure.axes[0].get_ylim()[1] for plot in plots]
    assert tops[0] == tops[1] == pytest.approx(1.05 * max(heights[0] + heights[1]))
    # All support vectors of an SVM are in the bin that begins at the maximum margin.
    svm = compared().model("svm").known_margin
    starts = [patch.get_x() for patch in bars(plots[0].figure.axes[0])]
    first = int(np.flatnonzero(heights[0])[0])
    assert starts[first] == pytest.approx(svm.largest_margin, rel=1e-3)
    assert heights[0][first] >= known(svm.support_vectors)


def test_regions_are_the_predicted_classes() -> None:
    x = np.linspace(0.0, 1.0, 4)
    y = np.linspace(5.0, 7.0, 3)
    classes = np.array([[0, 0, 1, 1], [0, 0, 1, 1], [2, 2, 2, 2]])
    _, ax = panel()
    draw_regions(ax, x, y, classes, ["#000000", "#ff0000", "#0000ff"], tint=0.5)
    (image,) = ax.images
    shown = np.asarray(image.get_array())
    np.testing.assert_array_equal(shown, classes)
    assert [*image.get_extent()] == [0.0, 1.0, 5.0, 7.0]
    assert image.origin == "lower"
    assert image.to_rgba(shown)[0, 2].tolist() == [1.0, 0.5, 0.5, 1.0]  # half red, half white
    assert len(ax.collections) == 2  # the boundaries of 0 and 1, and of both and 2


def test_the_plane_has_the_predictions_of_each_model() -> None:
    data = Dataset("moons", TRAIN.X, TRAIN.y, ("down", "up"))
    (plot, *_) = plane_plots(compared(), data, n_grid=9)
    (ax,) = plot.figure.axes
    left, right, bottom, top = ax.images[0].get_extent()
    x, y = np.meshgrid(np.linspace(left, right, 9), np.linspace(bottom, top, 9))
    points = np.column_stack([x.ravel(), y.ravel(), np.ones(81)])
    predicted = fitted_models()["svm"].predict(points).reshape(9, 9)
    np.testing.assert_array_equal(np.asarray(ax.images[0].get_array()), predicted > 0)
    *_, down, up, rings = ax.collections
    support = fitted_models()["svm"].support_
    for marks, of in ((down, TRAIN.y < 0), (up, TRAIN.y > 0), (rings, support)):
        np.testing.assert_allclose(np.asarray(marks.get_offsets()), TRAIN.X[of, :2])


def test_support_vectors_are_shown_by_their_alpha() -> None:
    pixels = np.column_stack([TRAIN.X[:, :2], TRAIN.X[:, :2]])
    data = Dataset("pixels", pixels, TRAIN.y, ("-1", "+1"), (2, 2), has_constant=False)
    first, *_ = support_plots(compared(), data, most=3)
    alpha = fitted_models()["svm"].solution_.alpha
    largest = np.argsort(-alpha, kind="stable")[:3]
    shown = [np.asarray(ax.images[0].get_array()).ravel() for ax in first.figure.axes]
    np.testing.assert_array_equal(shown, pixels[largest])
    assert len(support_vectors(compared().model("svm"), len(TRAIN) + 1)) == 0  # other samples
    assert len(support_vectors(compared().model("network"), len(TRAIN))) == 0


def test_the_excess_is_drawn_of_the_points_that_separate() -> None:
    network = compared().model("network")
    with style():
        (plot,) = training_plots(compared(), looks(compared()))
        plot.figure.draw_without_rendering()  # a layout that collapses warns
    (line,) = plot.figure.axes[0].get_lines()
    expected = [
        point.norm / point.min_margin / network.known_margin.optimum - 1
        if point.min_margin > 0
        else np.nan
        for point in network.history
    ]
    np.testing.assert_allclose(np.asarray(line.get_ydata()) / 100, expected)
