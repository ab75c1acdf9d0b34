r"""How far is a module from the limits of its training: one call for any homogeneous module.

Steepest descent in a norm on an exponential-like loss converges in direction to a KKT point of

    min 1/2 ||theta||^2   s.t.   q(theta) >= 1,

q the margins (`modules.margins`). Each step below is a file of this package.

1. Checks: what makes the question meaningless (`modules.subject`, `modules.homogeneity`), or a
   number mean less (`checks`), or keeps the training from the limit (`training`).
2. The gap: the module at unit margin beside the best multipliers in the norm
   (`modules.multipliers`), with gradients at its weights and across kinks near them
   (`modules.kinks`). What follows is measured at the former.
3. Layers: the KKT gap of each alone, and the direction that lowers its norm (`layers`).
4. Beyond KKT points: one more ReLU unit (`escape`), the optimum in function space
   (`function_space`); lazy or rich (`regime`).

Source: Lyu and Li (2020); Tsilivis, Vardi, Kempe (2024); Vardi, Shamir, Srebro (2022), KKT points
that are not local optima.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor, nn

from implicit_bias.base.deadline import Deadline
from implicit_bias.base.threads import one_thread_if_small
from implicit_bias.base.validation import Array
from implicit_bias.diagnosis.box import box_of, check_rates_apply
from implicit_bias.diagnosis.checkpoints import State
from implicit_bias.diagnosis.checks import check, what_is_measured
from implicit_bias.diagnosis.escape import EscapeSearch
from implicit_bias.diagnosis.findings import Finding, warn
from implicit_bias.diagnosis.function_space import in_function_space
from implicit_bias.diagnosis.layers import LayerBounds
from implicit_bias.diagnosis.loss_tail import judge_loss
from implicit_bias.diagnosis.regime import regime_of
from implicit_bias.diagnosis.result import Diagnosis
from implicit_bias.diagnosis.training import of_training
from implicit_bias.modules.evaluate import as_module, evaluating
from implicit_bias.modules.homogeneity import HomogeneityError
from implicit_bias.modules.kinks import gap_across_kinks
from implicit_bias.modules.loading import collected
from implicit_bias.modules.optimizers import has_decay, measured_norm
from implicit_bias.modules.past_rates import Rates, sums_of_decay
from implicit_bias.modules.steps import steps_of
from implicit_bias.modules.subject import SeparationError
from implicit_bias.modules.tangent_program import Multipliers, loss_weights, tempered_weights
from implicit_bias.norms import tensors


@dataclass(frozen=True)
class TimeFractions:
    """Most that each step may take of the time that is left when it begins, if that is limited.

    Attributes
    ----------
    gap : float
        Of the best multipliers.
    other_norms : float
        Of the gaps in other norms.
    kinks : float
        Of the gap across kinks.
    layers : float
        Of the layers' bounds.
    """

    gap: float = 0.6
    other_norms: float = 0.2
    kinks: float = 0.4
    layers: float = 0.4


# Norms that are compared with the one asked for.
COMPARED = ("l2", "l1", "linf", "spectral")


def diagnose(
    module: nn.Module,
    inputs: tuple[Tensor | ArrayLike, ...] | Tensor | ArrayLike | Iterable[Any],
    labels: ArrayLike | Tensor | None = None,
    *,
    norm: tensors.GivenNorm | None = None,
    loss: object = None,
    optimizer: object = None,
    rates: Rates | None = None,
    leading: bool = False,
    start: State | None = None,
    max_seconds: float | None = None,
) -> Diagnosis:
    """Measure how far a module is from the KKT points that its training converges to.

    Parameters
    ----------
    module : nn.Module
        Any module that treats its samples one by one and is homogeneous in those of its parameters
        that require a gradient (the others count as constants), or, with ``leading``, in the limit
        in which these are large. It is left as it is: mode,
        gradients, precision and device.
    inputs : Tensor, array_like (a frame, say) or tuple of them, or a DataLoader
        The module's argument or arguments, each with the samples as first axis. Of a network of
        this package its samples (N, D) will do. Or, without ``labels``, a DataLoader or another
        iterable of batches (inputs, labels): its samples are held in float64, up to 2 GiB, in the
        order of the data set also where it shuffles.
    labels : array_like of shape (N,) or (N, 1), optional
        -1 and +1 for outputs of shape (N,) or (N, 1); classes 0 .. K - 1 for outputs (N, K). They
        are left out beside a loader.
    norm : {"l2", "l1", "linf", "spectral", "nuclear"}, a norm, or a mapping, optional
        The norm of the steepest descent: l2 for gradient descent, linf for sign descent and Adam,
        spectral for Muon (see `implicit_bias.norms.tensors`), or a norm for each part, {"last":
        "linf", "": "spectral"}. By default that of the optimizer, and l2 without one.
    loss : str, MarginLoss or callable, optional
        What was minimized, as a function of outputs and targets: a torch loss, say, or the
        logarithm of one. It is only checked to be one whose training has such a limit; a warning
        names what is against it: no exponential tail, a tail in another margin than the smallest
        over the rivals, or a finite minimiser.
    optimizer : torch.optim.Optimizer, its class or its name, or several optimizers, optional
        What minimized it. Of an optimizer object norm and weights of each tensor are read from the
        parameter groups (`implicit_bias.modules.optimizers`): Muon on matrices beside Adam on the
        rest has one norm, for example. It is checked to have the limit norm asked for, to have all
        parameters, no weight decay, and no epsilon above the gradients. With weight decay, and a
        function as ``loss``, ``box`` measures the limit with it, and the verdict says which problem
        describes the weights.
    rates : sequence of float, LRScheduler, sequence of LRScheduler, or BoxTrace, optional
        The learning rates of the past steps, as in `box_gap`: a list, the schedulers or a
        `BoxTrace`. ``box.decayed`` is unknown, nan, under a scheduler without them. They need
        an optimizer object with weight decay and a function as ``loss``.
    leading : bool
        Measure the leading-order part of the module, the limit of f(c theta) / c^L as c grows,
        where residual blocks, low-rank updates of frozen weights, biases above the first layer,
        GELU and softplus keep it from being homogeneous. All numbers are about that part, to whose
        KKT points gradient descent converges in l2; ``rest`` says how large the remainder is. Of a
        homogeneous module it is the module.
    start : nn.Module or state dict, optional
        The same architecture before its training: ``regime`` says how far the training has left the
        kernel of its start, lazy or rich (Chizat, Oyallon and Bach 2019).
    max_seconds : float, optional
        Limit on the time; the bounds so far are returned (``method`` is "stopped"). It is passed by
        a second at most, or a tenth of it if that is more, unless the checks of the module alone
        take longer, some 20 passes over the samples: a step is not begun where the last one took
        longer than what is left. Bounds of layers that there was no time for are nan. With
        ``leading`` a finding says in which parameters there was no time to look for jumps.

    Returns
    -------
    Diagnosis

    Raises
    ------
    HomogeneityError
        The module is not homogeneous: biases, normalization layers, softmax attention, skip
        connections or contexts of different degrees. The message names the part and its type, and
        a cure. Known layers are found by name on the first samples, before all are evaluated. With
        ``leading``: there is no such limit, it jumps (softmax of trained scores, a sigmoid), or
        parameters are of degree 0 in it (in front of a layer norm).
    SeparationError
        Samples are misclassified, so the smallest margin is not positive at any scale; with
        ``leading``, they are by the leading-order part.
    ValueError, TypeError
        Inputs, outputs or labels do not fit, or outputs are random or not finite. A loader has too
        much data, or others in each pass (random augmentation). The norm is unknown: no such name,
        or none is known for the optimizer (Adagrad, gradient descent mixed with others, rates of
        different schedules). The module is no module. ``rates`` are not one per step, or of a
        scheduler that cannot be replayed, or there is no weight decay that they could be about.
    TimeoutError
        ``max_seconds`` was over before the degree of the leading-order part was known.

    Warns
    -----
    DiagnosisWarning
        Each of `Diagnosis.warnings`: a finding whose code `warns`.

    Notes
    -----
    In float64. In l2 the multipliers are the best there are. In linf, spectral and a mix of both
    they mostly are, too, of modules of up to some 10^5 parameters whose matrices have no more than
    512 rows and columns together, and in other norms of small ones. Else they are the best known
    ones (those of the loss, at the best temperature, say), improved until the gap is known to
    0.001, or to a tenth of itself if that is less, for 25 seconds at most: an upper bound
    (``method``), with a lower one beside it (``gap_lower``).

    Gradient descent on a ReLU network ends where kinks of its units run through samples, and the
    gradients at the weights are those of one side, so that this gap may stay large. Of modules of
    up to 2^17 parameters ``gap_across_kinks`` lets in those of the other sides, within 0.1 % of the
    weights (`implicit_bias.modules.kinks`); the verdict is by the smaller of the two.

    Gaps of different norms do not compare, except near 0: .9 in linf may be nearer than .6 in l2.
    The page "Reading gaps across norms" (``docs/howto/reading_gaps.md``) says why, and `which_norm`
    puts in a table what does.

    Examples
    --------
    >>> import torch
    >>> from implicit_bias import diagnose
    >>> module = torch.nn.Linear(2, 1, bias=False)
    >>> _ = module.weight.data.copy_(torch.tensor([[2.0, 1.0]]))
    >>> found = diagnose(module, torch.eye(2), [1, 1])
    >>> round(found.gap, 6), found.degree
    (0.6, 1.0)
    """
    started = time.monotonic()
    deadline = Deadline.asked(max_seconds)
    fractions = TimeFractions()
    module = as_module(module)
    inputs, labels = collected(inputs, labels)
    asked = None
    if norm is not None:
        asked = tensors.as_parameter_norm(norm)
    measured = measured_norm(module, asked, optimizer)
    past_decay = None
    if rates is not None:
        check_rates_apply(optimizer, loss)
        past_decay = sums_of_decay(optimizer, steps_of(optimizer, module), rates)
    with (
        evaluating(module) as (module, modes),
        one_thread_if_small(module, inputs),
        _offering_box(optimizer),
    ):
        # 1. Checks, each once: all that follows measures this subject.
        subject, doubts = check(
            module,
            inputs,
            labels,
            modes,
            optimizer,
            norms=[measured.norm],
            leading=leading,
            deadline=deadline,
        )
        function = subject.function
        # Steps after the searches take about as long as the checks did: that time is kept for them.
        deadline = deadline.leaving(time.monotonic() - started)
        judged = judge_loss(loss, function.classes)
        # Weight decay acts on the module as it is trained, not on its leading-order part.
        box = box_of(subject.module_itself.function, optimizer, loss, judged, past_decay)

        # 2. The gap: of the best multipliers, of the loss's weights, across kinks.
        best = subject.measure(measured.norm, deadline=deadline.sooner(fractions.gap))
        program = best.program
        # The weights of the loss at the module's own scale are multipliers that need no search.
        of_loss = loss_weights(subject.margins, function.rivals)
        gaps = _gaps_by_norm(best, of_loss, deadline.sooner(fractions.other_norms))
        across = gap_across_kinks(best, deadline=deadline.sooner(fractions.kinks))

        # 3. and 4. Layers, and what is beyond a KKT point, in the time that is left.
        layers = LayerBounds().find(best, deadline.sooner(fractions.layers))
        escape = EscapeSearch().find(best, deadline)
        function_space = in_function_space(program, deadline.left)
        regime = None
        of_regime = list[Finding]()
        if start is not None and not deadline.passed:
            regime = regime_of(subject, start, deadline)
            named = regime.finding(linear=subject.linear)
            of_regime = [named] if named is not None else []

        checks = (
            *of_training(subject, measured, optimizer, loss, judged, box),
            *of_regime,
            *what_is_measured(subject, measured.norm),
            *doubts,
        )
    warn(checks, stacklevel=2)
    rest = None
    if leading:
        rest = subject.rest
    epsilon = math.nan
    delta = math.nan
    if measured.norm == tensors.PARAMETER_NORMS["l2"]:
        epsilon = best.epsilon
        delta = best.delta
    return Diagnosis(
        norm=measured.norm.name,
        degree=program.degree,
        min_margin=subject.min_margin,
        normalised_margin=program.normalised_margin,
        parameter_norm=program.size,
        gap=best.gap,
        gap_lower=best.gap_lower,
        gap_across_kinks=across,
        method=best.method,
        margins=function.pairs.alpha(program.margins, np.inf),
        multipliers=function.pairs.alpha(best.weights),
        gaps=gaps,
        layers=layers,
        escape=escape,
        function_space=function_space,
        box=box,
        checks=checks,
        seconds=time.monotonic() - started,
        trained_by=measured.trained_by,
        rest=rest,
        epsilon=epsilon,
        delta=delta,
        regime=regime,
    )


@contextmanager
def _offering_box(optimizer: object) -> Iterator[None]:
    """Let the refusal of a module mention `box_gap`, if its optimizer has weight decay."""
    try:
        yield
    except (HomogeneityError, SeparationError) as error:
        if has_decay(optimizer):
            error.args = (
                f"{error}. With this optimizer's weight decay there is a limit that asks for "
                "neither: box_gap(module, inputs, labels, optimizer=..., loss=...) measures it",
            )
        raise


def _gaps_by_norm(best: Multipliers, of_loss: Array, deadline: Deadline) -> dict[str, float]:
    """Gap in each norm of the best of some multipliers.

    They are, while there is time: the best ones in the norm asked for, the loss's weights at the
    module's own scale, and those at other temperatures at unit margin.
    """
    program = best.program
    function = program.function
    tempered = tempered_weights(program.margins, function.rivals)
    gaps = dict.fromkeys(COMPARED, 1.0)
    took = 0.0
    for weights in itertools.chain([best.weights, of_loss], tempered):
        if not deadline.allows(took):
            break
        began = time.perf_counter()
        # Any multipliers bound the gap in any norm from above (gap(lambda) >= 0 for every lambda),
        # and J' lambda, which takes the time, is the same in all norms.
        combination = function.vjp(program.theta, weights)
        for name in COMPARED:
            other = replace(program, norm=tensors.PARAMETER_NORMS[name])
            gaps[name] = min(gaps[name], other.bound_by(weights, combination).gap)
        took = time.perf_counter() - began
    # In the norm asked for, which may be none of these, the gap is the one that was searched for.
    gaps[program.norm.name] = best.gap
    return gaps
