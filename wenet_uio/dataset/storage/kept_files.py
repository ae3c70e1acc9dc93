"""Files made from data, such as indexes: kept beside the data, or in the cache if that folder
cannot be written or the name is too long.

Readers look at the places in the same order as writers. So all processes of a node find the same
file. The cache does not evict these files.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, TypeVar

from wenet_uio.base.files import locked, written_aside
from wenet_uio.dataset.storage.settings import cache_folder

Result = TypeVar("Result")

NOT_WRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG)
"""Errors of a place that cannot have the file. The name of a kept file, of its lock or of the
temporary file before it is longer than that of the data."""


def places_of(*paths: str | Path) -> Iterator[Path]:
    """Yield the places of a kept file: `paths`, then the file of the cache that belongs to the last
    path.
    """
    yield from map(Path, paths)
    try:
        folder = cache_folder()
    except RuntimeError:  # the user has no home folder, and WENET_UIO_CACHE is not set
        return

    last = os.path.abspath(paths[-1])  # noqa: PTH100 - Path.resolve would follow links
    name = hashlib.blake2b(os.fsencode(last), digest_size=16).hexdigest()
    yield folder / "kept" / name[:2] / f"{name}{Path(last).suffix}"


def write_kept(places: Iterable[Path], write: Callable[[BinaryIO], object]) -> Path:
    """Write a file at the first place whose folder this user may write, and return that place.

    Raises:
        OSError: none of the places can be written.
    """

    def written(place: Path) -> Path:
        with written_aside(place) as file:
            write(file)
        return place

    return _use_first_writable(places, written)


@contextmanager
def making(places: Iterable[Path]) -> Iterator[None]:
    """Hold the lock of a kept file that is made in the block; other processes wait.

    The lock is a file of its own beside the place that `write_kept` would write to: NFS locks only
    what is open for writing, and the data may be read-only. It is removed after the block.

    Raises:
        OSError: none of the places can be written.
    """
    with ExitStack() as held:

        def lock_at(place: Path) -> None:
            place.parent.mkdir(parents=True, exist_ok=True)
            held.enter_context(locked(f"{place}.lock", removed=True))

        _use_first_writable(places, lock_at)
        yield


def _use_first_writable(places: Iterable[Path], use: Callable[[Path], Result]) -> Result:
    """Call `use` with each place until its folder can be written, and return the result.

    Raises:
        OSError: none of the places can be written, or `use` fails in another way.
    """
    refusals: list[str] = []
    for place in places:
        try:
            return use(place)
        except OSError as error:
            if error.errno not in NOT_WRITABLE:
                raise
            refusals.append(f"{place} ({os.strerror(error.errno)})")

    raise PermissionError(
        f"cannot write {', nor '.join(refusals)}; set WENET_UIO_CACHE to a folder that can be "
        "written"
    )
