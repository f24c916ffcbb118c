"""Hostile input: names, filters and queries that no page should answer with an error of the server."""

from __future__ import annotations

import asyncio
import contextlib
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.client.job_filter import KEYS, FilterError, JobFilter, parse_filter, quote_value
from penstock.dashboard.auth import VERBS
from penstock.dashboard.redact import HIDDEN, Redactor
from penstock.dashboard.routes import PAGES
from penstock.dashboard.tracebacks import pieces_of
from tests.dashboard.conftest import Site

NASTY = [
    "", " ", "\0", "\n", "é" * 300, "a" * 3_000, "%00", "../..", "<script>", '"', "'", "{{7*7}}", "\ud800", "-1",
    "9" * 400, "null", "[]", "eyJ9", "AAAA", "*", ":", "state:", 'queue:"', "mail", "later", "nightly",
]  # fmt: skip
PARAMETERS = (
    "queue", "name", "id", "key", "filter", "after", "state", "span", "tab", "find", "order", "kind", "group", "scope",
    "edit", "newest", "token", "next",
)  # fmt: skip


@pytest.mark.only("memory", "redis")
async def test_no_query_is_an_error_of_the_server(site: Site) -> None:
    """Every page with every nasty value in each of its parameters answers with 200, 400, 401 or 404."""
    for index, path in enumerate([*PAGES, "history", "payload", "live2", "static/x/y"]):
        for number, name in enumerate(PARAMETERS):
            value = NASTY[(index * 7 + number * 3) % len(NASTY)]
            query = f"{name}={quote(value, safe='', errors='surrogatepass')}&queue=mail"
            answer = await site.get(f"/{path}?{query}")
            assert answer.status_code in (200, 400, 401, 404), (path, name, value, answer.text[:300])


@pytest.mark.only("memory")
async def test_no_action_is_an_error_of_the_server(site: Site) -> None:
    """Every verb with nasty targets and forms is carried out or refused with a reason."""
    for index, verb in enumerate(VERBS):
        for number in range(4):
            value = NASTY[(index * 5 + number * 11) % len(NASTY)]
            text = quote(value, safe="", errors="surrogatepass")
            form = {"payload": value.encode("utf-8", "replace").decode(), "when": text, "rate": text, "ids": text}
            for route in ("act", "preview"):
                path = (
                    f"/{route}?verb={verb}&queue={text}&id={text}&name={text}&bulk={'1' * (number % 2)}&filter={text}"
                )
                answer = await site.post(path, data=form, accept="application/json")
                assert answer.status_code in (200, 400, 404), (path, answer.text[:300])


@given(st.text(max_size=200) | st.lists(st.sampled_from([*KEYS, ":", '"', " ", "*", "a", "\\"])).map("".join))
@settings(max_examples=300)
def test_a_filter_is_parsed_or_refused_with_a_reason(text: str) -> None:
    """No text raises anything but `FilterError`."""
    with contextlib.suppress(FilterError):
        assert isinstance(parse_filter(text), JobFilter)


@given(st.text(min_size=1, max_size=80))
def test_any_name_can_be_written_in_a_filter(name: str) -> None:
    """`quote_value` and the parser are inverse for every name."""
    assert parse_filter(f"queue:{quote_value(name)}").queue == name


@pytest.mark.parametrize(
    ("key", "hidden"),
    [
        ("password", True), ("userPassword", True), ("db_password", True), ("PASSWD", True), ("api-key", True),
        ("apiKey", True), ("apikey", True), ("access_token", True), ("tokens", True), ("credit_card", True),
        ("cardNumber", True), ("Authorization", True), ("set-cookie", True), ("cvv", True), ("ssn", True),
        ("clientSecret", True), ("discard", False), ("cardinality", False), ("to", False), ("tokenize", False),
    ],
)  # fmt: skip
def test_keys_are_hidden_in_any_notation(key: str, hidden: bool) -> None:
    """Secret words are found in snake, camel and kebab case, and not inside of other words."""
    assert Redactor().hides(key) is hidden
    assert Redactor().value([{key: {"deep": "x"}}]) == [{key: HIDDEN if hidden else {"deep": "x"}}]


def test_texts_lose_logins_and_patterns() -> None:
    """A login in a URL is always hidden; patterns of the user hide more."""
    redactor = Redactor(texts=[r"sk_[a-z0-9]+"])
    assert redactor.text("GET https://ann:pw@host/ sk_live1") == f"GET https://{HIDDEN}@host/ {HIDDEN}"


@given(st.text(max_size=300))
def test_any_traceback_is_shown(text: str) -> None:
    """A text that is no traceback is shown as it is."""
    shown = "\n".join(piece.text for piece in pieces_of(text) if not piece.frames)
    assert shown == "\n".join(text.splitlines())


@pytest.mark.only("memory")
async def test_reading_is_bounded_and_shared(site: Site) -> None:
    """Many viewers share one reading; the pause grows with the duration of a read."""
    reader = site.dashboard.reader
    first = await reader.latest()
    assert await asyncio.gather(*(reader.latest() for _ in range(20))) == [first] * 20
    for _ in range(5):
        reader._took.append(0.05)
    assert reader.pause == pytest.approx(5.0)
