"""A data set, and the published split in training and validation samples.

Labels are -1 and +1, or 0 .. K - 1 for K > 2 classes. ``has_constant`` says that the last feature
is the constant 1, which stands in for the bias that no model of this package has.

Source: Lippl, Abbott, Chung (2022), section 4, and their published code.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from implicit_bias.base import validation
from implicit_bias.base.validation import Array


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set of two classes or more.

    Its arrays are read-only, and copies of those that can be written.

    Parameters
    ----------
    name : str
        Name for tables and plots.
    X : ndarray of float64, shape (n, D)
        Inputs, one sample a row, no unit (pixels are scaled to [-1, 1]).
    y : ndarray of shape (n,)
        Labels, -1 or +1 as float64; or 0 .. K - 1 as int64.
    class_names : tuple of str
        Names of the classes -1 and +1, in this order; or of K > 2 classes.
    image_shape : tuple of two int, optional
        Height and width in pixels, if a row of X (without the constant) is an image in C order.
    has_constant : bool
        Whether the last column of X is the constant 1.
    carried : mapping from name to ndarray of shape (n,)
        What is known of each sample and is no input: of a file the number of its row, from 1, and
        what names it.

    Raises
    ------
    ValueError
        Shapes that do not fit, values that are not finite, labels other than -1 and +1 or those of
        the named classes, no samples, or a last column that is not the constant it is said to be.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.5, 1.0], [-0.5, 1.0]])  # the last feature is the constant 1
    >>> Dataset("two", X, np.array([1.0, -1.0]), ("left", "right")).n_features
    2
    """

    name: str
    X: Array = field(repr=False)
    y: NDArray[Any] = field(repr=False)
    class_names: tuple[str, ...]
    image_shape: tuple[int, int] | None = None
    has_constant: bool = True
    carried: Mapping[str, NDArray[Any]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        X = validation.owned(validation.as_finite(self.X, "X", 2), self.X)
        labels, classes = validation.as_class_labels(self.y, len(X), self.classes)
        if classes != self.classes or len(self.class_names) < 2:
            raise ValueError(
                f"class_names has {len(self.class_names)} names, but y {classes or 2} classes: "
                "name each"
            )
        object.__setattr__(self, "X", X)
        object.__setattr__(self, "y", validation.owned(labels, self.y))
        if self.has_constant and (X.shape[1] == 0 or (X[:, -1] != 1.0).any()):
            raise ValueError(
                "the last column of X is not the constant 1: append it or pass has_constant=False"
            )
        n_inputs = self.n_features - self.has_constant
        if self.image_shape is not None and math.prod(self.image_shape) != n_inputs:
            raise ValueError(
                f"image_shape {self.image_shape} does not fit the {n_inputs} inputs of a sample"
            )

    def __len__(self) -> int:
        return len(self.y)

    @property
    def classes(self) -> int | None:
        """K, of more than two classes; None of two."""
        if len(self.class_names) <= 2:
            return None
        return len(self.class_names)

    @property
    def names(self) -> dict[int, str]:
        """Names of the classes by their labels, which are -1 and +1, or 0 .. K - 1."""
        if self.classes is None:
            negative, positive = self.class_names
            return {-1: negative, 1: positive}
        return dict(enumerate(self.class_names))

    @property
    def n_samples(self) -> int:
        """n, the number of samples."""
        return len(self)

    @property
    def n_features(self) -> int:
        """D, the number of columns of X, the constant included."""
        return int(self.X.shape[1])

    def take(self, indices: ArrayLike) -> Dataset:
        """Return the samples with these indices (or this boolean mask), in this order."""
        rows = np.asarray(indices)
        X = self.X[rows]
        X.setflags(write=False)  # nobody else has it, so it need not be copied
        carried = {name: values[rows] for name, values in self.carried.items()}
        return replace(self, X=X, y=self.y[rows], carried=carried)


@dataclass(frozen=True)
class Split:
    """Two disjoint parts of one data set."""

    train: Dataset
    validation: Dataset


def split_indices(
    n_samples: int, train_size: int, validation_size: int, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Draw the training and the validation indices of the published split.

    Both come from one ``torch.randperm(n_samples)``: training is its first `train_size`
    entries, validation its last `validation_size`. Validation therefore stays the same when
    the training set grows.

    Parameters
    ----------
    n_samples, train_size, validation_size : int
        Numbers of samples.
    seed : int
        Seed of the torch generator, the data seed of the publication (there 1).

    Returns
    -------
    train : ndarray of int64, shape (train_size,)
        Indices of the training samples.
    validation : ndarray of int64, shape (validation_size,)
        Indices of the validation samples.

    Raises
    ------
    ValueError
        A part is empty or the two would overlap.
    """
    import torch

    validation.check_count(train_size, "train_size")
    validation.check_count(validation_size, "validation_size")
    if train_size + validation_size > n_samples:
        raise ValueError(
            f"train_size={train_size} is too large beside validation_size={validation_size}: "
            f"choose at most {n_samples - validation_size} of the {n_samples} samples"
        )
    generator = validation.torch_generator(seed)
    order: NDArray[np.int64] = torch.randperm(n_samples, generator=generator).numpy()
    return order[:train_size], order[n_samples - validation_size :]


def split(
    dataset: Dataset, train_size: int, validation_size: int | None = None, seed: int = 1
) -> Split:
    """Split a data set at random, as published.

    Parameters
    ----------
    dataset : Dataset
        What to split.
    train_size : int
        Number of training samples.
    validation_size : int, optional
        Number of validation samples; by default a fifth of the data, rounded, which is the
        published 12,000 for the 60,000 images of MNIST.
    seed : int
        See `split_indices`.

    Returns
    -------
    Split
        The training and the validation set.

    Raises
    ------
    ValueError
        As `split_indices`, or a class has no training sample.

    Examples
    --------
    >>> from implicit_bias.datasets import make_toy
    >>> parts = split(make_toy("blobs", 50), 30)
    >>> len(parts.train), len(parts.validation)
    (30, 10)
    """
    if validation_size is None:
        validation_size = max(1, round(len(dataset) / 5))
    train, held_out = split_indices(len(dataset), train_size, validation_size, seed)
    parts = Split(dataset.take(train), dataset.take(held_out))
    for label, class_name in dataset.names.items():
        if label not in parts.train.y:
            raise ValueError(
                f"class {label} ({class_name}) of {dataset.name} has none of the {train_size} "
                f"training samples: take more, or another seed than {seed}"
            )
    return parts


def standardized(parts: Split) -> Split:
    """Shift and scale each feature to mean 0 and variance 1 over the training samples.

    The validation samples are shifted and scaled by the same numbers, so that nothing is learned
    of them. The constant is left as it is; a feature without variance becomes 0 in training.

    Examples
    --------
    >>> data = Dataset("two", np.array([[1.0], [3.0]]), [-1, 1], ("a", "b"), has_constant=False)
    >>> standardized(Split(data, data)).train.X.tolist()
    [[-1.0], [1.0]]
    """
    from sklearn.preprocessing import StandardScaler

    n_inputs = parts.train.n_features - parts.train.has_constant
    if not n_inputs:
        return parts
    scaler = StandardScaler().fit(parts.train.X[:, :n_inputs])

    def scaled(part: Dataset) -> Dataset:
        X = part.X.copy()
        X[:, :n_inputs] = scaler.transform(X[:, :n_inputs])
        X.setflags(write=False)  # nobody else has it, so it need not be copied
        return replace(part, X=X)

    return Split(scaled(parts.train), scaled(parts.validation))
