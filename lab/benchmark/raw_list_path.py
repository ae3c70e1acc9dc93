#!/usr/bin/env python3
"""Print the way of a raw list from `build_loader` to the first batch, module by module.

    python lab/benchmark/raw_list_path.py

A function counts once, at its first call, as a reader meets it. Comprehensions, lambdas, generated
methods and the code of imports do not count, nor does what runs at a read of an attribute
(properties) or after the fields of a dataclass (`__post_init__`); a second line of totals counts
these too. A stop is a series of functions of one module. A return is a stop in a module that was
left before. It is a callback (marked `^`) if the module waits for the function that calls back. The
opens of the list file are counted as well.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from itertools import groupby
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import numpy as np
import soundfile

from wenet_uio.config import parse_config
from wenet_uio.dataset.dataset import build_loader
from wenet_uio.dataset.formats.data_list import RawLine

SAMPLE_RATE = 16000
LINES = 4
CONFIG = parse_config({"output_dim": 10, "dataset_conf": {}}, "raw_list_path")


class Function(NamedTuple):
    """A function on the way."""

    module: str
    name: str
    is_attribute: bool
    """A property, or `__post_init__`."""
    is_callback: bool
    """Called from another module, while a function of its own module waits for that call."""


class CallTrace:
    """Functions of wenet_uio in the order of their first call, over all threads."""

    def __init__(self) -> None:
        self.functions: dict[tuple[str, int], Function] = {}

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        """Note a call; for `sys.setprofile`."""
        module = module_of(frame)
        code = frame.f_code
        place = (module, code.co_firstlineno)
        is_generated = code.co_filename.startswith("<") or code.co_name.startswith("<")
        if event != "call" or not module or is_generated or place in self.functions:
            return

        callers = [name for name in map(module_of, callers_of(frame)) if name]
        is_callback = callers[:1] != [module] and module in callers
        self.functions[place] = Function(module, code.co_name, is_attribute(frame), is_callback)

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

    def stops(self, *, attributes: bool) -> list[tuple[str, list[Function]]]:
        """Return series of functions of one module, with or without those of attributes."""
        functions = [
            function
            for function in self.functions.values()
            if attributes or not function.is_attribute
        ]
        grouped = groupby(functions, key=lambda function: function.module)
        return [(module, list(series)) for module, series in grouped]


def module_of(frame: FrameType) -> str:
    """Return the module of a frame; empty if it is not one of wenet_uio."""
    module = frame.f_globals.get("__name__", "")
    return module if module.startswith("wenet_uio.") else ""


def callers_of(frame: FrameType) -> Iterator[FrameType]:
    """Yield the frames that wait for this one, the nearest first."""
    caller = frame.f_back
    while caller:
        yield caller
        caller = caller.f_back


def is_attribute(frame: FrameType) -> bool:
    """Tell whether a frame runs a property, or `__post_init__`."""
    code = frame.f_code
    owner = type(frame.f_locals.get("self"))
    return code.co_name == "__post_init__" or any(
        code_of_property(vars(base).get(code.co_name)) is code for base in owner.__mro__
    )


def code_of_property(member: object) -> CodeType | None:
    """Return the code of a property or a cached property; None of anything else."""
    if isinstance(member, cached_property):
        return member.func.__code__
    return getattr(member.fget, "__code__", None) if isinstance(member, property) else None


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
            caller = next(frame for frame in callers_of(sys._getframe(0)) if module_of(frame))
            callers.append(f"{module_of(caller)}.{caller.f_code.co_name}")

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
    stops = trace.stops(attributes=False)
    for module, functions in stops:
        is_return = module in visited
        mark = "^" if functions[0].is_callback else "<" if is_return else " "
        visited.add(module)
        names = " ".join(function.name for function in functions)
        print(f"{mark} {module.removeprefix('wenet_uio.'):<36} {names}")

    print(totals(stops))
    print(f"with properties and __post_init__: {totals(trace.stops(attributes=True))}")
    print(f"list opened {len(callers)} times:", *callers, sep="\n  ")


def totals(stops: list[tuple[str, list[Function]]]) -> str:
    """Count stops, modules, returns and callbacks, in words."""
    modules = {module for module, _ in stops}
    callbacks = sum(functions[0].is_callback for _, functions in stops)
    returns = len(stops) - len(modules)
    return f"{len(stops)} stops in {len(modules)} modules, {returns} returns, {callbacks} callbacks"


if __name__ == "__main__":
    main()
