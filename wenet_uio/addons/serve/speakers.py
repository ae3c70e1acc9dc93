"""Speakers of a recording (`diarized_json`): they are its channels. No model tells voices apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wenet_uio.addons.listen.results import TranscriptSegment
from wenet_uio.addons.listen.tracks import Track
from wenet_uio.addons.serve.messages import RefusedError

FORMAT = "diarized_json"


def speaker_names(lines: str, channels: int) -> list[str]:
    """Return the names that a client gives to the first channels of a recording.

    Args:
        lines: a name a line; an empty one names nothing.

    Raises:
        RefusedError: there are more names than channels.
    """
    names = [line.strip() for line in lines.split("\n")]
    if len(names) > channels:
        raise RefusedError(
            f"known_speaker_names: expected a name for each channel, found {len(names)} names, the "
            f"recording has {channels} channel(s); this server does not tell voices apart"
        )
    return names


def speaker_of(track: Track | None, names: Sequence[str]) -> str:
    """Return the speaker of a channel: the name that the client gives to it, or its own."""
    channel = track.channel if track is not None else 0
    if isinstance(channel, int) and channel < len(names) and names[channel]:
        return names[channel]
    if track is not None and track.name:
        return track.name
    return f"channel {channel}" if isinstance(channel, int) else channel


def speaker_segment(
    number: int, segment: TranscriptSegment, names: Sequence[str]
) -> dict[str, Any]:
    """Return a segment with its speaker, which is an event of a streamed answer too."""
    return {
        "type": "transcript.text.segment",
        "id": segment_id(number),
        "start": round(segment.start, 3),
        "end": round(segment.end, 3),
        "speaker": speaker_of(segment.track, names),
        "text": segment.text,
    }


def segment_id(number: int) -> str:
    """Return the name of a segment of a recording, from its number."""
    return f"seg_{number}"
