"""Sections of a page, and the figures in each.

A figure is one small panel, wide as a phone: the page puts panels side by side where there is
room.
"""

from implicit_bias.comparison import Comparison
from implicit_bias.comparison.verdict import WORDS
from implicit_bias.datasets.dataset import Dataset
from implicit_bias.report.figures.base import Section, looks
from implicit_bias.report.figures.errors import error_plots
from implicit_bias.report.figures.margins import margin_plots
from implicit_bias.report.figures.plane import plane_plots
from implicit_bias.report.figures.support import support_plots
from implicit_bias.report.figures.training import training_plots
from implicit_bias.report.words import class_note


def sections(comparison: Comparison, train: Dataset) -> list[Section]:
    """Draw all sections for which there are data; call it inside `style`.

    The first one shows what the first verdict is on.

    Parameters
    ----------
    comparison : Comparison
        The numbers, and the models compared.
    train : Dataset
        The samples that the models were fitted to; the test samples where these are not known.
    """
    drawn_as = looks(comparison)
    plots_of = {
        "margins": margin_plots(comparison, drawn_as),
        "training": training_plots(comparison, drawn_as),
        "plane": plane_plots(comparison, train),
        "errors": error_plots(comparison, drawn_as),
        "support": support_plots(comparison, train),
    }
    if comparison.ranks_models:  # the first verdict is on the errors
        plots_of = {"errors": plots_of.pop("errors"), **plots_of}
    drawn = []
    for name, plots in plots_of.items():
        # Each generator draws only what it has data for; a section without figures has no heading.
        shown = tuple(plots)
        if shown:
            words = WORDS["sections"][name]
            note = words["note"].format(classes=class_note(train)).rstrip()
            drawn.append(Section(name, words["title"], note, shown))
    return drawn
