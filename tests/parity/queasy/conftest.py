"""An app as Queasy's users would have it."""

from __future__ import annotations

import pytest

from penstock import Penstock
from tests.parity.conftest import NewApp


@pytest.fixture
def app(new_app: NewApp) -> Penstock:
    return new_app("queasy")
