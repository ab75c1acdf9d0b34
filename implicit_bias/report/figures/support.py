"""Support vectors as images."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from implicit_bias.base.style import image_grid, short_label
from implicit_bias.comparison import Comparison, ModelResult
from implicit_bias.datasets.dataset import Dataset
from implicit_bias.report.figures.base import Plot, with_words
from implicit_bias.report.words import class_as_sign


def support_plots(comparison: Comparison, train: Dataset, *, most: int = 8) -> Iterator[Plot]:
    """Show the support vectors of largest alpha of each SVM as images, ``most`` of them."""
    if train.image_shape is None:
        return
    height, width = train.image_shape
    pixels = train.X[:, : height * width]
    images = pixels.reshape(-1, height, width)  # row-major, as a row of X is
    limits = (float(pixels.min()), float(pixels.max()))
    number = 0
    for model in comparison.models:
        support = support_vectors(model, len(train))
        if model.fitted is None or model.fitted.solution is None or len(support) == 0:
            continue
        # Files are numbered by the figures that there are, not by models, whose names may be no
        # file names.
        number += 1
        # Of many classes a sample has one alpha for each rival, which count together.
        alpha = model.fitted.solution.alpha
        alpha = alpha.reshape(len(alpha), -1).sum(axis=1)
        largest = support[np.argsort(-alpha[support], kind="stable")][:most]
        tiles = []
        for n in largest:
            if train.classes is None:
                label = class_as_sign(train.y[n])
            else:
                label = short_label(train.names[int(train.y[n])])
            tiles.append((f"{label}   α {alpha[n]:.2g}", images[n]))
        yield with_words(
            f"support-{number}",
            image_grid(model.name, tiles, colours="gray_r", limits=limits),
            "support",
            raster=True,
            model=model.name,
            shown=len(largest),
            support_vectors=len(support),
        )


def support_vectors(model: ModelResult, n_train: int) -> NDArray[np.int64]:
    """Return the support vectors of a model, as indices of ``n_train`` training samples.

    There are none for a network, nor if the number of samples says that others are shown.
    """
    none = np.empty(0, dtype=np.int64)
    if model.fitted is None or model.fitted.solution is None:
        return none
    # Other samples are shown than the training samples, whose indices mean nothing for them.
    if len(model.fitted.solution.alpha) != n_train:
        return none
    return model.fitted.support
