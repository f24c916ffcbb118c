"""Arbitrary arguments: every command answers, or fails with one line and no traceback."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.cli import main
from tests.e2e.conftest import ROOT

#: Any text, lone surrogates included: that is what arguments with stray bytes become.
TEXT = st.text(st.characters(exclude_categories=()), max_size=20)
ARGUMENTS = st.one_of(
    TEXT, st.sampled_from(["q", "a", "--json", "--limit", "-1", "--state", "failed", "{}", "--yes", "--", ""])
)

COMMANDS = [
    ["enqueue"], ["queue", "ls"], ["queue", "show"], ["queue", "pause"], ["queue", "resume"], ["queue", "delete"],
    ["job", "ls"], ["job", "show"], ["job", "why"], ["job", "cancel"], ["job", "retry"], ["import"], ["export"],
    ["worker", "ls"], [],
]  # fmt: skip


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(command=st.sampled_from(COMMANDS), arguments=st.lists(ARGUMENTS, max_size=4), stdin=st.binary(max_size=40))
def test_arbitrary_arguments_never_give_a_traceback(
    tmp_path: Path, command: list[str], arguments: list[str], stdin: bytes
) -> None:
    """For arbitrary arguments the exit code is 0, 1 or 2, and no error is unexpected."""
    where = ["--url", f"sqlite:{tmp_path / 'jobs.db'}"] if command else []
    environment = {"PENSTOCK_URL": f"sqlite:{tmp_path / 'jobs.db'}"}
    all_arguments = [*command, *where, *arguments] if command else arguments
    with contextlib.chdir(tmp_path):
        result = CliRunner().invoke(main, all_arguments, input=stdin, env=environment, prog_name="penstock")
    assert result.exception is None or isinstance(result.exception, SystemExit), (all_arguments, result.exception)
    assert result.exit_code in (0, 1, 2)
    assert "Error: unexpected " not in result.stderr, (all_arguments, result.stderr)


def test_stray_bytes_in_arguments(tmp_path: Path) -> None:
    """Arguments that are not UTF-8 are usage errors of one line."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "penstock", "enqueue", "--url", f"sqlite:{tmp_path}/jobs.db"]
    for stray in ([b"\xff", b"1"], [b"q", b"\xfe"], [b"q", b'"\xfe"'], [b"q", b"1", b"--id", b"\xff"]):
        done = subprocess.run([*command, *stray], capture_output=True, env=environment, cwd=tmp_path, check=False)
        assert done.returncode == 2
        assert done.stderr.count(b"\n") == 1
        assert b"Traceback" not in done.stderr
