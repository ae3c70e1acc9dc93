#!/usr/bin/env python3
"""Download a file, or an archive that is unpacked; resumes, checks, and does nothing where the result is there.

What OpenSLR has comes from a mirror where the variable OPENSLR names one, such as https://openslr.elda.org/resources.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from urllib.parse import urlsplit

from wenet_uio.cli import run
from wenet_uio.prepare.download import download, unpack

OPENSLR = "https://www.openslr.org/resources"


def pattern_count(text: str) -> tuple[str, int]:
    pattern, _, count = text.rpartition("=")
    if not pattern or not count.isdecimal():
        raise argparse.ArgumentTypeError(f"expected PATTERN=N, found {text!r}")
    return pattern, int(count)


def from_mirror(url: str) -> str:
    if url.startswith(f"{OPENSLR}/"):
        return (os.environ.get("OPENSLR") or OPENSLR) + url.removeprefix(OPENSLR)
    return url


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", type=from_mirror)
    parser.add_argument("to", type=Path, help="the file; with --unpack the folder")
    parser.add_argument("--size", type=int, help="bytes the download must have")
    parser.add_argument("--sha256", help="digest the download must have")
    parser.add_argument("--unpack", action="store_true", help="a tar: its top folder becomes TO, and it is removed")
    parser.add_argument(
        "--count",
        type=pattern_count,
        action="append",
        default=[],
        metavar="PATTERN=N",
        help="with --unpack: how many files must match the pattern in TO; may be given again",
    )
    args = parser.parse_args()

    if args.to.exists():
        print(f"{args.to} is there already")
        return
    if not args.unpack:
        download(args.url, args.to, size=args.size, sha256=args.sha256)
        return
    archive = args.to.parent / Path(urlsplit(args.url).path).name
    download(args.url, archive, size=args.size, sha256=args.sha256)
    unpack(archive, args.to, dict(args.count))
    archive.unlink()


if __name__ == "__main__":
    run(main)
