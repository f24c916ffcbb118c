"""Run the few tests that failed in a whole run again, alone and several times; say which, and whether they hold.

The whole run puts four processes on two cores, beside servers, browsers and killed workers; a test that fails
there may wait for something that came too late. One that fails alone is broken. Either way it is named: a test that
needs a second look is a bug of the test or of what it tests, and is to be mended.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

#: More failures than this are no accident; and how often each of them must hold.
MOST, TIMES = 3, 3


def node_of(case: ElementTree.Element) -> str:
    """The name by which pytest finds a test of the report."""
    words = (case.get("classname") or "").split(".")
    for size in range(len(words), 0, -1):
        path = Path(*words[:size]).with_suffix(".py")
        if path.exists():
            return "::".join([str(path), *words[size:], case.get("name") or ""])
    raise SystemExit(f"again: no file has the test {case.get('classname')}.{case.get('name')}")


def main(report: Path) -> int:
    """0 when there are few failures and each of them holds when it is alone."""
    if not report.exists():
        print(f"again: there is no report at {report}", file=sys.stderr)
        return 1
    cases = ElementTree.parse(report).iter("testcase")
    failed = sorted({node_of(c) for c in cases if c.find("failure") is not None or c.find("error") is not None})
    if not 0 < len(failed) <= MOST:
        print(f"again: {len(failed)} tests failed, which is no accident", file=sys.stderr)
        return 1
    for node in failed:
        print(f"again: FAILED among all others: {node}", flush=True)
    for time in range(1, TIMES + 1):
        if subprocess.run([sys.executable, "-m", "pytest", *failed], check=False).returncode:
            print(f"again: failed alone, too (time {time})", file=sys.stderr)
            return 1
    print(f"again: held alone, {TIMES} times: mend {'them' if len(failed) > 1 else 'it'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "build/junit.xml")))
