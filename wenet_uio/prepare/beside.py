"""Read corpora with a file of text beside each audio file: texts, SRT, WebVTT, TextGrid; and CTM.

The file of text has the name of the audio and a field: `a.wav` has `a.txt` (field `txt`) or
`a.en.srt` (`en.srt`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from wenet_uio.addons.corpora.elan import read_eaf, texts_of_tiers
from wenet_uio.addons.corpora.stm import read_stm
from wenet_uio.addons.corpora.timed_texts import (
    PAUSE,
    Tier,
    TimedText,
    joined_words,
    read_ctm,
    read_labels,
    read_subtitles,
    text_of_file,
)
from wenet_uio.addons.corpora.timed_texts import read_textgrid as read_tiers
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.formats.sample_layout import AUDIO_SUFFIXES
from wenet_uio.prepare.audio_search import composed, key_of_name, with_suffix_of_audio
from wenet_uio.prepare.corpus_parts import files_below, tell_left_out
from wenet_uio.prepare.separated import key_of_part

SUFFIXES = {
    "pairs": ("txt", "lab", "trn", "text"),
    "srt": ("srt",),
    "vtt": ("vtt",),
    "textgrid": ("textgrid",),
    "ctm": ("ctm",),
    "stm": ("stm",),
    "elan": ("eaf",),
}
"""Form of a corpus -> suffixes of its files of text."""
SAME_SUFFIX = {"audacity": "pairs"}
"""Form of a corpus -> form whose files of text have the same suffix."""
FORM_OF = {suffix: form for form, suffixes in SUFFIXES.items() for suffix in suffixes}


class TextFile(NamedTuple):
    """A file of text, and the audio beside it."""

    path: Path
    audios: list[Path]
    """The audio files of its name that are beside it; `_beside` refuses several, such as `a.wav`
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


def files_of_corpus(path: Path) -> FilesOfFolder:
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
    text_files = _text_files(texts, path, audio)
    return FilesOfFolder(text_files, list(itertools.chain.from_iterable(audio.values())))


def _text_files(
    texts: Sequence[Path], corpus: Path, audio: dict[Path, list[Path]]
) -> list[TextFile]:
    """Return the files of text with the audio beside them; if there is none, with that of their
    names in other folders.
    """
    beside = [_text_file(text, audio) for text in texts]
    if corpus.is_file() or not audio or any(file.audio for file in beside):
        return beside
    return [_with_audio_apart(file, corpus, audio) for file in beside]


def _audio_by_name(files: Sequence[Path]) -> dict[Path, list[Path]]:
    """Return the files of audio by their paths without suffix."""
    audio_of: dict[Path, list[Path]] = {}
    for file in files:
        if file.suffix[1:].lower() in AUDIO_SUFFIXES:
            audio_of.setdefault(_composed(file.with_suffix("")), []).append(file)

    return audio_of


def _composed(path: Path) -> Path:
    return path.with_name(composed(path.name))


def _text_file(path: Path, audio: dict[Path, list[Path]]) -> TextFile:
    """Return a file of text with the audio that has the longest part of its name, up to a dot."""
    pieces = path.name.split(".")
    for count in range(len(pieces) - 1, 0, -1):
        recordings = audio.get(_composed(path.parent / ".".join(pieces[:count])))
        if recordings:
            return TextFile(path, recordings, ".".join(pieces[count:]))

    return TextFile(path, [], pieces[-1])


def _with_audio_apart(file: TextFile, corpus: Path, audio: dict[Path, list[Path]]) -> TextFile:
    """Find the audio of a file of text in another folder of the corpus: for `txt/p225/a.txt`,
    `wav48/p225/a.wav`.

    If several files have that name, those are taken whose inner folders (`p225`) are the same.

    Args:
        audio: {path without suffix: the audio files}.
    """
    name = _composed(file.path.with_suffix("")).name
    stems = [stem for stem in audio if stem.name == name]
    inner_folders = file.path.relative_to(corpus).parts[1:-1]
    if len(stems) > 1:
        stems = [stem for stem in stems if stem.relative_to(corpus).parts[1:-1] == inner_folders]

    recordings = list(itertools.chain.from_iterable(audio[stem] for stem in stems))
    return TextFile(file.path, recordings, file.path.suffix[1:])


def read_pairs(path: str, text_field: str | None = None) -> list[RawLine]:
    """Read a folder in which each audio file has a file with its text; lines of a text are joined.

    Raises:
        ListError: see `_beside`; or every text is empty.
    """
    lines, empty = [], []
    for wav, file in _beside(Path(path), "pairs", text_field):
        text = " ".join(text_of_file(file).split())
        if text:
            lines.append(RawLine(key_of_name(wav), wav, text, is_named_by_audio=True))
        else:
            empty.append(str(file))

    tell_left_out(f"{path}: files without a text", empty)
    return lines


def read_srt(path: str, text_field: str | None = None) -> list[RawLine]:
    """Read SRT files; each cue is an utterance. For `a.en.srt`, `text_field` is `en`."""
    return _read_timed(path, "srt", text_field, read_subtitles)


def read_vtt(path: str, text_field: str | None = None) -> list[RawLine]:
    """Read WebVTT files; each cue is an utterance, and a voice is its speaker.

    For `a.en.vtt`, `text_field` is `en`.
    """
    return _read_timed(path, "vtt", text_field, read_subtitles)


def read_audacity(path: str, text_field: str | None = None) -> list[RawLine]:
    """Read label tracks of Audacity; each label with a duration and a text is an utterance."""
    return _read_timed(path, "audacity", text_field, read_labels)


def read_elan(path: str, text_field: str | None = None) -> list[RawLine]:
    """Read ELAN's .eaf; each annotation is an utterance.

    The audio has the name of the file, or else that of its media.

    Args:
        text_field: name or type of the tiers; see `texts_of_tiers`.

    Raises:
        ListError: as `_of_form`, `read_eaf` and `texts_of_tiers`.
    """
    lines = []
    texts = _of_form(files_of_corpus(Path(path)).texts, Path(path), "elan", None)
    _check_single(texts)
    for file in texts:
        elan = read_eaf(file.path)
        wav = str(file.audio or _media_of(file.path, elan.media))
        for text in texts_of_tiers(file.path, elan.tiers, text_field):
            extra = {"speaker": text.speaker} if text.speaker else {}
            lines.append(_timed_line(wav, text, extra))

    return lines


def _media_of(path: Path, media: Sequence[str]) -> Path:
    """Return the audio of an .eaf: the first of its media that is beside it, or else its name."""
    existing = [path.parent / name for name in media if (path.parent / name).is_file()]
    return existing[0] if existing else Path(media[0] if media else path.stem)


def read_textgrid(path: str, text_field: str | None = None) -> list[RawLine]:
    """Read TextGrids; each interval of a tier is an utterance.

    Intervals of single words are joined.

    Args:
        text_field: name of the tier; needed if several tiers have texts.

    Raises:
        ListError: a file has several tiers or lacks that tier; and as `_beside`.
    """
    tiers = {file: _tier_of(file, text_field) for _, file in _beside(Path(path), "textgrid", None)}
    are_words = all(tier.has_words for tier in tiers.values())
    if are_words:
        print(f"{path}: intervals are single words, and are joined up to pauses of {PAUSE} s")

    join = joined_words if are_words else list
    return _read_timed(path, "textgrid", None, lambda file: join(tiers[file].intervals))


def read_ctm_files(path: str, text_field: str | None = None) -> list[RawLine]:
    """Read a CTM, or those of a folder; words are joined up to pauses.

    Audio has the name of the recording.

    Raises:
        ListError: a line is not valid, or a `text_field` is given.
    """
    if text_field:
        raise ListError(f"{path}: a CTM has one text for each recording; leave --text_field out")

    lines = []
    for file in _of_form(files_of_corpus(Path(path)).texts, Path(path), "ctm", None):
        words = read_ctm(file.path)
        fields_of = _channel_fields(words)
        for (recording, channel), channel_words in words.items():
            lines += [
                _timed_line(recording, utterance, fields_of[recording, channel])
                for utterance in joined_words(channel_words)
            ]

    return lines


def read_stm_files(path: str, text_field: str | None = None) -> list[RawLine]:
    """Read an STM, or those of a folder; audio has the name of the recording.

    Raises:
        ListError: a line is not valid, or a `text_field` is given.
    """
    if text_field:
        raise ListError(f"{path}: an STM has one text for each segment; leave --text_field out")

    lines = []
    for file in _of_form(files_of_corpus(Path(path)).texts, Path(path), "stm", None):
        segments = read_stm(file.path)
        fields_of = _channel_fields((segment.recording, segment.channel) for segment in segments)
        for recording, channel, turn in segments:
            fields = {"speaker": turn.speaker, **fields_of[recording, channel]}
            lines.append(_timed_line(recording, turn, fields))

    return lines


def _channel_fields(
    channels: Iterable[tuple[str, str]],
) -> dict[tuple[str, str], dict[str, int]]:
    """Return the fields of lines of each (recording, channel): the number of the channel, if the
    recording has several.

    Channels may be named A and B, or 1 and 2; audio counts them from 0.
    """
    names_of: dict[str, set[str]] = {}
    for recording, name in channels:
        names_of.setdefault(recording, set()).add(name)

    return {
        (recording, name): {"channel": number} if len(names) > 1 else {}
        for recording, names in names_of.items()
        for number, name in enumerate(sorted(names))
    }


def _read_timed(
    path: str, form: str, text_field: str | None, read: Callable[[Path], Iterable[TimedText]]
) -> list[RawLine]:
    """Return the utterances of the files of a form.

    Raises:
        ListError: as `_beside` and `read`.
    """
    lines, empty = [], []
    for wav, file in _beside(Path(path), form, text_field):
        utterances = _joined_spans(read(file))
        if not utterances:
            empty.append(str(file))

        for utterance in utterances:
            extra = {"speaker": utterance.speaker} if utterance.speaker else {}
            lines.append(_timed_line(wav, utterance, extra))

    tell_left_out(f"{path}: files without a text", empty)
    return lines


def _joined_spans(timed_texts: Iterable[TimedText]) -> list[TimedText]:
    """Join texts with equal times into one.

    Subtitles of two speakers may have equal times, and a subtitle may come twice.
    """
    by_times: dict[tuple[float, float], dict[str, TimedText]] = {}
    for timed in timed_texts:
        by_times.setdefault((timed.start, timed.end), {}).setdefault(timed.text, timed)

    joined = []
    for texts in by_times.values():
        first, *_ = texts.values()
        joined.append(replace(first, text=" ".join(texts)))

    return joined


def _timed_line(wav: str, timed: TimedText, extra: dict) -> RawLine:
    """Return an utterance of a recording; its key has the start, and the channel if there is one."""
    start, end = round(timed.start, 3), round(timed.end, 3)
    key = key_of_part(with_suffix_of_audio(wav), start)
    if "channel" in extra:  # both sides of a call may begin at once
        key += f"_{extra['channel']}"
    return RawLine(key, wav, timed.text, start, end, extra, is_named_by_audio=True)


def _tier_of(file: Path, text_field: str | None) -> Tier:
    """Return the tier of a TextGrid with the texts."""
    tiers = read_tiers(file)
    chosen = [tier for tier in tiers if text_field in (None, tier.name)]
    if len(chosen) != 1:
        raise ListError(f"{file}: {_why_not_one(tiers, chosen, text_field)}")
    return chosen[0]


def _why_not_one(tiers: Sequence[Tier], chosen: Sequence[Tier], text_field: str | None) -> str:
    """Say why the tiers with texts do not have one that is meant, and what to do."""
    names = ", ".join(tier.name for tier in tiers) or "none"
    if not chosen:
        return f"no tier {text_field or 'with a text'}; its tiers with texts: {names}"
    if len({tier.name for tier in chosen}) == 1:
        return f"{len(chosen)} tiers with texts are named {chosen[0].name}; rename one of them in Praat"

    return f"several tiers have texts ({names}); name one of them: --text_field {tiers[0].name}"


def _beside(path: Path, form: str, text_field: str | None) -> list[tuple[str, Path]]:
    """Pair audio with files of text: (name of the audio, text file).

    Audio that is not beside its text is named without suffix.

    Raises:
        ListError: no file of that form is found, an audio file has several, or a file of text has
            several of audio.
    """
    files = files_of_corpus(path)
    texts = _of_form(files.texts, path, form, text_field)
    if not any(file.audio for file in texts):  # the audio is elsewhere, below --audio
        root = path if path.is_dir() else path.parent
        return [
            (str(file.path.relative_to(root)).removesuffix(f".{file.field}"), file.path)
            for file in texts
        ]

    _check_single(texts)
    if path.is_dir():
        _tell_unmatched(path, texts, files.audio)

    return [(str(file.audio), file.path) for file in texts if file.audio]


def _tell_unmatched(path: Path, texts: Sequence[TextFile], audio: Sequence[Path]) -> None:
    with_text = {file.audio for file in texts}
    tell_left_out(
        f"{path}: audio without a text", [str(wav) for wav in audio if wav not in with_text]
    )
    tell_left_out(
        f"{path}: texts without audio", [str(file.path) for file in texts if not file.audio]
    )


def _of_form(
    texts: Sequence[TextFile], path: Path, form: str, text_field: str | None
) -> list[TextFile]:
    """Return the files of a form that have the field.

    A single file is of the form that is asked for, whatever its name.

    Raises:
        ListError: there is none.
    """
    form_of_suffix = SAME_SUFFIX.get(form, form)
    files = [file for file in texts if path.is_file() or file.form == form_of_suffix]
    if text_field is not None:
        # `en` stands for the whole field `en.srt`.
        files = [
            file for file in files if file.field in (text_field, f"{text_field}{file.path.suffix}")
        ]

    if not files:
        expected = text_field or " or ".join(f".{suffix}" for suffix in SUFFIXES[form_of_suffix])
        raise ListError(f"{path}: no file {expected} in it")

    return files


def _check_single(texts: Sequence[TextFile]) -> None:
    """Raise ListError if audio may have two texts, or a text two audio files."""
    first_of_audio: dict[Path, TextFile] = {}
    for file in texts:
        if len(file.audios) > 1:
            names = " or ".join(sorted(audio.name for audio in file.audios))
            raise ListError(
                f"{file.path}: its audio may be {names}; move one of them to another folder"
            )
        if file.audio and first_of_audio.setdefault(file.audio, file) is not file:
            first = first_of_audio[file.audio]
            raise ListError(
                f"{file.audio}: its text may be {first.path.name} or {file.path.name}; "
                f"name one: --text_field {first.field} or --text_field {file.field}"
            )
