"""What the page says with numbers."""

from collections.abc import Mapping

from benchmarks.daniely2020 import first_step, guarantee, later_steps, separation
from benchmarks.page import Judged, Kept


def words(kept: Kept) -> dict[str, object]:
    """Return the values that the texts of the page name."""
    steps = kept["later_steps"].groupby(["schedule", "n", "seed"])["loss"].min()
    steps = steps.groupby("schedule").max()
    runs, apart = kept["guarantee"], kept["separation"]
    wide = apart[apart["q"] >= separation.WIDE]
    return {
        "bound": runs.loc[runs["what"] == guarantee.RUN, "bound"].min(),
        "theorem_loss": steps[later_steps.THEOREM],
        "own_loss": steps[later_steps.OWN],
        "own_step": later_steps.WHOLE.own_step,
        "separated": int(wide["separates"].sum()),
        "starts": len(wide),
        "wide": separation.WIDE,
    }


def judge(kept: Kept) -> Mapping[str, Judged]:
    """Judge the claims that are one of several of their table."""
    return {
        "lemma_10": first_step.lemma_10(),
        "lemma_9": first_step.lemma_9(kept["first_step"]),
        "lemmas_14_to_16": later_steps.lemmas_14_to_16(kept["later_steps"]),
    }
