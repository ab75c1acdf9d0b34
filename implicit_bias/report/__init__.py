"""Reports: one self-contained HTML page, its tables and figures; figures of trainings.

page.py puts a page together from tables.py, figures/ and the verdicts of a comparison
(conclusion.py), style.py has the looks of figures, and words.py what models and data are called.
The sentences stand in `comparison/words.toml` and in the page's template; page.mplstyle has
matplotlib's settings. The names below load matplotlib, so they are imported when first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from implicit_bias.report.figures.box_trace import draw_box_trace
    from implicit_bias.report.figures.diagnosis import draw_diagnosis, draw_support
    from implicit_bias.report.figures.errors import overview
    from implicit_bias.report.figures.recorder import draw_recorder
    from implicit_bias.report.page import report_on, write_limit, write_report

# Where each of these names is: the import waits until a name is asked for.
HOMES = {
    "draw_box_trace": "implicit_bias.report.figures.box_trace",
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
