"""The float32 stage of the interior point: far from the optimum half the digits steer as well.

Under sums of Euclidean norms the first steps in the rows are computed in float32, in half the time,
until the gap is coarse, and so is a doubt whether the data are separable; the others in float64.
Where this saves time, with many rows, a tolerance that float32 can hold is reached in it, and
float64 has only to verify the bounds. With few rows the change would take longer than it saves, and
where float32's range does not hold the samples' scales (`ScaledProblem.in_range`) all steps are in
float64.

`interior_point` takes the steps, the same in both (`_CentralPath.steps`): here is when those in
float32 end, and from where the others go on.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from implicit_bias.solvers.balls import CentralPoint
from implicit_bias.solvers.base import Tolerances
from implicit_bias.solvers.scaled_problem import ScaledProblem

FLOAT32_GAP, MANY_ROWS = 1e-4, 1000
COARSE_INFEASIBILITY = 1e-4


def coarse_tolerances(fine: Tolerances, gap: float, n_rows: int) -> Tolerances:
    """Return the tolerances of the steps in float32, which go down to this gap."""
    enough = FLOAT32_GAP if n_rows >= MANY_ROWS else gap
    return Tolerances(
        gap=fine.gap if fine.gap >= enough else max(gap, fine.gap),
        feasibility=max(gap, fine.feasibility),
        infeasibility=max(COARSE_INFEASIBILITY, fine.infeasibility),
    )


def in_float64(point: CentralPoint, scaled: ScaledProblem) -> CentralPoint:
    """Return the point of the float32 steps from which those in float64 go on."""
    point = point.to(torch.float64)
    if not scaled.soft:
        return point
    # As float32 rounds it, w is not what alpha leaves of C, which no later step mends.
    w = scaled.box_C - scaled.boxes.pool(point.alpha)
    return replace(point, w=torch.where(w > 0.0, w, point.w))
