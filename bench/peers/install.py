"""Environments of the peers: one folder each, created at first use and kept for the next run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from bench.systems import CURRENT, Environment, System


class NotInstalled(Exception):
    """An environment could not be installed."""


def cache() -> Path:
    """Return BENCH_CACHE, or `penstock-bench` in the user's cache folder."""
    given = os.environ.get("BENCH_CACHE")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock-bench"


def environment_of(system: System) -> Environment:
    """Return the environment of a system, installed if it is missing or outdated."""
    if not system.packages:
        return CURRENT
    folder = cache() / system.name
    stamp = folder / "installed"
    wanted = "\n".join([sys.version, *system.packages])
    if not stamp.exists() or stamp.read_text() != wanted:
        print(f"bench: installing {', '.join(system.packages)}", file=sys.stderr, flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (_node if system.language == "Node" else _python)(folder, system.packages)
        stamp.write_text(wanted)
    programs = folder / "bin"
    return Environment(str(programs / "python"), str(programs))


def _python(folder: Path, packages: tuple[str, ...]) -> None:
    _run([sys.executable, "-m", "venv", str(folder)])
    _run([str(folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", *packages])


def _node(folder: Path, packages: tuple[str, ...]) -> None:
    (folder / "package.json").write_text('{"private": true}\n')
    _run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder), *packages])


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    except OSError as error:
        raise NotInstalled(f"{command[0]} cannot be run: {error}") from error
    if done.returncode:
        raise NotInstalled(f"{' '.join(command)} failed:\n{done.stdout[-1000:]}{done.stderr[-1000:]}")
