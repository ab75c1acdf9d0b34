"""How exactly the maximum margin is known: gaps, an attack on the oracle, times, statuses."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import pandas as pd

from benchmarks.drawing import Figure, subplots, tick_values
from benchmarks.harness import Row, Rows, Verdict, rows_of
from benchmarks.infinite_width.clusters import clusters
from benchmarks.sizes import sized
from implicit_bias.base.validation import Array
from implicit_bias.base.wording import percent
from implicit_bias.bounds.certificate import Status
from implicit_bias.infinite_width import Activation, max_margin
from implicit_bias.infinite_width.arrangement import Kinked
from implicit_bias.infinite_width.sphere_search import ascend
from implicit_bias.report.style import BLUE, GREEN, GREY, VERMILION

RANDOM, PUBLISHED, HIGHER, OTHER, CLASSES, DEGENERATE = (
    "random points",
    "published clusters",
    "higher rank",
    "other activations and C",
    "several classes",
    "degenerate",
)
# The rule of the verdict: gap, and seconds for 100 and for 500 samples.
GAP, SECONDS = 1e-6, 60.0
# Directions evaluated at once, and the best ones from which local ascent starts.
BLOCK, CLIMBS = 10_000, 100
# Random moves from each of the best directions, at each of some falling lengths.
MOVES, LENGTHS = 30, np.geomspace(0.1, 1e-8, 50)


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Samples of each kind of data, and the directions of the attack."""

    random: tuple[int, ...] = (20, 40, 60, 80, 100, 120, 140, 160, 180, 200)
    published: tuple[int, ...] = (100, 500)
    rank_4: tuple[int, ...] = (32, 64)
    rank_5: tuple[int, ...] = (16,)
    rank_6: tuple[int, ...] = (64,)
    rank_15: tuple[int, ...] = (64,)
    classes: tuple[int, ...] = (3, 4, 5)
    directions: int = 1_000_000


QUICK = Sizes(
    random=(10, 20),
    published=(20,),
    rank_4=(8,),
    rank_5=(8,),
    rank_6=(),
    rank_15=(),
    classes=(3,),
    directions=1000,
)


@dataclass(frozen=True, eq=False)
class Case:
    """Data, what is asked of them, and the only true answer, if it is not the optimum."""

    kind: str
    name: str
    X: Array
    y: Array
    activation: Activation = "relu"
    C: float = np.inf
    expected: Status | None = Status.OPTIMAL
    rounds: int = 300

    def __str__(self) -> str:
        return f"{self.kind}: {self.name}"


def cases(sizes: Sizes) -> list[Case]:
    """List all data sets."""
    found = [
        Case(RANDOM, f"{n} samples", *random_points(n, seed)) for seed, n in enumerate(sizes.random)
    ]
    found += [Case(PUBLISHED, f"4 × 4, {n} samples", *clusters(4, n, 0)) for n in sizes.published]
    for rank, counts, expected, rounds in (
        (4, sizes.rank_4, Status.OPTIMAL, 300),
        (5, sizes.rank_5, Status.OPTIMAL, 300),
        (6, sizes.rank_6, None, 30),
        (15, sizes.rank_15, None, 30),
    ):
        for n in counts:
            data, name = clusters(3, n, 0, n_features=rank), f"rank {rank}, {n} samples"
            found.append(Case(HIGHER, name, *data, expected=expected, rounds=rounds))
    n = max(sizes.random) // 2
    X, y = random_points(n, 0)
    activations: tuple[Activation, ...] = ("leaky relu", "absolute value", "linear plus relu")
    found += [Case(OTHER, str(activation), X, y, activation) for activation in activations]
    found += [Case(OTHER, f"C = {C:g}", X, y, C=C) for C in (0.1, 10.0)]
    found += [
        Case(CLASSES, f"{k} classes, {n} samples", *sectors(n, k, seed=k)) for k in sizes.classes
    ]
    return found + degenerate()


def settings(sizes: Sizes) -> list[Row]:
    """Every set once."""
    return [{"kind": case.kind, "name": case.name} for case in cases(sizes)]


def random_points(n: int, seed: int) -> tuple[Array, Array]:
    """Draw points in the plane with a constant; labels of a curve, a tenth of them flipped."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), rng.normal(size=(n, 2))])
    y = np.where(np.sin(3 * X[:, 1]) > X[:, 2], 1.0, -1.0)
    y[rng.uniform(size=n) < 0.1] *= -1
    return X, y


def sectors(n: int, n_classes: int, seed: int) -> tuple[Array, Array]:
    """Draw points in the plane with a constant; classes of spiral sectors, a tenth redrawn."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), rng.normal(size=(n, 2))])
    turns = np.arctan2(X[:, 2], X[:, 1]) / (2.0 * np.pi) + 0.15 * np.hypot(X[:, 1], X[:, 2])
    y = np.floor(n_classes * np.mod(turns, 1.0)) % n_classes
    redrawn = rng.uniform(size=n) < 0.1
    y[redrawn] = rng.integers(0, n_classes, redrawn.sum())
    return X, y


def degenerate() -> list[Case]:
    """List sets with repeated, collinear and antipodal points, and inseparable ones."""
    grid = np.array([[1.0, i, j] for i in range(5) for j in range(5)])
    chess = np.where((grid[:, 1] + grid[:, 2]) % 2, 1.0, -1.0)
    line = np.column_stack([np.ones(8), np.arange(8.0), 2.0 * np.arange(8.0)])
    signs = np.where(np.arange(8) % 2, 1.0, -1.0)
    X, y = random_points(10, 0)
    optimal, none = Status.OPTIMAL, Status.NOT_SEPARABLE
    sets: list[tuple[str, Array, Array, Status | None]] = [
        ("grid with the labels of a chessboard", grid, chess, optimal),
        ("every point twice", np.vstack([X, X]), np.append(y, y), optimal),
        ("points on one line", line, signs, optimal),
        (
            "antipodal points of one label",
            np.vstack([X[:, 1:], -X[:, 1:]]),
            np.append(y, y),
            optimal,
        ),
        ("two equal points of opposite labels", np.vstack([X, X[:1]]), np.append(y, -y[0]), none),
        (
            "a point twice as far of the opposite label",
            np.vstack([X, 2 * X[:1]]),
            np.append(y, -y[0]),
            none,
        ),
        ("an input that is 0", np.vstack([X, 0 * X[:1]]), np.append(y, 1.0), none),
    ]
    for angle in (1e-6, 1e-9, 1e-12):
        pair = np.array([[1.0, 0.3], [1.0, 0.3 + angle], [1.0, 0.3 + 2 * angle]])
        sets.append((f"opposite labels {angle:g} apart", pair, np.array([1.0, -1.0, 1.0]), None))
    return [Case(DEGENERATE, name, X, y, expected=expected) for name, X, y, expected in sets]


def rows(sizes: Sizes, kind: str, name: str) -> Rows:
    """One row: what was found, and the largest |h| that the attack finds."""
    case = next(case for case in cases(sizes) if (case.kind, case.name) == (kind, name))
    started = time.process_time()
    found = max_margin(case.X, case.y, case.C, activation=case.activation, max_rounds=case.rounds)
    seconds, attacked = time.process_time() - started, np.nan
    if found.conflict is None:
        strategy = attack_lengths if kind == CLASSES else attack
        attacked = strategy(found.problem.dual_function(found.alpha), sizes.directions)
    certificate = found.certificate
    yield {
        "samples": len(case.y),
        "rank": found.problem.rank,
        "status": found.status.label,
        "expected": "" if case.expected is None else case.expected.label,
        "exact": found.exact,
        "lower": certificate.lower,
        "upper": certificate.upper,
        "gap": certificate.gap,
        "bound": float(certificate.dual_norms[0]),
        "attacked": attacked,
        "neurons": len(found.coef),
        "seconds": seconds,
    }


def attack(function: Kinked, n_directions: int) -> float:
    """Largest |h| over random directions and local ascent from the best, and from all lines."""
    best, largest = _best_of_random(function, n_directions)
    _, climbed = ascend(function, np.vstack([best, function.normals]))
    return float(max(largest, climbed.max()))


def attack_lengths(function: Kinked, n_directions: int) -> float:
    """Largest ||h|| over random directions, and over random moves from the best and all lines."""
    best, largest = _best_of_random(function, n_directions)
    best = np.vstack([best, function.normals])
    rng = np.random.default_rng(1)
    for length in LENGTHS:
        moves = length * rng.normal(size=(len(best), MOVES, function.rank))
        tries = np.concatenate([best[:, None], best[:, None] + moves], axis=1)
        tries /= np.linalg.norm(tries, axis=2, keepdims=True)
        values = function.lengths(tries.reshape(-1, function.rank)).reshape(tries.shape[:2])
        best = tries[np.arange(len(best)), values.argmax(axis=1)]
    return max(largest, float(function.lengths(best).max()))


def _best_of_random(function: Kinked, n_directions: int) -> tuple[Array, float]:
    """Best of random unit vectors, shape (CLIMBS, rank), and the largest value."""
    rng = np.random.default_rng(0)
    rank = function.rank
    best, best_values = np.zeros((0, rank)), np.zeros(0)
    for start in range(0, n_directions, BLOCK):
        points = rng.normal(size=(min(BLOCK, n_directions - start), rank))
        points /= np.linalg.norm(points, axis=1, keepdims=True)
        values = np.append(best_values, function.lengths(points))
        points = np.vstack([best, points])
        order = np.argsort(-values)[:CLIMBS]
        best, best_values = points[order], values[order]
    return best, float(best_values.max())


def draw(frame: pd.DataFrame) -> Figure:
    """Seconds against samples, and how far below the bound the attack stays."""
    figure, (left, right) = subplots((8.6, 3.4), 1, 2)
    low = frame[frame["rank"] <= 3]
    looks = ((RANDOM, BLUE, "o"), (PUBLISHED, VERMILION, "^"), (HIGHER, GREEN, "s"))
    for kind, colour, marker in looks[:2]:
        of_kind = low[low["kind"] == kind].sort_values("samples")
        left.plot(of_kind["samples"], of_kind["seconds"], marker, color=colour, label=kind)
    left.set(xscale="log", yscale="log", xlabel="samples, rank 3", ylabel="seconds to 1e-6")
    ticks = [20, 50, 100, 200, 500]
    tick_values(left, ticks)
    seconds = [0.1, 0.3, 1, 3, 10, 30, 100, 300]
    tick_values(left, seconds, along="y")
    left.set_ylim(0.05, 4.0 * low["seconds"].max())
    left.legend(loc="upper left")
    left.grid(axis="y")
    attacked = frame[frame["attacked"].notna()]
    for kind, colour, marker in looks:
        of_kind = attacked[attacked["kind"] == kind]
        below = 1.0 - of_kind["attacked"] / of_kind["bound"]
        right.plot(of_kind["samples"], below.clip(lower=1e-16), marker, color=colour, label=kind)
    right.axhline(1e-16, color=GREY, linestyle="--", linewidth=1)
    right.set(xscale="log", yscale="log", xlabel="samples", ylabel="1 - found |h| / bound")
    tick_values(right, ticks)
    right.legend(loc="upper left")
    right.set_title("the attack stays below the bound")
    left.set_title("time to the certified maximum")
    return figure


def beaten(frame: pd.DataFrame) -> pd.Series[bool]:
    """Whether the attack found more than the bound."""
    return frame["attacked"] > frame["bound"]


def found(frame: pd.DataFrame) -> str:
    """Say what the table says."""
    random = frame[frame["kind"] == RANDOM]
    of_classes = frame[frame["kind"] == CLASSES]
    published = frame[frame["kind"] == PUBLISHED].sort_values("samples")
    times = ", ".join(f"{row['seconds']:.1f} s for {row['samples']}" for row in rows_of(published))
    right = frame[frame["expected"] != ""]
    as_expected = (right["status"] == right["expected"]).sum()
    bounded = frame[~frame["exact"]]
    planar = frame[frame["kind"].isin((RANDOM, PUBLISHED, OTHER))]
    least = (planar["attacked"] / planar["bound"]).min()
    words = "; ".join(
        f"{row['name']}: {row['upper'] / row['lower']:.2f}" for row in rows_of(bounded)
    )
    return (
        f"On {len(random)} random sets the largest gap is {random['gap'].max():.1e}; a "
        f"search for neurons exceeds the bound in {beaten(frame).sum()} of "
        f"{frame['attacked'].notna().sum()} sets of all kinds, and finds at least {percent(least)} "
        "of the bound on points in the plane. "
        f"Published clusters take {times} samples. {as_expected} of "
        f"{len(right)} sets with one true answer have it as their status. Several classes: gaps of "
        f"{of_classes['gap'].max():.1e} at most, in {of_classes['seconds'].max():.0f} s at most."
        + (
            " Where the oracle is not exact there is a bound on either side, best network over "
            f"best provable lower bound: {words}."
            if len(bounded)
            else ""
        )
    )


def verdict(frame: pd.DataFrame, most: float = SECONDS) -> Verdict:
    """Judge the claim by the rule."""
    random = frame[frame["kind"] == RANDOM]
    sound = bool((random["gap"] < GAP).all() and not beaten(frame).any())
    planar = frame[frame["kind"].isin((RANDOM, PUBLISHED))]
    quick = bool(
        (planar.loc[planar["samples"] <= 100, "seconds"] < most).all()
        and (planar["seconds"] < 5 * most).all()
    )
    right = frame[frame["expected"] != ""]
    clear = bool((right["status"] == right["expected"]).all())
    return Verdict.of(sound and quick and clear, sound)


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """One row a set."""
    return frame.assign(
        status=frame["status"].where(frame["exact"], "bounds only"),
        gap=frame["gap"].map("{:.1e}".format).where(np.isfinite(frame["lower"]), ""),
        share=(frame["attacked"] / frame["bound"]).map(_share),
    )


def _share(share: float) -> str:
    """Write a share of a bound, and how far it is from 1 where digits would not tell."""
    if np.isnan(share):
        return ""
    return f"{share:.4f}" if share < 0.999 else f"1 - {max(1.0 - share, 0.0):.0e}"


EXPERIMENT = sized(settings, rows, found, tabulate, verdict, draw, quick=QUICK)
