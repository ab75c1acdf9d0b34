"""Reports: one self-contained HTML page, its tables and figures; pictures of trainings.

conclusion.py has the verdicts, words.py what they need to know of a comparison, tables.py the
tables, figures/ the pictures, style.py their looks, and page.py puts a page together. The names
below load matplotlib, so they are imported when first used: words need no pictures.
What a page says stands in page.toml (columns, sections, curves, verdicts) and in its template;
page.mplstyle has matplotlib's settings.
"""

from typing import TYPE_CHECKING, Any

from implicit_bias.base import lazy

if TYPE_CHECKING:
    from implicit_bias.report.figures.diagnosis import draw_diagnosis, draw_support
    from implicit_bias.report.figures.errors import overview
    from implicit_bias.report.figures.recorder import draw_recorder
    from implicit_bias.report.page import report_on, write_limit, write_report
    from implicit_bias.report.words import conclusions


def __getattr__(name: str) -> Any:
    return lazy.find(__name__, name)
