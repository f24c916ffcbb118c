"""One target under atheris, in the environment that has it: `python -m fuzz.run TARGET [libFuzzer options]`."""

from __future__ import annotations

import sys
from typing import Any

import atheris  # type: ignore[import-not-found]  # only in the fuzzer's own environment

fuzzer: Any = atheris

if __name__ == "__main__":
    with fuzzer.instrument_imports(include=["penstock"]):
        from fuzz.targets import TARGETS

        name = sys.argv.pop(1)
    fuzzer.Setup(sys.argv, TARGETS[name])
    fuzzer.Fuzz()
