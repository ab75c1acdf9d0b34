"""The table "What is accepted" of the documentation is what the code does, row by row."""

import copy
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import example_modules as modules
import implicit_bias as ib
from example_modules import Computed, scale_weights

D = 3
X = torch.randn(8, D, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
SIGNS = X[:, 0].sign()
Case = tuple[Any, Any, Any, dict[str, Any]]
linear = partial(modules.linear, D)


def computed(function: Callable[..., Tensor], last: int = 1) -> nn.Module:
    """Two layers, and a function of them and of the inputs."""
    parts = {"first": linear(D), "last": linear(last)}
    return Computed(lambda m, *inputs: function(m.first, m.last, *inputs), **parts)


def network(*between: nn.Module, biases: tuple[bool, bool] = (False, False)) -> nn.Module:
    first, last = nn.Linear(D, 8, bias=biases[0]), nn.Linear(8, 1, bias=biases[1])
    return nn.Sequential(first, *(between or (nn.ReLU(),)), last)


def convolution() -> nn.Module:
    layers = (nn.Conv1d(1, 4, 2), nn.LeakyReLU(), nn.AvgPool1d(2), nn.Flatten())
    return nn.Sequential(nn.Unflatten(1, (1, D)), *layers, nn.Linear(4, 1, bias=False))


def case(
    module: nn.Module,
    inputs: object = X,
    labels: Callable[[Tensor], object] = Tensor.clone,
    dtype: torch.dtype = torch.float64,
    **options: object,
) -> Case:
    """Return a module, inputs, labels made of those that it and its leading part say, options."""
    large = scale_weights(copy.deepcopy(module).double().eval(), 1e3)
    with torch.no_grad():
        outputs = large(*([X, X] if isinstance(inputs, tuple) else [X])).squeeze(-1)
    said = torch.where(outputs > 0, 1, -1) if outputs.ndim == 1 else outputs.argmax(1)
    return module.to(dtype).eval(), inputs, labels(said), options


def in_batches(whole: Case) -> Case:
    """Return the same samples in a loader."""
    module, inputs, labels, options = whole
    data = TensorDataset(inputs, labels)
    return module, DataLoader(data, batch_size=3, shuffle=True), None, options


# What each row is run with, by its first cell; a seed is set before.
ROWS: dict[str, list[Callable[[], Case]]] = {
    "layers without bias, a bias in the first one; convolutions, pooling, (leaky) ReLU, powers": [
        lambda: case(network()),
        lambda: case(network(biases=(True, False))),
        lambda: case(convolution()),
        lambda: case(computed(lambda first, last, x: last(first(x) ** 2))),
    ],
    "a bias above the first layer": [lambda: case(network(biases=(False, True)))],
    "residual blocks": [lambda: case(computed(lambda first, last, x: last(x + first(x).relu())))],
    "GELU, SiLU, softplus inside": [
        lambda: case(network(nn.GELU())),
        lambda: case(network(nn.SiLU())),
        lambda: case(network(nn.Softplus())),
    ],
    "tanh, sigmoid inside": [lambda: case(network(nn.Tanh())), lambda: case(network(nn.Sigmoid()))],
    "`RMSNorm`; `LayerNorm`, `GroupNorm` with an eps of 1e-30": [
        lambda: case(network(nn.RMSNorm(8), nn.ReLU())),
        lambda: case(network(nn.LayerNorm(8, eps=1e-30))),
        lambda: case(network(nn.GroupNorm(2, 8, eps=1e-30), nn.ReLU())),
    ],
    "`LayerNorm` of another eps": [lambda: case(network(nn.LayerNorm(8)))],
    "batch normalization, by `full_batch`": [
        lambda: case(ib.full_batch(network(nn.BatchNorm1d(8), nn.ReLU()).double(), X))
    ],
    "batch normalization in evaluation mode": [
        lambda: case(network(nn.BatchNorm1d(8), nn.ReLU(), nn.LayerNorm(8)))
    ],
    "attention with trained keys and queries": [
        lambda: case(computed(lambda key, last, x: last(key(x).softmax(1) * x)))
    ],
    "a softmax, sigmoid or tanh at the end": [
        lambda: case(nn.Sequential(linear(3), nn.Softmax(1))),
        lambda: case(computed(lambda first, last, x: last(first(x).relu()).tanh()[:, 0])),
    ],
    "a module that `torch.compile` made": [lambda: case(cast(nn.Module, torch.compile(linear())))],
    "weights of float32, inputs of any precision": [
        lambda: case(network(), dtype=torch.float32),
        lambda: case(linear(), X.float(), dtype=torch.float32),
    ],
    "a classifier, a function": [
        lambda: (ib.MaxMarginSVC(), X, SIGNS, {}),
        lambda: (torch.relu, X, SIGNS, {}),
    ],
    "arrays, lists, pandas frames": [
        lambda: case(linear(), X.numpy(), Tensor.numpy),
        lambda: case(linear(), X.tolist(), Tensor.tolist),
        lambda: case(linear(), pd.DataFrame(X.numpy()), lambda said: pd.Series(said.numpy())),
    ],
    "tensors, also such that require a gradient": [
        lambda: case(linear(), X.float()),
        lambda: case(linear(), X.clone().requires_grad_()),
    ],
    "several arguments, as a tuple": [
        lambda: case(computed(lambda first, last, a, b: last(first(a) * b)), (X, X))
    ],
    "a DataLoader of inputs and labels": [lambda: in_batches(case(linear(3)))],
    "sparse matrices": [lambda: case(linear(), sp.csr_array(X.numpy()))],
    "missing values": [lambda: case(linear(), torch.where(X == X.max(), torch.nan, X))],
    "labels −1 and +1 for one output, 0 … K−1 for K, shape (N,) or (N, 1)": [
        lambda: case(linear()),
        lambda: case(linear(3), X, lambda said: said[:, None].numpy()),
    ],
    "labels 0 and 1 for one output": [lambda: case(linear(), X, lambda said: (said + 1) // 2)],
    "labels of text": [lambda: case(linear(), X, lambda said: np.where(said > 0, "up", "down"))],
    "misclassified samples": [
        lambda: case(linear(), torch.cat([X, X]), lambda said: torch.cat([said, -said]))
    ],
    "`loss=` cross-entropy, logistic, exponential": [
        lambda: case(linear(3), loss=nn.CrossEntropyLoss()),
        lambda: case(linear(), loss=nn.SoftMarginLoss()),
        lambda: case(linear(), loss=lambda outputs, signs: (-signs * outputs).exp().mean()),
    ],
    "`loss=` squares, hinge": [
        lambda: case(linear(), loss=nn.MSELoss()),
        lambda: case(linear(3), loss=nn.MultiMarginLoss()),
    ],
}
# The column, and the function that it is about.
COLUMNS: dict[str, list[Callable[..., object]]] = {
    "`diagnose`": [ib.diagnose, partial(ib.which_norm, norms=["l2"])],
    "`train_to_limit`": [partial(ib.train_to_limit, config=ib.LimitConfig(steps=3))],
    "`MaxMarginSVC`": [lambda module, inputs, labels: ib.MaxMarginSVC().fit(inputs, labels)],
}


def table() -> dict[str, list[str]]:
    """Cells of the page's table by the first one of their row."""
    page = (Path(__file__).parents[1] / "docs/howto/accepted.md").read_text("utf-8")
    text = page.partition("<!-- supported -->")[2].partition("<!-- /supported -->")[0]
    head, _, *rows = (
        [cell.strip() for cell in line.split("|")[1:-1]] for line in text.strip().splitlines()
    )
    assert [cell.partition(",")[0].partition(" and ")[0] for cell in head[1:]] == list(COLUMNS)
    return {first: cells for first, *cells in rows}


TABLE = table()


@pytest.mark.fast(
    *("tanh, sigmoid inside", "`LayerNorm` of another eps", "missing values"),
    *("batch normalization in evaluation mode", "attention with trained keys and queries"),
    *("a softmax, sigmoid or tanh at the end", "weights of float32, inputs of any precision"),
    *("a classifier, a function", "several arguments, as a tuple", "sparse matrices"),
    *("labels 0 and 1 for one output", "misclassified samples", "`loss=` squares, hinge"),
)
@pytest.mark.filterwarnings("ignore:A column-vector y:sklearn.exceptions.DataConversionWarning")
@pytest.mark.filterwarnings("ignore:.*torch.jit.*deprecated")  # torch.compile's own
@pytest.mark.parametrize("row", [*ROWS, *TABLE.keys() - ROWS.keys()])
def test_a_row_of_what_is_accepted(row: str) -> None:
    """What it calls accepted has a result; what it refuses, an error with the words it shows."""
    for column, cell in zip(COLUMNS.values(), TABLE[row], strict=True):
        for function in column:
            for build in ROWS[row]:
                check(function, build, cell)


def check(function: Callable[..., object], build: Callable[[], Case], cell: str) -> None:
    torch.manual_seed(0)
    module, inputs, labels, options = build()
    if cell == "" or (options and function is not ib.diagnose):
        return
    if "leading=True" in cell or cell == "yes":
        leading = {} if cell == "yes" else {"leading": True}
        assert function(module, inputs, labels, **options, **leading) is not None
    words = [re.escape(word) for word in re.findall("`(.*?)`", cell) if word != "leading=True"]
    for word in words:
        if cell.startswith("warns"):
            with pytest.warns((ib.DiagnosisWarning, ib.NotSeparableWarning), match=word):
                function(module, inputs, labels, **options)
        else:
            with pytest.raises((ValueError, TypeError, ib.SolveError), match=word) as refused:
                function(module, inputs, labels, **options)
            found = isinstance(refused.value, (ib.SeparationError, ib.SolveError))
            assert found or any("What is accepted" in note for note in refused.value.__notes__)
    assert words or cell == "yes"
