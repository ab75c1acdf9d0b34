"""Reports: one self-contained HTML page, its tables and figures; pictures of trainings.

The names below load matplotlib, so they are imported when first used: words need no pictures.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from implicit_bias.report.page import write_limit, write_report, write_trajectory

__all__ = ["write_limit", "write_report", "write_trajectory"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'implicit_bias.report' has no attribute {name!r}")
    return getattr(import_module("implicit_bias.report.page"), name)
