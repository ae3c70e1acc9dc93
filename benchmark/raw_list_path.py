#!/usr/bin/env python3
"""Print the way of a raw list from `build_loader` to the first batch, module by module.

    python benchmark/raw_list_path.py

A function counts once, at its first call, as a reader meets it; comprehensions, lambdas,
generated methods and the code of imports do not count. A stop is a series of functions of one
module. A return is a stop in a module that was left before. The opens of the list file are counted
as well.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import soundfile

from wenet_uio.config import parse_config
from wenet_uio.dataset.dataset import build_loader
from wenet_uio.dataset.formats.data_list import RawLine

SAMPLE_RATE = 16000
LINES = 4
CONFIG = parse_config({"output_dim": 10, "dataset_conf": {}}, "raw_list_path")


class CallTrace:
    """Functions of wenet_uio in the order of their first call, over all threads."""

    def __init__(self) -> None:
        self.functions: dict[tuple[str, int, str], None] = {}

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        """Note a call; for `sys.setprofile`."""
        module = frame.f_globals.get("__name__", "")
        code = frame.f_code
        is_generated = code.co_filename.startswith("<") or code.co_name.startswith("<")
        if event == "call" and module.startswith("wenet_uio.") and not is_generated:
            self.functions.setdefault((module, code.co_firstlineno, code.co_name))

    @contextmanager
    def on(self) -> Iterator[None]:
        """Trace the calls of this thread and of threads that start meanwhile."""
        threading.setprofile(self)
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def stops(self) -> list[tuple[str, list[str]]]:
        """Series of functions of one module: (module, names of the functions)."""
        grouped = groupby(self.functions, key=lambda function: function[0])
        return [(module, [name for _, _, name in functions]) for module, functions in grouped]


def write_list(folder: Path) -> Path:
    """Write a raw list of short utterances without durations, with their audio."""
    folder.mkdir()
    data_list = folder / "data.list"
    lines = []

    for number in range(LINES):
        wav = folder / f"{number}.wav"
        soundfile.write(wav, np.zeros(SAMPLE_RATE, np.int16), SAMPLE_RATE)
        lines.append(RawLine(str(number), str(wav), "a b").to_json())

    data_list.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return data_list


@contextmanager
def opens_of(path: Path) -> Iterator[list[str]]:
    """Collect the callers of `open` for a file; the events of an audit hook cannot be removed."""
    callers: list[str] = []
    is_on = [True]

    def note(event: str, arguments: tuple) -> None:
        if is_on[0] and event == "open" and str(arguments[0]) == str(path):
            frame = sys._getframe(1)
            while frame.f_back and not frame.f_globals.get("__name__", "").startswith("wenet_uio."):
                frame = frame.f_back
            callers.append(f"{frame.f_globals['__name__']}.{frame.f_code.co_name}")

    sys.addaudithook(note)
    try:
        yield callers
    finally:
        is_on[0] = False


def first_batch(data_list: Path) -> None:
    """Index and plan the list, and read one batch."""
    loader = build_loader(str(data_list), "raw", CONFIG, lambda text: [1, 2], training=True)
    next(iter(loader))


def main() -> None:
    """Print stops, returns and opens of the list, for a list without an index."""
    with tempfile.TemporaryDirectory() as folder:
        # The first run imports what is imported lazily.
        first_batch(write_list(Path(folder, "warm")))

        data_list = write_list(Path(folder, "traced"))
        trace = CallTrace()
        with opens_of(data_list) as callers, trace.on():
            first_batch(data_list)

    visited: set[str] = set()
    returns = 0
    for module, functions in trace.stops():
        returns += module in visited
        mark = "<" if module in visited else " "
        visited.add(module)
        print(f"{mark} {module.removeprefix('wenet_uio.'):<36} {' '.join(functions)}")

    print(f"{len(trace.stops())} stops in {len(visited)} modules, {returns} returns")
    print(f"list opened {len(callers)} times:", *callers, sep="\n  ")


if __name__ == "__main__":
    main()
