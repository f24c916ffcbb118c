"""Names that attack terminals, logs and shells, and the list of all commands that print names."""

from __future__ import annotations

from pathlib import Path

import click

import penstock
from penstock.cli import COMMANDS, main
from penstock.cli.workers import SUBCOMMANDS

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
    found = {f"worker {name}": command for name, command in SUBCOMMANDS.items()}
    for name in COMMANDS:
        command = main.get_command(click.Context(main, info_name="penstock"), name)
        assert command is not None
        found.update(commands_of(name, command))
    return found


def commands_of(name: str, command: click.Command) -> dict[str, click.Command]:
    """Return a command by its name, or those of a group and of the groups in it."""
    if not isinstance(command, click.Group):
        return {name: command}
    found: dict[str, click.Command] = {}
    context = click.Context(command, info_name=name)
    for below in command.list_commands(context):
        made = command.get_command(context, below)
        assert made is not None
        found.update(commands_of(f"{name} {below}", made))
    return found
