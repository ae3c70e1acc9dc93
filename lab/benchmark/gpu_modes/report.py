"""Results of a mode: lines of JSON, the time that is left, and failures."""

from __future__ import annotations

import gc
import json
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from provenance import commit

from wenet_uio.train.distributed import World
from wenet_uio.train.memory import brief_message, is_out_of_memory

DIGITS = 5
"""Significant digits of a figure."""
SHOWN = 3000
"""Characters of a stack trace in a line, its end."""
Size = TypeVar("Size")
Case = TypeVar("Case", bound=Mapping[str, Any])


@dataclass(frozen=True)
class Options:
    """Options of gpu.py for every mode."""

    toy: bool = False
    minutes: float = 8
    device: str = "auto"
    out: str | None = None
    folder: str | None = None


class Report:
    """What a mode has found so far."""

    def __init__(self, mode: str, options: Options) -> None:
        self.mode = mode
        self.options = options
        self.failures = 0
        self.device = torch.device("cpu")
        self._ends = time.monotonic() + 60 * options.minutes
        self._source: dict[str, Any] = {"torch": torch.__version__, "commit": commit()}

    def begin(self) -> None:
        """Choose the device.

        Raises:
            ValueError: there is no such device.
        """
        self.device = World.from_environment(self.options.device).device
        if self.on_gpu:
            torch.cuda.set_device(self.device)
        self._source["device"] = torch.cuda.get_device_name(self.device) if self.on_gpu else "cpu"

    @property
    def on_gpu(self) -> bool:
        """True if the mode measures a GPU."""
        return self.device.type == "cuda"

    def sized(self, full: Size, toy: Size) -> Size:
        """Return the size to measure, or with --toy the small one."""
        return toy if self.options.toy else full

    def write(self, **values: Any) -> None:
        """Write a line of JSON with the mode, the `values`, device, versions and commit."""
        toy = {"toy": True} if self.options.toy else {}
        line = json.dumps({"mode": self.mode, **_rounded(values), **toy, **self._source})
        print(line, flush=True)
        if self.options.out:
            with open(self.options.out, "a", encoding="utf-8") as file:
                file.write(line + "\n")

    def each(self, cases: Sequence[Case]) -> Iterator[Case]:
        """Yield the cases while there is time for one more as long as the longest so far; write
        what is left out.
        """
        longest = 0.0
        for number, case in enumerate(cases):
            began = time.monotonic()
            if number and began + longest > self._ends:
                self.write(
                    left_out=[dict(left) for left in cases[number:]], minutes=self.options.minutes
                )
                return

            yield case
            longest = max(longest, time.monotonic() - began)

    @contextmanager
    def result(self, **case: Any) -> Iterator[dict[str, Any]]:
        """Write the figures that the block adds to the dict, together with the `case` that they are
        of.

        A case that does not fit in memory is a result as well. Another exception is noted as a
        failure, and the next case can run.
        """
        figures: dict[str, Any] = {}
        with self.named_failure(**case):
            try:
                yield figures
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                figures = {"fits": False, "said": brief_message(error)}
            self.write(**case, **figures)

        free()

    @contextmanager
    def named_failure(self, **case: Any) -> Iterator[None]:
        """Write an exception of the block as a failure: on one line of standard error, and in full
        as JSON.
        """
        try:
            yield
        except Exception as error:
            self.failures += 1
            message = f"{type(error).__name__}: {brief_message(error)}"
            where = "".join(f" {name}={value}" for name, value in case.items())
            print(f"error: {self.mode}{where}: {message}", file=sys.stderr)
            self.write(**case, error=message, traceback=traceback.format_exc()[-SHOWN:])


def free() -> None:
    """Return the memory of a case to the device."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def synchronise(device: torch.device) -> None:
    """Wait until the device has done its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _rounded(value: Any) -> Any:
    """Return the value with all its floats rounded to DIGITS."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, Mapping):
        return {name: _rounded(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(part) for part in value]

    return value
