"""A distribution that names our pytest plugin, as an installed Penstock does."""

from __future__ import annotations

import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"


def install_plugin(directory: Path) -> Path:
    """Write one: with its folder on the path pytest finds the plugin, even where no Penstock is installed."""
    points = tomllib.loads(PROJECT.read_text())["project"]["entry-points"]["pytest11"]
    site = directory / "site"
    installed = site / "installed-1.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: installed\nVersion: 1\n")
    lines = [f"{name} = {module}" for name, module in points.items()]
    (installed / "entry_points.txt").write_text("\n".join(["[pytest11]", *lines, ""]))
    return site
