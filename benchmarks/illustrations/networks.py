r"""Two-layer networks: KKT gaps of optimizers, in their own norm and in others.

==================  =================================  ============================================
network             f                                  inside of the theorems
==================  =================================  ============================================
smooth              a' relu(W x)^2, degree 3           yes
frozen              a' (W x, where V x > 0), degree 2  yes; V is W at the start
live                a' relu(W x), degree 2             no: gates jump
==================  =================================  ============================================

12 samples of 6 features, 6 units; labels are those that the network gives at the start. Gradients
of the log of the exponential loss are scaled to length 1; rates fall like t^-1/4. The norm is the
one that is read off the optimizers, as `diagnose(optimizer=...)` does: of Muon with two rates
weighted, of Muon beside Adam of two kinds. Gaps are those across kinks.

Adam on smooth networks is also trained ten times as long, from three starts, and from near its
limit: from where signs had come after 12,000 steps, with weights of their length at the start. It
leaves l_inf there: margins grow like the cube of the weights, and soon by tens per step, so that
the gradient jumps from step to step, from nearly that of one sample to that of another. Adam of
single samples has another limit (`single_samples`). So a last run has small steps, by each of which
the soft minimum of the margins grows by at most MOST_GROWTH: rate ||gradient||_1 <= MOST_GROWTH.

Source: Lyu, Li (2020) for gradient descent; Tsilivis, Vardi, Kempe (2024) for steepest descent in
any norm; Gronich, Vardi (2026) for Adam, Signum, Muon and mixtures on smooth homogeneous networks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from benchmarks.bench import Part, part
from benchmarks.drawing import Figure, common_legend, look_of, subplots
from benchmarks.effects import Effect
from benchmarks.summaries import log_spaced, low_high
from implicit_bias.modules.kinks import gap_across_kinks
from implicit_bias.modules.optimizers import geometry_of
from implicit_bias.modules.subject import Subject, margins_of
from implicit_bias.norms.tensors import PARAMETER_NORMS, ParameterNorm
from implicit_bias.training.optimizers import SignDescent

COST = 25.0
SAMPLES, FEATURES, UNITS = 12, 6, 6
RATE = 0.03
GATES = ("smooth", "frozen", "live")
NORMS = ("l2", "linf", "spectral")
OWN = "own"
# Optimizers and their norms; the slower rate is a quarter.
OPTIMIZERS = {
    "momentum": "l2",
    "signs": "linf",
    "Adam": "linf",
    "Muon": "spectral",
    "Muon, two rates": "weighted spectral",
    "Muon beside Adam": "spectral and linf",
}
DRAWN, AFTER_SIGNS = "drawn weights", "after signs"
SMALL, MOST_GROWTH = "Adam, small steps", 0.5


def measure(quick: bool) -> Iterator[Part]:
    """Train by every optimizer on every kind of network; Adam on smooth ones longer."""
    steps = 10 if quick else 12_000
    for gates, optimizer, start in product(GATES, OPTIMIZERS, range(1 if quick else 2)):
        run = {"gates": gates, "optimizer": optimizer, "start": start}
        yield part(trained, **run, begins=DRAWN, steps=steps)
    for start in range(2 if quick else 5):
        run = {"gates": "smooth", "optimizer": SMALL, "start": start}
        yield part(trained, **run, begins=DRAWN, steps=steps)
    for begins, start in product((DRAWN, AFTER_SIGNS), range(2 if quick else 3)):
        run = {"gates": "smooth", "optimizer": "Adam", "start": start}
        yield part(trained, **run, begins=begins, steps=10 * steps)


# --- networks and their optimizers ---------------------------------------------------------------


class Network(nn.Module):
    """A network of two layers, without biases."""

    V: Tensor

    def __init__(self, gates: str, start: int) -> None:
        super().__init__()
        draw = partial(torch.randn, generator=torch.Generator().manual_seed(start))
        self.W = nn.Parameter(draw(UNITS, FEATURES).double() / FEATURES**0.5)
        self.a = nn.Parameter(draw(1, UNITS).double() / UNITS**0.5)
        self.register_buffer("V", self.W.detach().clone())
        self.gates = gates

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs (N,)."""
        z = x @ self.W.T
        hidden = z * (x @ self.V.T > 0) if self.gates == "frozen" else z.relu()
        return ((hidden**2 if self.gates == "smooth" else hidden) @ self.a.T)[:, 0]


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


def built(network: Network, name: str, rate: float) -> Sequence[Optimizer]:
    """Return the optimizers of a network's two tensors."""
    if name == SMALL:
        name = "Adam"
    if name in KINDS:
        return [KINDS[name](network.parameters(), rate)]
    second = "Adam" if name.endswith("Adam") else "Muon"
    return [KINDS["Muon"]([network.W], rate), KINDS[second]([network.a], rate / 4)]


def most(name: str) -> float:
    """Most by which the soft minimum of the margins may grow at a step of an optimizer."""
    return MOST_GROWTH if name == SMALL else math.inf


def samples_of(network: Network, start: int) -> tuple[Tensor, Tensor]:
    """Draw inputs on which the network is not 0, with the labels that it gives."""
    generator = torch.Generator().manual_seed(100 + start)
    X = torch.randn(9 * SAMPLES, FEATURES, generator=generator, dtype=torch.float64)
    X = X[network(X) != 0][:SAMPLES]
    return X, network(X).detach().sign()


# --- training ------------------------------------------------------------------------------------


def trained(
    gates: str, optimizer: str, start: int, begins: str, steps: int
) -> Iterator[dict[str, Any]]:
    """Yield a row for each recorded step and norm: the KKT gap, where the samples are separated."""
    network = Network(gates, start)
    X, labels = samples_of(network, start)
    if begins == AFTER_SIGNS:
        length = size_of(network)
        for _ in iterates(network, X, labels, built(network, "signs", RATE), steps // 10):
            pass
        with torch.no_grad():
            scale = float(length / size_of(network))
            for p in (network.W, network.a):
                p.mul_(scale)
    several = built(network, optimizer, RATE)
    norms: dict[str, ParameterNorm] = {OWN: geometry_of(several, network).norm}
    norms |= {name: PARAMETER_NORMS[name] for name in NORMS}
    kept = set(log_spaced(steps, 8, first=10))
    if begins == AFTER_SIGNS:
        yield from gaps(network, X, labels, norms, 0)
    for step in iterates(network, X, labels, several, steps, most(optimizer)):
        if step in kept:
            yield from gaps(network, X, labels, norms, step)


def size_of(network: Network) -> Tensor:
    """Length of all weights together."""
    return torch.sqrt(network.W.detach().square().sum() + network.a.detach().square().sum())


def iterates(
    network: Network,
    X: Tensor,
    labels: Tensor,
    several: Sequence[Optimizer],
    steps: int,
    most_growth: float = math.inf,
) -> Iterator[int]:
    """Train a network in place, and yield each step when it is done.

    Gradients are scaled to length 1, which is the same to all but plain momentum and Adam's memory.
    """
    parameters = [network.W, network.a]
    rates = [each.param_groups[0]["lr"] for each in several]
    for step in range(1, steps + 1):
        slopes = torch.autograd.grad(torch.logsumexp(-labels * network(X), dim=0), parameters)
        length = torch.cat([slope.reshape(-1) for slope in slopes]).norm()
        # By steps of this rate along the signs the soft minimum grows by rate * size at most.
        size = float(sum(slope.abs().sum() for slope in slopes))
        for p, slope in zip(parameters, slopes, strict=True):
            p.grad = slope / length
        for each, rate in zip(several, rates, strict=True):
            each.param_groups[0]["lr"] = min(rate * step**-0.25, most_growth / size)
            each.step()
        yield step


def gaps(
    network: Network, X: Tensor, labels: Tensor, norms: Mapping[str, ParameterNorm], step: int
) -> Iterator[dict[str, Any]]:
    """Yield the KKT gap in each norm; NaN where the network does not separate the samples."""
    separates = bool((labels * network(X) > 0).all())
    for name, norm in norms.items():
        gap = float("nan")
        if separates:
            subject = Subject.of(margins_of(network, X.numpy(), labels.numpy()))
            gap = gap_across_kinks(subject.measure(norm), seconds=20.0)
        yield {"step": step, "norm": name, "gap": gap}


# --- what the page says --------------------------------------------------------------------------


def at_end(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each run: its gaps at the end, a column per norm."""
    keys = ["gates", "optimizer", "begins", "steps", "start"]
    last = frame[frame["step"] == frame["steps"]]
    return last.pivot(index=keys, columns="norm", values="gap").reset_index()


def numbers(frame: pd.DataFrame) -> dict[str, Any]:
    """Ranges of the gaps at the end, of all optimizers but Adam and of Adam; Adam in other ways."""
    ends = at_end(frame)
    short = ends[(ends["steps"] == ends["steps"].min()) & ends["optimizer"].isin(OPTIMIZERS)]
    found: dict[str, Any] = {}
    for gates in GATES:
        of_gates = short[short["gates"] == gates]
        adam = of_gates["optimizer"] == "Adam"
        found |= low_high(gates, of_gates[~adam][OWN])
        found |= low_high(f"{gates}_adam", of_gates[adam][OWN])
        found |= low_high(f"{gates}_adam_l2", of_gates[adam]["l2"])
    longer = ends[ends["steps"] > ends["steps"].min()]
    starts = frame[(frame["begins"] == AFTER_SIGNS) & (frame["step"] == 0)]
    of_adam = {
        "longer": longer[longer["begins"] == DRAWN],
        "after_signs": longer[longer["begins"] == AFTER_SIGNS],
        "small": ends[ends["optimizer"] == SMALL],
    }
    for name, runs in of_adam.items():
        if runs.empty:  # not measured yet
            continue
        found |= low_high(name, runs[OWN]) | low_high(f"{name}_l2", runs["l2"])
        found |= {f"{name}_mean": Effect.of(runs[OWN]), f"{name}_l2_mean": Effect.of(runs["l2"])}
    found |= low_high("signs", starts.loc[starts["norm"] == OWN, "gap"])
    return found | {"gaps": medians(short)}


def medians(ends: pd.DataFrame) -> pd.DataFrame:
    """Median gaps over starts: a row for each optimizer, the gaps in its own norm by network."""
    table = ends.groupby(["optimizer", "gates"], sort=False)[OWN].median().unstack()
    table = table.loc[list(OPTIMIZERS), list(GATES)].reset_index()
    norms = [OPTIMIZERS[name].replace("linf", "l_inf") for name in table["optimizer"]]
    table.insert(1, "its norm", norms)
    return table


def draw(frame: pd.DataFrame) -> Figure:
    """Gaps in the own norm against steps, a panel for each kind of network, a line for each run."""
    figure, panels = subplots((9.6, 3.6), 1, len(GATES), sharex=True, sharey=True, grid="both")
    own = frame[(frame["norm"] == OWN) & (frame["step"] > 0)]
    for ax, gates in zip(panels, GATES, strict=True):
        for place, name in enumerate((*OPTIMIZERS, SMALL)):
            look = look_of(place, markers=True) | {"markersize": 3.5, "linewidth": 1.2}
            runs = own[(own["gates"] == gates) & (own["optimizer"] == name)]
            for count, (_, run) in enumerate(runs.groupby(["begins", "steps", "start"])):
                ax.plot(run["step"], run["gap"], label=name if count == 0 else None, **look)
        ax.set(xscale="log", yscale="log", xlabel="steps", title=f"{gates} gates")
    panels[0].set_ylabel("KKT gap in the optimizer's norm")
    return common_legend(figure, panels[:1], 4)
