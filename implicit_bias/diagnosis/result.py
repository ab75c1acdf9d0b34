"""What a diagnosis says: numbers, a verdict in a sentence, a page in a notebook, a picture."""

from __future__ import annotations

import base64
import html
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from implicit_bias.base.validation import Array, check_count, detached
from implicit_bias.base.wording import html_table, number, percent, percent_bounds
from implicit_bias.diagnosis.escape import FAR, Escape
from implicit_bias.diagnosis.function_space import FunctionSpace
from implicit_bias.diagnosis.layers import Layer
from implicit_bias.diagnosis.recipe import GRADIENT_DESCENTS
from implicit_bias.modules.multipliers import Method

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Samples that are named, those of the largest multipliers.
MOST_SAMPLES = 16
# Up to this gap a module is at a KKT point.
AT = 1e-3
# The geometry is another one where its gap is below FAR, and below this share of the gap asked for.
ANOTHER = 0.5
# An excess in function space that is worth a word.
WORTH_NAMING = 1e-3
# What goes to the KKT points of a norm.
DESCENTS = {
    "l2": "gradient descent",
    "l1": "coordinate descent",
    "linf": "sign descent (and Adam)",
    "spectral": "spectral descent (Muon)",
    "nuclear": "nuclear steepest descent",
}


@dataclass(frozen=True, eq=False, repr=False)
class Diagnosis:
    """How far a module is from where its training can end.

    All but `min_margin` and the layers' directions is at smallest margin 1, and so does not change
    when the module is scaled.

    Attributes
    ----------
    norm : str
        The geometry.
    degree : float
        L, the degree of homogeneity in the trained parameters.
    min_margin : float
        Smallest margin of the module as it is: y_n f(x_n), or f_{y_n}(x_n) - f_k(x_n).
    normalised_margin : float
        min_margin / ||theta||^L.
    parameter_norm : float
        ||theta|| at smallest margin 1.
    gap : float
        Relative KKT gap in [0, 1] of the multipliers: 1 - (L sum lambda)^2 / (||theta||^2
        ||J' lambda||_*^2). 0 exactly at the KKT points of min 1/2 ||theta||^2 s.t. margins >= 1.
        Where ``method`` is not "exact" it is an upper bound on the gap of the best multipliers.
    gap_lower : float
        A lower bound on that of the best multipliers; the same as ``gap`` where these are exact.
    gap_across_kinks : float
        An upper bound on the gap with the gradients on all sides of the kinks (a ReLU at 0) within
        0.1 % of the weights, of which multipliers may combine several a sample: gradient descent
        ends on kinks, and torch differentiates one side alone. The same as ``gap`` without kinks.
    method : {"exact", "interior point", "level method", "stopped"}
        How the multipliers were found; "stopped" is what was known at ``max_seconds``.
    gap_of_loss : float
        The gap of the loss's own weights, which training has for free.
    margins : ndarray of shape (N,) or (N, K)
        Margins; inf at the labels, which have none.
    multipliers : ndarray of shape (N,) or (N, K)
        lambda >= 0; 0 at the labels.
    gaps : dict from norm to float
        Upper bounds on the gap in each geometry, from the loss's weights at the best temperature;
        in that of ``norm``, ``gap``.
    layers : tuple of Layer
        Bounds layer by layer.
    escape : Escape or None
        One more unit of a two-layer ReLU network; None for others, and far from a KKT point.
    function_space : FunctionSpace or None
        The predictor beside the optimum of its own norm, where the module is recognised.
    warnings : tuple of str
        What makes these numbers mean less; each with its cure.
    excluded : tuple of str
        Names of parameters that do not count in ||theta||.
    seconds : float
        Wall time.
    advice : str
        What to do to get nearer: against what is in the way, or else to train longer, and how.
    trained_by : str
        The optimizers whose geometry this is, with what their limit depends on; empty where they
        are not known, or go elsewhere.
    notes : tuple of str
        What these numbers are about: a leading part, parameters of degree 0, coarse precision.
    images : ndarray or None
        The module's first input where it is of images, shape (N, 1 or 3, height, width).
    rest : float or None
        Of a leading part f_L of the module f: largest ``abs(f - f_L)`` on the samples over the
        largest ``abs(f_L)``. None where the module itself was measured.

    Examples
    --------
    >>> import torch
    >>> from implicit_bias import diagnose
    >>> module = torch.nn.Linear(2, 1, bias=False)
    >>> _ = module.weight.data.copy_(torch.tensor([[1.0, 1.0]]))
    >>> found = diagnose(module, torch.eye(2), [1, 1])
    >>> round(found.gap, 6), found.norm
    (0.0, 'l2')
    """

    norm: str
    degree: float
    min_margin: float
    normalised_margin: float
    parameter_norm: float
    gap: float
    gap_lower: float
    gap_across_kinks: float
    method: Method
    gap_of_loss: float
    margins: Array
    multipliers: Array
    gaps: Mapping[str, float]
    layers: tuple[Layer, ...]
    escape: Escape | None
    function_space: FunctionSpace | None
    warnings: tuple[str, ...]
    excluded: tuple[str, ...]
    seconds: float
    advice: str
    trained_by: str = ""
    notes: tuple[str, ...] = ()
    rest: float | None = None
    images: NDArray[np.generic] | None = None

    @property
    def bounds(self) -> dict[str, tuple[float, float]]:
        """Lower bound and norm of each layer at smallest margin 1, by the parameter's name."""
        return {layer.name: (layer.lower, layer.norm) for layer in self.layers}

    @property
    def farthest_layer(self) -> Layer | None:
        """The layer of the largest KKT gap of its own; None where the gap of one is not known."""
        if any(math.isnan(layer.gap) for layer in self.layers):
            return None
        return max(self.layers, key=lambda layer: layer.gap, default=None)

    @property
    def direction(self) -> Tensor | None:
        """A change of the farthest layer that lowers its norm and no margin below 1."""
        return None if self.farthest_layer is None else self.farthest_layer.direction

    @property
    def support(self) -> NDArray[np.int64]:
        """Pairs (or samples) of a positive multiplier, as indices, shape (S, 2) or (S,)."""
        places = np.argwhere(self.multipliers > 0)
        return places[:, 0] if self.multipliers.ndim == 1 else places

    @property
    def sample_shares(self) -> Array:
        """Share of each sample in the multipliers, shape (N,): what the network remembers of it.

        At a KKT point the weights are, up to scale, the gradients of the margins in these shares;
        samples of share 0 could be left out.
        """
        weights = self.multipliers.reshape(len(self.multipliers), -1).sum(axis=1)
        return np.asarray(weights / (weights.sum() or 1.0))

    def largest_shares(self, count: int = MOST_SAMPLES) -> list[tuple[int, float, str]]:
        """Return the samples of the largest shares in the multipliers.

        Parameters
        ----------
        count : int
            How many samples, at most.

        Returns
        -------
        list of (int, float, str)
            Index, share, and which class is held against which; "" where there are two classes.
        """
        shares, found = self.sample_shares, list[tuple[int, float, str]]()
        for n in np.argsort(-shares, kind="stable")[: min(count, np.count_nonzero(shares))]:
            classes = ""
            if self.multipliers.ndim == 2:
                classes = f"{self.margins[n].argmax()} against {self.multipliers[n].argmax()}"
            found.append((int(n), float(shares[n]), classes))
        return found

    @property
    def on_kinks(self) -> bool:
        """Whether a KKT point is much nearer than the gradients at the weights say."""
        return self.gap > AT and self.gap_across_kinks <= ANOTHER * self.gap_lower

    @property
    def verdict(self) -> str:
        """All of it in a sentence or two."""
        return _verdict(self) + _of_leading_part(self)

    def __repr__(self) -> str:
        gap = f"gap={self.gap:.3g}"
        if self.method != "exact" and self.gap > AT:
            gap = f"gap between {self.gap_lower:.3g} and {self.gap:.3g}"
        return (
            f"Diagnosis(norm={self.norm!r}, degree={self.degree:.4g}, "
            f"min_margin={self.min_margin:.4g}, {gap}: {self.verdict})"
        )

    def _repr_html_(self) -> str:
        return _page(self)

    def plot(self) -> Figure:
        """Draw margins with their multipliers, gaps by geometry, and the layers' bounds if any."""
        from implicit_bias import report

        return report.draw_diagnosis(self)

    def plot_support(
        self, images: Tensor | ArrayLike | None = None, count: int = MOST_SAMPLES
    ) -> Figure:
        """Draw the samples of the largest shares, with these, and the class each is held against.

        Parameters
        ----------
        images : Tensor or array_like of shape (N, height, width), (N, 1 or 3, height, width)
            The inputs of the diagnosis as images, each brought to the range of its own values; by
            default the inputs themselves, if they are images.
        count : int
            How many samples, at most.

        Raises
        ------
        ValueError
            Another number of samples, or no images.
        """
        from implicit_bias import report

        check_count(count, "count")
        if images is None and self.images is None:
            raise ValueError("the inputs are no images: pass these as images=")
        given = self.images if images is None else images
        return report.draw_support(self, np.asarray(detached(given)), count)


def _verdict(d: Diagnosis) -> str:
    descent = d.trained_by or DESCENTS.get(d.norm, f"steepest descent in {d.norm}")
    others = {name: gap for name, gap in d.gaps.items() if name != d.norm}
    nearest = min(others, key=lambda name: others[name], default="")
    amount = f"KKT gap {percent_bounds(d.gap_lower, d.gap)}"
    amount += ", its search stopped by max_seconds" if d.method == "stopped" else ""
    if d.on_kinks:
        across = percent(d.gap_across_kinks, space=" ")
        amount += f"; at most {across} with the gradients across kinks near the weights"
    gap_lower = min(d.gap_lower, d.gap_across_kinks)
    if nearest and d.gap > AT and others[nearest] <= min(FAR, ANOTHER * gap_lower):
        other = DESCENTS.get(nearest, nearest)
        return (
            f"this is the geometry of {other}, not of {descent}: the KKT gap is at most "
            f"{percent(others[nearest], space=' ')} in {nearest}, "
            f"{percent_bounds(d.gap_lower, d.gap)} in {d.norm}"
        )
    if d.gap > AT:
        gap = min(d.gap, d.gap_across_kinks)
        where = "far from its limit" if gap > FAR else "near a KKT point"
        if gap_lower <= FAR < gap:  # the bounds leave both open
            where = f"perhaps {where}"
        return f"{where} in {d.norm} ({amount}); {d.advice}{_layer(d)}"
    if d.escape is not None and d.escape.claimed:
        saving = percent(d.escape.saving, space=" ")
        return (
            f"at a KKT point in {d.norm} ({amount}), but one more ReLU unit lowers the norm by "
            f"{saving}: it is not the minimum"
        )
    return f"at a KKT point in {d.norm} ({amount}){_in_function_space(d)}"


def _of_leading_part(d: Diagnosis) -> str:
    if d.rest is None:
        return ""
    rest = f"; this is about the leading part, the rest is {percent(d.rest, space=' ')} of it"
    known = d.norm in GRADIENT_DESCENTS
    return rest if known else f"{rest}; no theorem is known for leading parts in {d.norm}"


def _layer(d: Diagnosis) -> str:
    layer = d.farthest_layer
    if layer is None or not layer.gap > WORTH_NAMING:
        return ""
    most = "" if layer.method == "exact" else "at most "
    gap = f"KKT gap {most}{percent(layer.gap, space=' ')}"
    return f"; the farthest layer alone is {layer.name} ({gap})"


def _in_function_space(d: Diagnosis) -> str:
    found = d.function_space
    if found is None or math.isnan(found.excess):
        return ""
    if found.excess <= WORTH_NAMING:
        return f", and at the optimum in function space ({found.family}, {found.norm})"
    helps = ""
    if found.dead_units:
        helps = ": a dead unit would help" if found.dead_units == 1 else ": dead units would help"
    return f", but {percent(found.excess, space=' ')} above the optimum in function space{helps}"


def _page(d: Diagnosis) -> str:
    """Tables for a notebook."""
    rows = [
        *([("trained by", d.trained_by)] if d.trained_by else []),
        ("degree", number(d.degree)),
        *([] if d.rest is None else [("rest beside the leading part", percent(d.rest))]),
        ("smallest margin" + " of the leading part" * (d.rest is not None), number(d.min_margin)),
        ("normalised margin", number(d.normalised_margin)),
        (f"KKT gap in {d.norm}", percent_bounds(d.gap_lower, d.gap)),
        *([("KKT gap across kinks", "≤ " + percent(d.gap_across_kinks))] if d.on_kinks else []),
        ("KKT gap of the loss's weights", percent(d.gap_of_loss)),
        *(
            (f"KKT gap in {name}", "≤ " + percent(gap))
            for name, gap in d.gaps.items()
            if name != d.norm
        ),
    ]
    if d.function_space is not None:
        found = d.function_space
        rows.append((f"{found.family}: {found.norm}", number(found.value)))
        rows.append(("excess", found.obstacle or percent(found.excess)))
    layers = [
        (layer.name, number(layer.lower), number(layer.norm), percent(layer.gap))
        for layer in d.layers
    ]
    shares = [(str(n), percent(x, space=" "), said) for n, x, said in d.largest_shares()]
    warned = "".join(f"<li>{html.escape(text)}</li>" for text in (*d.notes, *d.warnings))
    return (
        f"<div><p><b>{html.escape(d.verdict)}</b></p>"
        + html_table(("measure", "value"), rows)
        + html_table(("layer", "lower bound", "norm", "KKT gap"), layers)
        + html_table(("sample", "share in the multipliers", "classes"), shares)
        + _pictures(d)
        + (f"<ul>{warned}</ul></div>" if warned else "</div>")
    )


def _pictures(d: Diagnosis) -> str:
    """Show the samples of the largest shares, where they are images."""
    if d.images is None:
        return ""
    d.plot_support().savefig(file := io.BytesIO(), format="png")
    source = base64.b64encode(file.getvalue()).decode()
    return f'<img alt="these samples" src="data:image/png;base64,{source}">'
