"""Constants of Lua scripts: written into the scripts as literals."""

from __future__ import annotations

import pytest

from penstock.storage.redis.lua_constants import inline_constants

SCRIPT = """\
local FIRST, SECOND = 1, 'a\\'b' -- two
local built = { FIRST, "FIRST", 'FIRST', t.FIRST, XFIRST } -- FIRST
local function f() return SECOND .. FIRST end
"""


def test_names_of_constants_become_literals_and_others_stay() -> None:
    """Strings, comments, fields and longer names are left alone, and no line moves."""
    first, built, function = inline_constants(SCRIPT).splitlines()
    assert first.startswith("-- local FIRST")
    assert built == """local built = { 1, "FIRST", 'FIRST', t.FIRST, XFIRST } -- FIRST"""
    assert function == "local function f() return 'a\\'b' .. 1 end"


def test_a_value_that_is_no_literal_stays_a_variable() -> None:
    """A computed value is declared as before."""
    assert inline_constants("local WIDE = string.rep('x', 3)\nreturn WIDE\n") == (
        "local WIDE = string.rep('x', 3)\nreturn WIDE\n"
    )


def test_two_values_of_one_name_are_refused() -> None:
    """Two files that a script includes cannot mean different things by one name."""
    with pytest.raises(ValueError, match="the constant A has two values: 1 and 2"):
        inline_constants("local A = 1\nlocal A = 2\n")


def test_a_variable_of_the_same_name_is_refused() -> None:
    """A helper cannot shadow a constant."""
    with pytest.raises(ValueError, match="the constant A is declared as a variable too"):
        inline_constants("local A = 1\ndo\n  local B, A = 2, 3\nend\n")
