"""Doors that open late: names of a package that are imported when they are first used."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


def lazy_door(package: str, names: dict[str, str], modules: tuple[str, ...] = ()) -> Callable[[str], Any]:
    """A module `__getattr__` for `package`: `names` from the modules (below the package) that hold them, `modules`."""

    def resolve(name: str) -> Any:
        if name in modules:
            return import_module(f"{package}.{name}")
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{names[name]}"), name)

    return resolve
