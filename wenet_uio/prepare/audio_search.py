"""Find the audio files that transcripts name, by path or by name in a folder of recordings."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from unicodedata import normalize
from urllib.parse import unquote

from wenet_uio.audio.features import place_of
from wenet_uio.dataset.formats.keys import key_of_audio
from wenet_uio.dataset.formats.sample_layout import AUDIO_SUFFIXES
from wenet_uio.prepare.corpus_parts import files_below

UPLOADED = re.compile(r"^/data/upload/(?:\d+/)?(?:[0-9a-f]{8}-)?")
"""What Label Studio puts before the name of an uploaded file."""
LOCAL_FILES = re.compile(r"^.*/data/local-files/\?d=")
"""What Label Studio puts before the path of a file that was not uploaded."""


def named_audio_key(name: str) -> str:
    """Return the key of audio by the path or name that transcripts give.

    A name without suffix of audio may have a dot.
    """
    return key_of_audio(ensure_audio_suffix(name))


def ensure_audio_suffix(name: str) -> str:
    """Return a path or name of audio, with a suffix that `key_of_audio` may remove."""
    return name if name.rpartition(".")[2].lower() in AUDIO_SUFFIXES else f"{name}.wav"


def audio_below(folder: Path) -> list[Path]:
    """Return files below a folder that are audio by their names."""
    return [file for file in files_below(folder) if _is_audio(file)]


def _is_audio(file: Path) -> bool:
    return file.suffix[1:].lower() in AUDIO_SUFFIXES


def compose_accents(name: str) -> str:
    """Return a name in which an accent is part of its letter (NFC).

    On macOS, names of files have accents as characters of their own.
    """
    return normalize("NFC", name)


def find_audio(
    wavs: Iterable[str], folders: Sequence[Path], audio: Path | None
) -> dict[str, list[Path]]:
    """Find the files that names in transcripts may mean, as {name: files}.

    A name is first tried as a path relative to each folder in turn. Otherwise it is compared with
    the audio below `audio`: by relative path with any suffix, then by file name with any suffix. At
    last files are compared that are no audio by their suffix, such as `a.3gp`: by the whole name.
    Of several files with that name, those whose last folders are as in the name are taken. Accents
    may be parts of letters or characters of their own.

    Returns:
        for each name one absolute path, several paths if it is ambiguous, or none if no file fits.
    """
    files_of = {}
    for wav in wavs:
        file = file_at(wav, folders)
        files_of[wav] = [file] if file else []
    missing = [wav for wav, files in files_of.items() if not files]
    if audio and missing:
        files_of |= _find_below(audio, missing)
    return files_of


def slash_separated(name: str) -> str:
    """Return a path of Windows, such as `clips\\a.wav`, with slashes."""
    return name.replace("\\", "/")


def without_upload(name: str) -> str:
    """Return the path or name that a server of annotations had before it was uploaded.

    Label Studio puts `/data/upload/1/1a2b3c4d-` or `/data/local-files/?d=` in front.
    """
    path = unquote(LOCAL_FILES.sub("", name))
    return UPLOADED.sub("", path)


def file_at(wav: str, folders: Sequence[Path]) -> Path | None:
    """Return the first file at a path relative to the folders; None if there is none.

    Its accents may have any form, and backslashes may separate its folders. A path may name a place
    in a Kaldi archive (`data.ark:1234`), which is returned with it.
    """
    place = place_of(wav)
    if place.offset is not None:
        archive = file_at(place.path, folders)
        if archive is None:
            return None
        return archive.with_name(archive.name + wav.removeprefix(place.path))

    spellings = [wav, slash_separated(wav)]
    if not wav.isascii():
        for name in spellings[:2]:
            spellings += [normalize("NFC", name), normalize("NFD", name)]

    for name in dict.fromkeys(spellings):
        for folder in folders:
            path = os.path.abspath(folder / name)  # noqa: PTH100 - resolve() would follow links
            # Path.is_file() raises OSError if a text in the column of the audio is too long.
            if os.path.isfile(path):  # noqa: PTH113
                return Path(path)

    return None


def _find_below(audio: Path, wavs: Iterable[str]) -> dict[str, list[Path]]:
    """Return {name of the table: files below the folder of audio that it may mean}.

    The first kind of match that finds a file counts: path, path without suffix, name without
    suffix, name. Of files with equal names, those in the folders that the table names are taken.
    """
    by_path, by_stem, by_name = _index_names(audio)
    files_of: dict[str, list[Path]] = {}
    for wav in wavs:
        name = compose_accents(without_upload(slash_separated(wav)))
        path = Path(name)
        # A dot need not begin a suffix: `a.1` may be `a.1.wav`, which comes before `a.wav`.
        named_file = Path(ensure_audio_suffix(name))

        candidates = (
            by_path.get(name),
            by_path.get(str(path.with_suffix(""))),
            by_stem.get(named_file.stem),
            by_stem.get(path.stem),
            by_name.get(path.name),
        )
        files = next(filter(None, candidates), [])
        in_its_folders = [file for file in files if _has_folders(file, named_file)]
        files_of[wav] = [file.absolute() for file in in_its_folders or files]

    return files_of


def _has_folders(file: Path, name: Path) -> bool:
    """Tell whether a file is in the folders of a name: `x/a/b/1.wav` in those of `a/b/1.flac`."""
    folders = name.parent.parts
    inner_folders = Path(compose_accents(str(file))).parent.parts[-len(folders) :]
    return not folders or inner_folders == folders


def _index_names(folder: Path) -> tuple[dict[str, list[Path]], ...]:
    """Return audio below a folder by relative path and by file name, both without suffix, and all
    files by their whole names.
    """
    by_path: dict[str, list[Path]] = {}
    by_stem: dict[str, list[Path]] = {}
    by_name: dict[str, list[Path]] = {}
    for file in files_below(folder):
        by_name.setdefault(compose_accents(file.name), []).append(file)
        if _is_audio(file):
            path = compose_accents(str(file.relative_to(folder).with_suffix("")))
            by_path.setdefault(path, []).append(file)
            by_stem.setdefault(compose_accents(file.stem), []).append(file)

    return by_path, by_stem, by_name
