"""Read the lists of FunASR."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

from wenet_uio.dataset.formats.data_list import RawLine, locate, parse_raw_line, values_of
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.text.table import numbered_lines

AUDIO_OF_CHAT = re.compile(r"<\|startofspeech\|>!?(.+?)<\|endofspeech\|>")
"""Audio in a message of FunASR."""


def read_funasr(path: str, text_field: str | None = None) -> list[RawLine]:
    """Read a list of FunASR: JSON lines with `source` and `target`, or with messages of a chat.

    Raises:
        ListError: a line has no audio or no text; the message names file and line.
    """
    lines = []
    for number, text in numbered_lines(path):
        if not text.strip():
            continue

        try:
            line = parse_raw_line(json.dumps(_rename_fields(values_of(text))), text_field)
        except ListError as error:
            raise ListError(f"{path}:{number}: {error}") from None
        lines.append(replace(line, wav=locate(line.wav, path)))

    return lines


def _rename_fields(values: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a line of FunASR with our names."""
    if "messages" not in values:
        names = {"source": "wav", "target": "txt"}
        return {names.get(name, name): value for name, value in values.items()}

    contents = {message.get("role"): message.get("content") for message in values["messages"]}
    audio = AUDIO_OF_CHAT.search(contents.get("user") or "")
    fields = {name: value for name, value in values.items() if name != "messages"}
    return fields | {"wav": audio and audio[1], "txt": contents.get("assistant")}
