"""What version 0.1.0 wrote still loads, resumes and renders, and its numbers are still found."""

import html
import json
import math
import re
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from cli.test_cli import Shell
from implicit_bias import GLNClassifier, LimitConfig, Status, solve, train_to_limit
from implicit_bias.base.validation import Array
from implicit_bias.datasets.toys import make_toy
from implicit_bias.estimators.saved_models import load_model
from implicit_bias.networks import GLN, ReLUNetwork
from implicit_bias.problem.gating import HyperplaneContexts, UnitGates
from modules import known

FIXTURES = Path(__file__).parent / "fixtures"
EXPECTED: dict[str, Any] = json.loads((FIXTURES / "expected.json").read_text())
MOONS = make_toy("moons", 60, noise=0.05)
LABELS = np.where(MOONS.y > 0, "up", "down")


@pytest.mark.parametrize("name", EXPECTED["models"])
def test_saved_models_load(name: str) -> None:
    model = load_model(FIXTURES / "models" / f"{name}.safetensors").model
    decision, expected = model.decision_function(MOONS.X), EXPECTED["models"][name]
    np.testing.assert_allclose(decision, expected["decision"], rtol=1e-5, atol=1e-6)
    assert len(model.history()) == expected["history_points"]
    if "last_norm" in expected:
        assert model.history()[-1].norm == expected["last_norm"]
    if "status" in expected:
        view = known(model.margin_view())
        solution = known(view.solution)
        assert solution.status.name == expected["status"]
        assert solution.certificate.lower == expected["lower"]
        assert solution.certificate.upper == expected["upper"]
        assert solution.support.tolist() == expected["support"]
        assert view.dropped.tolist() == expected["dropped"]
        assert math.isclose(view.C, float(expected["C"]))


def test_a_checkpoint_resumes(tmp_path: Path) -> None:
    """Its steps are counted on; they may be other ones than then, but lead about as far."""
    file = tmp_path / "checkpoint.safetensors"
    shutil.copy(FIXTURES / "checkpoint.safetensors", file)

    def resumed(steps: int) -> tuple[Any, ...]:
        config = LimitConfig(steps=steps, checkpoint_every=25)
        trainer = partial(train_to_limit, config=config, checkpoint=file, resume=True)
        return GLNClassifier(3, random_state=0).fit_by(MOONS.X, LABELS, trainer).history()

    at_checkpoint, later = resumed(40), resumed(80)
    assert list(map(repr, later[: len(at_checkpoint)])) == list(map(repr, at_checkpoint))
    assert (at_checkpoint[-1].step, later[-1].step) == (40, 80)
    assert later[-1].log_loss <= EXPECTED["longer"]["log_loss"] + 0.01
    assert later[-1].normalised_margin > at_checkpoint[-1].normalised_margin


def numbers(weights: Array, thresholds: Array) -> list[float]:
    return [*weights.ravel()[:4].tolist(), float(weights.sum()), float(thresholds.sum())]


def draws() -> dict[str, list[float]]:
    X = MOONS.X
    contexts = HyperplaneContexts.random(X, 5, 2, random_state=3)
    gates = UnitGates.random(X, 5, random_state=3)
    orthogonal = UnitGates.random(X, 2, init="orthogonal", random_state=3)

    def first(weights: torch.Tensor) -> list[float]:
        return [*weights.detach().numpy().ravel()[:4].tolist(), 0.0, 0.0]

    return {
        "contexts": numbers(contexts.weights, contexts.thresholds),
        "unit gates": numbers(gates.weights, gates.thresholds),
        "orthogonal": numbers(orthogonal.weights, orthogonal.thresholds),
        "GLN": first(GLN([contexts], seed=4).hidden_weights[0]),
        "ReLUNetwork": first(ReLUNetwork(3, [5], seed=4).hidden_weights[0]),
    }


def test_random_draws_are_the_same() -> None:
    found = draws()
    assert found.keys() == EXPECTED["draws"].keys()
    for name, (some, *sums) in EXPECTED["draws"].items():
        # Drawn in float32, whose last digits depend on the kernels of the processor.
        np.testing.assert_allclose(found[name], [*some, *sums], rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("name", EXPECTED["bounds"])
def test_problems_have_the_same_optima(name: str) -> None:
    view = known(load_model(FIXTURES / "models" / f"{name}.safetensors").model.margin_view())
    problem = view.architecture.problem(MOONS.X, MOONS.y, view.C)
    solution, expected = solve(problem, "interior-point", 1e-8), EXPECTED["bounds"][name]
    assert solution.status is Status.OPTIMAL
    assert solution.certificate.gap <= 1e-8
    # Bounds of then were certified in float64, without the rounding that is counted today.
    assert solution.certificate.lower <= expected["upper"] * (1 + 1e-12)
    assert solution.certificate.upper >= expected["lower"] * (1 - 1e-12)


@pytest.mark.slow
def test_a_report_renders_as_it_did(tmp_path: Path) -> None:
    folder = tmp_path / "report"
    shutil.copytree(FIXTURES / "report", folder)
    frozen = {name: pd.read_csv(folder / f"{name}.csv") for name in ("models", "pairs", "history")}
    assert Shell(tmp_path)("report report").status == 0
    for name, expected in frozen.items():
        found = pd.read_csv(folder / f"{name}.csv")
        pd.testing.assert_frame_equal(
            found[expected.columns], expected, check_dtype=False, rtol=1e-6, atol=1e-9
        )
    page = visible_text((folder / "report.html").read_text(encoding="utf-8"))
    missing = [line for line in (folder / "page.txt").read_text().split("\n") if line not in page]
    assert missing == [], "what the page said and says no more"


def visible_text(page: str) -> set[str]:
    """Text between the tags of a page, and its pictures' descriptions."""
    body = page[page.index("<body") :]
    body = re.sub(r'<img[^>]*alt="([^"]*)"[^>]*>', r"\n[\1]\n", body)
    lines = re.sub(r"<[^>]+>", "\n", body).split("\n")
    return {re.sub(r"\s+", " ", html.unescape(line)).strip() for line in lines}
