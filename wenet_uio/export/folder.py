"""Write the files of an ONNX export as one folder, which is the former or the new one, never a
mixture.

Each file has the same `export_id` in its metadata; files of two exports are refused when they are
loaded together.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from pathlib import Path

from wenet_uio.export.onnx_files import require_onnx
from wenet_uio.files import folder_written_aside

EXPORT_ID = "export_id"
TOKENS = "tokens.txt"
NAMES = {
    TOKENS,
    *("encoder.onnx", "ctc.onnx", "decoder.onnx", "model.onnx"),
    *("whisper-encoder.onnx", "whisper-decoder.onnx"),
}
"""Files that exports write. Others in the folder are the user's."""


def write_folder(path: Path, contents: Mapping[str, bytes], tokens: str | None) -> None:
    """Write the files of an export in place of those of an earlier one, and say which of these have
    no successor.

    Files of the user in the folder stay.

    Args:
        contents: {file name: ONNX model}.
        tokens: text of tokens.txt; None writes none.

    Raises:
        OSError: the folder cannot be written; the former one is as it was.
    """
    gone = sorted(NAMES - {*contents, *([TOKENS] if tokens is not None else [])})
    for name in gone:
        if (path / name).exists():
            print(f"{path / name}: of an earlier export, removed", file=sys.stderr)

    export_id = hashlib.sha256(b"".join(contents.values())).hexdigest()[:16]
    with folder_written_aside(path, is_ours=_is_of_an_export) as folder:
        for name, content in contents.items():
            (folder / name).write_bytes(_stamped(content, export_id))
        if tokens is not None:
            (folder / TOKENS).write_text(tokens, encoding="utf-8")


def _is_of_an_export(file: Path) -> bool:
    return file.name in NAMES


def _stamped(content: bytes, export_id: str) -> bytes:
    """Return an ONNX model with the id of its export."""
    onnx, _ = require_onnx()
    model = onnx.load_from_string(content)
    entry = model.metadata_props.add()
    entry.key, entry.value = EXPORT_ID, export_id
    return model.SerializeToString()
