"""Strips of digits, whose parity is the label.

Source: Daniely and Malach (2020), section 6.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from implicit_bias.base.validation import Array
from implicit_bias.datasets.dataset import Dataset


@dataclass(frozen=True, eq=False)
class DigitStrips:
    """Strips of k images side by side, put together when they are asked for.

    At full resolution 60,000 strips of three digits are more than half a gigabyte; their images
    are a third of that.

    Attributes
    ----------
    pixels : Tensor of shape (images, height, width)
        Of the images, float32 in [0, 1].
    drawn : Tensor of shape (m, k)
        Images of each strip, from left to right.
    labels : Tensor of shape (m,)
        +1 where the sum of the digits is even, else -1.
    """

    pixels: Tensor
    drawn: Tensor
    labels: Tensor

    def inputs(self, rows: Tensor) -> Tensor:
        """Return strips (rows, height * k * width), each an image in C order."""
        # C order throughout: (strip, digit, row, column) to (strip, row, digit and column).
        return self.pixels[self.drawn[rows]].swapaxes(1, 2).flatten(1)

    def picture(self, row: int) -> Array:
        """Return one strip, shape (height, k * width)."""
        height = self.pixels.shape[1]
        strip: Array = self.inputs(torch.tensor([row])).reshape(height, -1).double().numpy()
        return strip


def draw_strips(images: Dataset, n_digits: int, n_strips: int, *, seed: int = 0) -> DigitStrips:
    """Draw strips of images, each uniformly and with replacement.

    The label is the product of the images' labels. With even digits labelled +1 and odd ones -1,
    +1 says that the digits of a strip have an even sum.

    Parameters
    ----------
    images : Dataset
        Images in [-1, 1], without constant.
    n_digits : int
        k, the images in a strip.
    n_strips : int
        Strips.
    seed : int
        Seed of the draws.
    """
    assert images.image_shape is not None
    drawn: NDArray[np.int64] = np.random.default_rng(seed).integers(
        len(images), size=(n_strips, n_digits)
    )
    ink = ((images.X + 1.0) / 2.0).astype(np.float32)
    return DigitStrips(
        torch.from_numpy(ink.reshape(len(images), *images.image_shape)),  # C order
        torch.from_numpy(drawn),
        torch.from_numpy(images.y[drawn].prod(axis=1).astype(np.float32)),
    )
