"""Toy sets in the plane."""

import numpy as np

from implicit_bias.base import validation
from implicit_bias.base.options import TOY_KINDS, ToyKind
from implicit_bias.base.validation import Array
from implicit_bias.datasets.dataset import Dataset


def make_toy(
    kind: ToyKind,
    n_samples: int = 200,
    *,
    noise: float = 0.1,
    random_state: int = 0,
    append_constant: bool = True,
) -> Dataset:
    """Draw a toy set in the plane, at most a few units across.

    The labels alternate, so that every prefix is balanced. Only "blobs" is linearly separable.
    No two points of opposite labels coincide: the noiseless shapes are disjoint, and noise has
    a density.

    Parameters
    ----------
    kind : {"xor", "circles", "moons", "spirals", "blobs"}
        Squares at the four corners, concentric circles, two half circles, two spiral arms, or
        squares at two corners.
    n_samples : int
        Number of points, at least 2.
    noise : float
        Standard deviation of the Gaussian noise on each coordinate.
    random_state : int
        Seed of the generator.
    append_constant : bool
        Whether to append the constant 1 as the last column.

    Returns
    -------
    Dataset
        X of shape (n_samples, 2 + append_constant).

    Raises
    ------
    ValueError
        Unknown `kind`, fewer than 2 samples, or noise that is negative or not finite.

    Examples
    --------
    >>> make_toy("moons", 6, noise=0.0).X.shape  # with the constant 1
    (6, 3)
    """
    validation.check_choice(kind, "toy set", TOY_KINDS)
    validation.check_count(n_samples, "n_samples", 2)  # one of each class
    validation.check_number(noise, "noise", "[0, inf)")
    rng = validation.as_generator(random_state)
    y = np.where(np.arange(n_samples) % 2 == 0, 1.0, -1.0)
    points = _toy_shape(kind, y, rng) + noise * rng.standard_normal((n_samples, 2))
    if append_constant:
        points = np.column_stack([points, np.ones(n_samples)])
    return Dataset(kind, points, y, ("-1", "+1"), has_constant=append_constant)


def _toy_shape(kind: ToyKind, y: Array, rng: np.random.Generator) -> Array:
    """Draw noiseless points (n, 2) for the labels y (n,)."""
    u = rng.random(len(y))
    match kind:
        case "xor":
            side = rng.choice((-1.0, 1.0), len(y))
            corners = np.column_stack([side, side * y])
            return corners + (rng.random((len(y), 2)) - 0.5)
        case "blobs":
            corners = np.column_stack([y, y])
            return corners + (rng.random((len(y), 2)) - 0.5)
        case "circles":
            return _polar(np.where(y > 0, 0.5, 1.0), 2 * np.pi * u)
        case "moons":
            arc = _polar(np.ones_like(u), np.pi * u)
            return np.where(y[:, None] > 0, arc, np.array([1.0, 0.5]) - arc)
        case "spirals":
            radius = 0.3 + 1.7 * u  # away from the origin, which the arms would share
            return _polar(y * radius, 2 * np.pi * u)


def _polar(radius: Array, angle: Array) -> Array:
    """Points (n, 2) from polar coordinates (n,), the angle in radians."""
    return np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
