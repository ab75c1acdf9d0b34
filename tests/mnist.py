"""MNIST with the published split and draws, for tests that have the real files."""

import os
from functools import cache
from pathlib import Path
from typing import Literal

import pytest

from implicit_bias.datasets import DATA_VARIABLE, Dataset, Split, load_mnist, split
from implicit_bias.problem.gating import HyperplaneContexts
from implicit_bias.protocols import lippl2022

needs_mnist = pytest.mark.skipif(
    not (Path(os.environ.get(DATA_VARIABLE, "/nowhere")) / "mnist").is_dir(),
    reason=f"MNIST is needed: set {DATA_VARIABLE} to a folder with mnist/",
)


@cache
def mnist() -> Dataset:
    return load_mnist()


@cache
def parts(train_size: int = 500) -> Split:
    return split(mnist(), train_size, seed=1)


@cache
def contexts(
    n_units: int = 10,
    n_hyperplanes: int = 1,
    seed: int = 1,
    threshold: Literal["median", "random"] = "median",
    train_size: int = 500,
) -> HyperplaneContexts:
    """Draw contexts as published, with the medians of all images."""
    X = parts(train_size).train.X
    return lippl2022.draw_contexts(
        X, n_units, n_hyperplanes, threshold=threshold, reference=mnist().X, seed=seed
    )
