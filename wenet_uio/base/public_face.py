"""The public face of a package: names that are loaded from its modules when they are used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def loads_when_used(package: str, module_of: Mapping[str, str]) -> Callable[[str], Any]:
    """Make the `__getattr__` of a package (PEP 562).

    Args:
        package: `__name__` of the package.
        module_of: public name -> its module, relative to the package.
    """

    def load(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{module_of[name]}"), name)

    return load
