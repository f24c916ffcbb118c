"""Ids, groups and costs of jobs that are read from the arguments of a task, or from the fields of a payload."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import msgspec

from penstock.model.checks import MAX_COST, check_whole
from penstock.model.ids import check_name

__all__ = ["MAX_KEY", "By", "check_by", "check_cost_by", "computed_cost", "computed_key", "cost_from", "key_from"]

#: The most bytes of a key that shows its values; a longer one is replaced by its digest.
MAX_KEY = 200

#: The option `id_by`, `group_by` or `cost_by`: names of arguments, or a function.
By: TypeAlias = str | Sequence[str] | Callable[..., Any]


def check_by(by: object, option: str) -> tuple[str, ...] | Callable[..., Any]:
    """Return `id_by` or `group_by` as a tuple of names or a function; errors name the option."""
    if callable(by):
        return cast("Callable[..., Any]", by)
    names = (by,) if isinstance(by, str) else by
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in cast("list[object]", names)):
        raise TypeError(f"{option} must be names of arguments or a function, not {by!r}")
    found = tuple(cast("Sequence[str]", names))
    if not found or not all(found):
        raise ValueError(f"{option} must name at least one argument, and none that is empty")
    if len(set(found)) < len(found):
        raise ValueError(f"{option} names an argument twice: {', '.join(found)}")
    return found


def check_cost_by(by: object) -> str | Callable[..., Any]:
    """Return `cost_by` as the name of an argument or a function; errors name the option."""
    found = check_by(by, "cost_by")
    if callable(found):
        return found
    if len(found) != 1:
        raise ValueError(f"cost_by must be one name or a function, not {len(found)} names")
    return found[0]


def key_from(names: Sequence[str], arguments: Mapping[str, Any], option: str) -> str:
    """Return the key of some arguments, like `user_id=7&day="mon"`; beyond 200 bytes the SHA-256 of it, in hex.

    Values are compact JSON with sorted keys. Raises `ValueError` for an argument that is not given, `TypeError` for a
    value that JSON does not know; both name the option.
    """
    key = "&".join(f"{name}={_json(_argument(name, arguments, option), name, option)}" for name in names)
    data = key.encode()
    return key if len(data) <= MAX_KEY else hashlib.sha256(data).hexdigest()


def computed_key(value: object, option: str) -> str | None:
    """Return the result of a function for `id_by` or `group_by`: a text, or None for none; errors name the option."""
    return None if value is None else check_name(value, f"the result of {option}")


def cost_from(name: str, arguments: Mapping[str, Any]) -> int:
    """Return the cost that an argument holds; errors name `cost_by`."""
    return computed_cost(_argument(name, arguments, "cost_by"))


def computed_cost(value: object) -> int:
    """Return a computed cost; 0 counts as 1, because a share of a small payload rounds to 0. Errors name `cost_by`."""
    check_whole(value, "the result of cost_by", least=0, most=MAX_COST)
    return max(cast("int", value), 1)


def _argument(name: str, arguments: Mapping[str, Any], option: str) -> Any:
    if name not in arguments:
        known = ", ".join(sorted(arguments)) or "none"
        raise ValueError(f"{option} names {name!r}, which is not among the arguments ({known})")
    return arguments[name]


def _json(value: Any, name: str, option: str) -> str:
    try:
        return msgspec.json.encode(value, order="deterministic").decode()
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"{option}: the value of {name!r} cannot be written as JSON: {error}") from None
