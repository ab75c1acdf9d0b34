"""What the page says with numbers."""

from __future__ import annotations

from collections import Counter

from benchmarks.catalogue import Statement
from benchmarks.fiat2019 import constants
from benchmarks.page import Kept


def words(kept: Kept) -> dict[str, object]:
    """Return the values that the texts of the page name."""
    counts = Counter(kept.verdict(entry.name) for entry in kept.study.experiments)
    return {
        "count": counts.total(),
        "verdicts": ", ".join(
            f"{count} {each.of_several(count)}" for each, count in counts.items()
        ),
        "relations": constants.found(kept["constants"]),
    }


def agrees(statement: Statement, kept: Kept) -> str:
    """Say how many relations of a statement hold."""
    checks = kept["constants"]
    rows = checks[checks["statement"] == statement.where]
    true = constants.holds(rows)[~rows["slip"]]
    slips = int(rows["slip"].sum())
    words = f"{int(true.sum())} of {len(true)} checks hold"
    if not slips or statement.where == "[L] Theorem 4":
        return words
    return f"{words}; {slips} slip{'s' if slips > 1 else ''}"
