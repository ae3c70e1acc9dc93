"""Make raw lists and shard lists of utterances, each with an index and a manifest (LIST.json)."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from wenet_uio.base.executor import Executor
from wenet_uio.base.files import written_aside
from wenet_uio.base.messages import note
from wenet_uio.base.uris import shown_values
from wenet_uio.dataset.corpus.open_list import THREADS, build_index
from wenet_uio.dataset.corpus.raw_index import UTTERANCES_PER_RUN
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.prepare.shard_folder import clear_temporaries, only_run_in, remove_stale, take_over
from wenet_uio.prepare.shard_job import Failure, ShardJob, pack_shard
from wenet_uio.prepare.sharding import ShardOptions, ShardPlan, check_groups, plan_shards

DEFAULT_OPTIONS = ShardOptions()
ON_ONE_PROCESS = Executor()
NAMED = 10
"""Stderr names this many bad utterances; the manifest names all of them."""


def manifest_path(data_list: str) -> Path:
    """Return the path of a list's manifest.

    It is JSON that says what was made, what was left out, and why.
    """
    return Path(f"{data_list}.json")


def make_raw_list(
    utterances: Sequence[RawLine],
    data_list: str,
    per_run: int = UTTERANCES_PER_RUN,
    executor: Executor = THREADS,
) -> list[Failure]:
    """Write a raw list, its index and its manifest.

    Args:
        per_run: the plan treats this many consecutive lines as one shard.

    Returns:
        the utterances whose audio cannot be read. They stay in the list but not in its index.
    """
    with written_aside(data_list, "w") as file:
        file.writelines(utterance.to_json() + "\n" for utterance in utterances)

    index = build_index(data_list, "raw", per_run, executor)
    summary, bad = index.meta["summary"], index.bad
    totals = {
        "utterances": summary["samples"],
        "seconds": round(summary["seconds"], 3),
        "bad": len(bad),
    }
    _write_manifest(data_list, {"totals": totals, "bad": bad})

    return bad


def make_shard_list(
    utterances: Sequence[RawLine],
    shards_dir: str | Path,
    data_list: str,
    options: ShardOptions = DEFAULT_OPTIONS,
    executor: Executor = ON_ONE_PROCESS,
    *,
    overwrite: bool = False,
) -> list[Failure]:
    """Pack utterances into tars in `shards_dir`; write the list, its index and its manifest.

    A shard of an earlier run is kept if the same files and options would make it again, and removed
    otherwise. So a killed run can be repeated, and gives the bytes of an undisturbed run.

    Args:
        overwrite: replace and remove shards with this naming that belong to another list.

    Returns:
        the utterances that could not be packed.

    Raises:
        ValueError: no utterance could be packed, groups overlap, or shards of another list would be
            lost.
    """
    check_groups(options.groups)
    folder = Path(shards_dir)
    with only_run_in(folder):
        plan = plan_shards(utterances, options, executor)
        names = [name for name, _ in plan.shards]
        clear_temporaries(folder, options.naming, names)
        jobs = [
            ShardJob(str(folder), name, lines, options.storing, options.max_bytes)
            for name, lines in plan.shards
        ]
        take_over(folder, options.naming, data_list, jobs, overwrite=overwrite)

        shards, unpacked = _pack_all(jobs, executor)
        bad = [*plan.bad, *unpacked]
        if not shards:
            raise _nothing_packed(data_list, bad, plan)

        remove_stale(folder, options.naming, names, {shard["path"] for shard in shards})
        listed_shards = [{**shard, "path": str(folder / shard["path"])} for shard in shards]
        with written_aside(data_list, "w") as file:
            file.writelines(f"{shard['path']}\n" for shard in listed_shards)

        build_index(data_list, "shard")

    _write_manifest(data_list, _shard_manifest(listed_shards, bad, plan, options))
    return bad


def tell_outcome(data_list: str, bad: Sequence[Failure], allow_bad: bool) -> int:
    """Print on stderr what a list holds and which utterances are bad.

    Returns:
        the exit status: 1 if utterances are bad and `allow_bad` is not given.
    """
    totals = json.loads(manifest_path(data_list).read_text(encoding="utf-8"))["totals"]
    for key, reason in bad[:NAMED]:
        print(f"error: {key}: {reason}", file=sys.stderr)

    if len(bad) > NAMED:
        print(
            f"error: and {len(bad) - NAMED} more, all of them in {manifest_path(data_list)}",
            file=sys.stderr,
        )

    counts = [f"{totals['utterances']} utterances", f"{totals['seconds'] / 3600:.2f} hours"]
    counts += [f"{totals[name]} {name}" for name in ("shards", "bytes") if name in totals]
    counts.append(f"{len(bad)} bad")
    if totals.get("outside"):
        counts.append(f"{totals['outside']} in no group")

    note(f"{data_list}: {', '.join(counts)}")
    if bad and not allow_bad:
        print(
            "error: mend or remove the bad utterances, or leave them out with --allow_bad",
            file=sys.stderr,
        )
        return 1

    return 0


def _pack_all(
    jobs: Sequence[ShardJob], executor: Executor
) -> tuple[list[dict[str, Any]], list[Failure]]:
    """Do all jobs, and say how many shards of an earlier run are kept.

    Returns:
        path, counts and digest of each shard; and the utterances that could not be packed.
    """
    shards: list[dict[str, Any]] = []
    bad: list[Failure] = []
    kept_shards = 0
    total = sum(len(job.utterances) for job in jobs)
    outcomes = executor.map(pack_shard, jobs, "pack", total, lambda job: len(job.utterances))
    for receipt, is_new in outcomes:
        shards += receipt.shards
        # A receipt of an earlier run comes from JSON, whose pairs are lists.
        bad += [(key, reason) for key, reason in receipt.bad]
        if not is_new:
            kept_shards += 1

    if kept_shards:
        note(f"{jobs[0].folder}: {kept_shards} of {len(jobs)} shards were there already")

    return shards, bad


def _nothing_packed(data_list: str, bad: Sequence[Failure], plan: ShardPlan) -> ValueError:
    """Return the error for a list without a shard; it names the first reasons."""
    reasons = [f"{key}: {reason}" for key, reason in bad[:3]]
    reasons += [f"{key}: {seconds} s, in no group" for key, seconds in plan.outside[:3]]
    return ValueError(f"{data_list}: not one utterance could be packed; {'; '.join(reasons)}")


def _shard_manifest(
    shards: Sequence[dict[str, Any]], bad: Sequence[Failure], plan: ShardPlan, options: ShardOptions
) -> dict[str, Any]:
    """Return the manifest of a shard list; options have the names that make_shard_list.py gives
    them.
    """
    totals = {
        "utterances": sum(shard["utterances"] for shard in shards),
        "seconds": round(sum(shard["seconds"] for shard in shards), 3),
        "bytes": sum(shard["bytes"] for shard in shards),
        "shards": len(shards),
        "bad": len(bad),
        "outside": len(plan.outside),
    }
    named_options = {
        "num_utts_per_shard": options.per_shard,
        "max_bytes_per_shard": options.max_bytes,
        "seed": options.seed,
        **asdict(options.storing),
        "filter_group": [group.name for group in options.groups],
    }
    return {
        "totals": totals,
        "options": named_options,
        "bad": bad,
        "outside": plan.outside,
        "shards": shards,
    }


def _write_manifest(data_list: str, manifest: dict[str, Any]) -> None:
    """Write JSON with one list item per line, so that grep and diff are useful."""
    fields = []
    for name, value in manifest.items():
        shown_value = shown_values(value)
        if isinstance(shown_value, list) and shown_value:
            items = [json.dumps(item, ensure_ascii=False) for item in shown_value]
            text = "[\n" + ",\n".join(items) + "\n]"
        else:
            text = json.dumps(shown_value, ensure_ascii=False)

        fields.append(f"{json.dumps(name)}: {text}")

    with written_aside(manifest_path(data_list), "w") as file:
        file.write("{\n" + ",\n".join(fields) + "\n}\n")
