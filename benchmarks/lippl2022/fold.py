r"""One reshape, two norms: the check in the released code, computed again.

The released SVM-GLN minimises the sum over hidden units of the norms of their weights. Its program
has the weights as a matrix (H C, D), so it computes the norm of each row and reshapes these H C
numbers to (H, C):

    sum_h || reshape(norms, (H, C))[h] ||.

CVXPY's ``reshape`` fills columns first (order "F"), while the rows were flattened with the contexts
of a unit side by side (order "C"). So the sum is not over units: column j is in group j mod H. The
comment in ``functions/train_convex.py`` compares both on one tensor of Gaussian numbers, and has
168.4071 for NumPy's norm and 168.4024 for the program's; here both are computed.

Source: released code of Lippl, Abbott, Chung (2022), commit 002054c; (20).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.bench import Part, part

COST = 0.01
# Tensor of their comment: input features, hidden units and contexts.
FEATURES, UNITS, CONTEXTS, SEED = 785, 3, 4, 1


def measure(quick: bool) -> Iterator[Part]:
    """Yield a part for each order of the reshape."""
    for order in ("C", "F"):
        yield part(folded, order=order)


def folded(order: str) -> list[dict[str, float]]:
    """Sum the norms of units as an order of the reshape makes them, and by the definition."""
    tensor = np.random.RandomState(SEED).randn(FEATURES, UNITS, CONTEXTS)
    weights = tensor.reshape(FEATURES, UNITS * CONTEXTS).T
    rows = np.linalg.norm(weights, axis=1)
    groups = rows.reshape((UNITS, CONTEXTS), order="C" if order == "C" else "F")
    by_definition = 0.0
    for unit in range(UNITS):
        by_definition += float(np.linalg.norm(tensor[:, unit, :]))
    return [{"norm": float(np.linalg.norm(groups, axis=1).sum()), "by_definition": by_definition}]


def numbers(frame: pd.DataFrame) -> dict[str, Any]:
    """Return the norm by each order."""
    by_order = frame.set_index("order")["norm"]
    return {
        "by_rows": float(by_order["C"]),
        "by_columns": float(by_order["F"]),
        "by_definition": float(frame["by_definition"].iloc[0]),
    }
