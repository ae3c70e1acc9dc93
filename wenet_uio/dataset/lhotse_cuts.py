"""Lhotse's cuts as our utterances: read through lhotse once, when they are indexed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from wenet_uio.dataset.data_list import ListError, RawLine


def read_cuts(path: str) -> Iterator[Any]:
    """The cuts of a manifest (JSONL, also .gz), one after the other.

    Raises:
        ListError: lhotse is not installed, or finds something else in the file.
    """
    try:
        import lhotse
    except ImportError:
        raise ListError(f"{path}: reading cuts needs lhotse; pip install lhotse") from None
    try:
        yield from lhotse.CutSet.from_jsonl_lazy(path)
    except (ValueError, KeyError, TypeError, AssertionError, EOFError, OSError) as error:
        raise ListError(f"{path}: lhotse cannot read it ({type(error).__name__}: {error})") from None


def utterance_of(cut: Any) -> RawLine:
    """One cut as a line of a raw list; the texts of its supervisions are joined in their order.

    Raises:
        ListError: what makes it more than a piece of one recording with a text.
    """
    source, channel = _source(cut)
    extra = _extra(cut, channel)
    extra |= {"duration": cut.duration, "sampling_rate": cut.sampling_rate}
    start, end = _span(cut, cut.recording.duration)
    return RawLine(cut.id, source, _text(cut), start, end, extra)


def _check_plain(cut: Any) -> None:
    kind = type(cut).__name__
    if kind not in ("MonoCut", "MultiCut"):
        raise ListError(f"a {kind}: save its audio as a recording of its own, as cut.save_audio does")
    if not cut.has_recording:
        raise ListError("a cut without a recording: features are computed from audio here")
    if cut.recording.transforms:
        raise ListError("its recording has transforms: save the audio as it shall be, as cut.save_audio does")


def _source(cut: Any) -> tuple[str, int | None]:
    """Path of a cut's audio, and its channel in that file (None when the file has but one)."""
    _check_plain(cut)
    channel = _channel(cut, always=True)
    source = next((source for source in cut.recording.sources if channel in source.channels), None)
    if source is None or source.type not in ("file", "url"):
        found = "no source" if source is None else f"a source of type {source.type}"
        raise ListError(f"{found} for channel {channel} of recording {cut.recording.id}; files and URLs are read")
    return str(source.source), None if len(source.channels) == 1 else source.channels.index(channel)


def _channel(cut: Any, *, always: bool = False) -> int | None:
    """Place of a cut's channel among those of its recording (None when there is but one, unless `always`)."""
    channels = cut.channel if isinstance(cut.channel, list) else [cut.channel]
    if len(channels) != 1:
        raise ListError(f"{len(channels)} channels in one cut; cut each channel on its own")
    recorded = cut.recording.channel_ids
    if always:
        return channels[0]
    return None if len(recorded) < 2 else recorded.index(channels[0])


def _span(cut: Any, seconds: float) -> tuple[float, float | None]:
    """Start and end of a cut in its audio; 0 and None when it is all of it."""
    if not cut.start and abs(cut.duration - seconds) * cut.sampling_rate < 1:
        return 0.0, None
    return cut.start, cut.start + cut.duration


def _text(cut: Any) -> str:
    texts = [part.text for part in sorted(cut.supervisions, key=lambda part: part.start) if part.text]
    if not texts:
        raise ListError("no supervision with a text")
    return " ".join(texts)


def _extra(cut: Any, channel: int | None) -> dict[str, Any]:
    """Speaker, language and custom fields; of several supervisions, where they agree."""
    extra: dict[str, Any] = {}
    for name in ("speaker", "language", "gender"):
        values = {getattr(part, name) for part in cut.supervisions}
        if len(values) == 1 and None not in values:
            extra[name] = values.pop()
    custom = {**(cut.custom or {})}
    if len(cut.supervisions) == 1:
        custom |= cut.supervisions[0].custom or {}
    extra |= {name: value for name, value in custom.items() if isinstance(value, (str, int, float, bool, list, dict))}
    return extra if channel is None else {**extra, "channel": channel}
