"""Pages and package are in the field's words, and in sentences that are read once."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [
    page
    for page in [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
    if not {"_build", "gallery", "generated", "paper"} & set(page.parts)
]
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
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


def check_words(text: str, avoided: dict[str, str], file: Path) -> None:
    for pattern, better in avoided.items():
        for match in re.finditer(pattern, text, re.I):
            pytest.fail(f"{file.name}: {text[: match.end()][-60:]!r}: {better}")


def check_lengths(found: list[str], file: Path) -> None:
    lengths = [len(each.split()) for each in found]
    if lengths:
        assert sum(lengths) / len(lengths) < MOST_WORDS, file
        assert max(lengths) <= LONGEST, file


@each_page
def test_words_are_those_of_the_field(page: Path) -> None:
    text = page.read_text("utf-8")
    text = re.sub(r"^(`{3,}).*?^\1|`[^`]*`|\]\([^)]*\)", "", text, flags=re.M | re.S)
    check_words(text, AVOIDED, page)


@each_page
def test_sentences_are_short(page: Path) -> None:
    check_lengths(sentences(prose(page)), page)


# --- the package -----------------------------------------------------------------------------


@cache
def nodes_of(file: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(file.read_text("utf-8"))))


def texts_of(file: Path) -> list[str]:
    """Return docstrings and messages of a file: what has a space, as no name or key has."""
    if file.suffix != ".py":
        return [re.sub(r"<[^>]*>", "", file.read_text("utf-8"))]
    found = []
    for node in nodes_of(file):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(node.value)
    return [text for text in found if " " in text]


def without_names(text: str) -> str:
    """Leave out of a text what only names something: code, parameters, fields, titles."""
    text = re.sub(r"^ *(>>>|\.\.\.) .*$|^ *[\w, ]+ : .*$", "", text, flags=re.M)
    text = re.sub(r"`[^`]*`|\{[^{}]*\}", "", text)
    text = re.sub(r"\s+", " ", text)
    return re.sub(r'"[^"]{1,100}"', "", text)


def test_words_of_the_package_are_those_of_the_field() -> None:
    for file in FILES:
        text = "\n".join(map(without_names, texts_of(file)))
        check_words(text, AVOIDED_IN_PACKAGE, file)


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
        found = []
        for node in nodes_of(file):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                found += sentences(prose_of(ast.get_docstring(node) or ""))
        check_lengths(found, file)
