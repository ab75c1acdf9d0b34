"""Pages that are made anew from kept tables, compared with the pages that are kept."""

import re
from decimal import Decimal

NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")


def check_page(found: str, kept: str) -> None:
    """Compare words exactly, and numbers to their last printed digit; whole numbers are exact.

    Means and quantiles of the same table may differ in a last bit between processors, and that bit
    may decide how the printed digit is rounded.
    """
    assert " ".join(NUMBER.sub("#", found).split()) == " ".join(NUMBER.sub("#", kept).split())
    for new, old in zip(NUMBER.findall(found), NUMBER.findall(kept), strict=True):
        if new == old:
            continue
        first, second = (Decimal(text.replace(",", "")) for text in (new, old))
        assert not new.isdigit(), f"{new}, not {old}"
        assert not old.isdigit(), f"{new}, not {old}"
        unit = Decimal(10) ** max(int(x.as_tuple().exponent) for x in (first, second))
        assert abs(first - second) <= unit, f"{new}, not {old}"
