"""Watch any training loop: margins and KKT gaps of a module in several norms, step by step.

A `Recorder` is given the module once, and is called wherever the loop wants to be measured. It
leaves the module as it is: parameters, gradients, mode, precision.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.optim import Optimizer

from implicit_bias.base.deadline import Deadline
from implicit_bias.base.threads import one_thread_if_small
from implicit_bias.base.validation import check_count, check_flag
from implicit_bias.diagnosis.checkpoints import Checkpoints, listed_checkpoints, load_into
from implicit_bias.diagnosis.checks import check
from implicit_bias.diagnosis.findings import warn
from implicit_bias.diagnosis.function_space import FunctionSpace, in_function_space
from implicit_bias.diagnosis.known_limit import GivenLimit, KnownLimit
from implicit_bias.modules.evaluate import as_arguments, as_module, evaluating
from implicit_bias.modules.loading import collected
from implicit_bias.modules.optimizers import norm_of
from implicit_bias.modules.steps import each_of
from implicit_bias.modules.subject import Subject
from implicit_bias.norms import tensors
from implicit_bias.training.trainee import Inputs

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Row: TypeAlias = dict[str, float]


class Recorder:
    r"""Records margins and KKT gaps of a module that is trained by the user's own loop.

    .. math:: \frac{\min_n q_n(\theta)}{\|\theta\|^L}, \qquad
        \text{gap} = 1 - \frac{\min \, \{ \|w\| : J w \ge L \}^2}{\|\theta\|^2}
        \text{ at unit margin}

    with the margins q_n, their gradients J and the degree L of the module; see `Diagnosis`.

    Parameters
    ----------
    module : nn.Module
        Homogeneous in its trained parameters, in any precision; see `diagnose`.
    inputs : array_like, Tensor, or tuple of them, or a DataLoader
        The module's argument, or a tuple of its arguments, each with the samples as first axis.
        Of a network of this package its samples (N, D) will do. Or batches of (inputs, labels),
        without ``labels``, which are read once, at the start; see `diagnose`.
    labels : array_like of shape (N,), optional
        -1 and +1 for outputs (N,) or (N, 1); 0..K-1 for outputs (N, K).
    norms : sequence of norms or optimizers
        Names or norms, as in `diagnose`; of an optimizer, or a list of those that train the module
        together, the norm that is read from them. A list of optimizers alone is one of those.
    gaps : bool
        Whether to find the gaps, too. Margins alone cost one forward pass per point; gaps cost the
        solution of a convex problem per norm.
    leading : bool
        Whether to measure the leading-order part of the module, as `diagnose` does. The table has a
        column ``rest`` then: how large the remainder is beside it.
    max_seconds : float, optional
        Limit on the time of all searches of one point together, which its norms share equally,
        by default 25 seconds per norm; where it stops one, its bound so far counts.
    limit : Tensor, array_like, mapping from name to them, nn.Module or Solution, optional
        A direction that is known: of the trained parameters, as one vector, by name or as a module;
        or, of linear, deep linear, diagonal and gated networks, the `Solution` of the predictor's
        margin problem. The table has a column ``cosine`` then.
    function_space : bool
        Whether to compare the predictor with the certified maximum margin in its own norm, of
        modules that `Diagnosis.function_space` recognizes, for theta in the first of the norms. The
        problem is solved once. The table has a column ``margin_error`` then.

    Attributes
    ----------
    rows : list of dict
        What was measured, one row per point; `frame` has a table of them, and says what columns
        are.
    last_seconds : float
        Wall time of the last `record`.

    Raises
    ------
    HomogeneityError
        The module is not homogeneous.
    ValueError, TypeError
        As `diagnose`; no norm, or one twice.

    Warns
    -----
    DiagnosisWarning
        Parameters that get no gradient; dropout.

    Notes
    -----
    Lyu and Li (2020): late in training the normalized margin of gradient flow does not
    decrease.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> module = nn.Linear(2, 1, bias=False)
    >>> X, y = torch.tensor([[1.0, 2.0], [2.0, 1.0], [-1.0, -1.0]]), torch.tensor([1, 1, -1])
    >>> recorder = Recorder(module, X, y, norms=["l2"])
    >>> optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    >>> for step in range(100):
    ...     optimizer.zero_grad()
    ...     torch.exp(-y * module(X)[:, 0]).mean().backward()
    ...     optimizer.step()
    >>> _ = recorder.record(100)
    >>> list(recorder.frame().columns)
    ['step', 'min_margin', 'error', 'margin_l2', 'gap_l2', 'epsilon', 'delta']
    """

    def __init__(
        self,
        module: nn.Module,
        inputs: Inputs | Iterable[Any],
        labels: ArrayLike | Tensor | None = None,
        norms: Sequence[tensors.GivenNorm | Optimizer | Sequence[Optimizer]] | str = ("l2", "linf"),
        *,
        gaps: bool = True,
        leading: bool = False,
        max_seconds: float | None = None,
        limit: GivenLimit | None = None,
        function_space: bool = False,
    ) -> None:
        check_flag(function_space, "function_space")
        check_flag(gaps, "gaps")
        check_flag(leading, "leading")
        Deadline.asked(max_seconds)  # refuses what is no time
        self.module = as_module(module)
        # A loader may shuffle or be slow: it is read once, not at each point.
        inputs, labels = collected(inputs, labels)
        self.gaps = gaps
        self.leading = leading
        self.max_seconds = max_seconds
        asked = tensors.one_or_several(norms)
        if asked and all(isinstance(norm, Optimizer) for norm in asked):
            # Each of several optimizers may hold some of the parameters only, so that together
            # they have one norm.
            asked = [asked]
        found = [norm_of(norm, self.module) for norm in asked]
        self.norms = {norm.name: norm for norm in found}
        if not found or len(self.norms) < len(found):
            raise ValueError(f"norms must name at least one, and none twice, got {asked}")
        with one_thread_if_small(self.module, inputs), evaluating(self.module) as (copied, _):
            # The loop may write into what it passes.
            own = copy.deepcopy(as_arguments(inputs, self.module))
            optimizers = [one for norm in asked for one in each_of(norm)]
            # A loop that trains has its module in training mode, so modes are no news.
            self.subject, findings = check(
                copied, own, labels, {}, optimizers, norms=found, leading=leading
            )
            self.limit = None
            if limit is not None:
                self.limit = KnownLimit.of(limit, self.subject)
        warn(findings, stacklevel=2)
        self.function_space = function_space
        self._in_function_space: FunctionSpace | None = None
        self.rows: list[Row] = []
        self.last_seconds = math.nan

    def __repr__(self) -> str:
        return f"Recorder({len(self.rows)} points, norms {', '.join(self.norms)})"

    def record(self, step: int | None = None) -> Row:
        """Measure the module as it is.

        Parameters
        ----------
        step : int, optional
            Its step; by default one more than the last one's, from 0.

        Returns
        -------
        dict from name to float
            The new row of `frame`.

        Raises
        ------
        ValueError
            A step that does not follow the last one's; a module that has other parameters by now.
        """
        least = 0
        if self.rows:
            least = int(self.rows[-1]["step"]) + 1
        if step is None:
            step = least
        # Steps rise, so that a table is a function of them.
        check_count(step, "step", least)
        started = time.perf_counter()
        with (
            one_thread_if_small(self.module, self.subject.function.inputs),
            evaluating(as_module(self.module)) as (copied, _),
        ):
            # The module was checked at the start. Now only its parameters are read again.
            subject = self.subject.reread(copied)
            row = {"step": step, "min_margin": subject.min_margin, "error": subject.error}
            if self.leading:
                row["rest"] = subject.rest
            for name, norm in self.norms.items():
                row[f"margin_{name}"] = subject.normalised_margin(norm)
                if self.gaps:
                    # Each norm has its share from now on: none waits for, or profits from, another
                    # one.
                    deadline = Deadline.asked(self.max_seconds).sooner(1.0 / len(self.norms))
                    row |= self._gap(subject, norm, deadline)
            if self.limit is not None:
                row["cosine"] = self.limit.cosine(subject)
            if self.function_space:
                row["margin_error"] = self._margin_error(subject)
        self.rows.append(row)
        self.last_seconds = time.perf_counter() - started
        return row

    def _gap(self, subject: Subject, norm: tensors.ParameterNorm, deadline: Deadline) -> Row:
        """Measure the KKT gap, and in l2 (epsilon, delta); nan where a margin is not positive."""
        found = {f"gap_{norm.name}": math.nan}
        in_l2 = norm == tensors.PARAMETER_NORMS["l2"]
        if in_l2:
            found |= {"epsilon": math.nan, "delta": math.nan}
        if subject.separates:
            best = subject.measure(norm, deadline)
            found[f"gap_{norm.name}"] = best.gap
            if in_l2:
                found |= {"epsilon": best.epsilon, "delta": best.delta}
        return found

    def _margin_error(self, subject: Subject) -> float:
        """Relative margin error in function space; the optimum is solved for once."""
        if not subject.separates:
            return math.nan
        norm = next(iter(self.norms.values()))
        # The optimum depends on data, gates and norm, not on the weights: only the first point
        # solves.
        found = in_function_space(
            subject.at_margin_1(norm), self.max_seconds, self._in_function_space
        )
        if found is None:
            return math.nan
        self._in_function_space = found
        return found.margin_error

    @classmethod
    def from_checkpoints(
        cls,
        checkpoints: Checkpoints,
        module: nn.Module,
        inputs: Inputs | Iterable[Any],
        labels: ArrayLike | Tensor | None = None,
        norms: Sequence[tensors.GivenNorm | Optimizer | Sequence[Optimizer]] | str = ("l2", "linf"),
        **options: Any,
    ) -> Recorder:
        """Record a training that is finished, from the states that it has saved.

        Parameters
        ----------
        checkpoints : path, or sequence of paths and state dicts
            A folder of files .pt, .pth, .ckpt or .bin. The last number in a name is the step, and
            the files are read in its order. Or a list in the order of the training: its steps are
            these numbers where they rise, else 0, 1, 2 and so on. A file holds a state dict, or a
            dict with one as "model", "state_dict" or "model_state_dict"; it is read with
            ``weights_only=True``.
        module : nn.Module
            Of the same architecture, with any values; it is not changed.
        inputs, labels, norms
            As of `Recorder`.
        **options
            Those of `Recorder`.

        Returns
        -------
        Recorder
            With a row for each checkpoint.

        Raises
        ------
        ValueError
            A file that cannot be read, without a state dict, or of another module, each by its
            name; no files; names without steps; and as `Recorder`.

        Examples
        --------
        >>> import torch
        >>> module = torch.nn.Linear(2, 1, bias=False)
        >>> states = [{"weight": torch.tensor([[1.0, w]])} for w in (0.0, 0.5, 1.0)]
        >>> recorder = Recorder.from_checkpoints(states, module, torch.eye(2), [1, 1], ["l2"])
        >>> recorder.frame()["margin_l2"].round(3).tolist()
        [0.0, 0.447, 0.707]
        """
        listed = listed_checkpoints(checkpoints)
        # The states are loaded into a copy: the caller's module keeps its values.
        copied = copy.deepcopy(as_module(module))
        # What counts of the module is judged at the end of the training.
        load_into(copied, listed[-1])
        recorder = cls(copied, inputs, labels, norms, **options)
        for checkpoint in listed:
            load_into(copied, checkpoint)
            recorder.record(checkpoint.step)
        return recorder

    def frame(self) -> pd.DataFrame:
        """Return what was recorded as a table: a row a point.

        Columns are ``step``, ``min_margin`` and ``error``, the fraction of misclassified samples.
        For each norm ``margin_NAME`` is min_margin / ||theta||^L, which steepest descent in this
        norm raises. ``gap_NAME`` is the relative KKT gap in [0, 1], nan where a sample is
        misclassified. Beside ``gap_l2`` there are ``epsilon`` and ``delta``, of Lyu and Li's
        (epsilon, delta)-approximate KKT points at unit margin. With ``limit`` there is
        ``cosine``, and with ``function_space`` ``margin_error``, 1 - margin / maximum margin of the
        predictor, nan of modules that are not recognized. Where the outputs are not finite all but
        the step is nan.
        """
        import pandas as pd

        return pd.DataFrame(self.rows)

    def plot(self) -> Figure:
        """Draw margins and gaps against the steps.

        Margins are fractions of the largest one recorded in the same norm: norms have no common
        unit.

        Raises
        ------
        ValueError
            Nothing is recorded.

        Examples
        --------
        >>> import torch
        >>> from implicit_bias import Recorder
        >>> module = torch.nn.Linear(2, 1, bias=False)
        >>> recorder = Recorder(module, torch.eye(2), torch.ones(2), norms=["l2"])
        >>> for step in (1, 2, 3):
        ...     _ = module.weight.data.fill_(step)
        ...     _ = recorder.record(step)
        >>> len(recorder.plot().axes)
        2
        """
        from implicit_bias.diagnosis.figures import draw_recorder

        if not self.rows:
            raise ValueError("nothing is recorded yet: call record(step) in the loop")
        return draw_recorder(self.frame(), tuple(self.norms), gaps=self.gaps)
