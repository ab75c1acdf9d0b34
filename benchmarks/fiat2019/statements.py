"""Every statement of the paper: its place here, and whether we agree. The page opens with it.

A statement has a function that computes it, an experiment that tests it, or is stated only, with
the reason. What the last column says is computed from the kept tables.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from benchmarks import harness
from benchmarks.catalogue import HOME
from benchmarks.fiat2019 import constants
from benchmarks.fiat2019.study import STUDY

TESTED = "yes: by hand, in the tests"


@dataclass(frozen=True, kw_only=True)
class Statement:
    """A row of the table.

    Attributes
    ----------
    number : str
        Version and number.
    text : str
        The statement, with its constants and assumptions.
    place : str
        The function that computes it, or why there is none.
    experiments : tuple of str
        Those that test it.
    checked : bool
        Whether rows of the experiment on constants have its number.
    agrees : str
        Where neither tells whether we agree.
    """

    number: str
    text: str
    place: str
    experiments: tuple[str, ...] = ()
    checked: bool = False
    agrees: str = ""


STATEMENTS = (
    Statement(
        number="[L] 2, [C]",
        text="GaLU unit s(<u, x>) <w, x>, s = 1[t >= 0] ([C]: t > 0, or any scalar function), u "
        "random and not trained; ReLU is w = u, so GaLU is at least as expressive",
        place="`gated_layers.GatedLayers`, `gating.UnitGates` (general gates)",
        agrees=TESTED,
    ),
    Statement(
        number="[C]",
        text="deep GaLU gates by the layer before, GaLU0 by the network's input; networks with a "
        "trained readout only",
        place="`GatedLayers(gates_see=..., readout_only=...)`",
        agrees=TESTED,
    ),
    Statement(
        number="[L] 2",
        text="N(x) = <Phi_U(x), w>, a_j absorbed in w_j: convex in w for a convex loss; "
        "minimum-norm "
        "solution Xbar'(Xbar Xbar')^-1 y",
        place="`least_squares.least_squares`, with its `decision`",
        agrees=TESTED,
    ),
    Statement(
        number="[L] 2",
        text="a and w both trained, squared loss: no spurious local minima, strict saddles",
        place="stated only: cited (Zhu et al. 2018, theorem 3)",
        agrees="not tried",
    ),
    Statement(
        number="[L] 2",
        text="kappa(x, y) = (1/2 - arccos<x, y>/(2 pi)) <x, y>, lambda(X) = lambda_min(E Xbar "
        "Xbar'/k)",
        place="`limit_kernel`, `smallest_eigenvalue`",
        experiments=("limit_kernel",),
    ),
    Statement(
        number="[L] Table 1",
        text="widths for loss 0: m^6 (Du 2018), m^7 (Arora 2019), m^2/d (Oymak and Soltanolkotabi "
        "2019), m/d (GaLU), logarithms hidden",
        place="stated only but for the last row: other papers' theorems",
        experiments=("memorisation_width",),
    ),
    Statement(
        number="[L] Lemma 1",
        text="k >= 8 R/lambda(X) log(m/delta): sigma_min(Xbar)^2 >= k lambda(X)/2 with probability "
        "1 - delta",
        place="`sufficient_width`",
        experiments=("limit_kernel",),
        checked=True,
    ),
    Statement(
        number="[L] Lemma 2",
        text="uniform inputs on the sphere, d <= m <= c2 d^2, k >= (64 pi/c1^2)(m/d) log(m/delta): "
        "sigma_min(Xbar) >= sqrt(k) c1/sqrt(4 pi) with probability 1 - m e^(-g1 sqrt m) - 1/m - "
        "(2m+1) e^(-g2 d) - delta; by ||X|| <= 2 sqrt(m/d), lambda(X) >= sigma_min(X*X)^2/(2 pi)",
        place="`khatri_rao_bound`; g1, g2, c1, c2 exist, no values are given",
        experiments=("limit_kernel",),
        checked=True,
    ),
    Statement(
        number="[L] Theorem 1",
        text="lemma 1's width, F = ||Xbar w - y||^2/(2m), step m/(kR): F(w_t) <= eps for all t >= "
        "(2R/lambda) log(k R ||w_0 - w*||^2/(m eps)) with probability 1 - delta",
        place="`published_step`, `sufficient_steps`, `gradient_descent`",
        experiments=("linear_convergence",),
    ),
    Statement(
        number="[L] Theorem 2, [C] Theorem 1",
        text="y_i iid N(0, 1), any X, U: E min loss = 1 - rank(Xbar)/m, rank <= min(m, kd); [C]: "
        "equality for Gaussian X, U observed, not proved",
        place="`expected_loss`",
        experiments=("too_few_parameters",),
    ),
    Statement(
        number="[L] Corollary 1",
        text="m' = floor(k d c1^2/(64 pi)/log(c2 d^2/delta)), d <= m' <= c2 d^2: E min loss <= 1 - "
        "m'/m with lemma 2's probability at m'",
        place="`memorised_samples`",
        checked=True,
    ),
    Statement(
        number="[L] Theorem 6",
        text="n clusters on the sphere, radius delta/(n k sqrt d), y = <x, l_q>, k >= (8n/mu) "
        "log(n/delta), m = c (n d log(1/eps) + log(1/delta))/eps: training loss 0 and test loss <= "
        "eps with probability 1 - 3 delta",
        place="`galu_clusters.sufficient_samples`, `sufficient_width`, `largest_radius`; c is not "
        "given",
        experiments=("clustered",),
    ),
    Statement(
        number="[L] Theorem 7",
        text="deterministic samples, with probability 1 - 2 delta over gates: an exact solution "
        "exists, and every one predicts exactly what is in the span of its cluster's inputs",
        place="`galu_clusters.cluster_solution`",
        experiments=("clustered",),
    ),
    Statement(
        number="[L] Lemma 3",
        text="v_i uniform on {+-1/sqrt d}^d, d >= (n^2/2) log(2n^2/delta): mu >= 1/8 with "
        "probability 1 - delta",
        place="`galu_clusters.sufficient_dimension`",
        checked=True,
    ),
    Statement(
        number="[L] Lemma 4",
        text="A_ij = 1[<u_j, v_i> >= 0]: sigma_min(A)^2 > k mu/2 with probability 1 - delta, so "
        "rank n",
        place="`galu_clusters.centre_gates`, `sufficient_width`",
        checked=True,
    ),
    Statement(
        number="[L] Lemma 5",
        text="u uniform on the sphere, ||x|| = 1: P(|<u, x>| <= r) <= r sqrt d",
        place="`galu_clusters.band_bound`, exact: `band_probability`",
        checked=True,
    ),
    Statement(
        number="[L] Lemma 6",
        text="one filter splits one given cluster with probability at most delta/(kn)",
        place="`galu_clusters.splits`",
        checked=True,
    ),
    Statement(
        number="[L] Lemma 7",
        text="no filter splits any cluster with probability 1 - delta",
        place="`galu_clusters.splits`",
        checked=True,
    ),
    Statement(
        number="[L] Lemma 8",
        text="solution w_j = sum_i b_ij l_i with A B' = I",
        place="`galu_clusters.cluster_solution`",
        agrees=TESTED,
    ),
    Statement(
        number="[L] Lemma 9",
        text="every exact solution predicts alike in the span of a cluster's training inputs",
        place="no function: tests add a random part of the null space to a solution",
        agrees=TESTED,
    ),
    Statement(
        number="[L] Lemma 10",
        text="T = (I + 11')/4: ||T^-1|| = 4, T^-1 = 4I - 4/(n+1) 11' (d + 1 is printed)",
        place="no function: a 2-line matrix identity",
        checked=True,
    ),
    Statement(
        number="[L] Theorem 3",
        text="network normalised by 1/sqrt k, ||x|| <= 1, loss (y - yhat)^2/2, labels in [-1, 1] "
        "of "
        "RKHS norm <= M, k >= (m/(M^2 lambda) + 1)^2 (32 R^2/lambda^2) log(m/delta): minimum-norm "
        "L_D <= C [2M^2 log^3 m + (2M^2 + sqrt2 M) log(1/delta)]/m with probability 1 - 2 delta",
        place="`galu_bounds.interpolation_width`, `risk_bound` (without C: Srebro et al. 2010), "
        "and "
        "its steps `deviation_failure`, `inverse_deviation`, `interpolant_norm_bound`, "
        "`kernel_rademacher`",
        experiments=("generalisation",),
        checked=True,
    ),
    Statement(
        number="[L] Theorem 4",
        text="hinge loss, y = +-1, inputs in the unit ball, both networks map it into [-1, 1] at "
        "initialisation, W independent of U allowed: ||dL_S(N^G)/dW|| <= eps with probability 1 - "
        "delta iff ||dL_S(N^R)/dU|| <= eps is: the two gradients are identical",
        place="`galu_bounds.hinge_gradient`, `largest_output`; `training.losses.hinge`",
        checked=True,
    ),
    Statement(
        number="[L] Theorem 5",
        text="L-Lipschitz loss, ||x|| = 1, ||u_i* - u_i|| <= eps, k >= pi/(sqrt6 d eps^2) "
        "(log(2/delta) + d log(3/eps)), d > log(2k/delta): L_D(GaLU*) <= L_D(ReLU*) + L sqrt(5 "
        "sqrt(3d) eps/sqrt(2 pi)) max ||a_i** u_i*|| with probability 1 - delta",
        place="`galu_bounds.relu_approximation_width`, `relu_approximation_error` (printed, and "
        "with "
        "the factor sqrt k that the proof yields); the minimisers of L_D are not computable",
        checked=True,
    ),
    Statement(
        number="[L] Lemma 11",
        text="Phi normalised by 1/sqrt k: sup ||Phi_U(x) - Phi_W(x)||^2 <= 5 B eps/sqrt(2 pi), B = "
        "(sqrt6 d)^(1/2)",
        place="`galu_bounds.gate_change_bound`, `filter_norm_failure`",
        checked=True,
    ),
    Statement(
        number="[C] 4.2.1",
        text="Rademacher complexity of ||w||_p <= B_p: sqrt(B_2^2 max||x||_2^2/m), "
        "sqrt(2 log(2d) B_1^2 max||x||_inf^2/m)",
        place="`galu_bounds.linear_rademacher`",
        checked=True,
    ),
    Statement(
        number="[C] Lemma 1",
        text="x ~ N(0, I_d), y = <x, b> + s e, m > d + 1: E train = s^2 (1 - d/m), E test = s^2 "
        "(1 + "
        "d/m + (d/m)(d+1)/(m-d-1)); at m = d + 2 train 2 s^2/m, test <= (3 + d) s^2",
        place="`galu_bounds.linear_regression_losses`",
        checked=True,
    ),
    Statement(
        number="[C] Algorithm 1",
        text="random filters, solve; n times: redraw a random u_j, solve again, keep if better",
        place="`search_procedures.improve_filters` (beside this page)",
        experiments=("too_few_parameters",),
    ),
    Statement(
        number="[C] Section 5",
        text="several outputs: biconvex; alternate convex search, each half in closed form; beats "
        "SGD "
        "for small enough samples",
        place="`search_procedures.alternating_search` (beside this page); the last half stated "
        "only: no sizes are given",
        experiments=("several_outputs",),
    ),
    Statement(
        number="[L] Figure 1",
        text="Gaussian inputs and labels, smallest k of MSE < 0.01 by training: k ~ m/d, GaLU and "
        "ReLU",
        place="experiment",
        experiments=("memorisation_width",),
    ),
    Statement(
        number="[L] Figure 2, [C] Figure 2",
        text="kd <= m: GaLU ~ 1 - kd/m; ReLU slightly better, >= 1 - 2kd/m",
        place="experiment",
        experiments=("too_few_parameters",),
    ),
    Statement(
        number="[L] Figure 3, [C] Figure 1",
        text="MNIST, Fashion-MNIST: GaLU(0) and ReLU similar, ReLU slightly better, both better "
        "than "
        "linear; ReLU with the readout alone trained much poorer",
        place="experiment",
        experiments=("image_width",),
    ),
    Statement(
        number="[L] Figure 4",
        text="separable data: both very accurate, visible advantage of ReLU; parity of 100 bits: "
        "both "
        "at chance",
        place="experiment",
        experiments=("separable_and_parity",),
    ),
    Statement(
        number="[C] Figure 3",
        text="noisy clusters: similar, gap grows with noise; in regression more steps, more test "
        "error",
        place="experiment",
        experiments=("noisy_clusters",),
    ),
    Statement(
        number="[C] Figure 4",
        text="gap linear in ||w||_2^2 and in ||w||_1^2 (pseudo-inverse)",
        place="experiment",
        experiments=("norms_and_gap",),
    ),
    Statement(
        number="[C] Figure 5",
        text="smallest width for MSE < 0.3 on d' random outputs: GaLU much as ReLU",
        place="experiment",
        experiments=("several_outputs",),
    ),
)

SLIPS = (
    "[L] Lemma 3: the proof uses Hoeffding's inequality with the exponent -8 d e^2; correct is "
    "-d e^2/2, so the proof needs d >= 8 n^2 log(2 n^2/delta). The statement holds in all our "
    "draws.",
    "[L] Lemma 10: T^-1 is printed with d + 1 in place of n + 1.",
    "[L] Theorem 5: the proof divides by sqrt k twice. With 1/sqrt k in the network the error has "
    "a "
    "further factor sqrt k; as printed it is for a network normalised by 1/k.",
    "[L] Lemma 11 (and theorem 5): P(||u||^2 >= sqrt6 d) <= e^-d is false from d = 3 on; B^2 = "
    "4.51 d "
    "makes it true for all d.",
    "[L] Lemma 2 (found here): ||X|| <= 2 sqrt(m/d) cannot have probability 1 - e^(-g d) at m = d, "
    "where 2 is what ||X|| goes to; from m = (1 + c) d on it has.",
)
DERIVED = (
    "the constant 6.518 of lemma 1; lambda(X) >= (lambda_min(G) + lambda_min(G o G))/4 and the "
    "bound "
    "by coherence; when lambda(X) is 0",
    "the root mean square distance of K/k from kappa",
    "the rate F(w_0) (1 - lambda/(2R))^(2t), and the prediction of all losses from the spectrum",
    "the width log2(1/0.01) that few hard gates need; the slope of the gap in ||w||^2",
    "widths that several outputs need at least and at most",
    "the error sqrt k max|a| eps (share of flipped gates) for theorem 5",
    "the correlation of parity with gated coordinates",
)


def opening(folder: Path = HOME) -> str:
    """Write what we found, the table of statements, slips, and what is derived here."""
    verdicts = {
        entry.name: harness.load(STUDY, entry).verdict(harness.read(STUDY, entry, folder))
        for entry in STUDY.experiments
    }
    checks = harness.read(STUDY, STUDY.entry("constants"), folder)
    counts = Counter(verdicts.values())
    words = ", ".join(f"{count} {_plural(verdict, count)}" for verdict, count in counts.items())
    found = (
        f"**What we found.** Of {len(verdicts)} experiments, each with a rule for its verdict, "
        f"{words}. {constants.found(checks)} The mathematics of the paper is right but for the "
        "slips below, none of which changes a conclusion; its widths and constants are far from "
        "what is needed in practice."
    )
    parts = [
        harness.wrapped(found),
        "## Statements",
        harness.markdown_table(table(verdicts, checks)),
        "### Slips of the paper",
        harness.wrapped("\n".join(f"- {slip}" for slip in SLIPS)),
        harness.wrapped(
            "Each has its rows in the table of lemmas and constants, marked `no`; theorem 4 has "
            "rows there for losses and outputs that its assumptions exclude."
        ),
        "### Not in the paper; derived here",
        harness.wrapped("\n".join(f"- {line}" for line in DERIVED)),
    ]
    return "\n\n".join(parts)


def _plural(verdict: harness.Verdict, count: int) -> str:
    """Words of a verdict, of one experiment or several."""
    words = verdict.value
    return words if count == 1 else words.replace("stands", "stand").replace("does", "do")


def table(verdicts: dict[str, harness.Verdict], checks: pd.DataFrame) -> pd.DataFrame:
    """Make the rows: number and statement, its place, and whether we agree."""
    rows = []
    for each in STATEMENTS:
        place = [each.place] if each.place != "experiment" else []
        place += [_link(name) for name in each.experiments]
        place += ["[checks](#lemmas-constants-and-slips)"] if each.checked else []
        agrees = [each.agrees] if each.agrees else []
        if each.checked:
            agrees.append(_of_checks(each.number, checks))
        agrees += [verdicts[name].value for name in each.experiments]
        rows.append(
            {
                "statement": f"{each.number}: {each.text}".replace("|", "\\|"),
                "ours": "; ".join(place),
                "agrees?": "; ".join(agrees),
            }
        )
    return pd.DataFrame(rows)


def _of_checks(number: str, checks: pd.DataFrame) -> str:
    """How many relations of a statement hold."""
    rows = checks[checks["statement"] == number]
    true = constants.holds(rows)[~rows["slip"]]
    slips = int(rows["slip"].sum())
    words = f"{int(true.sum())} of {len(true)} checks hold"
    if not slips or number == "[L] Theorem 4":
        return words
    return f"{words}; {slips} slip{'s' if slips > 1 else ''}"


def _link(name: str) -> str:
    """Link to an experiment's section of the page."""
    title = STUDY.entry(name).title
    anchor = "".join(c for c in title.lower().replace(" ", "-") if c.isalnum() or c == "-")
    return f"[{title}](#{anchor})"
