#!/usr/bin/env bash
# Run the unit tests and the tour, on SQLite, in every other Python that is here (3.12, 3.13).
set -euo pipefail
cd "$(dirname "$0")/.."
export PYTHONDONTWRITEBYTECODE=1
# The first Python of a version that runs: a name on the path may be a shim of one that is not chosen.
python_of() {
  for python in "python$1" "$HOME"/.pyenv/versions/"$1".*/bin/python; do
    if "$python" -c 'import sqlite3' 2> /dev/null; then
      echo "$python"
      return
    fi
  done
}

found=0
for version in 3.12 3.13; do
  python=$(python_of "$version")
  if [ -z "$python" ]; then
    echo "other_pythons: no Python $version here"
    continue
  fi
  found=$((found + 1))
  venv="build/python-$version"
  test -x "$venv/bin/python" || "$python" -m venv "$venv"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -e '.[crypto,redis]' \
    'attrs>=23' 'hypothesis>=6.120' 'pydantic>=2.7' 'pytest>=8.3' 'pytest-timeout>=2.3' 'pytest-xdist>=3.6'
  "$venv/bin/python" --version
  # Python 3.12 before 3.12.4 takes the numbered placeholders of SQL (?1) for named ones, and warns of them.
  "$venv/bin/python" -m pytest -W 'ignore:Binding:DeprecationWarning' -p no:cacheprovider -n 2 --storages sqlite "${@:-tests/unit}" tests/tour
done
echo "other_pythons: $found of 2 were here"
