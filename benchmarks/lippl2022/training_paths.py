r"""Along the training of a GLN: whose norm its predictors have, and what of the protocol matters.

    python -m benchmarks lippl2022 training-paths

Networks of N = 500, two contexts a unit and median thresholds start from the released weights.
Trained as released they are the released ones to the digit; the others differ in one thing:

=====================  =========================================================================
as released            stochastic descent in batches of 128, 3,200 steps, a bias of the readout
momentum 0.9           the same with momentum, released, too
other order            the order of the samples is that of another seed: what chance alone changes
no bias                the readout has none, so that the network is homogeneous
full batches           3,200 steps of the same sizes on all samples
plain descent          no bias, and descent on the log of the loss (`training.limit`, "plain")
=====================  =========================================================================

At steps about even in the logarithm the predictors beta_gamma = B + sum_h delta_{h,gamma_h}
(`gln_predictors`) are laid beside those of three SVMs with the same predictors to choose from. A
bias b adds b to the constant feature of every beta_gamma. With c_h the readouts as drawn, the third
is where training would go if they stayed, and were alike:

SVM-GLN      sum_h ||zeta_h||                 both layers are trained
SVM-L2       sum_gamma ||beta_gamma||^2       the control of the paper
SVM-zeta     sum_h ||zeta_h||^2               the hidden layer alone is trained

Columns: the cell, the training (or SVM), the step, and

====================  =========================================================================
neighbours, unused    as in `neighbours`
gln_norm, l2_norm     both norms of the predictors at smallest margin 1, nan where that is negative
error                 validation error
from_gln, from_l2     share of the validation images on which it differs from SVM-GLN, SVM-L2
====================  =========================================================================

Source: Lippl, Abbott, Chung (2022), section 4.2 and the discussion; the closed form of the norm is
derived in `gln_predictors`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from benchmarks.drawing import Figure, common_legend, subplots
from benchmarks.harness import Judged, Row, Rows, Verdict, otherwise
from benchmarks.lippl2022 import draws
from benchmarks.lippl2022.as_published import one_group
from benchmarks.lippl2022.gln_predictors import AdditivePredictors
from benchmarks.lippl2022.neighbours import cell, shape
from benchmarks.lippl2022.paired import Pairs, minus, side_by_side, signed
from benchmarks.lippl2022.released_training import released_gln, train_as_released
from benchmarks.sizes import grid, log_spaced, sized
from benchmarks.words import span
from implicit_bias.base.validation import Array
from implicit_bias.base.wording import percent
from implicit_bias.estimators.svm import GatedSVC, MarginSVC
from implicit_bias.networks import GLN
from implicit_bias.report import style
from implicit_bias.training.limit import LimitConfig, train_to_limit

GLN_NORM, L2_NORM, ZETA = "SVM-GLN", "SVM-L2", "SVM-zeta"
RELEASED, MOMENTUM, ORDER = "as released", "momentum 0.9", "other order"
NO_BIAS, FULL, PLAIN = "no bias", "full batches", "plain descent"
N, CONTEXTS, BATCH, EPOCHS, STEPS = 500, 2, 128, 800, 3_200
# Looks at a training, and at plain descent in each factor of ten.
POINTS, RECORD = 30, 10
OTHER_ORDER = 2
# Told of the step, coefficients and bias.
Look = Callable[[int, Array, float], None]


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Widths, those whose training is varied, too, seeds, those of SVMs alone, plain steps."""

    units: tuple[int, ...] = (10, 20, 100)
    varied: tuple[int, ...] = (10,)
    seeds: tuple[int, ...] = (1, 2, 3)
    further_seeds: tuple[int, ...] = tuple(range(4, 11))
    plain_steps: int = 100_000


QUICK = Sizes(units=(10,), varied=(10,), seeds=(1,), further_seeds=(4,), plain_steps=1_000)


def settings(sizes: Sizes) -> list[Row]:
    """Return the cells."""
    return [
        setting
        for seeds in (sizes.seeds, sizes.further_seeds)
        for setting in grid(units=sizes.units, seed=seeds)
    ]


class Masked(nn.Module):
    """A GLN of one hidden layer as products of matrices, for many steps on all samples."""

    def __init__(self, network: GLN, *, bias: bool) -> None:
        super().__init__()
        self.hidden = nn.Parameter(network.hidden_weights[0].detach().double())  # (H C, D)
        self.readout = nn.Parameter(network.readout[0].detach().double())  # (H,)
        start = torch.tensor(network.readout_bias_value, dtype=torch.float64)
        self.bias = nn.Parameter(start) if bias else None

    def coef(self) -> Tensor:
        """Return zeta (H C, D), row h * C + c."""
        return self.readout.repeat_interleave(CONTEXTS)[:, None] * self.hidden

    def forward(self, X: Tensor, gates: Tensor) -> Tensor:
        """f(x), shape (n,), of inputs (n, D) in contexts (n, H C), one-hot a unit."""
        outputs = (X @ self.coef().T * gates).sum(dim=1)
        return outputs if self.bias is None else outputs + self.bias


class Cell:
    """A cell: its samples and contexts, and what the two SVMs say of the validation images."""

    def __init__(self, units: int, seed: int) -> None:
        self.factory = cell(train_size=N, units=units, hyperplanes=1, seed=seed)
        self.seed, self.contexts = seed, self.factory.contexts
        self.train, self.images = self.factory.data.parts.train, self.factory.data.parts.validation
        self.gates = [self.contexts.gates(part.X) for part in (self.train, self.images)]
        self.signs: dict[str, Array] = {}

    def svms(self) -> Rows:
        """Solve the SVMs: a row each."""
        zeta = GatedSVC(one_group(self.contexts), **self.factory.svm_options())
        models = {
            GLN_NORM: self.factory.fit_one("svm-gln"),
            L2_NORM: self.factory.fit_one("svm-l2"),
            ZETA: zeta.fit(self.train.X, self.train.y),
        }
        for name in (GLN_NORM, L2_NORM):
            self.signs[name] = np.sign(models[name].decision_function(self.images.X))
        for name, model in models.items():
            assert isinstance(model, MarginSVC)
            yield {"training": name, "step": 0} | self.looked_at(model.coef_)

    def looked_at(self, coef: Array, bias: float = 0.0) -> Row:
        """Measure what coefficients zeta (H C, D) and a bias predict."""
        margins, outputs = (
            gates.multiply(part.X @ coef.T).sum(axis=1) + bias
            for gates, part in zip(self.gates, (self.train, self.images), strict=True)
        )
        found = AdditivePredictors.from_coef(coef, self.contexts.n_units)
        constant = np.zeros(coef.shape[1])
        constant[-1] = bias  # the last feature is 1
        predictors = AdditivePredictors(found.mean + constant, found.effects)
        least, signs = (self.train.y * margins).min(), np.sign(outputs)
        scale = 1 / least if least > 0 else np.nan
        effects = np.square(predictors.effect_norms).sum() / CONTEXTS
        return {
            **shape(predictors),
            "gln_norm": predictors.norm() * scale,
            "l2_norm": math.sqrt(np.square(predictors.mean).sum() + effects) * scale,
            "error": float(np.mean(signs != self.images.y)),
            "from_gln": float(np.mean(signs != self.signs[GLN_NORM])),
            "from_l2": float(np.mean(signs != self.signs[L2_NORM])),
        }

    def trained(self, training: str, steps: int, look: Look) -> None:
        """Train the network in one of the ways, and look at it now and then."""
        X, y = self.train.X, self.train.y
        network = released_gln(self.contexts, seed=self.seed)
        if training in (FULL, PLAIN):
            masked = Masked(network, bias=training == FULL)
            inputs = torch.tensor(X), torch.tensor(self.gates[0].toarray())
            if training == FULL:
                descend(masked, inputs, torch.tensor(y), look)
            else:
                limit = LimitConfig(steps=steps, method="plain", record=RECORD)
                train_to_limit(
                    masked, inputs, y, limit, on_point=lambda at: look(at.step, *now(masked))
                )
            return
        if training == NO_BIAS:
            network.readout_bias = None
        look(0, *now(network))
        shown, batches = set(log_spaced(EPOCHS, POINTS)), math.ceil(N / BATCH)

        def on_epoch(epoch: int, _: float) -> None:
            if epoch in shown:
                look(batches * epoch, *now(network))

        momentum, order = 0.9 * (training == MOMENTUM), OTHER_ORDER if training == ORDER else 1
        train_as_released(network, X, y, momentum=momentum, data_seed=order, on_epoch=on_epoch)


def now(network: GLN | Masked) -> tuple[Array, float]:
    """Coefficients and bias of a network as it is."""
    if isinstance(network, GLN):
        return network.coef(), network.readout_bias_value
    bias = 0.0 if network.bias is None else network.bias.item()
    return network.coef().detach().numpy(), bias


def descend(network: Masked, inputs: tuple[Tensor, Tensor], y: Tensor, look: Look) -> None:
    """Do the released number of steps, of the released sizes, each on all samples."""
    released = draws.training_config()
    optimizer, shown = torch.optim.SGD(network.parameters()), set(log_spaced(STEPS, POINTS))
    look(0, *now(network))
    for step in range(STEPS):
        optimizer.param_groups[0]["lr"] = released.step_size(step)
        optimizer.zero_grad()
        loss = nn.functional.softplus(-y * network(*inputs)).mean()
        torch.autograd.backward(loss)
        optimizer.step()
        if step + 1 in shown:
            look(step + 1, *now(network))


def rows(sizes: Sizes, units: int, seed: int) -> Rows:
    """Solve the SVMs of a cell, and train its networks, but for further seeds."""
    setting, found = Cell(units, seed), list[Row]()
    found += setting.svms()
    trainings = (RELEASED, MOMENTUM, ORDER, NO_BIAS, FULL, PLAIN)
    some = len(trainings) if units in sizes.varied else 2
    for training in trainings[: some if seed in sizes.seeds else 0]:

        def look(step: int, coef: Array, bias: float, training: str = training) -> None:
            found.append({"training": training, "step": step} | setting.looked_at(coef, bias))

        setting.trained(training, sizes.plain_steps, look)
    yield from found


# --- what the table says -----------------------------------------------------------------------

CELL = ("units", "seed")
UNTRAINED = "untrained"
# Steps of plain descent that are said.
SAID = (1_000, 10_000, 100_000)
HALF, HALF_A_POINT, TENTH, MOST = 0.5, 0.005, 0.001, 0.9
LABELS = {
    "neighbours": "difference of neighbours, %",
    "from_gln": "disagreement with SVM-GLN, %",
    "excess": "GLN norm above the optimum, %",
}
LOOKS = {
    RELEASED: (style.BLUE, "-"),
    MOMENTUM: (style.SKY, "-"),
    NO_BIAS: (style.PURPLE, "--"),
    FULL: (style.ORANGE, "-."),
    PLAIN: (style.BLACK, ":"),
    GLN_NORM: (style.VERMILION, "-"),
    L2_NORM: (style.GREEN, "--"),
    ZETA: (style.GREY, "-."),
}


def ends(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    """Lay a column at the ends of all trainings, and before, side by side: a row a cell."""
    last = frame.sort_values("step").groupby([*CELL, "training"]).last().reset_index()
    first = frame[(frame["training"] == RELEASED) & (frame["step"] == 0)]
    both = pd.concat([last, first.assign(training=UNTRAINED)])
    return side_by_side(both, column, "training", CELL)


def ways(table: pd.DataFrame, training: str) -> pd.Series[float]:
    """How far on the way from SVM-L2 to SVM-GLN a training ends, by width."""
    means = table.groupby("units").mean()
    return (means[L2_NORM] - means[training]) / (means[L2_NORM] - means[GLN_NORM])


def way(table: pd.DataFrame, training: str) -> str:
    """Say that for the narrowest width and the widest."""
    share = ways(table, training)
    return (
        f"{percent(share.iloc[0])} at H = {share.index[0]} and {percent(share.iloc[-1])} at H = "
        f"{share.index[-1]}"
    )


def above(norms: pd.DataFrame, training: str) -> str:
    """Say how far the GLN norm of a training is above its optimum."""
    return percent((norms[training] / norms[GLN_NORM]).mean() - 1)


def of_seeds(frame: pd.DataFrame, *, trained: bool) -> pd.DataFrame:
    """Keep the seeds whose networks are trained, or those of SVMs alone."""
    seeds = frame.loc[frame["training"] == RELEASED, "seed"]
    return frame[frame["seed"].isin(seeds) == trained]


def judge(frame: pd.DataFrame) -> dict[str, Judged]:
    """Judge each claim by its rule."""
    new, frame = (of_seeds(frame, trained=trained) for trained in (False, True))
    apart, from_gln, errors, norms = (
        ends(frame, each) for each in ("neighbours", "from_gln", "error", "gln_norm")
    )
    similar = Pairs(
        {
            "untrained minus trained": minus(apart, UNTRAINED, RELEASED),
            "SVM-L2 minus trained": minus(apart, L2_NORM, RELEASED),
        },
        "{name} {pair}",
        "; ",
    )
    changed = {
        training: [minus(table, training, RELEASED) for table in (errors, from_gln)]
        for training in (NO_BIAS, FULL, ORDER)
    }
    largest = [max(abs(pair.mean) for pair in changed[each]) for each in (NO_BIAS, FULL)]
    small, smaller = (
        Verdict.of(max(largest) < bound, min(largest) < bound) for bound in (HALF_A_POINT, TENTH)
    )
    words = {
        name: f"{name}: error {error}, disagreement with SVM-GLN {disagreement}"
        for name, (error, disagreement) in changed.items()
    }
    plain = frame[frame["training"] == PLAIN]
    by_width = from_gln.dropna(subset=[PLAIN]).groupby("units")[[PLAIN, RELEASED]].mean()
    less, still_less = (by_width[PLAIN] < share * by_width[RELEASED] for share in (HALF, 2 / 3))
    return {
        "becoming": Judged(
            verdict=similar.judged(),
            result=f"Difference of neighbouring predictors over their size, N = 500: {similar}.",
            control="before training SVM-L2 is above the network, too, by "
            f"{minus(apart, L2_NORM, UNTRAINED)}: of the two signs the first alone is training's "
            f"doing. With momentum it ends at {way(apart, MOMENTUM)}, and "
            f"{above(norms, MOMENTUM)} above the optimum.",
            evidence=(
                "On the way from SVM-L2 to SVM-GLN the network ends at "
                f"{way(apart, RELEASED)}. {turned(frame)}",
                f"The GLN norm of the network at margin 1 is {above(norms, RELEASED)} above the "
                f"optimum, farther than that of SVM-L2, {above(norms, L2_NORM)}.",
            ),
        ),
        "sharing": sharing(new),
        "departures": Judged(
            verdict=small,
            remark=otherwise(smaller, "a tenth of a point"),
            result="Change of error and disagreement with SVM-GLN, N = 500: "
            + "; ".join(
                f"{name} {signed(changed[name][0].mean)} and {signed(changed[name][1].mean)} points"
                for name in (NO_BIAS, FULL)
            )
            + ".",
            control=f"{words[ORDER]}.",
            evidence=(f"{words[NO_BIAS]}; {words[FULL]}.",),
        ),
        "plain": Judged(
            verdict=Verdict.each(less),
            remark=otherwise(Verdict.each(still_less), "two thirds"),
            result="Disagreement with SVM-GLN at N = 500: "
            + ", ".join(along(plain, "from_gln", step) for step in SAID)
            + f" steps; as released {percent(by_width[RELEASED].mean())} after {STEPS:,}.",
            control="with SVM-L2 "
            + ", ".join(along(plain, "from_l2", step) for step in SAID)
            + " steps.",
            evidence=(
                "The GLN norm of plain descent ends "
                f"{above(norms.dropna(subset=[PLAIN]), PLAIN)} above the optimum.",
            ),
        ),
    }


def sharing(frame: pd.DataFrame) -> Judged:
    """Judge what SVM-zeta does, by seeds that came after the rule."""
    apart, errors, norms, from_gln, from_l2 = (
        ends(frame, each) for each in ("neighbours", "error", "gln_norm", "from_gln", "from_l2")
    )
    kept = [
        float((table[L2_NORM] - table[ZETA]).mean() / (table[L2_NORM] - table[GLN_NORM]).mean())
        for table in (apart, errors)
    ]
    return Judged(
        verdict=Verdict.of(min(kept) >= MOST, max(kept) >= MOST),
        remark=otherwise(Verdict.of(min(kept) >= 1, max(kept) >= 1), "all of it"),
        result=f"SVM-zeta goes {percent(kept[0])} of the way from SVM-L2 to SVM-GLN in neighbours "
        f"and {percent(kept[1])} in the error (SVM-zeta minus SVM-GLN "
        f"{minus(errors, ZETA, GLN_NORM)}); N = 500, two contexts, medians.",
        control=f"SVM-zeta differs from SVM-GLN on {percent(from_gln[ZETA].mean())} of the "
        f"images, from SVM-L2 on {percent(from_l2[ZETA].mean())}; SVM-L2 from SVM-GLN on "
        f"{percent(from_gln[L2_NORM].mean())}. The GLN norm of SVM-zeta is {above(norms, ZETA)} "
        f"above the optimum, that of SVM-L2 {above(norms, L2_NORM)}.",
        evidence=(
            f"Error of SVM-L2 minus that of SVM-GLN: {minus(errors, L2_NORM, GLN_NORM)}. Seeds "
            f"{span(frame['seed'])}, which were solved after the rule.",
        ),
    )


def along(plain: pd.DataFrame, column: str, step: int) -> str:
    """Mean of a column at the last look before some steps."""
    at = plain[plain["step"] <= step].sort_values("step").groupby(list(CELL)).last()
    return f"{percent(at[column].mean())} after {at['step'].max():,}"


def turned(frame: pd.DataFrame) -> str:
    """Say when neighbours differ most, and when the samples are separated, as released."""
    rows = frame[frame["training"] == RELEASED]
    cells = rows.groupby(list(CELL))
    top = rows.loc[cells["neighbours"].idxmax(), "step"]
    separated = rows[rows["gln_norm"].notna()].groupby(list(CELL))["step"].min()
    return (
        f"Neighbours differ most after {span(top, ',')} steps; the training samples are separated "
        f"first after {span(separated, ',')} of 3,200."
    )


def found(frame: pd.DataFrame) -> str:
    """Say what the table rests on."""
    frame = of_seeds(frame, trained=True)
    names = ", ".join(sorted(frame.loc[frame["step"] > 0, "training"].unique()))
    means = 100 * frame.groupby(["units", "training", "step"])["unused"].mean()
    unused = []
    for units in frame["units"].unique():
        way = means[units, RELEASED]
        gln, l2 = (means[units, norm, 0] for norm in (GLN_NORM, L2_NORM))
        unused.append(
            f"- H = {units}: untrained {way.iloc[0]:.1f} %, trained as released "
            f"{span(way[1:], '.1f')} % on the way and {way.iloc[-1]:.1f} % at the end, SVM-GLN "
            f"{gln:.1f} %, SVM-L2 {l2:.1f} %."
        )
    lines = "\n".join(unused)
    return (
        f"Trainings, each at seeds {span(frame['seed'])}: {names}.\n\n"
        f"Units that do not matter, means over the seeds:\n\n{lines}"
    )


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """Tabulate the ends of all trainings, means over the seeds."""
    frame = of_seeds(frame, trained=True)
    last = frame.sort_values("step").groupby(["units", "training", "seed"]).last()
    return last.groupby(["units", "training"]).mean(numeric_only=True).reset_index()


def draw(frame: pd.DataFrame) -> Figure:
    """Draw neighbours at two widths; at the narrowest, norm and disagreement."""
    frame = of_seeds(frame, trained=True)
    narrow, wide = frame["units"].min(), frame["units"].max()
    figure, axes = subplots((8.6, 6.6), 2, 2, grid="y")
    panels = [("neighbours", narrow), ("neighbours", wide)]
    panels += [("from_gln", narrow), ("excess", narrow)]
    for ax, (column, units) in zip(axes.flat, panels, strict=True):
        rows = frame[frame["units"] == units]
        best = rows[rows["training"] == GLN_NORM].set_index("seed")["gln_norm"]
        rows = rows.assign(excess=rows["gln_norm"] / rows["seed"].map(best) - 1)
        for training, (colour, line) in LOOKS.items():
            means = 100 * rows[rows["training"] == training].groupby("step")[column].mean()
            if training in (GLN_NORM, L2_NORM, ZETA):
                if column != "excess" or training != GLN_NORM:
                    look = {"color": colour, "linestyle": line, "linewidth": 0.8}
                    ax.axhline(means.iloc[0], label=training, **look)
            else:
                shown = means[means.index > 0]
                ax.plot(shown.index, shown, color=colour, linestyle=line, label=training)
        ax.set(xscale="log", xlabel="steps", ylabel=LABELS[column], title=f"H = {units}")
    axes[1, 1].set_yscale("log")
    return common_legend(figure, axes.flat, 4)


EXPERIMENT = sized(settings, rows, found, tabulate, draw=draw, judge=judge, quick=QUICK)
