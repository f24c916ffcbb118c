"""Redaction: secret values of payloads, results and headers, and secrets in texts, before anything is shown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

__all__ = ["DEFAULT", "HIDDEN", "Redactor"]

HIDDEN = "•••"

#: The keys whose values are secret, wherever they stand in a payload. Words are found in any case and notation.
DEFAULT = (
    "password", "passwd", "secret", "token", "api_key", "authorization", "cookie", "card", "cvv", "ssn",
)  # fmt: skip

#: Words that are secret also as a part of another word, as in `dbpassword`.
ANYWHERE = frozenset({"password", "passwd", "secret", "authorization"})

LOGIN = re.compile(r"(?<=://)[^\s/@'\"<>]+@")
CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
SEPARATORS = re.compile(r"[\W_]+")


class Redactor:
    """The rules of redaction: names of keys, and regular expressions for texts."""

    def __init__(self, keys: Iterable[str] = DEFAULT, texts: Iterable[str | re.Pattern[str]] = ()) -> None:
        words = [_normal(key) for key in keys]
        inside = [re.escape(word) for word in words if word in ANYWHERE]
        whole = [re.escape(word).replace("_", "_?") for word in words if word]
        pattern = [*inside, *(rf"(?:^|_){word}s?(?:_|$)" for word in whole)]
        self._keys = re.compile("|".join(pattern)) if pattern else None
        self._texts = [re.compile(text) for text in texts]

    def hides(self, key: str) -> bool:
        """Return whether the value of this key is secret."""
        return self._keys is not None and self._keys.search(_normal(key)) is not None

    def value(self, value: Any) -> Any:
        """Return a value without its secrets, at any depth; texts in it are redacted like messages."""
        if isinstance(value, Mapping):
            given = cast("Mapping[Any, Any]", value)
            return {key: HIDDEN if self.hides(str(key)) else self.value(item) for key, item in given.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [self.value(item) for item in cast("Iterable[Any]", value)]
        return self.text(value) if isinstance(value, str) else value

    def text(self, text: str) -> str:
        """Return a message, traceback or log line without logins of URLs and without what the patterns find."""
        text = LOGIN.sub(f"{HIDDEN}@", text)
        for pattern in self._texts:
            text = pattern.sub(HIDDEN, text)
        return text


def _normal(key: str) -> str:
    """Return a key in lower case with underscores between its words."""
    return SEPARATORS.sub("_", CAMEL.sub("_", key)).strip("_").lower()
