"""Tables of the page: the released code against the text, errata of the theory, what is derived.

Each row names its evidence: a conclusion or an experiment of the page, a module whose head has the
derivation, or a test that would fail.

Source: Lippl, Abbott, Chung (2022), and their released code and values.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Deviation:
    """A place where text and released code differ.

    Attributes
    ----------
    what : str
        What it is about.
    text, code : str
        What each has.
    evidence : str
        Where that is shown, in Markdown.
    brief : str
        The code's side in few words, for the summary; "" where it is short already.
    """

    what: str
    text: str
    code: str
    evidence: str
    brief: str = ""


@dataclass(frozen=True)
class Erratum:
    """A statement of the theory that does not hold as printed.

    Attributes
    ----------
    where, printed, holds : str
        Equation or lemma, what is printed, what holds.
    evidence : str
        Where that is shown, in Markdown.
    brief : str
        What holds in few words, for the summary; "" where it is short already.
    """

    where: str
    printed: str
    holds: str
    evidence: str
    brief: str = ""


@dataclass(frozen=True)
class Derived:
    """A statement that is not in the paper.

    Attributes
    ----------
    what, statement : str
        What it is about, and what holds.
    evidence : str
        Where it is derived and tested, in Markdown.
    """

    what: str
    statement: str
    evidence: str


DEVIATIONS = (
    Deviation(
        "Groups of SVM-GLN",
        "the norm of each unit, over its contexts",
        "columns of (unit, context), flattened with the context fastest and folded back in "
        "column-major order: column j is in group j mod H",
        "conclusion `groups`; `as_published.folds`, held against the two reshapes by "
        "`test_folds_are_what_their_reshapes_make`",
        "column j of (unit, context) is in group j mod H",
    ),
    Deviation(
        "Program of SVM-L2",
        "the norm of beta over all joint contexts, (24)",
        "(23)/(25) with that fold: H − 1 directions of the gates have no penalty, so the program "
        "has many solutions",
        "conclusion `l2`; `as_published.operator`, "
        "`test_metric_is_the_pseudo_inverse_but_for_the_free_columns`",
        "that fold leaves H − 1 directions without a penalty, so there are many solutions",
    ),
    Deviation(
        "Solver of SVM-L2",
        "—",
        "OSQP with its defaults, which ended at an optimal solution of that program where checked",
        "experiment `l2-optimality`, by a certified bound",
        "OSQP, which ended at one of them where checked",
    ),
    Deviation(
        "Agreement with networks at median thresholds",
        "with the trained network",
        "with the trained weights in the contexts of the seed's random thresholds: thresholds are "
        "neither parameters nor buffers, so a checkpoint lacks them, and the script that fits the "
        "SVMs sets no medians after loading",
        "conclusion `chance` and experiment `exact-agreements`, cell by cell",
        "with the trained weights in the contexts of the random thresholds, as a checkpoint has no "
        "thresholds",
    ),
    Deviation(
        "Median thresholds",
        "medians of the training data",
        "medians over all 60,000 images, the validation images included",
        "`protocols/lippl2022.py`; the released accuracies come out so, to the digit",
        "over all 60,000 images",
    ),
    Deviation(
        "Gradient descent",
        "gradient descent on a homogeneous network",
        "stochastic gradient descent in batches of 128; the readout of the GLNs has a bias, which "
        "is not homogeneous",
        "`protocols/released_training.py`; experiment `exact-networks`",
        "stochastic, in batches of 128; the readout has a bias, which is not homogeneous",
    ),
    Deviation(
        "Contexts of SVM-RC",
        "random contexts of an architecture that matches SVM-LC",
        "one unit more, which is always on (SVM-LC has none); without momentum the contexts of "
        "seed 1 at every seed, so the spread in figure 5 is that of the networks; none at H = 100",
        "point by point, SVM-RC: `published.CONTEXTS`",
        "one unit more, always on; without momentum those of seed 1 at every seed; none at H = 100",
    ),
    Deviation(
        "Figure 3c",
        "best of all settings",
        "SVM-HL over widths up to 1,000, GD-ReLU over widths up to 100",
        "conclusion `hl`, at the same widths",
    ),
    Deviation(
        "Momentum of the figures",
        "—",
        "0 in 2a, 2b, 2d and 4; 0.9 in 3a, 3b and 3d; in 2c and 3c the best over momenta and "
        "thresholds, chosen on the validation images",
        "the released values, drawn on the left of each figure",
        "0 in 2a, b, d and 4; 0.9 in 3a, b, d; the best of both in 2c and 3c",
    ),
    Deviation(
        "Error bars",
        "standard deviations",
        "standard errors, the default of the plotting function",
        "the released values; our bars are standard deviations",
        "standard errors",
    ),
    Deviation(
        "Shallow SVMs in contexts without training samples",
        "—",
        "the prediction is 0, counted as an error and as a disagreement",
        "`values.py`; SVM-shallow point by point, to the digit",
        "the prediction 0 is an error",
    ),
    Deviation(
        "Shallow GLNs of 2^15 contexts at N = 500",
        "200 · 2,000 / N epochs",
        "stopped before their end: their values are those of an earlier epoch",
        "experiment `exact-explained`",
        "stopped before their end",
    ),
)

ERRATA = (
    Erratum(
        "Theorem 3.1",
        "contexts may have different degrees",
        "for different degrees it is false; for one degree the proof can be completed",
        "experiment `unequal-degrees`; `context_shares.py`, "
        "`test_gradient_flow_goes_elsewhere_than_the_stationary_point`",
    ),
    Erratum(
        "(23), (25)",
        "A is the square root of the form of (24)",
        "the square root is J / sqrt(H C) + sqrt(C) (I − B / C), up to a factor; the printed A "
        "penalises the part that contexts share H C² times too little",
        "`gln_predictors.py`; "
        "`test_the_formula_with_the_right_fold_has_no_free_direction`; model svm-l2-formula",
        "A is not the root of (24); it penalises what contexts share H C² times too little",
    ),
    Erratum(
        "Proposition B.9, (60), (21)",
        "the norm for H = C = 2",
        "the printed value is sqrt(2) times the norm of (20)",
        "head of `gln_predictors.py`, `tests/benchmarks/test_gln_predictors.py`",
    ),
    Erratum(
        "Proposition B.8",
        "every stationary point of the network solves the convex program",
        "units with zeta_h = 0 are not considered: the convex program also asks ‖V_h‖ ≤ 1 there",
        "head of `stationarity.py`",
        "the convex program also asks ‖V_h‖ ≤ 1 of units with zeta_h = 0",
    ),
    Erratum(
        "Definition B.10",
        "the same class of losses as (B3) of Lyu and Li",
        "a smaller one: exp(−q²) or exp(−√q) are in (B3) only; and exp(−u) itself has no Lipschitz "
        "derivative on all of R, only on half-lines",
        "`training/losses.py`: `check_exponential_like` for (B3), `tight_tail` for B.10; "
        "`tests/training/test_tight_tail.py`",
        "a smaller class than (B3) of Lyu and Li",
    ),
    Erratum(
        "Lemma B.11, (83), (89) to (91)",
        "divides by a vector; one minus too many in (83)",
        "the relative change of the gradient is at most the largest size of δ_n times the largest "
        "norm of x_n, over ρ",
        "`context_shares.py`, `test_the_gradient_is_as_near_to_its_tail_as_the_lemma_says`",
        "the bound divides by a vector; corrected and tested",
    ),
    Erratum(
        "Lemma B.6, second condition",
        "the unit's index is missing",
        "where γ_h⁽¹⁾ ≠ γ_h⁽²⁾, γ_h⁽ⁱ⁾ = γ̃_h⁽ⁱ⁾ for i = 1, 2 and the same unit h",
        "head of `gln_predictors.py`",
        "the unit's index is missing",
    ),
)

DERIVED = (
    Derived(
        "Theorem 3.1, one degree",
        "the share in the gradient of a context whose least normalised margin is not the least of "
        "all goes to 0, so its multipliers vanish and the limit is stationary for (6)",
        "head of `context_shares.py`; `test_with_equal_degrees_the_least_margin_keeps_the_share`",
    ),
    Derived(
        "Theorem 3.1, several degrees",
        "contexts of the least degree alone keep a share; the limit is stationary for (6) of their "
        "samples",
        "experiment `unequal-degrees`; `test_shares_go_to_the_least_degree_whatever_the_margins`",
    ),
    Derived(
        "FReLU, the analogue of B.6 and B.7",
        "the H predictors with one unit on are free and determine all 2^H; that with all units off "
        "is 0; the norm (22) needs no minimum over zeta",
        "head of `frelu_predictors.py`; `test_free_predictors_of_frelu_determine_all`",
    ),
    Derived(
        "A readout with contexts of its own",
        "zeta_h is a matrix of rank one, so the program is not convex; the sum of the nuclear "
        "norms is its convex relaxation and bounds it from below",
        "head of `networks.py`; `test_a_gated_readout_is_bounded_by_its_relaxation`",
    ),
)
