"""Strips of digits, whose parity is the label.

Source: Daniely and Malach (2020), section 6.
"""

from __future__ import annotations

import numpy as np

from implicit_bias.datasets.dataset import Dataset


def strips(images: Dataset, n_digits: int, n_samples: int, *, random_state: int = 0) -> Dataset:
    """Draw strips of images side by side, labelled with the product of the images' labels.

    With even digits labelled +1 and odd ones -1, +1 says that the digits of a strip have an even
    sum: the parity task of section 5 of the source, in which every digit is a bit.

    Parameters
    ----------
    images : Dataset
        Images without constant; drawn with replacement.
    n_digits : int
        Images in a strip.
    n_samples : int
        Strips.
    random_state : int
        Seed of the draws.

    Returns
    -------
    Dataset
        Images of shape (height, n_digits * width), with the constant appended.

    Raises
    ------
    ValueError
        No images, images with a constant, or less than one digit.
    """
    if images.image_shape is None or images.has_constant:
        raise ValueError(
            f"{images.name} is no set of plain images: load it with append_constant=False"
        )
    if n_digits < 1:
        raise ValueError(f"n_digits must be at least 1, got {n_digits}")
    height, width = images.image_shape
    drawn = np.random.default_rng(random_state).integers(len(images), size=(n_samples, n_digits))
    # C order throughout: (sample, digit, row, column) to (sample, row, digit and column).
    pixels = images.X[drawn].reshape(n_samples, n_digits, height, width).swapaxes(1, 2)
    return Dataset(
        f"{images.name}, strips of {n_digits}",
        np.column_stack([pixels.reshape(n_samples, -1), np.ones(n_samples)]),
        images.y[drawn].prod(axis=1),
        ("odd sum", "even sum"),
        image_shape=(height, n_digits * width),
    )
