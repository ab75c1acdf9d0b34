"""Ordinary tables, as scikit-learn's `make_classification` draws them: soft margins, no intercept.

Samples are Gaussian clusters at the corners of a cube, two for each class (one of more than four
classes, where w = 0 would be optimal with two), mixed by a random matrix; some features are
combinations of others, some are noise, and 5 % of the labels are wrong. Where C is infinite labels
are those of a linear function.
"""

from typing import Any

import numpy as np
from sklearn.datasets import make_classification

from benchmarks.speed.bases import BaseDataset
from implicit_bias import max_margin

WRONG, SEED = 0.05, 3


class Dataset(BaseDataset):
    """N samples of D features in K classes; C weighs the losses."""

    name = "tables"
    parameters = {
        "N, D, K, norm, C": [
            (500, 20, 2, "l2", 0.01),
            (2000, 20, 2, "l2", 1.0),
            (2000, 100, 2, "l2", 0.1),
            (2000, 20, 4, "l2", 0.01),
            (500, 50, 2, "linf", np.inf),
            (2000, 100, 2, "l1", 0.1),
            (2000, 50, 10, "l2", 0.01),
            (50_000, 50, 2, "l2", 0.01),
        ]
    }
    test_parameters = {"N, D, K, norm, C": [(60, 5, 2, "l2", 0.1), (60, 5, 3, "l1", 1.0)]}
    N: int
    D: int
    K: int
    norm: str
    C: float

    @property
    def words(self) -> str:
        """Its row."""
        margin = "hard margin" if np.isinf(self.C) else f"C = {self.C:g}"
        classes = f"{self.K} classes, " if self.K > 2 else ""
        return f"table, {classes}{self.norm}, N = {self.N:,}, D = {self.D}, {margin}"

    def get_data(self) -> dict[str, Any]:
        """Return the problem."""
        X, y = make_classification(
            self.N,
            self.D,
            n_informative=max(4, self.D // 2),
            n_redundant=self.D // 10,
            n_classes=self.K,
            n_clusters_per_class=2 if self.K <= 4 else 1,
            flip_y=WRONG,
            random_state=SEED,
        )
        if self.K == 2:
            y = np.where(y == 1, 1, -1)
        if np.isinf(self.C):
            weights = np.random.default_rng(SEED).normal(size=self.D)
            y = np.where(X @ weights > 0, 1, -1)
        return {"problem": max_margin(X, y, self.norm, C=self.C)}
