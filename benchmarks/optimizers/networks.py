r"""Two-layer networks: KKT gaps of optimizers, in their own norm and in others.

==================  =================================  ============================================
network             f                                  inside of the theorems
==================  =================================  ============================================
smooth              a' relu(W x)^2, degree 3           yes
frozen              a' (W x, where V x > 0), degree 2  yes; V is W at the start
live                a' relu(W x), degree 2             no: gates jump
==================  =================================  ============================================

The norm is the one that is read off the optimizers, as `diagnose(optimizer=...)` does: of Muon with
two rates weighted, of Muon beside Adam of two kinds.

Source: Lyu, Li (2020) for gradient descent; Tsilivis, Vardi, Kempe (2024) for steepest descent in
any norm; Gronich, Vardi (2026) for Adam, Signum, Muon and mixtures on smooth homogeneous networks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from benchmarks import harness
from benchmarks.drawing import Figure, common_legend, look_of, subplots
from benchmarks.harness import Row, Rows, Verdict, tabled
from benchmarks.sizes import grid, log_spaced, sized
from benchmarks.words import span
from implicit_bias.modules.kinks import gap_across_kinks
from implicit_bias.modules.optimizers import geometry_of
from implicit_bias.modules.subject import Subject, margins_of
from implicit_bias.norms.tensors import PARAMETER_NORMS, ParameterNorm
from implicit_bias.training.optimizers import SignDescent

GATES = ("smooth", "frozen", "live")
NORMS = ("l2", "linf", "spectral")
# Optimizers and their norms; the slower rate is a quarter.
OPTIMIZERS = {
    "momentum": "l2",
    "signs": "linf",
    "Adam": "linf",
    "Muon": "spectral",
    "Muon, two rates": "weighted spectral",
    "Muon beside Adam": "spectral and linf",
}


def muon(parameters: Any, rate: float) -> Optimizer:
    """Muon of torch 2.9, with Newton and Schulz's iteration to its end in place of a few steps."""
    return torch.optim.Muon(
        parameters,
        rate,
        momentum=0.9,
        weight_decay=0.0,
        eps=1e-30,
        ns_coefficients=(1.875, -1.25, 0.375),
        ns_steps=15,
    )


KINDS: dict[str, Callable[..., Optimizer]] = {
    "momentum": partial(torch.optim.SGD, momentum=0.9),
    "signs": partial(SignDescent, momentum=0.9),
    "Adam": partial(torch.optim.Adam, betas=(0.9, 0.95), eps=1e-30),
    "Muon": muon,
}
# Largest gap at the end, and by how much the others are larger.
AT_LIMIT, APART = 0.1, 2.0


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What is measured: sizes of the networks, and steps of the optimizers."""

    samples: int = 12
    features: int = 6
    units: int = 6
    steps: int = 12_000
    rate: float = 0.03
    starts: int = 2


QUICK = Sizes(samples=5, features=3, units=3, steps=40, starts=1)


def settings(sizes: Sizes) -> list[Row]:
    """Every optimizer on every kind of network, from every start."""
    return grid(gates=GATES, optimizer=OPTIMIZERS, start=range(sizes.starts))


class Network(nn.Module):
    """A network of two layers, without biases."""

    V: Tensor

    def __init__(self, sizes: Sizes, gates: str, start: int) -> None:
        super().__init__()
        draw = partial(torch.randn, generator=torch.Generator().manual_seed(start))
        D, H = sizes.features, sizes.units
        self.W, self.a = (nn.Parameter(draw(K, M).double() / M**0.5) for K, M in ((H, D), (1, H)))
        self.register_buffer("V", self.W.detach().clone())
        self.gates = gates

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs (N,)."""
        z = x @ self.W.T
        hidden = z * (x @ self.V.T > 0) if self.gates == "frozen" else z.relu()
        return ((hidden**2 if self.gates == "smooth" else hidden) @ self.a.T)[:, 0]


def built(network: Network, name: str, rate: float) -> Sequence[Optimizer]:
    """Return the optimizers of a network's two tensors."""
    if name in KINDS:
        return [KINDS[name](network.parameters(), rate)]
    second = "Adam" if name.endswith("Adam") else "Muon"
    return [KINDS["Muon"]([network.W], rate), KINDS[second]([network.a], rate / 4)]


def rows(sizes: Sizes, gates: str, optimizer: str, start: int) -> Rows:
    """One row a recorded step and norm.

    Labels are those that the network gives at the start. Gradients are scaled to length 1, which is
    the same to all but plain momentum and Adam's memory.
    """
    network = Network(sizes, gates, start)
    generator = torch.Generator().manual_seed(100 + start)
    X = torch.randn(9 * sizes.samples, sizes.features, generator=generator, dtype=torch.float64)
    X = X[network(X) != 0][: sizes.samples]
    labels = network(X).detach().sign()
    several = built(network, optimizer, sizes.rate)
    own = geometry_of(several, network).norm
    measured = partial(_gaps, X=X, labels=labels, own=own)
    parameters, kept = [network.W, network.a], set(log_spaced(sizes.steps, 8, first=10))
    for step in range(1, sizes.steps + 1):
        slopes = torch.autograd.grad(torch.logsumexp(-labels * network(X), dim=0), parameters)
        length = torch.cat([slope.reshape(-1) for slope in slopes]).norm()
        for p, slope in zip(parameters, slopes, strict=True):
            p.grad = slope / length
        for each in several:
            each.step()
            each.param_groups[0]["lr"] *= (step / (step + 1)) ** 0.25
        if step in kept:
            yield from measured(network, step=step)


def _gaps(network: Network, step: int, X: Tensor, labels: Tensor, own: ParameterNorm) -> Rows:
    separates = bool((labels * network(X) > 0).all())
    for norm, named in {"own": own, **{name: PARAMETER_NORMS[name] for name in NORMS}}.items():
        gap = float("nan")
        if separates:
            subject = Subject.of(margins_of(network, X.numpy(), labels.numpy()))
            gap = gap_across_kinks(subject.measure(named), seconds=20.0)
        yield {"step": step, "norm": norm, "gap": gap}


@tabled
def ends(frame: pd.DataFrame, most: float = AT_LIMIT) -> Rows:
    """Return a row a run: its gaps at the end, and whether it agrees."""
    for (gates, name, start), run in frame.groupby(["gates", "optimizer", "start"], sort=False):
        table = run.pivot(index="step", columns="norm", values="gap")
        last = table.iloc[-1]
        others = min(last[norm] for norm in NORMS if norm != OPTIMIZERS[str(name)])
        yield {
            "gates": gates,
            "optimizer": name,
            "start": start,
            **last,
            "holds": last["own"] <= most and APART * last["own"] <= others,
        }


def elsewhere(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs of optimizers none of whose runs on a kind of network agrees."""
    return runs[~runs.groupby(["gates", "optimizer"])["holds"].transform("any")]


def exceptions(runs: pd.DataFrame) -> str:
    """Say by which optimizers no run agrees, with their gaps; nothing where there are none."""
    return "".join(
        f"; but for {name} on {gates} networks, with gaps of {span(part['own'], '.2f')} in "
        f"{OPTIMIZERS[name]} and {span(part['l2'], '.2f')} in l2".replace("linf", "l_inf")
        for (gates, name), part in harness.parts(elsewhere(runs), "gates", "optimizer")
    )


def none_by(runs: pd.DataFrame) -> str:
    """Name the optimizers none of whose runs agrees, more shortly, of one kind of network."""
    return "".join(
        f", none by {name} ({span(part['own'], '.2f')}; in l2 {span(part['l2'], '.2f')})"
        for name, part in harness.parts(elsewhere(runs), "optimizer")
    )


def found(frame: pd.DataFrame) -> str:
    """Say what the table says."""
    parts = [
        f"{gates} gates: {int(runs['holds'].sum())} of {len(runs)} runs agree{none_by(runs)}, "
        f"with gaps of {span(runs['own'], '.3f')}"
        for gates, runs in ends(frame).groupby("gates", sort=False)
    ]
    return f"**After {frame['step'].max():,} steps {'; '.join(parts)}.**"


def verdict(frame: pd.DataFrame, most: float = AT_LIMIT) -> Verdict:
    """Judge the claim by the rule, which leaves live gates out."""
    runs = ends(frame, most)
    return Verdict.each(runs[runs["gates"] != "live"]["holds"])


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """Show the gaps of each run at the end."""
    runs = ends(frame)
    return runs.assign(norm=runs["optimizer"].map(OPTIMIZERS))


def draw(frame: pd.DataFrame) -> Figure:
    """Gaps in the own norm against steps, a panel a kind of network, a line a run."""
    figure, panels = subplots((9.6, 3.6), 1, len(GATES), sharex=True, sharey=True, grid="both")
    own = frame[frame["norm"] == "own"]
    for ax, gates in zip(panels, GATES, strict=True):
        for place, name in enumerate(OPTIMIZERS):
            look = look_of(place, markers=True) | {"markersize": 3.5, "linewidth": 1.2}
            runs = own[(own["gates"] == gates) & (own["optimizer"] == name)]
            for start, run in runs.groupby("start"):
                ax.plot(run["step"], run["gap"], label=name if start == 0 else None, **look)
        ax.axhline(AT_LIMIT, color="grey", linewidth=0.8)
        ax.set(xscale="log", yscale="log", xlabel="steps", title=f"{gates} gates")
    panels[0].set_ylabel("KKT gap in the optimizer's norm")
    return common_legend(figure, panels[:1], len(OPTIMIZERS) // 2)


EXPERIMENT = sized(settings, rows, found, tabulate, verdict, draw, quick=QUICK)
