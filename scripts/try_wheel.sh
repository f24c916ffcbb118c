#!/usr/bin/env bash
# Install a wheel into an empty environment and use it: the command, a job on a file, a job without a server.
set -euo pipefail
wheel=$(realpath "$1")
requirements=$(realpath "$(dirname "$0")/../requirements/core.txt")
python="${2:-python3}"
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
"$python" -m venv "$here/venv"
"$here/venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r "$requirements"
"$here/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps "$wheel"
"$here/venv/bin/python" -m pip check > /dev/null # the wheel asks for nothing else
cd "$here"
unset PYTHONPATH PENSTOCK_URL PENSTOCK_APP
export PATH="$here/venv/bin:$PATH"
cat > jobs.py << 'END'
from penstock import Penstock

app = Penstock()


@app.handler("greetings")
async def greet(name: str) -> str:
    return f"hello, {name}"
END
penstock --version
penstock enqueue greetings '"world"' --id first
penstock worker jobs:app --drain --processes 1 2> log || { cat log; exit 1; }
penstock job show greetings first | grep -q 'hello, world'
penstock demo --jobs 60 | tail -1
python -c 'import importlib.resources as r, penstock; assert r.files(penstock).joinpath("py.typed").is_file()'
(python -c 'import penstock; penstock.Penstock("redis://localhost")' 2>&1 || true) | grep -q 'pip install "penstock\[redis\]"'
echo "try_wheel: $(basename "$wheel") works in $("$python" --version), with nothing but what it asks for"
