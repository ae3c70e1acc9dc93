"""Make NeMo's tarred sets: tars, sharded_manifests/, tarred_audio_manifest.json, metadata.yaml.

Each tar leaves a receipt, so that a killed run that is repeated makes only the other tars.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from wenet_uio.addons.nemo.tars import metadata
from wenet_uio.addons.nemo.tars.scan import (
    Scanned,
    chosen_rows,
    distinct_line_keys,
    divide_rows,
    scan_manifest,
)
from wenet_uio.addons.nemo.tars.shard import MANIFESTS, NemoOptions, NemoShardJob, pack_nemo_shard
from wenet_uio.base.executor import Executor
from wenet_uio.base.files import locked, written_aside
from wenet_uio.base.messages import note
from wenet_uio.dataset.formats.data_list import lines_of
from wenet_uio.prepare.shard_job import RECEIPTS, Failure

ONE_PROCESS = Executor()
MANIFEST = "tarred_audio_manifest.json"
LEFT_OUT = "left_out.jsonl"
"""File in the folder of a set that names every line that is not in the set, with the reason."""


def make_nemo_tars(
    scanned: Scanned,
    manifest: str,
    folder: str | Path,
    options: NemoOptions,
    executor: Executor,
    *,
    overwrite: bool = False,
) -> list[Failure]:
    """Make a tarred set of NeMo of a manifest that is scanned.

    Tars that exist and were made from the same lines and files with the same options are kept.

    Args:
        scanned: the lines of `manifest`.
        manifest: path of the manifest.
        folder: where the set is made.
        options: how the manifest is divided into tars.
        executor: runs the workers.
        overwrite: tars of another tool or of other manifests may be lost.

    Returns:
        the lines that could not be read, and the entries that could not be packed.

    Raises:
        ValueError: the options do not fit, or tars would be lost.
    """
    into = Path(folder)
    with _only_run_in(into):
        _claim_folder(into, manifest, overwrite=overwrite)
        bad = _make_tars(scanned, manifest, into, options, executor, first=0)
        _remove_stale(into, options.num_shards)
        _join_manifests(into, options, range(options.num_shards))
        entries = sum(1 for _ in lines_of(str(into / MANIFEST)))
        metadata.write(into, metadata.new_metadata(options, entries))

    return bad


def add_to_set(
    manifests: Sequence[str], folder: str | Path, executor: Executor = ONE_PROCESS
) -> list[Failure]:
    """Add manifests to the set in `folder`, in further tars of about as many entries each.

    Filters, shuffling and storing are those in metadata.yaml. A manifest that is in the set already
    is not added again.

    Returns:
        as `make_nemo_tars`.

    Raises:
        ValueError: there is no set in the folder.
    """
    into = Path(folder)
    bad: list[Failure] = []
    with _only_run_in(into):
        for manifest in manifests:
            known = metadata.read(into)
            if metadata.has_manifest(known, manifest):
                note(f"{manifest}: is in the set already; nothing to do")
                continue

            options, first = metadata.stored_options(known), metadata.num_shards(known)
            scanned = scan_manifest(manifest)
            entries = len(chosen_rows(scanned, options))
            count = max(1, round(entries / max(1, metadata.samples_per_shard(known))))
            options = replace(options, num_shards=count)
            bad += _make_tars(scanned, manifest, into, options, executor, first=first)
            _join_manifests(into, options, range(first, first + count), keep_below=first)
            metadata.write(into, metadata.extended_metadata(known, manifest, count))

    return bad


def _make_tars(
    scanned: Scanned,
    manifest: str,
    into: Path,
    options: NemoOptions,
    executor: Executor,
    *,
    first: int,
) -> list[Failure]:
    """Make the tars from number `first` on."""
    shards = divide_rows(scanned, options)

    # Files that a killed run had not completed
    for folder in (into, into / MANIFESTS, into / RECEIPTS):
        for temporary in (*folder.glob(".audio_*.tmp"), *folder.glob(".manifest_*.tmp")):
            temporary.unlink()

    keys = distinct_line_keys(scanned, manifest) if scanned.clash else None

    def jobs() -> Iterator[NemoShardJob]:
        """Yield a job for each tar, with the lines of its entries."""
        for number, rows in enumerate(shards, first):
            keys_of_shard = None if keys is None else tuple(keys[row] for row in rows.tolist())
            lines = scanned.select(rows)
            yield NemoShardJob(
                str(into),
                number,
                manifest,
                lines.offsets,
                lines.sizes,
                keys_of_shard,
                options.storing,
            )

    bad, kept_tars = list(scanned.bad), 0
    total = sum(map(len, shards))
    for receipt, is_new in executor.map(pack_nemo_shard, jobs(), "pack", total, len):
        bad += receipt.bad
        kept_tars += not is_new

    if kept_tars:
        note(f"{into}: {kept_tars} of {len(shards)} tars were there already")

    with written_aside(into / LEFT_OUT, "w") as file:
        for key, reason in bad:
            file.write(json.dumps({"key": key, "reason": reason}, ensure_ascii=False) + "\n")

    return bad


def _only_run_in(into: Path) -> AbstractContextManager[object]:
    """Return the lock of the folder of a set."""
    lock = into / RECEIPTS / "lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    return locked(lock)


def _claim_folder(into: Path, manifest: str, *, overwrite: bool) -> None:
    """Note that the set belongs to a manifest from now on.

    Raises:
        ValueError: tars of another tool, of another manifest or of added manifests would be lost.
    """
    note, manifest_path = into / RECEIPTS / "owner", os.path.realpath(manifest)
    tars = [] if overwrite else sorted(into.glob("audio_*.tar"))
    remedy = "give another --target_dir, or --overwrite to lose these tars"
    if tars and not note.is_file():  # a killed run has left a note, though perhaps not all receipts
        raise ValueError(f"{into}: {tars[0].name} was made by another tool; {remedy}")

    owner = note.read_text(encoding="utf-8") if note.is_file() else manifest_path
    if tars and owner != manifest_path:
        raise ValueError(f"{into}: {len(tars)} tars were made from {owner}; {remedy}")
    if tars and (into / metadata.NAME).is_file() and metadata.read(into).get("history"):
        raise ValueError(f"{into}: manifests were added to this set, and would be lost; {remedy}")

    with written_aside(note, "w") as file:
        file.write(manifest_path)


def _remove_stale(into: Path, count: int) -> None:
    """Remove tars, manifests and receipts of an earlier run that made more tars."""
    for receipt in (into / RECEIPTS).glob("audio_*.json"):
        number = int(receipt.stem.rpartition("_")[2])
        if number < count:
            continue

        for folder in (MANIFESTS, RECEIPTS):
            (into / folder / f"manifest_{number}.json").unlink(missing_ok=True)
        (into / f"audio_{number}.tar").unlink(missing_ok=True)
        receipt.unlink()  # last, so that a killed run can be repeated


def _join_manifests(into: Path, options: NemoOptions, numbers: range, keep_below: int = 0) -> None:
    """Write the manifest of all tars.

    It has the entries of the present manifest with a shard_id below `keep_below`, then those of the
    tars `numbers`.
    """
    folder = into / (MANIFESTS if options.storing.shard_manifests else RECEIPTS)
    present = into / MANIFEST
    with written_aside(present) as file:
        if keep_below:
            for _, line in lines_of(str(present)):
                if json.loads(line)["shard_id"] < keep_below:
                    file.write(line)

        for number in numbers:
            file.write((folder / f"manifest_{number}.json").read_bytes())
