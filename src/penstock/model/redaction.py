"""The reason why a value was refused, as text without any part of the value.

The texts of msgspec and Pydantic quote values, tags and the names of unknown fields. A text is kept only if it
is known to hold nothing but the expected type and the path to it: a text of a later version that is not known
here is left out.
"""

from __future__ import annotations

import re

import msgspec

__all__ = ["ModelError", "decoding_reason", "encoding_reason"]


class ModelError(ValueError):
    """A value that a Pydantic model refuses; `without_values` has the kinds of its errors alone."""

    def __init__(self, message: str, without_values: str) -> None:
        super().__init__(message)
        self.without_values = without_values


#: The path at the end of a text: fields of the type, indexes, and `[...]` or `key` for those of a dict.
PATH = re.compile(r" - at `[^`]*`(?: in `[^`]*`)*$")

#: The texts that hold nothing of the value.
DECODING = re.compile(
    r"Expected .*"
    r"|Object missing required field .*"
    r"|Invalid (?:RFC3339 encoded|ISO8601|base64 encoded) [a-z]+"
    r"|(?:JSON|MessagePack data) is malformed: [A-Za-z ]+(?: \(byte \d+\))?"
    r"|[A-Za-z ]+",
    re.DOTALL,
)
ENCODING = re.compile(r"objects of type \w+ are not supported|can't serialize ints [\d <>=*or-]+")

#: Texts that end with a value, without it. A name may look like a path, so that of an unknown field gets none.
QUOTING = re.compile(r"(Invalid enum value|Invalid value) .*", re.DOTALL)
UNKNOWN_FIELD = "Object contains unknown field"

#: Longer texts are taken for values.
MAX_REASON = 500


def decoding_reason(error: BaseException) -> str:
    """Return why bytes were refused: the expected kind and the path to it, and nothing of the value."""
    text, cause = str(error), error.__cause__
    if isinstance(error, ModelError):
        return error.without_values
    if not isinstance(error, msgspec.MsgspecError):
        return type(error).__name__
    if cause is not None:  # raised by a check of the user's type, and its text begins with that of the check
        path = PATH.fullmatch(text, len(str(cause))) if text.startswith(str(cause)) else None
        reason = cause.without_values if isinstance(cause, ModelError) else f"refused with a {type(cause).__name__}"
        return reason + (path[0] if path else "")
    if text.startswith(UNKNOWN_FIELD):
        return UNKNOWN_FIELD
    path = PATH.search(text)
    reason = text[: path.start()] if path else text
    return _known_reason(reason) + (path[0] if path else "")


def _known_reason(text: str) -> str:
    if quoting := QUOTING.fullmatch(text):
        return quoting[1]
    return text if len(text) <= MAX_REASON and DECODING.fullmatch(text) else "it does not fit"


def encoding_reason(error: BaseException) -> str:
    """Return why a value was refused by an encoder: the name of a class, and nothing of the value."""
    text = str(error)
    return text if len(text) <= MAX_REASON and ENCODING.fullmatch(text) else type(error).__name__
