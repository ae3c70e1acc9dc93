"""Read a user's own corpus in any form of READERS, and divide it into train, dev and test."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from wenet_uio.dataset.corpus.indexing import THREADS
from wenet_uio.dataset.formats.data_list import RawLine, with_distinct_keys
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.formats.keys import Audio
from wenet_uio.prepare.audio_headers import inside_audio
from wenet_uio.prepare.audio_search import audio_below, find_audio
from wenet_uio.prepare.corpus_parts import Recording, tell_left_out
from wenet_uio.prepare.division import PART_COLUMNS, divide, part_of
from wenet_uio.prepare.looking import (
    TABLE_FORMS,
    description,
    folder_of,
    form_of,
    hint_of_tars,
    table_of,
    with_parts_of_folders,
)
from wenet_uio.prepare.readers import READERS
from wenet_uio.prepare.separated import KNOWN_COLUMNS, field_of
from wenet_uio.prepare.texts import TEXTS, normalised

NAMED_AUDIO = frozenset({"ljspeech", "transcripts", "pairs", "srt", "vtt", "textgrid", "ctm"})
"""Forms whose transcripts give names rather than paths of audio, which is searched in their
folder."""
NAMING_TABLES = frozenset({"ljspeech", "transcripts", "ctm"})
"""Forms in which one file has the texts of all audio of a folder."""
EMBEDDED_AUDIO = frozenset({"parquet"})
"""Forms whose files hold the audio."""


@dataclass(frozen=True)
class ReadOptions:
    """How files of transcripts are read."""

    form: str | None = None
    """A key of READERS; None finds out the form by looking."""
    audio: Path | None = None
    """Folder that is searched for audio; see `find_audio`."""
    relative_to: Path = Path()
    """Folder for relative paths of audio that do not exist relative to the transcripts."""
    text_field: str | None = None
    """Column, tier or suffix of the text, where there are several."""

    def folders(self, beside: Path) -> list[Path]:
        """Return folders of relative paths, in the order in which they are tried."""
        folders = (beside, self.audio, self.relative_to.absolute())
        return [folder for folder in dict.fromkeys(folders) if folder]

    def searches(self, path: Path) -> bool:
        """Tell whether the audio of transcripts is searched by name."""
        if self.audio is not None:
            return True
        form = self.form or (form_of(path) if path.exists() else None)
        return form in NAMED_AUDIO


BY_LOOKING = ReadOptions()
"""Options that find out the form by looking."""


def add_options(parser: ArgumentParser) -> None:
    """Add the options that the commands reading a user's own corpus share.

    `read_options` evaluates some of them.
    """
    parser.add_argument(
        "--dev", type=Path, help="transcripts of the development part, if it has its own file"
    )
    parser.add_argument(
        "--test", type=Path, help="transcripts of the test part, if it has its own file"
    )
    parser.add_argument(
        "--audio", type=Path, help="folder to search for audio (default: paths as transcripts say)"
    )
    parser.add_argument(
        "--form", choices=READERS, help="form of the transcripts (default: found out by looking)"
    )
    parser.add_argument(
        "--text_field", help="column, tier or suffix of the texts, where there are several"
    )
    parser.add_argument(
        "--text",
        choices=TEXTS,
        default="keep",
        help="how transcripts are normalised; clean: without characters that nobody sees, see "
        "wenet_uio/text/README.md (default: %(default)s)",
    )


def read_options(args: Namespace, relative_to: Path) -> ReadOptions:
    """Return the options of `add_options` that say how transcripts are read."""
    return ReadOptions(args.form, args.audio, relative_to, args.text_field)


def read_corpus(
    transcripts: Path,
    options: ReadOptions = BY_LOOKING,
    *,
    dev: Path | None = None,
    test: Path | None = None,
    text: str = "keep",
) -> dict[str, list[Recording]]:
    """Read the utterances of a corpus by part.

    Those that are not inside their audio are left out: see `inside_audio`.

    Args:
        transcripts: the utterances of train, or of all parts that have no file of their own.
        dev: the utterances of the development part.
        test: the utterances of the test part.
        text: a key of TEXTS.

    Raises:
        ListError: an utterance names another part than its file; also the errors of
            `read_transcripts`, `inside_audio` and `into_parts`.
    """
    lines = read_transcripts(transcripts, options)
    if (dev or test) and not any(part_of(line) for line in lines):
        lines = _of_part("train", lines, transcripts)

    for part, path in (("dev", dev), ("test", test)):
        if path:
            lines += _of_part(part, read_transcripts(path, options), path)

    return into_parts(inside_audio(lines, str(transcripts), THREADS), text)


def read_lines(path: Path, options: ReadOptions) -> list[RawLine]:
    """Read the utterances of a file or folder of transcripts, and print what was understood.

    Audio is not searched.

    Raises:
        ListError: the file is missing, empty or not in its form, or its form is not known.
    """
    lines, form = _read(path, options)
    print(description(path, form, lines), flush=True)
    return lines


def read_transcripts(path: Path, options: ReadOptions = BY_LOOKING) -> list[RawLine]:
    """Read the utterances of a file or folder of transcripts, with absolute paths of audio.

    What was understood is printed. If `path` is a folder with folders `train` and `test`, and maybe
    `dev`, their audio is of these parts.

    Raises:
        ListError: as `read_lines`; or audio is missing, or may be one of several files.
    """
    path = path.absolute()
    lines, form = _read(path, options)
    if form not in EMBEDDED_AUDIO:
        lines = _with_audio(lines, path, form, options)
    if path.is_dir() and form in NAMING_TABLES:
        _tell_unused(lines, path, options.audio or path)
    if path.is_dir() and form != "kaldi":
        lines = with_parts_of_folders(lines, path)

    print(description(path, form, lines), flush=True)
    return lines


def _tell_unused(lines: Sequence[RawLine], path: Path, audio: Path) -> None:
    """Print how many audio files below `audio` no line names."""
    used = {os.path.abspath(line.wav) for line in lines}  # noqa: PTH100 - resolve() would follow links
    unused = [str(wav) for wav in audio_below(audio) if os.path.abspath(wav) not in used]  # noqa: PTH100
    tell_left_out(f"{path}: audio without a text", unused)


def _with_audio(
    lines: Sequence[RawLine], path: Path, form: str, options: ReadOptions
) -> list[RawLine]:
    """Return the lines with absolute paths of their audio."""
    beside = folder_of(path)
    folders = options.folders(beside)
    audio = options.audio or (beside if form in NAMED_AUDIO else None)
    audio_files = find_audio(dict.fromkeys(line.wav for line in lines), folders, audio)
    for line in lines:
        if len(audio_files[line.wav]) != 1:
            may_be_header = line is lines[0] and form in ("tsv", "csv")
            reason = _why_not_one(audio_files[line.wav], folders)
            raise ListError(
                f"{path}: {line.key}: audio {line.wav} {reason}; {_hint(line, may_be_header)}"
                f"{hint_of_tars(path, lines)}"
            )

    return [replace(line, wav=str(audio_files[line.wav][0])) for line in lines]


def _read(path: Path, options: ReadOptions) -> tuple[list[RawLine], str]:
    """Read the utterances by the reader of their form; return them and the form."""
    if not path.exists():
        raise ListError(f"{path}: not there; name a file of transcripts, or a folder")

    form = options.form or form_of(path)
    table = table_of(path) if path.is_dir() and form in TABLE_FORMS else None
    lines = READERS[form](str(table or path), options.text_field)
    if not lines:
        raise ListError(f"{path}: no utterance in it")

    return lines, form


def _why_not_one(files: Sequence[Path], folders: Sequence[Path]) -> str:
    """Explain a failed lookup of audio: ambiguous or missing."""
    if files:
        return f"may be {files[0]} or {files[1]}"
    return f"is not in {' or '.join(map(str, folders))}"


def _hint(line: RawLine, may_be_header: bool) -> str:
    """Say what to do about missing audio.

    A first row whose audio has no suffix is probably a header.
    """
    if may_be_header and not Path(line.wav).suffix:
        return f"columns that the first row may name are {KNOWN_COLUMNS}"
    return "write / in place of \\ in paths" if "\\" in line.wav else "see --audio"


def into_parts(lines: Sequence[RawLine], normalisation: str) -> dict[str, list[Recording]]:
    """Divide utterances into train, dev and test.

    Texts are normalised, and keys fit into tables.

    Args:
        normalisation: name of a normalisation of texts, a key of TEXTS in texts.py.

    Raises:
        ListError: two utterances have the same key, or an utterance is of a channel other than the
            first; also the errors of `divide`.
    """
    lines = normalised(_with_keys(lines), normalisation)
    for line in lines:
        channel = line.extra.get("channel")
        if channel not in (None, "", 0, "0"):
            raise ListError(f"{line.key}: channel {channel}; save the channel as a file of its own")

    def recording(line: RawLine) -> Recording:
        return Recording(line.key, Path(line.wav), line.text, line.start, line.end)

    return {part: list(map(recording, members)) for part, members in divide(lines).items()}


def _of_part(part: str, lines: Sequence[RawLine], path: Path) -> list[RawLine]:
    """Return the lines of a file of one part, with this part in their fields."""
    for line in lines:
        if part_of(line) not in (part, None):
            raise ListError(
                f"{path}: {line.key}: {PART_COLUMNS} says {field_of(line, 'part')!r} in the file "
                f"of {part}"
            )
    return [replace(line, extra=line.extra | {"part": part}) for line in lines]


def _with_keys(lines: Sequence[RawLine]) -> list[RawLine]:
    """Return lines with unique keys by the rule of `formats/keys.py`.

    Lines without a key of their own each need audio of their own.
    """
    with_keys = with_distinct_keys(lines)
    # By key, and by audio for lines whose key comes from their audio
    wav_of: dict[str | Audio, str] = {}
    for original, line in zip(lines, with_keys, strict=True):
        identity = line.audio_of_key or line.key
        if line.audio_of_key and identity in wav_of:  # no line states this key
            raise ListError(
                f"{original.key}: two utterances are the same part of {line.wav}; remove one of "
                "them"
            )

        if identity in wav_of or line.key in wav_of:
            other = wav_of.get(identity) or wav_of[line.key]
            raise ListError(
                f"{original.key}: two utterances have this key, of {other} and {line.wav}"
            )

        wav_of[identity] = wav_of[line.key] = line.wav

    return with_keys
