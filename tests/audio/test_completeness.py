import csv
import io

import numpy as np
import pytest
import soundfile

from wenet_uio.audio.completeness import require_whole
from wenet_uio.audio.decoders import AudioError
from wenet_uio.audio.read import audio_info

NOISE = np.random.default_rng(0).normal(0, 0.1, 16000).astype(np.float32)


def encoded(kind, subtype):
    buffer = io.BytesIO()
    soundfile.write(buffer, NOISE, 16000, format=kind, subtype=subtype)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("kind", "subtype"), [("WAV", "PCM_16"), ("FLAC", "PCM_16"), ("MP3", "MPEG_LAYER_III")]
)
def test_audio_that_ends_before_the_length_in_its_header_is_refused(kind, subtype):
    whole = encoded(kind, subtype)
    require_whole(whole)
    with pytest.raises(AudioError, match="cut short"):
        require_whole(whole[: len(whole) // 2])


@pytest.mark.parametrize("claim", [0xFFFFFFFF, 0x7FFFFFFF, 0x7FFFFFFF - 36])
def test_a_wav_that_was_written_to_a_pipe_is_not_taken_for_cut_short(claim):
    data = bytearray(encoded("WAV", "PCM_16"))
    data[40:44] = claim.to_bytes(4, "little")
    require_whole(bytes(data))


def test_audio_that_libsndfile_does_not_read_is_left_to_its_decoder():
    require_whole(b"\0\0\0\x20ftypM4A " + bytes(100))


def test_every_real_file_that_opens_is_whole(corpora):
    folder = corpora / "audio_formats"
    looked_at = 0
    with open(folder / "index.tsv") as index:
        for row in csv.DictReader(index, delimiter="\t"):
            if row["soundfile_status"].startswith(("ok", "short")):
                audio = (folder / row["path"]).read_bytes()
                try:
                    audio_info(audio)
                except AudioError:
                    continue  # no samples
                require_whole(audio)
                looked_at += 1
    assert looked_at > 60
