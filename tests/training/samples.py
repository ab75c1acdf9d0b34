"""Samples and modules that are trained: two classes for gated networks, four for any module."""

import numpy as np
import torch
from torch import nn

from cases import clusters
from example_modules import Computed, layers, seeded
from implicit_bias.base.validation import Array
from implicit_bias.datasets.toys import make_toy
from implicit_bias.networks import GLN
from implicit_bias.problem.gating import HyperplaneContexts
from implicit_bias.training.configuration import LimitConfig, NormName

BLOBS = make_toy("blobs", n_samples=40, random_state=0)
X, Y = BLOBS.X, BLOBS.y
GATING = HyperplaneContexts.random(X, 4, 1, random_state=0)
# A training of a few seconds.
SHORT = LimitConfig(steps=60)

# Two classes and four, with rotated centres, so that the norms' directions differ.
X4, LABELS = clusters(32, 5, 4, seed=0)
SIGNS = np.where(LABELS < 2, 1.0, -1.0)
X2 = X4 + np.outer(SIGNS, np.random.default_rng(0).normal(size=5))
NORMS: tuple[NormName, ...] = ("l2", "l1", "linf", "spectral")


def gln(seed: int = 0) -> GLN:
    return GLN([GATING], seed=seed)


def two_layers(outputs: int = 4) -> nn.Module:
    """Build a ReLU network that this package did not write."""
    weights = {"first": torch.empty(6, 5), "second": torch.empty(outputs, 6)}
    return seeded(Computed(lambda m, x: torch.relu(x @ m.first.T) @ m.second.T, **weights))


def flat(outputs: int = 1, scale: float = 0.0) -> nn.Linear:
    """Build a linear module whose weights are all the same."""
    module = nn.Linear(5, outputs, bias=False).double()
    nn.init.constant_(module.weight, scale)
    return module


def on_clusters(seed: int) -> tuple[nn.Module, Array, Array]:
    """Return a ReLU network of 64 units, and 64 samples and labels on 3 x 3 clusters."""
    centres = 0.375 * (np.array([(i, j) for i in range(3) for j in range(3)]) - 1.0)
    rng = np.random.default_rng(seed)
    place = rng.integers(0, 9, 64)
    angle = rng.uniform(0.0, 2.0 * np.pi, 64)
    radius = rng.uniform(0.0, 0.125, 64)
    around = radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    inputs = np.column_stack([centres[place] + around, np.ones(64)])
    torch.manual_seed(seed)
    return layers(3, 64, 1).double(), inputs, rng.permutation(np.resize([-1, 1], 9))[place]
