"""C chosen by cross-validation: what is counted, by brute force; and what is kept of it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.model_selection import StratifiedKFold

from implicit_bias import GLNSVC, MaxMarginSVC, compare
from implicit_bias.base.validation import Array
from modules import known

RNG = np.random.default_rng(0)


def blobs(n_classes: int) -> tuple[Array, Array]:
    """Return overlapping samples of classes of different sizes."""
    y = np.repeat(np.arange(n_classes), [30, 12, 9][:n_classes])
    return 1.2 * np.eye(3)[y] + RNG.normal(size=(len(y), 3)), y.astype(float)


@pytest.mark.slow
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_what_is_left_out_is_counted_by_its_weight(n_classes: int, class_weight: Any) -> None:
    X, y = blobs(n_classes)
    svm = MaxMarginSVC(C="auto", class_weight=class_weight).fit(X, y)
    found = known(svm.C_search_)
    assert np.max(svm.fitted_C_) == pytest.approx(
        found.C
        * (1 if class_weight is None else len(y) / n_classes / np.bincount(y.astype(int)).min())
    )
    assert found.errors.min() == found.errors[found.values.tolist().index(found.C)]
    whole = np.ones(len(y))
    if class_weight is not None:
        whole = (len(y) / n_classes / np.bincount(y.astype(int)))[y.astype(int)]
    place = len(found.values) - 1  # where classifiers differ from each other least
    wrong = np.zeros(len(y), dtype=bool)
    for fold, rest in StratifiedKFold(5, shuffle=True, random_state=0).split(X, y):
        one = MaxMarginSVC(C=found.values[place]).fit(X[fold], y[fold], sample_weight=whole[fold])
        wrong[rest] = one.predict(X[rest]) != y[rest]
    # One sample may be so near the boundary that the tolerance of the search decides.
    assert found.errors[place] == pytest.approx(
        whole @ wrong / whole.sum(), abs=whole.max() / whole.sum()
    )


@pytest.mark.slow
def test_the_search_is_shown(tmp_path: Path) -> None:
    X, y = (part[24:32] for part in blobs(2))  # two folds, as one class has two samples
    svm = GLNSVC(2, C="auto", random_state=0).fit(X, y)
    assert known(svm.C_search_).folds == 2
    page = compare({"svm": svm}, X, y, train=(X, y)).report(tmp_path / "report")
    assert f"svm: {svm.C_search_}." in page.read_text("utf-8")
    assert svm.set_params(C=1.0).fit(X, y).C_search_ is None


def test_a_class_of_one_sample_cannot_be_left_out() -> None:
    with pytest.raises(ValueError, match="another"):
        MaxMarginSVC(C="auto").fit(np.eye(3), [0, 0, 1])
    with pytest.raises(ValueError, match="auto, or a number"):
        MaxMarginSVC(C="best").fit(np.eye(3), [0, 0, 1])  # type: ignore[arg-type]
