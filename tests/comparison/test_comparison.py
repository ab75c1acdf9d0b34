"""What a comparison answers, prints and tabulates."""

from dataclasses import replace
from html import escape
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.dummy import DummyClassifier

from comparison.samples import TEST, TRAIN, compared, fitted_models
from implicit_bias import GLNSVC, GatedSVC, MaxMarginSVC, compare
from implicit_bias.base.wording import number, percent
from implicit_bias.comparison import first_svm
from implicit_bias.norms import L1, SumOverGroups


def test_problems_and_svms_of_a_network() -> None:
    soft = GLNSVC(n_units=4, random_state=0, C=2.0).fit(TRAIN.X, TRAIN.y)
    other_gates = MaxMarginSVC(C=2.0).fit(TRAIN.X, TRAIN.y)
    models = {"soft": soft, **fitted_models(), "other gates": other_gates}
    result = compare(models, TEST.X, TEST.y, train=(TRAIN.X, TRAIN.y))
    network = result.model("network")
    names = [[model.name for model in same] for same in result.problems()]
    assert names == [["soft"], ["svm", "network"], ["l2"], ["other gates"]]
    assert result.svm_of(network) is result.model("svm")
    assert [model.name for model in result.soft_svms_of(network)] == ["soft"]
    assert result.svm_of(result.model("neighbours")) is None
    assert result.soft_svms_of(result.model("neighbours")) == []
    assert first_svm([network]) is None
    assert result.model("soft").known_margin.largest_margin is None
    assert "(C = 2)" in str(result)
    # Without the SVM of its problem a network stands beside one of its gates with a finite C.
    beside_soft = replace(result, models=tuple(m for m in result.models if m.name != "svm"))
    facts = beside_soft.standing(network)
    assert (facts.svm, facts.soft) == ("soft", "2")
    assert facts.agreement == result.agreement("network", "soft")
    for name in ("soft", "l2"):  # each the only model of its problem
        margin = result.model(name).known_margin
        assert margin.optimum == margin.certificate.lower
    last = network.history[-1]
    assert network.known_margin.excess_at(last) == pytest.approx(network.known_margin.excess)
    assert np.isnan(network.known_margin.excess_at(replace(last, min_margin=-1.0)))
    with pytest.raises(ValueError, match="no margin"):
        result.model("logistic").known_margin  # noqa: B018
    assert set(result.history_frame()["model"]) == {"network"}
    assert network.steps == last.step == 400


def test_a_comparison_prints_a_table_and_its_verdict() -> None:
    table, pairs, _, verdict = str(compared()).split("\n\n")
    heading, *rows = table.splitlines()
    assert heading.split() == "model error 95 % interval margin norm excess".split()
    assert [row.split()[0] for row in rows] == list(fitted_models())
    svm = compared().model("svm")
    assert percent(svm.error, space=" ") in rows[0]
    assert number(svm.known_margin.min_margin) in rows[0]
    assert number(svm.known_margin.norm) in rows[0]
    for pair, row in zip(compared().pairs, pairs.splitlines()[1:], strict=True):
        assert row.startswith(pair.first)
        assert percent(1 - pair.disagreement, space=" ") in row
        assert percent(1 - pair.by_chance, space=" ") in row
    (conclusion,) = compared().conclusions()  # of the only network
    assert verdict == conclusion.headline
    page = compared()._repr_html_()
    assert page.count("<tr>") == 2 + len(fitted_models()) + len(compared().pairs)
    assert escape(conclusion.headline) in page
    named = compare({"<b>": fitted_models()["svm"]}, TEST.X, TEST.y)
    assert "&lt;b&gt;" in named._repr_html_()
    assert str(named).splitlines()[0].split()[-1] == "interval"  # no margins, and no pairs


def test_predictions_have_a_row_per_sample() -> None:
    """With the index of a frame, labels as they are, and nothing where there is no predictor."""
    frame = pd.DataFrame({"a": [0.0, 1.0, 2.0, 3.0]}, index=[7, 5, 3, 1])
    labels = np.array(["no", "yes", "yes", "no"])
    with pytest.warns(UserWarning, match="not separable"):
        none = MaxMarginSVC(on_failure="warn").fit(frame, labels)
    one = MaxMarginSVC().fit(frame, ["no", "no", "yes", "yes"])
    other = MaxMarginSVC().fit(frame, ["yes", "no", "no", "no"])
    models = {"none": none, "one": one, "other": other}
    found = compare(models, frame, labels).prediction_frame()
    assert found.index.tolist() == [7, 5, 3, 1]
    assert found["true label"].tolist() == labels.tolist()
    assert found["one"].tolist() == ["no", "no", "yes", "yes"]
    assert found["models differ"].tolist() == [True, False, True, True]
    assert ((found["one: score of yes"] > 0) == (found["one"] == "yes")).all()
    assert not any(str(column).startswith("none: ") for column in found)


@pytest.mark.parametrize(
    "inputs",
    [
        pd.DataFrame({"text": ["a", None], "size": [np.nan, 2.0]}),
        sp.csr_array([[1.0], [np.nan]]),
        np.array([[[1.0, 2.0], [3.0, 4.0]], [[1.0, 2.0], [3.0, np.nan]]]),
    ],
    ids=["frame", "sparse", "images"],
)
def test_samples_with_missing_values_are_the_same_samples(inputs: Any) -> None:
    model = DummyClassifier().fit([[0.0], [0.0]], [0, 1])
    # In any order, and of some of them only; but not where a value is missing that is known here.
    for train, held_out in ((inputs.copy(), False), (inputs[::-1], False), (inputs[1:], True)):
        found = compare({"it": model}, inputs, [0, 1], train=(train, [0, 1][: train.shape[0]]))
        assert found.held_out is held_out


def test_some_of_the_training_samples_are_not_held_out() -> None:
    train = (TRAIN.X, TRAIN.y)
    svm = {"svm": fitted_models()["svm"]}
    assert compare(svm, TRAIN.X[5:1:-1], TRAIN.y[5:1:-1], train=train).held_out is False
    assert compare(svm, TRAIN.X[:3].tolist(), TRAIN.y[:3], train=train).held_out is False
    mixed = np.concatenate([TRAIN.X[:3], TEST.X[:3]])
    assert compare(svm, mixed, np.append(TRAIN.y[:3], TEST.y[:3]), train=train).held_out is True


def test_a_note_says_which_norms_compare() -> None:
    """None where all models with a margin have one problem."""
    note = compared().note_on_norms
    assert "svm, network" in note
    assert "l2" not in note
    assert note in str(compared())
    alike = {name: fitted_models()[name] for name in ("svm", "network", "logistic")}
    assert compare(alike, TEST.X, TEST.y, train=(TRAIN.X, TRAIN.y)).note_on_norms == ""


def test_dead_units_need_an_svm_of_the_same_groups() -> None:
    """One with a finite C may have other groups; the network's problem has one per unit."""
    network = fitted_models()["network"]
    gating = network.gating()
    norm = SumOverGroups(L1(), np.repeat([0, 1], 4))
    svm = GatedSVC(gating, norm=norm, C=1.0).fit(TRAIN.X, TRAIN.y)
    models = {"svm": svm, "network": network}
    found = compare(models, TEST.X, TEST.y, train=(TRAIN.X, TRAIN.y))
    standing = found.standing(found.model("network"))
    assert (standing.svm, standing.soft, standing.dead) == ("svm", "1", 0)


@pytest.mark.parametrize("name", ["true label", "models differ"])
def test_a_model_is_not_called_as_a_column_of_the_predictions(name: str) -> None:
    with pytest.raises(ValueError, match="another name"):
        compare({name: fitted_models()["svm"]}, TEST.X, TEST.y)
