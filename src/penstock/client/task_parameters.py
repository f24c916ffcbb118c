"""The parameters of a task's function: the conversion of its arguments to a payload and back, and their checks."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, cast

import msgspec

from penstock.client.entry import TaskOptions
from penstock.errors import PermanentError
from penstock.model.bindings import Inputs
from penstock.model.context import Job
from penstock.model.formats import mismatch
from penstock.model.handler import read_annotation
from penstock.model.plain_job import Job as PlainJob
from penstock.model.serde import Serde

__all__ = ["Parameters", "check_function"]

Kind = inspect.Parameter
#: Marks an argument that is not in a payload.
MISSING: Any = inspect.Parameter.empty


class Parameters:
    """The parameters of a function: the conversion of its arguments to a payload and back."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._name = check_function(function)
        title = f"task {self._name}"
        self._signature = inspect.signature(function)
        hints = {
            each.name: read_annotation(title, function, each.name, each.annotation)
            for each in self._signature.parameters.values()
        }
        self._job_names = {name for name, hint in hints.items() if _is_job(hint)}
        for name in self._job_names:
            if self._signature.parameters[name].kind in (Kind.VAR_POSITIONAL, Kind.VAR_KEYWORD):
                raise TypeError(f"{title}: {name!r} cannot be annotated Job: there is one job for each run")
        given = [each for each in self._signature.parameters.values() if each.name not in self._job_names]
        self._payload_signature = self._signature.replace(parameters=given)
        #: The types of the parameters that read the results of other jobs page by page, annotated `Inputs[...]`.
        self._inputs = {name: _item_type(hint) for name, hint in hints.items() if _is_inputs(hint)}
        fields = [_field(each, hints[each.name]) for each in given if each.name not in self._inputs]
        self._types = {each[0]: each[1] for each in fields}
        #: The type of the payload: an object with the parameters' names.
        self.type = msgspec.defstruct(
            function.__name__, fields, kw_only=True, forbid_unknown_fields=True, module=function.__module__
        )
        #: The type of the result, `Any` if it is not annotated.
        self.result = _result_type(read_annotation(title, function, "return", self._signature.return_annotation))

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call by name; the defaults of the others are filled in when it runs."""
        for name in self._job_names & kwargs.keys():
            raise TypeError(f"{self._name}(): {name!r} is the running job: leave it out, the worker passes it")
        try:
            return dict(self._payload_signature.bind(*args, **kwargs).arguments)
        except TypeError as error:
            raise TypeError(f"{self._name}(): {error}{self._option_hint(kwargs)}") from None

    @property
    def inputs(self) -> frozenset[str]:
        """The parameters that read the results of other jobs page by page."""
        return frozenset(self._inputs)

    def check_inputs(self, payload: Mapping[str, Any]) -> None:
        """Raise `TypeError` if a parameter is given that reads the results of other jobs."""
        for name in self._inputs.keys() & payload.keys():
            raise TypeError(f"{self._name}(): {name!r} takes the results of other jobs: call it in a flow, with inputs")

    def check(self, payload: Mapping[str, Any], serde: Serde) -> None:
        """Check the arguments in a payload against their annotations; raises `TypeError`, which names the argument.

        The worker will decode the bytes of the serde, so where the quick conversion of the values refuses
        one, its encoding and decoding decides. An object of the annotated class is accepted as it is.
        """
        try:
            msgspec.convert(payload, self.type, dec_hook=_require_instance)
        except Exception:
            for name, value in payload.items():
                if reason := mismatch(serde, value, self._types[name]):
                    raise TypeError(f"{self._name}(): {name}{reason}") from None

    def _option_hint(self, kwargs: Mapping[str, Any]) -> str:
        """Return a hint if a call was given an option as if it were an argument."""
        for name in kwargs:
            if name in TaskOptions.__annotations__ and name not in self._signature.parameters:
                return f"; options go before the call: {self._name}.options({name}=...)"
        return ""

    def arguments(self, payload: Any, job: Job | PlainJob) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the positional and keyword arguments of the function for a payload; raises `PermanentError`."""
        found = self._by_name(payload)
        bound = inspect.BoundArguments(self._signature, {})  # type: ignore[arg-type]
        for name, parameter in self._signature.parameters.items():
            if name in self._job_names:
                bound.arguments[name] = job
            elif name in self._inputs:
                bound.arguments[name] = job.inputs(name, self._inputs[name])
            elif (value := found.get(name, MISSING)) is not MISSING:
                bound.arguments[name] = value
            elif parameter.kind is Kind.VAR_POSITIONAL:
                bound.arguments[name] = ()
            elif parameter.kind is Kind.VAR_KEYWORD:
                bound.arguments[name] = {}
            elif parameter.default is not MISSING:
                bound.arguments[name] = parameter.default
            else:
                raise PermanentError(f"{self._name}(): the payload has no {name!r}")
        return bound.args, bound.kwargs

    def given(self, payload: Any, option: str) -> inspect.BoundArguments:
        """Return the arguments in a payload and the defaults of the others; errors name the option that reads them."""
        try:
            found = self._by_name(payload)
        except PermanentError as error:
            raise ValueError(f"{option}: {error}") from None
        names = (name for name in self._payload_signature.parameters if found.get(name, MISSING) is not MISSING)
        bound = inspect.BoundArguments(self._payload_signature, {name: found[name] for name in names})  # type: ignore[arg-type]
        bound.apply_defaults()
        return bound

    def check_names(self, names: Sequence[str], option: str) -> None:
        """Raise `ValueError`, which names the option, for a name that is no argument of the task."""
        for name in names:
            if name not in self._payload_signature.parameters:
                known = ", ".join(self._payload_signature.parameters) or "none"
                raise ValueError(
                    f"task {self._name}: {option} names {name!r}, which is not among its arguments ({known})"
                )

    def _by_name(self, payload: Any) -> Mapping[str, Any]:
        """Return a payload by names; a serde of the user may give a mapping instead of the declared type."""
        if isinstance(payload, self.type):
            return {name: getattr(payload, name) for name in self.type.__struct_fields__}
        if not isinstance(payload, Mapping):
            raise PermanentError(f"{self._name}(): the payload must be an object, not {type(payload).__name__}")
        found = cast("Mapping[str, Any]", payload)
        for name in found:
            if name not in self._payload_signature.parameters:
                raise PermanentError(f"{self._name}(): the payload has an argument that the function does not have")
        return found


def check_function(function: Any) -> str:
    """Return the name of a function; raises `TypeError` if it cannot be a task."""
    name = getattr(function, "__qualname__", repr(function))
    if not inspect.isfunction(function):
        raise TypeError(f"a task must be a function made by def, not {type(function).__name__} ({name})")
    if function.__name__ == "<lambda>":
        raise TypeError("a task must be a function made by def: a lambda has no name of its own")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"task {name} must not yield: a task returns one result")
    if "." in name.rpartition("<locals>.")[2]:
        raise TypeError(f"task {name} is in a class; a task is a plain function, because no object travels with a call")
    return function.__name__


def _require_instance(kind: type, value: Any) -> Any:
    """Accept a value of a type that msgspec does not know, such as a model, if it has that type."""
    if not isinstance(value, kind):
        raise TypeError
    return value


def _is_job(hint: Any) -> bool:
    """Return whether a parameter takes the running job: it is annotated `Job` or `Job | None`."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return any(_is_job(each) for each in typing.get_args(hint))
    return hint is Job or hint is PlainJob


def _is_inputs(hint: Any) -> bool:
    return hint is Inputs or typing.get_origin(hint) is Inputs


def _item_type(hint: Any) -> Any:
    """Return the type of the values that `Inputs[...]` gives."""
    arguments = typing.get_args(hint)
    return arguments[0] if arguments else Any


def _field(parameter: inspect.Parameter, hint: Any) -> tuple[str, Any] | tuple[str, Any, Any]:
    """Return the payload field of a parameter; `*args` becomes a list, and `**kwargs` an object."""
    if parameter.kind is Kind.VAR_POSITIONAL:
        return parameter.name, list[hint], MISSING
    if parameter.kind is Kind.VAR_KEYWORD:
        unpacked = typing.get_origin(hint) is typing.Unpack
        return parameter.name, typing.get_args(hint)[0] if unpacked else dict[str, hint], MISSING
    if parameter.default is MISSING:
        return parameter.name, hint
    return parameter.name, hint, MISSING


def _result_type(hint: Any) -> Any:
    """Return the type to decode a result to; of an awaitable, which the worker awaits, its result type."""
    if typing.get_origin(hint) in (Awaitable, Coroutine):
        hint = typing.get_args(hint)[-1]
    return Any if hint in (type(None), typing.NoReturn, typing.Never) else hint
