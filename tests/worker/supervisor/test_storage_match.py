"""When a child stops looking for its parent in the storage, and what it says then."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock import Penstock
from penstock.worker.supervisor.storage_match import PARENT_TIMEOUT, location_of, why_parent_is_missing

REDIS, OTHER, FILE = "redis://a:6379", "redis://b:6379", "sqlite:/a/jobs.db"


@pytest.mark.parametrize(("parent", "child"), [(REDIS, REDIS), (REDIS, OTHER), (FILE, FILE), ("", "")])
def test_what_may_be_the_same_storage_is_given_time(parent: str, child: str) -> None:
    """A server may have forgotten the parent, and one server may have two names: both are waited for, but bounded."""
    assert why_parent_is_missing(parent, child, 0.0) is None
    assert why_parent_is_missing(parent, child, PARENT_TIMEOUT - 0.1) is None
    said = why_parent_is_missing(parent, child, PARENT_TIMEOUT)
    assert said is not None
    assert "the same namespace" in said
    assert parent in said
    assert child in said


@pytest.mark.parametrize(("parent", "child"), [(FILE, "sqlite:/b/jobs.db"), (FILE, REDIS), (REDIS, FILE)])
def test_another_file_is_told_at_once(parent: str, child: str) -> None:
    """Two files never become one, so nobody waits for it; the line names both."""
    said = why_parent_is_missing(parent, child, 0.0)
    assert said is not None
    assert parent in said
    assert child in said


def test_memory_is_told_at_once() -> None:
    """What is private to a process can hold no parent."""
    assert "private" in (why_parent_is_missing("memory:", "memory:", 0.0) or "")


def test_a_place_is_named_without_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files by their full path, servers by their address, memory as such."""
    monkeypatch.chdir(tmp_path)
    assert location_of(Penstock("sqlite:jobs.db").storage) == f"sqlite:{os.path.realpath(tmp_path)}/jobs.db"
    assert location_of(Penstock("redis://me:secret@host:1/0").storage) == "redis://host:1"
    assert location_of(Penstock("memory:").storage) == "memory:"
