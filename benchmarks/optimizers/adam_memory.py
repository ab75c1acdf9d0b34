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
never is a time of sign descent.

Sources: Zhang, Zou, Cao (2024), "The implicit bias of Adam on separable data", for the limit
without epsilon. The two times are derived here.
"""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from benchmarks.drawing import Figure, common_legend, subplots
from benchmarks.harness import Judged, Row, Rows, Verdict, otherwise, rows_of
from benchmarks.optimizers import single_samples
from benchmarks.optimizers.descent import Adam, sign_time, speed_limit
from benchmarks.optimizers.single_samples import NORMS, Judge, drawn
from benchmarks.sizes import grid, log_spaced, sized
from benchmarks.words import share_span, span
from implicit_bias.base.wording import percent
from implicit_bias.report.style import COLOURS, LINES, MARKERS

POINTS = 60
# From this many times t_sign or t_eps on a run is long after it, and before it at this share of it.
LONG, EARLY = 50.0, 0.1
# Share of the maximum in l_inf that is asked for after t_sign, and missed before.
REACHED = 0.95
# By how much the margin's growth may differ from min(1, sqrt(t_sign / t)) times the speed limit.
OFF = 0.15
# Other bounds: of the share, and of the growth.
MORE, LESS_OFF = 0.97, 0.05


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What is measured: data as with single samples; of each run beta2, eta and epsilon."""

    samples: int = 10
    features: int = 50
    steps: int = 1_000_000
    beta2: tuple[float, ...] = (0.9, 0.95, 0.99, 0.999, 0.999, 0.95, 0.95)
    step_sizes: tuple[float, ...] = (0.1, 0.1, 0.1, 0.1, 0.003, 0.1, 0.1)
    epsilons: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0, 0.0, 1e-8, 1e-2)


QUICK = Sizes(
    samples=4, features=8, steps=300, beta2=(0.9, 0.9), step_sizes=(0.1, 0.1), epsilons=(0.0, 1e-2)
)


def settings(sizes: Sizes) -> list[Row]:
    """Both sets; all runs of a set go side by side."""
    return grid(data=("Rademacher", "Gaussian"))


def epsilon_time(epsilon: float, step_size: float, beta2: float, gamma: float) -> float:
    """t_eps, from which step on gradients are below epsilon; inf where it is 0."""
    if epsilon == 0.0:
        return math.inf
    margin = math.log(1 / epsilon)
    return max((margin / (2 * step_size * gamma)) ** 2, margin / speed_limit(beta2))


def rows(sizes: Sizes, data: str) -> Rows:
    """One row a run, step and norm: the margin, and its share of the largest one.

    All samples count at each step. Slopes are held relative to exp(-the smallest margin), so that
    none of those at the margin underflows; epsilon is relative to the same.
    """
    signed = drawn(single_samples.Sizes(samples=sizes.samples, features=sizes.features), data)
    judges = {norm: Judge.of(norm, signed) for norm in NORMS}
    gamma = judges["linf"].largest
    runs = list(zip(sizes.beta2, sizes.step_sizes, sizes.epsilons, strict=True))
    beta2, eta, epsilon = (np.array(column)[:, None] for column in zip(*runs, strict=True))
    adam, weights = Adam(epsilon, (0.9, beta2)), np.zeros((len(runs), sizes.features))
    kept, least = set(log_spaced(sizes.steps, POINTS)), np.zeros((len(runs), 1))
    for t in range(1, sizes.steps + 1):
        margins = weights @ signed.T
        smallest = margins.min(axis=1, keepdims=True)
        adam.rescale(np.exp(smallest - least))
        least = smallest
        # epsilon in units of exp(-least): 0 stays 0, and beyond 1e300 no step is left
        adam.epsilon = epsilon * np.exp(np.minimum(least, 690.0))
        slopes = np.exp(least - np.logaddexp(0.0, margins))
        weights = weights + eta / t**0.5 * adam(-slopes @ signed / len(signed))
        if t in kept:
            for (two, size, tiny), w in zip(runs, weights, strict=True):
                for norm, judge in judges.items():
                    yield {
                        "beta2": two,
                        "step_size": size,
                        "epsilon": tiny,
                        "step": t,
                        "norm": norm,
                        "margin": float((signed @ w).min()),
                        "share": judge.share(signed, w),
                        "gamma": gamma,
                    }


# --- what a table says -------------------------------------------------------------------------

RUN = ["data", "beta2", "step_size", "epsilon"]


def ends(frame: pd.DataFrame, least: float = REACHED, off: float = OFF) -> pd.DataFrame:
    """Return a row a run: its times, shares, growth at the end, what is expected, what holds.

    ``there`` is whether it ends at l_inf, of those long after t_sign; ``timed`` whether it is as
    the two times foresee; None where that is not judged.
    """
    return pd.DataFrame([_end(run, least, off) for _, run in frame.groupby(RUN, sort=False)])


def _end(run: pd.DataFrame, least: float, off: float) -> Row:
    first = rows_of(run.iloc[:1])[0]
    beta2, eta, epsilon, gamma = (
        first[name] for name in ("beta2", "step_size", "epsilon", "gamma")
    )
    shares = run.pivot(index="step", columns="norm", values="share")
    last = int(run["step"].max())
    star, tiny = sign_time(eta, beta2, gamma), epsilon_time(epsilon, eta, beta2, gamma)
    margins = run[run["norm"] == "linf"].set_index("step")["margin"]
    since = margins.index[margins.index <= last / 2].max()
    growth = (margins[last] - margins[since]) / (last - since) / speed_limit(beta2)
    found = {
        **{name: first[name] for name in RUN},
        "sign": star,
        "tiny": tiny,
        "length": last / star,
        **{norm: shares.loc[last, norm] for norm in NORMS},
        "early": shares.loc[shares.index <= max(EARLY * star, shares.index.min()), "linf"].iloc[-1],
        "growth": growth,
        # the mean of sqrt(t_sign / t) over these steps, and 1 before t_sign
        "foreseen": _foreseen(since, last, star),
    }
    return found | _outcome(found, shares, last, least, off)


def _foreseen(since: float, last: float, star: float) -> float:
    """Mean of min(1, sqrt(t_sign / t)) over steps since .. last."""
    turn = min(max(star, since), last)
    after = 2 * math.sqrt(star) * (math.sqrt(last) - math.sqrt(turn))
    return (turn - since + after) / (last - since)


def _outcome(found: Row, shares: pd.DataFrame, last: int, least: float, off: float) -> Row:
    """Say on which side of its times a run is, and whether it is as foreseen there."""
    largest = max(found[norm] for norm in NORMS)
    if found["epsilon"] > 0:
        if last < LONG * found["tiny"]:
            return {"side": "about t_eps", "there": None, "timed": None}
        then = shares[shares.index <= max(found["tiny"], shares.index.min())].iloc[-1]
        turned = found["linf"] < then["linf"] and found["l2"] > then["l2"]
        return {"side": "after t_eps", "there": None, "timed": bool(turned)}
    paced = abs(found["growth"] / found["foreseen"] - 1) <= off
    timed = bool(paced and found["early"] < REACHED)
    if found["length"] < LONG:
        return {"side": "about t_sign", "there": None, "timed": timed}
    there = found["linf"] >= least and found["linf"] == largest
    return {"side": "after t_sign", "there": bool(there), "timed": timed}


def found(frame: pd.DataFrame) -> str:
    """Say what the table says."""
    last = ends(frame)
    timed, there = last["timed"].dropna(), last["there"].dropna()
    return (
        f"{int(there.sum())} of {len(there)} runs of {LONG:g} t_sign and more end at l_inf; "
        f"{int(timed.sum())} of {len(timed)} that are long enough are as the two times foresee."
    )


def judge(frame: pd.DataFrame) -> dict[str, Judged]:
    """Judge the claim of the source, and ours of the times, by their rules."""
    last, steps = ends(frame), f"{frame['step'].max():,} steps"
    free = last[last["epsilon"] == 0]
    after, tiny = (last[last["side"] == side] for side in ("after t_sign", "after t_eps"))
    limit, times = (last[name].dropna() for name in ("there", "timed"))
    more = ends(frame, least=MORE)["there"].dropna()
    less = ends(frame, off=LESS_OFF)["timed"].dropna()
    of_limit, of_tiny = "No run is long enough.", ""
    if len(after):
        of_limit = (
            f"Of {steps}: runs of {LONG:g} t_sign and more end with {share_span(after['linf'])} of "
            f"the largest margin in l_inf, and {share_span(after['l2'])} in l2."
        )
    if len(tiny):
        of_tiny = (
            f"; with epsilon those of {LONG:g} t_eps and more end with {share_span(tiny['linf'])} "
            f"in l_inf and {share_span(tiny['l2'])} in l2"
        )
    return {
        "adam_limit": Judged(
            Verdict.each(limit), of_limit, remark=otherwise(Verdict.each(more), percent(MORE))
        ),
        "adam_times": Judged(
            Verdict.each(times),
            f"At {EARLY:g} t_sign runs have {share_span(free['early'])} in l_inf{of_tiny}; margins "
            f"grow {span(free['growth'] / free['foreseen'], '.2f')} times as fast as foreseen.",
            remark=otherwise(Verdict.each(less), f"{percent(LESS_OFF)} in the growth"),
        ),
    }


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """Show the ends of all runs."""
    last = ends(frame)
    plain, told = last["epsilon"] == 0, {True: "yes", False: "no"}
    return last.assign(
        tiny=last["tiny"].where(np.isfinite(last["tiny"])),
        early=last["early"].map(lambda share: percent(share, 1)).where(plain, "-"),
        foreseen=last["foreseen"].where(plain),
        there=last["there"].map(told).fillna("not judged"),
        timed=last["timed"].map(told).fillna("not judged"),
    )


def draw(frame: pd.DataFrame) -> Figure:
    """Shares in l_inf and l2 against steps over t_sign, and of runs with epsilon over t_eps."""
    figure, panels = subplots(
        (9.6, 6.0), 2, 2, sharey=True, grid="both", y="margin / certified maximum"
    )
    for row, (data, of_data) in zip(panels, frame.groupby("data", sort=False), strict=True):
        for ax, tiny in zip(row, (False, True), strict=True):
            shown = of_data[(of_data["epsilon"] > 0) == tiny]
            for place, (_, run) in enumerate(shown.groupby(RUN, sort=False)):
                one = rows_of(run.iloc[:1])[0]
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


EXPERIMENT = sized(settings, rows, found, tabulate, draw=draw, judge=judge, quick=QUICK)
