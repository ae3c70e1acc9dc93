"""Read and check `wav.scp`, `feats.scp`, `text` and `segments` of Kaldi; write any table.

A table has one `key value` line per utterance or recording. `segments` lines are `key recording
start end`, and may end with a channel (from 0). A path of a table may be a pattern of several
files, such as `data/{a,b}/feats.scp` or `data/*/text`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from wenet_uio.audio.features import place_of
from wenet_uio.base.files import written_aside
from wenet_uio.base.messages import listed
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.formats.keys import as_word
from wenet_uio.dataset.formats.patterns import expand
from wenet_uio.prepare.texts import tell_odd_texts
from wenet_uio.text.table import read_table


class Keyed(Protocol):
    """An utterance with a key, such as a RawLine or a Recording."""

    @property
    def key(self) -> str:
        """Name of the utterance, the first field of its lines."""
        ...


class Span(NamedTuple):
    """A segment of a recording."""

    recording: str
    start: float
    """Seconds."""
    end: float | None
    """Seconds; None is the end of the recording."""
    channel: int | None
    """From 0; None if `segments` does not say."""

    def to_line(self, key: str, wav: str) -> RawLine:
        """Return an utterance without text, of the audio of the recording."""
        extra = {} if self.channel is None else {"channel": self.channel}
        return RawLine(key, wav, "", self.start, self.end, extra)


Utterance = TypeVar("Utterance", bound=Keyed)

NAMED = 3
"""An error names this many keys and counts the others."""
TO_THE_END = -1
"""The end time in `segments` that stands for the end of the recording, as in Kaldi."""


def read_filled_table(path: str) -> dict[str, str]:
    """Read a table that has at least one line, as {key: value} in the order of its file.

    A pattern of files gives one table, in the order of the files.

    Raises:
        ListError: the table is empty, a key is no word, or no file matches.
        ValueError: a key comes twice.
    """
    first_file, *later_files = expand(path)
    table = read_table(first_file)
    for file in later_files:
        rows = read_table(file)
        repeated = [key for key in rows if key in table]
        if repeated:
            raise ValueError(f"{file}: {listed(repeated, NAMED)} also in an earlier file of {path}")
        table |= rows

    if not table:
        raise ListError(f"{path}: empty")

    for key in table:
        if as_word(key) != key:
            raise ListError(
                f"{path}: the key {key!r} holds a control character; write {as_word(key)!r}"
            )

    return table


def read_audio_lines(
    wav_scp: str, segments: str | None = None, with_commands: bool = False
) -> list[RawLine]:
    """Read utterances without text: the recordings of `wav_scp`, or their parts in `segments`.

    Kaldi computes `feats.scp` from the segments: if its keys are those of `segments`, nothing is
    cut again.

    Args:
        with_commands: commands (`sox … |`) may stand for paths; they are returned as they are.

    Raises:
        ListError: wav.scp has a command without `with_commands`, a segment has no recording, or its times are
            out of order.
    """
    wavs = _read_wav_scp(wav_scp, with_commands)
    if segments is None:
        beside = Path(wav_scp).with_name("segments")
        if beside.is_file():
            print(
                f"{beside} lies beside {wav_scp} and is not used: recordings are taken whole; "
                "give --segments to cut them",
                file=sys.stderr,
            )
        return [RawLine(key, wav, "") for key, wav in wavs.items()]

    spans = {
        key: _parse_span(segments, key, value) for key, value in read_filled_table(segments).items()
    }
    first_place = place_of(next(iter(wavs.values())))
    has_features = first_place.offset is not None
    if has_features and wavs.keys() <= spans.keys():
        print(
            f"{wav_scp}: holds features of the utterances of {segments}, which are not cut again",
            file=sys.stderr,
        )
        return [RawLine(key, wav, "") for key, wav in wavs.items()]

    lost = [key for key, span in spans.items() if span.recording not in wavs]
    if lost:
        raise ListError(f"{segments}: {listed(lost, NAMED)} without a recording in {wav_scp}")

    return [span.to_line(key, wavs[span.recording]) for key, span in spans.items()]


def add_table_options(parser: argparse.ArgumentParser) -> None:
    """Add `wav_scp`, `text` and the options of the other tables, which `read_option_tables` reads."""
    parser.add_argument(
        "wav_scp",
        help="lines `key path`, or Kaldi's feats.scp; several files as a pattern in quotes: "
        "'data/{a,b}/feats.scp'",
    )
    parser.add_argument(
        "text", help="lines `key transcript`; several files as a pattern: 'data/{a,b}/text'"
    )
    parser.add_argument(
        "--segments",
        help="lines `key recording start end [channel]` in seconds; the keys of wav.scp are then "
        "recordings",
    )
    parser.add_argument(
        "--utt2lang", help="lines `key language`; the utterances get the field `language`"
    )


def read_option_tables(args: argparse.Namespace) -> list[RawLine]:
    """Read the tables that the options of `add_table_options` name; see `read_utterances`."""
    return read_utterances(args.wav_scp, args.text, args.segments, args.utt2lang)


def read_utterances(
    wav_scp: str,
    text: str,
    segments: str | None = None,
    utt2lang: str | None = None,
    with_commands: bool = False,
) -> list[RawLine]:
    """Read utterances with audio and text, in the order of `text`.

    Utterances that have audio but no text are left out; stderr counts them and names the first.
    It also says how many texts have characters that nobody sees. With `utt2lang`, each has the field `language`.

    Raises:
        ListError: a text has no audio or no language; also the errors of `read_audio_lines`.
    """
    lines = {line.key: line for line in read_audio_lines(wav_scp, segments, with_commands)}
    texts = read_filled_table(text)
    source = segments or wav_scp
    missing = [key for key in texts if key not in lines]
    if missing:
        raise ListError(
            f"{text}: {listed(missing, NAMED)} without audio in {source}; take them out of the "
            "text or add the audio"
        )

    if len(lines) > len(texts):
        without_text = [key for key in lines if key not in texts]
        print(
            f"{source}: {len(without_text)} utterance(s) without text in {text} are left out: "
            f"{listed(without_text, NAMED)}",
            file=sys.stderr,
        )

    tell_odd_texts(text, texts.items())
    # pop(), so that memory holds a line once
    utterances = [replace(lines.pop(key), text=line) for key, line in texts.items()]
    return _add_languages(utterances, text, utt2lang) if utt2lang else utterances


def _add_languages(lines: Sequence[RawLine], text: str, utt2lang: str) -> list[RawLine]:
    """Return the lines with the languages of a table.

    Raises:
        ListError: a line has none.
    """
    languages = read_filled_table(utt2lang)
    missing = [line.key for line in lines if line.key not in languages]
    if missing:
        raise ListError(
            f"{utt2lang}: {listed(missing, NAMED)} of {text} without a language; add the lines"
        )

    return [replace(line, extra={"language": languages[line.key]}) for line in lines]


def _read_wav_scp(wav_scp: str, with_commands: bool) -> dict[str, str]:
    """Return the path, or the command, of each recording.

    Raises:
        ListError: a command stands for a path, without `with_commands`.
    """
    wavs = read_filled_table(wav_scp)
    piped = [key for key, wav in wavs.items() if wav.endswith("|")]
    if piped and not with_commands:
        raise ListError(
            f"{wav_scp}: commands are not run ({listed(piped, NAMED)} end in '|'); "
            "tools/convert_manifest.py --trust_commands writes their audio to files"
        )

    return wavs


def check_row(path: str | Path, key: str, value: object) -> None:
    """Check that a row fits into a table.

    Raises:
        ListError: the key is empty or no word, or the value has a line break.
    """
    if not key or as_word(key) != key or len(str(value).splitlines()) > 1:
        raise ListError(
            f"{path}: the key {key!r} must have no space, and the value {value!r} no line break"
        )


def write_table(path: str | Path, rows: Iterable[tuple[str, object]]) -> None:
    """Write a `key value` line for each row, in the order of `rows`.

    Memory holds one row at a time.

    Kaldi requires that lines are ordered by the bytes of their keys; `by_key` is the sort key.
    """
    with written_aside(path, "w") as file:
        file.writelines(f"{key} {value}\n" for key, value in rows)


def write_audio_tables(
    folder: Path,
    utterances: Sequence[Utterance],
    wav_of: Callable[[Utterance], str],
    span_of: Callable[[Utterance], str] | None = None,
) -> None:
    """Write `wav.scp` and, where utterances are parts of recordings, `segments`.

    Otherwise `segments` is removed.

    Args:
        utterances: ordered by key.
        wav_of: gives the path of an utterance's audio.
        span_of: gives `start end`, and perhaps a channel, of an utterance; None if every utterance
            is a whole recording.
    """
    if span_of is None:
        (folder / "segments").unlink(missing_ok=True)
        write_table(
            folder / "wav.scp", ((utterance.key, wav_of(utterance)) for utterance in utterances)
        )
        return

    names = recording_names(wav_of(utterance) for utterance in utterances)
    recordings = ((name, wav) for wav, name in names.items())
    write_table(folder / "wav.scp", sorted(recordings, key=lambda row: by_key(row[0])))
    spans = (
        (utterance.key, f"{names[wav_of(utterance)]} {span_of(utterance)}")
        for utterance in utterances
    )
    write_table(folder / "segments", spans)


def by_key(key: str) -> bytes:
    """Return the sort key for the order of Kaldi's tables (`LC_ALL=C sort`)."""
    return key.encode()


def recording_names(wavs: Iterable[str]) -> dict[str, str]:
    """Name recordings, as {wav: name}.

    Names are those of the files without suffix and spaces, numbered where two are the same.
    """
    names: dict[str, str] = {}
    taken: set[str] = set()
    for wav in dict.fromkeys(wavs):
        stem = "_".join(Path(wav).stem.split())  # keys of tables have no spaces
        name, number = stem, 1
        while name in taken:
            number += 1
            name = f"{stem}-{number}"

        taken.add(name)
        names[wav] = name

    return names


def _parse_span(segments: str, key: str, value: str) -> Span:
    """Read a segment.

    Raises:
        ListError: it has other fields, or its times are out of order.
    """
    try:
        recording, start, end, *more = value.split()
        first, last = float(start), float(end)
        channel = int(" ".join(more)) if more else None  # two more fields are no number
    except ValueError:
        raise ListError(
            f"{segments}: {key}: expected `recording start end`, and perhaps a channel, found "
            f"{value!r}"
        ) from None

    if channel is not None and channel < 0:
        raise ListError(f"{segments}: {key}: channels are counted from 0, found {channel}")
    if first >= 0 and last == TO_THE_END:
        return Span(recording, first, None, channel)
    if not 0 <= first < last:
        raise ListError(f"{segments}: {key}: starts at {start} s and ends at {end} s")

    return Span(recording, first, last, channel)
