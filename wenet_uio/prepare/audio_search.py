"""Finding the audio files that transcripts name, by path or by name in a folder of recordings."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from wenet_uio.dataset.formats.sample_layout import AUDIO_SUFFIXES
from wenet_uio.prepare.corpus_parts import files_below


def find_audio(wavs: Iterable[str], folders: Sequence[Path], audio: Path | None) -> dict[str, list[Path]]:
    """Find the files that names in transcripts may mean, as {name: files}.

    A name is first tried as a path relative to each folder in turn. Otherwise it is compared with the audio below
    `audio`: by relative path with any suffix, then by file name with any suffix.

    Returns:
        for each name one absolute path, several paths if it is ambiguous, or none if no file fits.
    """
    found = {wav: _at_path(wav, folders) for wav in wavs}
    missing = [wav for wav, files in found.items() if not files]
    if audio and missing:
        found |= _by_name(missing, audio)
    return found


def _at_path(wav: str, folders: Sequence[Path]) -> list[Path]:
    places = (os.path.abspath(folder / wav) for folder in folders)  # noqa: PTH100 - resolve() would follow links
    # isfile() is false where Path.is_file() raises OSError: a text in the column of the audio is too long for a path.
    found = next(filter(os.path.isfile, places), None)
    return [Path(found)] if found else []


def _by_name(wavs: Iterable[str], audio: Path) -> dict[str, list[Path]]:
    by_path, by_name = _names_in(audio)
    found: dict[str, list[Path]] = {}
    for wav in wavs:
        path = Path(wav)
        files = by_path.get(wav) or by_path.get(str(path.with_suffix(""))) or by_name.get(path.stem) or []
        found[wav] = [file.absolute() for file in files]
    return found


def _names_in(folder: Path) -> tuple[dict[str, list[Path]], dict[str, list[Path]]]:
    """Audio below a folder by relative path without suffix, and by file name without suffix."""
    by_path: dict[str, list[Path]] = {}
    by_name: dict[str, list[Path]] = {}
    for wav in files_below(folder):
        if wav.suffix[1:].lower() in AUDIO_SUFFIXES:
            by_path.setdefault(str(wav.relative_to(folder).with_suffix("")), []).append(wav)
            by_name.setdefault(wav.stem, []).append(wav)
    return by_path, by_name
