"""Checks of user input, for the public functions alone: every error names the cause and the cure.

=====================  =====================================================================
for                    checks
=====================  =====================================================================
arrays                 `as_numbers`, `as_finite`, `as_features`, `check_shape`, `owned`
labels                 `as_labels`, `as_class_labels`, `labels_of_any_type`
numbers and names      `check_number`, `check_count`, `check_flag`, `check_choice`
seeds and devices      `as_generator`, `check_seed`, `torch_generator`, `as_device`
=====================  =====================================================================
"""

import difflib
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from numbers import Integral, Real
from reprlib import repr as cut
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    import torch

Array = NDArray[np.float64]
RandomState: TypeAlias = int | np.random.Generator | np.random.RandomState | None
PAGE = 'The page "What is accepted" of the documentation lists modules, inputs and labels.'


class UnsuitableError(ValueError):
    """A problem that a solver does not support, found before it solves anything."""


@contextmanager
def pointing_to_the_page() -> Iterator[None]:
    """Add the page of supported input to an error on a module or on samples.

    Examples
    --------
    >>> try:
    ...     with pointing_to_the_page():
    ...         raise ValueError("labels are text")
    ... except ValueError as error:
    ...     print(error.__notes__[0].partition(" of ")[0])
    The page "What is accepted"
    """
    try:
        yield
    except (TypeError, ValueError) as error:
        if PAGE not in getattr(error, "__notes__", ()):
            error.add_note(PAGE)
        raise


# --- arrays ------------------------------------------------------------------------------------


def detached(values: Any) -> Any:
    """Return the array of a tensor of torch, without its gradient; others as they are."""
    # Where nobody has imported torch nothing is a tensor, and importing it takes seconds.
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(values, torch.Tensor):
        return values
    plain = values.detach().cpu()
    if plain.dtype is torch.bfloat16:  # numpy has no such numbers
        plain = plain.float()
    return plain.numpy()


def as_numbers(values: ArrayLike, name: str) -> Array:
    """Convert to a float64 array of any shape, which may hold NaN and infinity.

    Raises
    ------
    ValueError
        Not numeric, ragged, complex, dates, sparse, or masked.
    """
    from scipy.sparse import issparse  # here: listing the data sets needs numpy only

    if issparse(values):
        raise ValueError(f"{name} must be dense, but is sparse: pass {name}.toarray()")
    check_not_masked(values, name)
    check_columns(values, name)
    try:
        given = np.asarray(detached(values))
        if given.dtype.kind in "cmM":  # numpy would drop imaginary parts and units
            raise TypeError(f"its type is {given.dtype}")
        return np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} is not a numeric array ({error}): encode text, dates and complex numbers as "
            "floats first"
        ) from error


def as_finite(values: ArrayLike, name: str, ndim: int) -> Array:
    """Convert to a float64 array of the given dimension and refuse what is not finite.

    Parameters
    ----------
    values : array_like
        What the user gave.
    name : str
        How the error calls it.
    ndim : int
        The number of dimensions it must have.

    Returns
    -------
    ndarray of float64
        C-contiguous; the same memory where nothing had to change.

    Raises
    ------
    ValueError
        See `as_numbers`; or of another dimension, or with NaN or infinity in it.
    """
    numbers = as_numbers(values, name)
    if numbers.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} dimension(s), got shape {numbers.shape}")
    array = np.ascontiguousarray(numbers)
    if not np.isfinite(array).all():
        bad = np.argwhere(~np.isfinite(array))
        place = tuple(bad[0].tolist())
        cure = ": impute or drop these samples first"
        if name in ("coef", "alpha"):  # of a solver, and not of the data
            cure = ""
        raise ValueError(
            f"{name} contains NaN or infinity at {len(bad)} place(s), the first at index "
            f"{place}{cure}"
        )
    return array


def as_features(X: ArrayLike, n_features: int, name: str = "X") -> Array:
    """Convert inputs to a float64 matrix (n, D) and check D against what was fitted."""
    X = as_finite(X, name, 2)
    if X.shape[1] != n_features:
        raise ValueError(
            f"{name} has {X.shape[1]} features, but the model was built for {n_features}: "
            "pass inputs with the columns (and the constant) used for fitting"
        )
    return X


def check_shape(array: NDArray[Any], name: str, shape: tuple[int, ...], meaning: str) -> None:
    """Refuse an array of another shape, and say what the right one means."""
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {array.shape}: {meaning}")


def check_not_text(values: ArrayLike, name: str, cure: str) -> None:
    """Refuse text, which numpy converts where it looks like numbers."""
    if np.asarray(detached(values)).dtype.kind in "US":
        raise ValueError(f"{name} is text: {cure}")


def check_columns(values: object, name: str) -> None:
    """Refuse a frame of pandas with columns of text, and name these."""
    # Where nobody has imported pandas nothing is a frame.
    pandas = sys.modules.get("pandas")
    if pandas is None or not isinstance(values, pandas.DataFrame):
        return
    of_text = []
    for label, column in values.items():
        if column.dtype.kind in "biuf":
            continue
        try:
            np.asarray(column, dtype=np.float64)
        except ValueError:
            of_text.append(repr(label))
        except TypeError:  # dates or missing values, which others refuse
            continue
    if of_text:
        raise ValueError(
            f"{name} has columns of text, {', '.join(of_text[:5])}: leave them out, or make "
            "numbers of them, as pandas.get_dummies and scikit-learn's OneHotEncoder do"
        )


def check_not_masked(values: object, name: str) -> None:
    """Refuse a masked array, whose mask numpy would ignore."""
    if np.ma.isMaskedArray(values):
        raise ValueError(
            f"{name} is a masked array, whose mask would be ignored: pass {name}.filled(value), or "
            "drop the samples that are masked"
        )


def owned(array: Array, given: object) -> Array:
    """Return an array that nobody else can change in place, read-only.

    Parameters
    ----------
    array : ndarray
        What was made of the caller's values.
    given : object
        The caller's values.

    Returns
    -------
    ndarray
        The array; or a copy, where the caller can write to its memory.
    """
    if not is_frozen(array) and np.may_share_memory(array, np.asarray(detached(given))):
        array = array.copy()
    array.setflags(write=False)
    return array


def is_frozen(array: NDArray[Any]) -> bool:
    """Whether nobody can write to an array: it is read-only, and so is what it is a view of."""
    memory: object = array
    while isinstance(memory, np.ndarray):
        if memory.flags.writeable:
            return False
        memory = memory.base
    if memory is None:
        return True
    # The memory is no array's: a file's, say, that is mapped read-only, or a tensor's.
    try:
        return memoryview(memory).readonly  # type: ignore[arg-type]
    except TypeError:
        return False


# --- labels ------------------------------------------------------------------------------------


def labels_of_any_type(y: ArrayLike) -> NDArray[Any]:
    """Convert labels to an array (n,), whatever they are: numbers, text, objects.

    Raises
    ------
    ValueError
        Masked, or not one per sample.
    """
    check_not_masked(y, "y")
    labels = np.asarray(detached(y))
    check_one_each(labels, "y")
    check_one_type(labels, "y")
    return labels


def check_one_type(labels: NDArray[Any], name: str) -> None:
    """Refuse labels of types that have no common order, such as text and numbers."""
    try:
        np.unique(labels)
    except TypeError as error:
        types = sorted({type(label).__name__ for label in labels.ravel().tolist()})
        raise ValueError(
            f"{name} has labels of the types {' and '.join(types)}, which have no common order: "
            f"make all of them text, as numpy.asarray({name}, dtype=str) does"
        ) from error


def check_one_each(labels: NDArray[Any], name: str) -> None:
    """Refuse all but one label per sample, (N,), and say what to make of one-hot rows."""
    if labels.ndim != 1:
        raise ValueError(
            f"{name} must have one dimension, one label a sample, got shape {labels.shape}: pass "
            f"{name}.ravel() of a column, {name}.argmax(1) of one-hot rows"
        )


def as_class_labels(
    y: ArrayLike, n_samples: int, classes: int | None = None
) -> tuple[NDArray[Any], int | None]:
    """Convert labels to float64 -1 and +1 (n,), or to integers 0 .. K - 1 (n,) and K.

    Integers are classes where K is given, or where the largest is 2 or more. Some samples of a
    larger problem may lack a class, if K is given.

    Raises
    ------
    ValueError
        Other labels, or not one per sample; an empty class where K is not given.
    """
    if classes is not None:
        check_count(classes, "classes", 2)
    labels = _numbers_one_each(y, n_samples)
    whole = np.array_equal(labels, np.floor(labels)) and labels.min() >= 0
    if classes is None and not (whole and labels.max() >= 2):
        _check_signs(labels)
        return labels, None

    count = int(labels.max()) + 1
    if classes is not None:
        count = int(classes)
    if not whole or labels.max() >= count:
        raise ValueError(
            f"labels of {count} classes must be integers 0 .. {count - 1}, got "
            f"{np.unique(labels)[:5].tolist()}: recode them (-1 and +1 as "
            "(y + 1) // 2, others as np.unique(y, return_inverse=True)[1])"
        )
    found = np.unique(labels)
    if classes is None and len(found) < count:
        missing = np.argmax(found != np.arange(len(found)))
        raise ValueError(
            f"class {missing} has no samples, but there are labels up to {count - 1}: number the "
            "classes 0 .. K - 1, as np.unique(y, return_inverse=True)[1] does"
        )
    return labels.astype(np.int64), count


def as_labels(y: ArrayLike, n_samples: int) -> Array:
    """Convert labels to float64 (n,) and refuse all but -1 and +1, one per sample."""
    labels = _numbers_one_each(y, n_samples)
    _check_signs(labels)
    return labels


def _numbers_one_each(y: ArrayLike, n_samples: int) -> Array:
    check_not_text(
        y,
        "y",
        "number the classes, as np.unique(y, return_inverse=True)[1] does, or use the estimators, "
        "such as MaxMarginSVC, which take classes of any type",
    )
    labels = as_numbers(y, "y")
    check_one_each(labels, "y")
    labels = as_finite(labels, "y", 1)
    if n_samples == 0 or len(labels) != n_samples:
        raise ValueError(
            f"X has {n_samples} rows and y has {len(labels)} labels: pass one label a row, and "
            "at least one row"
        )
    return labels


def _check_signs(labels: Array) -> None:
    if not np.isin(labels, (-1.0, 1.0)).all():
        raise ValueError(
            f"labels must be -1 or +1, got {np.unique(labels)[:5].tolist()}: recode them (more "
            "than two classes as 0 .. K - 1), or use the estimators, which take classes of any "
            "type"
        )


# --- numbers and names -------------------------------------------------------------------------


def check_number(value: object, name: str, within: str = "") -> None:
    """Refuse what is no real number, or none of an interval: truth values and text are no numbers.

    Parameters
    ----------
    value : object
        What the user gave.
    name : str
        How the error calls it.
    within : str
        The interval, as it is written in mathematics: "(0, 1]" has 1 but not 0. Any number where
        not given.

    Raises
    ------
    TypeError
        Not a number.
    ValueError
        Outside the interval, or NaN.

    Examples
    --------
    >>> check_number(0.5, "momentum", "[0, 1)")
    """
    if _means_no_number(value) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, got {value!r}: pass one such as 0.5 or 1e-6")
    if not within:
        return
    low, high = map(float, within[1:-1].split(","))
    number = float(value)
    at_an_open_end = (number == low and within[0] == "(") or (number == high and within[-1] == ")")
    if not low <= number <= high or at_an_open_end:
        raise ValueError(f"{name} must be in {within}, got {value!r}")


def _means_no_number(value: object) -> bool:
    """Whether a value is of a type that counts as `Integral`, although its user means no number."""
    return isinstance(value, bool | np.timedelta64)


def check_count(value: object, name: str, least: int = 1, most: int | None = None) -> None:
    """Raise ValueError unless a value is a whole number from ``least`` to ``most``."""
    if _means_no_number(value) or not isinstance(value, Integral):
        raise ValueError(f"{name} must be a whole number, at least {least}, got {value!r}")
    if int(value) < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    if most is not None and int(value) > most:
        raise ValueError(f"{name} must be at most {most}, got {value}")


def check_flag(value: object, name: str) -> None:
    """Raise TypeError unless a value is True or False: any text, even "no", counts as true."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False, got {cut(value)}")


def check_choice(
    value: object,
    name: str,
    choices: Iterable[str],
    otherwise: str = "",
    synonyms: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Raise ValueError unless a value is one of some names, of which the nearest is suggested.

    ``otherwise`` says what else may be, and ``synonyms`` what other words, in lower case, mean.
    """
    names = tuple(choices)
    if isinstance(value, str) and value in names:
        return
    allowed = ", ".join(names)
    if otherwise:
        allowed += f", or {otherwise}"
    meant = ""
    if isinstance(value, str):
        # Without case, as 'L2' means 'l2'.
        by_lower_case = {choice.lower(): choice for choice in names}
        near = difflib.get_close_matches(value.lower(), by_lower_case, 1)
        if value.lower() in synonyms:
            near = [synonyms[value.lower()]]
        if near:
            meant = f" (did you mean {by_lower_case[near[0]]!r}?)"
    raise ValueError(f"{name} must be one of {allowed}; got {cut(value)}{meant}")


# --- seeds and devices -------------------------------------------------------------------------


def as_generator(random_state: RandomState) -> np.random.Generator:
    """Make a numpy generator of anything that scikit-learn takes as a seed."""
    return np.random.default_rng(random_state)


def check_seed(value: object, name: str = "seed") -> None:
    """Raise ValueError unless a value is a whole number that torch's generators take."""
    check_count(value, name, -(2**63), 2**64 - 1)


def torch_generator(seed: int) -> "torch.Generator":
    """Return torch's generator of a seed, which may be a whole number of numpy's."""
    import torch

    check_seed(seed)
    return torch.Generator().manual_seed(int(seed))


def as_device(name: str) -> str:
    """Check that torch has a device of this name: ValueError where it has none."""
    if name == "cpu":
        return name
    import torch

    try:
        torch.zeros(1, device=name)
    except (AssertionError, RuntimeError) as error:
        raise ValueError(
            f"device {name!r} cannot be used ({str(error).splitlines()[0][:120]}): choose 'cpu'"
        ) from error
    return name
