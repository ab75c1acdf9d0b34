"""Verdicts: the one that the facts ask for, what it states, and the facts of a comparison."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

import implicit_bias as ib
from comparison.samples import TEST, compared, fitted_models
from example_modules import known
from implicit_bias.base.counts import Count, PairedDifference
from implicit_bias.comparison.verdict import (
    WORDS,
    Conclusion,
    Ranking,
    Standing,
    Verdict,
    conclude,
)

STANDING = Standing(
    network="net",
    svm="svm",
    excess=0.5,
    train_wrong=Count(0, 9),
    wrong=Count(2, 100),
    agreement=Count(90, 100),
    chance_agreement=0.8,
    to_limit="python go.py",
)


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, Verdict.NOT_CONVERGED),
        ({"excess": 0.01}, Verdict.CONVERGED),
        ({"excess": 0.0101}, Verdict.NOT_CONVERGED),
        ({"excess": 0.002, "dead": 1, "relaxed": True}, Verdict.CONVERGED),
        ({"relaxed": True}, Verdict.RELAXED),
        ({"dead": 9}, Verdict.DEAD_UNITS),
        ({"excess": math.inf, "train_wrong": None}, Verdict.NOT_SEPARATED),
        ({"train_wrong": Count(1, 9)}, Verdict.NOT_SEPARATED),
        ({"excess": math.nan}, Verdict.NO_BOUND),
        ({"svm": None, "agreement": None}, Verdict.NO_SVM),
        ({"svm": None, "trained_on_given": False}, Verdict.NO_TRAINING_SAMPLES),
        ({"inseparable": True, "gates_moved": True}, Verdict.INSEPARABLE),
        ({"inseparable": True, "soft": "2"}, Verdict.INSEPARABLE),
        ({"soft": "2", "geometry": "linf"}, Verdict.SOFT),
        ({"geometry": "linf", "excess": 0.001}, Verdict.OTHER_NORM),
        ({"constrained": True, "geometry": "linf"}, Verdict.CONSTRAINED),
        ({"local": True}, Verdict.LOCAL),
    ],
)
def test_verdict_on_a_network(changes: dict[str, Any], verdict: Verdict) -> None:
    conclusion = conclude(replace(STANDING, **changes))
    assert conclusion.verdict is verdict
    assert 1 <= len(conclusion.lines) <= 3
    assert "net" in conclusion.headline
    advised = verdict in (Verdict.NOT_CONVERGED, Verdict.NOT_SEPARATED)
    assert ("python go.py" in str(conclusion)) is advised


def test_what_is_stated_of_a_network() -> None:
    found, agreement, _ = map(str, conclude(STANDING).lines)
    assert "50 %" in found
    assert "67 %" in found  # the margin is 1 / 1.5 of the maximum
    for number in ("90 of 100", "83 to 94 %", "80 %"):
        assert number in agreement
    # Of what is not known nothing is stated.
    alone = replace(STANDING, agreement=None, wrong=None, to_limit="")
    assert [str(line) for line in conclude(alone).lines] == [found]
    assert "final gates" in conclude(replace(STANDING, gates_moved=True)).headline
    assert "final gates" not in found
    # Beside "at most 1 %" stands no other excess that reads as 1 %.
    assert "0.998 % above" in conclude(replace(STANDING, excess=0.00998)).headline
    assert "1.003 % above" in conclude(replace(STANDING, excess=0.01003)).headline
    assert "1.000 % above" in conclude(replace(STANDING, excess=0.01)).headline


@pytest.mark.parametrize("facts", [STANDING, Ranking(models=["a"], best="a", count=Count(3, 9))])
def test_samples_are_called_test_samples_only_where_they_are_known_to_be(facts: Any) -> None:
    names = {True: "test samples", False: "training samples"}
    for held_out in (True, False, None):
        stated = str(conclude(replace(facts, held_out=held_out)))
        for of, name in names.items():
            assert (name in stated) is (of is held_out)
    assert "test samples" in str(conclude(facts))


RANKING = Ranking(models=["a", "b"], best="a", count=Count(3, 100))
BETTER = PairedDifference(both=3, only_first=0, only_second=37, neither=60)


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, Verdict.LOWEST_ERROR),
        ({"models": ["a"]}, Verdict.ONE_MODEL),
        ({"tied": ["b"]}, Verdict.NOT_DECIDED),
        ({"best": "", "count": Count(0, 0)}, Verdict.NO_PREDICTOR),
    ],
)
def test_verdict_on_all_models(changes: dict[str, Any], verdict: Verdict) -> None:
    conclusion = conclude(replace(RANKING, **changes))
    assert conclusion.verdict is verdict
    assert len(conclusion.lines) == 1


def test_the_best_model_is_read_against_the_most_frequent_class() -> None:
    facts = replace(RANKING, majority="no", beside_majority=BETTER, gap=2e-7)
    _, majority, certified = map(str, conclude(facts).lines)
    assert "“no”" in majority
    assert "40 %" in majority
    assert "2e-07" in certified


# --- the facts of a comparison -------------------------------------------------------------------


@dataclass(frozen=True)
class Fixed:
    """A classifier that answers what it was told."""

    answers: NDArray[Any]

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the answers."""
        return self.answers[: len(np.asarray(X))]


def only(conclusions: Sequence[Conclusion]) -> Conclusion:
    (conclusion,) = conclusions
    return conclusion


def test_errors_that_do_not_differ_significantly() -> None:
    """One sample apart is a tie; far apart is a ranking."""
    X = np.arange(200.0)[:, None]
    y = np.tile([0, 1], 100)
    models = {}
    for name, n_wrong in (("good", 10), ("tied", 11), ("poor", 60)):
        models[name] = Fixed(np.where(np.arange(200) < n_wrong, 1 - y, y))
    tied = ib.compare(models, X, y).ranking()
    assert (tied.best, tied.tied, tied.count) == ("good", ["tied"], Count(10, 200))
    assert (tied.majority, tied.held_out) == ("", None)
    del models["tied"]
    assert only(ib.compare(models, X, y).conclusions()).verdict is Verdict.LOWEST_ERROR


def test_the_most_frequent_class_is_that_of_the_training_samples() -> None:
    X = np.arange(100.0)[:, None]
    y = np.repeat(["a", "b"], [60, 40])
    model = Fixed(np.where(np.arange(100) < 5, "b", y))
    ranking = ib.compare({"it": model}, X, y, train=(X, y)).ranking()
    assert (ranking.majority, ranking.held_out) == ("a", False)
    assert known(ranking.beside_majority) == PairedDifference(0, 5, 40, 55)
    # Its frequency counts in the training samples, its error on the test samples.
    mostly_b = np.repeat(["a", "b"], [30, 70])
    ranking = ib.compare({"it": model}, X, y, train=(X, mostly_b)).ranking()
    assert ranking.majority == "b"
    assert known(ranking.beside_majority) == PairedDifference(5, 0, 55, 40)


def test_a_network_beside_its_svm() -> None:
    comparison = compared()
    network = comparison.model("network")
    facts = comparison.standing(network)
    assert (facts.network, facts.svm) == ("network", "svm")
    assert facts.excess == network.known_margin.excess
    assert facts.agreement == comparison.agreement("network", "svm")
    assert facts.chance_agreement == 1 - comparison.pair("network", "svm").by_chance
    assert (facts.held_out, facts.dead, facts.soft) == (True, 0, "")
    unknown = ib.compare(fitted_models(), TEST.X, TEST.y).conclusions()
    assert only(unknown).verdict is Verdict.NO_TRAINING_SAMPLES


def test_dead_units_are_those_of_norm_0_that_the_svm_uses() -> None:
    network = compared().model("network")
    dead, small, *_ = np.flatnonzero(compared().model("svm").known_margin.active).tolist()
    norms = network.known_margin.unit_norms.copy()
    norms[dead] = 0.0
    norms[small] = 1e-9  # it has a gradient, and may grow
    changed = replace(network, margin=replace(network.known_margin, unit_norms=norms))
    others = [model for model in compared().models if model is not network]
    facts = replace(compared(), models=(changed, *others)).standing(changed)
    assert facts.dead == 1
    assert facts.verdict is Verdict.DEAD_UNITS


def test_each_network_is_advised_how_to_train_it() -> None:
    """Where nothing is given, as in Python; where no way is given for it, not at all."""
    network = replace(compared().model("network"), train_wrong=Count(1, 9))
    others = [model for model in compared().models if model.name != "network"]
    comparison = replace(compared(), models=(network, *others))
    for given, advice in ((None, "train_to_limit"), ({"network": "go on"}, "go on")):
        assert advice in str(only(comparison.conclusions(given)))
    assert "To train" not in str(only(comparison.conclusions({"other": "go on"})))


def test_advice_in_python_runs() -> None:
    trainers: list[Any] = []
    network = SimpleNamespace(fit_by=lambda X, y, trainer: trainers.append(trainer))
    exec(f"network.{WORDS['to_limit']}", {"implicit_bias": ib, "network": network, "X": 0, "y": 0})
    assert trainers == [ib.train_to_limit]
