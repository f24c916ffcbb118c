"""Names that attack terminals, logs and shells, and the list of all commands that print names."""

from __future__ import annotations

from pathlib import Path

import click

import penstock
from penstock.cli import COMMANDS, main
from penstock.cli.workers import ls

__all__ = ["FORBIDDEN", "HOSTILE", "SOURCE", "every_command", "raw"]

#: The folder of the package under test, for other processes.
SOURCE = Path(penstock.__file__).absolute().parent.parent

#: Characters that no output may have raw: C0 but for newline, DEL, C1, bidi marks, separators of lines.
FORBIDDEN = (
    {chr(code) for code in (*range(0x20), *range(0x7F, 0xA0))}
    | {chr(code) for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C, 0x2028, 0x2029)}
) - {"\n"}

#: A name for each forbidden character, then names that forge lines and titles, and those that a shell would run.
HOSTILE = [
    *(f"n{ord(character):x}{character}x" for character in sorted(FORBIDDEN)),
    "two\nlines",
    "forged\n2026-01-01 00:00:00,000 CRITICAL 1 sshd: root login accepted\x1b[2J",
    "\x1b]0;title\x07\x1b[2J",
    "$(touch${IFS}made)",
    "`touch${IFS}made`",
    "\u202egnp.exe",
]


def raw(text: str) -> list[str]:
    """Return the forbidden characters that a text has raw."""
    return sorted(FORBIDDEN.intersection(text))


def every_command() -> dict[str, click.Command]:
    """Return every command by its name, such as "queue ls"."""
    context = click.Context(main, info_name="penstock")
    found: dict[str, click.Command] = {"worker ls": ls}
    for name in COMMANDS:
        command = main.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            for sub in command.list_commands(context):
                below = command.get_command(context, sub)
                assert below is not None
                found[f"{name} {sub}"] = below
        else:
            found[name] = command
    return found
