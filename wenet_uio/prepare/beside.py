"""Find the files of text that stand beside audio files, or in folders of the same names; read texts.

The file of text has the name of the audio and a field: `a.wav` has `a.txt` (field `txt`) or
`a.en.srt` (`en.srt`).
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.formats.sample_layout import AUDIO_SUFFIXES
from wenet_uio.prepare.audio_search import compose_accents, named_audio_key
from wenet_uio.prepare.corpus_parts import files_below, tell_left_out
from wenet_uio.prepare.encodings import read_text_file
from wenet_uio.prepare.forms import FORM_OF_SUFFIX, FORMS

PAIR_SUFFIXES = ("txt", "lab", "trn", "text")
"""Suffixes of files with the text of one audio file, or with labels of Audacity."""
FORM_OF = dict.fromkeys(PAIR_SUFFIXES, "pairs") | {
    suffix: form for suffix, form in FORM_OF_SUFFIX.items() if FORMS[form].is_beside_audio
}
"""Suffix of a file of text -> form of its corpus."""


class TextFile(NamedTuple):
    """A file of text, and the audio beside it."""

    path: Path
    audios: list[Path]
    """The audio files of its name that are beside it; `pair_audio_and_texts` refuses several, such as `a.wav`
    and `a.flac`."""
    field: str
    """What its name has behind that of the audio: `txt`, `en.srt`."""

    @property
    def audio(self) -> Path | None:
        """The audio of its name that is beside it; None if there is none."""
        return self.audios[0] if self.audios else None

    @property
    def form(self) -> str:
        """The form of a corpus of such files; empty if the suffix does not say it."""
        return FORM_OF.get(self.path.suffix[1:].lower(), "")


class FilesOfFolder(NamedTuple):
    """The files of a corpus."""

    texts: list[TextFile]
    audio: list[Path]


def corpus_files(path: Path) -> FilesOfFolder:
    """Return the files of text and of audio of a corpus.

    `path` is a folder, or one file of text with its audio beside it.
    """
    if path.is_dir():
        files = list(files_below(path))
        texts = [file for file in files if file.suffix[1:].lower() in FORM_OF]
    else:
        files = [file for file in path.parent.iterdir() if file.is_file()]
        texts = [path]

    audio = _audio_by_name(files)
    text_files = [_find_audio_beside(text, audio) for text in texts]
    has_audio_beside = any(file.audio for file in text_files)
    # Without any audio beside a text, the audio may have the names of the texts in other folders.
    if path.is_dir() and audio and not has_audio_beside:
        text_files = [_find_audio_apart(file, path, audio) for file in text_files]

    return FilesOfFolder(text_files, list(itertools.chain.from_iterable(audio.values())))


def _audio_by_name(files: Sequence[Path]) -> dict[Path, list[Path]]:
    """Return the files of audio by their paths without suffix."""
    audio_of: dict[Path, list[Path]] = defaultdict(list)
    for file in files:
        if file.suffix[1:].lower() in AUDIO_SUFFIXES:
            audio_of[_compose_name(file.with_suffix(""))].append(file)

    return dict(audio_of)


def _compose_name(path: Path) -> Path:
    """Return a path in whose name an accent is part of its letter, as texts and audio may differ."""
    return path.with_name(compose_accents(path.name))


def _find_audio_beside(path: Path, audio: dict[Path, list[Path]]) -> TextFile:
    """Return a file of text with the audio that has the longest part of its name, up to a dot."""
    pieces = path.name.split(".")
    for count in range(len(pieces) - 1, 0, -1):
        audio_name = ".".join(pieces[:count])
        recordings = audio.get(_compose_name(path.parent / audio_name))
        if recordings:
            return TextFile(path, recordings, field=".".join(pieces[count:]))

    return TextFile(path, [], field=pieces[-1])


def _find_audio_apart(file: TextFile, corpus: Path, audio: dict[Path, list[Path]]) -> TextFile:
    """Find the audio of a file of text in another folder of the corpus: for `txt/p225/a.txt`,
    `wav48/p225/a.wav`.

    If several files have that name, those are taken whose inner folders (`p225`) are the same.

    Args:
        audio: {path without suffix: the audio files}.
    """
    name = _compose_name(file.path.with_suffix("")).name
    stems = [stem for stem in audio if stem.name == name]
    if len(stems) > 1:
        # Without the top folder, `txt` or `wav48`, and the name itself
        inner_folders = file.path.relative_to(corpus).parts[1:-1]
        stems = [stem for stem in stems if stem.relative_to(corpus).parts[1:-1] == inner_folders]

    recordings: list[Path] = []
    for stem in stems:
        recordings += audio[stem]

    return TextFile(file.path, recordings, field=file.path.suffix[1:])


def read_pairs(path: str, text_field: str | None = None) -> list[RawLine]:
    """Read a folder in which each audio file has a file with its text; lines of a text are joined.

    Raises:
        ListError: see `pair_audio_and_texts`; or every text is empty.
    """
    lines, empty = [], []
    for wav, file in pair_audio_and_texts(Path(path), "pairs", text_field):
        text = " ".join(read_text_file(file).split())
        if text:
            lines.append(RawLine(named_audio_key(wav), wav, text, is_named_by_audio=True))
        else:
            empty.append(str(file))

    tell_left_out(f"{path}: files without a text", empty)
    return lines


def pair_audio_and_texts(path: Path, form: str, text_field: str | None) -> list[tuple[str, Path]]:
    """Pair audio with files of text: (name of the audio, text file).

    Audio that is not beside its text is named without suffix.

    Raises:
        ListError: no file of that form is found, an audio file has several, or a file of text has
            several of audio.
    """
    files = corpus_files(path)
    texts = select_text_files(files.texts, path, form, text_field)
    has_audio = any(file.audio for file in texts)
    if not has_audio:  # the audio is elsewhere, below --audio
        root = path if path.is_dir() else path.parent
        pairs: list[tuple[str, Path]] = []
        for file in texts:
            name = str(file.path.relative_to(root))
            pairs.append((name.removesuffix(f".{file.field}"), file.path))

        return pairs

    check_single(texts)
    if path.is_dir():
        _tell_unmatched(path, texts, files.audio)

    return [(str(file.audio), file.path) for file in texts if file.audio]


def _tell_unmatched(path: Path, texts: Sequence[TextFile], audio: Sequence[Path]) -> None:
    """Print on stderr which audio has no text, and which texts have no audio."""
    used = {file.audio for file in texts}
    unused = [str(wav) for wav in audio if wav not in used]
    tell_left_out(f"{path}: audio without a text", unused)
    unmatched = [str(file.path) for file in texts if not file.audio]
    tell_left_out(f"{path}: texts without audio", unmatched)


def select_text_files(
    texts: Sequence[TextFile], path: Path, form: str, text_field: str | None
) -> list[TextFile]:
    """Return the files of a form that have the field.

    A single file is of the form that is asked for, whatever its name.

    Raises:
        ListError: there is none.
    """
    suffixes = FORMS[form].suffixes or PAIR_SUFFIXES
    # Of a form without suffixes of its own, such as labels of Audacity, the files are `pairs`.
    form_of_suffix = FORM_OF[suffixes[0]]
    files: list[TextFile] = []
    for file in texts:
        has_form = path.is_file() or file.form == form_of_suffix
        # `en` stands for the whole field `en.srt`.
        fields = (file.field, file.field.removesuffix(file.path.suffix))
        has_field = text_field is None or text_field in fields
        if has_form and has_field:
            files.append(file)

    if not files:
        expected = text_field or " or ".join(f".{suffix}" for suffix in suffixes)
        raise ListError(f"{path}: no file {expected} in it")

    return files


def check_single(texts: Sequence[TextFile]) -> None:
    """Raise ListError if audio may have two texts, or a text two audio files."""
    first_of_audio: dict[Path, TextFile] = {}
    for file in texts:
        if len(file.audios) > 1:
            names = " or ".join(sorted(audio.name for audio in file.audios))
            raise ListError(
                f"{file.path}: its audio may be {names}; move one of them to another folder"
            )
        if file.audio is None:
            continue

        first = first_of_audio.get(file.audio)
        if first is not None:
            raise ListError(
                f"{file.audio}: its text may be {first.path.name} or {file.path.name}; "
                f"name one: --text_field {first.field} or --text_field {file.field}"
            )
        first_of_audio[file.audio] = file
