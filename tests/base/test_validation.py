"""The shared checks of user input: what they return, and what they refuse."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch

import implicit_bias as ib
from implicit_bias.base import validation

HOLES = np.where(np.arange(6).reshape(3, 2) == 3, np.nan, 1.0)


@pytest.mark.parametrize(
    "values",
    [
        [[1, 2.5], [3, 4]],
        pd.DataFrame({"a": [1, 3], "b": [2.5, 4.0]}),
        torch.tensor([[1.0, 2.5], [3.0, 4.0]], requires_grad=True),
        torch.tensor([[1.0, 2.5], [3.0, 4.0]], dtype=torch.bfloat16),
    ],
)
def test_arrays_of_many_kinds_are_float64(values: Any) -> None:
    array = validation.as_finite(values, "X", 2)
    assert array.dtype == np.float64
    assert array.flags.c_contiguous
    assert array.tolist() == [[1.0, 2.5], [3.0, 4.0]]


def test_an_array_that_is_right_is_not_copied() -> None:
    X = np.ones((3, 2))
    assert validation.as_finite(X, "X", 2) is X


@pytest.mark.parametrize(
    ("values", "word"),
    [
        (HOLES, r"NaN or infinity at 1 place.*\(1, 1\)"),
        (np.ones(3), "dimension"),
        ([["a", "b"]], "not a numeric array"),
        (np.ones((2, 2)) + 1j, "complex"),
        (sp.csr_array(np.ones((2, 2))), "toarray"),
        (np.ma.masked_less(np.ones((2, 2)), 2), "masked"),
    ],
)
def test_arrays_that_would_be_misread_are_refused(values: Any, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        validation.as_finite(values, "X", 2)


def test_an_owned_array_does_not_change_with_the_callers() -> None:
    given = np.ones(3)
    kept = validation.owned(given, given)
    given[0] = 7.0
    assert kept.tolist() == [1.0, 1.0, 1.0]
    assert not kept.flags.writeable
    frozen = np.ones(3)
    frozen.setflags(write=False)
    assert validation.owned(frozen, frozen) is frozen


def test_a_read_only_view_of_a_writable_array_is_not_shared() -> None:
    given = np.ones(3)
    view = given[:2]
    view.setflags(write=False)
    kept = validation.owned(view, view)
    given[0] = 7.0
    assert kept.tolist() == [1.0, 1.0]
    given.setflags(write=False)
    part = given[1:]
    assert validation.owned(part, part) is part


def test_a_read_only_array_on_memory_that_others_write_to_is_not_shared() -> None:
    memory = torch.ones(3, dtype=torch.float64)
    buffer = bytearray(np.ones(3).tobytes())
    of_tensor = memory.numpy()
    of_buffer = np.frombuffer(buffer)
    kept = []
    for view in (of_tensor, of_buffer):
        view.setflags(write=False)
        kept.append(validation.owned(view, view))
    memory[:] = 7.0
    buffer[:8] = np.full(1, 7.0).tobytes()
    assert [array.tolist() for array in kept] == [[1.0, 1.0, 1.0]] * 2
    constant = np.frombuffer(bytes(24))
    assert validation.owned(constant, constant) is constant


def test_labels_are_signs_or_places() -> None:
    signs, classes = validation.as_class_labels([1, -1, 1], 3)
    assert (signs.tolist(), classes) == ([1.0, -1.0, 1.0], None)
    places, classes = validation.as_class_labels([0, 2, 1], 3)
    assert (places.tolist(), classes) == ([0, 2, 1], 3)
    assert places.dtype == np.int64
    some, classes = validation.as_class_labels([0, 1], 2, classes=4)
    assert (some.tolist(), classes) == ([0, 1], 4)


@pytest.mark.parametrize(
    ("labels", "classes", "word"),
    [
        (["a", "b"], None, "text"),
        ([0, 1], None, "-1 or"),
        ([0, 3], None, "class 1 has no samples"),
        ([0.5, 1.0], 3, "integers"),
        ([1, -1, 1], None, "2 rows"),
        (np.eye(2), None, "argmax"),
    ],
)
def test_other_labels_are_refused(labels: Any, classes: int | None, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        validation.as_class_labels(labels, 2, classes)


@pytest.mark.parametrize("value", [0.0, 1.0, np.nan])
def test_numbers_outside_an_interval_are_refused(value: float) -> None:
    with pytest.raises(ValueError, match="rate"):
        validation.check_number(value, "rate", "(0, 1)")


def test_ends_of_an_interval() -> None:
    validation.check_number(1, "rate", "(0, 1]")
    validation.check_number(np.float32(0), "rate", "[0, 1)")
    validation.check_number(np.inf, "C", "(0, inf]")


@pytest.mark.parametrize("value", [True, "1"])
def test_what_is_no_number(value: Any) -> None:
    with pytest.raises(TypeError, match="rate"):
        validation.check_number(value, "rate", "(0, 1]")
    with pytest.raises(ValueError, match="count"):
        validation.check_count(value, "count")


def test_counts_flags_and_choices() -> None:
    validation.check_count(np.int64(3), "count", 1, 3)
    for value in (0, 4, 1.0):
        with pytest.raises(ValueError, match="count"):
            validation.check_count(value, "count", 1, 3)
    validation.check_flag(np.True_, "flag")
    with pytest.raises(TypeError, match="flag"):
        validation.check_flag("no", "flag")
    validation.check_choice("auto", "solver", ("auto", "scs"))
    for choice in ("uato", "AUTO"):
        with pytest.raises(ValueError, match="did you mean 'auto'"):
            validation.check_choice(choice, "solver", ("auto", "scs"))
    with pytest.raises(ValueError, match="did you mean 'l2'"):  # the same norm by another word
        ib.max_margin(np.eye(2), [1, -1], "Euclidean")


def test_seeds() -> None:
    draws = validation.as_generator(5).random(3)
    np.testing.assert_array_equal(draws, np.random.default_rng(5).random(3))
    generator = np.random.default_rng(1)
    assert validation.as_generator(generator) is generator
    assert validation.torch_generator(3).initial_seed() == 3
    with pytest.raises(ValueError, match="seed"):
        validation.check_seed(2**64)


def test_devices() -> None:
    assert validation.as_device("cpu") == "cpu"
    with pytest.raises(ValueError, match="device"):
        validation.as_device("nowhere")


def test_columns_of_text_are_named() -> None:
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"], "c": [1, 0]})
    with pytest.raises(ValueError, match="'b'"):
        ib.MaxMarginSVC().fit(frame, [1, -1])
    ib.MaxMarginSVC().fit(frame.drop(columns="b").astype(object), [1, -1])


def test_labels_of_text_and_numbers_are_refused() -> None:
    mixed = np.array(["yes", 3], dtype=object)
    with pytest.raises(ValueError, match="types int and str"):
        ib.MaxMarginSVC().fit(np.eye(2), mixed)
