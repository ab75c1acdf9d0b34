"""What pictures of several studies share."""

from io import BytesIO

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from PIL import Image

from benchmarks.drawing import of_few_colours
from implicit_bias.report.style import BLUE, GREEN, ORANGE, SKY, VERMILION


def test_pictures_keep_the_colours_of_small_marks() -> None:
    """A picture of few colours must not mix those of markers that are a few pixels large."""
    wanted = [BLUE, VERMILION, GREEN, SKY, ORANGE]
    figure = Figure(figsize=(4, 3))
    ax = figure.subplots()
    for i, colour in enumerate(wanted):
        ax.plot([i], [i], "o", color=colour, ms=4.5)
        ax.plot(range(60), np.linspace(0, i, 60), color=str(0.1 + 0.15 * i), linewidth=0.5)
    drawn = np.array(Image.open(BytesIO(of_few_colours(figure, 100))).convert("RGB"))
    for colour in wanted:
        assert np.abs(drawn - 255 * np.array(to_rgb(colour))).max(axis=2).min() <= 12
