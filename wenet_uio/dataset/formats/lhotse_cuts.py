"""Lhotse's cuts and Shar as utterances. The package lhotse is needed once, when cuts are indexed.

A cut becomes a segment of one channel of its recording. The texts of its supervisions are joined;
speaker, language, gender and custom fields are kept. Refused, cut by cut: MixedCut, several
channels in one cut, recordings with transforms, features without a recording, and recordings that
are the output of a command.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from wenet_uio.audio.decoders import LENGTH_TOLERANCE, AudioError, AudioInfo
from wenet_uio.dataset.formats.data_list import (
    PACKED_ERRORS,
    SKIP,
    RawLine,
    opened_manifest,
    values_of,
)
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.formats.keys import one_word
from wenet_uio.dataset.formats.sample_layout import FoundSample, split_name
from wenet_uio.dataset.formats.tar_members import Member
from wenet_uio.dataset.storage.kept_files import places_of, write_kept


def is_cuts(manifest: str) -> bool:
    """Tell whether the manifest of a shard contains Lhotse's cuts (`cuts.000000.jsonl.gz`) rather
    than NeMo's entries.
    """
    return Path(manifest).name.startswith("cuts.")


def folder_beside_shar(cuts_path: str) -> Path:
    """Return the folder for the indexes of the Shar in folder `x`: `x.uio`. Lhotse takes every file
    in `x` for data.
    """
    folder = Path(os.path.abspath(cuts_path)).parent  # noqa: PTH100 - resolve() would follow links
    return folder.with_name(f"{folder.name}.uio")


def read_cuts(path: str, bad: list[tuple[str, str]]) -> Iterator[Any]:
    """Read the cuts of a manifest (JSONL, also .gz) one after the other; (place, reason) of bad
    lines go to `bad`.

    Raises:
        ListError: lhotse is not installed.
    """
    try:
        import lhotse.serialization
    except ImportError:
        raise ListError(f"{path}: reading cuts needs lhotse; pip install lhotse") from None

    with opened_manifest(path) as file:
        try:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                try:
                    cut = lhotse.serialization.deserialize_item(values_of(line))
                except (ValueError, KeyError, TypeError, AttributeError, AssertionError) as error:
                    cut = error
                if (
                    isinstance(cut, lhotse.cut.Cut)
                    and isinstance(cut.id, (str, int))
                    and cut.id != ""
                ):
                    yield cut
                else:
                    bad.append(
                        (f"{path}:{number}", f"not a cut with an id ({type(cut).__name__}: {cut})")
                    )
        except PACKED_ERRORS as error:
            bad.append((path, f"cut short or damaged ({error})"))


def utterance_of(cut: Any) -> RawLine:
    """Convert a cut to a line of a raw list; the texts of its supervisions are joined in order of
    time.

    Raises:
        ListError: the cut is not a segment of one channel of a recording, has no text, or values of
            other types.
    """
    with _wrong_values_named():
        source, channel = _source(cut)
        extra = _extra(cut, channel)
        extra |= {"duration": cut.duration, "sampling_rate": cut.sampling_rate}
        start, end = _span(cut, cut.recording.duration)
        return RawLine(one_word(str(cut.id)), source, _text(cut), start, end, extra)


@contextmanager
def _wrong_values_named() -> Iterator[None]:
    """Raise ListError for errors of values that lhotse does not check."""
    try:
        yield
    except (ListError, AudioError):
        raise
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ListError(
            f"a value of another type than in Lhotse ({type(error).__name__}: {error})"
        ) from None


def list_of_cuts(cuts_path: str) -> str:
    """Write the raw list of a manifest of cuts, unless it is up to date.

    The list is beside the manifest, or in the cache if that folder cannot be written.
    Reading the list does not need lhotse. Cuts that cannot be used are in the list with the reason,
    as lines to skip.

    Returns:
        the path of the list: `cuts.jsonl.gz.list` for `cuts.jsonl.gz`.
    """
    data_list = f"{cuts_path}.list"
    made_at = Path(cuts_path).stat().st_mtime_ns
    for place in places_of(data_list):
        if place.is_file() and place.stat().st_mtime_ns == made_at:
            return str(place)

    written = write_kept(
        places_of(data_list), lambda file: file.writelines(_lines_of_cuts(cuts_path))
    )
    os.utime(written, ns=(made_at, made_at))
    return str(written)


def _lines_of_cuts(cuts_path: str) -> Iterator[bytes]:
    """Yield the lines of the raw list of a manifest of cuts."""
    bad: list[tuple[str, str]] = []
    for cut in read_cuts(cuts_path, bad):
        try:
            yield (utterance_of(cut).to_json() + "\n").encode()
        except ListError as error:
            bad.append((str(cut.id), str(error)))

    for key, reason in bad:
        yield (RawLine(key, "", "", extra={SKIP: reason}).to_json() + "\n").encode()


def find_cuts(
    members: Sequence[Member], cuts_path: str, info_of: Callable[[Member], AudioInfo]
) -> tuple[list[FoundSample], list[tuple[str, str]]]:
    """Match the cuts of a shard of a Shar with the members of its `recording` tar, in the order of
    the cuts.

    Returns:
        the samples, and (key, reason) of cuts that cannot be used, and of audio without a cut.
    """
    audio_by_key = {}
    for member in members:
        key, field = split_name(member.name, "last")
        if field != "json":
            audio_by_key[key] = member

    samples: list[FoundSample] = []
    bad: list[tuple[str, str]] = []
    keys_of_cuts = set()

    for cut in read_cuts(cuts_path, bad):
        key = str(cut.id)
        keys_of_cuts.add(key)
        try:
            with _wrong_values_named():
                samples.append(_sample_of(cut, audio_by_key.get(key), info_of))
        except (ListError, AudioError) as error:
            bad.append((key, str(error)))

    without_cut = (key for key in audio_by_key if key not in keys_of_cuts)
    bad.extend((key, f"no cut of {cuts_path} names it") for key in without_cut)
    return samples, bad


def _sample_of(
    cut: Any, member: Member | None, info_of: Callable[[Member], AudioInfo]
) -> FoundSample:
    """Return the sample of a cut whose audio is a member of a tar.

    Raises:
        ListError, AudioError: the cut or its audio cannot be used.
    """
    if member is None or member.name.endswith(".nodata"):
        raise ListError("its audio is not in the tar of recordings")

    _check_plain(cut)
    info = info_of(member)
    start, end = _span(cut, info.num_samples / info.sample_rate)
    extra = _extra(cut, _channel(cut))

    line = RawLine(one_word(str(cut.id)), member.name, _text(cut), start, end, extra)
    return FoundSample(line, audio=member, text=None)


def _check_plain(cut: Any) -> None:
    """Raise ListError if the audio of a cut is not a part of one recording, as it is stored."""
    cut_type = type(cut).__name__
    if cut_type not in ("MonoCut", "MultiCut"):
        raise ListError(f"a {cut_type}: save its audio as a recording with cut.save_audio")
    if not cut.has_recording:
        raise ListError("a cut without a recording; stored features cannot be used")

    if cut.recording.transforms:
        raise ListError(
            "its recording has transforms: save the transformed audio with cut.save_audio"
        )


def _source(cut: Any) -> tuple[str, int | None]:
    """Return the path of the audio of a cut, and the channel in that file (None if the file has
    only one).
    """
    _check_plain(cut)
    channel = _channel_number(cut)
    source = next((source for source in cut.recording.sources if channel in source.channels), None)
    if source is None or source.type not in ("file", "url"):
        problem = "no source" if source is None else f"a source of type {source.type}"
        raise ListError(
            f"{problem} for channel {channel} of recording {cut.recording.id}; expected a file or "
            "a URL"
        )

    return str(source.source), None if len(source.channels) == 1 else source.channels.index(channel)


def _channel(cut: Any) -> int | None:
    """Return the place of a cut's channel among those of its recording; None if it is the only one."""
    channels_of_recording = cut.recording.channel_ids
    number = _channel_number(cut)
    return None if len(channels_of_recording) < 2 else channels_of_recording.index(number)


def _channel_number(cut: Any) -> int:
    """Return the number that the recording gives to the channel of a cut.

    Raises:
        ListError: the cut has several channels.
    """
    channels = cut.channel if isinstance(cut.channel, list) else [cut.channel]
    if len(channels) != 1:
        raise ListError(f"{len(channels)} channels in one cut; make a cut for each channel")
    return channels[0]


def _span(cut: Any, seconds: float) -> tuple[float, float | None]:
    """Return start and end of a cut in seconds; 0 and None if it is the whole audio of `seconds`."""
    if not cut.start and abs(cut.duration - seconds) * cut.sampling_rate < 1:
        return 0.0, None
    return cut.start, cut.start + cut.duration


def _text(cut: Any) -> str:
    """Return the texts of the supervisions, in order of time.

    Raises:
        ListError: there is none, or a supervision reaches outside the cut.
    """
    with_text = [supervision for supervision in cut.supervisions if supervision.text]
    if not with_text:
        raise ListError("no supervision with a text")

    latest_end = cut.duration + LENGTH_TOLERANCE
    for supervision in with_text:
        start, end = supervision.start, supervision.end
        if not (start >= -LENGTH_TOLERANCE and end <= latest_end):
            raise ListError(
                f"its supervision {supervision.id} is from {start:g} to {end:g} s of a cut of "
                f"{cut.duration:g} s, so that a part of the text is not in the audio; cut at "
                "supervisions, as by trim_to_supervisions"
            )

    with_text.sort(key=lambda supervision: supervision.start)
    return " ".join(supervision.text for supervision in with_text)


def _extra(cut: Any, channel: int | None) -> dict[str, Any]:
    """Return the speaker, language, gender and custom fields; from several supervisions only values
    on which they agree.
    """
    extra: dict[str, Any] = {}
    for name in ("speaker", "language", "gender"):
        values = {getattr(supervision, name) for supervision in cut.supervisions}
        if len(values) == 1 and None not in values:
            extra[name] = values.pop()

    custom = {**(cut.custom or {})}
    if len(cut.supervisions) == 1:
        custom |= cut.supervisions[0].custom or {}

    extra |= {
        name: value
        for name, value in custom.items()
        if isinstance(value, (str, int, float, bool, list, dict))
    }
    return extra if channel is None else {**extra, "channel": channel}
