"""Archives and compressed files that stand where a tar is expected: what they are, and how to
convert them.
"""

from __future__ import annotations

import re

GZIP = b"\x1f\x8b"
"""First bytes of a gzip file."""
TAR_MARK, TAR_MARK_PLACE = b"ustar", slice(257, 262)
"""Mark of the first header of a tar, and its place. Tars from before 1988 have none."""
MARK_BYTES = TAR_MARK_PLACE.stop
"""So many first bytes of a file tell what it is."""


def _packed_by(program: str, unpack: str) -> str:
    return f"compressed with {program}, which is not read; unpack it with {unpack}"


def _other_archive(name: str, unpack: str) -> str:
    # Sorted by name, so that the members of a sample are next to each other.
    return (
        f"a {name} archive, not a tar; unpack it with {unpack} in an empty folder, and pack it "
        "there: tar --sort=name -cf ../NAME.tar *"
    )


KINDS = {
    re.escape(GZIP): "compressed with gzip; name it .tar.gz, or unpack it",
    rb"BZh[1-9]1AY&SY": _packed_by("bzip2", "bunzip2"),
    rb"\xfd7zXZ\x00": _packed_by("xz", "xz -d"),
    rb"\x28\xb5\x2f\xfd": _packed_by("zstd", "zstd -d"),
    rb"\x04\x22\x4d\x18": _packed_by("lz4", "lz4 -d"),
    rb"LZIP\x01": _packed_by("lzip", "lzip -d"),
    rb"\x1f\x9d": _packed_by("compress", "uncompress"),
    rb"PK\x03\x04": _other_archive("zip", "unzip"),
    rb"7z\xbc\xaf\x27\x1c": _other_archive("7z", "7z x"),
    rb"Rar!\x1a\x07": _other_archive("rar", "unrar x"),
    rb"PAR1": "a parquet file, not a tar; name it .parquet",
}
"""Pattern of the first bytes of a file -> what the file is, and what to do. No list of paths begins
so.
"""


def is_tar(first_bytes: bytes) -> bool:
    """Tell whether a file begins with the marked header of a tar."""
    return first_bytes[TAR_MARK_PLACE] == TAR_MARK


def kind_of_archive(first_bytes: bytes) -> str:
    """Say what a file is that is no tar, and what to do; empty if its first MARK_BYTES bytes do not
    tell.
    """
    return next((kind for mark, kind in KINDS.items() if re.match(mark, first_bytes)), "")


def why_no_gzip(first_bytes: bytes) -> str:
    """Say what a file is that is named as a gzip; empty if it is one."""
    if first_bytes.startswith(GZIP):
        return ""
    if is_tar(first_bytes):
        return "no gzip, as its name says, but a tar; name it .tar"

    kind = kind_of_archive(first_bytes)
    return f"no gzip, as its name says, but {kind}" if kind else "no gzip, as its name says"
