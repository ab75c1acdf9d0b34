"""Comparison: every number by hand on small cases."""

from dataclasses import replace
from functools import cache
from html import escape
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.compose import ColumnTransformer
from sklearn.dummy import DummyClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import cohen_kappa_score
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, OneHotEncoder

from cases import clusters
from example_modules import known
from implicit_bias import GLNSVC, GatedSVC, GLNClassifier, MaxMarginSVC, certify, compare
from implicit_bias.bounds.status import excess
from implicit_bias.comparison import Comparison, first_svm
from implicit_bias.datasets.toys import make_toy
from implicit_bias.estimators.base import BinaryClassifier
from implicit_bias.problem.gating import HyperplaneContexts
from implicit_bias.report.words import conclusions

TRAIN = make_toy("moons", 80, noise=0.05, random_state=0)
TEST = make_toy("moons", 300, noise=0.2, random_state=1)


# Fitted when a test asks for them: each process of a run reads this file, few run its tests.
@cache
def fitted_models() -> dict[str, Any]:
    unfitted: dict[str, Any] = {
        "svm": GLNSVC(n_units=4, random_state=0, tol=1e-9),
        "l2": GLNSVC(n_units=4, norm="l2", random_state=0),
        "network": GLNClassifier(4, random_state=0, steps=1000, learning_rate=0.3),
        "logistic": LogisticRegression(),
        "neighbours": KNeighborsClassifier(3),
    }
    return {name: model.fit(TRAIN.X, TRAIN.y) for name, model in unfitted.items()}


@cache
def compared() -> Comparison:
    return compare(fitted_models(), TEST.X, TEST.y, train=(TRAIN.X, TRAIN.y))


def test_errors_and_pairs_by_hand() -> None:
    predicted = {name: model.predict(TEST.X) for name, model in fitted_models().items()}
    for name, labels in predicted.items():
        found = compared().model(name)
        assert found.count.count == np.sum(labels != TEST.y)
        assert found.error == pytest.approx(np.mean(labels != TEST.y))
        wrong = fitted_models()[name].predict(TRAIN.X) != TRAIN.y
        assert known(found.train_wrong).count == wrong.sum()
    assert len(compared().pairs) == 10
    for pair in compared().pairs:
        a, b = predicted[pair.first], predicted[pair.second]
        p, q = np.mean(a != TEST.y), np.mean(b != TEST.y)
        assert pair.disagreement == pytest.approx(np.mean(a != b))
        assert pair.by_chance == pytest.approx(p * (1 - q) + q * (1 - p))
        assert pair.ratio == pytest.approx(pair.disagreement / pair.by_chance)
        assert pair.kappa == pytest.approx(cohen_kappa_score(a, b))
        agreement = known(compared().agreement(pair.first, pair.second))
        assert agreement.count == np.sum(a == b)
        difference = known(compared().difference(pair.first, pair.second))
        assert difference.only_first == np.sum((a != TEST.y) & (b == TEST.y))
    assert compared().pair("network", "svm") is compared().pair("svm", "network")
    with pytest.raises(KeyError, match="two models"):
        compared().pair("svm", "svm")
    absent: Any
    for absent in ("Network", ["network"]):
        with pytest.raises(KeyError, match="network, "):
            compared().agreement(absent, "svm")


@pytest.mark.parametrize("n_classes", [2, 5])
def test_chance_level_is_what_independent_models_show(n_classes: int) -> None:
    """Wrong answers spread evenly over the wrong classes."""
    rng = np.random.default_rng(0)
    y = rng.integers(n_classes, size=40_000)

    class Independent:
        def __init__(self, error: float) -> None:
            self.error = error

        def predict(self, X: ArrayLike) -> NDArray[Any]:
            shift = rng.integers(1, n_classes, size=len(y))
            wrong = rng.random(len(y)) < self.error
            return np.asarray((y + wrong * shift) % n_classes)

    result = compare({"a": Independent(0.3), "b": Independent(0.6)}, np.zeros((len(y), 1)), y)
    assert result.many_classes == (n_classes > 2)
    pair = result.pair("a", "b")
    # They agree where both are right, or both give the same one of K - 1 wrong answers.
    p, q = result.model("a").error, result.model("b").error
    agree = (1 - p) * (1 - q) + p * q / (n_classes - 1)
    assert pair.by_chance == pytest.approx(1 - agree, rel=1e-12)
    assert pair.disagreement == pytest.approx(pair.by_chance, abs=0.01)


@pytest.mark.slow
def test_models_of_many_classes() -> None:
    X, y = clusters(30, spread=0.15, seed=0)
    models: dict[str, BinaryClassifier] = {
        "network": GLNClassifier(3, steps=300, learning_rate=0.3, random_state=0),
        "svm": GLNSVC(3, fit_intercept=False, random_state=0),
        "linear": GatedSVC(fit_intercept=False),
        "shared": GLNClassifier(3, steps=300, learning_rate=0.3, shared=True, random_state=0),
    }
    for model in models.values():
        model.fit(X, y)
    result = compare(models, X, y, train=(X, y))
    network, svm = result.model("network"), result.model("svm")
    margin = network.known_margin
    assert result.svm_of(network) is svm
    assert result.svm_of(result.model("shared")) is None
    assert margin.optimum == svm.known_margin.certificate.lower
    assert 0 < margin.excess < 10
    trained = models["network"]
    assert isinstance(trained, GLNClassifier)
    f = trained.network_.decision(X)
    margins = [row[k] - np.delete(row, k).max() for row, k in zip(f, y, strict=True)]
    norm = trained.network_.norm()
    np.testing.assert_allclose(margin.margins, np.array(margins) / norm)
    largest = svm.known_margin.largest_margin
    assert largest == pytest.approx(svm.known_margin.min_margin, rel=1e-5)


def test_a_tie_of_classes_counts_as_an_error() -> None:
    y = np.arange(9) % 3
    X = np.eye(3)[y]
    model = GatedSVC(fit_intercept=False).fit(X, y)
    # The scores of 0 are exactly equal, whatever the last bits of the coefficients are.
    result = compare({"linear": model}, np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]]), [0, 0])
    assert result.model("linear").error == 0.5
    assert result.model("linear").predicted.tolist() == [None, 0]


def test_margins_by_hand() -> None:
    svm, network = (compared().model(name).known_margin for name in ("svm", "network"))
    assert svm.optimum == network.optimum  # one program: same gates, groups and data
    assert svm.excess == pytest.approx(0.0, abs=1e-8)
    trained = fitted_models()["network"].network_
    zeta = trained.coef().reshape(4, 2, -1)  # (H, C, D), row-major
    norm = sum(np.linalg.norm(unit) for unit in zeta)
    smallest = (TRAIN.y * trained.decision(TRAIN.X)).min()
    assert smallest > 0
    assert network.norm == pytest.approx(norm / smallest)
    assert network.excess == pytest.approx(norm / smallest / svm.optimum - 1)
    assert network.min_margin == pytest.approx(smallest / norm)
    assert network.min_margin <= 1 / svm.optimum
    assert svm.margins.min() == pytest.approx(1 / svm.norm)
    np.testing.assert_allclose(network.unit_norms.sum(), 1.0)
    assert svm.support_vectors == len(fitted_models()["svm"].support_)
    assert compared().model("l2").known_margin.optimum != svm.optimum
    assert compared().model("logistic").margin is None


def test_undecided_counts_as_an_error_and_is_said(tmp_path: Path) -> None:
    contexts = HyperplaneContexts.random(TRAIN.X, 1, 4, random_state=0)
    shallow = GLNSVC(contexts=contexts).fit(TRAIN.X, TRAIN.y)
    far = 100 * np.random.default_rng(0).normal(size=(400, 3))
    undecided = shallow.decision_function(far) == 0
    assert undecided.any()
    result = compare({"shallow": shallow}, far, np.ones(400))
    assert (unseen := result.model("shallow").unseen) == np.count_nonzero(undecided)
    page = result.report(tmp_path).read_text("utf-8")
    assert page.count(f"shallow {unseen} of 400") == 2  # of contexts, and of classes
    assert "count as errors" in page
    for label in (-1.0, 1.0):
        result = compare({"shallow": shallow}, far, np.full(400, label))
        expected = np.mean(label * shallow.decision_function(far) <= 0)
        assert result.model("shallow").error == pytest.approx(expected)


def test_without_training_samples_there_are_no_margins() -> None:
    result = compare(fitted_models(), TEST.X, TEST.y)
    assert result.n_train == 0
    assert all(model.margin is None for model in result.models)
    assert np.isnan(result.model("svm").train_error)


def test_two_linear_models_of_one_program() -> None:
    blobs = make_toy("blobs", 40, noise=0.1)
    tight = GatedSVC(tol=1e-10).fit(blobs.X, blobs.y)
    loose = GatedSVC(tol=1e-2).fit(blobs.X, blobs.y)
    result = compare({"loose": loose, "tight": tight}, blobs.X, blobs.y, train=(blobs.X, blobs.y))
    margin = result.model("loose").known_margin
    assert margin.optimum == pytest.approx(tight.solution_.certificate.lower)
    assert np.isnan(result.pair("loose", "tight").ratio)  # neither errs


def test_an_svm_without_a_solution_has_no_error() -> None:
    xor = make_toy("xor", 40)
    with pytest.warns(UserWarning, match="not separable"):
        linear = GatedSVC(on_failure="warn").fit(xor.X, xor.y)
    gated = GLNSVC(10, random_state=0).fit(xor.X, xor.y)
    result = compare({"linear": linear, "gated": gated}, xor.X, xor.y, train=(xor.X, xor.y))
    assert np.isnan(result.model("linear").error)
    assert np.isnan(result.pair("linear", "gated").disagreement)
    assert result.model("gated").error == 0.0


def test_a_reduced_solution_is_judged_on_the_samples_it_kept() -> None:
    y = TRAIN.y.copy()
    y[:2] *= -1
    with pytest.warns(UserWarning, match="left out"):
        reduced = GLNSVC(3, random_state=0, on_failure="drop").fit(TRAIN.X, y)
    margin = compare({"m": reduced}, TRAIN.X, y, train=(TRAIN.X, y)).model("m").known_margin
    assert margin.excess < 1e-5
    assert len(margin.margins) == len(y) - len(reduced.dropped_)


def test_what_is_compared_is_checked() -> None:
    models = {"svm": fitted_models()["svm"]}
    cases: list[tuple[Any, Any, Any, str]] = [
        (models["svm"], TEST.y, None, "mapping"),
        ({"svm": 3}, TEST.y, None, "'svm': int"),
        ({1: models["svm"]}, TEST.y, None, "mapping"),
        ({}, TEST.y, None, "at least one fitted model"),
        (models, TEST.y[:0], None, "one evaluation sample"),
        (models, np.where(TEST.y > 0, "a", "b"), None, "labels must be among the fitted classes"),
        (models, TEST.y[:1], None, "one label a sample"),
        (models, TEST.y[:, None], None, "one label a sample"),
        (models, "a", None, "one label a sample"),
        (models, torch.tensor(TEST.y).to_sparse(), None, "cannot hold"),
        (models, np.ma.masked_less(TEST.y, 0), None, "masked"),
        (models, TEST.y, (TRAIN.X, np.ma.masked_less(TRAIN.y, 0)), "masked"),
        (models, TEST.y, (TRAIN.X,), "pair"),
        (models, TEST.y, TRAIN.X, "pair"),
    ]
    for given, y, train, match in cases:
        with pytest.raises((TypeError, ValueError), match=match):
            compare(given, TEST.X, y, train=train)


def test_excess_of_a_norm() -> None:
    assert excess(3.0, 2.0) == 0.5
    assert excess(np.inf, 2.0) == np.inf
    for unknown in (0.0, np.inf):
        assert np.isnan(excess(3.0, unknown))


def test_questions_to_a_comparison() -> None:
    soft = GLNSVC(n_units=4, random_state=0, C=2.0).fit(TRAIN.X, TRAIN.y)
    models = {"soft": soft, **fitted_models()}
    result = compare(models, TEST.X, TEST.y, train=(TRAIN.X, TRAIN.y))
    network = result.model("network")
    names = [[model.name for model in same] for same in result.programs()]
    assert names == [["soft"], ["svm", "network"], ["l2"]]
    assert result.svm_of(network) is result.model("svm")
    assert [model.name for model in result.soft_svms_of(network)] == ["soft"]
    assert result.svm_of(result.model("neighbours")) is None
    assert result.soft_svms_of(result.model("neighbours")) == []
    assert first_svm([network]) is None
    assert network.known_margin.largest_margin == 1 / network.known_margin.optimum
    assert result.model("soft").known_margin.largest_margin is None
    for name in ("soft", "l2"):  # each the only model of its program
        margin = result.model(name).known_margin
        assert margin.optimum == margin.certificate.lower
    last = network.history[-1]
    assert network.known_margin.excess_at(last) == pytest.approx(network.known_margin.excess)
    assert np.isnan(network.known_margin.excess_at(replace(last, min_margin=-1.0)))
    with pytest.raises(ValueError, match="no margin"):
        result.model("logistic").known_margin  # noqa: B018
    assert set(result.history_frame()["model"]) == {"network"}


def test_what_an_svm_proves_inseparable_holds_for_its_program() -> None:
    X, y = np.vstack([TRAIN.X, TRAIN.X[:1]]), np.append(TRAIN.y, -TRAIN.y[0])
    with pytest.warns(UserWarning, match="not separable"):
        svm = GLNSVC(4, random_state=0, on_failure="warn").fit(X, y)
    network = GLNClassifier(4, random_state=0, steps=5).fit(X, y)
    result = compare({"svm": svm, "network": network}, TEST.X, TEST.y, train=(X, y))
    assert [model.has_predictor for model in result.models] == [False, True]
    assert all(model.inseparable for model in result.models)
    assert result.model("network").known_margin.largest_margin is None


def test_what_is_inseparable_without_an_offset_may_be_separable_with_one() -> None:
    X, y = [[1.0], [2.0]], [1, -1]
    models = {
        "with": GatedSVC(fit_intercept=True).fit(X, y),
        "without": GatedSVC(fit_intercept=False, on_failure="warn"),
    }
    with pytest.warns(UserWarning, match="not separable"):
        models["without"].fit(X, y)
    result = compare(models, X, y, train=(X, y))
    assert result.model("without").inseparable
    assert not result.model("with").inseparable


def test_a_kept_solution_is_not_certified_again() -> None:
    margin = compared().model("svm").known_margin
    assert margin.certificate is fitted_models()["svm"].solution_.certificate
    problem, solution = fitted_models()["svm"].solution_.problem, fitted_models()["svm"].solution_
    again = certify(problem, coef=solution.coef, alpha=solution.alpha)
    assert (again.lower, again.upper) == (margin.certificate.lower, margin.certificate.upper)


def test_a_comparison_prints_a_short_table() -> None:
    lines = str(compared()).splitlines()
    table, said = lines[: 1 + len(fitted_models())], lines[2 + len(fitted_models()) :]
    assert [line.split()[0] for line in table] == ["model", *fitted_models()]
    count = compared().model("svm").count
    assert f"{count.count} of {count.total}" in lines[1]
    (conclusion,) = conclusions(compared())  # of the only network
    assert said == [conclusion.title]
    page = compared()._repr_html_()
    assert page.count("<tr>") == 1 + len(fitted_models())
    assert escape(conclusion.title) in page
    named = compare({"<b>": fitted_models()["svm"]}, TEST.X, TEST.y)
    assert "&lt;b&gt;" in named._repr_html_()
    assert "svm, l2, network" in repr(compared())


@pytest.mark.slow
def test_lists_frames_and_names_of_classes(tmp_path: Path) -> None:
    """What users have: a frame with named columns, a series of strings, lists."""
    frame = pd.DataFrame(TRAIN.X[:40], columns=["east", "north", "one"])
    names = pd.Series(np.where(TRAIN.y[:40] > 0, "up", "down"))
    svm = GLNSVC(8, random_state=0).fit(frame, names)
    forest = KNeighborsClassifier(3).fit(frame, names)
    result = compare({"svm": svm, "near": forest}, frame, names, train=(frame, names))
    page = result.report(tmp_path / "report", title="Moons").read_text("utf-8")
    assert "<h1>Moons</h1>" in page
    assert "down" in page
    assert (tmp_path / "report" / "figures" / "regions-1.png").exists()
    inputs, labels = frame.to_numpy().tolist(), names.tolist()
    listed = {"svm": GLNSVC(8, random_state=0).fit(inputs, labels)}
    again = compare(listed, inputs, labels, train=(inputs, labels))
    assert again.model("svm").known_margin.norm == result.model("svm").known_margin.norm


def test_a_conclusion_says_what_is_known_of_the_samples() -> None:
    models, train = {"svm": fitted_models()["svm"]}, (TRAIN.X, TRAIN.y)
    assert f"{len(TEST.y)} unseen" in str(compare(models, TEST.X, TEST.y, train=train))
    assert f"{len(TRAIN.y)} training" in str(compare(models, *train, train=train))
    assert f"{len(TRAIN.y)} samples" in str(compare(models, *train))


@pytest.mark.slow
def test_a_pipeline_is_compared_by_its_last_step(tmp_path: Path) -> None:
    """With the margin of that step on the inputs that the steps before make."""
    scaler = MaxAbsScaler().fit(TRAIN.X)
    svm = GLNSVC(n_units=4, random_state=0)
    whole = make_pipeline(MaxAbsScaler(), make_pipeline("passthrough", svm)).fit(TRAIN.X, TRAIN.y)
    bare = GLNSVC(n_units=4, random_state=0).fit(scaler.transform(TRAIN.X), TRAIN.y)
    other = make_pipeline(MaxAbsScaler(), LogisticRegression()).fit(TRAIN.X, TRAIN.y)
    train = (TRAIN.X, TRAIN.y)
    searched = GridSearchCV(whole, {"maxabsscaler": [MaxAbsScaler()]}, cv=2).fit(*train)
    models = {"whole": whole, "other": other, "on the inputs": fitted_models()["svm"]}
    models["searched"] = searched
    result = compare(models, TEST.X, TEST.y, train=train)
    scaled = (scaler.transform(TRAIN.X), TRAIN.y)
    expected = compare({"bare": bare}, scaler.transform(TEST.X), TEST.y, train=scaled)
    found, alone = result.model("whole"), expected.model("bare")
    assert (found.transformed, alone.transformed) == (True, False)
    assert found.known_margin.excess == pytest.approx(alone.known_margin.excess)
    assert found.known_margin.norm == pytest.approx(alone.known_margin.norm)
    assert (found.error, found.train_wrong) == (alone.error, alone.train_wrong)
    assert found.known_margin.program != result.model("on the inputs").known_margin.program
    assert result.model("other").margin is None
    assert result.model("searched").known_margin.norm == pytest.approx(found.known_margin.norm)
    assert "whole (3 inputs), searched (3 inputs): a pipeline" in result.report(tmp_path).read_text(
        "utf-8"
    )


@pytest.mark.parametrize(
    "inputs",
    [
        np.array([[1.0], [np.nan]]),
        pd.DataFrame({"text": ["a", None], "size": [np.nan, 2.0]}),
        pd.DataFrame({"size": pd.array([1, pd.NA], "Int64")}),
        sp.csr_array([[1.0], [np.nan]]),
    ],
    ids=["array", "frame", "nullable", "sparse"],
)
def test_samples_with_gaps_are_the_same_samples(inputs: Any) -> None:
    others = inputs[::-1]  # the same, and a gap in another place
    model = DummyClassifier().fit([[0.0], [0.0]], [0, 1])
    for train, held_out in ((inputs.copy(), False), (others, True)):
        compared = compare({"it": model}, inputs, [0, 1], train=(train, [0, 1]))
        assert compared.held_out is held_out


@pytest.mark.slow
@pytest.mark.parametrize("others", [0, 1])
def test_a_report_on_inputs_that_a_pipeline_encodes(tmp_path: Path, others: int) -> None:
    """Texts and gaps; two inputs are no plane then."""
    kinds = np.where(TRAIN.y > 0, "yes", "no")
    inputs = pd.DataFrame({"kind": kinds, "size": TRAIN.X[:, 0]})
    inputs.loc[3, "size"] = np.nan
    inputs = inputs.assign(**{f"other {i}": 0.0 for i in range(others)})
    encoder = ("kind", OneHotEncoder(), ["kind"])
    encode = ColumnTransformer([encoder], remainder=SimpleImputer(), sparse_threshold=1.0)
    model = make_pipeline(encode, GLNSVC(2, random_state=0)).fit(inputs, TRAIN.y)
    assert sp.issparse(encode.fit_transform(inputs))
    train = (inputs, TRAIN.y)
    written = compare({"svm": model}, inputs, TRAIN.y, train=train).report(tmp_path)
    assert f"{2 + others}" in written.read_text("utf-8")
    assert not [*(tmp_path / "figures").glob("regions-*.svg")]


@pytest.mark.slow
def test_a_report_on_models_with_a_weight_for_each_sample_and_without(tmp_path: Path) -> None:
    train = TRAIN.X, TRAIN.y
    each = MaxMarginSVC(C=0.1).fit(*train, sample_weight=np.linspace(1, 2, len(TRAIN.y)))
    models = {"each": each, "one": MaxMarginSVC(C=0.1).fit(*train)}
    compare(models, *train, train=train).report(tmp_path)
    table = pd.read_csv(tmp_path / "models.csv")
    assert table["C"].to_numpy() == pytest.approx([0.1, 0.1])  # the least


def test_a_plot_has_what_is_known() -> None:
    assert len(compared().plot().axes) == 2
    assert len(compare(fitted_models(), TEST.X, TEST.y).plot().axes) == 1


def test_a_report_needs_a_title_of_text_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="text"):
        compared().report(tmp_path, title=cast(Any, pd.NA))
    (tmp_path / "file").write_text("kept")
    for place in ("file", "file/deeper"):
        with pytest.raises(OSError, match="folder"):
            compared().report(tmp_path / place)
    assert (tmp_path / "file").read_text() == "kept"


@pytest.mark.slow
def test_a_report_replaces_no_file_of_another_origin(tmp_path: Path) -> None:
    (tmp_path / "figures").mkdir()
    holiday = tmp_path / "figures" / "holiday.png"
    holiday.write_bytes(b"mine")
    one = compare({"near": fitted_models()["neighbours"]}, TEST.X, TEST.y)
    with pytest.raises(FileExistsError, match="figures"):
        one.report(tmp_path)
    assert holiday.read_bytes() == b"mine"
    for _ in range(2):
        assert one.report(tmp_path / "mine").is_file()


def test_the_text_of_a_model_is_short() -> None:
    assert all(len(repr(model)) < 600 for model in compared().models)


def test_solutions_and_trainings_show_themselves() -> None:
    solution, training = fitted_models()["svm"].solution_, fitted_models()["network"].training_
    page = solution._repr_html_()
    assert solution.status.label in page
    assert f"{len(solution.support)} of {len(solution.alpha)}" in page
    assert str(training).splitlines()[0].startswith("step")
    assert str(training).splitlines()[-1].startswith(f"{training.steps:,}")
    assert training.ending.message in training._repr_html_()
