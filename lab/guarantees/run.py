"""Runs the trials over all loaders and writes `results.md` and `results.json`.

Standard library only.

A loader whose results are there for the same settings and versions is not run again, so an
interrupted run continues.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import asdict, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from bench import Bench, Sizes
from environments import DEFAULT, ENTRIES, NotInstalledError, python_of
from ranks import LoaderError, Ranks, Server
from table import markdown
from trials import TITLES, run_trials

HERE = Path(__file__).resolve().parent
TOY = Sizes(
    samples=205, resumed=192, global_batch=12, workers=0, stop_after=3, many=500, worlds=(1, 2)
)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--out", type=Path, default=HERE / "out", help="folder for results and environments"
    )
    parser.add_argument(
        "--loaders",
        nargs="+",
        choices=ENTRIES,
        default=DEFAULT,
        metavar="NAME",
        help=", ".join(ENTRIES),
    )
    parser.add_argument(
        "--trials",
        nargs="+",
        choices=TITLES,
        default=list(TITLES),
        metavar="NAME",
        help=", ".join(TITLES),
    )
    parser.add_argument(
        "--many", type=int, help=f"samples of the trial `many`, {Sizes.many} by default"
    )
    parser.add_argument(
        "--samples", type=int, help=f"samples of the first two trials, {Sizes.samples} by default"
    )
    parser.add_argument(
        "--toy", action="store_true", help="small sizes, for a test of the adapters"
    )
    parser.add_argument("--timeout", type=float, default=120, help="seconds to wait for a batch")
    parser.add_argument("--again", action="store_true", help="run loaders again that have results")
    parser.add_argument(
        "--python",
        nargs="+",
        default=[],
        metavar="NAME=PATH",
        help="use an interpreter of yours for a loader",
    )

    return parser


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Run the trials; return the results by loader."""
    args = _parser().parse_args(argv)
    sizes = TOY if args.toy else Sizes()
    if args.samples is not None:
        sizes = replace(sizes, samples=args.samples)
    if args.many is not None:
        sizes = replace(sizes, many=args.many)

    with ExitStack() as stack:
        results = _all_results(args, sizes, stack)

    (args.out / "results.json").write_text(json.dumps(results, indent=1))
    (args.out / "results.md").write_text(markdown(results))
    return results


def _all_results(args: argparse.Namespace, sizes: Sizes, stack: ExitStack) -> dict[str, Any]:
    """Return the results of each loader: those in its file if they fit, else of new trials."""
    results: dict[str, Any] = {}
    servers: dict[str, Server] = {}
    for name in args.loaders:
        entry = ENTRIES[name]
        settings: dict[str, Any] = {
            "sizes": asdict(sizes),
            "packages": [*entry.packages, *entry.alone],
            "trials": args.trials,
        }
        if entry.requirements:  # our own code has no pinned version
            settings["commit"] = _commit()

        settings = json.loads(json.dumps(settings))  # tuples become lists, as in the file
        file = args.out / "loaders" / f"{name}.json"
        result = None if args.again else _earlier(file, settings)
        if result is None:
            print(f"{name}: running", file=sys.stderr)
            result = {**_tried(name, args, sizes, stack, servers), "settings": settings}
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(result, indent=1))

        results[name] = result

    return results


def _earlier(file: Path, settings: dict[str, Any]) -> dict[str, Any] | None:
    """Return the results of an earlier run with these settings, if it had any."""
    if not file.exists():
        return None

    results = json.loads(file.read_text())
    return results if "reason" not in results and results["settings"] == settings else None


def _tried(
    name: str, args: argparse.Namespace, sizes: Sizes, stack: ExitStack, servers: dict[str, Server]
) -> dict[str, Any]:
    """Return the results of a loader, or the reason why there are none.

    A server is kept for loaders that share one.
    """
    date = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    adapter = ENTRIES[name].adapter
    try:
        pythons = dict(choice.split("=", 1) for choice in args.python)
        python = pythons.get(name) or str(python_of(name, args.out / "environments"))
        # Ours and the broken loader share one, because torch loads slowly
        if python not in servers:
            servers[python] = stack.enter_context(Server(python, adapter, args.timeout))

        servers[python].module = adapter
        return {**_results(servers[python], args.trials, sizes), "date": date}
    except (NotInstalledError, LoaderError) as error:
        return {"reason": str(error), "date": date}


def _results(server: Server, trials: list[str], sizes: Sizes) -> dict[str, Any]:
    """Run the trials of one loader."""
    with tempfile.TemporaryDirectory() as folder:
        with Ranks(server, 1) as ranks:
            adapter = ranks.describe()
        bench = Bench(server, Path(folder), sizes)
        verdicts = run_trials(bench, adapter["out_of_scope"], trials)

    return {
        "versions": adapter["versions"],
        "machine": _machine(),
        "commit": _commit(),
        "trials": verdicts,
    }


def _machine() -> str:
    return f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"


def _commit() -> str:
    described = ["git", "describe", "--always", "--exclude=*", "--dirty=+"]
    done = subprocess.run(described, cwd=HERE, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    print(markdown(main()))
