"""Optional packages of a command, installed when the command first needs them."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The clone, if the package is used from one."""
INSTALL = '. "$0/path.sh" && need_packages "$0/requirements/$1.txt"'


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
