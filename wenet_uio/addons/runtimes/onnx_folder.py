"""Write the files of an ONNX export as one folder, which is the former or the new one, never a
mixture.

Each file has the same `export_id` in its metadata; files of two exports are refused when they are
loaded together. `weights_id` says which weights the folder has, so that folders beside each other
can be compared.
"""

from __future__ import annotations

import hashlib
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from wenet_uio.addons.runtimes.onnx_files import require_onnx
from wenet_uio.base.files import folder_written_aside
from wenet_uio.base.messages import note

log = logging.getLogger(__name__)

EXPORT_ID = "export_id"
WEIGHTS_ID = "weights_id"
FOLDERS = ("streams", "offline", "streaming", "streams_int8", "offline_int8", "streaming_int8")
"""Folders that one export may write, in the order in which a model is searched."""
UNKNOWN = "unknown"
TOKENS = "tokens.txt"
FOR_SHERPA = ("model.onnx", "whisper-encoder.onnx")
"""First file of folders that are exported for sherpa-onnx alone."""
NAMES = {
    TOKENS,
    *("streams.onnx", "encoder.onnx", "ctc.onnx", "decoder.onnx"),
    *FOR_SHERPA,
    "whisper-decoder.onnx",
}
"""Files that exports write. Others in the folder are the user's."""


def write_folder(
    path: Path, contents: Mapping[str, bytes], tokens: str | None, weights_id: str
) -> None:
    """Write the files of an export in place of those of an earlier one, and say which of these have
    no successor.

    Files of the user in the folder stay.

    Args:
        contents: {file name: ONNX model}.
        tokens: text of tokens.txt; None writes none.
        weights_id: identifies the weights of the exported model.

    Raises:
        OSError: the folder cannot be written; the former one is as it was.
    """
    gone = sorted(NAMES - {*contents, *([TOKENS] if tokens is not None else [])})
    for name in gone:
        if (path / name).exists():
            note(f"{path / name}: of an earlier export, removed")

    ids = {WEIGHTS_ID: weights_id}
    ids[EXPORT_ID] = hashlib.sha256(b"".join(contents.values())).hexdigest()[:16]
    with folder_written_aside(path, is_ours=_is_of_an_export) as folder:
        for name, content in contents.items():
            (folder / name).write_bytes(_stamped(content, ids))
        if tokens is not None:
            (folder / TOKENS).write_text(tokens, encoding="utf-8")


@contextmanager
def older_folders_told(output_dir: Path, weights_id: str) -> Iterator[None]:
    """Warn at the end of the block of folders of an earlier export that the block, which writes
    others, has not replaced.

    Args:
        weights_id: of the export of the block.
    """
    before = _identities(output_dir)
    try:
        yield
    finally:
        after = _identities(output_dir)
        older = [name for name in after if after[name] == before.get(name)]
        if older and after != before:
            _tell_older([output_dir / name for name in older], weights_id)


def _identities(output_dir: Path) -> dict[str, int]:
    """Return the inode of each exported folder; a folder that replaces it has another one."""
    return {
        name: (output_dir / name).stat().st_ino
        for name in FOLDERS
        if any(map(_is_of_an_export, _files_of(output_dir / name)))
    }


def _tell_older(folders: Sequence[Path], weights_id: str) -> None:
    weights = "the same" if all(weights_of(path) == weights_id for path in folders) else "other"
    print(
        f"warning: {', '.join(map(str, folders))}: of an earlier export with {weights} weights, and "
        "not replaced; remove what is not needed",
        file=sys.stderr,
    )


def require_same_weights(folders: Sequence[Path]) -> None:
    """Check that folders beside each other are exports of the same weights.

    Raises:
        ValueError: they are not.
    """
    weights_by_folder = {folder.name: weights_of(folder) for folder in folders}
    if len(set(weights_by_folder.values())) > 1:
        weights_of_folders = ", ".join(
            f"{name} {weights_id}" for name, weights_id in weights_by_folder.items()
        )
        raise ValueError(
            f"{folders[0].parent}: folders of different models ({WEIGHTS_ID}: {weights_of_folders}): name "
            "one of them, remove the older ones, or export again"
        )


def weights_of(folder: Path) -> str:
    """Return the id of the weights of an exported folder.

    UNKNOWN for files that are damaged or have no id, as those of WeNet.
    """
    onnx, _ = require_onnx()
    from google.protobuf.message import DecodeError  # protobuf comes with onnx

    models = [file for file in _files_of(folder) if file.name in NAMES - {TOKENS}]
    if not models:
        return UNKNOWN

    # All files of a folder have the same ids, and that of CTC takes the least time to read.
    smallest = min(models, key=lambda file: file.stat().st_size)
    try:
        entries = onnx.load(smallest).metadata_props
    except DecodeError as error:
        log.warning("%s cannot be read (%s)", smallest, error)
        return UNKNOWN

    return next((entry.value for entry in entries if entry.key == WEIGHTS_ID), UNKNOWN)


def _files_of(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _is_of_an_export(file: Path) -> bool:
    return file.name in NAMES


def _stamped(content: bytes, ids: Mapping[str, str]) -> bytes:
    """Return an ONNX model with the ids of its export."""
    onnx, _ = require_onnx()
    model = onnx.load_from_string(content)
    for name, value in ids.items():
        entry = model.metadata_props.add()
        entry.key, entry.value = name, value

    return model.SerializeToString()
