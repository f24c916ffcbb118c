"""The settings behind a limit: stored form, the limit in force, and whose declaration holds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.limit import Limit
from penstock.model.limit_settings import LimitSettings
from penstock.model.settings import Declarer
from penstock.worker.declared_limits import declared

FIVE, SIX = Limit(concurrency=5), Limit(rate="6/min", burst=3)
ME, OTHER = Declarer("w2", 200), Declarer("w1", 100)


@pytest.mark.parametrize(
    "settings",
    [
        LimitSettings(),
        LimitSettings(declared=FIVE, declarer=ME),
        LimitSettings(changed=SIX),
        LimitSettings(declared=FIVE, declarer=OTHER, changed=SIX),
    ],
)
def test_settings_are_stored_and_read(settings: LimitSettings) -> None:
    """Settings are decoded to those that were encoded; settings without parts are no bytes."""
    assert LimitSettings.decode(settings.encode()) == settings
    assert (settings.encode() == b"") == (settings.limit is None)


@given(st.binary(max_size=40))
def test_damaged_settings_are_none(data: bytes) -> None:
    """Bytes that are no settings never raise."""
    LimitSettings.decode(data)


def test_the_change_wins_until_it_is_reset() -> None:
    """The limit in force is the change at run time, then the declaration."""
    settings = LimitSettings().declare(FIVE, ME)
    assert settings.limit == FIVE
    assert settings.change(SIX).limit == SIX
    assert settings.change(SIX).change(None) == settings


def test_the_last_started_live_worker_declares() -> None:
    """A worker writes its declaration over that of an earlier one, and of a dead one; not over that of a later one."""
    live = {ME.worker: ME.started, OTHER.worker: OTHER.started}
    assert declared(LimitSettings(), FIVE, ME, live) == LimitSettings(declared=FIVE, declarer=ME)
    of_earlier = LimitSettings(declared=SIX, declarer=OTHER)
    assert declared(of_earlier, FIVE, ME, live).declared == FIVE
    of_later = LimitSettings(declared=SIX, declarer=Declarer("w3", 300))
    assert declared(of_later, FIVE, ME, {**live, "w3": 300}) == of_later
    assert declared(of_later, FIVE, ME, live).declared == FIVE


def test_a_declaration_without_a_live_declarer_is_dropped() -> None:
    """A worker that declares none drops the declaration of a dead worker, and leaves that of a live one."""
    settings = LimitSettings(declared=SIX, declarer=OTHER, changed=FIVE)
    assert declared(settings, None, ME, {ME.worker: 200, OTHER.worker: 100}) == settings
    assert declared(settings, None, ME, {ME.worker: 200}) == LimitSettings(changed=FIVE)
    assert declared(LimitSettings(declared=SIX, declarer=ME), None, ME, {ME.worker: 200}) == LimitSettings()
