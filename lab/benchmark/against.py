#!/usr/bin/env python3
"""Compare a benchmark's figures at an earlier commit with those of this tree.

    python lab/benchmark/against.py b7053af train_step.py --threads 1 --repeats 3

Each turn runs the benchmark with --json once at the commit and once here, in processes of their
own, with the same Python, so that other work on the machine slows both alike. The output has the
medians of the figures that both print, and their ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from provenance import benchmark_parser, provenance
from tqdm import tqdm

from wenet_uio.base.cli import run

ROOT = Path(__file__).resolve().parents[2]
PLACES = ("lab/benchmark", "benchmark", "tools/benchmark")
"""Folders of the benchmarks, those of earlier commits last."""


@contextmanager
def tree_of(commit: str) -> Iterator[Path]:
    """Check a commit out into a folder that lasts as long as the context.

    Raises:
        ValueError: there is no such commit.
    """
    git = ["git", "-C", str(ROOT), "worktree"]
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "tree")
        made = subprocess.run(
            [*git, "add", "--detach", str(tree), commit], capture_output=True, text=True
        )
        if made.returncode:
            raise ValueError(f"commit {commit}: {made.stderr.strip()}")

        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def figures(tree: Path, benchmark: str, options: list[str]) -> dict[str, float]:
    """Run a tree's benchmark and return its figures by name.

    Raises:
        ValueError: the benchmark failed.
    """
    folder = next(tree / place for place in PLACES if (tree / place).is_dir())
    command = [sys.executable, str(folder / benchmark), "--json", *options]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tree)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ValueError(f"{benchmark} of {tree}: exit status {done.returncode}: {last}")

    return dict(numbers_of(json.loads(done.stdout.splitlines()[-1])))


def numbers_of(report: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the name and value of each floating point number of a report.

    Rows of a table, such as the `results` of `loader.py`, are named by their other values.
    """
    for name, value in report.items():
        if isinstance(value, float):
            yield name, value
        elif isinstance(value, list):
            for row in (row for row in value if isinstance(row, dict)):
                label = " ".join(str(cell) for cell in row.values() if not isinstance(cell, float))
                yield from ((f"{label} {column}", cell) for column, cell in numbers_of(row))


def compare(
    commit: str, benchmark: str, options: list[str], turns: int
) -> dict[str, dict[str, float]]:
    """Return {figure: {"then": median at the commit, "now": median here, "ratio": now / then}}."""
    then: list[dict[str, float]] = []
    now: list[dict[str, float]] = []
    with tree_of(commit) as earlier:
        for _ in tqdm(range(turns), unit="turn", disable=None):
            then.append(figures(earlier, benchmark, options))
            now.append(figures(ROOT, benchmark, options))

    compared = {}
    for name in (name for name in now[0] if name in then[0]):
        if len({turn[name] for turn in (*then, *now)}) == 1:  # an option
            continue

        before = statistics.median(turn[name] for turn in then)
        after = statistics.median(turn[name] for turn in now)
        compared[name] = {
            "then": before,
            "now": after,
            "ratio": round(after / before, 3) if before else 0.0,
        }

    return compared


def parse_arguments() -> tuple[argparse.Namespace, list[str]]:
    """Parse the command line; what is not known here is for the benchmark."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("commit", help="what git calls it: a hash, a tag, HEAD~3")
    parser.add_argument(
        "benchmark", help="file in benchmark that has --json, such as train_step.py"
    )
    parser.add_argument("--turns", type=int, default=3, help="runs of both (default: %(default)s)")

    return parser.parse_known_args()


def main() -> None:
    """Compare, and print the table."""
    args, options = parse_arguments()
    if args.turns < 1:
        raise ValueError(f"--turns: expected 1 or more, found {args.turns}")

    compared = compare(args.commit, args.benchmark, options, args.turns)
    if not compared:
        raise ValueError(f"{args.benchmark}: no figure that both commits print")

    print(f"{'':32}{args.commit[:12]:>14}{'here':>12}{'ratio':>8}")
    for name, (before, after, ratio) in (
        (name, figure.values()) for name, figure in compared.items()
    ):
        print(f"{name:32}{before:14g}{after:12g}{ratio:8.2f}")

    if args.json:
        settings = {
            "against": args.commit,
            "benchmark": args.benchmark,
            "turns": args.turns,
            "options": options,
        }
        print(json.dumps({**settings, "figures": compared, **provenance("torch")}))


if __name__ == "__main__":
    run(main)
