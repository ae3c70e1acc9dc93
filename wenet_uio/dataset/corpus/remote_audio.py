"""Length and format of audio files in stores, by byte ranges where that costs less than whole files.

A decoder reads from an object that fetches what it asks for, so the length and the errors are those
of the whole file. Where all of a file tells its length, the file is fetched into the cache.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial

from wenet_uio.audio.decoders import AudioError, AudioInfo
from wenet_uio.audio.partial_file import PartialFile
from wenet_uio.audio.read import READ_WHOLE, audio_info
from wenet_uio.base.crashes import is_careful
from wenet_uio.dataset.storage import objects
from wenet_uio.dataset.storage.ranged_object import NEAR, RangedObject, by_range
from wenet_uio.dataset.storage.versions import ChangedError, Version

MOST_REMEMBERED = 1024
"""Recordings whose length is remembered. A long recording is asked for once for each of its
segments."""
WHOLE_AT_ONCE = 16
"""Large files that are in memory at a time."""
_whole_at_once = threading.BoundedSemaphore(WHOLE_AT_ONCE)


class _WholeFileError(OSError):
    """Most of the file is read."""


def stored_info(uri: str) -> AudioInfo:
    """Return the length and format of an audio file that is packed or in a store, as `audio_info`
    of its bytes.

    Raises:
        AudioError: the audio cannot be read. OSError, ValueError: the store does not give it.
    """
    if objects.is_packed(uri):
        return audio_info(objects.read_bytes(uri))

    try:
        return _info_of_version(uri, objects.current_version(uri))
    except ChangedError:  # the version was up to an hour old
        return audio_info(objects.read_bytes(uri))


def stored_infos(uris: Iterable[str], requests: ThreadPoolExecutor) -> Callable[[str], AudioInfo]:
    """Begin to read several files at a time; returns `stored_info`, which waits for one of them."""
    infos = {uri: requests.submit(stored_info, uri) for uri in dict.fromkeys(uris)}
    return lambda uri: infos[uri].result() if uri in infos else stored_info(uri)


@lru_cache(MOST_REMEMBERED)
def _info_of_version(uri: str, version: Version) -> AudioInfo:
    """Return `stored_info` of one version of a file.

    Raises:
        ChangedError: the file has another version. Otherwise the errors of `stored_info`.
    """
    if version.size is None or version.size <= NEAR:
        return audio_info(objects.read_bytes(uri))

    # A careful process forks before it decodes, and a forked process must not use connections.
    if not uri.partition("?")[0].lower().endswith(READ_WHOLE) and not is_careful():
        info = by_range(uri, partial(_read_parts, uri, version))
        if info is not None:
            return info

    with _whole_at_once:
        return audio_info(objects.read_bytes(uri))


def _read_parts(uri: str, version: Version) -> AudioInfo | None:
    """Read the parts of a file that tell its length; None if that is most of the file, or the cache
    has a copy.
    """
    copy = objects.open_present(uri, version)
    if copy is not None:
        copy.close()
        return None

    parts = RangedObject(uri, version)

    def read_between(start: int, end: int) -> bytes:
        if 2 * (end - start) > len(parts):
            raise _WholeFileError
        return parts.between(start, end)

    file = PartialFile(len(parts), read_between)
    try:
        info = audio_info(file)
    except AudioError:
        if file.failure is None:
            parts.check_version()
            raise

    if isinstance(file.failure, _WholeFileError):
        return None
    if file.failure is not None:
        raise file.failure  # whatever the decoder made of it

    parts.check_version()
    return info
