"""Read audio of the utterances of a data list by key, for pages with players."""

from __future__ import annotations

import numpy as np

from wenet_uio.audio.read import read_audio
from wenet_uio.dataset.corpus.open_list import open_list
from wenet_uio.dataset.formats.data_list import DataType
from wenet_uio.dataset.types import AudioUtterance, SampleRef
from wenet_uio.scoring.html_report import Audio


def audio_reader(data_list: str, data_type: DataType) -> Audio:
    """Return a function that reads the waveform of a key of the list.

    It gives None for other keys and for text without audio.

    Raises:
        ListError: the list cannot be used.
    """
    corpus = open_list(data_list, data_type)
    refs: dict[str, SampleRef] = {}
    for shard in range(corpus.num_shards):
        for row in range(corpus.samples[shard]):
            ref = SampleRef(shard, row)
            refs[corpus.key(ref)] = ref

    def audio(key: str) -> tuple[np.ndarray, int] | None:
        """Return the waveform of a key and its rate; None if the list has no audio of this key."""
        if key not in refs:
            return None

        utterance = corpus.read(refs[key])
        if not isinstance(utterance, AudioUtterance):
            return None

        return read_audio(utterance.audio, utterance.start, utterance.end)

    return audio
