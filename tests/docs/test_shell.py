"""Shell, TOML, INI and Dockerfile blocks of the documentation, checked without running them."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from penstock.cli import main
from tests.docs.blocks import ROOT, Block, blocks, files_before

SHELL = list(blocks("sh"))
LANGUAGES = {
    "python": "run by test_blocks.py, or generated from tests",
    "sh": "checked here, line by line",
    "toml": "read here",
    "ini": "read here, with its commands",
    "dockerfile": "its commands are checked here",
    "yaml": "a few lines of another program's format, not checked",
    "text": "output of a command, or a drawing",
    "": "output of a command, or a drawing",
}
#: Commands of other programs, which are not checked.
OTHER_PROGRAMS = {
    "cat", "cd", "cp", "curl", "docker", "echo", "export", "git", "jq", "journalctl", "mkdir", "python3", "redis-cli",
    "sudo", "systemctl", "uvicorn",
}  # fmt: skip
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def commands(text: str) -> Iterator[list[str]]:
    """Yield the simple commands of a script as words; pipes and lists are split, redirections left out."""
    text = text.replace("\\\n", " ")
    for line in text.splitlines():
        reader = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
        reader.whitespace_split = True
        words: list[str] = []
        skip = False
        for word in reader:
            if set(word) <= set("|&;"):
                yield words
                words = []
            elif set(word) <= set("<>"):
                skip = True
            elif skip:
                skip = False
            else:
                words.append(word)
        yield words


def plain(words: list[str]) -> list[str]:
    """Return a command without its variables and the directory of its program."""
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words = words[1:]
    if words[1:3] == ["-m", "penstock"] and Path(words[0]).name == "python":
        words = ["penstock", *words[3:]]
    return [Path(words[0]).name, *words[1:]] if words else []


def parse(words: list[str]) -> None:
    """Parse the arguments of a `penstock` command without running it; a mistake raises."""
    command: click.Command = main
    context = click.Context(main, info_name="penstock")
    if words[1:] in (["--help"], ["--version"]):
        return
    rest = words[1:]
    while isinstance(command, click.Group):
        assert rest, f"{shlex.join(words)} names no command"
        name, found, rest = command.resolve_command(context, rest)
        assert found is not None, f"there is no command {name}"
        command, context = found, click.Context(found, parent=context, info_name=name)
    with command.make_context(command.name, list(rest), parent=context.parent):
        pass


def check(words: list[str], block: Block) -> None:
    """Check one command in the way that fits it; an unknown one is a fault."""
    match words:
        case []:
            pass
        case ["penstock", *_]:
            parse(words)
        case ["make", *targets]:
            assert {target for target in targets if "=" not in target} <= TARGETS, f"no such target: {words}"
        case ["pip", "install", *what]:
            for extras in re.findall(r"penstock\[([\w,]+)\]", " ".join(what)):
                assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"]), f"no such extra: {extras}"
        case ["python", script, *_] if script.endswith(".py"):
            assert script in files_before(block) or (ROOT / script).exists(), f"no such file: {script}"
        case ["pytest", *_] | ["python", "-m", *_]:
            pass
        case [name, *_]:
            assert name in OTHER_PROGRAMS or (ROOT / ".ci" / name).exists(), f"unknown command: {words}"


@pytest.mark.parametrize("block", [pytest.param(block, id=block.id) for block in SHELL])
def test_commands_of_a_shell_block_exist(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every `penstock` command of a block has valid arguments, and every program is on the page."""
    monkeypatch.chdir(tmp_path)
    for words in commands(block.text):
        for word in words:
            if word.endswith(".jsonl"):
                Path(word).touch()  # the command expects the file of an earlier export
        check(plain(words), block)


@pytest.mark.parametrize("block", [pytest.param(block, id=block.id) for block in blocks("toml")])
def test_a_toml_block_is_toml(block: Block) -> None:
    """A block of TOML can be parsed."""
    assert tomllib.loads(block.text)


@pytest.mark.parametrize("block", [pytest.param(block, id=block.id) for block in blocks("ini")])
def test_a_unit_runs_commands_that_exist(block: Block) -> None:
    """A systemd unit can be parsed, and the `penstock` commands in it have valid arguments."""
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[method-assign,assignment]
    unit.read_string(block.text)
    for section in unit.sections():
        for name, value in unit.items(section):
            if name.startswith("Exec"):
                check(plain(shlex.split(value)), block)


@pytest.mark.parametrize("block", [pytest.param(block, id=block.id) for block in blocks("dockerfile")])
def test_an_image_runs_commands_that_exist(block: Block) -> None:
    """The `penstock` commands of a Dockerfile have valid arguments."""
    for line in block.text.splitlines():
        word, _, rest = line.partition(" ")
        if word in ("CMD", "ENTRYPOINT"):
            check(plain(json.loads(rest)), block)
        elif word == "RUN":
            check(plain(shlex.split(rest)), block)


def test_every_language_is_known() -> None:
    """Every block is in a language that is checked, or listed as not checked."""
    strange = [f"{block.id}: {block.language!r}" for block in blocks() if block.language not in LANGUAGES]
    assert not strange
