r"""Modules that are homogeneous only in the limit: gaps of their leading parts along training.

Where f(c theta) / c^L converges as c grows, the limit is the leading part of f, and gradient
descent goes to KKT points of its margin problem.

====================  ==========================================  ==================================
module                f                                           leading part
====================  ==========================================  ==================================
low-rank update       a' phi((W_0 + B A) x), a and W_0 frozen      a' phi(B A x)
residual              two blocks z + W phi(V z + b) after U x      W_2 phi(V_2 W_1 phi(V_1 U x)),
                                                                  without shortcuts and biases
====================  ==========================================  ==================================

phi is relu, whose kinks training runs into, or its square, which has a derivative everywhere. Each
module is measured by `diagnose(leading=True)`, which finds the leading part by numbers, and beside
it the leading part written out by hand, with the same weights, by `diagnose` alone.

Source: Cai et al. (2025), on near-homogeneous networks; proven for gradient descent in l2.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from benchmarks.bench import Part, part, rows_of
from benchmarks.summaries import log_spaced
from implicit_bias import Diagnosis, DiagnosisWarning, diagnose

COST = 1.5
SAMPLES, FEATURES, UNITS = 14, 4, 5
MODULES = ("low-rank update", "residual")
GATES = ("relu", "squared relu")


def measure(quick: bool) -> Iterator[Part]:
    """Train both modules with both activations, from two starts."""
    for module, gates, start in product(MODULES, GATES, range(2)):
        yield part(trained, module=module, gates=gates, start=start, steps=200 if quick else 20_000)


def activation(gates: str, z: Tensor) -> Tensor:
    """Return phi(z)."""
    return z.relu() if gates == "relu" else z.relu() ** 2


class LowRank(nn.Module):
    """A frozen network of two layers whose first one has an update of rank 2."""

    W_0: Tensor
    readout: Tensor

    def __init__(self, D: int, H: int, gates: str, *, whole: bool) -> None:
        super().__init__()
        self.A, self.B = nn.Parameter(torch.empty(2, D)), nn.Parameter(torch.empty(H, 2))
        fixed = torch.Generator().manual_seed(7)
        self.register_buffer("W_0", 0.3 * whole * torch.randn(H, D, generator=fixed))
        self.register_buffer("readout", torch.randn(H, generator=fixed))
        self.gates = gates

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs (N,)."""
        return activation(self.gates, x @ (self.W_0 + self.B @ self.A).T) @ self.readout


class Residual(nn.Module):
    """Two residual blocks with biases, or their leading part: without shortcuts and biases."""

    def __init__(self, D: int, H: int, gates: str, *, whole: bool) -> None:
        super().__init__()
        self.U, self.a = nn.Parameter(torch.empty(H, D)), nn.Parameter(torch.empty(H))
        self.V_1, self.W_1, self.V_2, self.W_2 = (nn.Parameter(torch.empty(H, H)) for _ in range(4))
        self.b_1, self.b_2 = nn.Parameter(torch.empty(H)), nn.Parameter(torch.empty(H))
        self.gates, self.whole = gates, whole

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs (N,)."""
        z = x @ self.U.T
        for V, W, b in ((self.V_1, self.W_1, self.b_1), (self.V_2, self.W_2, self.b_2)):
            inner = z @ V.T + b if self.whole else z @ V.T
            outer = activation(self.gates, inner) @ W.T
            z = z + outer if self.whole else outer
        return z @ self.a


def built(module: str, gates: str, seed: int, *, whole: bool) -> nn.Module:
    """Build a module with drawn weights, the same ones whole or not; biases are small."""
    kind = LowRank if module == "low-rank update" else Residual
    made = kind(FEATURES, UNITS, gates, whole=whole).double().eval()
    generator = torch.Generator().manual_seed(seed)
    for name, p in made.named_parameters():
        nn.init.normal_(p, std=0.1 if name.startswith("b_") else 1.0, generator=generator)
    return made


def trained(module: str, gates: str, start: int, steps: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each recorded step: gaps of the leading part, and what is left of the rest.

    ``off`` is the difference to the gap of the leading part that is written by hand.

    Labels are those that the leading part gives at the start, so that it can separate them.
    """
    generator = torch.Generator().manual_seed(100 + start)
    X = torch.randn(SAMPLES, FEATURES, generator=generator, dtype=torch.float64)
    whole, by_hand = (built(module, gates, start, whole=whole) for whole in (True, False))
    with torch.no_grad():
        labels = torch.where(by_hand(X) > 0, 1.0, -1.0)
    kept = set(log_spaced(steps, 8, first=10))
    for step in range(1, steps + 1):
        descend(whole, X, labels, step)
        if step in kept:
            by_hand.load_state_dict(whole.state_dict() | dict(by_hand.named_buffers()))
            with torch.no_grad():
                least = float((labels * by_hand(X)).min())
            if least > 0:
                ours = quiet(whole, X, labels, leading=True)
                theirs = quiet(by_hand, X, labels, leading=False)
                # biases that vanish from the leading part count in the norm of the module alone
                ratio = (theirs.parameter_norm / ours.parameter_norm) ** 2
                expected = 1 - (1 - theirs.gap) * ratio
                yield {
                    "step": step,
                    "gap": ours.gap,
                    "across": ours.gap_across_kinks,
                    "off": abs(ours.gap - expected),
                    "rest": ours.rest,
                }
            else:
                yield {"step": step, "gap": np.nan, "across": np.nan, "off": np.nan, "rest": np.nan}


def quiet(module: nn.Module, X: Tensor, labels: Tensor, *, leading: bool) -> Diagnosis:
    """Diagnose without warnings: a run is measured long before it is near its limit."""
    with warnings.catch_warnings(action="ignore", category=DiagnosisWarning):
        return diagnose(module, X, labels, leading=leading)


def descend(module: nn.Module, X: Tensor, labels: Tensor, step: int) -> None:
    """Descend the log of the exponential loss, by a shrinking share of the weights' length."""
    parameters = list(module.parameters())
    slopes = torch.autograd.grad(torch.logsumexp(-labels * module(X), dim=0), parameters)
    length, size = (
        sum(p.detach().square().sum() for p in tensors) ** 0.5 for tensors in (slopes, parameters)
    )
    with torch.no_grad():
        for p, slope in zip(parameters, slopes, strict=True):
            p.sub_(slope, alpha=float(size / length) / (20.0 + step) ** 0.9)


# --- what the page says --------------------------------------------------------------------------


def ends(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each run: gaps where it is first separated and at the end, and the rest."""
    rows = []
    for (module, gates, start), run in frame.groupby(["module", "gates", "start"], sort=False):
        known = list(rows_of(run[run["gap"].notna()]))
        if not known:  # the leading part never separates the samples
            continue
        rows.append(
            {
                "module": module,
                "gates": gates,
                "start": start,
                "first": known[0]["gap"],
                "last": known[-1]["gap"],
                "across": known[-1]["across"],
                "rest": known[-1]["rest"],
                "off": max(row["off"] for row in known),
            }
        )
    return pd.DataFrame(rows)


def numbers(frame: pd.DataFrame) -> dict[str, Any]:
    """Gaps of squared relu, first and last, and of relu across kinks; the rest, the difference."""
    runs = ends(frame)
    smooth, kinks = (runs[runs["gates"] == gates] for gates in reversed(GATES))
    found: dict[str, Any] = {
        "runs": frame.groupby(["module", "gates", "start"]).ngroups,
        "separating": len(runs),
        "off": runs["off"].max(),
    }
    ranges = {
        "first": smooth["first"],
        "smooth": smooth["last"],
        "kinks": kinks["across"],
        "rest": runs["rest"],
    }
    for name, values in ranges.items():
        found |= {f"{name}_low": values.min(), f"{name}_high": values.max()}
    return found
