"""Tables and what surrounds them: notes, names of problems and classes, links of verdicts."""

import numpy as np
import pytest

import implicit_bias as ib
from comparison.test_verdict import Fixed
from implicit_bias.base.wording import percent
from implicit_bias.comparison.verdict import Message
from implicit_bias.datasets import make_toy
from implicit_bias.report.conclusion import linked
from implicit_bias.report.tables import (
    Table,
    define_once,
    notes_on_models,
    tables,
    terms_of_verdicts,
)


def named(shown: list[Table], caption: str) -> Table:
    """Return the table of this caption."""
    (found,) = [table for table in shown if table.caption == caption]
    return found


def column(table: Table, key: str) -> list[str]:
    """Return the texts of a column."""
    place = [each.key for each in table.columns].index(key)
    return [row[place] for row in table.rows]


def test_errors_by_class() -> None:
    X = np.arange(100.0)[:, None]
    y = np.repeat([-1.0, 1.0], [77, 23])
    late = Fixed(np.where(np.arange(100) < 80, -1.0, 1.0))
    comparison = ib.compare({"late": late}, X, y, train=(X, y))
    by_class = tables(comparison, ["no", "-1 (a)"])[-1]
    assert column(by_class, "class") == ["no", "-1 (a)"]  # a name keeps its hyphen
    assert column(by_class, "class_wrong") == ["0 of 77", "3 of 23"]
    assert column(by_class, "recall") == [percent(1.0), percent(20 / 23)]


@pytest.mark.parametrize(("n_wrong", "open_"), [(60, False), (39, True), (22, False)])
def test_a_note_says_where_interval_and_test_differ(n_wrong: int, open_: bool) -> None:
    places = np.arange(240)
    y = np.tile([0, 1], 120)
    models = {
        "left": Fixed(np.where(places < n_wrong, 1 - y, y)),
        "right": Fixed(np.where(places >= 217, 1 - y, y)),
    }
    decided = {60: "right", 39: "not decided", 22: "not decided"}[n_wrong]
    for ordered in (models, dict(reversed(models.items()))):
        shown = tables(ib.compare(ordered, places[:, None], y), ["0", "1"])
        differences = named(shown, "Differences of errors")
        assert len(differences.notes) == 1 + open_
        assert column(differences, "decided") == [decided]


def test_hard_margins_beside_soft_ones() -> None:
    moons = make_toy("moons", 40, noise=0.05, random_state=0)
    with pytest.warns(ib.NotSeparableWarning):
        fallback = ib.MaxMarginSVC().fit(moons.X, moons.y)
    models = {
        "fallback": fallback,
        "gated": ib.GLNSVC(10, random_state=0).fit(moons.X, moons.y),
        "soft": ib.MaxMarginSVC(C=0.01).fit(moons.X, moons.y),
    }
    comparison = ib.compare(models, moons.X, moons.y, train=(moons.X, moons.y))
    models_table, *_ = tables(comparison, ["-1", "+1"])
    notes = " ".join(models_table.notes)
    assert "fallback: no hard margin" in notes
    assert "soft (C = 0.01)" in notes
    assert comparison.note_on_norms in models_table.notes
    alone = ib.compare({"gated": models["gated"]}, moons.X, moons.y, train=(moons.X, moons.y))
    assert notes_on_models(alone) == []


def test_agreement_is_shown_beside_that_of_independent_models() -> None:
    y = np.arange(60) % 3
    models = {
        "left": Fixed(np.where(np.arange(60) < 20, (y + 1) % 3, y)),
        "right": Fixed(np.where(np.arange(60) >= 45, (y + 1) % 3, y)),
    }
    shown = tables(ib.compare(models, np.zeros((60, 1)), y), ["a", "b", "c"])
    agreements = named(shown, "Agreement between models")
    assert column(agreements, "agreement") == [percent(25 / 60)]
    assert column(agreements, "agreed_samples") == ["25 of 60"]
    p = 20 / 60
    q = 15 / 60
    expected = (1 - p) * (1 - q) + p * q / 2
    assert column(agreements, "chance_agreement") == [percent(expected)]


def test_a_term_is_defined_where_it_first_stands() -> None:
    moons = make_toy("moons", 40, noise=0.05, random_state=0)
    models = {
        "gated": ib.GLNSVC(10, random_state=0).fit(moons.X, moons.y),
        "soft": ib.MaxMarginSVC(C=0.01).fit(moons.X, moons.y),
    }
    comparison = ib.compare(models, moons.X, moons.y, train=(moons.X, moons.y))
    known = terms_of_verdicts(comparison, comparison.conclusions())
    shown = define_once(known, tables(comparison, ["-1", "+1"]))
    terms = [term.key for term in known]
    for table in shown:
        terms += [term.key for term in table.terms]
        for each in table.columns:
            assert each.key in terms or not each.meaning
    assert len(terms) == len(set(terms))
    assert {"norm", "excess", "max_margin"} <= {term.key for term in known}


def test_sentences_on_a_page_are_escaped_and_linked() -> None:
    values = {"network": "<b>{error}", "error": "3 %", "to_limit": "go --to-limit 'a %'"}
    message = Message("{network}: {error} & {to_limit}", values)
    assert linked(message, {"error"}) == (
        '&lt;b&gt;{error}: <a href="#def-error">3\u00a0%</a> &amp; '
        "<code>go <span>--to-limit</span> &#39;a %&#39;</code>"
    )
    assert str(message) == "<b>{error}: 3 % & go --to-limit 'a %'"
