"""The optional part of a storage that limits jobs: how many run at once, and how many start in a time."""

from __future__ import annotations

from typing import Literal, Protocol, runtime_checkable

import msgspec

from penstock.model.limit import Rule
from penstock.model.pause import Pause

__all__ = ["LimitPage", "LimitRecord", "Limiting", "Pause", "Scope", "ScopeKind"]

#: The jobs that one limit is for: those of a family, of a queue, of each group of a queue, or of one group.
ScopeKind = Literal["family", "queue", "groups", "group"]


class Scope(msgspec.Struct, frozen=True, gc=False):
    """The scope of a limit. `name` is the family for the kind `family`, else the queue; `group` is for one group."""

    kind: ScopeKind
    name: str
    group: str | None = None


class LimitRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A limit and the state of its gate, read at one moment.

    `rule` is the limit in force, None for none of its own. `settings` are the parts it follows from, declared in code
    and changed at run time, opaque to the storage. `running` is the number of live claims of the scope, `waiting` that
    of its queued jobs, of a group up to `MAX_AHEAD`; both are 0 for the kind `groups`. `opens` is when a gate that is
    closed by its rate or a pause opens; None if it is open, or closed by its concurrency or a pause without an end.
    For the kind `groups` it is when the first of the closed groups opens by itself, and `closed` is the number of
    groups with queued jobs whose gates are closed.
    """

    scope: Scope
    rule: Rule | None = None
    settings: bytes = b""
    version: int = 0
    running: int = 0
    waiting: int = 0
    opens: int | None = None
    pause: Pause | None = None
    closed: int = 0


class LimitPage(msgspec.Struct, frozen=True):
    """A page of the limits of one queue; `cursor` leads to the next one, None at the end."""

    limits: list[LimitRecord]
    cursor: str | None = None


@runtime_checkable
class Limiting(Protocol):
    """A storage with limits. On one without them, the calls that need them raise `NotSupported`."""

    async def set_limit(self, scope: Scope, rule: Rule | None, settings: bytes, version: int) -> int | None:
        """Set the limit of a scope if its version is still this one, 0 for none; returns the new version.

        None means that the version is another, and nothing changed. Without a rule and settings the limit is removed,
        and the answer is 0. The limit holds from the next claim on, for jobs that wait already; no run is touched. The
        storage sets the time of the change in the rule.
        """
        ...

    async def get_limit(self, scope: Scope) -> LimitRecord:
        """Return the limit of a scope and the state of its gate; a scope without one has version 0."""
        ...

    async def limits(self, queue: str, after: str | None = None, limit: int = 100) -> LimitPage:
        """Return the limits that hold for a queue: its family's, its own, that of each group, those of single groups.

        Groups with a limit of their own or a pause are listed, by their UTF-8 bytes.
        """
        ...
