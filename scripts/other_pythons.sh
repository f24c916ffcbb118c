#!/usr/bin/env bash
# Run the unit tests and the tour, on memory and SQLite, in every other Python that is here (3.12, 3.13).
set -euo pipefail
cd "$(dirname "$0")/.."
export PYTHONDONTWRITEBYTECODE=1
found=0
for version in 3.12 3.13; do
  python=$(command -v "python$version" || ls -d "$HOME"/.pyenv/versions/"$version".*/bin/python 2> /dev/null | tail -1 || true)
  if [ -z "$python" ] || ! "$python" -c 'import sqlite3' 2> /dev/null; then
    echo "other_pythons: no Python $version here"
    continue
  fi
  found=$((found + 1))
  venv="build/python-$version"
  test -x "$venv/bin/python" || "$python" -m venv "$venv"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -e '.[crypto,redis]' \
    'attrs>=23' 'hypothesis>=6.120' 'pydantic>=2.7' 'pytest>=8.3' 'pytest-timeout>=2.3' 'pytest-xdist>=3.6'
  "$venv/bin/python" --version
  "$venv/bin/python" -m pytest -p no:cacheprovider -n 2 --storages memory,sqlite "${@:-tests/unit}" tests/tour
done
echo "other_pythons: $found of 2 were here"
