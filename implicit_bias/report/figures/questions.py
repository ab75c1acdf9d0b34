"""Questions to a comparison."""

from __future__ import annotations

from collections.abc import Sequence

from implicit_bias.certificate import Status
from implicit_bias.comparison import Comparison, ModelResult
from implicit_bias.report.figures.base import margin_of


def programs(comparison: Comparison) -> list[list[ModelResult]]:
    """Models with a margin, those of one and the same program together."""
    grouped: dict[int, list[ModelResult]] = {}
    for model in comparison.models:
        if model.margin is not None:
            grouped.setdefault(model.margin.program, []).append(model)
    return list(grouped.values())


def not_separable(comparison: Comparison, model: ModelResult) -> bool:
    """Whether an SVM has proven that nothing of the model's program separates the samples."""
    return model.margin is not None and any(
        undecided(other) and margin_of(other).program == model.margin.program
        for other in comparison.models
    )


def undecided(model: ModelResult) -> bool:
    """Whether the model is an SVM that found no predictor."""
    return model.margin is not None and model.margin.status is Status.NOT_SEPARABLE


def gates_moved(network: ModelResult) -> bool:
    """Whether training changed any gate, so that the program is that of the last step only."""
    return any(point.gates_changed > 0 for point in network.history)


def svm_among(twins: Sequence[ModelResult]) -> ModelResult | None:
    """Return the (first) SVM among models of one program."""
    return next((twin for twin in twins if margin_of(twin).status is not None), None)


def reference_of(twins: Sequence[ModelResult]) -> ModelResult:
    """Return the model to which those of one program are compared: the SVM if there is one."""
    return svm_among([twin for twin in twins if not undecided(twin)]) or twins[0]
