"""Reports: one self-contained HTML page, its tables and figures; pictures of trainings.

The names below load matplotlib, so they are imported when first used: words need no pictures.
"""

from typing import TYPE_CHECKING, Any

from implicit_bias.base import lazy

if TYPE_CHECKING:
    from implicit_bias.report.page import write_limit, write_report, write_trajectory

HOMES = {"page": ("write_limit", "write_report", "write_trajectory")}


def __getattr__(name: str) -> Any:
    return lazy.find(__name__, HOMES, name)
