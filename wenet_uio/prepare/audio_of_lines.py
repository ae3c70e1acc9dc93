"""Find the audio files of the lines of a corpus, and name what is missing."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from wenet_uio.base.messages import listed
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.storage import objects
from wenet_uio.prepare.audio_search import audio_below, find_audio
from wenet_uio.prepare.columns import KNOWN_COLUMNS
from wenet_uio.prepare.corpus_parts import NAMED, tell_left_out
from wenet_uio.prepare.looking import tarred_audio_hint
from wenet_uio.prepare.separated import MOST_NAMED


class AudioSearch(NamedTuple):
    """Where the audio of a corpus is looked for."""

    folders: Sequence[Path]
    """Folders of relative paths, in their order."""
    searched_folder: Path | None
    """Folder that is searched by name; None if paths are all that is tried."""
    is_table: bool
    """The corpus is a table, whose names may be paths of another machine, or no names at all."""


def find_audio_files(
    lines: Sequence[RawLine], path: Path, search: AudioSearch, allow_bad: bool
) -> list[RawLine]:
    """Return the lines with absolute paths of their audio; URIs stay.

    Raises:
        ListError: audio is missing or may be one of several files, and `allow_bad` does not leave
            its lines out.
    """
    names = dict.fromkeys(line.wav for line in lines if not objects.is_remote(line.wav))
    files_of = find_audio(names, search.folders, search.searched_folder)
    if search.is_table:
        files_of = _drop_shared(files_of)

    missing: dict[str, str] = {}  # name -> why it is not one file
    for wav, files in files_of.items():
        if len(files) > 1:
            missing[wav] = f"may be {files[0]} or {files[1]}"
        elif not files:
            missing[wav] = f"is not in {' or '.join(map(str, search.folders))}"

    if missing and not allow_bad:
        raise _missing_error(path, lines, files_of, missing, search)

    tell_left_out(f"{path}: audio files not found", list(missing))
    located: list[RawLine] = []
    for line in lines:
        if line.wav in missing:
            continue
        if line.wav in files_of:  # a URI is in none of them
            [file] = files_of[line.wav]
            line = replace(line, wav=str(file))
        located.append(line)

    return located


def _missing_error(
    path: Path,
    lines: Sequence[RawLine],
    files_of: Mapping[str, list[Path]],
    missing: Mapping[str, str],
    search: AudioSearch,
) -> ListError:
    """Return an error that names the missing audio, with what to do."""
    first = lines[0]
    is_missing_recording = first.wav in missing and first.end is None
    # A first row of a table whose audio has no suffix is probably a header.
    is_header = search.is_table and is_missing_recording and not Path(first.wav).suffix
    hint = (
        f"columns that the first row may name are {KNOWN_COLUMNS}" if is_header else "see --audio"
    )
    hint += tarred_audio_hint(path, lines)

    if len(missing) == 1:
        [(wav, reason)] = missing.items()
        key = next(line.key for line in lines if line.wav == wav)
        return ListError(f"{path}: {key}: audio {wav} {reason}; {hint}")

    shown_names: list[str] = []
    for wav, reason in missing.items():
        is_ambiguous = bool(files_of[wav])
        shown_names.append(f"{wav} {reason}" if is_ambiguous else wav)

    return missing_audio(path, shown_names, f"; {hint}", search.folders)


def use_one_recording(lines: Sequence[RawLine], path: Path, audio: Path) -> list[RawLine]:
    """Return the lines with the one recording that `--audio` names.

    Raises:
        ListError: the lines are of several recordings.
    """
    names = list(dict.fromkeys(line.wav for line in lines))
    if len(names) > 1:
        raise ListError(
            f"{path}: has {len(names)} recordings ({listed(names, NAMED)}), and --audio {audio} is "
            "one; name the folder of all"
        )
    return [replace(line, wav=str(audio.absolute())) for line in lines]


def _drop_shared(files_of: Mapping[str, list[Path]]) -> dict[str, list[Path]]:
    """Return the files of each name, none for names of a table that would share one file.

    Such a file was found by its name only, and would be taken for all files of that name.
    """
    names_of_file = Counter(files[0] for files in files_of.values() if len(files) == 1)
    own_files: dict[str, list[Path]] = {}
    for name, files in files_of.items():
        is_shared = len(files) == 1 and names_of_file[files[0]] > 1
        own_files[name] = [] if is_shared else files

    return own_files


def missing_audio(
    path: str | Path, wavs: Collection[str], hint: str = "", folders: Sequence[Path] = ()
) -> ListError:
    """Return an error that names all missing audio of a corpus, up to MOST_NAMED files.

    Args:
        wavs: paths or names of the audio.
        hint: what to do, besides `--allow_bad`.
        folders: where the audio was looked for.
    """
    where = f" in {' or '.join(map(str, folders))}" if folders else ""
    allowed = "; --allow_bad leaves them out" if len(wavs) > 1 else ""
    names = listed(wavs, MOST_NAMED)
    return ListError(f"{path}: {len(wavs)} audio file(s) not found{where}: {names}{allowed}{hint}")


def tell_unused(lines: Sequence[RawLine], path: Path, audio: Path) -> None:
    """Print how many audio files below `audio` no line names."""
    used = {os.path.abspath(line.wav) for line in lines}  # noqa: PTH100 - resolve() would follow links
    unused = [str(wav) for wav in audio_below(audio) if os.path.abspath(wav) not in used]  # noqa: PTH100
    tell_left_out(f"{path}: audio without a text", unused)
