"""The public surface is closed, sorted and documented."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import pytest

import penstock
from penstock import errors

MODULES = [name for _, name, _ in pkgutil.walk_packages(penstock.__path__, "penstock.") if "__main__" not in name]


def test_all_is_sorted_and_true() -> None:
    """Every public name exists, once, in order."""
    assert penstock.__all__ == sorted(penstock.__all__)
    assert all(hasattr(penstock, name) for name in penstock.__all__)


def test_every_error_is_public() -> None:
    """Whatever a user may have to catch can be imported from the top."""
    assert set(errors.__all__) <= set(penstock.__all__)


def test_every_public_name_says_what_it_is_for() -> None:
    """Each exported class and function has a docstring of its own."""
    named = [getattr(penstock, name) for name in penstock.__all__]
    bare = [it.__name__ for it in named if (inspect.isclass(it) or inspect.isfunction(it)) and not it.__doc__]
    assert not bare


@pytest.mark.parametrize("name", MODULES)
def test_module_exports_exist(name: str) -> None:
    """What a module lists in __all__ is in it."""
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("penstock"):
            raise
        pytest.skip(f"{error.name} is not installed")
    missing = [each for each in getattr(module, "__all__", ()) if not hasattr(module, each)]
    assert not missing
