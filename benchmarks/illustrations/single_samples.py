r"""Adam that takes one sample at a time goes elsewhere than Adam with all samples.

On generalised Rademacher data (|x_nj| the same for all j) a step of one sample divides its gradient
by nearly the same number in every entry, so that Adam is gradient descent with other step sizes and
goes to the largest margin in l2. With all samples it is sign descent in the limit: l_inf. On
general data its limit is the largest margin under a norm of the data's own. The sign of a long
running mean (Signum) does not depend on the batches: l_inf.

The norm of the data's own is a fixed point: sqrt(sum_j M_j w_j^2) with M_j^2 = sum_n c_n^2 x_nj^2,
c the multipliers of its own margin problem as shares. This form is derived here, from the dynamics
(`implicit_bias.modules.single_samples`), and not taken from the paper, whose sizes are not known
here either. It is that of l2 on features x_j / sqrt(M_j), so its largest margin is certified.

Source: Baek, Song, Yun (2025), "Implicit bias of per-sample Adam on separable data: departure from
the full-batch regime".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.bench import Part, part
from benchmarks.illustrations.descent import Adam, Momentum, sign_time
from benchmarks.summaries import log_spaced
from implicit_bias import max_margin, solve
from implicit_bias.base.validation import Array
from implicit_bias.modules.single_samples import per_sample_adam_metric
from implicit_bias.norms import as_norm

COST = 1.0
OWN = "fixed point"
NORMS = ("l2", "linf", OWN)
# Adam's memory of squares: near 1 as the theory of single samples asks, and with all samples so
# short that the runs are long past t_sign (`adam_memory`).
BETA2 = {"one sample": 0.999, "all samples": 0.95}
# Of Signum, and the steps STEP_SIZE / sqrt(t) of all.
MOMENTUM, STEP_SIZE = 0.99, 0.1
OPTIMIZERS = {
    "all": "Adam, all samples",
    "one": "Adam, one sample",
    "signum": "Signum, one sample",
}


def measure(quick: bool) -> Iterator[Part]:
    """Run every optimizer on both sets."""
    for data in ("Rademacher", "Gaussian"):
        for optimizer in OPTIMIZERS.values():
            sizes = {"samples": 10, "features": 50, "passes": 40_000}
            if quick:
                sizes = {"samples": 4, "features": 8, "passes": 100}
            yield part(shares, data=data, optimizer=optimizer, **sizes)


def drawn(data: str, samples: int, features: int) -> Array:
    """Return y_n x_n (N, D), separable as there are more features than samples."""
    normal = np.random.default_rng(0).normal(size=(samples, features))
    return np.sign(normal) if data == "Rademacher" else normal


@dataclass(frozen=True)
class Grade:
    """A norm of weights as one of rescaled ones, with the largest margin under it."""

    norm: str
    root: Array
    largest: float
    best: Array

    @classmethod
    def of(cls, norm: str, signed: Array) -> Grade:
        """Solve for the largest margin."""
        labels, M = np.ones(len(signed)), np.ones(signed.shape[1])
        plain = norm
        if norm == OWN:
            M, _ = per_sample_adam_metric(signed, labels)
            plain = "l2"
        found = solve(max_margin(signed / np.sqrt(M), labels, plain), tol=1e-8)
        best = found.coef[0] / np.sqrt(M)
        return cls(plain, np.sqrt(M), 1 / found.certificate.upper, best)

    def share(self, signed: Array, weights: Array) -> float:
        """Return the margin of weights (D,) over the largest one, which is a lower bound on it."""
        size = as_norm(self.norm).value((self.root * weights)[None])
        return float((signed @ weights).min()) / size / self.largest


def iterates(signed: Array, optimizer: str, passes: int) -> Iterator[tuple[int, Array]]:
    """Train from zero on the logistic loss, and yield passes and weights (D,) at some of them.

    One sample at a time is in cyclic order; all samples count as often, as a step per pass for
    each. Margins grow to thousands, so slopes are held relative to exp(-the smallest margin), at
    which those of the samples at the margin do not underflow. Neither method has a scale of its
    own.
    """
    one = optimizer.endswith("one sample")
    beta2 = BETA2[optimizer.rpartition(", ")[2]]
    direction: Momentum | Adam = Adam(0.0, (0.9, beta2))
    if optimizer.startswith("Signum"):
        direction = Momentum("linf", MOMENTUM)
    weights = np.zeros(signed.shape[1])
    kept = set(log_spaced(passes, 30))
    t, least = 0, 0.0
    for done in range(1, passes + 1):
        for row in signed:
            t += 1
            margins = signed @ weights
            direction.rescale(np.exp(margins.min() - least))
            least = margins.min()
            Z, q = (row[None], row @ weights) if one else (signed, margins)
            # exp(least) / (1 + exp(q)), the derivative of the logistic loss in units of exp(-least)
            slopes = np.exp(least - np.logaddexp(0.0, q))
            gradient = -np.atleast_1d(slopes) @ Z / len(Z)
            weights = weights + STEP_SIZE / t**0.5 * direction(gradient)
        if done in kept:
            yield done, weights


def shares(
    data: str, optimizer: str, samples: int, features: int, passes: int
) -> Iterator[dict[str, Any]]:
    """Yield a row for each recorded pass and norm: the share of the largest margin.

    Beside it is the share in this norm of the predictor whose l2 margin is largest.
    """
    signed = drawn(data, samples, features)
    grades = {norm: Grade.of(norm, signed) for norm in NORMS}
    for done, weights in iterates(signed, optimizer, passes):
        for norm, grade in grades.items():
            yield {
                "done": done,
                "norm": norm,
                "share": grade.share(signed, weights),
                "share_of_l2": grade.share(signed, grades["l2"].best),
                "gamma": grades["linf"].largest,
            }


def numbers(frame: pd.DataFrame) -> dict[str, Any]:
    """Shares at the end, by data, optimizer and norm."""
    last = frame[frame["done"] == frame["passes"]]
    table = last.pivot(index=["data", "optimizer"], columns="norm", values="share")
    found: dict[str, Any] = {"passes": frame["passes"].max()}
    for data in ("Rademacher", "Gaussian"):
        for key, optimizer in OPTIMIZERS.items():
            for norm, name in (("l2", "l2"), ("linf", "linf"), (OWN, "own")):
                found[f"{data.lower()}_{key}_{name}"] = table.loc[(data, optimizer), norm]
    own = last[(last["norm"] == OWN) & (last["data"] == "Gaussian")]
    whole = last[(last["optimizer"] == OPTIMIZERS["all"]) & (last["norm"] == OWN)]
    times = [sign_time(STEP_SIZE, BETA2["all samples"], gamma) for gamma in whole["gamma"]]
    lengths = whole["passes"] * whole["samples"] / times
    columns = {"l2": "l2", "linf": "l_inf", OWN: "fixed point"}
    by_run = table[list(columns)].rename(columns=columns).reset_index()
    return found | {
        "l2_in_own": own["share_of_l2"].iloc[0],
        "times_low": lengths.min(),
        "times_high": lengths.max(),
        "shares": by_run,
    }
