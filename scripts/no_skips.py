"""Fail if the test report names a skipped test: in CI, every test runs."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree


def main(report: Path) -> int:
    """Print every skip of a JUnit report; returns 1 if there is one, or if no test ran."""
    if not report.exists():
        print(f"no_skips: there is no report at {report}", file=sys.stderr)
        return 1
    ran = skipped = expected = 0
    for case in ElementTree.parse(report).iter("testcase"):
        ran += 1
        skip = case.find("skipped")
        if skip is None:
            continue
        name = f"{case.get('classname')}.{case.get('name')}"
        if skip.get("type") == "pytest.xfail":
            expected += 1
            print(f"no_skips: expected to fail: {name}: {skip.get('message')}")
        else:
            skipped += 1
            print(f"no_skips: skipped: {name}: {skip.get('message')}", file=sys.stderr)
    print(f"no_skips: {ran} tests, {skipped} skipped, {expected} expected to fail")
    return 1 if skipped or not ran else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "build/junit.xml")))
