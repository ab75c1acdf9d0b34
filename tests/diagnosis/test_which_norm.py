"""In which norm a margin was maximized: solved limits are found, and what cannot be told is not."""

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import implicit_bias as ib
from diagnosis.asking import codes, finding
from diagnosis.test_diagnose import classes, network
from example_modules import known, of, own_labels, scale_weights
from implicit_bias.diagnosis import Code

X, Y = classes()
INPUTS = torch.tensor(X)
NORMS = ("l2", "linf", "spectral")


def solved(norm: str) -> nn.Module:
    return of(ib.solve(ib.max_margin(X, Y, norm), tol=1e-10).coef[:, 0])


@pytest.mark.fast("l2", "linf")
@pytest.mark.parametrize("norm", NORMS)
def test_solved_limits_of_linear_modules_are_found(norm: str) -> None:
    """The share of the maximum is 1 in the own norm; in the others it is that of the solutions."""
    found = ib.which_norm(solved(norm), INPUTS, Y)
    assert (found.best, found.evidence) == (norm, "limit")
    assert codes(found)[0] is Code.LIMIT
    assert Code.LINEAR_MODULE in codes(found)
    (W,) = (p.detach().numpy() for p in solved(norm).parameters())
    for row in found.rows:
        problem = ib.max_margin(X, Y, row.norm)
        optimum = ib.solve(problem).certificate
        size = problem.norm.value(W) if problem.norm is not None else np.linalg.norm(W)
        # Of a linear module sqrt(1 - gap) is the margin over the maximum.
        low, high = (1 - row.gap.upper) ** 0.5, (1 - row.gap.lower) ** 0.5
        assert low * (1 - 1e-9) <= optimum.upper / size
        assert optimum.lower / size <= high * (1 + 1e-9)
        assert low == pytest.approx(high, abs=1e-5)
        assert (low > 1 - 1e-4) == (row.norm == norm)


def between() -> tuple[nn.Module, nn.Module]:
    """Pose a linear module near no limit, and one nearer to that of linf, farther from l2."""
    limit = {norm: next(solved(norm).parameters()).detach().numpy() for norm in ("l2", "linf")}
    away = np.random.default_rng(1).normal(size=limit["l2"].shape)
    sizes = {norm: np.linalg.norm(W) for norm, W in limit.items()}
    away *= 0.6 * sizes["l2"] / np.linalg.norm(away)
    flat = limit["linf"] * sizes["l2"] / sizes["linf"]
    return of(limit["l2"] + away), of(flat + 0.8 * away)


def test_far_from_all_limits_only_a_reference_tells() -> None:
    start, towards = between()
    asked = partial(ib.which_norm, towards, INPUTS, Y, norms=("l2", "linf"))
    alone = asked()
    assert (alone.best, codes(alone)[0]) == (None, Code.NO_GAP_NEAR_ZERO)
    reached = ib.diagnose(towards, INPUTS, Y).min_margin
    assert alone.findings[0].details["reached"] == pytest.approx(reached)
    # A wrapper as DataParallel puts a prefix to each name.
    wrapped = {f"module.{name}": value for name, value in towards.state_dict().items()}
    again = asked(reference=wrapped)
    assert (again.best, codes(again)[0]) == (None, Code.WITHIN_NOISE)  # nothing changed
    assert [row.factor for row in again.rows] == pytest.approx([1.0, 1.0])
    for row in asked(reference=start).rows:
        # Of a linear module the margin changes by the same factor as its share of the maximum.
        shares = (1 - row.gap.upper) / (1 - known(row.reference_gap).upper)
        assert row.factor == pytest.approx(shares**0.5, rel=1e-4)


@pytest.mark.parametrize("reference", ["last.pt", 3, iter(())], ids=["path", "number", "iterator"])
def test_a_reference_is_a_module_a_state_dict_or_a_list(reference: Any) -> None:
    with pytest.raises(TypeError, match="reference is a .* pass a module"):
        ib.which_norm(solved("l2"), INPUTS, Y, norms=("l2", "linf"), reference=reference)


def product(u: list[float], v: list[float]) -> nn.Module:
    """Build <u, v>, of margins <u, v> / (|u|^2 + |v|^2) in l2 and <u, v> / max^2 in linf."""
    return of(np.array(u)[:, None], np.array(v)[None])


def test_rows_of_several_references_are_those_of_each() -> None:
    """Their smallest gap, the geometric mean of their margins, and how much these differ."""
    start, towards = between()
    references = [start, solved("l2")]
    asked = partial(ib.which_norm, towards, INPUTS, Y, norms=("l2", "linf"))
    together = asked(reference=references)
    alone = [asked(reference=each) for each in references]
    for k, row in enumerate(together.rows):
        each = [found.rows[k] for found in alone]
        margins = [other.reference_margin for other in each]
        assert row.reference_margin == pytest.approx(math.prod(margins) ** 0.5)
        assert row.spread == pytest.approx(max(margins) / min(margins))
        assert all(math.isnan(other.spread) for other in each)
        uppers = [known(other.reference_gap).upper for other in each]
        assert known(row.reference_gap).upper == pytest.approx(min(uppers))
    assert Code.ONE_REFERENCE not in codes(together)
    assert all(Code.ONE_REFERENCE in codes(found) for found in alone)


def test_a_margin_that_rose_at_the_cost_of_another_is_evidence_without_a_limit() -> None:
    """Unless references differ by more, or are ahead."""
    spread = product([1, 1, 1, 0.2], [0.2, 1, 1, 1])
    asked = partial(ib.which_norm, spread, torch.ones(1, 1), [1], norms=("l2", "linf"))

    def reference(first: float = 1.0, scale: float = 1.0) -> nn.Module:
        return scale_weights(product([1, 0, 0, 0], [first, 0, 0, 0]), scale)

    found = asked(reference=reference())
    assert [row.factor for row in found.rows] == pytest.approx([2.4 / 6.08 / 0.5, 2.4])
    assert not found.rows[1].favoured  # as the reference is at a KKT point
    assert (found.best, found.evidence) == ("linf", "margin")
    assert finding(found, Code.MARGIN).value == pytest.approx(2.4)
    assert asked(reference=[reference(), reference(0.85)]).best == "linf"
    assert asked(reference=[reference(), reference(0.3)]).best is None  # a spread of 3.3
    assert Code.REFERENCE_IS_AHEAD in codes(asked(reference=reference(scale=2.0)))


def test_norms_that_are_the_same_here_do_not_compete() -> None:
    y = np.where(Y == 0, 1.0, -1.0)
    module = of(ib.solve(ib.max_margin(X, y), tol=1e-10).coef)
    found = ib.which_norm(module, INPUTS, y)
    assert found.best in ("l2", "spectral")
    assert {row.norm: row.same for row in found.rows} == {
        "l2": ("spectral",),
        "linf": (),
        "spectral": ("l2",),
    }


def test_the_optimizers_own_norm_joins_and_its_decay_is_found() -> None:
    found = ib.which_norm(solved("l2"), INPUTS, Y, norms=["l2"], optimizer="adam")
    assert [row.norm for row in found.rows] == ["l2", "linf"]
    assert (found.best, found.optimizer_norm) == ("l2", "linf")
    module = solved("linf")
    decayed = torch.optim.AdamW(module.parameters(), weight_decay=0.1)
    with pytest.warns(ib.DiagnosisWarning, match="weight decay") as caught:
        found = ib.which_norm(module, INPUTS, Y, norms=["l2"], optimizer=decayed)
    assert caught[0].filename == __file__  # where the caller called it
    assert finding(found, Code.WEIGHT_DECAY).value == pytest.approx(0.1)


def test_a_stopped_search_says_so_and_its_bounds_hold() -> None:
    module = network(3)
    labels = own_labels(module, INPUTS)
    free = ib.which_norm(module, INPUTS, labels, norms=NORMS[:2])
    hurried = ib.which_norm(module, INPUTS, labels, norms=NORMS[:2], max_seconds=1e-6)
    assert Code.STOPPED in codes(hurried)
    assert Code.STOPPED not in codes(free)
    for row, exact in zip(hurried.rows, free.rows, strict=True):
        assert row.gap.stopped
        assert 0 <= row.gap.lower <= exact.gap.upper + 1e-9
        assert exact.gap.lower <= row.gap.upper + 1e-9
        assert row.gap.upper <= 1


# --- what is asked -------------------------------------------------------------------------------


def test_what_is_wrong_is_named() -> None:
    module = solved("l2")
    with pytest.raises(ValueError, match="norms"):
        ib.which_norm(module, INPUTS, Y, norms=("l2", "l2"))
    (W,) = module.parameters()
    with pytest.raises(ib.SeparationError, match="reference"):
        ib.which_norm(module, INPUTS, Y, reference=of(-W.detach().numpy()))
    with pytest.raises(ValueError, match="reference"):
        ib.which_norm(module, INPUTS, Y, reference=of(np.ones((3, 2))))
