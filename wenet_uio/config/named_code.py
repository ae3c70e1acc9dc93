"""Code that is named as `module:name`, in a table or in a yaml, and loaded when it is needed."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from wenet_uio.config.base import ConfigError


def named_object(use: str, where: str, *, missing: str = "") -> Any:
    """Import what `module:name` names; error messages begin with `where`.

    Args:
        missing: end of the message for a module without this name.

    Raises:
        ConfigError: there is no such module or name.
    """
    module_name, _, name = use.partition(":")
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        is_missing_itself = f"{module_name}.".startswith(f"{error.name}.")
        hint = (
            "is its folder on PYTHONPATH?"
            if is_missing_itself
            else f"{module_name} needs it; install it"
        )
        raise ConfigError(f"{where}: {error}; {hint}") from None
    if not hasattr(module, name):
        raise ConfigError(f"{where}: {module.__file__} has no {name}{missing}")
    return getattr(module, name)


def is_third_party(name: object) -> bool:
    """Whether a name in the yaml is `module:name`, code outside of this package."""
    return isinstance(name, str) and ":" in name


@dataclass(frozen=True)
class Loaded:
    """A function or class that is imported when it is first called.

    A record can name its parts in this way without importing them: a config then does not load
    torch, and a record of a lower package can name code of a higher one.
    """

    use: str
    """`module:name`."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Import the code and call it."""
        return named_object(self.use, self.use)(*args, **kwargs)
