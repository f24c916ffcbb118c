"""Removal of passwords from output and error messages."""

from __future__ import annotations

import re
from urllib.parse import unquote

from penstock.storage import redact

__all__ = ["redact_secrets", "register_secrets"]

#: Texts that must never be printed: the credentials of every URL that this command was given.
_secrets: set[str] = set()

#: A shorter password is removed from URLs only, since it would match inside ordinary words.
MIN_SECRET_LENGTH = 3

_LOGIN = re.compile(r"//([^/?#]*)@|//(.*)@")
_QUERY = re.compile(r"(?i)[?&][^=&#]*(?:password|secret|token|key)[^=&#]*=([^&#]+)")
#: A URL in a sentence, and the punctuation behind it.
_URL = re.compile(r"([a-z][a-z0-9+.-]*://\S*?)([:;,.)'\"]*)(?=\s|$)", re.IGNORECASE)


def register_secrets(url: str) -> str:
    """Remember the passwords in a URL for `redact_secrets`; returns the URL unchanged."""
    for found in _LOGIN.finditer(url):
        login = found.group(1) or found.group(2) or ""
        password = login.partition(":")[2]
        _secrets.update((password, unquote(password)))
        # If / or @ in a password is not percent-encoded, an error may quote any piece of the password.
        _secrets.update(re.split(r"[/@:?#]", password))
    _secrets.update(_QUERY.findall(url))
    _secrets.difference_update([secret for secret in _secrets if len(secret) < MIN_SECRET_LENGTH])
    return url


def redact_secrets(text: str) -> str:
    """Return the text with logins removed from URLs and known passwords replaced by ***."""
    text = _URL.sub(lambda found: redact(found[1]) + found[2], text)
    for secret in sorted(_secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text
