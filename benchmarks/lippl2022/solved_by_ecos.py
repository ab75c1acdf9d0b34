r"""SVM-GLN and SVM-RC by ECOS with its defaults, as the released ones were solved.

    python -m benchmarks lippl2022 solved-by-ecos --published lippl2022.csv --minutes 60

Where the network is exact and the certified SVM does not have the released agreement, the SVMs
differ (`exact_training.agreements`). Here the same program goes to ECOS through CVXPY with the
defaults of both, and its coefficients are certified: how far above the optimum they end, and on how
many validation images they decide otherwise than the certified ones. Cells whose SVM has the
released values are the control: there ECOS should end at the optimum.

ECOS takes minutes where the program has tens of thousands of coefficients, and hours beyond. So the
cells are those of N = 500 with at most `MOST_COEFFICIENTS`: all that miss, and at most as many that
do not.

Columns: the cell, and

====================  =========================================================================
status                what ECOS says
excess                how far its solution, scaled to smallest margin 1, is above the certified
                      lower bound, as a share of it
apart                 validation images on which it decides otherwise than ours
ours, theirs          released agreement with the network, less that of ours, or of ECOS's: images
ours_right,           images that ours, or ECOS's, classifies right, less those of the released
theirs_right          accuracy
commit                of the code that computed the row
====================  =========================================================================

Source: Lippl, Abbott, Chung (2022), section 5, and their released code and values.
"""

import warnings
from dataclasses import asdict

import numpy as np
import pandas as pd

from benchmarks.harness import Experiment, Frames, Row, Run, Verdict
from benchmarks.lippl2022 import exact_training as exact
from benchmarks.lippl2022.as_published import by_ecos
from benchmarks.lippl2022.further_models import outputs
from benchmarks.lippl2022.published import PublishedOptions, published_values
from benchmarks.words import span
from implicit_bias.bounds.certificate import certify
from implicit_bias.networks import GLN, ReLUNetwork
from implicit_bias.problem import gated_linear

TRAIN_SIZE, MOST_COEFFICIENTS = 500, 32_000
# A relative excess that no certified solution has.
EXCESS = 1e-6


def size(cell: exact.Cell) -> int:
    """Count the coefficients of a cell's program: 785 of each gate."""
    contexts = 1 if cell.model == exact.RELU else 2**cell.hyperplanes
    return 785 * cell.hidden_units * contexts


def chosen(table: pd.DataFrame) -> list[exact.Cell]:
    """Return the cells to solve, of the table of exact agreements: all that miss, and controls.

    Only those without released medians: their networks are compared in the contexts in which they
    were trained. Smaller programs come first, a control after each miss.
    """
    wanted = table[
        table["model"].isin([exact.GLN_MODEL, exact.RELU])
        & (table["train_size"] == TRAIN_SIZE)
        & table["median_init"].ne(True)
        & (exact.exact_kind(table) != exact.NEITHER)
    ]
    small = wanted[[size(cell) <= MOST_COEFFICIENTS for cell in exact.cells(wanted)]]
    missed = exact.last_apart(small) > 0
    order = sorted(exact.cells(small[missed]), key=size)
    controls = sorted(exact.cells(small[~missed & (small["svm_images"] == 0)]), key=size)
    pairs = zip(order, controls, strict=False)
    return [cell for pair in pairs for cell in pair] + order[len(controls) :]


def solved_again(cell: exact.Cell, released: exact.ReleasedAgreement, images: exact.Images) -> Row:
    """Solve the program of a cell by ECOS, and lay it beside ours and the released one."""
    validation = images.split(cell.train_size).validation
    classifier, network = exact.svm(cell, images), exact.trained(cell, images).network
    assert isinstance(network, (GLN, ReLUNetwork))
    solution, problem = classifier.solution_, classifier.solution_.problem
    assert problem is not None
    coef, status = by_ecos(problem)
    gates = classifier.architecture_.gating.gates(validation.X)
    decisions = {
        "ours": classifier.decision_function(validation.X),
        "theirs": gated_linear(validation.X, gates, coef),
    }
    signs = np.sign(outputs(network, validation.X))
    found = {
        "status": status,
        "excess": certify(problem, coef=coef).upper / solution.certificate.lower - 1.0,
        "apart": int((np.sign(decisions["ours"]) != np.sign(decisions["theirs"])).sum()),
    }
    agreed = round(released.agreement * len(validation))
    for name, decision in decisions.items():
        found[name] = int((np.sign(decision) == signs).sum()) - agreed
        found[f"{name}_right"] = exact.right_images(decision, validation.y, released.of_svm)
    return found


def _measure(run: Run[PublishedOptions]) -> Frames:
    table = exact.measured_before(run, "exact_agreements")
    images, released = (
        exact.Images(),
        exact.released_agreements(published_values(run.options.published)),
    )

    def row(cell: exact.Cell) -> Row:
        with warnings.catch_warnings(action="ignore"):  # CVXPY's: the row says how good its end is
            return asdict(cell) | solved_again(cell, released[cell], images)

    yield from exact.grown(run, chosen(table), row)


def _found(table: pd.DataFrame) -> str:
    missed = table[table["ours"] != 0]
    controls = table[table["ours"] == 0]
    sentences = []
    for part, words in ((missed, "that miss"), (controls, "that do not, the control")):
        if len(part):
            short = int((part["excess"] > EXCESS).sum())
            sentences.append(
                f"**Of the {len(part)} cells {words}, ECOS ends more than {EXCESS:g} above the "
                f"optimum in {short}, and has the released agreement in "
                f"{int((part['theirs'] == 0).sum())}.** Its excess is {part['excess'].min():.1g} "
                f"to {part['excess'].max():.1g}. It decides otherwise than the certified solution "
                f"on {span(part['apart'])} of {exact.VALIDATION_IMAGES:,} images, and has the "
                f"released accuracy in {int((part['theirs_right'] == 0).sum())}."
            )
    return exact.coverage(table) + " ".join(sentences)


def _verdict(table: pd.DataFrame) -> Verdict:
    missed = table["ours"] != 0
    short = (table["excess"] > EXCESS) & (table["apart"] > 0)
    explained = short[missed] & (table["theirs"][missed] == 0)
    if not len(explained):
        return Verdict.OPEN
    whole = len(table) == table.attrs["wanted"] and not short[~missed].any()
    return Verdict.of(whole and bool(explained.all()), explained.mean() >= 0.5)


def _tabulate(table: pd.DataFrame) -> pd.DataFrame:
    names = {network: name for name, network in exact.SVMS.items()}
    return table.assign(model=table["model"].map(names))


EXPERIMENT = Experiment(_measure, _found, _tabulate, _verdict, options=PublishedOptions)
