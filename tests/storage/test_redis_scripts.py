"""Lua files against their headers: keys, includes, forbidden commands."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from penstock.storage.redis.keys import QUEUE_KEYS
from penstock.storage.redis.scripts import script

LUA = files("penstock.storage.redis") / "lua"
NAMES = sorted(f.name.removesuffix(".lua") for f in LUA.iterdir() if f.name.endswith(".lua"))
SCRIPTS = [name for name in NAMES if not name.startswith("_")]
ENDS = {"completed", "failed", "cancelled"}
#: Scripts that read lists of few entries, which do not grow with the backlog.
CAPPED = {"_suspended", "workers", "beat", "activity", "bulk_actions", "put_bulk", "add_release", "groups"}


#: The begin of a function that builds a table of helpers, and gives it.
BUILDER = re.compile(
    r"^(?:local )?function (\w+)\(\)\n  if built_\w+ then return built_\w+ end\n  local (\w) = {}$", re.MULTILINE
)
#: The names by which files call tables of helpers, beside that of their builder.
TABLES = {"F": "flows", "N": "notices"}


def text_of(name: str) -> str:
    """Return a file without its comments; the helpers of a table have the name by which other files call them."""
    lines = (LUA / f"{name}.lua").read_text("utf-8").splitlines()
    text = "\n".join(line.partition("--")[0] for line in lines)
    if (builder := BUILDER.search(text)) is not None:
        text = re.sub(rf"\b{builder[2]}\.", f"{builder[1]}().", text)
    for table, name_of_builder in TABLES.items():
        text = re.sub(rf"\b{table}\.", f"{name_of_builder}().", text)
    return text


def helpers() -> dict[str, str]:
    """Return each shared function by its name."""
    blocks: dict[str, str] = {}
    for name in (name for name in NAMES if name.startswith("_")):
        # A helper stands by itself, or in a `do` block with those that only it needs.
        for block in re.split(r"^(?=(?:  )?(?:local )?function )", text_of(name), flags=re.MULTILINE)[1:]:
            blocks[re.match(r"\s*(?:local )?function ((?:\w+\(\)\.)?[\w.]+)", block).group(1)] = block  # type: ignore[union-attr]
    return blocks


def keys_in(text: str) -> set[str]:
    """Return the queue keys in a text, by name or by state."""
    found = set(re.findall(r"\b(?:q\.|prefix \.\. ')(\w+)", text)) & QUEUE_KEYS.keys()
    return found | (ENDS if re.search(r"\bq\[", text) else set())


def reached(text: str, blocks: dict[str, str]) -> set[str]:
    """Return the helpers that a text calls, and those that they call."""
    seen: set[str] = set()
    todo = [text]
    while todo:
        calls = todo.pop()
        for name in re.findall(r"\b([\w.]+)\(", calls) + re.findall(r"\b(\w+\(\)\.\w+)\(", calls):
            if name in blocks and name not in seen:
                seen.add(name)
                todo.append(blocks[name])
    return seen


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_declares_the_keys_it_touches(name: str) -> None:
    """Every key that a script or its helpers may touch is in its header, so a Cluster can refuse it in time."""
    blocks = helpers()
    body = text_of(name)
    touched = keys_in(body)
    for helper in reached(body, blocks):
        touched |= keys_in(blocks[helper])
    assert touched == set(script(name).keys)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_uses_no_helper_that_is_not_loaded(name: str) -> None:
    """A script includes `_transitions.lua` if, and only if, it calls one of its functions."""
    transitions = set(re.findall(r"^local (?:function )?(\w+)(?=\(|$)", text_of("_transitions"), flags=re.MULTILINE))
    parts = re.findall(r"^-- include: (.*)$", (LUA / f"{name}.lua").read_text("utf-8"), flags=re.MULTILINE)
    own = {part for line in parts for part in line.split()} & {"cancelling", "firing"}
    calls = set(
        re.findall(r"(?<!\.)\b(\w+)\(", "".join(text_of(part) for part in (name, *(f"_{part}" for part in own))))
    )
    if "ending" not in calls:  # that loads them when it is called
        transitions.add("notices")
    assert bool(calls & transitions) == any("transitions" in line.split() for line in parts)


def test_no_script_walks_the_keyspace() -> None:
    """No script uses KEYS, SCAN or anything that grows with the backlog (WQ-D11)."""
    forbidden = re.compile(r"call\('(KEYS|SCAN|HSCAN|SSCAN|ZSCAN|HGETALL|HVALS|SMEMBERS|LRANGE|LREM|SORT)'")
    offenders = {name: forbidden.findall(text_of(name)) for name in NAMES if name not in CAPPED}
    assert not any(offenders.values()), offenders


#: The scripts that a full server refuses: those that only add.
REFUSED_WHEN_FULL = {"put", "put_flow", "extend", "signal", "restore", "fire", "set_schedule"}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_gives_the_server_its_flags_in_its_first_line(name: str) -> None:
    """A script that calls a write or a publish has no `no-writes`; all but those that add run on a full server."""
    first = script(name).text.partition("\n")[0]
    assert first.startswith("#!lua")
    body = text_of(name)
    texts = [body, *(helpers()[each] for each in reached(body, helpers()))]
    writes = re.compile(r"call\('(SET|DEL|UNLINK|PUBLISH|H(SET|DEL|INCR)|Z(ADD|REM)|S(ADD|REM)|LP|P?EXPIRE)")
    if any(writes.search(text) for text in texts):
        assert first == ("#!lua" if name in REFUSED_WHEN_FULL else "#!lua flags=allow-oom")
    else:
        assert first == "#!lua flags=no-writes"


def test_every_key_of_the_schema_is_used() -> None:
    """The schema lists no key that no script touches."""
    assert set().union(*(script(name).keys for name in SCRIPTS)) == set(QUEUE_KEYS)
