import io

import numpy as np
import pytest
import soundfile

from wenet_uio.audio.interruption import InterruptionError, check_interruption, interruptible
from wenet_uio.audio.read import read_audio


class VanishedError(InterruptionError):
    pass


def vanished():
    raise VanishedError


def silence(kind, seconds=120):
    file = io.BytesIO()
    soundfile.write(file, np.zeros(seconds * 16000, np.int16), 16000, format=kind)
    return file.getvalue()


@pytest.mark.parametrize("kind", ["WAV", "FLAC", "OGG", "MP3"])
def test_reading_ends_when_the_check_raises(kind):
    data = silence(kind, 2)
    with pytest.raises(VanishedError), interruptible(vanished):
        read_audio(data)
    assert len(read_audio(data)[0])  # outside of the block nothing is checked


def test_finding_speech_in_long_silence_ends_when_the_check_raises():
    calls = []

    def later():
        calls.append(1)
        if len(calls) > 1:
            raise VanishedError

    from wenet_uio.addons.listen.speech import find_speech

    data = silence("FLAC")
    with pytest.raises(VanishedError), interruptible(later):
        find_speech(data, 0, 0.4, detector="energy")
    assert len(calls) == 2


def test_decoding_by_ffmpeg_ends_when_the_check_raises():
    av = pytest.importorskip("av")
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as container:
        stream = container.add_stream("aac", rate=16000)
        for _ in range(100):
            frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), "fltp", "mono")
            frame.sample_rate = 16000
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    with pytest.raises(VanishedError), interruptible(vanished):
        read_audio(file.getvalue())


def test_a_check_holds_for_its_block_alone():
    with interruptible(vanished):
        with interruptible(lambda: None):
            check_interruption()
        with pytest.raises(VanishedError):
            check_interruption()
    check_interruption()
