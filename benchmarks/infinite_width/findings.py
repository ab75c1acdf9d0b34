"""What the page says with numbers, in five lines."""

import pandas as pd

from benchmarks.infinite_width import margin_reached, more_time, plane
from benchmarks.page import Kept
from benchmarks.sizes import margin_share
from benchmarks.words import span
from implicit_bias.base.wording import percent


def words(kept: Kept) -> dict[str, object]:
    """Return the values that the texts of the page name."""
    certified = kept["certified"]
    random = certified[certified["kind"] == "random points"]
    lines = [
        f"The maximum is known: to a relative gap of {random['gap'].max():.0e} on random points in "
        "the plane, and a search over a million directions finds nothing against it.",
        _reached(kept["margin_reached"]),
        _time(kept["more_time"]),
        _few(kept["neurons"], kept["plane"]),
    ]
    return {"found": "\n- ".join(lines)}


def _reached(frame: pd.DataFrame) -> str:
    medians = margin_reached.at_end(frame)["median"].groupby(["k", "samples"]).last()
    words = " and ".join(
        f"{margin_share(of_grid.min())} to {margin_share(of_grid.max())} on {k} × {k} clusters"
        for k, of_grid in medians.groupby("k")
    )
    return f"**Published training of the widest networks reaches {words}** (medians of each N)."


def _time(frame: pd.DataFrame) -> str:
    medians = more_time.ends(frame).groupby("samples").median()
    before, after = (
        span(medians[method], margin_share)
        for method in (more_time.PUBLISHED, more_time.ACCELERATED)
    )
    return (
        f"What is left there is partly time: accelerated steps come to {after} on the same "
        f"samples, where published ones are at {before}."
    )


def _few(frame: pd.DataFrame, pictures: pd.DataFrame) -> str:
    ratio = (frame["neurons"] / frame["support"]).median()
    agreement = plane.agreements(pictures).median()
    return (
        f"The optimum has few neurons, {ratio:.2f} times the support vectors in the median; a "
        f"trained network decides like it on {percent(agreement[plane.TRAINED])} of the square, "
        f"one trained further on {percent(agreement[plane.TRAINED_ON])}, random features on "
        f"{percent(agreement[plane.FEATURES])}."
    )
