"""Pages and package are in the field's words, and in sentences that are read once."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Pages that are checked. Others are added when they are rewritten.
CHECKED = ("README.md", "docs/**/*.md")
PAGES = sorted(page for pattern in CHECKED for page in ROOT.glob(pattern))
PAGES = [
    page for page in PAGES if not {"_build", "gallery", "generated", "paper"} & set(page.parts)
]
# Words of this project, each with those of the field.
AVOIDED = {
    r"goes? (there|to)\b": "converges in direction to",
    r"where (it|training|that) goes": "implicit bias",
    r"\b(is|are) its SVM\b": "has converged to its max-margin solution",
    r"\btrained? on(?= until|,|;|\.| towards)": "continued training",
    r"\btakes? it on\b": "continue the training",
    r"\binfinite time\b": "t -> infinity, late in training",
    r"\blargest margin\b": "maximum margin",
    r"\bmargin 1\b": "unit margin",
    r"(?<!linear )(?<!quadratic )\bprograms?\b": "optimization problem",
    r"\bposes?\b": "formulates, builds",
    r"\bas real numbers\b": "rigorous",
    r"\bwhoever\b": "solver-independent",
    r"\bgeometry\b": "norm of the steepest descent",
    r"\b(mixed|composed) norm": "hybrid norm",
    r"\bleading part": "leading-order part",
    r"\bthe rest is\b": "the remainder is",
    r"\bkinks?\b": "non-differentiable points",
    r"\b(frozen|live) gates": "fixed, trained gates",
    r"\ba (group|weight vector|unit|class|sample|step) a (unit|context|class|sample|step)": "per",
    r"\bswitched off\b": "zero, inactive",
    r"\bconstant 1 in the norm\b": "penalized intercept",
    r"\bfree offset\b": "unpenalized intercept",
    r"\breadouts?\b": "output layer",
    r"\bnative\b": "built-in",
    r"\bsoft margin for want\b": "soft-margin fallback",
    r"\bexplains (a|\d+ %)": "agrees with",
    r"\bby chance\b": "expected under independence",
    r"\bwrong least often\b": "lowest error",
    r"\bshares of\b|\b(a|the|this|no) share\b": "fraction",
    r"\bpeers\b": "other solvers",
    r"\bCholeskys\b": "Cholesky factorizations",
    r"\bcontract\b": "API",
    r"\baccepted\b": "supported",
    r"\bof (your|one's|its|their) own\b": "custom, your",
    r"\bhouse rules\b": "coding guidelines",
    r"\bfor want of\b": "because ... is missing",
}
# Patterns with other, correct uses in the package. "readout" is the papers' name of the last layer,
# a parameter and an attribute. "Kinks" are a mathematical object of `infinite_width`, and a ReLU
# has one. "Of its own" can say that each object has another one.
ONLY_PAGES = (r"\breadouts?\b", r"\bkinks?\b", r"\bof (your|one's|its|their) own\b")
AVOIDED_IN_PACKAGE = {each: AVOIDED[each] for each in AVOIDED if each not in ONLY_PAGES}
PACKAGE = ROOT / "implicit_bias"
FILES = sorted(file for file in PACKAGE.rglob("*") if file.suffix in {".py", ".toml", ".j2"})
MOST_WORDS = 20.0
LONGEST = 45


def prose(page: Path) -> str:
    """Return the sentences of a page: no code, tables, formulas, headings, or options."""
    text = page.read_text("utf-8")
    text = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.S)
    text = re.sub(r"^(`{3,}).*?^\1", "", text, flags=re.M | re.S)
    text = re.sub(r"\$\$.*?\$\$", " ", text, flags=re.S)
    text = re.sub(r"^:::.*$|^:[a-z-]+:.*$|^\|.*$|^#.*$", "", text, flags=re.M)
    text = re.sub(r"\{cite:p\}`[^`]*`", "", text)
    text = re.sub(r"\{[\w:]+\}`~?([^`<]*)(<[^`]*>)?`", r"\1", text)
    text = re.sub(r"\$[^$]*\$|`[^`]*`", "x", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"^\s*([-*]|\d+\.) ", "\n\n", text, flags=re.M)


def sentences(text: str) -> list[str]:
    """Split at full stops, and at the ends of paragraphs and list items."""
    found = []
    for paragraph in re.split(r"\n\s*\n", text):
        found += re.split(r"(?<=[.!?:])\s+", paragraph)
    return [each for each in found if len(each.split()) > 2]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_words_are_those_of_the_field(page: Path) -> None:
    text = page.read_text("utf-8")
    text = re.sub(r"^(`{3,}).*?^\1|`[^`]*`|\]\([^)]*\)", "", text, flags=re.M | re.S)
    found = []
    for pattern, better in AVOIDED.items():
        for match in re.finditer(pattern, text, re.I):
            found.append(f"{match[0]!r}: {better}")
    assert found == []


PAGES_OF_PROSE = [page for page in PAGES if sentences(prose(page))]


@pytest.mark.parametrize("page", PAGES_OF_PROSE, ids=lambda page: str(page.relative_to(ROOT)))
def test_sentences_are_short(page: Path) -> None:
    lengths = [len(each.split()) for each in sentences(prose(page))]
    assert sum(lengths) / len(lengths) < MOST_WORDS
    assert max(lengths) <= LONGEST


def strings_of(value: object) -> Iterator[str]:
    """Yield the texts among the values of a TOML file."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from strings_of(each)
    elif isinstance(value, list):
        for each in value:
            yield from strings_of(each)


def texts_of(file: Path) -> list[str]:
    """Return docstrings and messages of a file: what has a space, as no name or key has."""
    source = file.read_text("utf-8")
    if file.suffix == ".toml":
        found = list(strings_of(tomllib.loads(source)))
    elif file.suffix == ".py":
        found = []
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    else:
        found = [re.sub(r"<[^>]*>", "", source)]
    return [text for text in found if " " in text]


def without_names(text: str) -> str:
    """Leave out of a text what only names something: code, parameters, fields, titles."""
    text = re.sub(r"^ *(>>>|\.\.\.) .*$|^ *[\w, ]+ : .*$", "", text, flags=re.M)
    text = re.sub(r"`[^`]*`|\{[^{}]*\}", "", text)
    text = re.sub(r"\s+", " ", text)
    return re.sub(r'"[^"]{1,100}"', "", text)


def test_words_of_the_package_are_those_of_the_field() -> None:
    found = []
    for file in FILES:
        text = "\n".join(map(without_names, texts_of(file)))
        for pattern, better in AVOIDED_IN_PACKAGE.items():
            for match in re.finditer(pattern, text, re.I):
                found.append(f"{file.name}: {text[: match.end()][-60:]!r}: {better}")
    assert found == []


def prose_of(docstring: str) -> str:
    """Return the sentences of a docstring: no examples, headings, formulas, tables, or names."""
    text = re.sub(r"^ *>>> .*(\n *\S.*)*", "", docstring, flags=re.M)
    text = re.sub(r"^ *[A-Z][A-Za-z ]+\n *-{3,}$|^ *[\w, *]+ : .*$", "\n", text, flags=re.M)
    text = re.sub(r"`[^`]*`", "x", text)
    paragraphs = []
    for paragraph in re.split(r"\n\s*\n", text):
        # Columns are aligned by several blanks, in a table and in a formula of several lines.
        if not re.search(r"\S {2,}\S|={4}", paragraph):
            paragraphs.append(paragraph)
    return "\n\n".join(paragraphs)


def test_sentences_of_the_package_are_short() -> None:
    for file in PACKAGE.rglob("*.py"):
        lengths = []
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                for each in sentences(prose_of(ast.get_docstring(node) or "")):
                    lengths.append(len(each.split()))
        if lengths:
            assert sum(lengths) / len(lengths) < MOST_WORDS, file
            assert max(lengths) <= LONGEST, file
