"""A FLAC that ends where its header says is not read whole to know its length."""

import io

import numpy as np
import pytest
import soundfile

from wenet_uio.audio.flac import ends_as_stated, stream_info


def flac(frames, channels=1):
    """Noise of this many frames of 4096 samples and a short one, at 16 kHz."""
    noise = np.random.default_rng(frames).normal(0, 0.1, (4096 * frames + 100, channels))
    file = io.BytesIO()
    soundfile.write(file, noise, 16000, format="FLAC")
    return file.getvalue()


def is_whole(data):
    info = stream_info(data)
    return ends_as_stated(info, len(data), data[-2 * info.largest_frame :])


# Numbers of frames are coded in one byte to 127, and in two from 128 on.
@pytest.mark.parametrize(("frames", "channels"), [(1, 1), (3, 2), (127, 1), (128, 1), (300, 2)])
def test_a_whole_file_is_known_by_its_header_and_its_last_frame(frames, channels):
    data = flac(frames, channels)
    info = stream_info(data)
    assert info is not None
    stated = (info.block_size, info.num_samples, info.sample_rate, info.channels)
    assert stated == (4096, 4096 * frames + 100, 16000, channels)
    assert is_whole(data)


def test_a_file_that_is_cut_short_or_joined_does_not_end_as_its_header_says():
    data = flac(40)
    info = stream_info(data)
    assert not is_whole(data[: -2 * info.largest_frame])
    assert not is_whole(data + flac(30))
    assert stream_info(data[:30]) is None
