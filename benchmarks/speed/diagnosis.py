"""What a diagnosis costs: time and memory against weights, samples, classes and the norm.

Each network is trained until it separates, by Adam and outside of the clock, and is then diagnosed
in a process of its own, beside a yardstick: 20 float64 Cholesky factorisations of order 2000. Data
are scikit-learn's handwritten digits; for networks of 16 x 16 images each pixel is four.
"""

from dataclasses import asdict, dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
import pandas as pd
import torch
from torch import nn

from benchmarks import harness
from benchmarks.drawing import Figure, subplots
from benchmarks.processes import Pipe
from benchmarks.speed import runs
from implicit_bias import Recorder, diagnose, which_norm
from implicit_bias.base.wording import percent_bounds
from implicit_bias.datasets.catalogue import load
from implicit_bias.report.style import BLUE, GREY, MARKERS, ORANGE, SKY, VERMILION

Call: TypeAlias = Literal["diagnose", "leading", "which_norm", "record"]
Kind: TypeAlias = Literal["dense", "convolutions", "residual"]
SEED = 1
# Adam's steps, full batch, until the mean loss is so small that all samples are separated.
MOST_STEPS, RATE, SMALL_LOSS = 3000, 2e-3, 5e-4
# What the convolutions of residual blocks are multiplied with before training.
LATE = 4.0
COLOURS = {"l2": BLUE, "linf": ORANGE, "spectral": SKY, "l1": VERMILION}


def halving(width: int, next_width: int, size: int = 3) -> nn.Conv2d:
    """Return a convolution without a bias that halves both sides of an image."""
    return nn.Conv2d(width, next_width, size, stride=2, padding=size // 2, bias=False)


class Residual(nn.Module):
    """Two convolutions beside a shortcut of one by one."""

    def __init__(self, width: int, next_width: int) -> None:
        super().__init__()
        self.first, self.shortcut = halving(width, next_width), halving(width, next_width, 1)
        self.second = nn.Conv2d(next_width, next_width, 3, padding=1, bias=False)
        # As large as they would be late in a training, when the shortcut has become small beside.
        with torch.no_grad():
            self.first.weight.mul_(LATE)
            self.second.weight.mul_(LATE)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute images of half the size."""
        outputs: torch.Tensor = self.shortcut(x) + self.second(torch.relu(self.first(x)))
        return torch.relu(outputs)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A network on N of the digits, measured in a norm by one call.

    ``widths`` are those of the hidden layers, of convolutions, or of residual blocks. All but the
    dense layers are 3 x 3 with a stride of 2. Residual networks are measured by their leading part.
    In "spectral/linf" the last layer has the second norm and all others the first.
    """

    widths: tuple[int, ...]
    N: int
    norm: str
    kind: Kind = "dense"
    call: Call = "diagnose"

    @property
    def name(self) -> str:
        """Words for tables, and what ``--only`` looks in."""
        inside = "-".join(map(str, self.widths))
        return f"{self.call} {self.kind} {inside} N={self.N} {self.norm}"

    def data(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return its images (N, 64), or (N, 1, 16, 16), and their classes."""
        digits = load("digits", classes=("all",))
        chosen = np.random.default_rng(SEED).permutation(len(digits))[: self.N]
        images = torch.tensor(digits.X[chosen, :-1], dtype=torch.float32)
        if self.kind != "dense":
            squares = images.reshape(-1, 1, 8, 8)
            images = squares.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)
        return images, torch.tensor(digits.y[chosen])

    def network(self) -> nn.Module:
        """Return it before training: ReLU layers without biases."""
        torch.manual_seed(SEED)
        width, side = (64, 1) if self.kind == "dense" else (1, 16)
        layers: list[nn.Module] = []
        for next_width in self.widths:
            match self.kind:
                case "dense":
                    layers += [nn.Linear(width, next_width, bias=False), nn.ReLU()]
                case "convolutions":
                    layers += [halving(width, next_width), nn.ReLU()]
                case "residual":
                    layers.append(Residual(width, next_width))
            width, side = next_width, (side + 1) // 2
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(width * side**2, 10, bias=False))

    def trained(self) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
        """Return the network, trained until it separates, and its data.

        Raises
        ------
        RuntimeError
            It does not separate its samples.
        """
        (images, labels), network = self.data(), self.network()
        optimizer = torch.optim.Adam(network.parameters(), lr=RATE)
        for _ in range(MOST_STEPS):
            loss = nn.functional.cross_entropy(network(images), labels)
            if loss < SMALL_LOSS:
                return network, images, labels
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
        raise RuntimeError(f"{self.name} does not separate its samples in {MOST_STEPS} steps")


# One network in the norms of two optimizers, in their mixture, in all three, and as a leading part.
ONE = Case(widths=(8, 16), N=256, norm="l2", kind="convolutions")
BESIDE = [
    *(replace(ONE, norm=norm) for norm in ("spectral", "linf", "spectral/linf")),
    replace(ONE, norm="spectral/linf", call="which_norm"),
    *(ONE, replace(ONE, call="leading")),
]
# Three layers of w, 2 w and 4 w channels have some 90 w^2 weights: 10^5, 10^6, 10^7.
CONVOLUTIONS = [(w, 2 * w, 4 * w) for w in (33, 105, 333)]
GRID = [
    *(
        Case(widths=widths, N=256, norm="l2", kind="convolutions", call=call)
        for widths in CONVOLUTIONS
        for call in ("diagnose", "record")
    ),
    *(
        Case(widths=(64, 128, 256), N=256, norm="l2", kind="residual", call=call)
        for call in ("diagnose", "record")
    ),
    *(
        Case(widths=(128,), N=n, norm=norm)
        for n in (100, 300, 600, 1500)
        for norm in ("l2", "linf", "spectral")
    ),
    *(Case(widths=(200, 200), N=1000, norm=norm) for norm in ("l2", "l1", "linf", "spectral")),
    *BESIDE,
]
QUICK = [
    Case(widths=(16,), N=60, norm="l2"),
    Case(widths=(16,), N=60, norm="l2", call="record"),
    Case(widths=(4, 8), N=30, norm="spectral/linf", kind="convolutions", call="which_norm"),
    Case(widths=(4, 8), N=60, norm="l2", kind="residual"),
]


def measure_case(case: Case, limit: float) -> harness.Row:
    """Diagnose a network; the row says so if that fails."""
    row: harness.Row = {**asdict(case), "widths": list(case.widths), "limit": limit, "detail": ""}
    row |= {"machine": runs.machine(), "outcome": runs.ANSWERED}
    row |= dict.fromkeys(("seconds", "ratio", "gib", "gap", "gap_lower"), np.nan)
    return row | runs.in_process(_work, (case, torch.get_num_threads()), limit, lambda line: None)


def _work(pipe: Pipe, case: Case, threads: int) -> None:
    torch.set_num_threads(threads)
    network, images, labels = case.trained()
    small = nn.Linear(2, 1, bias=False)
    small.weight.data.fill_(1.0)
    diagnose(small, torch.eye(2), [1, 1], norm=case.norm.split("/")[0])  # what is imported once
    found, cost = runs.beside_yardstick(lambda: _measured(case, network, images, labels))
    seconds, gap, gap_lower, method = found
    pipe.send(
        {
            "weights": sum(weights.numel() for weights in network.parameters()),
            "seconds": seconds,
            "ratio": runs.in_yardsticks(seconds, cost),
            "gib": cost["solve_gib"],
            "gap": gap,
            "gap_lower": gap_lower,
            "method": method,
            "threads": threads,
        }
    )


def _measured(
    case: Case, network: nn.Module, images: torch.Tensor, labels: torch.Tensor
) -> tuple[float, float, float, str]:
    """Seconds of the call, the gap, its lower bound where there is one, and how it was found."""
    leading = case.kind == "residual" or case.call == "leading"
    norms = case.norm.split("/")
    last = [*network.state_dict()][-1]
    norm = case.norm if len(norms) == 1 else {"": norms[0], last: norms[1]}
    if case.call == "which_norm":
        named = which_norm(network, images, labels, norms=[norm, *norms])
        return named.seconds, named.rows[0].gap.upper, named.rows[0].gap.lower, ""
    if case.call != "record":
        found = diagnose(network, images, labels, norm=norm, leading=leading)
        return found.seconds, found.gap, found.gap_lower, found.method
    recorder = Recorder(network, images, labels, norms=[case.norm], leading=leading)
    point = recorder.record()
    return recorder.last_seconds, point[f"gap_{case.norm}"], np.nan, ""


@dataclass(frozen=True, kw_only=True)
class DiagnosisOptions(runs.RowOptions):
    """What one can ask of it."""

    time_limit: float = harness.option(300.0, "seconds of a case, its training included")


def measure(run: harness.Run[DiagnosisOptions]) -> harness.Frames:
    """Measure the cases that are missing."""
    return runs.missing_rows(
        run,
        {case.name: case for case in (QUICK if run.quick else GRID)},
        lambda case: {"name": case.name},
        lambda case, _: measure_case(case, run.options.time_limit),
    )


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """Cost of each case, and how close its bounds are."""
    known = frame["outcome"] == runs.ANSWERED
    names = frame["widths"].map(lambda each: "-".join(map(str, each)))
    low = frame["gap_lower"].fillna(frame["gap"])
    return frame.assign(
        network=frame["kind"] + " " + names,
        seconds=frame["seconds"].map(runs.few_digits).where(known, frame["outcome"]),
        ratio=frame["ratio"].map(runs.few_digits).where(known, ""),
        gib=frame["gib"].map("{:.2g}".format).where(known, ""),
        gap=[
            percent_bounds(low, gap) if answered else ""
            for low, gap, answered in zip(low, frame["gap"], known, strict=True)
        ],
    )


def draw(frame: pd.DataFrame) -> Figure:
    """Time against samples, of one network, and against weights."""
    figure, (left, right) = subplots((9, 3.6), 1, 2)
    answered = frame[(frame["outcome"] == runs.ANSWERED) & (frame["call"] == "diagnose")]
    dense = answered[answered["kind"] == "dense"]
    most = dense["widths"].map(tuple).mode()
    one = dense[dense["widths"].map(tuple) == most.iloc[0]] if len(most) else dense
    for marker, (norm, rows) in zip(MARKERS, one.groupby("norm"), strict=False):
        rows = rows.sort_values("N")
        left.plot(rows["N"], rows["seconds"], marker=marker, color=COLOURS[str(norm)], label=norm)
    wide = frame[(frame["outcome"] == runs.ANSWERED) & (frame["kind"] == "convolutions")]
    for call, colour, marker in (("diagnose", BLUE, "o"), ("record", GREY, "s")):
        rows = wide[(wide["call"] == call) & (wide["norm"] == "l2")].sort_values("weights")
        right.plot(rows["weights"], rows["seconds"], marker=marker, color=colour, label=call)
    left.set(xlabel="samples N, one hidden layer", ylabel="seconds of a diagnosis")
    right.set(xlabel="weights, convolutional network", ylabel="seconds")
    for ax in (left, right):
        ax.set(xscale="log", yscale="log")
        ax.grid(visible=True, which="major", alpha=0.3)
        if ax.has_data():
            ax.legend(frameon=False, fontsize="small")
    return figure


def found(frame: pd.DataFrame) -> str:
    """Say what the largest network takes, and what a norm adds."""
    answered = frame[frame["outcome"] == runs.ANSWERED]
    if not len(answered):
        return "Nothing was answered."
    largest = answered.sort_values(["weights", "call"]).iloc[-1]
    slowest = answered.sort_values("seconds").iloc[-1]
    left = frame[frame["outcome"] != runs.ANSWERED]
    waiting = _waiting(frame)
    lines = [
        f"**{len(answered)} of {len(frame)} calls end within their time, at most "
        f"{answered['gib'].max():.2g} GiB above what the process held.** The largest network, of "
        f"{largest['weights']:,.0f} weights, takes {runs.few_digits(largest['seconds'])} s "
        f"({largest['name']}); the slowest call {runs.few_digits(slowest['seconds'])} s "
        f"({slowest['name']})."
    ]
    seconds = dict(zip(answered["name"], answered["seconds"], strict=True))
    if all(case.name in seconds for case in BESIDE):
        one, other, mixed, three, plain, leading = (seconds[case.name] for case in BESIDE)
        shares = mixed / max(one, other), three / (one + other + mixed), leading / plain
        lines.append(
            "On one small network a mixed norm takes {} of the time of the slower of its parts, "
            "`which_norm` in all three {} of that of one after another, and `leading=True` {} of "
            "that without it.".format(*map(runs.few_digits, shares))
        )
    if len(left):
        lines.append(f"Without an answer: {', '.join(left['name'])}.")
    if waiting:
        lines.append(f"{waiting} of {len(GRID)} cases are not measured yet.")
    return "\n\n".join(lines)


def _waiting(frame: pd.DataFrame) -> int:
    """Count the cases of the grid that a table of it lacks; those of a quick version lack none."""
    names = {case.name for case in GRID}
    return len(names - set(frame["name"])) if names & set(frame["name"]) else 0


def verdict(frame: pd.DataFrame, most: float = 4.0) -> harness.Verdict:
    """Judge the claim by the rule."""
    answered = frame[frame["outcome"] == runs.ANSWERED]
    whole = len(answered) == len(frame) and not _waiting(frame) and (answered["gib"] <= most).all()
    return harness.Verdict.of(whole and (answered["weights"] >= 9e6).any(), len(answered))


EXPERIMENT = harness.Experiment(measure, found, tabulate, verdict, draw, options=DiagnosisOptions)
