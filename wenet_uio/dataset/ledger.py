"""The account of an epoch: bad samples by name in a file, all samples by number."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from wenet_uio.base.files import append_line, read_lines, written_aside
from wenet_uio.dataset.types import Batch

NOT_INDEXED = "not_indexed"
"""Reason of the samples that could not be indexed; the details say why."""
FIELDS = ("list", "pass", "batch", "key", "reason", "detail")
"""Fields of a line of the file."""


class Ledger:
    """A file with one JSON line for each bad sample. All ranks of a run append to the same file.

    A line holds the data list, the pass over the data, the batch, the key, the reason and the
    details:

        ledger = Ledger("exp/conformer/bad_samples.jsonl")
        loader = build_loader(..., options=LoaderOptions(ledger=ledger))
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._before: set[tuple[str, str, str]] | None = None

    def write(
        self, data_list: str, data_pass: int, batch: int, key: str, reason: str, detail: str
    ) -> None:
        """Append one line, at once."""
        place = {"list": data_list, "pass": data_pass, "batch": batch}
        append_line(self.path, {**place, "key": key, "reason": reason, "detail": detail})

    def write_once(
        self, data_list: str, data_pass: int, batch: int, key: str, reason: str, detail: str
    ) -> None:
        """Append one line, unless an earlier start of the run wrote the same list, key and
        reason.
        """
        if self._before is None:
            self._before = {
                (line["list"], line["key"], line["reason"])
                for line in read_lines(self.path, FIELDS)
            }

        if (data_list, key, reason) not in self._before:
            self.write(data_list, data_pass, batch, key, reason, detail)

    def forget(
        self, data_list: str, data_pass: int = 0, batch: int = 0, kept: Collection[str] = ()
    ) -> None:
        """Remove the lines of a list from this position on, as its samples are read again.

        One rank calls this before any rank writes.

        Args:
            kept: keys of samples of that batch that are not read again.
        """
        if not self.path.exists():
            return

        lines_to_keep = ""
        for line in read_lines(self.path, FIELDS):
            place = line["pass"], line["batch"]
            is_before = place < (data_pass, batch)
            is_done = place == (data_pass, batch) and line["key"] in kept
            if line["list"] != data_list or is_before or is_done:
                lines_to_keep += json.dumps(line, ensure_ascii=False) + "\n"

        if lines_to_keep.encode() != self.path.read_bytes():
            with written_aside(self.path, "w") as file:
                file.write(lines_to_keep)


def tally(batches: Iterable[Batch]) -> Counter[str]:
    """Count the samples of batches: `planned`, `read`, and those left out as `filtered/reason` and
    `bad/reason`.

    `unreadable_noise` counts the draws of noise that cannot be read; it is a part of no other
    count.
    """
    counts: Counter[str] = Counter()
    for batch in batches:
        counts["planned"] += batch.planned
        counts["read"] += len(batch)
        for sample in batch.skipped:
            part = "filtered" if sample.filtered else "bad"
            counts[f"{part}/{sample.reason}"] += 1
        if batch.unreadable:
            counts["unreadable_noise"] += len(batch.unreadable)

    return counts


@dataclass(frozen=True)
class Account:
    """Number of samples of an epoch over all ranks; read + filtered + bad = all."""

    all: int
    read: int
    filtered: dict[str, int]
    """By reason."""
    bad: dict[str, int]
    """By reason."""
    unreadable_noise: int = 0
    """Draws of noise that cannot be read; other noise took its place."""

    def to_dict(self) -> dict[str, Any]:
        """Return fields of epoch_N.yaml; noise draws only if noise was used."""
        return {
            name: value
            for name, value in asdict(self).items()
            if name != "unreadable_noise" or value
        }

    def scalars(self) -> dict[str, float]:
        """Return the numbers by name, for TensorBoard."""
        numbers: dict[str, float] = {"all": self.all, "read": self.read}
        numbers["filtered"] = sum(self.filtered.values())
        numbers["bad"] = sum(self.bad.values())
        for reason, count in self.filtered.items():
            numbers[f"filtered_{reason}"] = count
        for reason, count in self.bad.items():
            numbers[f"bad_{reason}"] = count
        if self.unreadable_noise:
            numbers["unreadable_noise"] = self.unreadable_noise

        return numbers

    def __str__(self) -> str:
        parts = [f"{self.all} utterances: {self.read} read"]
        for name, reasons in (("filtered", self.filtered), ("bad", self.bad)):
            named = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
            parts.append(f"{sum(reasons.values())} {name}" + (f" ({named})" if named else ""))

        if self.unreadable_noise:
            parts.append(f"unreadable noise was drawn {self.unreadable_noise} times")

        return ", ".join(parts)


def reconciled(counts: Mapping[str, int]) -> Account:
    """Make the account of an epoch from the counts of all ranks: `tally` of the batches plus
    `Loader.left_out`.

    Raises:
        RuntimeError: the totals differ: a sample was lost or came twice, which is a bug in this
            project.
    """
    parts: dict[str, dict[str, int]] = {"filtered": {}, "bad": {}}
    for name, count in counts.items():
        part, slash, reason = name.partition("/")
        if slash and part in parts and count:
            parts[part][reason] = count

    account = Account(
        counts.get("all", counts["planned"]),
        counts["read"],
        **parts,
        unreadable_noise=counts.get("unreadable_noise", 0),
    )
    if account.all != account.read + sum(account.filtered.values()) + sum(account.bad.values()):
        raise RuntimeError(
            "the counts of an epoch do not add up, which is a bug in wenet_uio; please report it: "
            f"{dict(counts)}"
        )

    return account
