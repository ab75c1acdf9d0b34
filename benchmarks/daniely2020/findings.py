"""What the page says with numbers."""

from __future__ import annotations

from benchmarks.daniely2020 import guarantee, later_steps, separation, strips
from benchmarks.page import Kept
from implicit_bias.base.wording import percent


def words(kept: Kept) -> dict[str, object]:
    """Return the values that the texts of the page name."""
    digits = kept["strips"]
    one, more = (strips.accuracies(digits, int(k)) for k in (digits["k"].min(), digits["k"].max()))
    steps = kept["later_steps"].groupby("schedule")["loss"].min()
    runs, apart = kept["guarantee"], kept["separation"]
    wide = apart[apart["q"] >= separation.WIDE]
    return {
        "one_least": percent(min(one.values())),
        "one_most": percent(max(one.values())),
        "network": percent(more[strips.NETWORK]),
        "linear": percent(max(more[name] for name in strips.LINEAR if name in more)),
        "strips": strips.main_strips(digits),
        "bound": runs.loc[runs["what"] == guarantee.RUN, "bound"].min(),
        "theorem_loss": steps[later_steps.THEOREM],
        "own_loss": steps[later_steps.OWN],
        "separated": int(wide["separates"].sum()),
        "starts": len(wide),
        "wide": separation.WIDE,
    }
