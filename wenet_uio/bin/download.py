"""Download a file, or download and unpack an archive.

    %(prog)s https://example.org/corpus.tar.gz data/corpus --unpack \\
        --count 'wav/*.wav=300'

A partial download is resumed, and sizes and digests are checked. Without a digest, that of the first
download is noted in TO.sha256, and a later download must have the same. Nothing is done if the target
exists. Files of OpenSLR come from a mirror if the variable OPENSLR names one, such as
https://openslr.elda.org/resources.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from wenet_uio.base.cli import command_parser, run
from wenet_uio.prepare.archive import unpack
from wenet_uio.prepare.download import SHA256, download, note_digest, note_of, refuse_changed

OPENSLR = "https://www.openslr.org/resources"


def pattern_count(text: str) -> tuple[str, int]:
    """Read `PATTERN=N` of the option --count."""
    pattern, _, count = text.rpartition("=")
    if not pattern or not count.isdecimal():
        raise argparse.ArgumentTypeError(f"expected PATTERN=N, found {text!r}")
    return pattern, int(count)


def sha256(text: str) -> str:
    """Read a SHA-256 in hexadecimal digits, of any case."""
    digest = text.lower()
    if not SHA256.fullmatch(digest):
        raise argparse.ArgumentTypeError(f"expected 64 hexadecimal digits, found {text!r}")
    return digest


def pattern_digest(text: str) -> tuple[str, str]:
    """Read `PATTERN=SHA256` of the option --files_sha256."""
    pattern, _, digest = text.rpartition("=")
    if not pattern:
        raise argparse.ArgumentTypeError(f"expected PATTERN=SHA256, found {text!r}")
    return pattern, sha256(digest)


def from_mirror(url: str) -> str:
    """Replace the address of OpenSLR by that of the mirror in the variable OPENSLR, if set."""
    if url.startswith(f"{OPENSLR}/"):
        return (os.environ.get("OPENSLR") or OPENSLR) + url.removeprefix(OPENSLR)
    return url


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = command_parser(__doc__)
    parser.add_argument("url", type=from_mirror, help="address of the file")
    parser.add_argument("to", type=Path, help="file to write; with --unpack the folder")
    parser.add_argument(
        "--size", type=int, metavar="BYTES", help="bytes that the download must have"
    )
    parser.add_argument("--sha256", type=sha256, help="SHA-256 that the download must have")
    parser.add_argument(
        "--unpack",
        action="store_true",
        help="the download is a tar or a zip: its top folder becomes TO, and it is removed",
    )
    parser.add_argument(
        "--count",
        type=pattern_count,
        action="append",
        default=[],
        metavar="PATTERN=N",
        help="with --unpack: number of files in TO that must match the pattern; can be given "
        "several times",
    )
    parser.add_argument(
        "--files_sha256",
        type=pattern_digest,
        action="append",
        default=[],
        metavar="PATTERN=SHA256",
        help="with --unpack, for an archive that the server packs anew for each request: what "
        "`LC_ALL=C sha256sum PATTERN | sha256sum` must print in TO; can be given several times",
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Download and, with --unpack, unpack; do nothing if the target exists."""
    options = parser()
    args = options.parse_args(arguments)
    if (args.count or args.files_sha256) and not args.unpack:
        options.error("--count and --files_sha256 check files of an archive: give --unpack")

    # Archives of several corpora may have one name, such as master.tar.gz.
    archive = args.to.with_name(f"{args.to.name}.{Path(urlsplit(args.url).path).name}")
    if args.to.exists():
        if args.unpack:
            archive.unlink(missing_ok=True)  # a kill after unpacking left it
        print(f"{args.to} is there already")
        return

    file = archive if args.unpack else args.to
    note = None if args.sha256 or args.files_sha256 else note_of(args.to)
    download(args.url, file, size=args.size, sha256=args.sha256)
    if note:
        refuse_changed(file, note, args.url)
    if args.unpack:
        unpack(archive, args.to, dict(args.count), dict(args.files_sha256))
    if note:  # only now: a page of an error that came in place of an archive is not noted
        note_digest(file, note)
    if args.unpack:
        archive.unlink()


if __name__ == "__main__":
    run(main)
