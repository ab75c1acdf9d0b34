"""Labels as classes, by brute force."""

import numpy as np
import pytest

from implicit_bias.datasets.labels import class_names, find_class, label_text, listed, two_classes

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("n_classes", [2, 3, 5])
@pytest.mark.parametrize("positive", [None, ["b"], ["b", "A"]])
@pytest.mark.parametrize("negative", [None, ["c"]])
def test_sides_by_brute_force(
    n_classes: int, positive: list[str] | None, negative: list[str] | None
) -> None:
    names, numbers = "Abcde"[:n_classes], RNG.integers(n_classes, size=30)
    refusals = {
        "--positive": not positive and not negative and n_classes > 2,
        "no class is called": negative and n_classes == 2,
        "other side": positive == ["b", "A"] and n_classes == 2,
    }
    if said := next(filter(refusals.get, refusals), ""):
        with pytest.raises(ValueError, match=said):
            two_classes(names, numbers, positive, negative)
        return
    signs, chosen, _ = two_classes(names, numbers, positive, negative)
    expected = []
    for number, is_chosen in zip(numbers, chosen, strict=True):
        name = names[number]
        is_plus = name in positive if positive else (name not in (negative or ["A"]))
        is_minus = name in negative if negative else not is_plus
        assert is_chosen == (is_plus or is_minus)
        if is_chosen:
            expected.append(1.0 if is_plus else -1.0)
    assert signs.tolist() == expected


def test_a_class_is_found_by_its_name() -> None:
    assert find_class("DOG", ["cat", "dog"]) == 1
    assert find_class("Dog", ["dog", "Dog"]) == 1
    assert find_class(2, ["1", "2"]) == 1
    with pytest.raises(ValueError, match="no class"):
        find_class("DOG", ["dog", "Dog"])
    with pytest.raises(ValueError, match=r"are bad, good \(did you mean good\?\)"):
        find_class("goood", ["bad", "good"])
    assert listed([f"{k}" for k in range(12)]).endswith("8, 9, ... (12 in all)")


def test_names_tell_labels_apart() -> None:
    names, numbers = class_names(np.array([10000000000002.0, 10000000000001.0, -0.0]))
    assert names == ("0", "10000000000001", "10000000000002")
    assert numbers.tolist() == [2, 1, 0]
    assert [label_text(label) for label in (1.0, 1, 0.5)] == ["1", "1", "0.5"]
    assert [label_text(label) for label in ("a", np.inf)] == ["a", "inf"]
