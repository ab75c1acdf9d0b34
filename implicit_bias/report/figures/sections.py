"""Sections of a report, and the figures in each.

A figure is one small panel, wide as a phone: the page puts panels side by side where there is
room.
"""

from collections.abc import Callable, Iterator

from implicit_bias.report.conclusion import WORDS
from implicit_bias.report.figures.base import Plot, Section, Subject
from implicit_bias.report.figures.errors import error_plots
from implicit_bias.report.figures.margins import margin_plots
from implicit_bias.report.figures.plane import plane_plots
from implicit_bias.report.figures.support import support_plots
from implicit_bias.report.figures.training import training_plots
from implicit_bias.report.words import class_note, margin_words, names_of

PLOTS: dict[str, Callable[[Subject], Iterator[Plot]]] = {
    "errors": error_plots,
    "margins": margin_plots,
    "training": training_plots,
    "plane": plane_plots,
    "support": support_plots,
}


def sections(subject: Subject) -> tuple[Section, ...]:
    """Draw all sections for which there are data; call it inside `style`."""
    lacking = names_of(model for model in subject.comparison.models if not model.has_predictor)
    facts = {
        "margin": margin_words(subject.train),
        "classes": class_note(subject.train),
        "lacking": lacking,
    }
    drawn = []
    for name, plots in PLOTS.items():
        said = WORDS["sections"][name]
        note = said["note"]
        if lacking and "lacking" in said:
            note = f"{note} {said['lacking']}"
        drawn.append(
            Section(name, said["title"], note.format(**facts).rstrip(), (*plots(subject),))
        )
    return tuple(section for section in drawn if section.plots)
