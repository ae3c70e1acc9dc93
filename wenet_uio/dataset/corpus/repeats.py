"""Utterances that a list has more than once, found while the list is indexed.

Memory is bounded: of more than MOST_KEYS keys, a part is compared. A key belongs to this part by
its hash, so that of equal keys all are compared or none. Shards with the same samples are found in
any number, by their digests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from wenet_uio.base.uris import shown
from wenet_uio.dataset.corpus.index import Rows
from wenet_uio.dataset.formats.data_list import ShardFiles

MOST_KEYS = 1 << 19
"""Keys that are compared; 16 bytes each."""
NAMED = 3
"""Shards and keys that a message names."""


class Place(NamedTuple):
    """Of a sample: its shard, and its row in the shard."""

    shard: int
    row: int


class KeyHashes:
    """Hashes of the keys of a list, or of a part of them, with their places."""

    def __init__(self) -> None:
        self._hashes = np.empty(MOST_KEYS, np.uint64)
        self._shards = np.empty(MOST_KEYS, np.uint32)
        self._rows = np.empty(MOST_KEYS, np.uint32)
        self._kept = self._next_shard = 0
        self.part = 1
        """One of so many keys is kept: those whose hash is a multiple of it, a power of two."""

    def add(self, key_hash: np.ndarray) -> None:
        """Add the hashes of the next shard, (samples,) uint64."""
        rows = self._rows_of_part(key_hash)
        while self._kept + len(rows) > MOST_KEYS:
            self.part *= 2
            kept = self._rows_of_part(self._hashes[: self._kept])
            for column in (self._hashes, self._shards, self._rows):
                column[: len(kept)] = column[kept]
            self._kept = len(kept)
            rows = self._rows_of_part(key_hash)

        new = slice(self._kept, self._kept + len(rows))
        self._hashes[new] = key_hash[rows]
        self._shards[new] = self._next_shard
        self._rows[new] = rows
        self._kept += len(rows)
        self._next_shard += 1

    def _rows_of_part(self, hashes: np.ndarray) -> np.ndarray:
        return np.flatnonzero((hashes & np.uint64(self.part - 1)) == 0)

    def repeated(self, left_out: np.ndarray) -> tuple[int, list[tuple[Place, Place]]]:
        """Return how many of the kept keys occurred before, and the places of the first of them:
        where the key occurred first, and where again.

        Args:
            left_out: shards whose keys are not compared.
        """
        compared = np.flatnonzero(~np.isin(self._shards[: self._kept], left_out))
        first, again = _repeated_places(self._hashes[compared])
        pairs = zip(compared[first[:NAMED]].tolist(), compared[again[:NAMED]].tolist(), strict=True)
        return len(again), [(self._place(one), self._place(other)) for one, other in pairs]

    def _place(self, number: int) -> Place:
        return Place(int(self._shards[number]), int(self._rows[number]))


def _repeated_places(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return, for each value that occurred before, where it occurred first, and where again."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    again = np.sort(order[1:][ordered[1:] == ordered[:-1]])
    first = order[np.searchsorted(ordered, values[again])]
    return first, again


def repeats_in_lines(rows: Rows) -> list[str]:
    """Return sentences about keys that several lines of a raw list have; none if there are none."""
    hashes = KeyHashes()
    hashes.add(rows.key_hash)
    count, places = hashes.repeated(np.empty(0, np.uint32))
    return _about_keys(count, hashes.part, [rows.key(again.row) for _, again in places])


def repeats_in_shards(
    shards: Sequence[str], digests: np.ndarray, hashes: KeyHashes, key_at: Callable[[Place], str]
) -> list[str]:
    """Return sentences about shards with the samples of an earlier shard, and about keys that
    samples of other shards have; none if there are none.

    Args:
        shards: each as `str(ShardFiles)`.
        digests: (shards,) of their samples.
        hashes: of all keys.
        key_at: returns the key of a sample.
    """

    def name(shard: int) -> str:
        return shown(ShardFiles.parse(shards[shard]).tar)

    sentences = []
    originals, copies = _repeated_places(digests)
    if len(copies):
        pairs = zip(originals[:NAMED].tolist(), copies[:NAMED].tolist(), strict=True)
        named = [
            f"{name(copy)} {'again' if shards[copy] == shards[first] else f'as {name(first)}'}"
            for first, copy in pairs
        ]
        sentences.append(
            f"{len(copies)} of {len(shards)} shards {_have(len(copies))} the samples of an earlier "
            f"shard ({with_others(named, len(copies))}); all are read. To repeat data on purpose, "
            "give a source of a mixture `repeat` or a weight"
        )

    count, places = hashes.repeated(copies)
    named = [
        f"{key_at(again)} in {name(first.shard)} and "
        f"{'again' if again.shard == first.shard else name(again.shard)}"
        for first, again in places
    ]
    return sentences + _about_keys(count, hashes.part, named)


def _about_keys(kept: int, part: int, named: list[str]) -> list[str]:
    """Return a sentence about repeated keys; none if there are none.

    Args:
        kept: repeated keys among those that are compared, one of `part` keys.
        named: the first of them.
    """
    if not kept:
        return []

    count = kept * part
    utterances = f"{'about ' if part > 1 else ''}{count} utterance{'s' if count > 1 else ''}"
    return [
        f"{utterances} {_have(count)} the key of an earlier one ({with_others(named, count)}); all "
        "are read, but results hold one utterance of a key. Blanks in keys count as `_`"
    ]


def _have(count: int) -> str:
    return "have" if count > 1 else "has"


def with_others(named: list[str], count: int) -> str:
    """Return the first things of `count`, and how many others there are."""
    others = f" and {count - len(named)} more" if count > len(named) else ""
    return f"{', '.join(named)}{others}"
