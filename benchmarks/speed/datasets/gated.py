"""The SVMs of gated networks of Lippl, Abbott and Chung (2022): hard margins, no intercept.

svm-gln has a group for each unit of a gated linear network, svm-l2 one group of all joint contexts,
and svm-rc a group for each random 0/1 gate. Images of MNIST in the published split, with the
published draws (D = 785, thresholds at medians over all images); or scikit-learn's digits.
"""

from functools import lru_cache
from typing import Any

import numpy as np

from benchmarks.lippl2022 import draws
from benchmarks.speed.bases import BaseDataset
from implicit_bias import MarginProblem
from implicit_bias.datasets import load, split_indices
from implicit_bias.datasets.dataset import Dataset as Images
from implicit_bias.problem.gating import HyperplaneContexts, l2_gates

SEED = 1
WORDS = {"svm-gln": "SVM-GLN", "svm-l2": "SVM-L2", "svm-rc": "SVM-RC"}


class Dataset(BaseDataset):
    """An SVM on N images with H units of C contexts each."""

    name = "gated"
    parameters = {
        "data, model, N, H, C": [
            ("digits", "svm-gln", 300, 10, 2),
            ("mnist", "svm-gln", 500, 10, 2),
            ("mnist", "svm-l2", 1000, 20, 2),
            ("mnist", "svm-l2", 2000, 100, 2),
            ("mnist", "svm-gln", 1000, 20, 4),
            ("mnist", "svm-rc", 1000, 100, 2),
            ("mnist", "svm-gln", 2000, 100, 2),
            ("mnist", "svm-gln", 60_000, 100, 2),
        ]
    }
    test_parameters = {"data, model, N, H, C": [("digits", "svm-gln", 60, 3, 2)]}
    data: str
    model: str
    N: int
    H: int
    C: int

    @property
    def words(self) -> str:
        """Its row."""
        contexts = "" if self.model == "svm-rc" else f", C = {self.C}"
        data = {"mnist": "MNIST"}.get(self.data, self.data)
        return f"{WORDS[self.model]}, {data}, N = {self.N:,}, H = {self.H}{contexts}"

    def get_data(self) -> dict[str, Any]:
        """Return the problem."""
        everything = _images(self.data)
        count = len(everything.y)
        order = np.concatenate(split_indices(count, count - 1, 1, SEED))[: self.N]
        X = everything.X[order]
        hyperplanes = self.C.bit_length() - 1
        gating: Any
        if self.model == "svm-rc":
            gating = draws.draw_unit_gates(self.H, reference=everything.X, seed=SEED)
        elif self.data == "mnist":
            gating = draws.draw_contexts(
                X, self.H, hyperplanes, threshold="median", reference=everything.X, seed=SEED
            )
        else:
            gating = HyperplaneContexts.random(X, self.H, hyperplanes, random_state=SEED)
        if self.model == "svm-l2":
            gating = l2_gates(gating)
        y = everything.y[order]
        return {"problem": MarginProblem(X, y, gating.gates(X), gating.groups)}


@lru_cache(maxsize=1)
def _images(data: str) -> Images:
    """Load a data set; all of MNIST is 380 MB."""
    return load(data)
