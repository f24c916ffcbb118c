"""The tests of flows by the API that users call, on Redis instead of in memory."""

from __future__ import annotations

import pytest

from tests.client import test_flow

pytestmark = pytest.mark.only("redis")

for _name, _test in vars(test_flow).items():
    if _name.startswith("test_"):
        globals()[_name] = _test
