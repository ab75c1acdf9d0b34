"""What the page says with numbers, in five lines."""

import pandas as pd

from benchmarks.harness import rows_of
from benchmarks.optimizers import adam_memory, attention, leading, networks, single_samples
from benchmarks.page import Kept
from benchmarks.words import share_span, span
from implicit_bias.base.wording import percent


def words(kept: Kept) -> dict[str, object]:
    """Return the values that the texts of the page name."""
    lines = [
        _memory(kept["adam_memory"]),
        _single(kept["single_samples"]),
        _attention(kept["attention"]),
        _networks(kept["networks"], kept["leading"]),
    ]
    return {"found": "\n- ".join(lines)}


def _memory(frame: pd.DataFrame) -> str:
    last = adam_memory.ends(frame)
    after = last[last["side"] == "after t_sign"]["linf"]
    before = last[last["epsilon"] == 0]["early"]
    tiny = last[last["side"] == "after t_eps"]["linf"]
    return (
        "**Adam with all samples is sign descent from about t_sign = (eta gamma / (1/2 ln(1 / "
        "beta2)))^2 steps on** (steps eta / sqrt t, Adam's beta2, gamma the largest l_inf margin): "
        f"{share_span(before)} of gamma at "
        f"{adam_memory.EARLY:g} t_sign, {share_span(after)} at {adam_memory.LONG:g} t_sign and "
        f"later. Epsilon ends that: {share_span(tiny)}."
    )


def _single(frame: pd.DataFrame) -> str:
    last = single_samples.at_end(frame)
    (run,) = rows_of(last[last["claim"] == single_samples.OWN])
    return (
        "Adam with single samples goes to a norm of the data's own, whose form is derived here: "
        f"{percent(run[single_samples.OWN], 1)} of the certified maximum there, "
        f"{percent(run['l2'], 1)} in l2 and {percent(run['linf'], 1)} in l_inf."
    )


def _attention(frame: pd.DataFrame) -> str:
    last = attention.ends(frame)
    apart = last[last["claim"] == "nuclear"]["nuclear"]
    whole = last[(last["trained"] == "W") & (last["claim"] == "l2")]["l2"]
    return (
        f"Attention: W by normalised descent reaches {share_span(whole)} of the largest Frobenius "
        f"margin, keys and queries apart {share_span(apart)} of the nuclear one."
    )


def _networks(frame: pd.DataFrame, leading_part: pd.DataFrame) -> str:
    runs = networks.ends(frame)
    runs = runs[runs["gates"] != "live"]
    far = networks.exceptions(runs)
    runs = runs.drop(networks.elsewhere(runs).index)
    others = runs[list(networks.NORMS)].where(lambda gap: gap.ne(runs["own"], axis=0))
    small = leading.ends(leading_part)
    smooth = small[small["gates"] == leading.GATES[1]]["last"]
    return (
        "Small two-layer networks, smooth or with frozen gates, come near KKT points of their "
        "optimizer's norm, also where two optimizers share a network: gaps of "
        f"{span(runs['own'], '.2f')} there, and of {span(others.min(axis=1), '.2f')} in the "
        f"nearest other norm{far}. Low-rank and residual ones come to gaps of "
        f"{span(smooth, '.3f')} of their leading parts."
    )
