"""What is imported when it is asked for: public names, optional packages, and add-ons."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from argparse import ArgumentParser

Name = TypeVar("Name")
Part = TypeVar("Part")

ROOT = Path(__file__).resolve().parents[2]
"""The clone, if the package is used from one."""
INSTALL = '. "$0/path.sh" && need_packages "$0/requirements/$1.txt"'
WITHOUT_IT = "this installation was made without it"
"""Why an add-on that is asked for is not there."""


def loads_when_used(package: str, module_of: Mapping[str, str]) -> Callable[[str], Any]:
    """Make the `__getattr__` of a package (PEP 562).

    Args:
        package: `__name__` of the package.
        module_of: public name -> its module, relative to the package.
    """

    def load(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            module = importlib.import_module(f"{package}.{module_of[name]}")
        except ModuleNotFoundError as error:
            if not lacks_add_on(error):
                raise
            message = f"{name}: {error.name}: {WITHOUT_IT}"
            raise ModuleNotFoundError(message, name=error.name) from None

        return getattr(module, name)

    return load


def need_extra(name: str, packages: Sequence[str]) -> None:
    """Make sure that the packages of requirements/<name>.txt can be imported.

    They are installed only into an environment that setup_env.sh made: other environments are
    the user's.

    Args:
        packages: names by which the packages are imported.

    Raises:
        ValueError: a package is missing; the message says how to install it.
    """
    missing = [package for package in packages if find_spec(package) is None]
    if missing and Path(sys.prefix, ".wenet_uio").is_dir():
        subprocess.run(
            ["bash", "-c", INSTALL, str(ROOT), name],
            env={**os.environ, "WENET_UIO_VENV": sys.prefix, "VIRTUAL_ENV": sys.prefix},
            stdin=subprocess.DEVNULL,
        )
        importlib.invalidate_caches()
        missing = [package for package in packages if find_spec(package) is None]

    if missing:
        raise ValueError(
            f"this command needs {' and '.join(missing)}: pip install -r requirements/{name}.txt "
            f"(or wenet_uio[{name}])"
        )


def lacks_add_on(error: ModuleNotFoundError) -> bool:
    """Tell whether the missing module is an add-on, which was taken away."""
    return f"{error.name}.".startswith("wenet_uio.addons.")


def command_of_add_on(
    module: str,
) -> tuple[Callable[[], ArgumentParser], Callable[..., int | None]]:
    """Return `parser` and `main` of a command of an add-on, which is imported when they are called."""

    def parser() -> ArgumentParser:
        return importlib.import_module(module).parser()

    def main(arguments: Sequence[str] | None = None) -> int | None:
        return importlib.import_module(module).main(arguments)

    return parser, main


def installed(names: Iterable[Name], load: Callable[[Name], Part]) -> Iterator[tuple[Name, Part]]:
    """Yield each name with what `load` returns for it, without those of add-ons that were taken
    away.
    """
    for name in names:
        try:
            part = load(name)
        except ModuleNotFoundError as error:
            if not lacks_add_on(error):
                raise
        else:
            yield name, part
