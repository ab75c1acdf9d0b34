"""Support vectors as images."""

from collections.abc import Iterator, Sequence

import numpy as np
from matplotlib.figure import Figure

from implicit_bias.base.validation import Array
from implicit_bias.report.figures.base import Plot, Subject, short_label
from implicit_bias.report.style import GREY, WIDTH
from implicit_bias.report.words import signed

# Most support vectors shown as images.
MAX_SUPPORT = 8
# Images in a row.
IMAGES_A_ROW = 4


def support_plots(subject: Subject) -> Iterator[Plot]:
    """Show the support vectors of largest alpha as images."""
    train = subject.train
    if train.image_shape is None:
        return
    height, width = train.image_shape
    pixels = train.X[:, : height * width]
    images = pixels.reshape(-1, height, width)
    limits = (float(pixels.min()), float(pixels.max()))
    number = 0
    for model in subject.comparison.models:
        support = subject.support(model.name)
        if model.fitted is None or model.fitted.solution is None or len(support) == 0:
            continue
        number += 1
        # Of many classes a sample has one alpha for each rival, which count together.
        alpha = model.fitted.solution.alpha
        alpha = alpha.reshape(len(alpha), -1).sum(axis=1)
        largest = support[np.argsort(-alpha[support], kind="stable")][:MAX_SUPPORT]
        tiles = []
        for n in largest:
            label = train.y[n]
            name = signed(label) if train.classes is None else short_label(train.names[int(label)])
            tiles.append((f"{name}   α {alpha[n]:.2g}", images[n]))
        yield Plot(
            f"support-{number}",
            image_grid(model.name, tiles, IMAGES_A_ROW, "gray_r", limits),
            f"Images of the support vectors of {model.name} with the largest alpha",
            f"{model.name}: {len(largest)} of its {len(support)} support vectors, with label and "
            "alpha.",
            raster=True,
        )


def image_grid(
    title: str,
    tiles: Sequence[tuple[str, Array]],
    n_columns: int,
    colours: str,
    limits: tuple[float, float],
) -> Figure:
    """Draw images in rows of ``n_columns``, each under its own title."""
    n_columns = max(1, min(n_columns, len(tiles)))
    n_rows = max(1, -(-len(tiles) // n_columns))
    side = min(WIDTH / n_columns, WIDTH / 2.6)
    figure = Figure(figsize=(WIDTH, 0.4 + n_rows * (side + 0.2)), layout="constrained")
    figure.suptitle(short_label(title), fontsize=10, fontweight="bold")
    panels = figure.subplots(n_rows, n_columns, squeeze=False).ravel()
    for ax in panels[len(tiles) :]:
        ax.set_axis_off()
    for ax, (name, image) in zip(panels, tiles, strict=False):
        ax.imshow(image, cmap=colours, vmin=limits[0], vmax=limits[1], interpolation="nearest")
        ax.set_title(name, fontsize=8.5, fontweight="normal", pad=3)
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set(visible=True, color=GREY)
    return figure
