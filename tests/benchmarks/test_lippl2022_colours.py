"""Colours of one panel stay apart for readers who are colour-blind, by simulation."""

from io import BytesIO
from itertools import combinations

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from PIL import Image

from benchmarks.drawing import of_few_colours
from benchmarks.lippl2022 import figures
from implicit_bias.base.validation import Array

# Complete protanopia, deuteranopia and tritanopia in linear RGB: Machado, Oliveira, Fernandes 2009.
BLINDNESS = {
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
WHITE = TO_XYZ @ np.ones(3)
# CIE 1976: about 2.3 is just noticeable; markers of 4 points need several times that.
APART = 10.0
PANELS = {
    "GLN": [figures.COLOURS[name] for name in figures.GLN],
    "ReLU": [figures.COLOURS[name] for name in (*figures.RELU, "SVM-GLN")],
    "figure 2c": [figures.COLOURS[name] for name in (*figures.GLN, *figures.SHALLOW)],
    "shallow": [figures.COLOURS[name] for name in figures.SHALLOW],
    "causes": [colour for _, colour, _, _ in figures.PROGRAMS.values()],
    "beyond": [colour for _, colour, _ in figures.SOLVED.values()],
}


def lab(colour: str, blindness: str | None) -> Array:
    """CIELAB of an sRGB colour as it is seen."""
    srgb = np.array(to_rgb(colour))
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    if blindness is not None:
        linear = np.clip(np.array(BLINDNESS[blindness]) @ linear, 0, 1)
    ratio = TO_XYZ @ linear / WHITE
    f = np.where(ratio > (6 / 29) ** 3, np.cbrt(ratio), ratio / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def test_lab_of_known_colours() -> None:
    np.testing.assert_allclose(lab("#ffffff", None), [100, 0, 0], atol=0.01)
    np.testing.assert_allclose(lab("#ff0000", None), [53.2, 80.1, 67.2], atol=0.2)
    # Grey has no hue to lose.
    grey = lab("#808080", None)
    for blindness in BLINDNESS:
        np.testing.assert_allclose(lab("#808080", blindness), grey, atol=0.1)


@pytest.mark.parametrize("panel", PANELS)
@pytest.mark.parametrize("blindness", [None, *BLINDNESS])
def test_colours_of_a_panel_stay_apart(panel: str, blindness: str | None) -> None:
    seen = [lab(colour, blindness) for colour in PANELS[panel]]
    nearest = min(float(np.linalg.norm(a - b)) for a, b in combinations(seen, 2))
    assert nearest > APART


def test_pictures_keep_the_colours_of_small_marks() -> None:
    """A picture of few colours must not mix those of markers that are a few pixels large."""
    figure = Figure(figsize=(4, 3))
    ax = figure.subplots()
    for i, colour in enumerate(PANELS["figure 2c"]):
        ax.plot([i], [i], "o", color=colour, ms=figures.DOT)
        ax.plot(range(60), np.linspace(0, i, 60), color=str(0.1 + 0.15 * i), linewidth=0.5)
    drawn = Image.open(BytesIO(of_few_colours(figure, 100))).convert("RGB")
    pixels = {tuple(int(value) for value in pixel) for pixel in np.array(drawn).reshape(-1, 3)}
    for colour in PANELS["figure 2c"]:
        wanted = 255 * np.array(to_rgb(colour))
        assert min(float(np.abs(wanted - np.array(pixel)).max()) for pixel in pixels) <= 12


def test_red_and_green_would_not() -> None:
    """The check can fail: a red and a green of one lightness, as deuteranopes see them."""
    pair = [lab(colour, "deuteranopia") for colour in ("#c05050", "#808020")]
    assert float(np.linalg.norm(pair[0] - pair[1])) < 2 * APART
