"""A raw list or manifest in a remote store, as a local list whose audio is in the store."""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from pathlib import Path

from wenet_uio.base.files import naming, written_aside
from wenet_uio.base.uris import shown
from wenet_uio.dataset.formats.data_list import AUDIO, values_of
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.formats.keys import without_query
from wenet_uio.dataset.storage import objects
from wenet_uio.dataset.storage.settings import cache_folder


def local_manifest(path: str) -> str:
    """Return a raw list of the manifest at `path`: the manifest, or of a remote one a copy whose
    audio has absolute URIs.

    Raises:
        OSError: the manifest cannot be read. ListError: its gzip is damaged.
    """
    if not objects.is_remote(path):
        return path

    digest = hashlib.blake2b(path.encode(), digest_size=8).hexdigest()
    name = Path(without_query(path)).name
    copy = cache_folder() / "lists" / f"{digest}.{name.removesuffix('.gz')}"
    try:
        with (
            objects.open_or_hold(path) as stored,
            gzip.open(stored) if name.endswith(".gz") else stored as file,
            naming(shown(path)),
        ):
            lines = b"".join(_make_audio_absolute(line, path) for line in file)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ListError(
            f"{shown(path)}: cut short or damaged ({error}); compress the manifest again"
        ) from None

    copy.parent.mkdir(parents=True, exist_ok=True)
    if not copy.is_file() or copy.read_bytes() != lines:  # an equal copy keeps its index
        with written_aside(copy) as file:
            file.write(lines)

    return str(copy)


def _make_audio_absolute(line: bytes, uri: str) -> bytes:
    """Return a line of the remote manifest `uri`, with the URI of its audio in place of a path
    relative to the manifest.

    Lines that are no JSON objects stay as they are; indexing names them.
    """
    try:
        values = values_of(line)
    except ListError:
        return line

    folder = without_query(uri).rpartition("/")[0]
    for name in AUDIO:
        wav = values.get(name)
        if isinstance(wav, str) and not objects.is_remote(wav) and not wav.startswith("/"):
            values[name] = f"{folder}/{wav}"

    return json.dumps(values, ensure_ascii=False).encode() + b"\n"
