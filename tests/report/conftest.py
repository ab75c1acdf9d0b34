"""Reports that several tests read, written once."""

import numpy as np
import pytest

import implicit_bias as ib
from cases import clusters
from implicit_bias.datasets import Dataset, load_digits, split
from report.written import ATTACK, Report, fit_and_write


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
def classes(tmp_path_factory: pytest.TempPathFactory) -> Report:
    points, y = clusters(60, 2, spread=0.3, seed=0)
    models = {
        "GD-GLN": ib.GLNClassifier(3, random_state=0, steps=600, learning_rate=1.0),
        "SVM-GLN": ib.GLNSVC(3, fit_intercept=False, random_state=0),
        "live": ib.ReLUClassifier(4, random_state=0, steps=600, learning_rate=1.0, shared=True),
    }
    data = Dataset("three", np.column_stack([points, y >= 0]), y, ("ant", ATTACK, "cow"))
    return fit_and_write(tmp_path_factory.mktemp("classes"), models, split(data, 40))
