"""When a child gives up looking for its parent in the storage, and the reason it gives."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock import Penstock
from penstock.worker.supervisor.storage_match import PARENT_TIMEOUT, location_of, why_parent_is_missing

REDIS, OTHER, FILE = "redis://a:6379", "redis://b:6379", "sqlite:/a/jobs.db"


@pytest.mark.parametrize(("parent", "child"), [(REDIS, REDIS), (REDIS, OTHER), (FILE, FILE), ("", "")])
def test_a_child_on_a_server_waits_for_its_parent(parent: str, child: str) -> None:
    """A child on a server waits for the record of its parent, which may be lost for a while, but not for ever."""
    assert why_parent_is_missing(parent, child, 0.0) is None
    assert why_parent_is_missing(parent, child, PARENT_TIMEOUT - 0.1) is None
    reason = why_parent_is_missing(parent, child, PARENT_TIMEOUT)
    assert reason is not None
    assert "the same namespace" in reason
    assert parent in reason
    assert child in reason


@pytest.mark.parametrize(("parent", "child"), [(FILE, "sqlite:/b/jobs.db"), (FILE, REDIS), (REDIS, FILE)])
def test_a_child_on_another_file_gives_up_at_once(parent: str, child: str) -> None:
    """A child on another file than its parent gives up at once; the reason names both files."""
    reason = why_parent_is_missing(parent, child, 0.0)
    assert reason is not None
    assert parent in reason
    assert child in reason


def test_a_child_in_memory_gives_up_at_once() -> None:
    """A child on a storage in memory gives up at once: it is private to its process."""
    assert "private" in (why_parent_is_missing("memory:", "memory:", 0.0) or "")


def test_a_location_has_no_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files by their full path, servers by their address, memory as such."""
    monkeypatch.chdir(tmp_path)
    assert location_of(Penstock("sqlite:jobs.db").storage) == f"sqlite:{os.path.realpath(tmp_path)}/jobs.db"
    assert location_of(Penstock("redis://me:secret@host:1/0").storage) == "redis://host:1"
    assert location_of(Penstock("memory:").storage) == "memory:"
