"""Kaldi's data directories: the `wav.scp` and `text` that a corpus preparation writes for each part."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from wenet_uio.files import written_aside


class Recording(NamedTuple):
    """One utterance of a corpus that is to be prepared."""

    key: str
    wav: Path
    text: str


def write_data_dir(folder: str | Path, recordings: Iterable[Recording]) -> int:
    """Write `wav.scp` (absolute paths) and `text` of a part, ordered by key; gives the number of utterances.

    Raises:
        ValueError: naming the utterance that comes twice, has no text or no audio; or for a part without any.
    """
    ordered = sorted(recordings)
    if not ordered:
        raise ValueError(f"{folder}: no utterance was found for it; is the corpus complete?")
    for recording, following in zip(ordered, [*ordered[1:], None], strict=True):
        if following and recording.key == following.key:
            raise ValueError(f"{recording.key}: two recordings, {recording.wav} and {following.wav}")
        if not recording.text.strip():
            raise ValueError(f"{recording.key}: {recording.wav} has no text")
        if not recording.wav.is_file():
            raise ValueError(f"{recording.key}: has text, but its audio {recording.wav} is missing")
    folder = Path(folder)
    with written_aside(folder / "wav.scp", "w") as scp, written_aside(folder / "text", "w") as text:
        for recording in ordered:
            print(recording.key, recording.wav.absolute(), file=scp)
            print(recording.key, recording.text, file=text)
    print(f"{folder}: {len(ordered)} utterances")
    return len(ordered)
