"""Unpack archives of corpora: tars, also compressed, and zips.

Archives come from others, so only files and folders below the target are written: no links,
devices, owners or permissions. The filters of `tarfile.extractall` are not enough: an archive can
lead them outside the folder in Python before 3.11.13 (CVE-2025-4517), and older versions have none.
"""

from __future__ import annotations

import lzma
import os
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from shutil import copyfileobj, rmtree
from types import MappingProxyType
from typing import IO, Any, NamedTuple

from wenet_uio.base.files import digest_of, digest_of_blocks

CHUNK = 1 << 20
ZIP = b"PK"
"""First bytes of a zip."""
NAMING = {
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
}
"""Headers of a tar whose content describes the next member, such as its long name; tarfile reads it
at once."""
LONGEST_NAMING = 1 << 20
"""Bytes that such a header may have."""


class _RefusedError(ValueError):
    """A member that is not written."""


class _Member(NamedTuple):
    """A member of an archive."""

    name: str
    folder: bool
    open: Callable[[], IO[bytes] | None]


def unpack(
    archive: str | Path,
    folder: str | Path,
    counts: Mapping[str, int],
    digests: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Unpack an archive and rename its single top folder to `folder`.

    The folder appears only when it is complete.

    Args:
        counts: glob inside the folder -> number of files that must match it.
        digests: glob inside the folder -> `digest_of_files` that the matching files must have.

    Raises:
        ValueError: the archive is damaged or cut short, has a member that is not a file or folder
            or leads out of the archive, has not exactly one top folder, or a count or a digest
            differs.
    """
    folder = Path(folder)
    aside = folder.with_name(folder.name + ".unpacking")
    rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)

    try:
        unpack_into(archive, aside)
        tops = list(aside.iterdir())
        if len(tops) != 1 or not tops[0].is_dir():
            raise ValueError(
                f"{archive}: expected one folder at the top, found "
                f"{sorted(top.name for top in tops)}"
            )

        for pattern, expected in counts.items():
            matching_files = sum(1 for _ in tops[0].glob(pattern))
            if matching_files != expected:
                raise ValueError(
                    f"{archive}: expected {expected} files {pattern}, found {matching_files}"
                )

        for pattern, expected in digests.items():
            digest = digest_of_files(tops[0], pattern)
            if digest != expected:
                raise ValueError(
                    f"{archive}: expected files {pattern} with sha256 {expected}, found {digest}"
                )

        tops[0].rename(folder)
    finally:
        rmtree(aside, ignore_errors=True)


def digest_of_files(folder: Path, pattern: str) -> str:
    """Return the digest of the names and contents of files, whatever the archive that had them.

    It is what `LC_ALL=C sha256sum PATTERN | sha256sum` prints in the folder.
    """
    files = sorted(path for path in folder.glob(pattern) if path.is_file())
    lines = (f"{digest_of(path)}  {path.relative_to(folder).as_posix()}\n" for path in files)
    return digest_of_blocks(os.fsencode(line) for line in lines)


def unpack_into(archive: str | Path, folder: str | Path) -> None:
    """Unpack an archive into a folder that has no links; files of the same names are replaced.

    Raises:
        ValueError: the archive is damaged or cut short, or has a member that is not a file or
            folder or leads out of `folder`; members before it are there.
    """
    with _name_damage(archive):
        with open(archive, "rb") as file:
            is_zip = file.read(len(ZIP)) == ZIP

        members = _zip_members(archive) if is_zip else _tar_members(archive)
        _write_members(members, Path(folder))


@contextmanager
def _name_damage(archive: str | Path) -> Iterator[None]:
    """Turn errors of the archive into a ValueError that names it.

    Errors of the system, such as a full disk, pass.
    """
    try:
        yield
    except _RefusedError as error:
        raise ValueError(f"{archive}: {error}") from None
    except (FileExistsError, IsADirectoryError, NotADirectoryError) as error:
        raise ValueError(
            f"{archive}: {error.filename} is both a file and a folder of the archive"
        ) from None
    except (
        tarfile.TarError,
        zipfile.BadZipFile,
        zlib.error,
        lzma.LZMAError,
        EOFError,
        OSError,
        ValueError,
    ) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        problem = " ".join(str(error).split())
        raise ValueError(
            f"{archive}: damaged archive ({problem}); remove it and download again"
        ) from None
    except RuntimeError as error:
        # An encrypted zip, an unknown compression, or thousands of chained headers
        raise ValueError(f"{archive}: cannot be unpacked ({error})") from None


def _write_members(members: Iterator[_Member], folder: Path) -> None:
    """Write the members below `folder`.

    A later member replaces an earlier one of the same name, as in tar.
    """
    for member in members:
        name = Path(member.name)
        if name.is_absolute() or ".." in name.parts:
            raise _RefusedError(f"{member.name!r} leads out of the folder of the archive")

        path = folder / name
        if member.folder:
            path.mkdir(parents=True, exist_ok=True)
            continue

        source = member.open()
        assert source is not None, "files have content"
        path.parent.mkdir(parents=True, exist_ok=True)
        with source, path.open("wb") as file:
            copyfileobj(source, file, CHUNK)


def _zip_members(archive: str | Path) -> Iterator[_Member]:
    """Yield the members of a zip; names of links and devices are refused."""
    with zipfile.ZipFile(archive) as zipped:
        for info in zipped.infolist():
            file_type = stat.S_IFMT(info.external_attr >> 16)  # 0 in a zip that Windows made
            if file_type not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise _RefusedError(f"{info.filename!r} is not a file or folder")
            yield _Member(info.filename, info.is_dir(), lambda info=info: zipped.open(info))


class _Header(tarfile.TarInfo):
    """A header of a tar.

    After the first one `tarfile` takes a damaged header for the end; here it is an error.
    """

    @classmethod
    def frombuf(cls, block: bytes, *arguments: Any) -> tarfile.TarInfo:
        """Read a header.

        Raises:
            ReadError: there is neither a header of a member nor an end mark, or the size in the
                header is impossible.
        """
        try:
            header = super().frombuf(block, *arguments)
        except tarfile.HeaderError as error:
            if len(block) == tarfile.BLOCKSIZE and not any(block):
                raise  # the end mark
            raise tarfile.ReadError(f"{error}: neither a member nor an end mark") from None

        if header.size < 0 or (header.type in NAMING and header.size > LONGEST_NAMING):
            raise tarfile.ReadError(f"a header with a size of {header.size} bytes")

        return header


def _tar_members(archive: str | Path) -> Iterator[_Member]:
    """Yield the members of a tar, compressed or not."""
    with tarfile.open(archive, tarinfo=_Header) as tar:
        for info in tar:
            if info.size < 0:  # by a pax header; tarfile would read the same member again
                raise tarfile.ReadError(f"{info.name!r} has a size of {info.size} bytes")
            if info.issparse() or not (info.isfile() or info.isdir()):
                raise _RefusedError(f"{info.name!r} is not a file or folder")
            yield _Member(info.name, info.isdir(), lambda info=info: tar.extractfile(info))

        assert tar.fileobj is not None, "open until here"
        while tar.fileobj.read(CHUNK):  # a compressed archive is checked at its end
            pass
