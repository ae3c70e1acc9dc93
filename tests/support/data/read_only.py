"""Folders that the tests cannot write, also if the tests run as root."""

import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

NOBODY = 65534


@contextmanager
def unprivileged():
    """Run the block as the user nobody if the tests run as root, who may write to every folder."""
    user, group = os.geteuid(), os.getegid()
    if user:
        yield
        return
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)
        os.setegid(group)


@contextmanager
def shared_folder():
    """A folder that every user may enter, unlike those of pytest."""
    folder = Path(tempfile.mkdtemp(prefix="uio_"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        for path in (folder, *folder.rglob("*")):
            if path.is_dir():
                path.chmod(0o755)
        shutil.rmtree(folder)


def lock_folder(folder):
    """Make a folder and everything below it read-only."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)


def open_folder(folder):
    """Make a folder that every user may write."""
    folder.mkdir(exist_ok=True)
    folder.chmod(0o777)
    return folder
