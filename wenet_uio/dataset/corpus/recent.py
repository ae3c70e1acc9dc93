"""A bounded collection that keeps the values used most recently; threads may share it."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Recent(Generic[Value]):
    """At most `most` values by number. A new value replaces the value that was used longest ago.

    There is no lock, because every call on the OrderedDict is atomic. If threads compete, a value may be dropped early.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[int, Value] = OrderedDict()

    def get(self, number: int) -> Value | None:
        """The value of a number, which counts as a use; None if the value is not kept."""
        try:
            self._values.move_to_end(number)
            return self._values[number]
        except KeyError:
            return None

    def put(self, number: int, value: Value) -> None:
        """Keep a value."""
        self._values[number] = value
        if len(self._values) > self._most:
            self.drop_oldest()

    def drop_oldest(self) -> None:
        """Drop the value that was used longest ago, if any is kept."""
        try:
            self._values.popitem(last=False)
        except KeyError:  # empty
            return
