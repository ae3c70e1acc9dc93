"""What takes locks, each done by two processes at the same time.

lock_doors.py FOLDER     prints {door: [the answer of each process]} as JSON

A door is a function that prepares a folder, and returns what the processes do there. An answer has
the result or the error, and the warnings of the log.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import numpy as np
import soundfile

from tests.support.data.packing import pack
from tests.support.data.read_only import lock_folder, open_folder, unprivileged
from wenet_uio.base.files import MARK, MARK_TEXT, new_folder_aside
from wenet_uio.dataset.chain import compiled
from wenet_uio.dataset.corpus.open_list import ensure_index, open_list
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.dataset.formats.sample_layout import DEFAULT_LAYOUT
from wenet_uio.dataset.kinds.conversation import ConversationCorpus
from wenet_uio.dataset.kinds.text import TextCorpus
from wenet_uio.dataset.open import open_corpus
from wenet_uio.dataset.storage.cache_space import reserve
from wenet_uio.dataset.storage.copies import make_copy
from wenet_uio.prepare.diagnose.check_shards import _Checked, _update_index
from wenet_uio.prepare.download import download
from wenet_uio.prepare.sharding import ShardOptions
from wenet_uio.text.char import CharSplitter
from wenet_uio.text.labels import Tokenizer

Work = Callable[[], object]
WORDS = Tokenizer(CharSplitter((), split_with_space=True), {"<blank>": 0, "<unk>": 1})
UTTERANCES = 4


def lines_in(folder: Path) -> list[RawLine]:
    """Write some recordings; returns the lines of their raw list."""
    lines = []
    for number in range(UTTERANCES):
        path = folder / f"u{number}.wav"
        soundfile.write(path, np.full(1600 + number, 0.1), 16000)
        lines.append(RawLine(path.stem, str(path), "ab"))
    return lines


def raw(folder: Path) -> Work:
    """Open a raw list without an index."""
    path = folder / "raw.list"
    path.write_text("".join(f"{line.to_json()}\n" for line in lines_in(folder)))
    return lambda: open_list(str(path), "raw").digest


def raw_read_only(folder: Path) -> Work:
    """Open a raw list without an index in a folder that cannot be written."""
    open_raw = raw(folder)
    lock_folder(folder)

    def work() -> object:
        with unprivileged():
            return open_raw()

    return work


def shard(folder: Path) -> Work:
    """Open a shard list without an index."""
    path = str(folder / "shard.list")
    pack(lines_in(folder), folder / "shards", path, ShardOptions(per_shard=2))
    for index in folder.rglob("*.idx"):
        index.unlink()
    return lambda: open_list(path, "shard").digest


def text(folder: Path) -> Work:
    """Open texts."""
    (folder / "book.txt").write_text("ab\nc\n")
    return lambda: TextCorpus(f"{folder}/book.txt").digest


def conversation(folder: Path) -> Work:
    """Open conversations."""
    turn = {"from": "user", "value": "speak", "type": "text"}
    (folder / "chat.json").write_text(json.dumps({"id": "c", "conversations": [turn]}))
    return lambda: ConversationCorpus(f"{folder}/chat.json", 0.08, "<audio>").digest


def tokens(folder: Path) -> Work:
    """Count the tokens of an indexed list."""
    raw(folder)()
    return lambda: open_corpus(f"{folder}/raw.list", "raw", tokenizer=WORDS).digest


def check(folder: Path) -> Work:
    """Make the index of a list again, which has other samples than its shards."""
    shard(folder)()
    path = f"{folder}/shard.list"

    def work() -> object:
        _update_index(path, DEFAULT_LAYOUT, [_Checked([], digest=1)])
        return ensure_index(path, "shard").summary.digest

    return work


def export(folder: Path) -> Work:
    """Write a folder aside, where a killed process has left another."""
    left = folder / ".model.0123456789ab.tmp"
    left.mkdir()
    (left / MARK).write_bytes(MARK_TEXT)

    def work() -> object:
        try:
            with new_folder_aside(folder / "model") as new:
                (new / "weights").touch()
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:  # the other process was first
                raise
        return (folder / "model" / "weights").exists()

    return work


def copy(folder: Path) -> Work:
    """Make a copy in the cache, after an older one is evicted for it."""
    cache = folder / "cache"
    older = cache / "aa" / f"{'0' * 32}-{'0' * 16}"
    older.parent.mkdir(parents=True)
    older.write_bytes(bytes(60))
    os.environ["WENET_UIO_CACHE_BYTES"] = "100"
    path = cache / "aa" / f"{'1' * 32}-{'1' * 16}"

    def make(file: BinaryIO) -> None:
        reserve(cache, 50, file.name)
        file.write(bytes(50))

    def work() -> object:
        with make_copy(path, 50, make, "s3://b/x") as file:
            return [len(file.read()), older.exists()]

    return work


def packing(folder: Path) -> Work:
    """Pack shards."""
    lines = lines_in(folder)
    return lambda: pack(lines, folder / "shards", str(folder / "shard.list"))


def tarred(folder: Path) -> Work:
    """Hold the folder of a tarred set of NeMo."""

    def work() -> object:
        from wenet_uio.addons.nemo.tars.tarred_set import _only_run_in

        with _only_run_in(folder):
            return None

    return work


def downloaded(folder: Path) -> Work:
    """Hold a file that is there already while it is looked for."""
    (folder / "x").write_bytes(b"1")
    return lambda: download("http://127.0.0.1:9/x", folder / "x", size=1).name


def functions(folder: Path) -> Work:
    """Compile the functions of fbank.cpp, by a compiler that copies a library."""
    compiler = folder / "c++"
    compiler.write_text(f'#!/bin/sh\nfor last; do :; done\ncp {os.environ["LD_PRELOAD"]} "$last"\n')
    compiler.chmod(0o755)
    os.environ |= {"CXX": str(compiler), "WENET_UIO_CACHE": str(folder / "cache")}
    return lambda: compiled.compiled.__wrapped__().way


DOORS: tuple[Callable[[Path], Work], ...] = (
    raw,
    raw_read_only,
    shard,
    text,
    conversation,
    tokens,
    check,
    export,
    copy,
    packing,
    tarred,
    downloaded,
    functions,
)


class Said(logging.Handler):
    """Collects the warnings of a process."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def started(work: Work) -> tuple[int, int]:
    """Start a process; returns its id, and the file that it writes its answer to."""
    reading, writing = os.pipe()
    process = os.fork()
    if process:
        os.close(writing)
        return process, reading

    said = Said()
    logging.getLogger("wenet_uio").addHandler(said)
    try:
        answer = {"result": work()}
    except Exception as error:  # whatever it is, the test says it
        answer = {"error": f"{type(error).__name__}: {error}"}
    os.write(writing, json.dumps({**answer, "warnings": said.lines}).encode())
    os._exit(0)


def main(folder: Path) -> None:
    """Go through all doors."""
    answers = {}
    os.environ["WENET_UIO_CACHE"] = str(open_folder(folder / "cache"))
    for door in DOORS:
        place = folder / door.__name__
        place.mkdir()
        locks = os.environ.pop("LOCKS")
        work = door(place)
        os.environ["LOCKS"] = locks
        # The warning asks not to start two commands that write to one folder.
        is_alone = locks == "none" and door is packing
        answers[door.__name__] = []
        for process, file in [started(work) for _ in range(1 if is_alone else 2)]:
            with open(file, "rb") as answer:
                answers[door.__name__].append(json.loads(answer.read()))
            os.waitpid(process, 0)

    print(json.dumps(answers))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
