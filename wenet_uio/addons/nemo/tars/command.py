"""Pack a manifest with its audio into a tarred data set of NeMo.

    %(prog)s --manifest_path=train.json --target_dir=tarred \\
        --num_shards=512 --shuffle --shuffle_seed=0
    %(prog)s --concat_manifest_paths more.json --target_dir=tarred

The folder gets audio_0.tar and so on, sharded_manifests/, tarred_audio_manifest.json and
metadata.yaml. Options are those of NeMo's convert_to_tarred_audio_dataset.py; the manifest may also
be a raw list. Every entry is in one tar: sizes of tars differ by one, and no remainder is dropped.
A repeated run makes only missing tars and those that other options or other audio change. Entries
that cannot be packed are listed in left_out.jsonl; the exit status is then 1.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from wenet_uio.addons.nemo.tars.scan import chosen_rows, duration_buckets, scan_manifest
from wenet_uio.addons.nemo.tars.shard import NemoOptions, NemoStoring
from wenet_uio.addons.nemo.tars.tarred_set import LEFT_OUT, add_to_set, make_nemo_tars
from wenet_uio.base.cli import command_parser
from wenet_uio.base.executor import Executor, add_executor_options, make_executor
from wenet_uio.base.messages import listed, note
from wenet_uio.prepare.shard_job import Failure

NAMED = 10
"""Stderr names this many entries that are left out."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = command_parser(__doc__)
    parser.add_argument("--manifest_path", help="manifest of NeMo, or raw list")
    parser.add_argument(
        "--concat_manifest_paths",
        nargs="+",
        metavar="FILE",
        help="manifests to add to the set in --target_dir",
    )
    parser.add_argument("--target_dir", required=True, help="folder of the set")
    parser.add_argument(
        "--num_shards", type=int, default=-1, help="tars, of each bucket if there are buckets"
    )
    parser.add_argument(
        "--min_duration",
        type=float,
        metavar="SECONDS",
        help="leave out shorter entries (default: no limit)",
    )
    parser.add_argument(
        "--max_duration",
        type=float,
        metavar="SECONDS",
        help="leave out entries of this length or longer (default: no limit)",
    )
    parser.add_argument("--shuffle", action="store_true", help="shuffle the entries first")
    parser.add_argument("--shuffle_seed", type=int, default=0, help="seed of --shuffle")
    parser.add_argument(
        "--buckets_num",
        type=int,
        default=1,
        help="folders bucket1, bucket2, … of equal intervals of duration",
    )
    parser.add_argument(
        "--keep_files_together", action="store_true", help="all entries of a file go to one tar"
    )
    parser.add_argument(
        "--slice_with_offset",
        action="store_true",
        help="store only the part of a recording that an entry names (default: the whole "
        "recording, once a tar)",
    )
    parser.add_argument(
        "--sort_in_shards", action="store_true", help="sort the entries of a tar by path and start"
    )
    parser.add_argument(
        "--force_codec",
        choices=("wav", "flac", "opus"),
        help="encode all audio so (default: as it is)",
    )
    parser.add_argument(
        "--no_shard_manifests", action="store_true", help="write no sharded_manifests"
    )
    parser.add_argument(
        "--dry_run", action="store_true", help="print what would be made, and make nothing"
    )
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help="replace tars of another tool or of other manifests",
    )
    parser.add_argument(
        "--allow_bad", action="store_true", help="exit with 0 if entries could not be packed"
    )
    add_executor_options(parser, "--workers", "--nj")

    return parser


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse and check the command line."""
    args = parser().parse_args(arguments)
    if bool(args.manifest_path) == bool(args.concat_manifest_paths):
        raise ValueError(
            "give --manifest_path for a new set, or --concat_manifest_paths to add to a set"
        )

    if args.manifest_path and args.num_shards < 1:
        raise ValueError(
            f"--num_shards: the number of tars must be 1 or more, found {args.num_shards}"
        )

    if args.buckets_num < 1:
        raise ValueError(f"--buckets_num must be 1 or more, found {args.buckets_num}")

    return args


def new_set_options(args: argparse.Namespace) -> NemoOptions:
    """Return the options of a new set."""
    seed = args.shuffle_seed if args.shuffle else None
    return NemoOptions(
        num_shards=args.num_shards,
        min_duration=args.min_duration,
        max_duration=args.max_duration,
        shuffle_seed=seed,
        keep_files_together=args.keep_files_together,
        storing=NemoStoring(
            args.slice_with_offset,
            args.force_codec,
            args.sort_in_shards,
            shard_manifests=not args.no_shard_manifests,
        ),
    )


def make_new(args: argparse.Namespace, executor: Executor) -> list[Failure]:
    """Make one set, or one for each bucket."""
    options, scanned = new_set_options(args), scan_manifest(args.manifest_path)
    options_of_set = {args.target_dir: options}
    if args.buckets_num > 1:
        buckets = duration_buckets(scanned, options, args.buckets_num)
        options_of_set = {
            str(Path(args.target_dir, f"bucket{number}")): bucket_options
            for number, bucket_options in enumerate(buckets, 1)
        }

    used, bad = 0, list(scanned.bad)
    for folder, set_options in options_of_set.items():
        count = len(chosen_rows(scanned, set_options))
        used += count
        not_packed: list[Failure] = []

        if not args.dry_run:
            left_out = make_nemo_tars(
                scanned, args.manifest_path, folder, set_options, executor, overwrite=args.overwrite
            )
            not_packed = left_out[len(scanned.bad) :]  # without the lines that could not be read

        packed = count - len(not_packed)
        note(f"{folder}: {packed} entries in {set_options.num_shards} tars")
        bad += not_packed

    outside = len(scanned) - used
    note(f"{args.manifest_path}: {outside} entries are outside of the durations")
    return bad


def main(arguments: Sequence[str] | None = None) -> int:
    """Make or extend the set.

    Returns:
        the exit status: 1 if entries are left out and --allow_bad is not given.
    """
    args = parse_arguments(arguments)
    executor = make_executor(args)
    if args.concat_manifest_paths:
        bad = add_to_set(args.concat_manifest_paths, args.target_dir, executor)
    else:
        bad = make_new(args, executor)

    if bad:
        named = listed([f"{key}: {reason}" for key, reason in bad[:NAMED]], NAMED, "\n  ")
        print(
            f"error: {len(bad)} entries are left out; all are in {LEFT_OUT}:\n  {named}",
            file=sys.stderr,
        )

    return int(bool(bad) and not args.allow_bad)
