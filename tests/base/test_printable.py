"""A terminal obeys nothing that stands in a key, a text or a message."""

from __future__ import annotations

import io
import json
import os
import pty
import sys
from pathlib import Path

import pytest
from tqdm import tqdm

from tests.bin.test_data_tools import tool
from wenet_uio.base.messages import PrintableStream, printable
from wenet_uio.base.uris import ShownStream

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x1b[31mred\x1b[0m", r"\u001b[31mred\u001b[0m"),
        ("\x1b]0;title\x07", r"\u001b]0;title\u0007"),
        ("a\x9b2Jb\x7f", r"a\u009b2Jb\u007f"),
        ("fine\rerror", r"fine\u000derror"),
        ("back\x08\x00", r"back\u0008\u0000"),
        ("a\u202egpj.wav", r"a\u202egpj.wav"),
        ("\x1b[A", "\x1b[A"),
        ("\x1b[A!", r"\u001b[A!"),
    ],
)
def test_what_a_terminal_would_obey_is_printed_as_an_escape(text, expected):
    assert printable(text) == expected
    assert printable(expected) == expected


@pytest.mark.parametrize(
    "text",
    ["", "a\tb\n", "a\r\nb\r\n", "\r 50% |## |", "\r     \r", "\n\n\x1b[A\x1b[A", "é 你 \u05d0 😀"],
)
def test_other_texts_and_movements_of_progress_bars_stay(text):
    assert printable(text) == text


def test_progress_bars_are_drawn_as_without_the_stream():
    def drawn(stream):
        bars = [
            tqdm(total=2, file=stream, position=row, mininterval=0, ncols=40, bar_format="{n}")
            for row in (0, 1)
        ]
        for bar in bars:
            bar.update()
        for bar in bars:
            bar.close()

    plain, wrapped = io.StringIO(), io.StringIO()
    drawn(plain)
    drawn(PrintableStream(wrapped))
    assert wrapped.getvalue() == plain.getvalue()
    assert "\x1b[A" in plain.getvalue()


def test_a_json_object_means_the_same_after_it_was_printed():
    values = {"a": "\x1b[2J \u202e\\\u202e \x9b \x7f \r x"}
    stream = io.StringIO()
    print(json.dumps(values, ensure_ascii=False), file=ShownStream(stream))
    assert json.loads(stream.getvalue()) == values
    assert printable(stream.getvalue()) == stream.getvalue()


def test_a_tool_prints_keys_and_texts_without_commands_for_the_terminal(make_utterances, tmp_path):
    (noise,) = make_utterances(1)
    lines = [
        {"key": "a\x1b[2J", "wav": noise.wav, "txt": "x\x1b]0;owned\x07y"},
        {"key": "b", "wav": "\x1b[31mgone.wav", "txt": "a"},
    ]
    (tmp_path / "raw.list").write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = tool("check_data.py", tmp_path / "raw.list", "--nj", 1)
    assert "\x1b" not in done.stdout + done.stderr
    assert r"\u001b[31mgone.wav" in done.stdout
    assert "U+001B control character" in done.stdout


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_tool_of_texts_prints_them_unchanged_except_to_a_terminal(
    tmp_path, is_terminal, monkeypatch
):
    (tmp_path / "text").write_text("k a\x1bb\n")
    command = [sys.executable, str(ROOT / "tools/text2token.py"), "-s", "1", str(tmp_path / "text")]
    if not is_terminal:
        assert tool("text2token.py", "-s", 1, tmp_path / "text").stdout == "k a \x1b b\n"
        return

    printed = bytearray()

    def read(descriptor):
        printed.extend(data := os.read(descriptor, 1024))
        return data

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pty.spawn(command, read)
    assert printed.replace(b"\r\n", b"\n").endswith(b"k a \\u001b b\n")
