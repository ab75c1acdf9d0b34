"""Linear predictors on real data and on a published separable set: hard margins, no intercept."""

from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer

from benchmarks.data import separable_set, ten_digits
from benchmarks.speed.bases import BaseDataset
from implicit_bias import MarginProblem, max_margin
from implicit_bias.base.validation import Array

WORDS = {
    "two": "MNIST, 0-4 / 5-9",
    "cancer": "breast cancer, raw",
    "ten": "MNIST, 10 digits",
    "k10-sigma1": "k10-sigma1, 10 classes",
}


class Dataset(BaseDataset):
    """A linear predictor on the first N samples."""

    name = "linear"
    parameters = {
        "data, N, norm": [
            ("cancer", 569, "l2"),
            ("two", 500, "l2"),
            ("k10-sigma1", 500, "spectral"),
            ("ten", 1000, "nuclear"),
        ]
    }
    test_parameters = {"data, N, norm": [("cancer", 100, "l2")]}
    data: str
    N: int
    norm: str

    @property
    def words(self) -> str:
        """Its row."""
        return f"{WORDS[self.data]}, {self.norm}, N = {self.N:,}"

    def get_data(self) -> dict[str, Any]:
        """Return the problem."""
        X, y = self._samples()
        if self.data == "cancer":  # not separable through the origin: with a constant feature
            X = np.column_stack([X, np.ones(len(X))])
        problem: MarginProblem = max_margin(X[: self.N], y[: self.N], self.norm)
        return {"problem": problem}

    def _samples(self) -> tuple[Array, Any]:
        if self.data == "cancer":
            X, target = load_breast_cancer(return_X_y=True)
            return X, np.where(target == 1, 1, -1)
        if self.data == "k10-sigma1":
            stored = separable_set(self.data)
            return np.asarray(stored["X"], dtype=np.float64), stored["y"]
        X, digits = ten_digits(self.N)
        return X, np.where(digits <= 4, 1, -1) if self.data == "two" else digits
