"""Sections of a report, and the figures in each.

A figure is one small panel, wide as a phone: the page puts panels side by side where there is
room.
"""

from implicit_bias.report.figures.base import Section, Subject
from implicit_bias.report.figures.confusion import confusion_plots
from implicit_bias.report.figures.errors import error_plots
from implicit_bias.report.figures.margins import margin_plots
from implicit_bias.report.figures.plane import plane_plots
from implicit_bias.report.figures.predictors import predictor_plots, support_plots
from implicit_bias.report.figures.training import training_plots
from implicit_bias.report.figures.units import active_in_svms, unit_plots
from implicit_bias.report.words import class_note, margin_words, pictured


def sections(subject: Subject) -> tuple[Section, ...]:
    """Draw all sections for which there are data; call it inside `style`."""
    drawn = [
        Section(
            "errors",
            "Errors and disagreement",
            "How often each model is wrong, and how often two models say different things. Two "
            "models that go to the same place disagree far less than chance would have it.",
            tuple(error_plots(subject)),
        ),
        Section(
            "confusion",
            "Which classes are confused",
            "Evaluation samples of each class (rows) by the class that a model gives them "
            "(columns); grey is the share of the row.",
            tuple(confusion_plots(subject)),
        ),
        Section(
            "units",
            "Which units are kept",
            "The norm is a sum over hidden units, so its minimum can switch whole units off"
            f"{active_in_svms(subject)}."
            + (
                " The share of each unit in the norm shows whether gradient descent does the same."
                if any(model.history for model in subject.comparison.models)
                else ""
            ),
            tuple(unit_plots(subject)),
        ),
        Section(
            "margins",
            "Margins of the training samples",
            f"{margin_words(subject.train)} divided by the norm, of each training sample. The "
            "smallest one is the margin; where there is a dashed line, no predictor of the same "
            "program can push it past that.",
            tuple(margin_plots(subject)),
        ),
        Section(
            "training",
            "Training",
            "The networks over the steps of their training, on all training samples.",
            tuple(training_plots(subject)),
        ),
        Section(
            "predictors",
            "Learned predictors",
            f"The weights zeta with which a unit reads the image, {pictured(subject.train)}.",
            tuple(predictor_plots(subject)),
        ),
        Section(
            "support",
            "Support vectors",
            "The training samples that hold the margin in place, those with the largest dual "
            f"variable alpha first. {class_note(subject.train)}",
            tuple(support_plots(subject)),
        ),
        Section(
            "plane",
            "The plane",
            "What the models make of the two inputs. A ring marks a support vector."
            + "".join(
                f" {model.name} has no predictor: not separable, proven."
                for model in subject.comparison.models
                if not model.has_predictor
            ),
            tuple(plane_plots(subject)),
        ),
    ]
    return tuple(section for section in drawn if section.plots)
