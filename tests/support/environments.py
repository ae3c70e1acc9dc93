"""Variables of shells that the tests start."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def of_tests() -> dict[str, str]:
    """Return variables with which `path.sh` takes the environment of the tests, and installs nothing.

    A shell that has not activated it would install all packages anew, for minutes.
    """
    path = f"{Path(sys.prefix) / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return os.environ | {"VIRTUAL_ENV": sys.prefix, "PATH": path, "PIP_NO_INDEX": "1"}
