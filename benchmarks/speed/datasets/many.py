"""Many samples: 20 Gaussian features, classes by the largest of 5 linear functions, hard margin.

Samples near a boundary are left out, so that the others are separable.
"""

from typing import Any

import numpy as np

from benchmarks.speed.bases import BaseDataset
from implicit_bias import max_margin

D, K, SEED = 20, 5, 0
# The least difference between the two largest functions.
CLEAR = 0.5


class Dataset(BaseDataset):
    """What is left of N samples."""

    name = "many"
    parameters = {"N": [1_000_000]}
    test_parameters = {"N": [200]}
    N: int

    @property
    def words(self) -> str:
        """Its row."""
        return f"Gaussian, {K} classes, l2, {self.N:,} drawn, D = {D}"

    def get_data(self) -> dict[str, Any]:
        """Return the problem."""
        rng = np.random.default_rng(SEED)
        weights = rng.normal(size=(K, D))
        X = rng.normal(size=(self.N, D))
        scores = X @ weights.T
        ranked = np.sort(scores, axis=1)
        clear = ranked[:, -1] - ranked[:, -2] > CLEAR
        return {"problem": max_margin(X[clear], scores.argmax(axis=1)[clear], "l2")}
