"""The filter language of jobs: `queue:mail state:failed type:ConnectionError payload.to:"ann@example.org" word`.

A filter is a text of `key:value` words and free words; all of them must fit a job. A value that ends with `*` is a
prefix, quotes hold spaces together. Queue, state, id and error group are looked up; the rest is tested on each job of a
walk, which looks at `MAX_LOOKED` jobs at most and returns how far it came.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Protocol, cast

import msgspec
from msgspec.structs import replace

from penstock.aio import gather_each
from penstock.client.answers import JobStatus, status_of
from penstock.client.job_walk import MAX_TOGETHER, Walk, WalkCursor
from penstock.errors import ErrorKind
from penstock.host import AppHost
from penstock.model.activity import Release
from penstock.model.ids import check_name
from penstock.model.job import Snapshot, State
from penstock.storage.auditing import need_auditing
from penstock.storage.base import Page, Storage
from penstock.storage.observing import need_observing, observing_of

__all__ = [
    "KEYS", "MAX_LOOKED", "FilterError", "FilterPage", "JobFilter", "Redacting", "find_jobs", "hide_values",
    "parse_filter", "quote_value",
]  # fmt: skip

#: The keys of a filter; those that end with a point are followed by the name of a header or a path in a value.
KEYS = (
    "queue", "state", "group", "id", "worker", "type", "kind", "error", "error_group", "release", "header.", "payload.",
    "result.", "before", "after",
)  # fmt: skip

#: The jobs that one walk looks at.
MAX_LOOKED = 2_000

#: The keys that are looked up; each can be given once.
LOOKED_UP = ("queue", "state", "id", "error_group")

#: The characters and the words of a filter at most.
MAX_LENGTH, MAX_WORDS = 2_000, 50

#: A word of a filter: a key with a value, or a value, either of which may be quoted.
WORD = re.compile(r'\s*(?:([A-Za-z_]+(?:\.[^\s:"]+)?):)?("(?:[^"\\]|\\.)*"\*?|[^\s"]+)', re.DOTALL)
SPAN = re.compile(r"(\d{1,9})(s|min|m|h|d|w)")
SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}


class Redacting(Protocol):
    """The rules of who may not see all: which keys are secret, and values and texts without their secrets."""

    def hides(self, key: str) -> bool:
        """Return whether the value of a key is secret."""
        ...

    def value(self, value: Any) -> Any:
        """Return a value without its secrets."""
        ...

    def text(self, text: str) -> str:
        """Return a text without its secrets."""
        ...


class FilterError(ValueError):
    """A filter with an unknown key, or with a value that cannot be."""


class Test(msgspec.Struct, frozen=True):
    """One condition: a key, the name or path after its point, the value, and whether that is a prefix."""

    key: str
    path: str
    value: str
    prefix: bool = False

    def fits(self, value: object) -> bool:
        """Return whether a value of a job is the one of the filter."""
        text = as_text(value)
        return text.startswith(self.value) if self.prefix else text == self.value


class JobFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter that was parsed: what is looked up, and the tests of each job."""

    text: str = ""
    queue: str | None = None
    state: State | None = None
    id: str | None = None
    error_group: str | None = None
    tests: tuple[Test, ...] = ()
    words: tuple[str, ...] = ()

    @property
    def indexed(self) -> bool:
        """Whether indexes answer it: it has nothing but a queue, a state and an error group."""
        return not (self.id or self.tests or self.words)

    @property
    def group(self) -> str | None:
        """The group whose jobs are wanted, None if it is not given exactly; an index answers for queued ones."""
        return next((test.value for test in self.tests if test.key == "group" and not test.prefix), None)


class FilterPage(msgspec.Struct, frozen=True):
    """Jobs that fit, how many the walk has looked at, and the cursor to go on with, None at the end."""

    jobs: list[JobStatus]
    looked: int
    cursor: str | None = None


def parse_filter(text: str, is_redacted: Callable[[str], bool] = lambda key: False) -> JobFilter:
    """Parse a filter; raises `FilterError`, which names what is wrong.

    A path with a key for which `is_redacted` is true is refused: who may not see a value may not search for it either.
    """
    fields: dict[str, Any] = {}
    tests: list[Test] = []
    words: list[str] = []
    for key, raw in _split(text):
        value, prefix = _value(raw)
        name, point, path = key.partition(".")
        if not key:
            words.append(value)
        elif f"{name}{point}" not in KEYS:
            raise FilterError(f"unknown key {key!r}; known keys: {', '.join(KEYS)}")
        elif name in LOOKED_UP and not (name == "id" and prefix):
            if name in fields:
                raise FilterError(f"{name} can be given once")
            fields[name] = _checked(name, f"{value}*" if prefix else value)
        elif point and any(map(is_redacted, path.split("."))):
            raise FilterError(f"{key} is redacted, so it cannot be searched for")
        else:
            tests.append(_test(name, path, value, prefix))
    return JobFilter(text=text.strip(), tests=tuple(tests), words=tuple(words), **fields)


def hide_values(text: str, redacting: Redacting, hidden: str) -> str:
    """Return a filter as one may see it who may not see all: in place of values of secret paths it has `hidden`."""

    def shown(word: re.Match[str]) -> str:
        _, point, path = (word[1] or "").partition(".")
        secret = point and any(map(redacting.hides, path.split(".")))
        return f"{word[0][: word.start(2) - word.start()]}{hidden}" if secret else word[0]

    return redacting.text(WORD.sub(shown, text))


def quote_value(value: str) -> str:
    """Return a value as it is written in a filter, so that it stands for itself."""
    if value and not re.search(r'[\s":*\\]', value):
        return value
    return '"' + re.sub(r'(["*\\])', r"\\\1", value) + '"'


def _split(text: str) -> list[tuple[str, str]]:
    """Return the words of a filter, each as its key, which may be empty, and its value as it is written."""
    if len(text) > MAX_LENGTH:
        raise FilterError(f"a filter has at most {MAX_LENGTH} characters, not {len(text)}")
    stripped, at, found = text.rstrip(), 0, list[tuple[str, str]]()
    while at < len(stripped):
        word = WORD.match(stripped, at)
        if word is None:
            raise FilterError(f"a quote is not closed: {stripped[at:].strip()[:40]}")
        found.append((word[1] or "", word[2]))
        at = word.end()
    if len(found) > MAX_WORDS:
        raise FilterError(f"a filter has at most {MAX_WORDS} words, not {len(found)}")
    return found


def _value(raw: str) -> tuple[str, bool]:
    """Return a value without quotes and backslashes, and without the `*` at its end that makes it a prefix."""
    if not raw.startswith('"'):
        return (raw[:-1], True) if raw.endswith("*") else (raw, False)
    inner, prefix = raw.removesuffix("*")[1:-1], raw.endswith("*")
    if not prefix and re.search(r"(?<!\\)(?:\\\\)*\*$", inner):
        inner, prefix = inner[:-1], True
    return re.sub(r"\\(.)", r"\1", inner, flags=re.DOTALL), prefix


def _checked(name: str, value: str) -> Any:
    try:
        return State(value) if name == "state" else check_name(value, name)
    except ValueError as error:
        known = f"state must be one of {', '.join(State)}, not {value!r}" if name == "state" else str(error)
        raise FilterError(known) from None


def _test(name: str, path: str, value: str, prefix: bool) -> Test:
    if name in ("before", "after", "kind", "release"):
        value, prefix = f"{value}*" if prefix else value, False
    if name == "kind" and value not in list(ErrorKind):
        raise FilterError(f"kind must be one of {', '.join(ErrorKind)}, not {value!r}")
    if name in ("before", "after"):
        moment(value, name, 0)
    return Test(name, path, value, prefix)


def moment(text: str, name: str, now: int) -> int:
    """Return a time of a filter in milliseconds: ISO 8601, by default in UTC, or a span such as `2h`, before now."""
    if span := SPAN.fullmatch(text):
        return now - int(span[1]) * SECONDS[span[2]] * 1000
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise FilterError(
            f"{name} must be a time such as 2026-01-31T12:00 or a span such as 2h, not {text!r}"
        ) from None
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def as_text(value: object) -> str:
    """Return a value of a payload, result or status as text, as it is compared: JSON of what is no text."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if value is None:
        return ""
    return json.dumps(value, default=repr, skipkeys=True, ensure_ascii=False, separators=(",", ":"))


class Matcher:
    """The tests of a filter at one moment, with the releases if it names one."""

    def __init__(self, wanted: JobFilter, now: int, releases: Sequence[Release] = (), as_of: int | None = None) -> None:
        self._filter = wanted
        self._now = now
        self._as_of = as_of
        self._spans = {each.value: _span_of(each.value, releases) for each in wanted.tests if each.key == "release"}

    def fits(self, snapshot: Snapshot, status: JobStatus) -> bool:
        """Return whether a job fits all tests."""
        wanted = self._filter
        if self._as_of is not None and max(snapshot.created, snapshot.finished or 0) > self._as_of:
            return False
        if wanted.id is not None and snapshot.id != wanted.id:
            return False
        if wanted.state is not None and snapshot.state is not wanted.state:
            return False
        return all(self._fits(each, snapshot, status) for each in wanted.tests) and (
            not wanted.words or _has_words(status, wanted.words)
        )

    def _fits(self, test: Test, snapshot: Snapshot, status: JobStatus) -> bool:
        at = snapshot.finished or snapshot.created
        match test.key:
            case "before":
                return at < moment(test.value, "before", self._now)
            case "after":
                return at >= moment(test.value, "after", self._now)
            case "release":
                begin, end = self._spans[test.value]
                return begin <= at < end
            case "header":
                return test.path in status.headers and test.fits(status.headers[test.path])
            case "payload" | "result":
                return any(map(test.fits, _at_path(getattr(status, test.key), test.path)))
            case "error":
                return status.error is not None and test.value.casefold() in status.error.message.casefold()
            case "type" | "kind":
                return status.error is not None and test.fits(getattr(status.error, test.key))
            case _:
                value = getattr(status, test.key)
                return value is not None and test.fits(value)


def _span_of(name: str, releases: Sequence[Release]) -> tuple[int, int]:
    """Return begin and end (ms) of a release: it ends with the next one."""
    later = 1 << 60
    for release in releases:  # newest first
        if release.name == name:
            return release.at, later
        later = release.at
    raise FilterError(f"there is no release {name!r}")


def _has_words(status: JobStatus, words: Sequence[str]) -> bool:
    error = "" if status.error is None else f"{status.error.type}: {status.error.message}"
    text = "\0".join([status.id, status.group or "", error, as_text(status.payload)]).casefold()
    return all(word.casefold() in text for word in words)


def _at_path(value: Any, path: str) -> list[Any]:
    """Return the values at a path of names with points between them; of a list all its elements are meant."""
    found: list[Any] = [value]
    for name in path.split("."):
        inner: list[Any] = []
        for each in found:
            for part in cast("list[Any]", each) if isinstance(each, list) else [each]:
                if isinstance(part, dict) and name in part:
                    inner.append(cast("dict[str, Any]", part)[name])
        found = inner
    return [part for each in found for part in (cast("list[Any]", each) if isinstance(each, list) else [each])]


async def find_jobs(
    app: AppHost, wanted: JobFilter, after: str | None = None, limit: int = 50, as_of: int | None = None, *,
    max_looked: int = MAX_LOOKED, newest: bool = False, redacting: Redacting | None = None,
) -> FilterPage:  # fmt: skip
    """Return jobs that fit, at most `limit`; the walk ends after `max_looked` jobs, and its cursor leads on.

    Without a queue all queues are searched together, state by state, in the order of time. With an id each queue is
    asked for it. `newest` begins with the newest jobs of a state. With `redacting` the tests see what a reader sees: no
    search finds a hidden value.
    """
    storage = await app.opened()
    releases = await need_auditing(storage).releases() if any(test.key == "release" for test in wanted.tests) else []
    matcher = Matcher(wanted, await storage.time(), releases, as_of)

    def fitting(snapshot: Snapshot) -> JobStatus | None:
        status = status_of(snapshot, app.codec(snapshot.queue))
        shown = status if redacting is None or wanted.indexed else _redacted(status, redacting)
        return status if matcher.fits(snapshot, shown) else None

    place = _read_cursor(after)
    queues = [wanted.queue] if wanted.queue is not None else await storage.queues()
    if wanted.id is not None:
        read = await gather_each(lambda queue: storage.get(queue, [str(wanted.id)]), queues, MAX_TOGETHER)
        found = [job for [snapshot] in read if snapshot is not None and (job := fitting(snapshot)) is not None]
        return FilterPage(found, len(queues))
    walk = Walk(
        storage, partial(_read, storage, wanted, newest), queues, newest=newest, after=place,
        state=State.FAILED if wanted.error_group is not None else wanted.state,
        size=min(limit if wanted.indexed else max_looked, max_looked), apart=wanted.group is not None,
    )  # fmt: skip
    jobs: list[JobStatus] = []
    looked = 0
    while looked < max_looked and len(jobs) < limit:
        snapshot = await walk.next()
        if snapshot is None:
            break
        looked += 1
        if (job := fitting(snapshot)) is not None:
            jobs.append(job)
    return FilterPage(jobs, looked, await walk.cursor())


async def _read(
    storage: Storage, wanted: JobFilter, newest: bool, queue: str, state: State | None, after: str | None, limit: int
) -> Page:
    """Return a page of the jobs of a state, of the error group of a filter, or of its group if they are queued."""
    if wanted.error_group is not None:
        return await need_observing(storage).group_jobs(queue, wanted.error_group, after, limit)
    group = wanted.group if state is State.QUEUED else None
    if (newest or group is not None) and (observing := observing_of(storage)) is not None:
        return await observing.find(queue, state, after, limit, newest, group)
    return await storage.find(queue, state, after, limit)


def _redacted(status: JobStatus, redacting: Redacting) -> JobStatus:
    """Return a status without secrets."""
    error = status.error
    return replace(
        status,
        payload=redacting.value(_by_keys(status.payload)),
        result=redacting.value(_by_keys(status.result)),
        headers=redacting.value(status.headers),
        error=None if error is None else replace(error, message=redacting.text(error.message)),
    )


def _by_keys(value: Any) -> Any:
    """Return a value as mappings, lists and plain values, so that the keys of secrets are found; bytes give None.

    Bytes that no serde could decode may hold secrets, and so may objects of unknown classes.
    """
    if isinstance(value, bytes):
        return None
    try:
        return msgspec.to_builtins(value, str_keys=True, enc_hook=lambda unknown: None)
    except (TypeError, ValueError, RecursionError):
        return None


def _read_cursor(after: str | None) -> WalkCursor:
    if after is None:
        return WalkCursor()
    try:
        return msgspec.json.decode(after, type=WalkCursor)
    except msgspec.MsgspecError:
        raise FilterError(f"after must be a cursor that the search gave, not {after!r}") from None
