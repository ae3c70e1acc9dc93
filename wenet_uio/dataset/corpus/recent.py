"""A bounded collection that keeps the values used most recently; threads may share it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Recent(Generic[Value]):
    """At most `most` values by number. A new value replaces the value that was used longest ago."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[int, Value] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, number: int) -> Value | None:
        """The value of a number, which counts as a use; None if the value is not kept."""
        with self._lock:
            if number not in self._values:
                return None
            self._values.move_to_end(number)
            return self._values[number]

    def put(self, number: int, value: Value) -> None:
        """Keep a value."""
        with self._lock:
            self._values[number] = value
            if len(self._values) > self._most:
                self._values.popitem(last=False)

    def drop_oldest(self) -> None:
        """Drop the value that was used longest ago, if any is kept."""
        with self._lock:
            if self._values:
                self._values.popitem(last=False)
