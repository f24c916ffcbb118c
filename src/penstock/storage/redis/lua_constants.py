"""Constants of the Lua scripts, written into them as literals: a Lua function has at most 200 local variables."""

from __future__ import annotations

import re

__all__ = ["inline_constants"]

_LITERAL = r"(?:-?[0-9]+|true|false|'(?:[^'\\\n]|\\.)*')"
_NAME = r"[A-Z][A-Z0-9_]*"
#: A line that declares constants, and the comment behind it.
_DECLARATION = re.compile(
    rf"^local ({_NAME}(?:, {_NAME})*) = ({_LITERAL}(?:, {_LITERAL})*)( *(?:--[^\n]*)?)$", re.MULTILINE
)
#: The begin of a line in a block that declares variables with names like those of constants.
_VARIABLES = re.compile(rf"^ +local ({_NAME}(?:, {_NAME})*) =", re.MULTILINE)
#: A string, a comment, or a name that may be one of a constant; fields of tables are none.
_TOKEN = re.compile(rf"'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\"|--[^\n]*|(?<![\w.]){_NAME}\b")


def inline_constants(text: str) -> str:
    """Return a script with the names of its constants replaced by their values; the numbers of lines stay.

    Raises ValueError if a name has two values, or is that of a variable too.
    """
    values: dict[str, str] = {}

    def declare(line: re.Match[str]) -> str:
        names, literals = line[1].split(", "), re.findall(_LITERAL, line[2])
        for name, literal in zip(names, literals, strict=True):
            if values.setdefault(name, literal) != literal:
                raise ValueError(f"the constant {name} has two values: {values[name]} and {literal}")
        return f"-- {line[0]}"

    text = _DECLARATION.sub(declare, text)
    for line in _VARIABLES.finditer(text):
        if both := values.keys() & line[1].split(", "):
            raise ValueError(f"the constant {min(both)} is declared as a variable too")
    return _TOKEN.sub(lambda token: values.get(token[0], token[0]), text)
