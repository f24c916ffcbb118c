#!/usr/bin/env bash
# Run the tests of the model, the storage and the tour, on SQLite, in the other Pythons that Penstock supports (3.12, 3.13).
# On a developer's machine a Python that is missing is left out; in CI it is a failure.
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
    echo "other_pythons: there is no Python $version on this machine"
    if [ "${CI:-}" = "true" ]; then
      exit 1
    fi
    continue
  fi
  found=$((found + 1))
  venv="build/python-$version"
  test -x "$venv/bin/python" || "$python" -m venv "$venv"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/other.txt
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
  "$venv/bin/python" --version
  # Python 3.12 before 3.12.4 takes the numbered placeholders of SQL (?1) for named ones, and warns of them.
  "$venv/bin/python" -m pytest -W 'ignore:Binding:DeprecationWarning' -p no:cacheprovider -n 2 --storages sqlite "${@:-tests/unit}" tests/storage tests/tour
done
echo "other_pythons: $found of 2 were here"
