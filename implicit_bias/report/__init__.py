"""Reports: one self-contained HTML page, its tables and figures; pictures of trainings."""

from implicit_bias.report.page import write_limit, write_report, write_trajectory

__all__ = ["write_limit", "write_report", "write_trajectory"]
