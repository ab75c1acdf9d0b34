"""The verdicts of a comparison as a page shows them.

`Standing`, `conclude` and `Conclusion` are those of `implicit_bias.comparison.verdict`, which
scripts may import from here.
"""

from collections.abc import Container

from markupsafe import Markup, escape

from implicit_bias.base.wording import NO_BREAK
from implicit_bias.comparison.verdict import Conclusion, Message, Standing, conclude

__all__ = ["Conclusion", "Standing", "as_code", "conclude", "linked"]


def linked(message: Message, defined: Container[str]) -> Markup:
    """Write a sentence whose numbers link to their definitions, and whose command is code.

    Examples
    --------
    >>> message = Message("{network}: {error} wrong", {"network": "<b>", "error": "3 of 9"})
    >>> print(linked(message, defined={"error"}))
    &lt;b&gt;: <a href="#def-error">3 of 9</a> wrong
    """
    # No line of a page ends between a number and its percent sign; a command stays as it is typed.
    per_cent = f"{NO_BREAK}%"
    values: dict[str, Markup] = {}
    for name, value in message.values.items():
        # A command has no definition, and no-break spaces would be copied into the shell.
        if name == "to_limit":
            values[name] = as_code(value)
            continue
        values[name] = escape(value.replace(" %", per_cent))
        if name in defined:
            values[name] = Markup('<a href="#def-{}">{}</a>').format(name, values[name])
    return escape(message.template.replace(" %", per_cent)).format_map(values)


def as_code(command: str) -> Markup:
    """Write what is to be typed, if anything; a line does not end within the name of an option."""
    if not command:
        return Markup()
    words = []
    for word in command.split(" "):
        if word.startswith("-"):
            words.append(Markup("<span>{}</span>").format(word))
        else:
            words.append(escape(word))
    return Markup("<code>{}</code>").format(Markup(" ").join(words))
