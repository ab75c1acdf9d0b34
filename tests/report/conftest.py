"""Reports that several tests read, written once."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import implicit_bias as ib
from cases import clusters
from implicit_bias.datasets import Dataset, load_digits, make_toy, split
from report.written import ATTACK, Report, fit_and_write, no_margins


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Report:
    models = {
        "_$x_": ib.GLNSVC(5, random_state=0),
        ATTACK: ib.GLNClassifier(5, random_state=0, steps=40),
    }
    return fit_and_write(
        tmp_path_factory.mktemp("digits"),
        models,
        split(load_digits(), 100),
        title=ATTACK,
        facts={"seed": "0", ATTACK: ATTACK},
    )


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Report:
    models = {
        "GD-GLN": ib.GLNClassifier(4, random_state=0, steps=600, learning_rate=0.3),
        "SVM-GLN": ib.GLNSVC(4, random_state=0),
        "shallow": ib.GLNSVC(1, 3, random_state=0),
    }
    toy = make_toy("xor", 160)
    named = Dataset(toy.name, toy.X, toy.y, (ATTACK, "B & C"))
    return fit_and_write(tmp_path_factory.mktemp("plane"), models, split(named, 100))


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return no_margins(tmp_path_factory.mktemp("bare"))


@pytest.fixture(scope="module")
def spoilt(tmp_path_factory: pytest.TempPathFactory) -> Report:
    data = split(make_toy("moons", 60, noise=0.3), 40)
    X = np.vstack([data.train.X, data.train.X[:1]])
    y = np.append(data.train.y, -data.train.y[0])
    train = Dataset("spoilt", X, y, ("no", "yes"), has_constant=data.train.has_constant)
    models = {
        "svm": ib.GLNSVC(2, random_state=0, on_failure="warn"),
        "net": ib.GLNClassifier(2, random_state=0, steps=20),
    }
    folder = tmp_path_factory.mktemp("spoilt")
    with pytest.warns(ConvergenceWarning):
        return fit_and_write(folder, models, replace(data, train=train))


@pytest.fixture(scope="module")
def moons(tmp_path_factory: pytest.TempPathFactory) -> Report:
    models = {
        "soft": ib.GLNSVC(3, C=1.0, random_state=0),
        "net": ib.GLNClassifier(3, random_state=0, steps=5),
        "relu": ib.ReLUClassifier(6, random_state=0, steps=1200, learning_rate=0.3),
    }
    data = split(make_toy("moons", 60, noise=0.3), 40)
    return fit_and_write(tmp_path_factory.mktemp("moons"), models, data)


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Report:
    points, y = clusters(60, 2, spread=0.3, seed=0)
    models = {
        "GD-GLN": ib.GLNClassifier(3, random_state=0, steps=60, learning_rate=0.3),
        "SVM-GLN": ib.GLNSVC(3, fit_intercept=False, random_state=0),
        "live": ib.ReLUClassifier(4, random_state=0, steps=60, shared=True),
    }
    data = Dataset("three", np.column_stack([points, y >= 0]), y, ("ant", ATTACK, "cow"))
    return fit_and_write(tmp_path_factory.mktemp("classes"), models, split(data, 40))
