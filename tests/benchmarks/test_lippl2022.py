"""The replication study, data side: as-published operators, further models, grids."""

import json
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from benchmarks import catalogue, harness
from benchmarks.former import main
from benchmarks.harness import Row
from benchmarks.lippl2022 import as_published, draws, further_models, grids, released_training
from benchmarks.lippl2022.cells import Models, Setting, compute
from example_modules import known
from implicit_bias.estimators.networks import GLNClassifier
from implicit_bias.estimators.svm import GatedSVC, HasGating
from implicit_bias.networks import GLN
from implicit_bias.problem.gating import HyperplaneContexts
from mnist import DIGIT, check_released, needs_mnist

STUDY = Path(__file__).parents[2] / "benchmarks" / "lippl2022"
ROUNDING = 1e-9


def contexts(X: np.ndarray, n_units: int = 3, n_hyperplanes: int = 2) -> HyperplaneContexts:
    return HyperplaneContexts.random(X, n_units, n_hyperplanes, random_state=0)


@pytest.fixture
def X() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(60, 4))


# --- as-published operators --------------------------------------------------------------------


def test_folds_are_what_their_reshapes_make(X: np.ndarray) -> None:
    """Flattened in row-major order, folded back in column-major order."""
    gating = contexts(X)
    unit_of = np.arange(gating.n_units * gating.n_contexts).reshape(
        (gating.n_units, gating.n_contexts), order="F"
    )
    folds = as_published.folds(gating)
    assert [set(np.flatnonzero(folds == g)) for g in range(3)] == [set(row) for row in unit_of]
    assert not np.array_equal(folds, gating.groups)


def test_operator_is_their_formula(X: np.ndarray) -> None:
    """Sum over all columns / HC - sum over the fold + C zeta, for random coefficients."""
    gating = contexts(X)
    H, C = gating.n_units, gating.n_contexts
    zeta = np.random.default_rng(1).normal(size=(H * C, 5))
    folded = zeta.T.reshape((5, H, C), order="F")  # [d, g, c] is column g + H c
    theirs = folded.sum((1, 2), keepdims=True) / (H * C) - folded.sum(2, keepdims=True) + C * folded
    ours = as_published.operator(gating) @ zeta
    np.testing.assert_allclose(ours.T, theirs.reshape((5, H * C), order="F"), atol=ROUNDING)


def test_metric_is_the_pseudo_inverse_but_for_the_free_columns(X: np.ndarray) -> None:
    gating, free = contexts(X), 0.01
    A = as_published.operator(gating)
    values, vectors = np.linalg.eigh(A.T @ A)
    assert np.count_nonzero(values < ROUNDING) == gating.n_units - 1
    values[values < ROUNDING] = free**2
    expected = (vectors / values) @ vectors.T
    np.testing.assert_allclose(as_published.metric(gating, free), expected, rtol=1e-8)


def test_the_formula_with_the_right_fold_has_no_free_direction(X: np.ndarray) -> None:
    """On zeta that a predictor can have, its norm is that of A folded by units, by brute force."""
    gating = contexts(X)
    H, C = gating.n_units, gating.n_contexts
    rng = np.random.default_rng(1)
    zeta = gating.gates(X).toarray().T @ rng.normal(size=(len(X), 5))  # the range of all V
    by_unit = zeta.reshape(H, C, 5)  # column h C + c: row-major
    theirs = by_unit.sum((0, 1)) / (H * C) - by_unit.sum(1, keepdims=True) + C * by_unit
    metric = as_published.formula_metric(gating)
    norm = np.sqrt(np.trace(zeta.T @ np.linalg.pinv(metric) @ zeta))
    assert norm == pytest.approx(np.linalg.norm(theirs), rel=1e-9)
    # Its mask, times C^2: units whose contexts coincide, - H / C + H C.
    chosen = gating.contexts(X)
    agree = (chosen[:, None] == chosen).sum(2)
    gates = gating.gates(X).toarray()
    np.testing.assert_allclose(C**2 * gates @ metric @ gates.T, agree - H / C + H * C, atol=1e-9)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the released training see few samples."""
    monkeypatch.setattr(released_training, "SAMPLES_SEEN", 20_000)


def small_setting(**changes: Any) -> Setting:
    facts: dict[str, Any] = {
        "dataset": "digits",
        "train_size": 80,
        "units": 4,
        "tol": 1e-8,
        "momentum": 0.9,
    }
    return Setting(**facts | changes)


def outcome_of(grid: str, **changes: Any) -> Row:
    outcome: Row = compute(small_setting(**changes), grids.MODELS[grid])["outcome"]
    assert outcome["status"] == "done", outcome["error"]
    return outcome


def test_svm_gln_published_has_other_groups() -> None:
    outcome = outcome_of("gln", models=("svm-gln", "svm-l2"))
    rows = {row["model"]: row for row in outcome["models"]}
    further = ["svm-gln-published", "svm-l2-published", "svm-l2-formula"]
    assert list(rows) == ["svm-gln", "svm-l2", *further]
    assert all(row["status"] == "optimal" for row in rows.values())
    assert rows["svm-gln-published"]["norm"] != pytest.approx(rows["svm-gln"]["norm"], rel=1e-3)
    assert len(outcome["pairs"]) == 10


def test_with_one_unit_the_folds_are_right() -> None:
    """One unit has one fold: the published sum of norms is the right one."""
    setting = small_setting(units=1, hyperplanes=2)
    models = Models(setting)
    train = models.data.parts.train
    published = dict(as_published.published_svms(models))["svm-gln-published"]
    right = GatedSVC(models.contexts, **models.svm_options()).fit(train.X, train.y)
    np.testing.assert_allclose(published.coef_, right.coef_, atol=1e-6)


@pytest.mark.slow
def test_osqp_gives_their_program_no_better_than_ours() -> None:
    """Any coefficients bound the optimum from above, up to the share of the free columns."""
    outcome = outcome_of("osqp", models=("gd-gln",), train_size=40, units=2)
    rows = {row["model"]: row for row in outcome["models"]}
    ours, theirs = rows["svm-l2-published"], rows["svm-l2-osqp"]
    assert theirs["train_error"] == 0
    assert theirs["optimum"] == ours["optimum"]  # one and the same program
    assert theirs["excess"] >= -1e-6


@pytest.mark.slow
def test_gates_only_sees_the_gates_alone() -> None:
    """The decision is a linear function of the 0/1 gates of the trained network."""
    setting = small_setting(models=("gd-relu",), units=8, on_failure="drop")
    models = Models(setting)
    fitted = dict(models.fit())
    with pytest.warns(UserWarning, match="left out"):
        ((name, svm),) = as_published.relu_models(models, fitted)
    X = models.data.parts.validation.X
    relu = fitted["gd-relu"]
    assert isinstance(relu, HasGating)
    gates = relu.gating().gates(X)
    assert name == "svm-gates"
    np.testing.assert_allclose(svm.decision_function(X), gates @ svm.coef_[0], atol=ROUNDING)


@pytest.mark.slow
def test_a_moved_network_keeps_its_weights_but_not_its_contexts() -> None:
    """Outputs written out: row h C + c of the contexts it is moved to, and the readout's bias."""
    setting = small_setting(models=("gd-gln",), hyperplanes=2)
    models = Models(setting)
    train, X = models.data.parts.train, models.data.parts.validation.X
    (network,) = (model for _, model in models.fit())
    assert isinstance(network, GLNClassifier)
    moved = as_published.moved_to_drawn(models, network)
    reference, seed = models.data.everything.X, setting.seed
    drawn = draws.draw_contexts(train.X, 4, 2, threshold="random", reference=reference, seed=seed)
    coef = network.network_.coef().reshape(4, 4, -1)
    chosen = drawn.contexts(X)
    assert (chosen != models.contexts.contexts(X)).any()
    expected = sum(np.einsum("nd,nd->n", X, coef[h, chosen[:, h]]) for h in range(4))
    outputs = moved.decision_function(X)
    expected += network.network_.readout_bias_value
    np.testing.assert_allclose(outputs, expected, rtol=1e-5, atol=1e-5)  # of float32
    assert isinstance(network.network_, GLN)
    back = further_models.in_contexts(moved.network, models.contexts)
    np.testing.assert_allclose(back.decision(X), network.decision_function(X), atol=1e-6)


# --- further models ----------------------------------------------------------------------------


@pytest.mark.usefixtures("short")
def test_a_shallow_gln_keeps_what_it_never_trains_and_its_program_has_the_rest() -> None:
    setting = small_setting(models=("svm-shallow",), units=1, hyperplanes=5, momentum=0.0)
    models = Models(setting)
    ((_, model),) = further_models.shallow_models(models, {})
    X, contexts = models.data.parts.validation.X, models.contexts
    view = known(model.margin_view())
    start = released_training.released_shallow_gln(contexts, seed=setting.seed)
    unseen = view.architecture.gating.unseen(X).astype(bool)
    assert 0 < unseen.sum() < len(X)
    outputs, initial = model.decision_function(X), start.decision(X)
    np.testing.assert_allclose(outputs[unseen], initial[unseen], atol=1e-5)
    assert (np.abs(outputs - initial)[~unseen] > 1e-3).mean() > 0.9
    by_program = view.architecture.decision(X, view.coef)
    np.testing.assert_allclose(by_program, np.where(unseen, 0, outputs), atol=1e-5)


@pytest.mark.usefixtures("short")
def test_gd_shallow_is_compared_with_the_svm_of_its_program() -> None:
    cell = {"models": ("svm-shallow",), "units": 1, "hyperplanes": 3}
    (svm, network), (_, plain) = (
        outcome_of("shallow", **cell, momentum=momentum)["models"] for momentum in (0.9, 0.0)
    )
    assert network["model"] == plain["model"] == "gd-shallow"
    assert network["optimum"] == plain["optimum"] == svm["optimum"]
    assert 0 < network["excess"] < 10
    assert 0 < plain["excess"] != network["excess"]


@pytest.mark.slow
def test_the_limit_is_nearer_to_the_svm_than_finite_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(further_models, "LIMIT_STEPS", 500)
    outcome = outcome_of("limit", models=("gd-gln", "svm-gln"))
    finite, svm, limit = outcome["models"]
    assert limit["model"] == "limit-gln"
    assert limit["optimum"] == svm["optimum"]
    assert 0 <= limit["excess"] < 0.02 < finite["excess"]


# --- grids, runs, exports ----------------------------------------------------------------------


def test_every_grid_is_valid_and_known() -> None:
    files = {file.stem for file in (STUDY / "grids").glob("*.toml")}
    assert files == set(grids.MODELS)
    for name in files:
        assert len(grids.settings(name, quick=True)) == 1
    assert len(grids.settings("gln")) == 3 * 4 * 2 * 2 * 3 * 2
    classes = {(cell.positive, cell.negative) for cell in grids.settings("odd")}
    assert classes == {((1, 3, 5, 7, 9), (0, 2, 4, 6, 8))}


def test_kept_records_are_those_of_the_grids() -> None:
    """Nothing that is kept would be computed again."""
    for name in ("gln", "odd", "fashion", "splits"):
        table = harness.read(known_study(), known_study().entry(name))
        kept = {Setting.of(grids.of_text(text)["setting"]) for text in table["record"]}
        assert kept == set(grids.settings(name))


def known_study() -> catalogue.Study:
    return catalogue.study("lippl2022")


def test_records_come_back_from_their_text() -> None:
    record = {"a": [np.float64(1.5), float("inf")], "b": {"c": (1, 2), "d": None, "e": True}}
    text = grids.as_text(record | {"f": float("nan")})
    expected = {"a": [1.5, float("inf")], "b": {"c": [1, 2], "d": None, "e": True}, "f": None}
    assert grids.of_text(text) == expected
    assert "Infinity" not in text


TINY = """
dataset = "digits"
train_size = [40, 60]
units = 3
momentum = 0.0
models = ["gd-gln", "svm-gln", "svm-l2"]
"""


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short: None) -> Path:
    """Make a study of digits in two grids."""
    (tmp_path / "grids").mkdir()
    for name in ("gln", "odd"):
        (tmp_path / "grids" / f"{name}.toml").write_text(TINY)
    monkeypatch.setattr(grids, "GRIDS", tmp_path / "grids")
    return tmp_path


def call(folder: Path, grid: str, *options: str) -> str:
    words = ["lippl2022", grid, "--workers", "1", "--dirty", "--folder", str(folder)]
    with redirect_stdout(StringIO()) as output:
        assert main([*words, *options]) == 0
    return output.getvalue()


def out(folder: Path) -> Path:
    return folder / "results" / "lippl2022"


def exported(folder: Path, *names: str) -> dict[str, pd.DataFrame]:
    return grids.exported(
        {name: pd.read_parquet(out(folder) / f"{name}.parquet") for name in names}
    )


def test_the_study_computes_goes_on_and_exports(tiny: Path) -> None:
    assert "gln: 1 of 1 cells" in call(tiny, "gln", "--quick")
    assert "odd: 2 of 2 cells" in call(tiny, "odd")
    assert "gln: 1 of 2 cells" in call(tiny, "gln")  # that of quick is not computed again
    tables = exported(tiny, "gln", "odd")
    assert tables["cells"].groupby("grid").size().to_dict() == {"gln": 2, "odd": 2}
    assert tables["models"].groupby("grid").size().to_dict() == {"gln": 14, "odd": 6}
    assert tables["pairs"].groupby("grid").size().to_dict() == {"gln": 42, "odd": 6}
    assert (tables["cells"]["status"] == "done").all()
    assert {"commit", "kernel", "finished", "version", "numpy"} <= set(tables["cells"])


def test_failed_cells_are_to_compute_if_asked_for(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(setting: Setting, more: object) -> Row:
        origin = {"commit": "", "kernel": "", "finished": ""}
        outcome = {"status": "failed", "error": "no memory", "seconds": 0.0, "origin": origin}
        outcome |= {"models": [], "pairs": [], "warnings": []}
        return {"key": setting.key, "setting": vars(setting), "outcome": outcome}

    monkeypatch.setattr(grids, "compute", failing)
    for options, count in (([], 2), ([], 0), (["--retry"], 2)):
        assert f"odd: {count} of 2 cells" in call(tiny, "odd", *options)


def test_a_cell_that_fails_says_why() -> None:
    outcome = compute(small_setting(train_size=10**6))["outcome"]
    assert outcome["status"] == "failed"
    assert "ValueError" in outcome["error"]


def test_a_dirty_tree_computes_no_records(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "commit", lambda: "0123+")
    words = ["lippl2022", "odd", "--workers", "1", "--folder", str(tiny)]
    with pytest.raises(SystemExit), redirect_stdout(StringIO()):
        main(words)
    assert not (out(tiny) / "odd.parquet").exists()
    assert "2 of 2 cells" in call(tiny, "odd")  # with --dirty


def test_a_network_is_a_classifier_as_it_stands() -> None:
    """Of a class that declares no fields, as anyone's own may be."""
    X = np.random.default_rng(0).normal(size=(12, 3))
    network = GLN([HyperplaneContexts.random(X, 2, 1, random_state=0)], seed=0)
    signs = np.where(X[:, 0] > 0, 1, -1)
    model = further_models.NetworkModel(network).fit(X, signs)
    assert model.predict(X).shape == (12,)


# --- the real thing ----------------------------------------------------------------------------


@pytest.mark.slow
@needs_mnist
def test_quick_study(tmp_path: Path) -> None:
    """A cell of each published figure, and the published values to the digit."""
    for name in ("gln", "shallow", "relu", "osqp"):
        call(tmp_path, name, "--quick")
    tables = exported(tmp_path, "gln", "shallow", "relu", "osqp")
    assert (tables["cells"]["status"] == "done").all()
    models = tables["models"]
    svms = models[models["model"].str.startswith("svm")].drop_duplicates(["grid", "model"])
    accuracy = 1 - svms.set_index(["grid", "model"])["validation_error"]
    assert accuracy["gln", "svm-gln-published"] == pytest.approx(0.84975, abs=1e-6)
    assert accuracy["gln", "svm-gln"] == pytest.approx(0.849583, abs=1e-6)
    assert accuracy["shallow", "svm-shallow"] == pytest.approx(0.737833, abs=1e-6)
    assert accuracy["relu", "svm-rc"] == pytest.approx(0.82475, abs=1e-6)
    assert accuracy["osqp", "svm-l2-osqp"] == pytest.approx(0.693667, abs=1e-4)


@pytest.mark.slow
@needs_mnist
@pytest.mark.parametrize(
    ("options", "accuracies"),
    [
        ("--units 20 --hyperplanes 2 --threshold random --seed 2", [0.83275, 0.83925]),
        ("--units 10", [0.839, 0.849583]),
        ("--units 10 --momentum 0.9", [0.8365, 0.849583]),
    ],
)
def test_released_cells(options: str, accuracies: list[float]) -> None:
    """`--seed`, `--threshold` and `--momentum` as released, and what they are if not given.

    The network's accuracies are the released ones, and the SVM's with thresholds at medians.
    """
    words = f"lippl2022 cell --train-size 500 --hyperplanes 1 {options} --model gd-gln"
    with redirect_stdout(StringIO()) as output:
        assert main([*words.split(), "--model", "svm-gln", "--json"]) == 0
    rows = json.loads(output.getvalue())["models"]
    assert [row["model"] for row in rows] == ["gd-gln", "svm-gln"]
    check_released([1 - row["error"] for row in rows], accuracies, DIGIT)


@pytest.mark.slow
@needs_mnist
def test_the_optimum_of_a_published_cell() -> None:
    svm = Models(Setting(train_size=500, units=10)).fit_one("svm-gln")
    solution = known(svm.margin_view()).solution
    assert solution is not None
    assert solution.certificate.lower == pytest.approx(1.711793418, rel=1e-6)
    assert solution.certificate.gap < 1e-6
