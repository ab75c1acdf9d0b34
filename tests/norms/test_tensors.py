"""Norms of parameters: beside those of all entries, their duals, and their maximisers."""

import math

import cvxpy
import numpy as np
import pytest
import torch
from torch import Tensor

from implicit_bias import diagnose
from implicit_bias.norms import L1, L2, LInf, Lp, Nuclear, OwnNorm, Schatten, Spectral
from implicit_bias.norms.tensors import (
    PARAMETER_NORMS,
    ComposedNorm,
    ParameterNorm,
    Parameters,
    as_parameter_norm,
    check_parts,
    up_to_scales,
)

NORMS: dict[str, ParameterNorm] = {
    **PARAMETER_NORMS,
    "lp": as_parameter_norm(Lp(3)),
    "sum-of-spectral": ComposedNorm(Spectral(), L1()),
    "schatten3": as_parameter_norm(Schatten(3)),
    "parts": as_parameter_norm({"conv": "spectral", "": "linf", "vector": Lp(3)}),
    "max-of-l2": ComposedNorm(L2(), LInf()),
    "l3-of-nuclear": ComposedNorm(Nuclear(), Lp(3)),
}
SHAPES = {"conv": (3, 2, 2), "matrix": (2, 5), "vector": (4,), "scalar": ()}


def draw(seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(shape, generator=generator, dtype=torch.float64)
        for name, shape in SHAPES.items()
    }


def inner(a: dict[str, Tensor], b: dict[str, Tensor]) -> float:
    return sum(float((a[name] * b[name]).sum()) for name in a)


@pytest.mark.parametrize(("name", "p"), [("l1", 1), ("l2", 2), ("linf", math.inf), ("lp", 3)])
def test_entries_of_all_tensors_together(name: str, p: float) -> None:
    theta = draw()
    together = torch.cat([tensor.reshape(-1) for tensor in theta.values()])
    expected = float(torch.linalg.vector_norm(together, p))
    assert NORMS[name].value(theta) == pytest.approx(expected)


def test_spectral_norms_are_those_of_matrices_by_first_axis() -> None:
    theta = draw()
    by_hand = [
        float(np.linalg.norm(theta["conv"].numpy().reshape(3, 4), 2)),
        float(np.linalg.norm(theta["matrix"].numpy(), 2)),
        float(np.linalg.norm(theta["vector"].numpy())),
        abs(theta["scalar"].item()),
    ]
    assert NORMS["spectral"].value(theta) == pytest.approx(max(by_hand))
    assert NORMS["sum-of-spectral"].value(theta) == pytest.approx(sum(by_hand))


@pytest.mark.parametrize("name", NORMS)
def test_the_maximiser_reaches_the_dual_and_nothing_exceeds_it(name: str) -> None:
    norm, v = NORMS[name], draw(1)
    best = norm.maximiser(v)
    assert norm.value(best) == pytest.approx(1.0)
    assert inner(best, v) == pytest.approx(norm.dual(v))
    assert {n: tuple(t.shape) for n, t in best.items()} == SHAPES
    for seed in range(2, 20):
        theta = draw(seed)
        assert inner(theta, v) <= norm.dual(v) * norm.value(theta) * (1 + 1e-12)
    nothing = {n: torch.zeros_like(tensor) for n, tensor in v.items()}
    assert norm.dual(nothing) == 0.0
    assert all(torch.isfinite(tensor).all() for tensor in norm.maximiser(nothing).values())


@pytest.mark.parametrize("name", [name for name in NORMS if name != "schatten3"])
def test_cvxpy_says_the_same(name: str) -> None:
    theta = draw(3)
    parts = {n: cvxpy.Constant(tensor.numpy().ravel()) for n, tensor in theta.items()}
    shapes = {n: tensor.shape for n, tensor in theta.items()}
    atom = NORMS[name].atom(parts, shapes, cvxpy)
    assert atom.value == pytest.approx(NORMS[name].value(theta))


def test_float32_stays_float32() -> None:
    v = {n: tensor.float() for n, tensor in draw().items()}
    for norm in NORMS.values():
        assert {t.dtype for t in norm.maximiser(v).values()} == {torch.float32}


def test_names_and_norms_of_arrays() -> None:
    assert as_parameter_norm(Spectral()) is PARAMETER_NORMS["spectral"]
    assert as_parameter_norm(L1()) is as_parameter_norm("l1")
    assert as_parameter_norm(NORMS["lp"]) is NORMS["lp"]


class Doubled:
    """Twice the Euclidean norm."""

    def value(self, theta: Parameters) -> float:
        """Twice as much."""
        return 2.0 * PARAMETER_NORMS["l2"].value(theta)

    def dual(self, v: Parameters) -> float:
        """Half as much."""
        return 0.5 * PARAMETER_NORMS["l2"].dual(v)

    def maximiser(self, v: Parameters) -> dict[str, Tensor]:
        """Half as long."""
        return {n: t / 2 for n, t in PARAMETER_NORMS["l2"].maximiser(v).items()}


def test_a_norm_of_your_own() -> None:
    norm, v = as_parameter_norm(Doubled()), draw()
    assert inner(norm.maximiser(v), v) == pytest.approx(norm.dual(v))
    assert norm.name == "Doubled"
    with pytest.raises(ValueError, match="CVXPY"):
        norm.atom({}, {}, cvxpy)


def test_no_norm() -> None:
    with pytest.raises(TypeError, match="maximiser"):
        as_parameter_norm(L1)  # type: ignore[arg-type]


def test_norms_by_parts() -> None:
    """The name of a tensor, of a part that it is in, or "" for all others; the longest counts."""
    one = torch.ones(2, 2)
    theta = {"body.0.weight": 3 * one, "body.0.bias": 4 * one[0], "readout.weight": one}
    norm = as_parameter_norm({"body": "l1", "body.0.bias": "linf", "": "spectral"})
    assert isinstance(norm, ComposedNorm)
    assert norm.tensor_norms(theta).tolist() == pytest.approx([12.0, 4.0, 2.0])
    assert norm.value(theta) == pytest.approx(12.0)
    check_parts(norm, theta)
    scaled = ComposedNorm(L2(), LInf(), scale={"body": 0.5})
    assert scaled.tensor_norms(theta).tolist() == pytest.approx([12.0, 2 * math.sqrt(32), 2.0])
    with pytest.raises(ValueError, match=r"'readout.weight'.* for all others"):
        check_parts(as_parameter_norm({"body": "l1"}), theta)
    with pytest.raises(ValueError, match="'redout', which is no parameter"):
        check_parts(as_parameter_norm({"redout": "l1", "": "l2"}), theta)
    with pytest.raises(ValueError, match="norm of 'body'"):
        as_parameter_norm({"body": "l7"})
    with pytest.raises(ValueError, match="'redout'"):
        diagnose(torch.nn.Linear(2, 1, bias=False), torch.eye(2), [1, 1], norm={"redout": "l2"})


def test_how_tensors_are_put_together_must_be_said() -> None:
    own = OwnNorm(L2())
    with pytest.raises(ValueError, match="ComposedNorm"):
        as_parameter_norm(own)
    with pytest.raises(ValueError, match="over the tensors"):
        ComposedNorm(L1(), Spectral())
    expected = NORMS["max-of-l2"].value(draw())
    assert ComposedNorm(own, LInf()).value(draw()) == pytest.approx(expected, rel=1e-13)


def test_a_norm_keeps_its_name_under_scales() -> None:
    for name, norm in PARAMETER_NORMS.items():
        assert isinstance(norm, ComposedNorm)
        assert up_to_scales(norm) == name
        assert up_to_scales(ComposedNorm(norm.inner, norm.outer, scale={"conv": 2.0})) == name
    assert up_to_scales(NORMS["max-of-l2"]) == up_to_scales(NORMS["sum-of-spectral"]) == ""
