"""Ids, groups and costs that an enqueue reads from its payload, by the handler's `id_by`, `group_by` and `cost_by`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from penstock.client.task_parameters import Parameters
from penstock.model.argument_keys import check_by, check_cost_by, computed_cost, computed_key, cost_from, key_from
from penstock.model.options import HandlerArguments, HandlerOptions

__all__ = ["task_keys", "with_keys"]


def with_keys(given: Mapping[str, Any], payload: Any, options: HandlerOptions) -> Mapping[str, Any]:
    """Return the options of an enqueue with those added that are not given and that its handler reads from the payload.

    Raises `ValueError` or `TypeError`, which name the option, for a payload without such a field.
    """
    found: dict[str, Any] = {}
    for name, option, by in (("id", "id_by", options.id_by), ("group", "group_by", options.group_by)):
        if by is not None and given.get(name) is None:
            value = computed_key(by(payload), option) if callable(by) else _key(by, payload, option)
            if value is not None:
                found[name] = value
    by = options.cost_by
    if by is not None and given.get("cost") is None:
        found["cost"] = computed_cost(by(payload)) if callable(by) else cost_from(by, fields_of(payload, (by,)))
    return {**given, **found} if found else given


def _key(by: str | Sequence[str], payload: Any, option: str) -> str:
    names = (by,) if isinstance(by, str) else by
    return key_from(names, fields_of(payload, names), option)


def fields_of(payload: Any, names: Sequence[str]) -> Mapping[str, Any]:
    """Return the fields of a payload by name: those of a mapping, or the attributes of these names."""
    if isinstance(payload, Mapping):
        return cast("Mapping[str, Any]", payload)
    return {name: getattr(payload, name) for name in names if hasattr(payload, name)}


def task_keys(options: HandlerArguments, parameters: Parameters) -> HandlerArguments:
    """Return the options of a task with `id_by`, `group_by` and `cost_by` as functions of the payload.

    Names are those of arguments, whose defaults count; functions take the arguments of the task.
    """
    found: dict[str, Any] = {}
    for option in ("id_by", "group_by", "cost_by"):
        by = options.get(option)
        if by is None:
            continue
        checked = check_cost_by(by) if option == "cost_by" else check_by(by, option)
        if callable(checked):
            found[option] = _calling(checked, parameters, option)
        else:
            names = (checked,) if isinstance(checked, str) else checked
            parameters.check_names(names, option)
            found[option] = _reading(names, parameters, option)
    return cast("HandlerArguments", {**options, **found})


def _calling(function: Callable[..., Any], parameters: Parameters, option: str) -> Callable[[Any], Any]:
    def read(payload: Any) -> Any:
        bound = parameters.given(payload, option)
        return function(*bound.args, **bound.kwargs)

    return read


def _reading(names: Sequence[str], parameters: Parameters, option: str) -> Callable[[Any], Any]:
    def read(payload: Any) -> Any:
        arguments = parameters.given(payload, option).arguments
        if option == "cost_by":
            return cost_from(names[0], arguments)
        return key_from(names, arguments, option)

    return read
