"""The filter language of jobs: mistakes are named."""

from __future__ import annotations

import pytest

from penstock.client.job_filter import FilterError, parse_filter, quote_value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("colour:red", "unknown key 'colour'"),
        ("payload:1", "unknown key 'payload'"),
        ("state:gone", "state must be one of"),
        ("queue:a queue:b", "queue can be given once"),
        ("kind:bad", "kind must be one of"),
        ("before:soon", "before must be a time"),
        ("payload.password:x", "redacted"),
        ("payload.user.password:x", "redacted"),
        ('queue:"open', "a quote is not closed"),
        ("a " * 51, "at most 50 words"),
    ],
)
def test_a_filter_that_cannot_be_is_refused_by_name(text: str, message: str) -> None:
    """An unknown key and a value that cannot be are errors, not an empty answer."""
    with pytest.raises(FilterError, match=message):
        parse_filter(text, lambda path: path == "password")


def test_a_star_at_the_end_makes_a_prefix_unless_it_is_escaped() -> None:
    """Within quotes, after them and without them; `quote_value` writes a star that stands for itself."""
    for text in ("type:Conn*", 'type:"Conn*"', 'type:"Conn"*'):
        [test] = parse_filter(text).tests
        assert (test.value, test.prefix) == ("Conn", True), text
    [test] = parse_filter(f"type:{quote_value('Conn*')}").tests
    assert (test.value, test.prefix) == ("Conn*", False)
    assert parse_filter("id:a*").id is None
    assert parse_filter(f"id:{quote_value('a*')}").id == "a*"
