import numpy as np
import pytest
import torch

from tests.addons.listen.conftest import RATE, bursts, write_model
from tests.addons.listen.test_stream_audio import parts
from wenet_uio.addons.listen.chunk_stream import ChunkStream
from wenet_uio.addons.listen.live import LiveOptions, Stream
from wenet_uio.addons.listen.load import load_model
from wenet_uio.addons.listen.options import Cutting
from wenet_uio.addons.listen.stream_audio import NEVER_MORE
from wenet_uio.addons.listen.transcription import Transcriber
from wenet_uio.addons.listen.window_stream import WindowStream
from wenet_uio.dataset.chain.waveform import resample
from wenet_uio.models.chunks import ChunkEncoder, encode_chunk_by_chunk
from wenet_uio.search.decode import Search
from wenet_uio.search.recogniser import load_recogniser, streaming_obstacle
from wenet_uio.search.types import DecodeOptions

SEARCH = Search(
    ["ctc_greedy_search"],
    DecodeOptions(decoding_chunk_size=4, num_decoding_left_chunks=2, token_times=True, nbest=1),
)


def live_of(recogniser, rate=RATE, search=SEARCH):
    options = LiveOptions(rate, holds_quiet=False, second_pass=False)
    cutting = Cutting(window=2.0, overlap=0.5)
    return ChunkStream(Transcriber(recogniser, search), recogniser, search, options, cutting)


def stream_of(recogniser, rate=RATE, search=SEARCH):
    return Stream(live_of(recogniser, rate, search))


@pytest.fixture
def recogniser(tmp_path):
    return load_recogniser(write_model(tmp_path / "model"))


@pytest.mark.parametrize(("chunk", "left"), [(1, -1), (4, 2), (16, 0)])
def test_features_in_parts_encode_to_the_frames_of_the_whole(recogniser, chunk, left):
    encoder = recogniser.model.encoder.eval()
    feats = torch.randn(1, 203, 23, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        expected = encode_chunk_by_chunk(encoder, feats, chunk, left)
        stream = ChunkEncoder(encoder, chunk, left)
        found = [
            stream.accept(feats[:, start : start + 7], last=start + 7 >= 203)
            for start in range(0, 203, 7)
        ]
    torch.testing.assert_close(torch.cat(found, dim=1), expected)


@pytest.mark.parametrize("rate", [RATE, 8000, 44100])
def test_samples_in_parts_of_any_length_give_the_same_transcript(recogniser, rate):
    samples = bursts(seconds=3, starts=(0, 2))
    if rate != RATE:
        samples = resample(torch.from_numpy(samples), RATE, rate).numpy()
    results = []
    for seed in range(2):
        stream = stream_of(recogniser, rate)
        for part in parts(samples, seed):
            stream.accept(part)
        results.append(stream.finish())
    whole = stream_of(recogniser, rate)
    whole.accept(torch.from_numpy(samples))
    expected = whole.finish()
    assert results[0].text == results[1].text == expected.text != ""
    assert expected.seconds == pytest.approx(3, abs=1e-3)
    times = [[token.time for token in each.segments[0].tokens] for each in (*results, expected)]
    assert times[0] == times[1] == times[2] == sorted(times[0])


def test_int16_and_floats_give_the_same(recogniser):
    samples = (bursts(seconds=2, starts=(0,)) * 32768).round()
    texts = set()
    for given in (
        samples.astype(np.int16),
        samples / np.float32(32768),
        torch.from_numpy(samples / 32768).double(),
    ):
        stream = stream_of(recogniser)
        stream.accept(given)
        texts.add(stream.finish().text)
    assert len(texts) == 1


def test_wrong_samples_and_an_ended_stream_are_refused(recogniser, tmp_path):
    whole = load_recogniser(write_model(tmp_path / "whole", use_dynamic_chunk=False))
    for stream in (stream_of(recogniser), stream_of(whole)):
        for wrong, message in (
            (np.zeros((2, 9)), "expected one channel"),
            (np.zeros(9, np.int32), "found torch.int32"),
            (np.full(9, np.nan), "not all are numbers"),
        ):
            with pytest.raises(ValueError, match=message):
                stream.accept(wrong)
        stream.accept(np.zeros(0, np.float32))
        assert (stream.partial, stream.finish().segments) == ("", ())
        for call in (stream.finish, lambda stream=stream: stream.accept(np.zeros(9))):
            with pytest.raises(ValueError, match=NEVER_MORE):
                call()
    with pytest.raises(ValueError, match="a stream needs 1 or more encoder frames"):
        stream_of(recogniser, search=SEARCH._replace(options=DecodeOptions()))


def test_models_that_cannot_stream_say_why(recogniser, tmp_path):
    assert streaming_obstacle(recogniser.model, recogniser.config.dataset_conf) == ""
    for number, (keys, reason) in enumerate(
        [
            ({"use_dynamic_chunk": False}, "trained with full context only"),
            ({"causal": False}, "convolution sees future frames"),
        ]
    ):
        other = load_model(write_model(tmp_path / str(number), **keys), device="cpu")
        assert reason in other.obstacle
        assert isinstance(other.live(), WindowStream)
    conf = recogniser.config.dataset_conf
    whisper = recogniser.config.model_copy(
        update={"dataset_conf": conf.model_copy(update={"feats_type": "log_mel_spectrogram"})}
    )
    object.__setattr__(recogniser, "config", whisper)
    assert "features need whole utterances" in streaming_obstacle(
        recogniser.model, recogniser.config.dataset_conf
    )
