"""Look up known vulnerabilities of the packages in requirements/*.txt with pip-audit.

The exit status is 1 if one is found. Packages that could not be looked up, because the database cannot be reached, are
reported; with `--strict` they are a failure too.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def look_up(requirements: Path) -> list[dict[str, Any]] | None:
    """Return the packages of a file as pip-audit reports them, or None if its database cannot be reached."""
    command = [sys.executable, "-m", "pip_audit", "--progress-spinner=off", "--format=json", "--disable-pip"]
    command += ["--require-hashes", "--requirement", str(requirements)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if not done.stdout.strip():
        return None
    return json.loads(done.stdout)["dependencies"]


def main(arguments: list[str]) -> int:
    """Print the vulnerabilities of all files; returns the exit status."""
    found = unknown = known = 0
    for path in sorted((ROOT / "requirements").glob("*.txt")):
        packages = look_up(path)
        if packages is None:
            print(f"vulnerabilities: {path.name}: the database cannot be reached")
            unknown += 1
            continue
        for package in packages:
            if "skip_reason" in package:
                unknown += 1
                continue
            known += 1
            for each in package["vulns"]:
                found += 1
                fixed = ", ".join(each["fix_versions"]) or "no version"
                named = f"{package['name']} {package['version']}"
                print(f"vulnerabilities: {path.name}: {named}: {each['id']}, fixed in {fixed}")
    print(f"vulnerabilities: {found} found in {known} packages; {unknown} could not be looked up")
    return 1 if found or (unknown and "--strict" in arguments) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
