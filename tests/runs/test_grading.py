"""What certified bounds of a model are made of."""

import numpy as np

from implicit_bias import GLNClassifier
from implicit_bias.datasets.dataset import Dataset
from implicit_bias.runs.grading import grade


def test_units_that_classes_share_are_graded_by_their_program() -> None:
    """A sum of nuclear norms, which native solvers take."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(3), 8)
    X = 4.0 * np.eye(3)[y] + 0.3 * rng.normal(size=(24, 3))
    model = GLNClassifier(3, steps=300, learning_rate=0.3, shared=True, random_state=0).fit(X, y)
    found = grade(model, Dataset("three", X, y, ("a", "b", "c"), has_constant=False)).values
    assert "SVM" in found["lower_from"]
    assert found["lower_by_multipliers"] < found["lower"] <= found["upper"]
    assert found["svm_status"] == "optimal"
