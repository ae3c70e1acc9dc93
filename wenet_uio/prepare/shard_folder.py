"""Hold the folder of a shard list: its lock, its owner, and removal of files of earlier runs.

The shards of one naming in a folder belong to one list. `.packed/PREFIX.list` has the path of this
list.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from wenet_uio.base.files import locked, written_aside
from wenet_uio.prepare.shard_job import RECEIPTS, ShardJob, earlier_receipt
from wenet_uio.prepare.sharding import ShardNaming


@contextmanager
def only_run_in(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder.

    Wait for another run, or for workers of a killed run, that still write there.
    """
    lock = folder / RECEIPTS / "lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    with locked(lock):
        yield


def clear_temporaries(folder: Path, naming: ShardNaming, names: Collection[str]) -> None:
    """Make the folders of the shards `names`, and remove temporary files that a killed run left."""
    for name in names:
        (folder / RECEIPTS / name).parent.mkdir(exist_ok=True)
    for subfolder in _written_folders(folder):
        for temporary in subfolder.glob(f".{naming.pattern}*.tmp"):
            temporary.unlink()


def take_over(
    folder: Path, naming: ShardNaming, data_list: str, jobs: Sequence[ShardJob], *, overwrite: bool
) -> None:
    """Note that the shards of a naming belong to `data_list` from now on.

    Args:
        jobs: the shards that this run makes.
        overwrite: shards of another list may be replaced or removed.

    Raises:
        ValueError: the run would replace or remove shards of another list; the message names this
            list.
    """
    note = folder / RECEIPTS / naming.note
    list_path = os.path.relpath(os.path.realpath(data_list), os.path.realpath(folder))
    owner = note.read_text(encoding="utf-8").rstrip("\n") if note.is_file() else None
    if owner == list_path:
        return

    lost = [] if overwrite else _lost_tars(folder, naming, jobs)
    if lost:
        owner_shown = "another list, or were made by another tool"
        if owner:
            owner_shown = f"the list {os.path.normpath(folder / owner)}"
        raise ValueError(
            f"{folder}: {len(lost)} shard(s) that {data_list} would replace or remove belong to "
            f"{owner_shown}; the first is {lost[0].name}. Give another folder or another --prefix, or "
            "--overwrite to lose these shards"
        )

    with written_aside(note, "w") as file:
        file.write(f"{list_path}\n")


def _lost_tars(folder: Path, naming: ShardNaming, jobs: Sequence[ShardJob]) -> list[Path]:
    """Return the existing tars of a naming that no job reuses."""
    reused_tars: set[Path] = set()
    for job in jobs:
        receipt = earlier_receipt(job)
        if receipt is not None:
            reused_tars.update(folder / shard["path"] for shard in receipt.shards)

    packed_files = [path for path, _ in _packed_files(folder, naming)]
    return [path for path in packed_files if path.suffix == ".tar" and path not in reused_tars]


def remove_stale(
    folder: Path, naming: ShardNaming, names: Collection[str], tars: Collection[str]
) -> None:
    """Remove shards, indexes and receipts of this naming that this run did not make.

    Args:
        names: the shards of this run, as paths in the folder without .tar; each has a receipt.
        tars: the tars of this run, as paths in the folder.
    """
    kept_files = {folder / tar for tar in tars}
    kept_files.update(folder / RECEIPTS / f"{name}.json" for name in names)
    for path, owner in _packed_files(folder, naming):
        if owner not in kept_files:
            path.unlink()


def _packed_files(folder: Path, naming: ShardNaming) -> list[tuple[Path, Path]]:
    """Return shards, indexes and receipts of a naming, each with the file that it belongs to.

    An index belongs to its tar, a shard or receipt to itself.
    """
    files: list[tuple[Path, Path]] = []
    for subfolder in _written_folders(folder):
        for path in sorted(subfolder.glob(f"{naming.pattern}*")):
            owner = naming.whole(path.name)
            if owner:
                files.append((path, path.with_name(owner)))

    return files


def _written_folders(folder: Path) -> list[Path]:
    """Return the folders that runs write to: `folder`, those of groups, and those of receipts."""
    receipts = folder / RECEIPTS
    folders = [folder, receipts]
    for path in receipts.iterdir():
        if path.is_dir():
            folders += [path, folder / path.name]

    return folders
