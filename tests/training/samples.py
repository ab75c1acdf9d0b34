"""Samples and modules that are trained: two classes for gated networks, four for any module."""

import numpy as np
import torch
from torch import nn

from cases import clusters
from example_modules import Computed, seeded
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
