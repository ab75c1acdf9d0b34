"""From a configuration to its data, without torch: what is wrong with them is said at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from implicit_bias.base.validation import check_number
from implicit_bias.datasets.catalogue import load
from implicit_bias.datasets.dataset import Dataset, Split, filled, split, standardized
from implicit_bias.datasets.labels import find_class
from implicit_bias.datasets.own import load_own
from implicit_bias.runs.configuration import RunConfig, chosen

if TYPE_CHECKING:
    from implicit_bias.comparison import Comparison
    from implicit_bias.estimators.base import BinaryClassifier, ClassWeight

# Training samples where the user names no number: at most these, and at most 4/5 of the data.
DEFAULT_TRAIN_SIZE = 1000


@dataclass(frozen=True, eq=False)
class Data:
    """The data of a configuration: all samples, the split, and the weights of the classes."""

    everything: Dataset
    parts: Split
    class_weight: ClassWeight = None

    def compare(self, models: Mapping[str, BinaryClassifier]) -> Comparison:
        """Compare models that were fitted to the training samples, on the validation samples."""
        from implicit_bias.comparison import compare

        train, validation = self.parts.train, self.parts.validation
        found = compare(models, validation.X, validation.y, train=(train.X, train.y))
        return replace(found, own=None if validation.preparation is None else self.parts)


def load_data(config: RunConfig) -> Data:
    """Load and split the data of a configuration.

    Raises
    ------
    DataError
        Missing or corrupt files.
    ValueError
        More training samples than there are; weights of other classes; or a file of the user's own
        that is no data set (see `load_own`).
    """
    classes = chosen(config, "positive", "negative", "classes")
    if config.data is None:
        everything = load(config.dataset, **classes)
    else:
        cleaning = chosen(config, "encode", "missing", "ignore", "id")
        everything = load_own(config.data, config.target, **classes, **cleaning)
    size = config.train_size
    if size is None:
        size = min(DEFAULT_TRAIN_SIZE, len(everything) * 4 // 5)
    parts = split(everything, size, seed=config.split_seed)
    if not everything.complete:
        parts = filled(parts)
    weights = class_weights(config.class_weight, everything)
    return Data(everything, standardized(parts) if config.standardize else parts, weights)


def class_weights(given: Sequence[str] | None, data: Dataset) -> ClassWeight:
    """Return the weights of classes as an estimator takes them, by label.

    Parameters
    ----------
    given : sequence of str, optional
        "balanced", or a weight for each class, NAME=WEIGHT.
    data : Dataset
        Whose classes have these names.

    Raises
    ------
    ValueError
        Not such words, or no such class.
    """
    if given is None:
        return None
    if tuple(given) == ("balanced",):
        return "balanced"
    labels, weights = list(data.names), dict[int, float]()
    for item in given:
        name, _, weight = item.rpartition("=")
        try:
            place = find_class(name, data.class_names)
            check_number(number := float(weight), "the weight", "[0, inf)")
            weights[labels[place]] = number
        except ValueError as error:
            raise ValueError(
                f"class_weight is balanced, or a weight for each class, such as "
                f"{data.class_names[0]}=2; got {item!r} ({error})"
            ) from error
    return weights
