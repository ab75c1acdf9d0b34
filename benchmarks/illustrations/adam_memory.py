r"""Adam with all samples: from which step on it is sign descent, and until when.

Let steps be eta / sqrt(t), gamma the largest margin in l_inf, and g the gradient, whose entries
shrink with the smallest margin q like exp(-q).

**Memory.** While |g| shrinks slower than Adam forgets, sqrt(v) is about |g| and a step is
eta / sqrt(t) sign(g): sign descent, whose margin grows by gamma eta / sqrt(t) a step at most. But v
falls by no more than beta2 a step. Where the margin grows faster than 1/2 ln(1 / beta2) a step, g
falls behind sqrt(v), the steps shrink, and the margin grows by 1/2 ln(1 / beta2) a step, a speed
limit. Then every gradient of the past has about the same weight in v, beta2^t times what it was
relative to the slopes of its time, so entries are divided by a mean over the past and not by |g|.
The two rates are equal at

    t_sign = (eta gamma / (1/2 ln(1 / beta2)))^2.

Before t_sign the geometry is another one; after it that of l_inf. At kappa t_sign what was made of
the margin before it is 1 / (2 sqrt(kappa)): eta gamma sqrt(t_sign) of 2 eta gamma sqrt(t).

**Epsilon.** Once |g| is below epsilon, a step is eta / sqrt(t) g / epsilon: gradient descent, with
momentum. That is when q reaches ln(1 / epsilon), at

    t_eps = max{ (ln(1 / epsilon) / (2 eta gamma))^2,  ln(1 / epsilon) / (1/2 ln(1 / beta2)) },

as both rates bound the margin. From there on it grows like log t, and what is added goes to l2.
With Adam's defaults, 0.999 and 1e-8, t_eps is 37,000 steps or more; where t_sign is larger, there
never is a time of sign descent. A run that is to see l_inf has a smaller beta2, or a loss whose
gradients do not shrink, such as the logarithm of this one.

Sources: Zhang, Zou, Cao (2024), "The implicit bias of Adam on separable data", for the limit
without epsilon. The two times are derived here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.bench import Part, part, rows_of
from benchmarks.drawing import Figure, common_legend, subplots
from benchmarks.fill import written
from benchmarks.illustrations.descent import Adam, sign_time, speed_limit
from benchmarks.illustrations.single_samples import NORMS, Grade, drawn
from benchmarks.summaries import log_spaced
from implicit_bias.base.style import COLOURS, LINES, MARKERS

COST = 1.0
# beta2, eta and epsilon of each run, so that t_sign and t_eps lie far on both sides of its length.
RUNS = (
    (0.9, 0.1, 0.0),
    (0.95, 0.1, 0.0),
    (0.99, 0.1, 0.0),
    (0.999, 0.1, 0.0),
    (0.999, 0.003, 0.0),
    (0.95, 0.1, 1e-8),
    (0.95, 0.1, 1e-2),
)
# From this many times t_sign or t_eps on a run is long after it, and before it at this share of it.
LONG, EARLY = 50.0, 0.1


def measure(quick: bool) -> Iterator[Part]:
    """Train on both sets; all runs of a set go side by side."""
    for data in ("Rademacher", "Gaussian"):
        if quick:
            yield part(side_by_side, data=data, samples=4, features=8, steps=300)
        else:
            yield part(side_by_side, data=data, samples=10, features=50, steps=1_000_000)


def epsilon_time(epsilon: float, step_size: float, beta2: float, gamma: float) -> float:
    """t_eps, from which step on gradients are below epsilon; inf where it is 0."""
    if epsilon == 0.0:
        return math.inf
    margin = math.log(1 / epsilon)
    return max((margin / (2 * step_size * gamma)) ** 2, margin / speed_limit(beta2))


def side_by_side(data: str, samples: int, features: int, steps: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each run, recorded step and norm: the margin, and its share of the largest.

    All samples count at each step. Slopes are held relative to exp(-the smallest margin), so that
    none of those at the margin underflows; epsilon is relative to the same.
    """
    signed = drawn(data, samples, features)
    grades = {norm: Grade.of(norm, signed) for norm in NORMS}
    gamma = grades["linf"].largest
    beta2, eta, epsilon = (np.array(column)[:, None] for column in zip(*RUNS, strict=True))
    adam = Adam(epsilon, (0.9, beta2))
    weights = np.zeros((len(RUNS), features))
    least = np.zeros((len(RUNS), 1))
    kept = set(log_spaced(steps, 60))
    for t in range(1, steps + 1):
        margins = weights @ signed.T
        smallest = margins.min(axis=1, keepdims=True)
        adam.rescale(np.exp(smallest - least))
        least = smallest
        # epsilon in units of exp(-least): 0 stays 0, and beyond 1e300 no step is left
        adam.epsilon = epsilon * np.exp(np.minimum(least, 690.0))
        slopes = np.exp(least - np.logaddexp(0.0, margins))
        weights = weights + eta / t**0.5 * adam(-slopes @ signed / len(signed))
        if t not in kept:
            continue
        for run, w in zip(RUNS, weights, strict=True):
            facts = dict(zip(("beta2", "step_size", "epsilon"), run, strict=True))
            facts |= {"step": t, "margin": float((signed @ w).min()), "gamma": gamma}
            for norm, grade in grades.items():
                yield facts | {"norm": norm, "share": grade.share(signed, w)}


# --- what the page says --------------------------------------------------------------------------

RUN = ["data", "beta2", "step_size", "epsilon"]


def ends(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each run: its times, shares, and the growth of its margin at the end.

    Columns: those of a run, sign (t_sign), tiny (t_eps), early (share in l_inf at a tenth of
    t_sign), linf and l2 (at the end), growth (over the last half, as a share of the speed limit),
    foreseen (the same by theory), after (whether it is long after t_sign or t_eps).
    """
    return pd.DataFrame([end(run) for _, run in frame.groupby(RUN, sort=False)])


def end(run: pd.DataFrame) -> dict[str, Any]:
    """Return the row of a run."""
    first = next(rows_of(run))
    beta2, eta, epsilon, gamma = (
        first[name] for name in ("beta2", "step_size", "epsilon", "gamma")
    )
    shares = run.pivot(index="step", columns="norm", values="share")
    last = int(run["step"].max())
    sign = sign_time(eta, beta2, gamma)
    tiny = epsilon_time(epsilon, eta, beta2, gamma)
    margins = run[run["norm"] == "linf"].set_index("step")["margin"]
    since = margins.index[margins.index <= last / 2].max()
    growth = (margins[last] - margins[since]) / (last - since) / speed_limit(beta2)
    early = shares.index <= max(EARLY * sign, shares.index.min())
    return {
        **{name: first[name] for name in RUN},
        "sign": sign,
        "tiny": tiny,
        "early": shares.loc[early, "linf"].iloc[-1],
        "linf": shares.loc[last, "linf"],
        "l2": shares.loc[last, "l2"],
        "growth": growth,
        "foreseen": foreseen(since, last, sign),
        "after": last >= LONG * (sign if epsilon == 0 else tiny),
    }


def foreseen(since: float, last: float, sign: float) -> float:
    """Mean of min(1, sqrt(t_sign / t)) over steps since .. last."""
    turn = min(max(sign, since), last)
    after = 2 * math.sqrt(sign) * (math.sqrt(last) - math.sqrt(turn))
    return (turn - since + after) / (last - since)


def numbers(frame: pd.DataFrame) -> dict[str, Any]:
    """Shares before and after t_sign, with epsilon after t_eps, and growth over the foreseen."""
    last = ends(frame)
    free = last[last["epsilon"] == 0]
    after = free[free["after"]]
    tiny = last[(last["epsilon"] > 0) & last["after"]]
    growth = free["growth"] / free["foreseen"]
    ranges = {
        "early": free["early"],
        "after": after["linf"],
        "after_l2": after["l2"],
        "epsilon": tiny["linf"],
        "epsilon_l2": tiny["l2"],
        "growth": growth,
    }
    found: dict[str, Any] = {"steps": frame["step"].max(), "runs_after": len(after)}
    for name, values in ranges.items():
        found |= {f"{name}_low": values.min(), f"{name}_high": values.max()}
    return found | {"runs": table(last)}


def table(last: pd.DataFrame) -> pd.DataFrame:
    """Show the ends of all runs; with epsilon there is no time of sign descent to foresee."""
    rows = []
    for run in rows_of(last):
        plain = run["epsilon"] == 0
        rows.append(
            {
                "data": run["data"],
                "beta2": f"{run['beta2']:g}",
                "step": f"{run['step_size']:g}",
                "epsilon": f"{run['epsilon']:g}",
                "t_sign": f"{run['sign']:,.0f}",
                "t_eps": "-" if plain else f"{run['tiny']:,.0f}",
                "l_inf at 0.1 t_sign": written(run["early"], ".1%") if plain else "-",
                "l_inf": written(run["linf"], ".1%"),
                "l2": written(run["l2"], ".1%"),
                "growth": f"{run['growth']:.3f}" if plain else "-",
                "foreseen": f"{run['foreseen']:.3f}" if plain else "-",
            }
        )
    return pd.DataFrame(rows)


def draw(frame: pd.DataFrame) -> Figure:
    """Shares in l_inf and l2 against steps over t_sign, and of runs with epsilon over t_eps."""
    figure, panels = subplots(
        (9.6, 6.0), 2, 2, sharey=True, grid="both", y="margin / certified maximum"
    )
    for row, (data, of_data) in zip(panels, frame.groupby("data", sort=False), strict=True):
        for ax, tiny in zip(row, (False, True), strict=True):
            shown = of_data[(of_data["epsilon"] > 0) == tiny]
            for place, (_, run) in enumerate(shown.groupby(RUN, sort=False)):
                one = next(rows_of(run))
                beta2, eta, epsilon = one["beta2"], one["step_size"], one["epsilon"]
                scale = (
                    epsilon_time(epsilon, eta, beta2, one["gamma"])
                    if tiny
                    else sign_time(eta, beta2, one["gamma"])
                )
                words = f"epsilon {epsilon:g}" if tiny else f"{beta2:g}, {eta:g}"
                colour = COLOURS[(place + (5 if tiny else 0)) % len(COLOURS)]
                for line, norm in zip(LINES, ("linf", "l2"), strict=False):
                    of_norm = run[run["norm"] == norm]
                    steps, shares = of_norm["step"] / scale, of_norm["share"].clip(lower=0)
                    look = {"color": colour, "linestyle": line, "marker": MARKERS[place]}
                    ax.plot(
                        steps, shares, lw=1.3, ms=3, markevery=5, label=f"{words}: {norm}", **look
                    )
            ax.axvline(1.0, color="black", linewidth=0.7, linestyle=":")
            ax.axhline(1.0, color="black", linewidth=0.7, linestyle=":")
            title = "with epsilon (beta2 0.95, step 0.1)" if tiny else "epsilon 0: beta2, step"
            ax.set(xscale="log", ylim=(0.4, 1.02), title=f"{data}, {title}")
            ax.set_xlabel("steps / t_eps" if tiny else "steps / t_sign")
    return common_legend(figure, panels[0], 4)
