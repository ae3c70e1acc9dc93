"""Audio and tars that could not be read when a list was indexed, or not as a whole. They may have
come back since: a mount was late, a copy was not complete, a damaged file was mended.

The index has the state of each such file. `looking_again` compares it with the present state, with
one question for each file, when a list is opened.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeVar

from wenet_uio.audio.decoders import AudioError
from wenet_uio.audio.features import place_of
from wenet_uio.base.executor import chunks
from wenet_uio.dataset.formats.data_list import locate
from wenet_uio.dataset.storage import objects
from wenet_uio.dataset.storage.ranged_object import REQUESTS

Result = TypeVar("Result")
State = list[Any] | None
"""Bytes, and time of the last change in ns or tag of a store; None: the file is missing."""
Unread = dict[str, State]
"""The states of files by their path as in the list."""
Look = Literal["never", "tell", "mend"]
"""What opening a list does about files that came back."""

OF_A_LINE = (
    None,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EINVAL,
    errno.ELOOP,
    errno.ENAMETOOLONG,
)
"""Errors that a wrong path or a damaged file can cause. All others are those of a disk."""
BLOCK = 1 << 20
FILES_PER_JOB = 16
"""Files that a thread looks for one after the other."""
STORE_SECONDS = 20.0
"""Seconds that a second look waits for the answer of a store."""

log = logging.getLogger(__name__)
_look: ContextVar[Look] = ContextVar("look", default="never")


@contextmanager
def looking_again(look: Look = "mend") -> Iterator[None]:
    """Look again for audio that could not be read, for each list that is opened in the block.

    Only one process may mend an index, before others open the list: the digest of the list changes.

    Args:
        look: `mend` indexes a list again if audio came back, `tell` logs it.
    """
    token = _look.set(look)
    try:
        yield
    finally:
        _look.reset(token)


def measured(wav: str, data_list: str, measure: Callable[[], Result], unread: Unread) -> Result:
    """Return what `measure` says of an audio file, and note the file in `unread` if that is wrong.

    A local file is measured twice before it counts as damaged: decoders report a failing disk as
    damage.

    Args:
        wav: path or URI as in the list.
        data_list: path of the list.
        measure: reads the header.
        unread: gets the state of a file that is missing or damaged.

    Raises:
        AudioError: the file is missing or damaged.
        OSError: the system does not give a local file.
    """
    try:
        return measure()
    except AudioError as error:
        path, cause = locate(wav, data_list), error.__cause__
        is_local = objects.is_plain(path)
        if is_local and isinstance(cause, OSError) and cause.errno not in OF_A_LINE:
            raise OSError(cause.errno, cause.strerror, path) from None

        # A store that does not give a file is not asked once more: it may not answer.
        is_refused = objects.is_remote(path) and cause is not None
        # Before the second reading: a later change differs from this state.
        state = None if is_refused else state_of(wav, data_list)
        if state is None or not is_local:
            unread[wav] = state
            raise

    _require_readable(path, *state)
    try:
        return measure()
    except AudioError:
        unread[wav] = state
        raise


def has_returned(meta: Mapping[str, Any], data_list: str) -> bool:
    """Tell whether an index must be made again, because audio came back that it lacks.

    Within `looking_again("tell")` the log names the number of files, and the index stays. An index
    without any sample helps no run, so audio is looked for wherever the list is opened.

    Args:
        meta: of the index.
        data_list: path of the list.

    Raises:
        OSError: the system does not tell whether a local file is there.
    """
    look: Look = _look.get() if meta["summary"]["samples"] else "mend"
    unread: Unread = meta.get("unread", {})
    if look == "never" or not unread:
        return False

    count = _count_returned(unread, data_list)
    if not count:
        return False

    what_follows = "this run goes on without them, and a new run reads them"
    if look == "mend":
        what_follows = "the list is indexed again"
    log.warning(
        "%s: %d of %d files that could not be read when the list was indexed are there now, "
        "or have changed: %s",
        data_list,
        count,
        len(unread),
        what_follows,
    )
    return look == "mend"


def _count_returned(unread: Unread, data_list: str) -> int:
    """Return the number of files whose state is not the one that was noted."""

    def count(noted: list[tuple[str, State]]) -> int:
        present = [state_of(wav, data_list, seconds=STORE_SECONDS) for wav, _ in noted]
        pairs = zip(present, noted, strict=True)
        return sum(now is not None and now != then for now, (_, then) in pairs)

    with ThreadPoolExecutor(REQUESTS) as pool:
        return sum(pool.map(count, chunks(list(unread.items()), FILES_PER_JOB)))


def state_of(wav: str, data_list: str, seconds: float | None = None) -> State:
    """Return the present state of an audio file or a tar.

    Args:
        seconds: a store is asked now, and has so many seconds to answer. None: the answer may be
            that of an earlier question.

    Raises:
        OSError: the system does not tell of a local file.
    """
    if not objects.is_plain(wav):
        try:
            version = objects.current_version(wav, asked=seconds)
        except (OSError, ValueError):
            return None
        return [version.size, version.tag]

    # As `locate`, which takes a file that cannot be asked for as missing.
    path = place_of(objects.without_scheme(wav)).path
    for place in dict.fromkeys((path, os.path.join(os.path.dirname(data_list), path))):  # noqa: PTH118, PTH120
        try:
            status = Path(place).stat()
        except OSError as error:
            if error.errno not in OF_A_LINE:
                raise
        else:
            return [status.st_size, str(status.st_mtime_ns)]
    return None


@lru_cache(1024)
def _require_readable(path: str, _size: int, _changed: str) -> None:
    """Read a file from beginning to end, once for each of its states.

    Raises:
        OSError: the system does not give it.
    """
    path = place_of(path).path
    if not stat.S_ISREG(Path(path).stat().st_mode):
        return
    try:
        with open(path, "rb", buffering=0) as file:
            while file.read(BLOCK):
                pass
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None
