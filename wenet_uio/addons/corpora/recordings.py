"""Read corpora of long recordings with texts at times: SRT, WebVTT, TextGrid, CTM, STM, labels of
Audacity, tiers of ELAN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from wenet_uio.addons.corpora.elan import read_eaf, tier_texts
from wenet_uio.addons.corpora.timed_texts import (
    PAUSE,
    Tier,
    TimedText,
    join_words,
    read_ctm,
    read_labels,
    read_stm,
    read_subtitles,
)
from wenet_uio.addons.corpora.timed_texts import read_textgrid as read_tiers
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.prepare.audio_search import ensure_audio_suffix
from wenet_uio.prepare.beside import (
    check_single,
    corpus_files,
    pair_audio_and_texts,
    select_text_files,
)
from wenet_uio.prepare.corpus_parts import tell_left_out
from wenet_uio.prepare.separated import part_key


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
        text_field: name or type of the tiers; see `tier_texts`.

    Raises:
        ListError: as `select_text_files`, `read_eaf` and `tier_texts`.
    """
    lines = []
    texts = select_text_files(corpus_files(Path(path)).texts, Path(path), "elan", None)
    check_single(texts)
    for file in texts:
        elan = read_eaf(file.path)
        wav = str(file.audio or _find_media(file.path, elan.media))
        for text in tier_texts(file.path, elan.tiers, text_field):
            extra = {"speaker": text.speaker} if text.speaker else {}
            lines.append(_timed_line(wav, text, extra))

    return lines


def _find_media(path: Path, media: Sequence[str]) -> Path:
    """Return the audio of an .eaf: the first of its media that is beside it, or else its name."""
    for name in media:
        if (path.parent / name).is_file():
            return path.parent / name

    return Path(media[0]) if media else Path(path.stem)


def read_textgrid(path: str, text_field: str | None = None) -> list[RawLine]:
    """Read TextGrids; each interval of a tier is an utterance.

    Intervals of single words are joined.

    Args:
        text_field: name of the tier; needed if several tiers have texts.

    Raises:
        ListError: a file has several tiers or lacks that tier; and as `pair_audio_and_texts`.
    """
    tiers = {
        file: _text_tier(file, text_field)
        for _, file in pair_audio_and_texts(Path(path), "textgrid", None)
    }
    are_words = all(tier.has_words for tier in tiers.values())
    if are_words:
        print(f"{path}: intervals are single words, and are joined up to pauses of {PAUSE} s")

    join = join_words if are_words else list
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
    for file in select_text_files(corpus_files(Path(path)).texts, Path(path), "ctm", None):
        words = read_ctm(file.path)
        fields_of = _channel_fields(words)
        for (recording, channel), channel_words in words.items():
            lines += [
                _timed_line(recording, utterance, fields_of[recording, channel])
                for utterance in join_words(channel_words)
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
    for file in select_text_files(corpus_files(Path(path)).texts, Path(path), "stm", None):
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

    fields: dict[tuple[str, str], dict[str, int]] = {}
    for recording, names in names_of.items():
        for number, name in enumerate(sorted(names)):
            fields[recording, name] = {"channel": number} if len(names) > 1 else {}

    return fields


def _read_timed(
    path: str, form: str, text_field: str | None, read: Callable[[Path], Iterable[TimedText]]
) -> list[RawLine]:
    """Return the utterances of the files of a form.

    Raises:
        ListError: as `pair_audio_and_texts` and `read`.
    """
    lines, empty = [], []
    for wav, file in pair_audio_and_texts(Path(path), form, text_field):
        utterances = _join_equal_times(read(file))
        if not utterances:
            empty.append(str(file))

        for utterance in utterances:
            extra = {"speaker": utterance.speaker} if utterance.speaker else {}
            lines.append(_timed_line(wav, utterance, extra))

    tell_left_out(f"{path}: files without a text", empty)
    return lines


def _join_equal_times(timed_texts: Iterable[TimedText]) -> list[TimedText]:
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
    key = part_key(ensure_audio_suffix(wav), start)
    if "channel" in extra:  # both sides of a call may begin at once
        key += f"_{extra['channel']}"
    return RawLine(key, wav, timed.text, start, end, extra, is_named_by_audio=True)


def _text_tier(file: Path, text_field: str | None) -> Tier:
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
