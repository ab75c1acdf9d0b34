"""Samples and filters that several files draw alike, and all inputs of a parity."""

import numpy as np

from implicit_bias.base.validation import Array
from implicit_bias.datasets.parities import ParityDistribution, cube
from implicit_bias.problem.gating import UnitGates


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape)


def sphere(n: int, d: int, seed: int = 0) -> Array:
    X = normal(n, d, seed=seed)
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def hard(n_filters: int, n_features: int = 4, seed: int = 1) -> UnitGates:
    return UnitGates(normal(n_filters, n_features, seed=seed), np.zeros(n_filters))


def on_the_cube(distribution: ParityDistribution) -> tuple[Array, Array, Array]:
    """All inputs, their labels and their probabilities."""
    bits = cube(distribution.n_bits)
    return bits, distribution.labels(bits), distribution.probabilities(bits)
