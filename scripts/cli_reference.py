"""Write docs/reference/cli.md from the commands; with --check, only test whether it is up to date."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from penstock.cli import COMMANDS, main
from penstock.cli.base import CommandWithExamples
from penstock.cli.workers import SUBCOMMANDS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "cli.md"

TOP = """\
# The command line

<!-- This page is written by scripts/cli_reference.py from the commands themselves. -->

`penstock` and `python -m penstock` are the same. `penstock COMMAND --help` prints the same text as this page.

**Choice of the storage.** Commands that work on jobs find the storage in this order: `--url`; the app in
`--app MODULE:APP` or `PENSTOCK_APP`; `PENSTOCK_URL`; `app` and then `url` in `[tool.penstock]` of the nearest
`pyproject.toml`; the file `penstock.db` in this directory. `enqueue` and `call` use the app of `pyproject.toml` before
`PENSTOCK_URL`, because they encode payloads as its handlers expect them. With a URL the namespace is `--namespace`,
`PENSTOCK_NAMESPACE`, `namespace` in `[tool.penstock]`, or `penstock`; an app has its own. Give a password in
`PENSTOCK_URL` rather than `--url`, which all users of the machine see in its list of processes; no output shows it.

```toml
[tool.penstock]
app = "jobs:app"
```

**Code that commands run.** A command that uses an app imports it, which runs its code; `python -m` also lets Python
import from the current directory, as it does for every module. A `pyproject.toml` is used only if it, the module of its
app and all directories from the current one to its own belong to you or root, and no other user may write to them. A
group may, if it is your private group: your primary one, with the number of your user and no other members. A sticky
directory such as `/tmp` may lie between. A file that is passed over is named on stderr with the reason, and the search
ends there. `--app` is also searched for in the current directory, as with `python -m`; `PENSTOCK_APP` only if no other
user can write there. Completion imports no app: it asks the storage of `--url`, `PENSTOCK_URL` or `url` in
`[tool.penstock]`, and offers names of letters, digits and `._/@+-` only.

**Output.** Tables and colours on a terminal, aligned text without them when piped, and with `--json` one JSON
document (live commands: one per line). `NO_COLOR` is honoured. Characters of names, ids and messages that are not
printable, such as control characters, newlines and marks for the direction of text, are printed escaped: in text as
`\\x1b`, in JSON, piped or not, as `\\u001b`, which parses to the same value. Only a result of bytes is piped as it is.

**Exit codes.** 0: done. 1: it could not be done, or the answer is no. 2: a mistake in the command, or an app that
cannot be imported. An error is one line with its remedy; `--debug` adds the traceback.
[`penstock doctor`](#penstock-doctor) has its own. A command that cannot be undone asks first; `--yes` answers.
"""


def commands() -> Iterator[tuple[str, click.Command]]:
    """Yield every command with its full name, in the order of the list."""
    context = click.Context(main, info_name="penstock")
    for name in COMMANDS:
        command = main.get_command(context, name)
        assert command is not None
        yield from with_commands_below(f"penstock {name}", command)
        if name == "worker":
            yield from ((f"penstock worker {sub}", found) for sub, found in SUBCOMMANDS.items())


def with_commands_below(title: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """Yield a command, and those of a group with the groups among them."""
    yield title, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=title)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from with_commands_below(f"{title} {name}", found)


def section(title: str, command: click.Command) -> Iterator[str]:
    """Yield the lines about one command: help, usage, options, examples."""
    yield f"\n## {title}\n"
    yield f"{prose(command)}\n"
    if isinstance(command, click.Group):
        return
    context = click.Context(command, info_name=title)
    pieces = " ".join(command.collect_usage_pieces(context))
    yield f"```text\n{title} {pieces}\n```\n"
    options = [param for param in command.params if isinstance(param, click.Option)]
    if options:
        yield "| option | |\n|---|---|"
        yield from map(row, options)
        yield ""
    if isinstance(command, CommandWithExamples) and command.examples:
        yield "```sh\n" + "\n".join(command.examples) + "\n```"


def prose(command: click.Command) -> str:
    """Return the help of a command, each paragraph on one line."""
    paragraphs = (command.help or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def row(option: click.Option) -> str:
    """Return the table row of an option; not formatted by click, whose output differs between releases."""
    kind = "" if option.is_flag else " " + (option.metavar or type_text(option.type))
    text = " ".join((option.help or "").split())
    if option.show_default:
        text += (
            f" [default: {option.default:g}]" if isinstance(option.default, float) else f" [default: {option.default}]"
        )
    return f"| `{', '.join(sorted(option.opts, key=len, reverse=True))}{kind}` | {text.replace('|', chr(92) + '|')} |"


def type_text(kind: click.ParamType) -> str:
    """Return the type of an option's value; for a choice, its choices."""
    if isinstance(kind, click.Choice):
        return ", ".join(map(str, kind.choices))
    if isinstance(kind, (click.types.IntParamType, click.types.FloatParamType)):
        return "NUMBER"
    return "FILE" if isinstance(kind, click.Path) else "TEXT"


def page() -> str:
    """Return the whole page."""
    lines = [TOP]
    for title, command in commands():
        lines += section(title, command)
    return "\n".join(lines).rstrip() + "\n"


def write() -> int:
    """Write the page; with --check, return 1 if that would change it."""
    text = page()
    if "--check" in sys.argv[1:]:
        same = PAGE.exists() and PAGE.read_text("utf-8") == text
        print("docs/reference/cli.md is up to date" if same else "run: python scripts/cli_reference.py")
        return 0 if same else 1
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(write())
