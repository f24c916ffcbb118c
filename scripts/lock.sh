#!/usr/bin/env bash
# Write requirements/*.txt: the newest versions that pyproject.toml allows, with hashes and without addresses.
set -euo pipefail
cd "$(dirname "$0")/.."
python="${1:-python3}"
venv=build/lock-venv
test -x "$venv/bin/python" || "$python" -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check 'uv>=0.9'

lock() {
  name=$1
  shift
  "$venv/bin/uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
    --no-emit-index-url --upgrade --output-file "requirements/$name.txt" "$@"
  echo "lock: requirements/$name.txt has $(grep -c == "requirements/$name.txt") packages"
}

lock core pyproject.toml
lock dev pyproject.toml --extra dev --extra redis requirements/build.in
lock other pyproject.toml --extra crypto --extra redis requirements/other.in requirements/build.in
lock docs pyproject.toml --extra docs
lock audit requirements/audit.in
