"""Fuzz the decoders with atheris, which is installed into an environment of its own.

    python -m fuzz [--seconds N] [TARGET...]        all targets, N seconds each (30)

A crash is written to build/fuzz, with the bytes that repeat it: `python -m fuzz --repeat FILE TARGET`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import venv
from pathlib import Path

from fuzz.targets import TARGETS

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / "build" / "fuzz"
ENVIRONMENT = HOME / "venv"
NEEDS = ("atheris", "msgspec", "redis>=8.0", "hiredis>=3", "cryptography>=43", "click", "rich")


def environment() -> str:
    """Return the interpreter of an environment with atheris; make that if it is missing."""
    python = ENVIRONMENT / "bin" / "python"
    stamp = ENVIRONMENT / "installed"
    if not stamp.exists() or stamp.read_text() != " ".join(NEEDS):
        print("fuzz: installing atheris", flush=True)
        venv.create(ENVIRONMENT, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *NEEDS], check=True)
        stamp.write_text(" ".join(NEEDS))
    return str(python)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m fuzz", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"one of {', '.join(TARGETS)}")
    parser.add_argument("--seconds", type=int, default=30, help="for each target")
    parser.add_argument("--repeat", type=Path, help="run one target on the bytes of a file")
    args = parser.parse_args()
    unknown = set(args.targets) - TARGETS.keys()
    if unknown:
        parser.error(f"unknown targets: {', '.join(sorted(unknown))}; known are {', '.join(TARGETS)}")
    if args.repeat is not None:
        TARGETS[args.targets[0]](args.repeat.read_bytes())
        return 0
    HOME.mkdir(parents=True, exist_ok=True)
    python = environment()
    variables = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    failed: list[str] = []
    for name in args.targets or TARGETS:
        print(f"fuzz: {name}, {args.seconds} s", flush=True)
        corpus = HOME / "corpus" / name
        corpus.mkdir(parents=True, exist_ok=True)
        command = [python, "-m", "fuzz.run", name, f"-max_total_time={args.seconds}", "-max_len=512", "-verbosity=0",
                   "-print_final_stats=1", f"-artifact_prefix={HOME}/{name}-", str(corpus)]  # fmt: skip
        if subprocess.run(command, env=variables, check=False).returncode:
            failed.append(name)
    print(f"fuzz: {'crashes in ' + ', '.join(failed) if failed else 'no crash'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
