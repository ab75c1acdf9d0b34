"""What models answer: undecided ones, pipelines, searches, and labels and inputs of any type."""

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler

from comparison.samples import TEST, TRAIN, fitted_models
from implicit_bias import GLNSVC, GatedSVC, compare
from implicit_bias.comparison.models import last_step
from implicit_bias.problem.gating import HyperplaneContexts


def test_a_tie_of_classes_counts_as_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    y = np.arange(9) % 3
    X = np.eye(3)[y]
    model = GatedSVC(fit_intercept=False).fit(X, y)
    # The scores of 0 are exactly equal, whatever the last bits of the coefficients are.
    result = compare({"linear": model}, np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]]), [0, 0])
    assert result.model("linear").error == 0.5
    assert result.model("linear").predicted.tolist() == [None, 0]
    scores = np.array([[2.0, 2.0, 1.0], [1.0, 2.0, 0.0]])
    monkeypatch.setattr(model, "decision_function", lambda inputs: scores)
    answers = last_step(model).predictions(X[:2], y[:2])
    assert answers.classes.tolist() == [None, 1]
    assert answers.wrong.tolist() == [True, False]
    assert answers.scores[2].tolist() == [1.0, 0.0]


def test_an_output_of_zero_counts_as_an_error() -> None:
    contexts = HyperplaneContexts.random(TRAIN.X, 1, 4, random_state=0)
    shallow = GLNSVC(contexts=contexts).fit(TRAIN.X, TRAIN.y)
    far = 100 * np.random.default_rng(0).normal(size=(400, 3))
    undecided = shallow.decision_function(far) == 0
    assert undecided.any()
    for label in (-1.0, 1.0):
        result = compare({"shallow": shallow}, far, np.full(400, label))
        expected = np.mean(label * shallow.decision_function(far) <= 0)
        assert result.model("shallow").error == pytest.approx(expected)


@pytest.mark.slow
def test_a_pipeline_is_compared_by_its_last_step() -> None:
    """With the margin of that step on the inputs that the steps before make."""
    train = (TRAIN.X, TRAIN.y)
    svm = GLNSVC(n_units=4, random_state=0)
    whole = make_pipeline(MaxAbsScaler(), make_pipeline("passthrough", svm)).fit(*train)
    models = {
        "whole": whole,
        "on the inputs": fitted_models()["svm"],
        "searched": GridSearchCV(whole, {"maxabsscaler": [MaxAbsScaler()]}, cv=2).fit(*train),
    }
    result = compare(models, TEST.X, TEST.y, train=train)
    found = result.model("whole")
    scaler = MaxAbsScaler().fit(TRAIN.X)
    scaled = (scaler.transform(TRAIN.X), TRAIN.y)
    bare = GLNSVC(n_units=4, random_state=0).fit(*scaled)
    alone = compare({"bare": bare}, scaler.transform(TEST.X), TEST.y, train=scaled).model("bare")
    assert found.known_margin.excess == pytest.approx(alone.known_margin.excess)
    assert found.known_margin.norm == pytest.approx(alone.known_margin.norm)
    assert (found.error, found.train_wrong) == (alone.error, alone.train_wrong)
    assert found.known_margin.problem != result.model("on the inputs").known_margin.problem
    assert result.model("searched").known_margin.norm == pytest.approx(found.known_margin.norm)
