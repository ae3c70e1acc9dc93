"""Where the utterances of an epoch went: bad ones by name in a file, all of them by number in an account."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from wenet_uio.dataset.types import Batch
from wenet_uio.files import append_line, read_lines, written_aside

NOT_INDEXED = "not_indexed"
"""The reason of what an index had to leave out; the details say more."""


class Ledger:
    """A file with a JSON line for each bad sample that was met; the ranks of a run append to the same one.

    A line says in which list, pass over the data and batch it was met, its key, the reason and the details.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._before: set[tuple[str, str, str]] | None = None

    def write(self, data_list: str, data_pass: int, batch: int, key: str, reason: str, detail: str) -> None:
        """Append one line, at once."""
        place = {"list": data_list, "pass": data_pass, "batch": batch}
        append_line(self.path, {**place, "key": key, "reason": reason, "detail": detail})

    def write_once(self, data_list: str, data_pass: int, batch: int, key: str, reason: str, detail: str) -> None:
        """The same, unless an earlier start of the run wrote this key of the list with this reason."""
        if self._before is None:
            self._before = {(line["list"], line["key"], line["reason"]) for line in read_lines(self.path)}
        if (data_list, key, reason) not in self._before:
            self.write(data_list, data_pass, batch, key, reason, detail)

    def forget(self, data_list: str, data_pass: int = 0, batch: int = 0) -> None:
        """Take out what a list said from this place on, which will be read again; for one rank, before others write."""
        if not self.path.exists():
            return
        kept = "".join(
            json.dumps(line, ensure_ascii=False) + "\n"
            for line in read_lines(self.path)
            if line["list"] != data_list or (line["pass"], line["batch"]) < (data_pass, batch)
        )
        if kept != self.path.read_text(encoding="utf-8"):
            with written_aside(self.path, "w") as file:
                file.write(kept)


def tally(batches: Iterable[Batch]) -> Counter[str]:
    """Samples of some batches: `planned`, `read`, and what was left out as `filtered/reason` and `bad/reason`."""
    counts: Counter[str] = Counter()
    for batch in batches:
        counts["planned"] += batch.planned
        counts["read"] += len(batch)
        counts.update(f"{'filtered' if sample.filtered else 'bad'}/{sample.reason}" for sample in batch.skipped)
    return counts


@dataclass(frozen=True)
class Account:
    """An epoch over all ranks; read + filtered + bad = all."""

    all: int
    read: int
    filtered: dict[str, int]
    """By reason."""
    bad: dict[str, int]
    """By reason."""

    def scalars(self) -> dict[str, float]:
        """Points for TensorBoard."""
        parts = {"filtered": self.filtered, "bad": self.bad}
        totals = {part: sum(reasons.values()) for part, reasons in parts.items()}
        by_reason = {f"{part}_{reason}": count for part, reasons in parts.items() for reason, count in reasons.items()}
        return {"all": self.all, "read": self.read, **totals, **by_reason}

    def __str__(self) -> str:
        parts = [f"{self.all} utterances: {self.read} read"]
        for name, reasons in (("filtered", self.filtered), ("bad", self.bad)):
            named = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
            parts.append(f"{sum(reasons.values())} {name}" + (f" ({named})" if named else ""))
        return ", ".join(parts)


def reconciled(counts: Mapping[str, int]) -> Account:
    """The account of an epoch, from the counts of all ranks: `tally` of its batches, and `Loader.left_out` at its end.

    Raises:
        RuntimeError: the totals do not agree, so that an utterance was lost or came twice: a bug in this project.
    """
    parts = {
        part: {name.split("/", 1)[1]: count for name, count in counts.items() if name.startswith(f"{part}/") and count}
        for part in ("filtered", "bad")
    }
    account = Account(counts.get("all", counts["planned"]), counts["read"], **parts)
    if account.all != account.read + sum(account.filtered.values()) + sum(account.bad.values()):
        raise RuntimeError(f"an epoch does not add up, which is a bug in wenet_uio; please report it: {dict(counts)}")
    return account
