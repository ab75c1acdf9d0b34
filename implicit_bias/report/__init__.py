"""Reports: one self-contained HTML page, its tables and figures; pictures of trainings.

conclusion.py has the verdicts, words.py what they need to know of a comparison, tables.py the
tables, figures/ the pictures, style.py their looks, and page.py puts a page together. The names
below load matplotlib, so they are imported when first used: words need no pictures.
What a page says stands in page.toml (columns, sections, curves, verdicts) and in its template;
page.mplstyle has matplotlib's settings.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from implicit_bias.report.figures.diagnosis import draw_diagnosis, draw_support
    from implicit_bias.report.figures.errors import overview
    from implicit_bias.report.figures.recorder import draw_recorder
    from implicit_bias.report.page import report_on, write_limit, write_report
    from implicit_bias.report.words import conclusions

# Where each of these names is: the import waits until a name is asked for.
HOMES = {
    "conclusions": "implicit_bias.report.words",
    "draw_diagnosis": "implicit_bias.report.figures.diagnosis",
    "draw_recorder": "implicit_bias.report.figures.recorder",
    "draw_support": "implicit_bias.report.figures.diagnosis",
    "overview": "implicit_bias.report.figures.errors",
    "report_on": "implicit_bias.report.page",
    "write_limit": "implicit_bias.report.page",
    "write_report": "implicit_bias.report.page",
}


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(HOMES[name]), name)
