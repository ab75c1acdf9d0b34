"""Sections of a report, and the figures in each.

A figure is one small panel, wide as a phone: the page puts panels side by side where there is
room.
"""

from collections.abc import Callable, Iterator

from implicit_bias.report.conclusion import WORDS
from implicit_bias.report.figures.base import Plot, Section, Subject
from implicit_bias.report.figures.confusion import confusion_plots
from implicit_bias.report.figures.errors import error_plots
from implicit_bias.report.figures.margins import margin_plots
from implicit_bias.report.figures.plane import plane_plots
from implicit_bias.report.figures.predictors import predictor_plots, support_plots
from implicit_bias.report.figures.training import training_plots
from implicit_bias.report.figures.units import active_in_svms, unit_plots
from implicit_bias.report.words import class_note, margin_words, names_of, pictured

PLOTS: dict[str, Callable[[Subject], Iterator[Plot]]] = {
    "errors": error_plots,
    "confusion": confusion_plots,
    "units": unit_plots,
    "margins": margin_plots,
    "training": training_plots,
    "predictors": predictor_plots,
    "support": support_plots,
    "plane": plane_plots,
}


def sections(subject: Subject) -> tuple[Section, ...]:
    """Draw all sections for which there are data; call it inside `style`."""
    models, drawn = subject.comparison.models, list[Section]()
    trained = any(model.history for model in models)
    facts = {
        "active": active_in_svms(subject),
        "margin": margin_words(subject.train),
        "pictured": pictured(subject.train),
        "classes": class_note(subject.train),
        "lacking": names_of(model for model in models if not model.has_predictor),
    }
    for name, plots in PLOTS.items():
        said = WORDS["sections"][name]
        notes = [said["note"], said.get("networks", "") * trained]
        notes.append(said.get("lacking", "") * bool(facts["lacking"]))
        note = " ".join(filter(None, notes)).format(**facts).rstrip()
        drawn.append(Section(name, said["title"], note, tuple(plots(subject))))
    return tuple(section for section in drawn if section.plots)
