"""Check that the wheel holds every file of the package, data files included, and the sdist all that tests need."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).resolve().parent.parent
SUFFIXES = {".css", ".html", ".js", ".lua", ".py", ".sql", ".svg", ".typed"}
#: Directories and files that a source distribution must have, to build, test and read.
PARTS = ("src/", "tests/", "docs/", "scripts/", "requirements/", "bench/", "chaos/", "examples/", ".ci/")
FILES = {"Makefile", "LICENSE", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "pyproject.toml", "mkdocs.yml"}


def package() -> set[str]:
    """Return the files of the package, as a wheel names them."""
    source = ROOT / "src"
    return {path.relative_to(source).as_posix() for path in source.rglob("*") if path.suffix in SUFFIXES}


def repository() -> set[str]:
    """Return the files under git that a source distribution should have; without git, those of the package."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        return {f"src/{name}" for name in package()}
    names = set(listed.stdout.splitlines())
    return {name for name in names if (name.startswith(PARTS) or name in FILES) and (ROOT / name).exists()}


def report(archive: Path, wanted: set[str], found: set[str]) -> bool:
    """Print missing files; returns whether there are none."""
    for name in sorted(wanted - found):
        print(f"check_dist: not in {archive.name}: {name}", file=sys.stderr)
    data = sorted({Path(name).suffix for name in wanted if Path(name).suffix in SUFFIXES} - {".py"})
    print(f"check_dist: {archive.name} holds {len(wanted & found)} of {len(wanted)} files ({', '.join(data)})")
    return wanted <= found and bool(wanted)


def main(directory: Path) -> int:
    """Check the one wheel and the one sdist of a directory; returns 1 if a file is missing."""
    [wheel], [sdist] = list(directory.glob("*.whl")), list(directory.glob("*.tar.gz"))
    good = report(wheel, package(), set(ZipFile(wheel).namelist()))
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    good = report(sdist, repository(), held) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
