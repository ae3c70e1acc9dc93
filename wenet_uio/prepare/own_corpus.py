"""Read a user's own corpus in any form of FORMS, and divide it into train, dev and test."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from wenet_uio.dataset.corpus.open_list import THREADS
from wenet_uio.dataset.formats.data_list import RawLine, with_distinct_keys
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.formats.keys import Audio
from wenet_uio.prepare.audio_headers import inside_audio
from wenet_uio.prepare.audio_of_lines import (
    AudioSearch,
    find_audio_files,
    tell_unused,
    use_one_recording,
)
from wenet_uio.prepare.corpus_parts import Recording
from wenet_uio.prepare.division import PART_COLUMNS, divide_utterances, stated_part
from wenet_uio.prepare.forms import FORMS
from wenet_uio.prepare.looking import (
    add_folder_parts,
    containing_folder,
    describe_corpus,
    detect_form,
    metadata_table,
)
from wenet_uio.prepare.piped_audio import run_commands
from wenet_uio.prepare.separated import TableOptions, known_field
from wenet_uio.prepare.texts import TEXTS, normalise_lines


@dataclass(frozen=True)
class ReadOptions:
    """How files of transcripts are read."""

    form: str | None = None
    """A key of FORMS; None finds out the form by looking."""
    audio: Path | None = None
    """Folder that is searched for audio; see `find_audio`."""
    relative_to: Path = Path()
    """Folder for relative paths of audio that do not exist relative to the transcripts."""
    text_field: str | None = None
    """Column, tier or suffix of the text, where there are several."""
    audio_field: str | None = None
    """Column of the audio in a table."""
    allow_bad: bool = False
    """Rows that cannot be used, and those whose audio is missing, are left out."""
    outputs: Path | None = None
    """Folder for the audio that commands of wav.scp write; None if commands are not trusted."""

    def folders(self, beside: Path) -> list[Path]:
        """Return folders of relative paths, in the order in which they are tried."""
        folders = (beside, self.audio, self.relative_to.absolute())
        return [folder for folder in dict.fromkeys(folders) if folder]

    def searches(self, path: Path) -> bool:
        """Tell whether the audio of transcripts is searched by name."""
        if self.audio is not None:
            return True

        form = self.form
        if form is None and path.exists():
            form = detect_form(path)
        return form is not None and FORMS[form].audio in ("names", "tables")

    def table_options(self, path: Path) -> TableOptions:
        """Return how a table is read."""
        is_folder = self.audio is not None and self.audio.is_dir()
        searched_folder = self.audio if is_folder else None
        folders = tuple(folder for folder in self.folders(path.parent) if folder.is_dir())
        return TableOptions(self.audio_field, folders, searched_folder, self.allow_bad)


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
        "--form", choices=FORMS, help="form of the transcripts (default: found out by looking)"
    )
    add_read_options(parser)


def add_read_options(parser: ArgumentParser) -> None:
    """Add the options of all commands that read transcripts of any form."""
    parser.add_argument(
        "--audio",
        type=Path,
        help="folder to search for audio, or the one recording of the transcripts (default: paths "
        "as transcripts say)",
    )
    parser.add_argument(
        "--audio_field", help="column of the audio in a table, by name or number from 1"
    )
    parser.add_argument(
        "--text_field",
        help="column, tier or suffix of the texts, where there are several; a column by name or "
        "number from 1",
    )
    parser.add_argument(
        "--text",
        choices=TEXTS,
        default="none",
        metavar="RULES",
        help=f"how transcripts are normalised: {', '.join(TEXTS)}; none (or keep) changes nothing, "
        "clean removes characters that nobody sees, see docs/reference/tokenizers.md",
    )
    parser.add_argument(
        "--allow_bad",
        action="store_true",
        help="leave out rows that cannot be used and those whose audio is missing, and name them",
    )
    parser.add_argument(
        "--trust_commands",
        action="store_true",
        help="run the commands of wav.scp, such as `sox a.sph -t wav - |`, and keep their audio; a "
        "command can do anything, so trust where the table comes from",
    )


def read_options(args: Namespace, relative_to: Path, outputs: Path) -> ReadOptions:
    """Return the options of `add_options` that say how transcripts are read.

    Args:
        outputs: folder for the audio of commands, if `--trust_commands` is given.
    """
    return ReadOptions(
        form=args.form,
        audio=args.audio,
        relative_to=relative_to,
        text_field=args.text_field,
        audio_field=args.audio_field,
        allow_bad=args.allow_bad,
        outputs=outputs if args.trust_commands else None,
    )


def read_corpus(
    transcripts: Path,
    options: ReadOptions = BY_LOOKING,
    *,
    dev: Path | None = None,
    test: Path | None = None,
    text: str = "none",
) -> dict[str, list[Recording]]:
    """Read the utterances of a corpus by part.

    Those that are not inside their audio are left out: see `inside_audio`.

    Args:
        transcripts: the utterances of train, or of all parts that have no file of their own.
        dev: the utterances of the development part.
        test: the utterances of the test part; those of the development part are decoded as test.
        text: a key of TEXTS.

    Raises:
        ListError: an utterance names another part than its file; also the errors of
            `read_transcripts`, `inside_audio` and `into_parts`.
    """
    lines = read_transcripts(transcripts, options)
    if (dev or test) and not any(stated_part(line) for line in lines):
        lines = _assign_part("train", lines, transcripts)

    if dev:
        lines += _assign_part("dev", read_transcripts(dev, options), dev)
    if test:
        test_lines = read_transcripts(test, options)
        dev_audio = {_audio_span(line) for line in lines if stated_part(line) == "dev"}
        # A test file of the audio of dev adds nothing: without a part test, dev is decoded as test.
        if {_audio_span(line) for line in test_lines} != dev_audio:
            lines += _assign_part("test", test_lines, test)

    return into_parts(inside_audio(lines, str(transcripts), THREADS), text)


def read_lines(path: Path, options: ReadOptions) -> list[RawLine]:
    """Read the utterances of a file or folder of transcripts, and print what was understood.

    Audio is not searched.

    Raises:
        ListError: the file is missing, empty or not in its form, or its form is not known.
    """
    lines, form = _read_by_form(path, options)
    print(describe_corpus(path, form, lines), flush=True)
    return lines


def read_transcripts(path: Path, options: ReadOptions = BY_LOOKING) -> list[RawLine]:
    """Read the utterances of a file or folder of transcripts, with absolute paths of audio.

    What was understood is printed. If `path` is a folder with folders `train`, and `test` or `dev`,
    their audio is of these parts.

    Raises:
        ListError: as `read_lines`; or audio is missing, or may be one of several files.
    """
    path = path.absolute()
    lines, form = _read_by_form(path, options)
    if FORMS[form].audio != "inside":
        lines = _locate_audio(lines, path, form, options)
    if not lines:
        raise ListError(f"{path}: no utterance in it whose audio exists")
    if path.is_dir() and FORMS[form].names_all_audio:
        tell_unused(lines, path, options.audio or path)
    if path.is_dir() and form != "kaldi":
        lines = add_folder_parts(lines, path)

    print(describe_corpus(path, form, lines), flush=True)
    return lines


def _locate_audio(
    lines: Sequence[RawLine], path: Path, form: str, options: ReadOptions
) -> list[RawLine]:
    """Return the lines with absolute paths of their audio; those of missing audio may be left out.

    `--audio` may be the one recording of all lines. If it is a folder, audio is searched in it.
    """
    if options.audio is not None and options.audio.is_file():
        return use_one_recording(lines, path, options.audio)

    beside = containing_folder(path)
    audio = FORMS[form].audio
    searched_folder = options.audio
    if searched_folder is None and audio in ("names", "tables"):
        searched_folder = beside

    search = AudioSearch(options.folders(beside), searched_folder, audio == "tables")
    return find_audio_files(lines, path, search, options.allow_bad)


def _read_by_form(path: Path, options: ReadOptions) -> tuple[list[RawLine], str]:
    """Read the utterances by the reader of their form; return them and the form."""
    if not path.exists():
        raise ListError(f"{path}: not there; name a file of transcripts, or a folder")

    name = options.form or detect_form(path)
    form = FORMS[name]
    source = path
    if path.is_dir() and form.describes_folder:
        source = metadata_table(path) or path

    if form.has_columns:
        lines = form.read(str(source), options.text_field, options.table_options(source))
    elif name == "kaldi":
        lines = form.read(str(source), options.text_field, with_commands=True)
        lines = run_commands(lines, path, options.outputs, options.allow_bad)
    elif options.audio_field:
        tables = sorted(table for table in FORMS if FORMS[table].has_columns)
        raise ListError(f"{path}: --audio_field is for tables ({', '.join(tables)})")
    else:
        lines = form.read(str(source), options.text_field)

    if not lines:
        raise ListError(f"{path}: no utterance in it")

    return lines, name


def into_parts(lines: Sequence[RawLine], normalisation: str) -> dict[str, list[Recording]]:
    """Divide utterances into train, dev and test.

    Texts are normalised, and keys fit into tables.

    Args:
        normalisation: name of a normalisation of texts, a key of TEXTS in texts.py.

    Raises:
        ListError: two utterances have the same key, or an utterance is of a channel other than the
            first; also the errors of `divide_utterances`.
    """
    lines = normalise_lines(_distinct_keys(lines), normalisation)
    for line in lines:
        channel = line.extra.get("channel")
        if channel not in (None, "", 0, "0"):
            raise ListError(f"{line.key}: channel {channel}; save the channel as a file of its own")

    parts: dict[str, list[Recording]] = {}
    for part, members in divide_utterances(lines).items():
        parts[part] = [
            Recording(line.key, Path(line.wav), line.text, line.start, line.end) for line in members
        ]

    return parts


def _audio_span(line: RawLine) -> Audio:
    """Return the audio of a line: file, start and end."""
    return line.wav, line.start, line.end


def _assign_part(part: str, lines: Sequence[RawLine], path: Path) -> list[RawLine]:
    """Return the lines of a file of one part, with this part in their fields."""
    for line in lines:
        if stated_part(line) not in (part, None):
            raise ListError(
                f"{path}: {line.key}: {PART_COLUMNS} says {known_field(line, 'part')!r} in the file "
                f"of {part}"
            )
    return [replace(line, extra=line.extra | {"part": part}) for line in lines]


def _distinct_keys(lines: Sequence[RawLine]) -> list[RawLine]:
    """Return the lines with longer keys where keys made of file names clash.

    Raises:
        ListError: two lines without a stated key are the same audio, or two lines have one key.
    """
    distinct_lines = with_distinct_keys(lines)
    wav_of_key: dict[str, str] = {}
    audio_of_keys: set[Audio] = set()  # of the lines whose key is made of the name of their audio
    for original, line in zip(lines, distinct_lines, strict=True):
        if line.audio_of_key in audio_of_keys:
            raise ListError(
                f"{original.key}: two utterances are the same part of {line.wav}; remove one of "
                "them"
            )
        if line.key in wav_of_key:
            raise ListError(
                f"{original.key}: two utterances have this key, of {wav_of_key[line.key]} and "
                f"{line.wav}"
            )

        wav_of_key[line.key] = line.wav
        if line.audio_of_key is not None:
            audio_of_keys.add(line.audio_of_key)

    return distinct_lines
