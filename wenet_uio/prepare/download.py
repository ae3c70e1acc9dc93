"""Download files over HTTP, with resume and checks.

Files appear under their names only when they are complete.
"""

from __future__ import annotations

import http.client
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import IO

from tqdm import tqdm

from wenet_uio.dataset.storage.backoff import Backoff
from wenet_uio.files import digest_of, locked

CHUNK = 1 << 20
SILENCE_SECONDS = 60.0
LONGEST_PAUSE_SECONDS = 30.0
WORTH_ANOTHER_TRY = frozenset({408, 425, 429, 500, 502, 503, 504})
PARTIAL_CONTENT, RANGE_NOT_SATISFIABLE = 206, 416


class _CutShortError(OSError):
    """The connection ended before the body did."""


def download(
    url: str,
    path: str | Path,
    *,
    size: int | None = None,
    sha256: str | None = None,
    attempts: int = 8,
    pause: float = 1.0,
) -> Path:
    """Download `url` to `path`; a file that exists already is checked and kept.

    Received bytes are kept in `path`.part, which the next attempt of this run or a later run
    resumes. If several processes want the same file, one of them downloads it and the others wait.

    Args:
        size: bytes that the file must have.
        sha256: hexadecimal digest that the file must have.
        attempts: give up after this many consecutive attempts that receive nothing new.
        pause: seconds before the second attempt; the pause doubles with each attempt, with jitter.

    Raises:
        ValueError: the file has another size or digest; the .part file is removed.
        OSError: the server refuses, or all attempts failed; the .part file stays.
    """
    path = Path(path)
    part = path.with_name(path.name + ".part")
    path.parent.mkdir(parents=True, exist_ok=True)

    with locked(path.with_name(path.name + ".lock"), create=True):
        if not path.exists():
            _fetch(url, part, attempts, pause)
            _check(part, url, size, sha256)
            part.rename(path)
            return path

    _check(path, url, size, sha256)
    return path


def _fetch(url: str, part: Path, attempts: int, pause: float) -> None:
    """Append to `part` until the body of `url` is whole.

    An attempt that received something resets the count of attempts.
    """
    backoff = Backoff(pause, LONGEST_PAUSE_SECONDS)
    while True:
        before = part.stat().st_size if part.exists() else 0
        try:
            _fetch_rest(url, part)
            return
        except urllib.error.HTTPError as error:
            if error.code not in WORTH_ANOTHER_TRY:
                raise OSError(f"{url}: the server answers {error.code} {error.reason}") from None
            problem = f"{error.code} {error.reason}"
        except (OSError, http.client.HTTPException) as error:
            problem = str(error) or type(error).__name__

        if part.exists() and part.stat().st_size > before:
            backoff.reset()

        seconds = backoff.next_pause()
        if backoff.failures >= attempts:
            raise OSError(
                f"{url}: gave up after {attempts} attempts ({problem}); run again to resume"
            )

        print(f"{url}: {problem}; trying again", file=sys.stderr)
        time.sleep(seconds)


def _fetch_rest(url: str, part: Path) -> None:
    """Request the bytes that `part` lacks; start over if the server sends the whole file."""
    part_size = part.stat().st_size if part.exists() else 0
    headers = {"Range": f"bytes={part_size}-"} if part_size else {}
    request = urllib.request.Request(url, headers=headers)
    try:
        response = urllib.request.urlopen(request, timeout=SILENCE_SECONDS)
    except urllib.error.HTTPError as error:
        if error.code != RANGE_NOT_SATISFIABLE:
            raise
        if error.headers.get("Content-Range") == f"bytes */{part_size}":  # nothing is missing
            return

        part.unlink()
        raise _CutShortError(
            "the partial file does not fit the file on the server; starting over"
        ) from None

    with response:
        resumed = response.status == PARTIAL_CONTENT
        length = int(response.headers.get("Content-Length") or 0)
        with open(part, "ab" if resumed else "wb") as file:
            received = _copy(
                response, file, already=part_size if resumed else 0, length=length or None
            )

    if received < length:
        raise _CutShortError(f"the connection ended after {received} of {length} bytes")


def _copy(source: IO[bytes], file: IO[bytes], already: int, length: int | None) -> int:
    """Append `source` to `file`; return the number of bytes copied."""
    received = 0
    total = already + length if length else None
    name = Path(file.name).stem
    with tqdm(total=total, initial=already, unit="B", unit_scale=True, desc=name) as progress:
        while chunk := source.read(CHUNK):
            file.write(chunk)
            received += len(chunk)
            progress.update(len(chunk))

    return received


def _check(path: Path, url: str, size: int | None, sha256: str | None) -> None:
    """Remove the file and raise ValueError if it has another size or digest."""
    actual_size = path.stat().st_size
    if size is not None and actual_size != size:
        path.unlink()
        raise ValueError(f"{url}: expected {size} bytes, found {actual_size}; {path} is removed")

    if sha256 is not None:
        digest = digest_of(path)
        if digest != sha256:
            path.unlink()
            raise ValueError(f"{url}: expected sha256 {sha256}, found {digest}; {path} is removed")
