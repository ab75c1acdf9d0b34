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
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from benchmarks.drawing import Figure, common_legend, look_of, subplots
from benchmarks.harness import Row, Rows, Verdict, rows_of, tabled
from benchmarks.sizes import grid, log_spaced, sized
from benchmarks.words import span
from implicit_bias import Diagnosis, DiagnosisWarning, diagnose

MODULES = ("low-rank update", "residual")
GATES = ("relu", "squared relu")
# A tenth of the gap where training separates the samples, and how near the two gaps must be.
FALLS, SAME = 0.1, 1e-8
POINTS = 8


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What is measured: samples and sizes of the modules, and steps of training."""

    samples: int = 14
    features: int = 4
    units: int = 5
    starts: int = 2
    steps: int = 20_000


QUICK = Sizes(samples=6, units=3, starts=1, steps=200)


def settings(sizes: Sizes) -> list[Row]:
    """Both modules with both activations, from several starts."""
    return grid(module=MODULES, gates=GATES, start=range(sizes.starts))


def _activation(gates: str, z: Tensor) -> Tensor:
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
        return _activation(self.gates, x @ (self.W_0 + self.B @ self.A).T) @ self.readout


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
            outer = _activation(self.gates, inner) @ W.T
            z = z + outer if self.whole else outer
        return z @ self.a


def built(sizes: Sizes, module: str, gates: str, seed: int, *, whole: bool) -> nn.Module:
    """Build a module with drawn weights, the same ones whole or not; biases are small."""
    kind = LowRank if module == "low-rank update" else Residual
    made = kind(sizes.features, sizes.units, gates, whole=whole).double().eval()
    generator = torch.Generator().manual_seed(seed)
    for name, p in made.named_parameters():
        nn.init.normal_(p, std=0.1 if name.startswith("b_") else 1.0, generator=generator)
    return made


def rows(sizes: Sizes, module: str, gates: str, start: int) -> Rows:
    """One row a step: gaps of the leading part, found and by hand, and what is left of the rest.

    Labels are those that the leading part gives at the start, so that it can separate them.
    """
    generator = torch.Generator().manual_seed(100 + start)
    X = torch.randn(sizes.samples, sizes.features, generator=generator, dtype=torch.float64)
    whole, by_hand = (built(sizes, module, gates, start, whole=whole) for whole in (True, False))
    with torch.no_grad():
        labels = torch.where(by_hand(X) > 0, 1.0, -1.0)
    kept = set(log_spaced(sizes.steps, POINTS, first=10))
    for step in range(1, sizes.steps + 1):
        _step(whole, X, labels, step)
        if step in kept:
            by_hand.load_state_dict(whole.state_dict() | dict(by_hand.named_buffers()))
            with torch.no_grad():
                least = float((labels * by_hand(X)).min())
            if least > 0:
                ours = _quiet(whole, X, labels, leading=True)
                theirs = _quiet(by_hand, X, labels, leading=False)
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


def _quiet(module: nn.Module, X: Tensor, labels: Tensor, *, leading: bool) -> Diagnosis:
    with warnings.catch_warnings(action="ignore", category=DiagnosisWarning):
        return diagnose(module, X, labels, leading=leading)


def _step(module: nn.Module, X: Tensor, labels: Tensor, step: int) -> None:
    """Descend the log of the exponential loss, by a shrinking share of the weights' length."""
    parameters = list(module.parameters())
    slopes = torch.autograd.grad(torch.logsumexp(-labels * module(X), dim=0), parameters)
    length, size = (
        sum(p.detach().square().sum() for p in tensors) ** 0.5 for tensors in (slopes, parameters)
    )
    with torch.no_grad():
        for p, slope in zip(parameters, slopes, strict=True):
            p.sub_(slope, alpha=float(size / length) / (20.0 + step) ** 0.9)


# --- what a table says -------------------------------------------------------------------------


@tabled
def ends(frame: pd.DataFrame, part: float = FALLS) -> Rows:
    """Return a row a run: gaps where it first separates and at the end, and whether they fell."""
    for (module, gates, start), run in frame.groupby(["module", "gates", "start"], sort=False):
        known = run[run["gap"].notna()]
        if known.empty:
            continue
        first, last = rows_of(known)[0], rows_of(known)[-1]
        yield {
            "module": module,
            "gates": gates,
            "start": start,
            "first": first["gap"],
            "last": last["gap"],
            "across": last["across"],
            "rest_first": first["rest"],
            "rest": last["rest"],
            "off": known["off"].max(),
            "falls": last["across"] <= part * first["across"] and last["rest"] < first["rest"],
        }


def found(frame: pd.DataFrame) -> str:
    """Say what the table says."""
    table = ends(frame)
    smooth, kinks = (table[table["gates"] == gates] for gates in reversed(GATES))
    return (
        f"**Gaps fall: after {frame['step'].max():,} steps to {_span(smooth['last'])} with squared "
        f"relu, from {_span(smooth['first'])} where the samples were first separated, and across "
        f"kinks to {_span(kinks['across'])} with relu.** {int(table['falls'].sum())} of "
        f"{frame.groupby(['module', 'gates', 'start']).ngroups} runs agree; in "
        f"{len(table)} the leading part separates the samples. That which is found has the same "
        f"gap as the one written by hand, to {table['off'].max():.0e}. What is left of the rest is "
        f"{_span(table['rest'])} of the outputs."
    )


def _span(values: pd.Series[float]) -> str:
    return span(values, ".1e")


def verdict(frame: pd.DataFrame, part: float = FALLS) -> Verdict:
    """Judge the claim by the rule."""
    table = ends(frame, part)
    same = (table["off"] <= SAME).all()
    return Verdict.of(same and table["falls"].all(), same and table["falls"].any())


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """Show medians over starts: gaps first and last, and the rest."""
    groups = ends(frame).groupby(["module", "gates"], sort=False)
    medians = groups[["first", "last", "across", "rest_first", "rest"]].median()
    falls = groups["falls"]
    counts = {"off": groups["off"].max(), "falls": falls.sum(), "runs": falls.count()}
    return medians.assign(**counts).reset_index()


def draw(frame: pd.DataFrame) -> Figure:
    """Gaps and the rest against steps: a panel each, a line a start."""
    figure, panels = subplots((8.4, 3.9), 1, 2, sharex=True, grid="both")
    titles = {"across": "KKT gap of the leading part", "rest": "rest / leading part"}
    for ax, (column, title) in zip(panels, titles.items(), strict=True):
        kinds = frame.groupby(["module", "gates"], sort=False)
        for place, ((module, gates), runs) in enumerate(kinds):
            for i, (_, run) in enumerate(runs.groupby("start")):
                label = f"{module}, {gates}" if i == 0 else None
                look = look_of(place, markers=True) | {"markersize": 3.5, "linewidth": 1.2}
                ax.plot(run["step"], run[column].clip(lower=1e-9), label=label, **look)
        ax.set(xscale="log", yscale="log", xlabel="steps", title=title)
    return common_legend(figure, panels[:1], 2)


EXPERIMENT = sized(settings, rows, found, tabulate, verdict, draw, quick=QUICK)
