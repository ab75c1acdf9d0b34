"""What the page says with numbers."""

from collections.abc import Mapping
from dataclasses import replace

from benchmarks.catalogue import Statement
from benchmarks.fiat2019 import (
    constants,
    image_width,
    noisy_clusters,
    norms_and_gap,
    several_outputs,
    too_few_parameters,
)
from benchmarks.harness import otherwise
from benchmarks.page import Judged, Kept


def words(kept: Kept) -> dict[str, object]:
    """Return the values that the texts of the page name."""
    return {
        "relations": constants.found(kept["constants"]),
        "theorem_5": constants.theorem_5_judged().result,
    }


def judge(kept: Kept) -> Mapping[str, Judged]:
    """Judge the claims that are one of several of their table."""
    images = kept["image_width"]
    similar, farther = (
        image_width.compared(images, image_width.RELU, image_width.GALU, share, image_width.LINEAR)
        for share in (0.5, 1.0)
    )
    hard = image_width.compared(images, "GaLU0", image_width.HARD)
    one_rate = image_width.compared(
        images[images["rate"] == image_width.RATES[0]], "GaLU0", image_width.HARD
    )
    return {
        "theorem_4": constants.theorem_4_judged(kept["constants"]),
        "theorem_5": constants.theorem_5_judged(),
        **too_few_parameters.twice(kept["too_few_parameters"]),
        "redrawn": too_few_parameters.redrawn(kept["too_few_parameters"]),
        "more_steps": noisy_clusters.more_steps(kept["noisy_clusters"]),
        "both_layers": norms_and_gap.both_layers(kept["norms_and_gap"]),
        "figure_3": replace(similar, remark=otherwise(farther.verdict, "the whole way")),
        "footnote_1": replace(
            hard,
            result=f"{hard.result} Hard gates have the rate {image_width.RATES[0]:g} alone, "
            f"sigmoid gates the best of {len(image_width.RATES)}.",
            remark=otherwise(one_rate.verdict, f"{image_width.RATES[0]:g} for both"),
            evidence=(f"At the rate {image_width.RATES[0]:g} alone: {one_rate.result}",),
        ),
        "alternating": several_outputs.alternating(kept["several_outputs"]),
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
