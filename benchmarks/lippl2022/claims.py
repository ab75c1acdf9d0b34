"""Which conclusions of the paper stand: each computed from the tables, with the cells it rests on.

A claim is judged by a rule that is stated beside it. It is open as long as the tables hold no
cell that bears on it; no number of a finding is typed by hand.

Source: Lippl, Abbott, Chung (2022) [L], sections 4 and 5 and figures 2 to 5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from benchmarks.harness import Verdict
from benchmarks.lippl2022.figures import SHALLOW, chance, disagreements
from benchmarks.lippl2022.values import CELL_COLUMNS, RELU, Tables, of_momentum

# What tells the settings of SVMs apart whose gates come from no network.
SETTING = [column for column in CELL_COLUMNS if column != "momentum"]
POINT = 0.01  # a percentage point


@dataclass(frozen=True)
class Claim:
    """A conclusion of the paper, and what our tables say of it.

    Attributes
    ----------
    name : str
        Anchor.
    statement : str
        What the paper says.
    where : str
        Where it says so.
    verdict : Verdict
        By the rule.
    rule : str
        How the verdict is found.
    finding : tuple of str
        Paragraphs with the numbers.
    cells : tuple of str
        Keys of the cells the numbers come from.
    """

    name: str
    statement: str
    where: str
    rule: str
    verdict: Verdict = Verdict.OPEN
    finding: tuple[str, ...] = ()
    cells: tuple[str, ...] = ()


def all_claims(values: pd.DataFrame, tables: Tables) -> tuple[Claim, ...]:
    """Judge every claim.

    Parameters
    ----------
    values : DataFrame
        See `values.all_values`.
    tables : Tables
        Our results.
    """
    return (
        l2_norm(values, tables),
        groups(values),
        errors_agree(values),
        below_chance(values),
        finite_time(tables),
        two_layers(values),
        relu_contexts(values),
    )


# --- gated linear networks -----------------------------------------------------------------


def l2_norm(values: pd.DataFrame, tables: Tables) -> Claim:
    """SVM-L2 against SVM-GLN."""
    claim = Claim(
        "l2",
        "The norm matters: SVM-L2 does much worse than SVM-GLN.",
        "section 4.1, figure 2a, c and d",
        "It stands if the corrected difference in error keeps at least half of the printed one, "
        "over the printed settings; it does not stand if it keeps less.",
    )
    printed = _compared(values, "published", "paper", "SVM-GLN", "SVM-L2")
    ours = _compared(values, "corrected", "ours", "SVM-GLN", "SVM-L2")
    same = ours.merge(printed[SETTING], on=SETTING)
    if same.empty:
        return claim
    was, now = printed["difference"], same["difference"]
    ahead = int((now < 0).sum())
    widths = ", ".join(
        f"{signed(rows['difference'].mean())} at H = {width}"
        for width, rows in same.groupby("units")
    )
    finding = [
        f"As printed, SVM-L2 is wrong on {percent(printed['second'].mean())} of the images and "
        f"SVM-GLN on {percent(printed['first'].mean())}: {signed(was.mean())} on average over "
        f"{len(printed)} settings, up to {signed(was.max())}.",
        f"With the exact norm of beta and the right groups it is "
        f"{percent(same['second'].mean())} against {percent(same['first'].mean())} on "
        f"{_share(same, printed, 'of these settings')}: {signed(now.mean())} on average, from "
        f"{signed(now.min())} to {signed(now.max())}; SVM-L2 is ahead in {ahead}. By width: "
        f"{widths}.",
    ]
    everywhere = ours["difference"]
    if len(ours) > len(same):
        finding.append(
            f"Over all {len(ours)} settings that we have, N = {_sizes(ours)}: "
            f"{signed(everywhere.mean())} on average, from {signed(everywhere.min())} to "
            f"{signed(everywhere.max())}."
        )
    finding += _why_l2(values, tables)
    return _judged(
        claim,
        Verdict.STANDS if now.mean() >= 0.5 * was.mean() else Verdict.FALLS,
        finding,
        [*ours["cell_first"]],
    )


def _why_l2(values: pd.DataFrame, tables: Tables) -> list[str]:
    """Say what the published operator gives where we ran it, to its optimum and by OSQP."""
    printed = values[(values["source"] == "paper") & (values["model"] == "SVM-L2")]
    wheres = {
        "svm-l2-published": "solved to its certified optimum, its smallest solution among the many",
        "svm-l2-osqp": "given to OSQP with its defaults, as theirs was",
    }
    found = []
    for name, how in wheres.items():
        rows = tables.study().models
        rows = rows[rows["model"] == name].drop_duplicates(SETTING)
        both = rows.merge(printed, on=SETTING, suffixes=("", "_printed"))
        if len(both):
            apart = (both["validation_error"] - both["error"]).abs()
            found.append(
                f"{how}, it is wrong on {percent(both['validation_error'].mean())} (printed for "
                f"the same {len(both)} settings: {percent(both['error'].mean())}; median "
                f"distance of a setting {points(apart.median())})"
            )
    if not found:
        return []
    return [
        "The published operator is neither of the two norms: it folds units and contexts in the "
        "wrong order and leaves H − 1 directions of the gates without a penalty. "
        + "; ".join(text[0].upper() + text[1:] if not i else text for i, text in enumerate(found))
        + "."
    ]


def groups(values: pd.DataFrame) -> Claim:
    """SVM-GLN with the published groups against the right ones."""
    claim = Claim(
        "groups",
        "The printed errors of SVM-GLN are those of the norm of the theory.",
        "figure 2, against theorem 3.1",
        "They stand if the published groups (column j in group j mod H) and the right ones differ "
        "by less than half a point on average and less than a point in every setting; in part if "
        "only on average.",
    )
    theirs = _rows(values, "published", "ours", "SVM-GLN")
    right = _rows(values, "corrected", "ours", "SVM-GLN")
    both = theirs.merge(right, on=SETTING, suffixes=("", "_right")).dropna(
        subset=["error", "error_right"]
    )
    if both.empty:
        return claim
    moved = both["error_right"] - both["error"]
    small = abs(moved.mean()) < 0.5 * POINT
    verdict = Verdict.STANDS if small and moved.abs().max() < POINT else Verdict.IN_PART
    return _judged(
        claim,
        verdict if small else Verdict.FALLS,
        [
            f"The right groups change the error by {signed(moved.mean())} on average over "
            f"{len(both)} settings, from {signed(moved.min())} to {signed(moved.max())}: "
            f"{percent(both['error_right'].mean())} instead of {percent(both['error'].mean())}."
        ],
        [*both["cell_right"]],
    )


def errors_agree(values: pd.DataFrame) -> Claim:
    """Error of SVM-GLN against that of the trained network."""
    claim = Claim(
        "errors",
        "SVM-GLN predicts how well the trained network generalises.",
        "section 4.1, figure 2a",
        "It stands if the corrected distance of the two errors is, on average, at most half a "
        "point above the printed one; in part if it is at most twice the printed one.",
    )
    momentum = _momentum(values)
    printed = _against_network(values, "published", "paper", "SVM-GLN", 0.0)
    ours = _against_network(values, "corrected", "ours", "SVM-GLN", momentum)
    if ours.empty or printed.empty:
        return claim
    was = (printed["error"] - printed["gd_error"]).abs().mean()
    now = (ours["error"] - ours["gd_error"]).abs().mean()
    verdict = Verdict.IN_PART if now <= 2 * was else Verdict.FALLS
    linked = ""
    if len(ours) > 2:
        linked = (
            f" Over the cells the two errors correlate with {_correlation(ours)} (printed: "
            f"{_correlation(printed)})."
        )
    return _judged(
        claim,
        Verdict.STANDS if now <= was + 0.5 * POINT else verdict,
        [
            f"The errors of SVM-GLN and GD-GLN lie {points(now)} apart on average over {len(ours)} "
            f"cells (momentum {momentum:g}, N = {_sizes(ours)}); as printed, {points(was)} over "
            f"{len(printed)} (momentum 0).{linked}"
        ],
        [*ours["cell"]],
    )


def below_chance(values: pd.DataFrame) -> Claim:
    """Disagreement of SVM-GLN and trained network, against chance."""
    claim = Claim(
        "chance",
        "SVM-GLN and the trained network agree far more than chance would have it, and yet "
        "disagree on more than a tenth of the images.",
        "section 4.1, figure 2b",
        "It stands if in every cell the disagreement is below chance, and above 10 % on average; "
        "in part if only one of the two holds.",
    )
    momentum = _momentum(values)
    ours = _against_network(values, "corrected", "ours", "SVM-GLN", momentum)
    printed = _against_network(values, "published", "paper", "SVM-GLN", 0.0)
    ours, printed = (rows.dropna(subset=["disagreement"]) for rows in (ours, printed))
    if ours.empty:
        return claim
    below = ours["disagreement"] < chance(ours["gd_error"])
    holds = [bool(below.all()), bool(ours["disagreement"].mean() > 0.1)]
    verdicts = (Verdict.FALLS, Verdict.IN_PART, Verdict.STANDS)
    texts = []
    for threshold, rows in ours.groupby("threshold"):
        theirs = printed[printed["threshold"] == threshold]
        as_printed = (
            f"; as printed {percent(theirs['disagreement'].mean())}, chance "
            f"{percent(chance(theirs['gd_error']).mean())}"
            if len(theirs)
            else ""
        )
        texts.append(
            f"{percent(rows['disagreement'].mean())} with {threshold} thresholds (chance "
            f"{percent(chance(rows['gd_error']).mean())}{as_printed})"
        )
    return _judged(
        claim,
        verdicts[sum(holds)],
        [
            f"GD-GLN, trained by the published protocol with momentum {momentum:g}, and SVM-GLN "
            f"disagree on {' and '.join(texts)}. Of {len(ours)} cells {int(below.sum())} are below "
            f"chance; N = {_sizes(ours)}.",
            *_moved(values, ours, printed),
        ],
        [*ours["cell"]],
    )


def _moved(values: pd.DataFrame, ours: pd.DataFrame, printed: pd.DataFrame) -> list[str]:
    """Say where the printed disagreements at median thresholds come from, if we have that."""
    moved = _against_network(values, "published", "ours", "SVM-GLN", 0.0)
    parts = [
        rows.loc[rows["threshold"] == "median", [*SETTING, "disagreement"]].rename(
            columns={"disagreement": name}
        )
        for name, rows in (("moved", moved), ("right", ours), ("printed", printed))
    ]
    both = parts[0].merge(parts[1], on=SETTING).merge(parts[2], on=SETTING).dropna()
    if both.empty:
        return []
    near = f"{points((both['moved'] - both['printed']).abs().mean())} on average"
    if len(both) > 2:
        near += f", correlation {both['moved'].corr(both['printed']):.2f}"
    return [
        "At median thresholds the printed disagreement is, by its numbers alone, not with the "
        "network as it was trained. Move the trained network to the contexts of its thresholds "
        "as first drawn, before they are set to medians, and SVM-GLN disagrees with it on "
        f"{percent(both['moved'].mean())} over {len(both)} settings, where "
        f"{percent(both['printed'].mean())} are printed ({near}); with the network where it was "
        f"trained, on {percent(both['right'].mean())}."
    ]


def finite_time(tables: Tables) -> Claim:
    """Disagreement in finite and in infinite time."""
    claim = Claim(
        "time",
        "Open in the paper: is the remaining disagreement due to finite time, or do networks go "
        "to other stationary points?",
        "section 4.1 and discussion",
        "It is finite time if, at every H, training towards the limit leaves less than half of "
        "the disagreement.",
    )
    frame = disagreements(tables).dropna(subset=["finite", "infinite"])
    if frame.empty:
        return claim
    by_width = frame.groupby("units")[
        ["finite", "infinite", "finite_excess", "infinite_excess"]
    ].mean()
    less = by_width["infinite"] < 0.5 * by_width["finite"]
    rows = "; ".join(
        f"H = {width}: {percent(finite)} → {percent(infinite)}"
        for width, finite, infinite in zip(
            by_width.index, by_width["finite"], by_width["infinite"], strict=True
        )
    )
    verdict = Verdict.ANSWERED if less.all() else Verdict.IN_PART
    return _judged(
        claim,
        verdict if less.any() else Verdict.FALLS,
        [
            f"From the published number of steps to training towards the limit, the disagreement "
            f"with SVM-GLN falls from {percent(frame['finite'].mean())} to "
            f"{percent(frame['infinite'].mean())} on average ({rows}). The norm at margin 1 "
            f"exceeds its certified optimum by {percent(frame['finite_excess'].mean())} and "
            f"{percent(frame['infinite_excess'].mean())}. {len(frame)} cells, N = {_sizes(frame)}.",
        ],
        [*frame["cell"]],
    )


def two_layers(values: pd.DataFrame) -> Claim:
    """Two layers against one, the best of all settings."""
    claim = Claim(
        "layers",
        "GLNs of two layers generalise better than shallow ones.",
        "section 4.1, figure 2c",
        "It stands if, for every N and for network and SVM alike, the best two-layer model errs "
        "less than the best shallow one.",
    )
    gln = ("GD-GLN", "SVM-GLN")
    ours = values[(values["side"] == "corrected") & values["model"].isin([*gln, *SHALLOW])]
    ours = ours.dropna(subset=["error"])
    least = ours.groupby(["train_size", "model", "seed"])["error"].min()
    table = least.groupby(level=[0, 1]).mean().unstack().reindex(columns=[*gln, *SHALLOW]).dropna()
    if table.empty:
        return claim
    texts, holds = [], []
    for size, row in table.iterrows():
        for deep, flat in zip(gln, SHALLOW, strict=True):
            holds.append(row[deep] < row[flat])
            texts.append(
                f"{deep} {percent(row[deep])}, {flat} {percent(row[flat])} at N = {size:,}"
            )
    used = ours[ours["train_size"].isin(table.index)]
    best = used.loc[used.groupby(["train_size", "model", "seed"])["error"].idxmin(), "cell"]
    return _judged(
        claim,
        Verdict.STANDS if all(holds) else Verdict.IN_PART if any(holds) else Verdict.FALLS,
        [f"Least error of each seed over the settings that we have, mean: {'; '.join(texts)}."],
        [*best],
    )


# --- ReLU networks -------------------------------------------------------------------------


def relu_contexts(values: pd.DataFrame) -> Claim:
    """Random contexts, learned ones, and the hidden layer against the trained ReLU network."""
    claim = Claim(
        "relu",
        "SVMs come ever closer to a ReLU network from random contexts (RC) over learned ones (LC) "
        "to its hidden layer (HL).",
        "section 5, figure 3a, b and d",
        "It stands if the disagreement with the network falls from RC over LC to HL in nine of "
        "ten cells in which all three are known; in part if in more than half.",
    )
    ours = values[(values["side"] == "corrected") & values["model"].isin(RELU)]
    wide = ours.pivot_table(index=["cell"], columns="model", values="disagreement", aggfunc="first")
    wide = wide.reindex(columns=["SVM-RC", "SVM-LC", "SVM-HL"]).dropna()
    if wide.empty:
        return claim
    falls = (wide["SVM-RC"] > wide["SVM-LC"]) & (wide["SVM-LC"] > wide["SVM-HL"])
    used = ours[ours["cell"].isin(wide.index)]
    errors = used.groupby("model")["error"].mean()
    rescued = ours[ours["their_failure"] & (ours["state"] == "solved")]
    unsolved = ours[ours["state"] != "solved"]
    verdict = Verdict.IN_PART if falls.mean() > 0.5 else Verdict.FALLS
    return _judged(
        claim,
        Verdict.STANDS if falls.mean() >= 0.9 else verdict,
        [
            f"So it is in {int(falls.sum())} of {len(wide)} cells. Mean disagreement: "
            + ", ".join(f"{m} {percent(wide[m].mean())}" for m in wide.columns)
            + ". Mean error: "
            + ", ".join(f"{m} {percent(errors[m])}" for m in RELU if m in errors)
            + f". N = {_sizes(used)}, momentum {_listed(used['momentum'])}.",
            f"{len(rescued)} programs that the published solver failed on are solved here, "
            f"{int(rescued['left_out'].sum())} of them with training samples left out; "
            f"{len(unsolved)} have no predictor.",
        ],
        [*wide.index],
    )


# --- helpers -------------------------------------------------------------------------------


def _judged(claim: Claim, verdict: Verdict, finding: Sequence[str], cells: Sequence[str]) -> Claim:
    known = tuple(dict.fromkeys(cell for cell in cells if cell))
    return Claim(
        claim.name, claim.statement, claim.where, claim.rule, verdict, tuple(finding), known
    )


def _rows(values: pd.DataFrame, side: str, source: str, model: str) -> pd.DataFrame:
    """Rows of a model whose error does not depend on the momentum: one a setting."""
    chosen = (values["side"] == side) & (values["source"] == source) & (values["model"] == model)
    return values[chosen].drop_duplicates(SETTING)


def _compared(
    values: pd.DataFrame, side: str, source: str, first: str, second: str
) -> pd.DataFrame:
    """Errors of two models setting by setting, and their difference."""
    parts = [
        _rows(values, side, source, model)[[*SETTING, "error", "cell"]].rename(
            columns={"error": name, "cell": f"cell_{name}"}
        )
        for name, model in (("first", first), ("second", second))
    ]
    both = parts[0].merge(parts[1], on=SETTING).dropna(subset=["first", "second"])
    return both.assign(difference=both["second"] - both["first"])


def _against_network(
    values: pd.DataFrame, side: str, source: str, model: str, momentum: float
) -> pd.DataFrame:
    rows = of_momentum(values[values["model"] == model], momentum)
    rows = rows[(rows["side"] == side) & (rows["source"] == source)]
    return rows.dropna(subset=["error", "gd_error"])


def _momentum(values: pd.DataFrame) -> float:
    """Momentum of the networks to compare with: none, as printed, or what has been computed."""
    ours = values[(values["side"] == "corrected") & (values["model"] == "SVM-GLN")]
    known = set(ours.dropna(subset=["disagreement"])["momentum"])
    return min(known, default=0.0)


def _correlation(rows: pd.DataFrame) -> str:
    return f"{rows['error'].corr(rows['gd_error']):.2f}"


def _share(some: pd.DataFrame, everything: pd.DataFrame, what: str) -> str:
    if len(some) == len(everything):
        return f"all {len(some)} {what}"
    return f"{len(some)} {what} (the others are not yet computed)"


def _sizes(rows: pd.DataFrame) -> str:
    return _listed(rows["train_size"])


def _listed(column: pd.Series[float]) -> str:
    texts = [f"{value:,g}" for value in sorted(set(column))]
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)


def percent(share: float) -> str:
    """Write a share: "16.5 %", and "0.02 %" where one digit would leave nothing."""
    digits = ".1f" if share == 0 or abs(share) >= 5e-4 else ".1g"
    return f"{100 * share:{digits}}\u00a0%"


def points(share: float) -> str:
    """Write a difference of shares: "0.8 points"."""
    return f"{100 * share:.1f}\u00a0points"


def signed(share: float) -> str:
    """Write a difference of shares with its sign: "+0.8 points"."""
    return f"{100 * share:+.1f}\u00a0points".replace("-", "−")
