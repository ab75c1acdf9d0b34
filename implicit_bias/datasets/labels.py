"""Labels as classes: their names, and which of them are +1 and -1, or 0 .. K - 1."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

# How a user names a class: its label, as text or as a number.
ClassName: TypeAlias = str | int
# Labels -1 and +1 (m,), or 0 .. K - 1; which samples these are, bool (n,); and the classes' names.
Labelled: TypeAlias = tuple[NDArray[Any], NDArray[np.bool_], tuple[str, ...]]


def class_names(labels: NDArray[Any]) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Return the names of the classes, in order, and the number (n,) of each label's class."""
    classes, numbers = np.unique(labels, return_inverse=True)
    return tuple(label_text(label) for label in classes.tolist()), numbers.astype(np.int64)


def label_text(label: object) -> str:
    """Write a label: 1.0 as 1, as the user would, and whole numbers with all their digits."""
    if isinstance(label, float) and label.is_integer():
        label = int(label)
    return str(label)


def select(
    names: Sequence[str],
    numbers: NDArray[np.int64],
    positive: Collection[ClassName] | None,
    negative: Collection[ClassName] | None,
    classes: Collection[ClassName] | None,
) -> Labelled:
    """Label the samples of the classes that a user names, and leave out the others.

    Parameters
    ----------
    names : sequence of str
        Names of all classes.
    numbers : ndarray of shape (n,)
        The class of each sample, as an index of ``names``.
    positive, negative, classes : collection of str or int, optional
        See `load_own`.
    """
    if classes is None:
        return two_classes(names, numbers, positive, negative)
    if positive is not None or negative is not None:
        raise ValueError(
            "classes are kept apart, positive and negative are two sides: leave one of them out"
        )
    return several_classes(names, numbers, classes)


def two_classes(
    names: Sequence[str],
    numbers: NDArray[np.int64],
    positive: Collection[ClassName] | None,
    negative: Collection[ClassName] | None,
) -> Labelled:
    """Label samples of several classes with +1 and -1.

    Raises
    ------
    ValueError
        More than two classes and neither ``positive`` nor ``negative``, an unknown name, a class
        on both sides, or none on one.
    """
    everything = set(range(len(names)))
    plus = set(_places(positive or (), names))
    minus = set(_places(negative or (), names))

    if positive is None and negative is None:
        if len(names) > 2:
            raise ValueError(
                f"there are {len(names)} classes ({listed(names)}): name those of +1 by "
                "--positive (in Python positive=[...]), and the rest are -1; or keep all apart by "
                "--classes all (classes=['all'])"
            )
        minus = {0}
        plus = {1}
    elif positive is None:
        plus = everything - minus
    elif negative is None:
        minus = everything - plus

    if minus & plus:
        both = _joined(minus & plus, names)
        raise ValueError(f"{both} are both positive and negative: name each once")
    if not minus or not plus:
        raise ValueError(
            "no class is left for the other side: name one at least, and leave one out of the names"
        )

    is_plus = np.isin(numbers, list(plus))
    chosen = is_plus | np.isin(numbers, list(minus))
    signs = np.where(is_plus[chosen], 1.0, -1.0)
    # A side of several classes is called by all of their names; that of -1 comes first.
    return signs, chosen, (_joined(minus, names), _joined(plus, names))


def several_classes(
    names: Sequence[str], numbers: NDArray[np.int64], classes: Collection[ClassName]
) -> Labelled:
    """Label samples with the places 0 .. K - 1 of some classes among these, in any order.

    Two classes are labelled -1 and +1.

    Raises
    ------
    ValueError
        Fewer than two classes, or an unknown name.

    Examples
    --------
    >>> labels, chosen, called = several_classes("abcd", np.array([3, 0, 1, 2]), ["d", "a", "c"])
    >>> labels.tolist(), chosen.tolist(), called
    ([2, 0, 1], [True, True, False, True], ('a', 'c', 'd'))
    """
    if tuple(classes) == ("all",):
        places = list(range(len(names)))
    else:
        # In the order of all classes, not of the names as they were typed: labels are places in it.
        places = sorted(set(_places(classes, names)))
    if len(places) < 2:
        raise ValueError(f"name two classes or more, of {listed(names)}; or all")
    place_of = np.full(len(names), -1)  # of classes that are left out
    place_of[places] = np.arange(len(places))
    chosen = place_of[numbers] >= 0
    labels: NDArray[Any] = place_of[numbers[chosen]]
    if len(places) == 2:
        labels = 2.0 * labels - 1.0
    return labels, chosen, tuple(names[k] for k in places)


def _places(asked: Collection[ClassName], names: Sequence[str]) -> list[int]:
    """Return the index of each of the classes that a user names."""
    return [find_class(name, names) for name in asked]


def _joined(places: Collection[int], names: Sequence[str]) -> str:
    """Return the names of some classes, in their order, as one text."""
    return ", ".join(names[k] for k in sorted(places))


def find_class(asked: ClassName, names: Sequence[str]) -> int:
    """Return the index of a class by its name; capitals count only where they must.

    Raises
    ------
    ValueError
        No class, or several, of that name.
    """
    text = str(asked)
    if text in names:
        return list(names).index(text)
    alike = [k for k, name in enumerate(names) if name.casefold() == text.casefold()]
    if len(alike) == 1:
        return alike[0]
    raise ValueError(
        f"no class is called {text!r}: the classes are {listed(names, text)}; on a command line "
        "several are separated by commas"
    )


def listed(names: Sequence[str], near: str = "", *, most: int = 10) -> str:
    """Join names, of many only the first, and ask for the one that is most like ``near``."""
    text = ", ".join(names[:most])
    if len(names) > most:
        text += f", ... ({len(names)} in all)"
    for name in difflib.get_close_matches(near, names, 1):
        text += f" (did you mean {name}?)"
    return text
