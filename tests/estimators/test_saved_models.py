"""Saved models: what comes back is what was saved, and nothing in a file can run."""

import json
import pickle
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import safetensors.numpy
from sklearn.exceptions import NotFittedError

import implicit_bias as ib
from implicit_bias.datasets.toys import make_toy
from implicit_bias.estimators.base import BinaryClassifier
from implicit_bias.estimators.saved_models import FileError, load_model, save_model
from implicit_bias.networks import GLN
from implicit_bias.problem.gating import HyperplaneContexts
from implicit_bias.training.limit import LimitConfig, LimitResult, train_to_limit
from implicit_bias.training.losses import LOSSES, MarginLoss
from modules import known, reloaded
from system import retold

MOONS = make_toy("moons", 60, noise=0.05)
LABELS = np.where(MOONS.y > 0, "up", "down")
FORMAT = "implicit-bias model 1"  # which has no checksum
CONTEXTS = HyperplaneContexts.random(MOONS.X, 4, 1, random_state=0)


def relu() -> ib.ReLUClassifier:
    return ib.ReLUClassifier((12, 12), random_state=0, steps=300, dtype="float32")


# Fitted by the tests: each process of a run reads this file, few run its tests.
MODELS: dict[str, Callable[[], BinaryClassifier]] = {
    "svm-gln": lambda: ib.GLNSVC(n_units=4, random_state=0),
    "svm-l2": lambda: ib.GLNSVC(n_units=4, norm="l2", threshold=np.zeros((4, 1)), random_state=0),
    "shallow": lambda: ib.GLNSVC(n_units=1, n_hyperplanes=3, random_state=0),
    "gated-relu": lambda: ib.GatedReLUSVC(n_units=6, random_state=0),
    "linear": lambda: ib.GatedSVC(C=1.0),
    "hidden-layer": lambda: ib.HiddenLayerSVC(relu().fit(MOONS.X, LABELS), C=10.0),
    "hidden-layer-gated": lambda: ib.HiddenLayerSVC(GLN([CONTEXTS], seed=0), C=1.0),
    "gln": lambda: ib.GLNClassifier((4, 3), 2, random_state=0, steps=50),
    "biased-gln": lambda: ib.GLNClassifier(
        4, random_state=0, steps=50, readout_bias=True, dtype="float32"
    ),
    "relu": relu,
}


@cache
def fitted_model(name: str) -> BinaryClassifier:
    return MODELS[name]().fit(MOONS.X, LABELS)


@pytest.mark.every(3)
@pytest.mark.parametrize("name", MODELS)
def test_round_trip(name: str, tmp_path: Path) -> None:
    model = fitted_model(name)
    file = tmp_path / "sub" / "model.safetensors"
    save_model(file, model, {"seed": 1})
    saved = load_model(file)
    assert saved.facts == {"seed": 1}
    assert type(saved.model) is type(model)
    np.testing.assert_array_equal(
        saved.model.decision_function(MOONS.X), model.decision_function(MOONS.X)
    )
    np.testing.assert_array_equal(saved.model.predict(MOONS.X), model.predict(MOONS.X))
    assert saved.model.history() == model.history()
    before, after = model.margin_view(), saved.model.margin_view()
    if before is not None and before.solution is not None:
        solution = known(known(after).solution)
        assert solution.status is before.solution.status
        assert solution.certificate.gap == before.solution.certificate.gap
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def to_limit(config: LimitConfig) -> ib.GLNClassifier:
    model = ib.GLNClassifier(3, random_state=0)
    return model.fit_by(
        MOONS.X, LABELS, lambda network, X, y: train_to_limit(network, X, y, config)
    )


def test_names_of_columns_come_back(tmp_path: Path) -> None:
    frame = pd.DataFrame(MOONS.X).add_prefix("x")
    save_model(tmp_path / "model", ib.GatedSVC(C=1.0).fit(frame, LABELS))
    model = load_model(tmp_path / "model").model
    assert list(model.feature_names_in_) == list(frame.columns)


def test_a_training_towards_the_limit_is_kept(tmp_path: Path) -> None:
    model = to_limit(LimitConfig(steps=30, loss=LOSSES["logistic"]))
    before, after = model.training_, reloaded(model, tmp_path)
    assert isinstance(before, LimitResult)
    assert isinstance(after.training_, LimitResult)
    assert after.training_.config == before.config
    assert after.training_.ending is before.ending
    assert after.training_.frame().equals(before.frame())
    assert after.n_iter_ == 30


def test_a_loss_of_ones_own_is_no_data(tmp_path: Path) -> None:
    own = MarginLoss("exponential", lambda q: -2.0 * q)
    with pytest.raises(TypeError, match="cannot save a MarginLoss"):
        save_model(tmp_path / "model.safetensors", to_limit(LimitConfig(steps=3, loss=own)))


def test_a_file_cannot_run_code(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return (pytest.fail, ("unpickled",))

    file = tmp_path / "bomb.safetensors"
    file.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(FileError, match=r"bomb\.safetensors is no saved model"):
        load_model(file)


@pytest.mark.parametrize(
    "model",
    [
        {"object": "Popen", "fields": {"args": "true"}},
        {"classifier": "GLNSVC", "parameters": {"dict": []}, "fitted": {"dict": [["fit", 1]]}},
        {"classifier": "GLNSVC", "parameters": {"dict": []}, "fitted": {"dict": [["_x_", 1]]}},
        {"classifier": "BaseEstimator", "parameters": {"dict": []}, "fitted": {"dict": []}},
        {"network": "Module", "options": {"dict": []}, "weights": {"dict": []}},
        {"array": "7"},
        {"other": 1},
        3,
    ],
)
def test_untrusted_headers(model: Any, tmp_path: Path) -> None:
    file = tmp_path / "untrusted.safetensors"
    header = {"format": FORMAT, "version": "0", "model": model, "facts": {}}
    safetensors.numpy.save_file({}, file, metadata={"header": json.dumps(header)})
    with pytest.raises(FileError, match="no saved model"):
        load_model(file)


HUGE = 2**20


@pytest.mark.parametrize("kind", ["ReLUNetwork", "FrozenGateReLU", "GLN"])
def test_sizes_that_the_arrays_do_not_have_are_refused_first(kind: str, tmp_path: Path) -> None:
    """Sizes in a small file whose weights no machine could hold."""
    arrays = {
        "weights": np.zeros((1, 33, 1)),
        "thresholds": np.zeros((1, 33)),
        "occurs": np.zeros((1, 1), dtype=bool),
        "small": np.zeros((1, 1)),
    }
    named = {key: {"array": key} for key in ("weights", "thresholds", "occurs")}
    contexts = {"object": "HyperplaneContexts", "fields": named | {"single_precision": False}}
    sizes = [["n_features", HUGE], ["widths", {"list": [HUGE]}]]
    if kind == "GLN":
        sizes = [["gatings", {"tuple": [contexts]}], ["readout_bias", False]]
    small = [["hidden_weights.0", {"array": "small"}], ["readout", {"array": "small"}]]
    model = {
        "network": kind,
        "options": {"dict": [["dtype", "float64"], *sizes]},
        "weights": {"dict": small},
    }
    header = {"format": FORMAT, "version": "0", "model": model, "facts": {}}
    file = tmp_path / "small.safetensors"
    safetensors.numpy.save_file(arrays, file, metadata={"header": json.dumps(header)})
    assert file.stat().st_size < 6000
    with pytest.raises(FileError, match=r"size mismatch for hidden_weights.0"):
        load_model(file)


def fitted_linear() -> ib.MaxMarginSVC:
    return ib.MaxMarginSVC().fit(np.eye(3), ["a", "b", "b"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda coef: np.full_like(coef, np.nan), "not finite"),
        (lambda coef: np.hstack([coef, coef]), "damaged"),
        (lambda coef: coef[:0], "damaged"),
    ],
    ids=["nan", "wider", "none"],
)
def test_a_model_that_predicts_nothing_is_damaged(
    change: Callable[[Any], Any], message: str, tmp_path: Path
) -> None:
    file = tmp_path / "model.safetensors"
    model = fitted_linear()
    save_model(file, model)
    (name,) = (
        key
        for key, value in safetensors.numpy.load_file(file).items()
        if value.shape == model.coef_.shape and (value == model.coef_).all()
    )
    retold(file, FORMAT, lambda _, tensors: tensors.update({name: change(tensors[name])}))
    with pytest.raises(FileError, match=message):
        load_model(file)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *((field, None) for field in ("support", "active", "certificate")),
        *(("n_features_in_", width) for width in (None, "x", 2, 2**70)),
    ],
)
def test_a_part_of_another_type_or_width_is_damage(field: str, value: Any, tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    save_model(file, fitted_linear())

    def change(header: Any, _: dict[str, Any]) -> None:
        fitted = dict(header["model"]["fitted"]["dict"])
        part = fitted if field in fitted else fitted["solution_"]["fields"]
        assert field in part
        part[field] = value
        header["model"]["fitted"]["dict"] = [[*pair] for pair in fitted.items()]

    retold(file, FORMAT, change)
    with pytest.raises(FileError, match="damaged"):
        load_model(file)


@pytest.mark.parametrize("kind", [">i4", ">f8", ">U4", "<u8", object])
def test_labels_of_every_type_come_back(kind: Any, tmp_path: Path) -> None:
    """Of another byte order, too, of which the checksum was that of the other file."""
    y = np.array([1, 2, 2]).astype("U4" if kind is object else kind).astype(kind)
    model = ib.MaxMarginSVC().fit(np.eye(3), y)
    found = reloaded(model, tmp_path)
    assert found.predict(np.eye(3)).tolist() == model.predict(np.eye(3)).tolist() == y.tolist()


def test_labels_that_are_no_data_are_said(tmp_path: Path) -> None:
    model = ib.MaxMarginSVC().fit(np.eye(3), np.array([1, 2, 2]).astype("M8[D]"))
    with pytest.raises(TypeError, match="cannot save a ndarray of datetime64"):
        save_model(tmp_path / "model.safetensors", model)


def test_facts_that_look_like_infinity_can_be_read(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    save_model(file, fitted_linear(), {"word": {"nonfinite": "word"}})
    assert load_model(file).facts == {"word": {"nonfinite": "word"}}


def test_damaged_files(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    save_model(file, fitted_model("svm-gln"))
    whole = file.read_bytes()
    for damaged in (b"", whole[:100], whole[:-50]):
        file.write_bytes(damaged)
        with pytest.raises(FileError, match="damaged"):
            load_model(file)
    with pytest.raises(FileNotFoundError, match="no such file"):
        load_model(tmp_path / "absent")


def test_a_failed_save_leaves_the_old_file(tmp_path: Path) -> None:
    gating = fitted_model("svm-gln").architecture_.gating

    class Foreign(type(gating)):  # type: ignore[misc]
        """A gating that this package does not know."""

    file = tmp_path / "model.safetensors"
    save_model(file, fitted_model("svm-gln"))
    old = file.read_bytes()
    foreign = ib.GatedSVC(Foreign(gating.weights, gating.thresholds, gating.occurs))
    with pytest.raises(TypeError, match="cannot save a Foreign"):
        save_model(file, foreign.fit(MOONS.X, MOONS.y))
    assert file.read_bytes() == old


@pytest.mark.parametrize("model", [ib.GLNSVC(), ib.ReLUClassifier()])
def test_an_unfitted_model_is_not_saved(model: BinaryClassifier, tmp_path: Path) -> None:
    with pytest.raises(NotFittedError, match="not fitted.*nothing to save"):
        save_model(tmp_path / "model.safetensors", model)
    assert not list(tmp_path.iterdir())


@pytest.mark.every(2)
@pytest.mark.parametrize("every", [151, 11])
def test_no_flipped_byte_gives_another_model(every: int, tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    model = ib.GatedSVC(C=1.0).fit(MOONS.X, LABELS)
    save_model(file, model, {"units": 3})
    whole = file.read_bytes()
    for place in range(0, len(whole), every):
        for flipped in (1, 0x20, 0x80):
            changed = bytearray(whole)
            changed[place] ^= flipped
            file.write_bytes(changed)
            try:
                found = load_model(file)
            except FileError:
                continue
            np.testing.assert_array_equal(found.model.coef_, model.coef_)
            assert (found.model.get_params(), found.facts) == (model.get_params(), {"units": 3})


def test_arguments_in_the_wrong_order_are_told_so() -> None:
    with pytest.raises(TypeError, match="'svm.safetensors', model.*pipeline.*joblib"):
        save_model(ib.GLNSVC(2), "svm.safetensors")  # type: ignore[arg-type]


def test_what_is_saved_is_named_to_others() -> None:
    model: Any = ib.GaLUClassifier(3, random_state=0).fit(MOONS.X, LABELS)
    with pytest.raises(TypeError, match=r"a fitted GatedSVC, .*InfiniteWidthSVC, not a GaLU"):
        save_model("galu.safetensors", model)
