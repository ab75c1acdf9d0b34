"""What the page says with numbers."""

from collections.abc import Mapping

from benchmarks.daniely2020 import first_step, guarantee, later_steps, separation, strips
from benchmarks.page import Judged, Kept
from implicit_bias.base.wording import percent


def words(kept: Kept) -> dict[str, object]:
    """Return the values that the texts of the page name."""
    digits = kept["strips"]
    one, more = (strips.accuracies(digits, int(k)) for k in (digits["k"].min(), digits["k"].max()))
    least, most = (int(digits["strips"].agg(end)) for end in ("min", "max"))
    steps = kept["later_steps"].groupby(["schedule", "n", "seed"])["loss"].min()
    steps = steps.groupby("schedule").max()
    runs, apart = kept["guarantee"], kept["separation"]
    wide = apart[apart["q"] >= separation.WIDE]
    return {
        "one_least": percent(min(one.values())),
        "one_most": percent(max(one.values())),
        "network_least": percent(strips.accuracies(digits, 3, least)[strips.NETWORK]),
        "network_most": percent(strips.accuracies(digits, 3, most)[strips.NETWORK]),
        "linear": percent(max(more[name] for name in strips.LINEAR if name in more)),
        "least": f"{least:,}",
        "most": f"{most:,}",
        "bound": runs.loc[runs["what"] == guarantee.RUN, "bound"].min(),
        "theorem_loss": steps[later_steps.THEOREM],
        "own_loss": steps[later_steps.OWN],
        "separated": int(wide["separates"].sum()),
        "starts": len(wide),
        "wide": separation.WIDE,
    }


def judge(kept: Kept) -> Mapping[str, Judged]:
    """Judge the claims that are one of several of their table."""
    return {
        "lemma_9": first_step.lemma_9(kept["first_step"]),
        "lemmas_14_to_16": later_steps.lemmas_14_to_16(kept["later_steps"]),
    }
