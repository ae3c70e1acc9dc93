"""Code that is named as `module:name`, in a table or in a yaml, and loaded when it is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeGuard, TypeVar

from wenet_uio.base.imports import WITHOUT_IT
from wenet_uio.config.base import ConfigError, Section, known_name

Record = TypeVar("Record")


def named_object(use: str, where: str, *, missing: str = "") -> Any:
    """Import what `module:name` names; error messages begin with `where`.

    Args:
        use: `module:name`.
        missing: end of the message for a module without this name.

    Raises:
        ConfigError: there is no such module or name.
    """
    module_name, _, name = use.partition(":")
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        # Either this module or a package above it is missing, or one that it imports.
        is_missing_itself = f"{module_name}.".startswith(f"{error.name}.")
        if not is_missing_itself:
            hint = f"{module_name} needs it; install it"
        elif module_name.startswith("wenet_uio."):
            hint = WITHOUT_IT
        else:
            hint = "is its folder on PYTHONPATH?"
        raise ConfigError(f"{where}: {error}; {hint}") from None

    if not hasattr(module, name):
        raise ConfigError(f"{where}: {module.__file__} has no {name}{missing}")

    return getattr(module, name)


def is_third_party(name: object) -> TypeGuard[str]:
    """Tell whether a name in the yaml is `module:name`, code outside of this package."""
    return isinstance(name, str) and ":" in name


def named_record(
    key: str,
    name: str,
    table: Mapping[str, str],
    kind: type[Record],
    *,
    accepts_code: bool = False,
) -> Record:
    """Return the record (such as an EncoderKind) that `key: name` in a yaml means.

    Args:
        name: a name in `table`, or `module:name` of another package if `accepts_code`.
        table: {name in the yaml: `module:name`}.
        kind: class of the record.
        accepts_code: the yaml may name the code of another package.

    Raises:
        ConfigError: a third party's code cannot be imported, or is no `kind`.
        ValueError: the name is unknown.
    """
    names_code = accepts_code and is_third_party(name)
    use = name if names_code else table[known_name(name, table)]
    record = named_object(use, f"{key}: {use}")
    if not isinstance(record, kind):
        article = "an" if kind.__name__[0] in "AEIOU" else "a"
        raise ConfigError(
            f"{key}: {use}: expected {article} {kind.__name__} of {kind.__module__}, found "
            f"{type(record).__name__}"
        )

    return record


def installed_records(table: Mapping[str, str]) -> Iterator[Any]:
    """Yield the records of a table {name in the yaml: `module:name`}, each once and in its order;
    those whose folder was taken away are left out.
    """
    for use in dict.fromkeys(table.values()):
        if Loaded(use).is_installed:
            yield named_object(use, use)


class NamedSections(Mapping[str, type[Section]]):
    """{name in the yaml: section of its record}, loaded when it is looked up.

    `module:name` of another package can be looked up too, if `accepts_code`.
    """

    def __init__(
        self,
        table: Mapping[str, str],
        section_of: Callable[[str], type[Section]],
        *,
        accepts_code: bool = True,
    ) -> None:
        self._table, self._section_of = table, section_of
        self._accepts_code = accepts_code

    def __getitem__(self, name: str) -> type[Section]:
        names_code = self._accepts_code and is_third_party(name)
        if name not in self._table and not names_code:
            raise KeyError(name)
        return self._section_of(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)


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

    @property
    def is_installed(self) -> bool:
        """Whether this installation has the module."""
        try:
            return find_spec(self.use.partition(":")[0]) is not None
        except ModuleNotFoundError:  # nor is there the folder above it
            return False

    def require(self) -> None:
        """Make sure that this installation has the module, without importing it.

        Raises:
            ConfigError: it was taken away.
        """
        if not self.is_installed:
            raise ConfigError(f"{self.use.partition(':')[0]}: {WITHOUT_IT}")
