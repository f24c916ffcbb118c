"""Damaged records of a queue on Redis: the verbs on other jobs answer, and a worker drains the rest."""

from __future__ import annotations

import pytest

from penstock.storage.base import Storage
from tests.support import Clock
from tests.tampering import build_scene, drain, use

pytestmark = [pytest.mark.beyond_model, pytest.mark.leaves_records]


@pytest.mark.only("sqlite", "redis", "valkey", "cluster")
async def test_a_queue_without_damage_is_used_and_drained(storage: Storage, clock: Clock) -> None:
    """Without damage every verb answers, and every job ends exactly once: the other tests prove something."""
    scene = await build_scene(storage, clock)
    await use(scene)
    await drain(scene)
