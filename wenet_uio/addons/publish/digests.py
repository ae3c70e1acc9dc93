"""Compare files in the cache of a hub with their digests, each file once as long as it is unchanged.

The cache gives a blob the name of its digest. A file beside the cache notes size and times of each
blob that has been compared. A blob with other values is compared again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from wenet_uio.base.files import written_aside

SHA256_DIGITS = 64
SHA1_DIGITS = 40
BLOCK_BYTES = 1 << 20

log = logging.getLogger(__name__)


def check_digests(paths: Iterable[Path], notes: Path, *, compare_all: bool) -> None:
    """Compare files of a snapshot with their digests.

    Args:
        paths: links to blobs.
        notes: json file with {digest: [bytes, time of change, time of the inode's change]} of the
            blobs that were right; it is written anew.
        compare_all: compare blobs of the notes as well.

    Raises:
        ValueError: a file has another digest, and is deleted, so that it is downloaded again; or
            the hub gave no digest.
    """
    noted = {} if compare_all else _read(notes)
    right = dict(noted)

    try:
        for path in paths:
            blob = _blob_of(path)
            state = _state(blob)
            if noted.get(blob.name) != state:
                right.pop(blob.name, None)
                _compare(path, blob)
                right[blob.name] = state
    finally:
        if right != noted:
            _write(notes, right)


def _blob_of(path: Path) -> Path:
    """Return what a file of a snapshot links to: HUB/models--org--name/blobs/DIGEST.

    That can be a link again, to a file with the name of another digest that models share.
    """
    return path.parent / path.readlink() if path.is_symlink() else path


def _state(blob: Path) -> list[int]:
    status = blob.stat()
    # A copy can keep the time of change, but not that of the inode.
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def _read(notes: Path) -> dict[str, Any]:
    """Return the notes on files that were compared before; empty if they cannot be read."""
    try:
        values = json.loads(notes.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        log.warning("%s cannot be read (%s): all digests are compared", notes, error)
        return {}

    return values if isinstance(values, dict) else {}


def _write(notes: Path, right: dict[str, Any]) -> None:
    try:
        with written_aside(notes, "w") as file:
            json.dump(right, file, indent=0, sort_keys=True)
    except OSError as error:
        reason = error.strerror or error
        log.warning("%s: %s: the digests are compared again at the next start", notes, reason)


def _compare(path: Path, blob: Path) -> None:
    """Compare a file with its digest, which is the name of its blob.

    Raises:
        ValueError: see check_digests.
    """
    expected = blob.name
    if re.fullmatch(rf"[0-9a-f]{{{SHA256_DIGITS}}}", expected):
        digest = hashlib.sha256()
    elif re.fullmatch(rf"[0-9a-f]{{{SHA1_DIGITS}}}", expected):
        start = f"blob {blob.stat().st_size}\0".encode()
        digest = hashlib.sha1(start, usedforsecurity=False)  # that of git
    else:
        raise ValueError(f"{path}: the hub gave no digest of this file, so it cannot be checked")

    with open(blob, "rb") as file:
        while block := file.read(BLOCK_BYTES):
            digest.update(block)

    if digest.hexdigest() != expected:
        for damaged in (blob.resolve(), blob, path):
            damaged.unlink(missing_ok=True)
        raise ValueError(f"{path.name}: wrong digest; the file is deleted, pull the model again")
