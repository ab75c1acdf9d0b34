"""The group lasso of wide data: 72 Gaussian samples, as many as of the leukaemia set.

Labels are those of a linear function of 40 features. In groups of one the norm is l1.
"""

from typing import Any

import numpy as np

from benchmarks.speed.bases import BaseDataset
from implicit_bias import max_margin

N, RELEVANT, SEED = 72, 40, 0


class Dataset(BaseDataset):
    """D features in groups of a size; hard margin, no intercept."""

    name = "wide"
    parameters = {"D, size": [(4000, 8), (4000, 1)]}
    test_parameters = {"D, size": [(200, 8)]}
    D: int
    size: int

    @property
    def words(self) -> str:
        """Its row."""
        return f"group lasso, groups of {self.size}, N = {N}, D = {self.D:,}"

    def get_data(self) -> dict[str, Any]:
        """Return the problem."""
        rng = np.random.default_rng(SEED)
        X = rng.normal(size=(N, self.D))
        y = np.where(X[:, :RELEVANT] @ rng.normal(size=RELEVANT) > 0, 1, -1)
        return {"problem": max_margin(X, y, groups=np.arange(self.D) // self.size)}
