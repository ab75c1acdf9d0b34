"""What a saved model says of the rows of another file."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from implicit_bias.base.counts import Count
from implicit_bias.comparison import TRUE, score_columns, scores_of
from implicit_bias.datasets.labels import class_names
from implicit_bias.datasets.own import read_table
from implicit_bias.estimators.saved_models import SavedModel


def predict_file(
    saved: SavedModel, file: Path, name: str, id: Collection[str] | None = None
) -> tuple[pd.DataFrame, Count | None]:
    """Predict the class of each row of a table with the columns that a model was fitted to.

    Parameters
    ----------
    saved : SavedModel
        Of a table of the user's own.
    file : Path
        CSV, TSV or Parquet.
    name : str
        Heading of the predictions.
    id : collection of str, optional
        Columns that are carried along; by default those of the model's own file that are there.

    Returns
    -------
    DataFrame
        One row a row of the file: its number, from 1, what names it, its label if the file has one,
        the class that the model gives it, and its scores.
    Count or None
        Rows of another class than their label; None where the file has no labels.

    Raises
    ------
    ValueError
        A model of other data, or a file that lacks a column or a value.
    """
    made, facts = saved.preparation, saved.facts
    if made is None or not made.names:
        raise ValueError(
            "the model was not fitted to a table with named columns (`fit`, `train` or `compare` "
            "with --data): in Python load_model(FILE).predict(X) takes its inputs"
        )
    try:
        rows = read_table(file, facts.get("target"), facts.get("id", ()) if id is None else id)
        known = set(map(str, rows.columns))
        kept = [each for each in facts.get("id", ()) if each in known] if id is None else id
        if unknown := [each for each in kept if each not in known]:
            raise ValueError(f"no column is called {', '.join(unknown)}")
        table = pd.DataFrame({"row": np.arange(1, len(rows) + 1)})
        table = table.assign(**{each: rows[each].to_numpy() for each in kept})
        decision, names = saved.model.decision_function(made(rows)), _text(made.labels)
        places = np.searchsorted(saved.model.classes_, saved.model.classes_of(decision))
        found, wrong = names[places], None
        if (target := facts.get("target")) in known:
            there = rows[target].notna().to_numpy()
            labels = _text(rows[target][there].to_numpy())
            classes = {part: each for each in names for part in each.split(", ")}
            right = np.array([classes.get(label, label) for label in labels]) == found[there]
            table.loc[there, TRUE] = labels
            wrong = Count(int(np.count_nonzero(~right)), len(labels))
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error
    scores = score_columns(name, scores_of(decision, names))
    return table.assign(**{name: found}, **scores), wrong


def _text(labels: NDArray[Any]) -> NDArray[Any]:
    """Write labels as the names of classes."""
    names, numbers = class_names(labels)
    return np.array(names)[numbers]
