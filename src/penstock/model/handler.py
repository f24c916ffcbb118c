"""Handlers: the user's function for a queue, its options and its signature."""

from __future__ import annotations

import copy
import importlib
import inspect
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any, Self

from penstock.model.options import HandlerOptions

__all__ = ["Handler", "HandlerFunction", "Signature", "load_function", "read_annotation", "read_signature"]

#: A function that can be a handler: it takes the payload, or the payload and the job.
HandlerFunction = Callable[[Any], Any] | Callable[[Any, Any], Any]

POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
LISTS: tuple[Any, ...] = (list, Sequence, typing.List, typing.Sequence, typing.Iterable)  # noqa: UP006


class Signature(typing.NamedTuple):
    """Signature of a handler: the type of its payload, whether it takes the job, whether it is async."""

    payload: Any
    takes_job: bool
    is_async: bool


class Handler:
    """Handler of one queue. A function given as "module:function" is imported when it is first needed."""

    def __init__(self, queue: str, function: Callable[..., Any] | str, options: HandlerOptions) -> None:
        self.queue = queue
        self.options = options
        self.path = function if isinstance(function, str) else None
        self._function: Callable[..., Any] | None = None
        self._signature: Signature | None = None
        if isinstance(function, str):
            split_path(function)
        else:
            self._function, self._signature = function, read_signature(function, self.batch)

    def __repr__(self) -> str:
        return f"<Handler {self.name} of {self.queue!r}>"

    def with_options(self, options: HandlerOptions) -> Self:
        """Return the same handler with other options; its annotations are not resolved again."""
        other = copy.copy(self)
        other.options = options
        return other

    @property
    def name(self) -> str:
        return self.path or getattr(self._function, "__qualname__", repr(self._function))

    @property
    def batch(self) -> bool:
        """Whether it gets lists of payloads."""
        return self.options.batch_size > 1

    @property
    def loaded(self) -> bool:
        return self._function is not None

    @property
    def function(self) -> Callable[..., Any]:
        if self._function is None:
            assert self.path is not None
            function = load_function(self.path)
            self._signature = read_signature(function, self.batch)
            self._function = function
        return self._function

    @property
    def signature(self) -> Signature:
        if self._signature is None:
            _ = self.function
        assert self._signature is not None
        return self._signature


def split_path(path: str) -> tuple[str, str]:
    """Return the two parts of "module:function"; raises `ValueError` if one is missing."""
    module, _, name = path.partition(":")
    if not module or not name:
        raise ValueError(f'a handler given by path must look like "module:function", not {path!r}')
    return module, name


def load_function(path: str) -> Callable[..., Any]:
    """Import the function that "module:function" names."""
    module, name = split_path(path)
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise ImportError(f"{path!r}: there is no {part!r} in {module!r}") from None
    found = getattr(found, "__handler__", found)  # of a task: unpacks the arguments
    if not callable(found):
        raise TypeError(f"{path!r} must be a function, not {type(found).__name__}")
    return typing.cast("Callable[..., Any]", found)


def read_signature(function: Callable[..., Any], batch: bool) -> Signature:
    """Read the signature of a handler; raises `TypeError` for a function that cannot be one."""
    if not callable(function):
        raise TypeError(f'a handler must be a function or "module:function", not {type(function).__name__}')
    target = function if _is_function(function) else getattr(function, "__call__", function)  # noqa: B004
    if inspect.isgeneratorfunction(target) or inspect.isasyncgenfunction(target):
        raise TypeError(f"{_title(function)} must not yield: a handler returns one result")
    parameters = list(inspect.signature(function).parameters.values())
    wanted = "(payloads) or (payloads, jobs)" if batch else "(payload) or (payload, job)"
    positional = [p for p in parameters if p.kind in POSITIONAL]
    rest = any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters)
    for parameter in parameters:
        required = parameter.default is inspect.Parameter.empty
        if required and (parameter.kind is inspect.Parameter.KEYWORD_ONLY or parameter in positional[2:]):
            raise TypeError(f"{_title(function)} must take {wanted}; there is no value for its {parameter.name!r}")
    if not positional and not rest:
        raise TypeError(f"{_title(function)} must take {wanted}; it takes no argument")
    takes_job = rest or (len(positional) > 1 and _wants_job(positional[1]))
    payload = _payload_type(function, target, positional[0]) if positional else Any
    if batch:
        payload = _item_type(function, payload)
    return Signature(payload, takes_job, inspect.iscoroutinefunction(target))


def _is_function(function: Callable[..., Any]) -> bool:
    return inspect.isroutine(function) or inspect.iscoroutinefunction(function)


def _wants_job(parameter: inspect.Parameter) -> bool:
    """Return whether the second parameter takes the job: it has no default, or is named "job" or "jobs"."""
    return parameter.default is inspect.Parameter.empty or parameter.name in ("job", "jobs")


def _payload_type(function: Callable[..., Any], target: Any, parameter: inspect.Parameter) -> Any:
    """Return the type of the payload; no other annotation is resolved, because it need not exist at run time."""
    return read_annotation(_title(function), target, parameter.name, parameter.annotation)


def read_annotation(title: str, target: Any, name: str, annotation: Any) -> Any:
    """Return the type of a function's annotation, `Any` if there is none; an annotation that is a str is evaluated."""
    if annotation is inspect.Parameter.empty:
        return Any
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    try:
        found = typing.get_type_hints(holder, _names_for(target), include_extras=True)["it"]
    except NameError as error:
        raise TypeError(
            f"{title}: the annotation of {name!r} cannot be resolved ({error}); "
            "define the type before the function, and not under TYPE_CHECKING"
        ) from None
    return Any if found is object or isinstance(found, typing.TypeVar) else found


def _names_for(target: Any) -> dict[str, Any]:
    """Return the names that annotations of a function may use: globals, and the variables of the functions around it.

    A variable without a value as yet is left out: a function refers to itself, and to functions defined
    after it, before these have a value.
    """
    plain = inspect.unwrap(target)
    names = dict(getattr(plain, "__globals__", {}))
    if inspect.isfunction(plain) and "<locals>" in plain.__qualname__:
        names.update(_locals_around(plain))
        for name, cell in zip(plain.__code__.co_freevars, plain.__closure__ or (), strict=True):
            try:
                names[name] = cell.cell_contents
            except ValueError:  # empty
                continue
    return names


def _locals_around(function: types.FunctionType) -> dict[str, Any]:
    """Return the variables of the call that is defining a function; none if that call has ended.

    The closure does not have them all: an annotation that is a str captures no variable.
    """
    frame = inspect.currentframe()
    while frame is not None:
        if any(constant is function.__code__ for constant in frame.f_code.co_consts):
            return dict(frame.f_locals)
        frame = frame.f_back
    return {}


def _item_type(function: Callable[..., Any], annotation: Any) -> Any:
    if annotation is Any or annotation in LISTS:
        return Any
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    if origin is not None and origin in LISTS and len(arguments) == 1:
        return arguments[0]
    raise TypeError(
        f"{_title(function)} gets lists (batch_size > 1): annotate its payloads as list[...], not {annotation!r}"
    )


def _title(function: Callable[..., Any]) -> str:
    return f"handler {getattr(function, '__qualname__', repr(function))}"
