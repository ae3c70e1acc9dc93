"""From utterances to data lists: raw lists with their index, and shards packed in parallel, each with a manifest."""

from __future__ import annotations

import glob
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from wenet_uio.dataset.corpus.columns import read_columns
from wenet_uio.dataset.corpus.indexing import THREADS, build_index, index_of
from wenet_uio.dataset.corpus.raw_index import UTTERANCES_PER_RUN
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.executor import Executor
from wenet_uio.files import locked, written_aside
from wenet_uio.prepare.shard_job import RECEIPTS, Failure, Receipt, ShardJob, Storing, pack_shard
from wenet_uio.prepare.sharding import Group, ShardPlan, check_groups, plan_shards

AS_THEY_ARE = Storing()
ON_ONE_PROCESS = Executor()
NUMBER = "[0-9]" * 9
NAMED = 10
"""Bad utterances that are named on stderr; the manifest has all."""


def manifest_of(data_list: str) -> Path:
    """Where the manifest of a list is: what was made, and what was left out and why, as JSON."""
    return Path(f"{data_list}.json")


def make_raw_list(
    utterances: Sequence[RawLine], data_list: str, per_run: int = UTTERANCES_PER_RUN, executor: Executor = THREADS
) -> list[Failure]:
    """Write a raw list, its index and its manifest.

    Returns:
        the utterances whose audio cannot be read; they stay in the list, and out of its index.
    """
    with written_aside(data_list, "w") as file:
        file.writelines(utterance.to_json() + "\n" for utterance in utterances)
    bad = build_index(data_list, "raw", per_run, executor)
    summary = read_columns(index_of(data_list))[1]["summary"]
    totals = {"utterances": summary["samples"], "seconds": round(summary["seconds"], 3), "bad": len(bad)}
    _write_manifest(data_list, {"totals": totals, "bad": bad})
    return bad


def make_shard_list(
    utterances: Sequence[RawLine],
    shards_dir: str | Path,
    data_list: str,
    *,
    prefix: str = "shards",
    per_shard: int | None = UTTERANCES_PER_RUN,
    max_bytes: int | None = None,
    groups: Sequence[Group] = (),
    seed: int | None = None,
    storing: Storing = AS_THEY_ARE,
    executor: Executor = ON_ONE_PROCESS,
) -> list[Failure]:
    """Pack utterances into `shards_dir/prefix_%09d.tar`, each with its index; list them, and write the manifest.

    A shard that stands already, made of the same files in the same way, is kept; what other options or other input
    left behind is removed. So a run that was killed goes on, and ends with the same bytes.

    Args:
        per_shard: utterances in a shard at most.
        max_bytes: of a tar at most, unless one utterance alone is larger. A codec makes more of some utterances than
            of others: what no longer fits goes into `prefix_%09d_1.tar`.
        groups: by duration, each into a folder of its own; what is in none is left out, and in the manifest.
        seed: shuffle the utterances first; None keeps their order.

    Returns:
        the utterances that could not be packed.
    """
    check_groups(groups)
    folder = Path(shards_dir)
    with _alone_in(folder):
        plan = plan_shards(
            utterances,
            prefix=prefix,
            per_shard=per_shard,
            max_bytes=max_bytes,
            groups=groups,
            seed=seed,
            storing=storing,
            executor=executor,
        )
        _clear_temporaries(folder, prefix, plan)
        receipts = _pack_all(plan, str(folder), max_bytes, storing, executor)
        shards = [shard for receipt in receipts for shard in receipt.shards]
        bad = [*plan.bad, *((key, reason) for receipt in receipts for key, reason in receipt.bad)]
        if not shards:
            raise ValueError(f"{data_list}: not one utterance could be packed; {_why(bad, plan)}")
        _remove_stale(folder, prefix, plan, {shard["path"] for shard in shards})
        listed = [{**shard, "path": str(folder / shard["path"])} for shard in shards]
        with written_aside(data_list, "w") as file:
            file.writelines(f"{shard['path']}\n" for shard in listed)
        build_index(data_list, "shard")
    options = {"num_utts_per_shard": per_shard, "max_bytes_per_shard": max_bytes, "seed": seed, **asdict(storing)}
    options["filter_group"] = [group.name for group in groups]
    totals = {name: sum(shard[name] for shard in shards) for name in ("utterances", "seconds", "bytes")}
    totals |= {"seconds": round(totals["seconds"], 3), "shards": len(shards)}
    totals |= {"bad": len(bad), "outside": len(plan.outside)}
    lists = {"bad": bad, "outside": plan.outside, "shards": listed}
    _write_manifest(data_list, {"totals": totals, "options": options, **lists})
    return bad


def tell_outcome(data_list: str, bad: Sequence[Failure], allow_bad: bool) -> int:
    """Say on stderr what a list holds and name what was left out; gives the exit status."""
    totals = json.loads(manifest_of(data_list).read_text(encoding="utf-8"))["totals"]
    for key, reason in bad[:NAMED]:
        print(f"error: {key}: {reason}", file=sys.stderr)
    if len(bad) > NAMED:
        print(f"error: and {len(bad) - NAMED} more, all of them in {manifest_of(data_list)}", file=sys.stderr)
    counts = [f"{totals['utterances']} utterances", f"{totals['seconds'] / 3600:.2f} hours"]
    counts += [f"{totals[name]} {name}" for name in ("shards", "bytes") if name in totals]
    counts.append(f"{len(bad)} bad")
    if totals.get("outside"):
        counts.append(f"{totals['outside']} in no group")
    print(f"{data_list}: {', '.join(counts)}", file=sys.stderr)
    if bad and not allow_bad:
        print("error: mend or remove what is bad, or go on without it: --allow_bad", file=sys.stderr)
        return 1
    return 0


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Wait until no other run packs into a folder; the workers of one that was killed count until they are gone."""
    lock = folder / RECEIPTS / "lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.touch()
    with locked(str(lock)):
        yield


def _pack_all(
    plan: ShardPlan, folder: str, max_bytes: int | None, storing: Storing, executor: Executor
) -> list[Receipt]:
    jobs = [ShardJob(folder, name, lines, storing, max_bytes) for name, lines in plan.shards]
    total = sum(len(job.utterances) for job in jobs)
    outcomes = list(executor.map(pack_shard, jobs, "pack", total, lambda job: len(job.utterances)))
    kept = sum(not made for _, made in outcomes)
    if kept:
        print(f"{folder}: {kept} of {len(jobs)} shards were there already", file=sys.stderr)
    return [receipt for receipt, _ in outcomes]


def _why(bad: Sequence[Failure], plan: ShardPlan) -> str:
    reasons = [f"{key}: {reason}" for key, reason in bad[:3]]
    reasons += [f"{key}: {seconds} s, in no group" for key, seconds in plan.outside[:3]]
    return "; ".join(reasons)


def _clear_temporaries(folder: Path, prefix: str, plan: ShardPlan) -> None:
    """Make the folders of a run, and remove what a killed one had half written there."""
    for name, _ in plan.shards:
        (folder / RECEIPTS / name).parent.mkdir(exist_ok=True)
    for place in _places(folder):
        for temporary in place.glob(f".{glob.escape(prefix)}_{NUMBER}*.tmp"):
            temporary.unlink()


def _remove_stale(folder: Path, prefix: str, plan: ShardPlan, made: set[str]) -> None:
    """Remove shards and receipts that earlier runs with this prefix made and this one did not."""
    receipts = {folder / RECEIPTS / f"{name}.json" for name, _ in plan.shards}
    tars = {folder / path for path in made}
    for place in _places(folder):
        for path in place.glob(f"{glob.escape(prefix)}_{NUMBER}*"):
            whole = path.with_suffix("") if path.suffix == ".idx" else path
            if path.suffix in (".tar", ".idx", ".json") and whole not in tars | receipts:
                path.unlink()


def _places(folder: Path) -> list[Path]:
    """The folders in which runs have packed here: this one, those of groups, and those of their receipts."""
    receipts = folder / RECEIPTS
    groups = [path.name for path in receipts.iterdir() if path.is_dir()]
    return [folder, receipts, *(receipts / name for name in groups), *(folder / name for name in groups)]


def _write_manifest(data_list: str, manifest: dict[str, Any]) -> None:
    """As JSON with one item of a list a line, which grep and diff can deal with."""
    with written_aside(manifest_of(data_list), "w") as file:
        fields = []
        for name, value in manifest.items():
            text = json.dumps(value, ensure_ascii=False)
            if isinstance(value, list) and value:
                text = "[\n" + ",\n".join(json.dumps(item, ensure_ascii=False) for item in value) + "\n]"
            fields.append(f"{json.dumps(name)}: {text}")
        file.write("{\n" + ",\n".join(fields) + "\n}\n")
