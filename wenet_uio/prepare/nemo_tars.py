"""NeMo's tarred sets of a manifest: tars, sharded_manifests/, tarred_audio_manifest.json and metadata.yaml.

Each tar leaves a receipt, so that a killed run that is repeated makes only the other tars.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from wenet_uio.dataset.formats.data_list import lines_of
from wenet_uio.executor import Executor
from wenet_uio.files import locked, written_aside
from wenet_uio.prepare import nemo_metadata as metadata
from wenet_uio.prepare.nemo_scan import Scanned, chosen_of, keys_of, numbers_of_shards, scan_manifest
from wenet_uio.prepare.nemo_shard import MANIFESTS, NemoOptions, NemoShardJob, pack_nemo_shard
from wenet_uio.prepare.shard_job import RECEIPTS, Failure

ONE_PROCESS = Executor()
MANIFEST = "tarred_audio_manifest.json"
LEFT_OUT = "left_out.jsonl"
"""File in the folder of a set that names every line that is not in the set, with the reason."""


def make_nemo_tars(
    manifest: str, folder: str | Path, options: NemoOptions, executor: Executor = ONE_PROCESS
) -> list[Failure]:
    """Make a tarred set of NeMo in `folder`.

    Tars that exist and were made from the same lines and files with the same options are kept.

    Returns:
        the entries that could not be packed, and the lines that could not be read.

    Raises:
        ListError: the manifest holds no usable entry. ValueError: the options do not fit, or `folder` has another set.
    """
    return make_of_scanned(scan_manifest(manifest), manifest, folder, options, executor)


def make_of_scanned(
    scanned: Scanned, manifest: str, folder: str | Path, options: NemoOptions, executor: Executor
) -> list[Failure]:
    """Make a set of a manifest that is scanned already; see `make_nemo_tars`."""
    into = Path(folder)
    with _only_run_in(into):
        _refuse_other_tars(into)
        bad = _pack(scanned, manifest, into, options, executor, first=0)
        _remove_stale(into, options.num_shards)
        _join_manifests(into, options, range(options.num_shards))
        metadata.write(into, metadata.of_new_set(options, _count_lines(into / MANIFEST)))
    return bad


def add_to_set(manifests: Sequence[str], folder: str | Path, executor: Executor = ONE_PROCESS) -> list[Failure]:
    """Add manifests to the set in `folder`, in further tars of about as many entries each.

    Filters, shuffling and storing are those in metadata.yaml. A manifest that is in the set already is not added again.

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
            if metadata.holds(known, manifest):
                print(f"{manifest}: is in the set already; nothing to do", file=sys.stderr)
                continue
            options, first = metadata.options_of(known), metadata.num_shards(known)
            scanned = scan_manifest(manifest)
            count = max(1, round(len(chosen_of(scanned, options)) / max(1, metadata.samples_per_shard(known))))
            options = replace(options, num_shards=count)
            bad += _pack(scanned, manifest, into, options, executor, first=first)
            _join_manifests(into, options, range(first, first + count), keep_below=first)
            metadata.write(into, metadata.with_addition(known, manifest, count))
    return bad


def _pack(
    scanned: Scanned, manifest: str, into: Path, options: NemoOptions, executor: Executor, *, first: int
) -> list[Failure]:
    """Make the tars from number `first` on."""
    shards = numbers_of_shards(scanned, options)
    for temporary in (*into.glob(".audio_*.tmp"), *into.glob(f"{MANIFESTS}/.manifest_*.tmp")):
        temporary.unlink()
    keys = keys_of(scanned, manifest) if scanned.clash else None

    def jobs() -> Iterator[NemoShardJob]:
        for number, rows in enumerate(shards, first):
            own = None if keys is None else tuple(keys[row] for row in rows.tolist())
            part = scanned.of(rows)
            yield NemoShardJob(str(into), number, manifest, part.offsets, part.sizes, own, options.storing)

    bad, kept = list(scanned.bad), 0
    for receipt, made in executor.map(pack_nemo_shard, jobs(), "pack", sum(map(len, shards)), len):
        bad += receipt.bad
        kept += not made
    if kept:
        print(f"{into}: {kept} of {len(shards)} tars were there already", file=sys.stderr)
    with written_aside(into / LEFT_OUT, "w") as file:
        file.writelines(json.dumps({"key": key, "reason": reason}, ensure_ascii=False) + "\n" for key, reason in bad)
    return bad


def _only_run_in(into: Path) -> AbstractContextManager[None]:
    lock = into / RECEIPTS / "lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    return locked(lock, create=True)


def _refuse_other_tars(into: Path) -> None:
    """Raises: ValueError: the folder has tars that this tool has not made."""
    others = [tar for tar in sorted(into.glob("audio_*.tar")) if not (into / RECEIPTS / f"{tar.stem}.json").is_file()]
    if others:
        raise ValueError(f"{into}: {others[0].name} was made by another tool; give another folder, or remove its tars")


def _remove_stale(into: Path, count: int) -> None:
    """Remove tars, manifests and receipts of an earlier run that made more tars."""
    for receipt in (into / RECEIPTS).glob("audio_*.json"):
        number = int(receipt.stem.rpartition("_")[2])
        if number >= count:
            for folder in (MANIFESTS, RECEIPTS):
                (into / folder / f"manifest_{number}.json").unlink(missing_ok=True)
            (into / f"audio_{number}.tar").unlink(missing_ok=True)
            receipt.unlink()


def _join_manifests(into: Path, options: NemoOptions, numbers: range, keep_below: int = 0) -> None:
    """Write the manifest of all tars: entries of the present one below a shard_id, then those of the tars `numbers`."""
    folder = into / (MANIFESTS if options.storing.shard_manifests else RECEIPTS)
    present = into / MANIFEST
    with written_aside(present) as file:
        for _, line in lines_of(str(present)) if keep_below else ():
            if json.loads(line)["shard_id"] < keep_below:
                file.write(line)
        for number in numbers:
            file.write((folder / f"manifest_{number}.json").read_bytes())


def _count_lines(path: Path) -> int:
    return sum(1 for _ in lines_of(str(path)))
