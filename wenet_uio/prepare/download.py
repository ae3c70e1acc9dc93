"""Download files, with resume and checks.

Files appear under their names only when they are complete. What is received stays in `NAME.part`,
and `NAME.part.version` says of which version of the file it is, so that a file that changed on the
server is never joined with parts of the former one.

Where the publisher gives no digest, that of the first download is noted in a file beside the data,
and a later download that has another one is refused.
"""

from __future__ import annotations

import json
import logging
import re
from dataclasses import asdict
from pathlib import Path

from tqdm import tqdm

from wenet_uio.base.files import digest_of, locked, written_aside
from wenet_uio.base.messages import is_quiet, note
from wenet_uio.base.uris import shown
from wenet_uio.dataset.storage.transfer import transfer, version_of
from wenet_uio.dataset.storage.versions import ChangedError, Version

SHA256 = re.compile("[0-9a-f]{64}")
"""A digest as `sha256sum` writes it."""

log = logging.getLogger(__name__)


def download(
    url: str, path: str | Path, *, size: int | None = None, sha256: str | None = None
) -> Path:
    """Download `url` to `path`; a file that exists already is checked and kept.

    Broken connections are continued, and a later run continues what an earlier one has received. If
    several processes want the same file, one of them downloads it and the others wait.

    Args:
        size: bytes that the file must have.
        sha256: hexadecimal digest that the file must have.

    Raises:
        ValueError: the file has another size or digest; what was received is removed.
        OSError: the server refuses, or sends nothing until the deadline (WENET_UIO_DEADLINE); what
            was received stays.
    """
    path = Path(path)
    part = path.with_name(path.name + ".part")
    path.parent.mkdir(parents=True, exist_ok=True)

    with locked(path.with_name(path.name + ".lock")):
        if not path.exists():
            version = _fetch_all(url, part)
            if version.size is None and size is None and sha256 is None:
                log.warning(
                    "%s: the server does not say how long it is: whether %s is whole is not known; "
                    "give a size or a sha256",
                    shown(url),
                    path,
                )
            _check_file(part, url, size, sha256)
            part.rename(path)
            _version_file(part).unlink()
            return path

    _check_file(path, url, size, sha256)
    return path


def note_of(target: str | Path) -> Path:
    """Return the path of the file that has the digest of the first download for `target`."""
    target = Path(target)
    return target.with_name(f"{target.name}.sha256")


def note_digest(path: Path, note: Path) -> None:
    """Note the digest of a download, as a line of `sha256sum`, unless there is a note."""
    if not note.exists():
        with written_aside(note, "w") as file:
            file.write(f"{digest_of(path)}  {path.name}\n")


def refuse_changed(path: Path, note: Path, url: str) -> None:
    """Refuse a download that is not what the first one was.

    Raises:
        ValueError: it has another digest than the noted one, and is removed; or the note has none.
    """
    if not note.exists():
        return

    noted = note.read_text(encoding="utf-8", errors="replace").partition(" ")[0]
    if not SHA256.fullmatch(noted):
        raise ValueError(f"{note}: expected a line of sha256sum, found {noted!r}; remove the file")

    digest = digest_of(path)
    if digest != noted:
        path.unlink()
        raise ValueError(
            f"{shown(url)}: the first download had sha256 {noted} ({note}), this one has {digest}; "
            f"{path} is removed; if the publisher changed the data, remove {note} and run again"
        )


def _fetch_all(url: str, part: Path) -> Version:
    """Append to `part` until it has all bytes of the file; return the version of the file."""
    while True:
        version = version_of(url)
        received = _received_bytes(part, version)
        if part.exists() and not received:
            note(f"{shown(url)}: {part} is of another version; starting over")

        _version_file(part).write_text(json.dumps(asdict(version)), encoding="utf-8")
        try:
            with (
                open(part, "ab" if received else "wb") as file,
                tqdm(
                    total=version.size,
                    initial=received,
                    unit="B",
                    unit_scale=True,
                    desc=part.stem,
                    disable=is_quiet(),
                ) as progress,
            ):

                def write(chunk: bytes) -> None:
                    file.write(chunk)
                    progress.update(len(chunk))

                transfer(url, write, received, version.size, version)
            return version
        except ChangedError as error:
            note(f"{error}; starting over")


def _received_bytes(part: Path, version: Version) -> int:
    """Return how many bytes of this version of the file an earlier run has received."""
    record = _version_file(part)
    if not (part.exists() and record.exists()):
        return 0
    # Without a tag, a file of the same length may be another one.
    is_known = bool(version.tag) and version.size is not None
    is_same = json.loads(record.read_text(encoding="utf-8")) == asdict(version)
    received = part.stat().st_size
    return received if is_known and is_same and received <= (version.size or 0) else 0


def _version_file(part: Path) -> Path:
    return part.with_name(part.name + ".version")


def _check_file(path: Path, url: str, size: int | None, sha256: str | None) -> None:
    """Remove the file and raise ValueError if it has another size or digest."""
    problem = None
    actual_size = path.stat().st_size
    if size is not None and actual_size != size:
        problem = f"expected {size} bytes, found {actual_size}"
    elif sha256 is not None:
        actual_digest = digest_of(path)
        if actual_digest != sha256:
            problem = f"expected sha256 {sha256}, found {actual_digest}"

    if problem:
        path.unlink()
        _version_file(path).unlink(missing_ok=True)
        raise ValueError(f"{shown(url)}: {problem}; {path} is removed")
