"""Sections of a report, and the figures in each.

A figure is one small panel, wide as a phone: the page puts panels side by side where there is
room.
"""

from collections.abc import Callable, Iterator

from implicit_bias.comparison.verdict import WORDS
from implicit_bias.report.figures.base import Plot, Section, Subject
from implicit_bias.report.figures.errors import error_plots
from implicit_bias.report.figures.margins import margin_plots
from implicit_bias.report.figures.plane import plane_plots
from implicit_bias.report.figures.support import support_plots
from implicit_bias.report.figures.training import training_plots
from implicit_bias.report.words import class_note, margin_words

PLOTS: dict[str, Callable[[Subject], Iterator[Plot]]] = {
    "errors": error_plots,
    "margins": margin_plots,
    "training": training_plots,
    "plane": plane_plots,
    "support": support_plots,
}


def sections(subject: Subject) -> list[Section]:
    """Draw all sections for which there are data; call it inside `style`."""
    facts = {"margin": margin_words(subject.train), "classes": class_note(subject.train)}
    drawn = []
    for name, draw in PLOTS.items():
        plots = tuple(draw(subject))
        if plots:
            words = WORDS["sections"][name]
            note = words["note"].format(**facts).rstrip()
            drawn.append(Section(name, words["title"], note, plots))
    return drawn
