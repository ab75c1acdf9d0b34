"""Learned predictors and support vectors as images."""

from collections.abc import Iterator, Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from implicit_bias.base.validation import Array
from implicit_bias.comparison import first_svm
from implicit_bias.estimators.base import FittedMargin
from implicit_bias.report.figures.base import Plot, Subject, short_label
from implicit_bias.report.figures.units import ONE_GROUP
from implicit_bias.report.style import GREY, WIDTH
from implicit_bias.report.words import signed

# Most units, contexts and support vectors shown as images.
MAX_UNITS, MAX_CONTEXTS, MAX_SUPPORT, IMAGES_A_ROW = 4, 4, 8, 4


def predictor_plots(subject: Subject) -> Iterator[Plot]:
    """Show the coefficients of the largest units as images."""
    shape = subject.train.image_shape
    if shape is None:
        return
    number = 0
    for same in subject.comparison.programs():
        pictured = [
            model
            for model in same
            if model.name in subject.on_inputs and reads_inputs(model.known_margin.fitted)
        ]
        if not pictured:
            continue
        # Of many classes the rows of each, class by class.
        fitted = {model.name: model.known_margin.fitted for model in pictured}
        views = {name: view.coef.reshape(-1, view.coef.shape[-1]) for name, view in fitted.items()}
        coefs = {name: coef / np.linalg.norm(coef) for name, coef in views.items()}
        first = (first_svm(pictured) or pictured[0]).name
        one_group = same[0].known_margin.units == 1
        largest = "longest zeta" if one_group else "largest norm"
        units = subject.fitted[first].architecture.gating.groups
        # A network shows what its SVM shows, unless the SVM may use units that it does not have.
        shown = {name: name if view.relaxed else first for name, view in fitted.items()}
        if subject.train.classes is None:
            said, tiles = f"the units with the {largest}", {first: _tiles(coefs[first], units)}
        else:
            said, names = "of each class the longest zeta", subject.class_names
            tiles = {by: _class_tiles(coefs[by], units, names) for by in set(shown.values())}
        pixels = shape[0] * shape[1]
        limit = max(
            float(np.abs(coef[column, :pixels]).max())
            for name, coef in coefs.items()
            for row in tiles[shown[name]]
            for column, _ in row
        )
        for name, coef in coefs.items():
            number += 1
            rows, chosen = tiles[shown[name]], f"{said} in {shown[name]}"
            images = coef[:, :pixels].reshape(-1, *shape)  # C order, as in Dataset
            titled = [(title, images[column]) for row in rows for column, title in row]
            width = max(map(len, rows))
            yield Plot(
                f"predictors-{number}",
                image_grid(name, titled, width, "PuOr_r", (-limit, limit)),
                f"Weights of {name} as images, of {chosen}",
                f"{name}: {chosen}"
                + (ONE_GROUP if one_group else "")
                + ". The colour scale is the same for all models of this program, whose weights "
                "have total length 1.",
                raster=True,
            )


def reads_inputs(fitted: FittedMargin) -> bool:
    """Whether the coefficients apply to the inputs themselves, and are not all zero."""
    return fitted.architecture.representation is None and bool(np.any(fitted.coef))


def _tiles(coef: Array, units: NDArray[np.int64]) -> list[list[tuple[int, str]]]:
    """Gate columns to show, each with its title: a row a unit, or one row for all.

    ``coef`` is (M, D); ``units`` (M,) is the unit of each column.
    """
    squares = np.einsum("md,md->m", coef, coef)
    norms = np.bincount(units, weights=squares)
    rows = []
    for unit in np.argsort(-norms, kind="stable")[:MAX_UNITS]:
        columns = np.flatnonzero(units == unit)
        largest = np.argsort(-squares[columns], kind="stable")[:MAX_CONTEXTS]
        rows.append([(int(columns[c]), f"unit {unit}, context {c}") for c in np.sort(largest)])
    if len(units) == len(norms):  # one column a unit
        return [[(column, f"unit {units[column]}") for row in rows for column, _ in row]]
    return rows


def _class_tiles(
    coef: Array, units: NDArray[np.int64], names: Sequence[str]
) -> list[list[tuple[int, str]]]:
    """Row of coefficients to show for each class, with its title, `IMAGES_A_ROW` in a row.

    ``coef`` is (K M, D), class by class; ``units`` (M,) is the unit of each gate column.
    """
    lengths = np.linalg.norm(coef, axis=1).reshape(len(names), -1)
    longest = lengths.argmax(axis=1).tolist()
    tiles = []
    for k, (name, column) in enumerate(zip(names, longest, strict=True)):
        unit = f": unit {units[column]}" if len(np.unique(units)) > 1 else ""
        tiles.append((k * len(units) + column, f"{short_label(name)}{unit}"))
    return [tiles[i : i + IMAGES_A_ROW] for i in range(0, len(tiles), IMAGES_A_ROW)]


def support_plots(subject: Subject) -> Iterator[Plot]:
    """Show the support vectors of largest alpha as images."""
    train = subject.train
    if train.image_shape is None:
        return
    height, width = train.image_shape
    pixels = train.X[:, : height * width]
    images, limits = pixels.reshape(-1, height, width), (float(pixels.min()), float(pixels.max()))
    solved = [name for name in subject.fitted if len(subject.support(name))]
    for i, name in enumerate(solved, 1):
        support, solution = subject.support(name), subject.fitted[name].solution
        assert solution is not None
        # Of many classes a sample has one alpha for each rival, which count together.
        alpha = solution.alpha.reshape(len(solution.alpha), -1).sum(axis=1)
        largest = support[np.argsort(-alpha[support], kind="stable")][:MAX_SUPPORT]
        written = [
            signed(label) if train.classes is None else short_label(train.names[int(label)])
            for label in train.y[largest]
        ]
        tiles = [
            (f"{label}   α {alpha[n]:.2g}", images[n])
            for label, n in zip(written, largest, strict=True)
        ]
        yield Plot(
            f"support-{i}",
            image_grid(name, tiles, IMAGES_A_ROW, "gray_r", limits),
            f"Images of the support vectors of {name} with the largest alpha",
            f"{name}: {len(largest)} of its {len(support)} support vectors, with label and alpha.",
            raster=True,
        )


def image_grid(
    title: str,
    tiles: Sequence[tuple[str, Array]],
    n_columns: int,
    colours: str,
    limits: tuple[float, float],
) -> Figure:
    """Images in rows of ``n_columns``, each under its own title."""
    n_columns = max(1, min(n_columns, len(tiles)))
    n_rows = max(1, -(-len(tiles) // n_columns))
    side = min(WIDTH / n_columns, WIDTH / 2.6)
    figure = Figure(figsize=(WIDTH, 0.4 + n_rows * (side + 0.2)), layout="constrained")
    figure.suptitle(short_label(title), fontsize=10, fontweight="bold")
    for ax in (grid := figure.subplots(n_rows, n_columns, squeeze=False)).flat:
        ax.set_axis_off()
    for ax, (name, image) in zip(grid.flat, tiles, strict=False):
        ax.imshow(image, cmap=colours, vmin=limits[0], vmax=limits[1], interpolation="nearest")
        ax.set_title(name, fontsize=8.5, fontweight="normal", pad=3)
        ax.set_axis_on()
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set(visible=True, color=GREY)
    return figure
