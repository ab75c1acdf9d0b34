"""Moons, the models that are compared on them, and their comparison."""

from functools import cache
from typing import Any

from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from implicit_bias import GLNSVC, Comparison, GLNClassifier, compare
from implicit_bias.datasets import make_toy

TRAIN = make_toy("moons", 80, noise=0.05, random_state=0)
TEST = make_toy("moons", 300, noise=0.2, random_state=1)


# Fitted when a test asks for them: each process of a run reads this file, few run its tests.
@cache
def fitted_models() -> dict[str, Any]:
    unfitted: dict[str, Any] = {
        "svm": GLNSVC(n_units=4, random_state=0, tol=1e-9),
        "l2": GLNSVC(n_units=4, norm="l2", random_state=0),
        "network": GLNClassifier(4, random_state=0, steps=400, learning_rate=0.3),
        "logistic": LogisticRegression(),
        "neighbours": KNeighborsClassifier(3),
    }
    return {name: model.fit(TRAIN.X, TRAIN.y) for name, model in unfitted.items()}


@cache
def compared() -> Comparison:
    return compare(fitted_models(), TEST.X, TEST.y, train=(TRAIN.X, TRAIN.y))
