"""Reports that the tests of this folder read, and what reads them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import implicit_bias as ib
from browser import Page
from implicit_bias.datasets import Split
from implicit_bias.report.page import write_report

ATTACK = "<script>alert(1)</script>"


@dataclass(frozen=True)
class Report:
    """A written report and what it is of."""

    path: Path
    comparison: ib.Comparison

    @property
    def page(self) -> Page:
        """The page, parsed."""
        return Page(self.path.read_text(encoding="utf-8"))


def fit_and_write(folder: Path, models: Mapping[str, Any], data: Split, **options: Any) -> Report:
    """Fit models, compare them and write the report."""
    for model in models.values():
        model.fit(data.train.X, data.train.y)
    train = (data.train.X, data.train.y)
    comparison = ib.compare(models, data.validation.X, data.validation.y, train=train)
    path = write_report(folder, comparison, train=data.train, evaluation=data.validation, **options)
    return Report(path, comparison)
