"""Check that a wheel holds every file of the package, data files included."""

from __future__ import annotations

import sys
from pathlib import Path
from zipfile import ZipFile

SOURCE = Path(__file__).resolve().parent.parent / "src"
SUFFIXES = {".lua", ".py", ".sql", ".typed"}


def main(wheel: Path) -> int:
    """Print every file that is missing from the wheel and answer 1 if there is one."""
    wanted = {path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*") if path.suffix in SUFFIXES}
    missing = wanted - set(ZipFile(wheel).namelist())
    for name in sorted(missing):
        print(f"check_wheel: not in {wheel.name}: {name}", file=sys.stderr)
    data = sorted({Path(name).suffix for name in wanted} - {".py"})
    print(f"check_wheel: {wheel.name} holds {len(wanted) - len(missing)} of {len(wanted)} files ({', '.join(data)})")
    return 1 if missing or not wanted else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
