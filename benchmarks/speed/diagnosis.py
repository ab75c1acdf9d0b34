"""What `diagnose` costs: time and memory against weights, samples and the norm.

ReLU networks without biases on scikit-learn's handwritten digits, ten classes, trained by Adam
until they separate, outside of the clock. Convolutions are 3 x 3 with a stride of 2, on images of
16 x 16 (each pixel is four); a residual network has two convolutions a block beside a shortcut, and
is measured by its leading part. Each call runs in a process of its own; memory is what the call
adds to what the process held, network and data included.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn

from benchmarks.bench import Part, part, rows_of
from benchmarks.processes import GIB, Worker, forget_peak, peak_memory
from benchmarks.speed.races import digits
from implicit_bias import Recorder, diagnose
from implicit_bias.datasets import load

COST = 20
LIMIT = 900.0
SEED = 1
# Adam's steps, full batch, until the mean loss is so small that all samples are separated.
MOST_STEPS, RATE, SMALL_LOSS = 3000, 2e-3, 5e-4
# What the convolutions of residual blocks are multiplied with before training.
LATE = 4.0
ANSWERED = "answered"
# Calls by the names that the page has: call, kind of network, its hidden widths, samples, norm.
CASES = {
    "dense_l2": ("diagnose", "dense", "128", 300, "l2"),
    "dense_linf": ("diagnose", "dense", "128", 300, "linf"),
    "dense_spectral": ("diagnose", "dense", "128", 300, "spectral"),
    "deep_l2": ("diagnose", "dense", "200-200", 1000, "l2"),
    "deep_spectral": ("diagnose", "dense", "200-200", 1000, "spectral"),
    "convolutions_5": ("diagnose", "convolutions", "33-66-132", 256, "l2"),
    "convolutions_6": ("diagnose", "convolutions", "105-210-420", 256, "l2"),
    "convolutions_7": ("diagnose", "convolutions", "333-666-1332", 256, "l2"),
    "recorder_7": ("record", "convolutions", "333-666-1332", 256, "l2"),
    "residual": ("diagnose", "residual", "64-128-256", 256, "l2"),
}
QUICK = {
    "dense": ("diagnose", "dense", "16", 60, "l2"),
    "recorder": ("record", "dense", "16", 60, "l2"),
}


def measure(quick: bool) -> Iterator[Part]:
    """Yield a part for each call."""
    for call, kind, widths, N, norm in (QUICK if quick else CASES).values():
        yield part(cost, call=call, kind=kind, widths=widths, N=N, norm=norm)


def cost(call: str, kind: str, widths: str, N: int, norm: str) -> Iterator[dict[str, Any]]:  # noqa: N803
    """Yield the row of a call."""
    row: dict[str, Any] = {"outcome": ANSWERED}
    row |= dict.fromkeys(("solve_seconds", "gib", "weights", "gap"), np.nan)
    row |= Worker(call, kind, widths, N, norm).row(_measured, seconds=LIMIT)
    yield row


def _measured(call: str, kind: str, widths: str, N: int, norm: str) -> dict[str, float]:  # noqa: N803
    torch.set_num_threads(1)
    network, images, labels = trained(kind, widths, N)
    small = nn.Linear(2, 1, bias=False)
    small.weight.data.fill_(1.0)
    diagnose(small, torch.eye(2), [1, 1], norm=norm)  # what is imported once
    leading = kind == "residual"
    forget_peak()
    held = peak_memory()
    if call == "record":
        recorder = Recorder(network, images, labels, norms=[norm], leading=leading)
        gap = recorder.record()[f"gap_{norm}"]
        seconds = recorder.last_seconds
    else:
        found = diagnose(network, images, labels, norm=norm, leading=leading)
        gap = found.gap
        seconds = found.seconds
    return {
        "solve_seconds": seconds,
        "gib": (peak_memory() - held) / GIB,
        "weights": float(sum(weights.numel() for weights in network.parameters())),
        "gap": gap,
    }


# --- the networks --------------------------------------------------------------------------------


def halving(width: int, next_width: int, size: int = 3) -> nn.Conv2d:
    """Return a convolution without a bias that halves both sides of an image."""
    return nn.Conv2d(width, next_width, size, stride=2, padding=size // 2, bias=False)


class Residual(nn.Module):
    """Two convolutions beside a shortcut of one by one."""

    def __init__(self, width: int, next_width: int) -> None:
        super().__init__()
        self.first = halving(width, next_width)
        self.shortcut = halving(width, next_width, 1)
        self.second = nn.Conv2d(next_width, next_width, 3, padding=1, bias=False)
        # As large as they would be late in a training, when the shortcut has become small beside.
        with torch.no_grad():
            self.first.weight.mul_(LATE)
            self.second.weight.mul_(LATE)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute images of half the size."""
        outputs: torch.Tensor = self.shortcut(x) + self.second(torch.relu(self.first(x)))
        return torch.relu(outputs)


def network_of(kind: str, widths: str) -> nn.Module:
    """Return a network before training: ReLU layers of hidden widths "w-w-w", without biases."""
    torch.manual_seed(SEED)
    side = 1 if kind == "dense" else 16
    sizes = [64 if kind == "dense" else 1, *map(int, widths.split("-"))]
    layers: list[nn.Module] = []
    for width, next_width in itertools.pairwise(sizes):
        if kind == "dense":
            layers += [nn.Linear(width, next_width, bias=False), nn.ReLU()]
        elif kind == "convolutions":
            layers += [halving(width, next_width), nn.ReLU()]
        else:
            layers.append(Residual(width, next_width))
        side = (side + 1) // 2
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(sizes[-1] * side**2, 10, bias=False))


def trained(kind: str, widths: str, N: int) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:  # noqa: N803
    """Return a network that is trained until it separates N of the digits, and these.

    Raises
    ------
    RuntimeError
        It does not separate its samples.
    """
    digits = load("digits", classes=("all",))
    chosen = np.random.default_rng(SEED).permutation(len(digits))[:N]
    images = torch.tensor(digits.X[chosen, :-1], dtype=torch.float32)
    labels = torch.tensor(digits.y[chosen])
    if kind != "dense":
        squares = images.reshape(-1, 1, 8, 8)
        images = squares.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)
    network = network_of(kind, widths)
    optimizer = torch.optim.Adam(network.parameters(), lr=RATE)
    for _ in range(MOST_STEPS):
        loss = nn.functional.cross_entropy(network(images), labels)
        if loss < SMALL_LOSS:
            return network, images, labels
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
    raise RuntimeError(f"{kind} {widths} does not separate its samples in {MOST_STEPS} steps")


# --- the page ------------------------------------------------------------------------------------


def numbers(frame: pd.DataFrame) -> dict[str, Any]:
    """Return the table, and seconds and GiB of each call by its name."""
    found = dict[str, Any]()
    lines = list[dict[str, str]]()
    for row in rows_of(frame):
        setting = tuple(row[name] for name in ("call", "kind", "widths", "N", "norm"))
        name = next((name for name, case in CASES.items() if case == setting), "quick")
        found[name] = row["solve_seconds"]
        found[f"{name}_gib"] = row["gib"]
        answered = row["outcome"] == ANSWERED
        lines.append(
            {
                "call": {"record": "a point of a `Recorder`"}.get(row["call"], "`diagnose`"),
                "network": f"{row['kind']} {row['widths']}",
                "weights": f"{row['weights']:,.0f}",
                "N": f"{row['N']:,}",
                "norm": row["norm"],
                "seconds": digits(row["solve_seconds"]) if answered else row["outcome"],
                "GiB": f"{row['gib']:.2g}",
            }
        )
    return found | {"table": pd.DataFrame(lines)}
