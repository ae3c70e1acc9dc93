"""Tars for tests, written member by member as the tools of others name them."""

import io
import tarfile

import numpy as np
import soundfile

from wenet_uio.dataset.types import SampleRef


def wav(seconds=0.5, rate=8000, channels=1, seed=0):
    """Encoded noise."""
    noise = np.random.default_rng(seed).normal(0, 0.1, (round(seconds * rate), channels))
    buffer = io.BytesIO()
    soundfile.write(buffer, noise, rate, format="WAV", subtype="PCM_16")
    return buffer.getvalue()


def write_tar(path, members):
    """`members` are (name, bytes or text) in their order."""
    with tarfile.open(path, "w") as tar:
        for name, data in members:
            data = data.encode() if isinstance(data, str) else data
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return str(path)


def everything(corpus):
    """Every utterance, in order."""
    refs = [
        SampleRef(shard, row)
        for shard in range(corpus.num_shards)
        for row in range(corpus.samples[shard])
    ]
    return [corpus.read(ref) for ref in refs]
