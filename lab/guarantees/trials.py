"""The trials: each asks one question of a loader, and keeps the evidence for the answer."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from bench import Bench, Verdict, batches_of, difference, keys_of, rest_of, told
from ranks import LoaderError, Ranks
from samples import make_samples

MOST_PADDING = 10.0
"""Percent. Batches of random samples of the corpus have about 40 %."""


def _wanted(run: dict[str, Any], sources: dict[str, int]) -> Counter[str]:
    """Return how often each sample is to be read: once."""
    wanted: Counter[str] = Counter()
    for source in run["sources"]:
        wanted.update(sample.key for sample in make_samples(source, sources[source]))

    return wanted


def _verdict(evidence: dict[str, Any]) -> Verdict:
    """Return `pass` if no case of the evidence has a fault.

    Cases are named after ranks and workers.
    """
    faults = []
    for case, of_case in evidence.items():
        description = told(of_case) or of_case.get("error", "")
        if description:
            faults.append(f"{case}: {description}")

    return Verdict("fail" if faults else "pass", "; ".join(faults), evidence)


def once_and_steps(bench: Bench) -> dict[str, Verdict]:
    """Read one epoch on each number of ranks.

    Is every sample read once, and do all ranks take equally many steps?
    """
    run, once, steps = bench.whole(), {}, {}
    wanted = _wanted(run, {"s": bench.sizes.samples})
    for world in bench.sizes.worlds:
        case = f"{world} rank" + "s" * (world > 1)
        try:
            steps_of_ranks = bench.epoch(world, run)
            once[case] = difference(wanted, keys_of(steps_of_ranks))
            counts = [len(of_rank) for of_rank in steps_of_ranks]
            steps[case] = {"steps": counts}
            if len(set(counts)) > 1:
                steps[case]["error"] = f"{min(counts)} to {max(counts)} steps"
        except LoaderError as error:
            once[case] = steps[case] = {"error": str(error)}

    return {"once": _verdict(once), "steps": _verdict(steps)}


def _interrupted(
    bench: Bench, run: dict[str, Any], after: dict[str, int]
) -> tuple[Counter[str], list[str]]:
    """Kill two ranks in the epoch and resume with other ones.

    Returns:
        how often each sample was read before the state or after it, and the states.
    """
    with Ranks(bench.server, 2) as ranks:
        ranks.open(None, **run)
        steps = [ranks.step() for _ in range(bench.sizes.stop_after)]
        states = ranks.states()
        ranks.step()  # lost with the process; read again after the restart

    before = [
        [step for step in of_rank if step is not None] for of_rank in zip(*steps, strict=True)
    ]
    with Ranks(bench.server, after["ranks"]) as ranks:
        ranks.open(states, **{**run, "workers": after["workers"]})
        rest = rest_of(ranks, after["ranks"])

    return keys_of(before) + keys_of(rest), states


def resumed(bench: Bench, cases: list[dict[str, int]], *, mixed: bool = False) -> Verdict:
    """Kill and resume.

    Is every sample of an epoch without interruption read as often as there?
    """
    run, evidence = bench.even(mixed=mixed), {}
    for after in cases:
        case = f"2 to {after['ranks']} ranks, {bench.sizes.workers} to {after['workers']} workers"
        try:
            reference = bench.reference(run)
            read, states = _interrupted(bench, run, after)
            state_bytes = sum(map(len, states)) * 3 // 4  # base64 has 4 characters for 3 bytes
            faults = difference(keys_of(reference), read)
            evidence[case] = {**faults, "state_bytes": state_bytes}
        except LoaderError as error:
            evidence[case] = {"error": str(error)}

    return _verdict(evidence)


def mixture_once(bench: Bench) -> Verdict:
    """Read a mixture of three sources on two ranks.

    Is every sample of every source read once?
    """
    run = bench.even(mixed=True)
    wanted = _wanted(run, bench.sizes.sources(bench.sizes.resumed))
    try:
        faults = difference(wanted, keys_of(bench.reference(run)))
    except LoaderError as error:
        faults = {"error": str(error)}

    return _verdict({"2 ranks": faults})


def shapes(bench: Bench) -> dict[str, Verdict]:
    """Read one epoch on two ranks.

    How much of the batches is padding, and does a batch cost more than the bound?
    """
    bound = bench.sizes.batch_frames
    try:
        batches = list(batches_of(bench.reference(bench.even())))
    except LoaderError as error:
        failed = Verdict("fail", str(error))
        return {"padding": failed, "bound": failed}

    costs = [max(batch) * len(batch) for batch in batches]
    padding = 100 * (1 - sum(map(sum, batches)) / sum(costs))
    return {
        "padding": Verdict(
            "pass" if padding <= MOST_PADDING else "fail", f"{padding:.1f} %", {"padding": padding}
        ),
        "bound": Verdict(
            "pass" if max(costs) <= bound else "fail",
            f"largest {max(costs)} of {bound} frames",
            {"bound": bound, "largest": max(costs), "batches": len(batches)},
        ),
    }


def state_size(bench: Bench) -> Verdict:
    """Measure the bytes of the pickled states of two ranks."""
    with Ranks(bench.server, 2) as ranks:
        ranks.open(None, **bench.even())
        ranks.step()
        size = sum(len(state) * 3 // 4 for state in ranks.states())
    return Verdict("measured", f"{size} bytes", {"bytes": size})


def many(bench: Bench) -> Verdict:
    """Read many samples on one rank.

    Measures seconds from opening to the first batch, and memory beyond that of the libraries.
    """
    run = bench.corpus("many", {"s": bench.sizes.many})
    with Ranks(bench.server, 1) as ranks:
        ranks.describe()  # the process has loaded its libraries
        libraries = ranks.memory_mb()
        start = time.monotonic()
        ranks.open(None, **run)
        ranks.step()
        seconds = time.monotonic() - start
        memory = ranks.memory_mb() - libraries

    evidence = {
        "samples": bench.sizes.many,
        "first_batch_s": round(seconds, 2),
        "memory_mb": round(memory),
    }
    return Verdict("measured", f"{seconds:.1f} s, {memory:.0f} MB", evidence)


TITLES = {
    "once": "every sample once",
    "steps": "equal steps",
    "resume_same": "resume, same ranks and workers",
    "resume_workers": "resume, other number of workers",
    "resume_ranks": "resume, other number of ranks",
    "mixture_once": "mixture: every sample once",
    "mixture_resume_same": "mixture: resume, same ranks",
    "mixture_resume_ranks": "mixture: resume, other ranks",
    "padding": "padding at most 10 %",
    "bound": "bound on padded frames",
    "state_size": "size of the state",
    "many": "many samples: first batch, memory",
}
"""All trials, in the order of the table."""


def _cases(bench: Bench) -> dict[str, Callable[[], Verdict | dict[str, Verdict]]]:
    """Return the trials; the key of one that answers two questions has two names."""
    same = {"ranks": 2, "workers": bench.sizes.workers}
    fewer = {"ranks": 2, "workers": abs(bench.sizes.workers - 1)}
    others = [{**same, "ranks": ranks} for ranks in (1, 3)]
    return {
        "once steps": lambda: once_and_steps(bench),
        "resume_same": lambda: resumed(bench, [same]),
        "resume_workers": lambda: resumed(bench, [fewer]),
        "resume_ranks": lambda: resumed(bench, others),
        "mixture_once": lambda: mixture_once(bench),
        "mixture_resume_same": lambda: resumed(bench, [same], mixed=True),
        "mixture_resume_ranks": lambda: resumed(bench, others[1:], mixed=True),
        "padding bound": lambda: shapes(bench),
        "state_size": lambda: state_size(bench),
        "many": lambda: many(bench),
    }


def run_trials(
    bench: Bench, out_of_scope: dict[str, str], wanted: list[str]
) -> dict[str, dict[str, Any]]:
    """Run all trials of one loader.

    Returns:
        name -> verdict as a dict. A trial that is out of scope does not run.
    """
    verdicts = {
        name: Verdict("out of scope", out_of_scope[name]) for name in wanted if name in out_of_scope
    }
    for names, trial in _cases(bench).items():
        open_names = [name for name in names.split() if name in wanted and name not in verdicts]
        if open_names:
            verdicts |= _answers(open_names, trial)

    return {name: asdict(verdicts[name]) for name in TITLES if name in verdicts}


def _answers(
    names: list[str], trial: Callable[[], Verdict | dict[str, Verdict]]
) -> dict[str, Verdict]:
    """Run a trial, and return its verdict on each of the names."""
    try:
        answer = trial()
    except LoaderError as error:
        answer = Verdict("fail", str(error))
    return {name: answer[name] if isinstance(answer, dict) else answer for name in names}
