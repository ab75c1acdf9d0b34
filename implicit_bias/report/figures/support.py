"""Support vectors as images."""

from collections.abc import Iterator, Sequence

import numpy as np
from matplotlib.figure import Figure

from implicit_bias.base.validation import Array
from implicit_bias.report.figures.base import Plot, Subject, short_label
from implicit_bias.report.style import GREY, WIDTH
from implicit_bias.report.words import signed

# Most support vectors shown as images, and how many of them in a row.
MAX_SUPPORT, IMAGES_A_ROW = 8, 4


def support_plots(subject: Subject) -> Iterator[Plot]:
    """Show the support vectors of largest alpha as images."""
    train = subject.train
    if train.image_shape is None:
        return
    height, width = train.image_shape
    pixels = train.X[:, : height * width]
    images, limits = pixels.reshape(-1, height, width), (float(pixels.min()), float(pixels.max()))
    solved = [name for name in subject.fitted if len(subject.support(name))]
    for i, name in enumerate(solved, 1):
        support, solution = subject.support(name), subject.fitted[name].solution
        assert solution is not None
        # Of many classes a sample has one alpha for each rival, which count together.
        alpha = solution.alpha.reshape(len(solution.alpha), -1).sum(axis=1)
        largest = support[np.argsort(-alpha[support], kind="stable")][:MAX_SUPPORT]
        written = [
            signed(label) if train.classes is None else short_label(train.names[int(label)])
            for label in train.y[largest]
        ]
        tiles = [
            (f"{label}   α {alpha[n]:.2g}", images[n])
            for label, n in zip(written, largest, strict=True)
        ]
        yield Plot(
            f"support-{i}",
            image_grid(name, tiles, IMAGES_A_ROW, "gray_r", limits),
            f"Images of the support vectors of {name} with the largest alpha",
            f"{name}: {len(largest)} of its {len(support)} support vectors, with label and alpha.",
            raster=True,
        )


def image_grid(
    title: str,
    tiles: Sequence[tuple[str, Array]],
    n_columns: int,
    colours: str,
    limits: tuple[float, float],
) -> Figure:
    """Images in rows of ``n_columns``, each under its own title."""
    n_columns = max(1, min(n_columns, len(tiles)))
    n_rows = max(1, -(-len(tiles) // n_columns))
    side = min(WIDTH / n_columns, WIDTH / 2.6)
    figure = Figure(figsize=(WIDTH, 0.4 + n_rows * (side + 0.2)), layout="constrained")
    figure.suptitle(short_label(title), fontsize=10, fontweight="bold")
    for ax in (grid := figure.subplots(n_rows, n_columns, squeeze=False)).flat:
        ax.set_axis_off()
    for ax, (name, image) in zip(grid.flat, tiles, strict=False):
        ax.imshow(image, cmap=colours, vmin=limits[0], vmax=limits[1], interpolation="nearest")
        ax.set_title(name, fontsize=8.5, fontweight="normal", pad=3)
        ax.set_axis_on()
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set(visible=True, color=GREY)
    return figure
