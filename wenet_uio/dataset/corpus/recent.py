"""A bounded collection that keeps the values used most recently; threads may share it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value")
OPEN_SHARDS = 128
"""Tars that a process keeps open, of all its corpora together. The plan mixes as many local shards
in a group."""


class Recent(Generic[Value]):
    """At most `most` values by number. A new value replaces the value that was used longest ago.

    There is no lock, because every call on the OrderedDict is atomic. If threads compete, a value
    may be dropped early.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[Hashable, Value] = OrderedDict()

    def get(self, key: Hashable) -> Value | None:
        """Return the value of a key, which counts as a use; None if the value is not kept."""
        try:
            self._values.move_to_end(key)
            return self._values[key]
        except KeyError:
            return None

    def put(self, key: Hashable, value: Value) -> None:
        """Keep a value."""
        self._values[key] = value
        if len(self._values) > self._most:
            self.drop_oldest()

    def drop_oldest(self) -> None:
        """Drop the value that was used longest ago, if any is kept."""
        try:
            self._values.popitem(last=False)
        except KeyError:  # empty
            return

    def drop_all_of(self, owner: object) -> None:
        """Drop the values with keys (owner, …)."""
        for key in list(self._values):
            if isinstance(key, tuple) and key[0] is owner:
                self._values.pop(key, None)
