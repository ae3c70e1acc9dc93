"""The folder of a shard list: its lock, and the removal of files that earlier or killed runs left in it."""

from __future__ import annotations

import glob
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from wenet_uio.files import locked
from wenet_uio.prepare.shard_job import RECEIPTS

NUMBER = "[0-9]" * 9
"""Glob of the number in a shard's name."""


@contextmanager
def only_run_in(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder; wait for another run, or for workers of a killed run, that still write there."""
    lock = folder / RECEIPTS / "lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    with locked(lock, create=True):
        yield


def clear_temporaries(folder: Path, prefix: str, names: Collection[str]) -> None:
    """Make the folders of the shards `names`, and remove temporary files that a killed run left."""
    for name in names:
        (folder / RECEIPTS / name).parent.mkdir(exist_ok=True)
    for place in _places(folder):
        for temporary in place.glob(f".{glob.escape(prefix)}_{NUMBER}*.tmp"):
            temporary.unlink()


def remove_stale(folder: Path, prefix: str, names: Collection[str], tars: Collection[str]) -> None:
    """Remove shards, indexes and receipts that earlier runs with this prefix made and this run did not.

    Args:
        names: the shards of this run, as paths in the folder without .tar; each has a receipt.
        tars: the tars of this run, as paths in the folder.
    """
    kept = {folder / RECEIPTS / f"{name}.json" for name in names} | {folder / tar for tar in tars}
    for place in _places(folder):
        for path in place.glob(f"{glob.escape(prefix)}_{NUMBER}*"):
            whole = path.with_suffix("") if path.suffix == ".idx" else path
            if path.suffix in (".tar", ".idx", ".json") and whole not in kept:
                path.unlink()


def _places(folder: Path) -> list[Path]:
    """The folders that runs write to: `folder`, those of duration groups, and those of their receipts."""
    receipts = folder / RECEIPTS
    groups = [path.name for path in receipts.iterdir() if path.is_dir()]
    return [folder, receipts, *(receipts / name for name in groups), *(folder / name for name in groups)]
