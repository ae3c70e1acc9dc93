import io
import os
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

import wenet_uio
from tests.addons.listen.conftest import RATE, TRANSDUCER, bursts, write_model
from tests.support.storage.servers import serving
from wenet_uio.addons.listen.results import NO_SPEECH
from wenet_uio.addons.listen.speech import MARGIN
from wenet_uio.addons.listen.tracks import Track, parse_channel
from wenet_uio.audio.decoders import AudioError
from wenet_uio.text.ngrams import estimate, write_arpa

pytestmark = pytest.mark.usefixtures("without_silero")
PLAIN = {"holds_quiet": False, "second_pass": False}
"""Streams whose text is that of their chunks."""
CUT = {"window": 4.0}
"""A recording of six seconds is not cut otherwise."""


@pytest.fixture(scope="module")
def loaded(made):
    return wenet_uio.load_model(made / "exp/conformer", device="cpu")


@pytest.fixture
def recogniser(loaded, model):
    """The recogniser of all tests; the working directory has the files of `model`."""
    return loaded


def test_a_transcript_has_segments_words_and_tokens_with_times_and_confidences(recogniser):
    result = recogniser.transcribe("talk.wav", **CUT)
    assert result.seconds == 6
    assert len(result.segments) == 3
    assert result.text == " ".join(segment.text for segment in result.segments)
    for start, segment in zip((1, 3, 5), result.segments, strict=True):
        assert (segment.start, segment.end) == pytest.approx(
            (start - MARGIN, min(6, start + 0.8 + MARGIN)), abs=0.03
        )
        assert segment.words
        for word in segment.words:
            assert segment.start <= word.start < word.end <= segment.end
            assert all(word.start < token.time < word.end for token in word.tokens)
            assert 0 < word.confidence <= 1
    assert result.words[0] == result.segments[0].words[0]


def test_a_model_that_does_not_know_what_it_heard_says_once_what_is_kept(made, model, caplog):
    caplog.set_level("INFO")
    recogniser = wenet_uio.load_model(made / "exp/conformer", device="cpu")
    cut = recogniser.transcribe("talk.wav", kept_quiet=0.0, **CUT)
    assert "heard_quiet" not in caplog.text
    usual = recogniser.transcribe("talk.wav", **CUT)
    recogniser.stream()
    said = [line for line in caplog.text.splitlines() if "heard_quiet" in line]
    assert len(said) == 1
    assert "0.2 s are kept" in said[0]
    lengths = [
        [segment.end - segment.start for segment in result.segments] for result in (cut, usual)
    ]
    for less, more in zip(*lengths, strict=True):
        assert 0.15 < more - less < 0.4  # at one end or at both


def test_every_form_of_input_gives_the_same_text(recogniser):
    expected = recogniser.transcribe("talk.wav").text
    content = Path("talk.wav").read_bytes()
    samples, rate = soundfile.read("talk.wav", dtype="int16")
    forms = [
        Path("talk.wav"),
        open("talk.wav", "rb"),
        io.BytesIO(content),
        content,
        memoryview(content),
    ]
    for form in forms:
        assert recogniser.transcribe(form).text == expected
    for array in (
        samples,
        torch.from_numpy(samples),
        samples / np.float32(32768),
        samples[:, None],
    ):
        assert recogniser.transcribe(samples=array, sample_rate=rate).text == expected
    os.mkfifo("pipe")
    writer = threading.Thread(target=lambda: Path("pipe").write_bytes(content), daemon=True)
    writer.start()
    assert recogniser.transcribe("pipe").text == expected
    writer.join(60)
    assert recogniser.transcribe("talk.mp3").text


def test_several_inputs_are_batched_and_give_a_list_in_their_order(recogniser):
    soundfile.write("two.wav", bursts(starts=(0, 2), seed=2), RATE)
    soundfile.write("none.wav", bursts(starts=()), RATE)
    paths = ["talk.wav", "none.wav", "two.wav"]
    alone = [recogniser.transcribe(path, batch_size=1, **CUT) for path in paths]
    together = recogniser.transcribe(paths, batch_size=64, **CUT)
    assert [result.text for result in together] == [result.text for result in alone]
    assert [len(result.segments) for result in together] == [3, 0, 2]
    assert [result.reason for result in together] == [None, NO_SPEECH, None]
    assert recogniser.transcribe([]) == []
    assert recogniser.transcribe(["talk.wav"], **CUT)[0].text == alone[0].text
    arrays = [soundfile.read(path)[0] for path in paths]
    found = recogniser.transcribe(samples=arrays, sample_rate=RATE, **CUT)
    assert [len(result.segments) for result in found] == [3, 0, 2]


def test_a_transducer_decodes_with_searches_of_its_own(model):
    recogniser = wenet_uio.load_model(write_model(model, TRANSDUCER), device="cpu")

    samples, rate = soundfile.read("talk.wav", dtype="int16")
    samples = samples[: 2 * rate]  # an untrained transducer says something at each frame
    soundfile.write("short.wav", samples, rate)

    def text(**options):
        return recogniser.transcribe("short.wav", **options).text

    assert text() == text(mode="rnnt_greedy_search") != text(mode="ctc_prefix_beam_search")
    hot = {"hot_words": ["fg"], "hot_word_score": 100.0}
    assert text(**hot) == text(mode="rnnt_beam_search", **hot) != text(mode="rnnt_beam_search")
    for mode, options in (("rnnt_greedy_search", {}), ("rnnt_beam_search", hot)):
        finals = []
        for given in (options, {**options, "mode": mode}):
            stream = recogniser.stream(sample_rate=rate, **given)
            stream.accept(samples)
            finals.append(stream.finish().text)
        assert finals[0] == finals[1] != ""


def test_a_list_gives_what_each_input_gives_alone_in_every_mode(model):
    conf = {
        "causal": False,
        "use_dynamic_chunk": False,
        "cnn_module_norm": "batch_norm",
        "input_layer": "conv1d2",
    }
    recogniser = wenet_uio.load_model(write_model(model, **conf), device="cpu")
    for number, starts in enumerate([(1, 2, 5), (1,), (0, 3)]):
        soundfile.write(f"{number}.wav", bursts(starts=starts, seed=number), RATE)
    paths, texts = ["0.wav", "1.wav", "2.wav"], {}
    for mode in recogniser.modes:
        alone = [recogniser.transcribe([path], mode=mode)[0] for path in paths]
        together = recogniser.transcribe(paths, mode=mode, batch_size=16)
        texts[mode] = [result.text for result in together]
        assert texts[mode] == [result.text for result in alone]
        for one, other in zip(together, alone, strict=True):
            for segment, same in zip(one.segments, other.segments, strict=True):
                assert [token.time for token in segment.tokens] == [
                    token.time for token in same.tokens
                ]
                sure = [token.confidence for token in same.tokens]
                assert [token.confidence for token in segment.tokens] == pytest.approx(
                    sure, abs=1e-5
                )
    assert texts["ctc_greedy_search"][0]


def test_every_mode_of_the_model_and_its_options_work(recogniser):
    assert "attention_rescoring" in recogniser.modes
    for mode in recogniser.modes:
        assert recogniser.transcribe("talk.wav", mode=mode, beam_size=3).seconds == 6
    plain = recogniser.transcribe("talk.wav")
    hot = recogniser.transcribe("talk.wav", hot_words=["h"], hot_word_score=30.0).text
    assert hot.count("h") > plain.text.count("h")
    chunked = recogniser.transcribe(
        "talk.wav", decoding={"decoding_chunk_size": 4, "simulate_streaming": True}, **CUT
    )
    assert len(chunked.segments) == 3
    in_16_bits = recogniser.transcribe("talk.wav", decoding={"dtype": "bf16"})
    assert [segment.start for segment in in_16_bits.segments] == [
        segment.start for segment in plain.segments
    ]


def test_a_language_model_that_was_replaced_is_read_again(recogniser, tmp_path):
    pytest.importorskip("kenlm")
    model = tmp_path / "lm.arpa"

    def text_with(favoured):
        write_arpa(estimate([[favoured] * 20] * 9 + [["a"], ["h"]], 2), model)
        options = {"language_model": str(model), "lm_weight": 3.0, "length_bonus": 9.0}
        mode = "ctc_prefix_beam_search"
        return recogniser.transcribe("talk.wav", mode=mode, beam_size=9, **options).text

    first, second = text_with("a"), text_with("h")
    assert first != second
    assert text_with("a") == first


def channels(*sounds):
    return {"samples": np.stack(sounds, axis=1), "sample_rate": RATE}


SILENCE = np.zeros(6 * RATE, np.float32)


def test_a_silent_channel_is_no_track_and_is_named_if_it_was_chosen(recogniser, caplog):
    one_sided = channels(SILENCE, bursts())
    alone = recogniser.transcribe(samples=bursts(), sample_rate=RATE, **CUT)
    for channel in (None, 1):
        result = recogniser.transcribe(**one_sided, channel=channel, **CUT)
        assert result.text == alone.text
        assert {segment.to_dict()["channel"] for segment in result.segments} == {1}
    for channel in ("mix", "each"):
        assert len(recogniser.transcribe(**one_sided, channel=channel, **CUT).segments) == 3
    assert not caplog.records

    assert recogniser.transcribe(**one_sided, channel=0).text == ""
    assert (
        "input 0: channel 0 is silent (below -60 dBFS); channels with sound: 1; "
        "choose one, mix or each" in caplog.text
    )
    caplog.clear()
    assert recogniser.transcribe(**channels(SILENCE, SILENCE)).text == ""
    assert "input 0: no channel is louder than -60 dBFS" in caplog.text


def test_speakers_on_two_channels_are_transcribed_and_named_in_order(recogniser):
    left, right = bursts(starts=(1, 5)), bursts(starts=(3,), seed=2)
    alone = [
        recogniser.transcribe(samples=sound, sample_rate=RATE, **CUT).segments
        for sound in (left, right)
    ]
    call = recogniser.transcribe(**channels(left, right), **CUT)
    assert [segment.track for segment in call.segments] == [
        Track(0, "left"),
        Track(1, "right"),
        Track(0, "left"),
    ]
    texts = [alone[0][0].text, alone[1][0].text, alone[0][1].text]
    assert [segment.text for segment in call.segments] == texts
    assert call.text == "[left] {} [right] {} [left] {}".format(*texts)
    assert [cue.text.split()[0] for cue in call.segments[1].cues()] == ["[right]"]
    assert "[right] " in call.to_srt()
    assert [(part["channel"], part["channel_name"]) for part in call.to_dict()["segments"]] == [
        (0, "left"),
        (1, "right"),
        (0, "left"),
    ]


def test_a_speaker_who_goes_on_is_named_once_in_the_whole_text(recogniser):
    call = channels(bursts(starts=(1, 3)), bursts(starts=(5,), seed=2))
    text = recogniser.transcribe(**call, **CUT).text
    assert (text.count("[left]"), text.count("[right]")) == (1, 1)


@pytest.mark.parametrize("gain", [0.05, -1.0, 3.0])
def test_the_same_sound_on_further_channels_is_one_track(recogniser, gain, caplog):
    one, other = bursts(starts=(1, 5)) / 4, bursts(starts=(3,), seed=2) / 4
    alone = recogniser.transcribe(samples=one, sample_rate=RATE, **CUT)
    assert recogniser.transcribe(**channels(one, gain * one), **CUT).text == alone.text
    room = channels(one, gain * one, other, gain * other, SILENCE)
    result = recogniser.transcribe(**room, **CUT)
    assert [segment.track for segment in result.segments] == [
        Track(0, "channel 0"),
        Track(2, "channel 2"),
        Track(0, "channel 0"),
    ]
    assert not caplog.records


def test_each_transcribes_all_channels_and_a_number_names_what_it_leaves_out(recogniser, caplog):
    one, other = bursts(starts=(1, 5)), bursts(starts=(3,), seed=2)
    twice = recogniser.transcribe(**channels(one, one), channel="each", **CUT)
    assert [segment.track.name for segment in twice.segments] == ["left", "right"] * 2
    recogniser.transcribe(**channels(one, other), channel="mix")
    recogniser.transcribe(samples=one, sample_rate=RATE, channel=0)
    recogniser.transcribe(**channels(one, one / 8), channel=0)
    assert not caplog.records

    for channel in (0, 1):
        caplog.clear()
        result = recogniser.transcribe(**channels(one, other), channel=channel, **CUT)
        assert "[" not in result.text
        assert [record.getMessage() for record in caplog.records] == [
            f"warning: input 0: channel {channel} was transcribed; channels with other sound: "
            f"{1 - channel}; choose one, mix or each"
        ]


def test_hiss_on_another_channel_is_no_track_and_is_named_once(recogniser, caplog):
    hiss = np.random.default_rng(4).normal(0, 0.01, 6 * RATE).astype(np.float32)
    alone = recogniser.transcribe(samples=bursts(), sample_rate=RATE, **CUT)
    for sounds, used in (((bursts(), hiss), 0), ((SILENCE, hiss + bursts()), 1)):
        caplog.clear()
        result = recogniser.transcribe(**channels(*sounds), **CUT)
        assert len(result.segments) == len(alone.segments)
        assert {segment.track for segment in result.segments} == {Track(used)}
        assert [record.getMessage() for record in caplog.records] == [
            "warning: input 0: channel 0 was transcribed; channels with other sound: 1; choose one, "
            "mix or each"
        ][used:]


@pytest.mark.parametrize("channel", ["left", "-1", "1.0", ""])
def test_a_channel_that_is_no_choice_is_refused(channel):
    with pytest.raises(ValueError, match=r"expected a number from 0, mix or each"):
        parse_channel(channel)


def test_a_transcript_is_written_as_json_srt_and_vtt(recogniser):
    result = recogniser.transcribe("talk.wav", mode="ctc_prefix_beam_search", **CUT)
    values = result.to_dict()
    assert (values["text"], values["seconds"]) == (result.text, 6.0)
    assert [segment["text"] for segment in values["segments"]] == [
        segment.text for segment in result.segments
    ]
    assert values["segments"][0]["words"][0].keys() == {"word", "start", "end", "confidence"}
    srt, vtt = result.to_srt(), result.to_vtt()
    assert srt.startswith("1\n00:00:00,")
    assert vtt.startswith("WEBVTT\n\n00:00:00.")
    assert srt.count(" --> ") == vtt.count(" --> ") == 3
    empty = replace(result, segments=())
    assert (empty.text, empty.to_srt(), empty.to_vtt()) == ("", "", "WEBVTT\n")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, ValueError, "give either audio"),
        (
            {"audio": 3},
            TypeError,
            "audio: expected a path, a file object, bytes or samples, found int",
        ),
        ({"audio": np.zeros(9)}, ValueError, "needs its sample rate"),
        ({"samples": np.zeros(9)}, ValueError, "samples= and sample_rate= belong together"),
        (
            {"samples": np.zeros((2, 900)), "sample_rate": RATE},
            ValueError,
            r"expected shape .*, found \(2, 900\)",
        ),
        ({"samples": np.zeros(9, np.int64), "sample_rate": RATE}, ValueError, "found int64"),
        (
            {"samples": np.zeros(9), "sample_rate": 0},
            ValueError,
            "sample_rate: expected above 0 Hz",
        ),
        ({"samples": np.zeros(0), "sample_rate": RATE}, AudioError, "input 0: no samples"),
        ({"samples": np.full(RATE, np.nan), "sample_rate": RATE}, AudioError, "input 0: .*damaged"),
        ({"audio": "none.wav"}, AudioError, "none.wav: No such file"),
        ({"audio": b"RIFF"}, AudioError, "input 0: "),
        ({"audio": ["talk.wav", b""]}, AudioError, "input 1: empty"),
        ({"audio": io.StringIO("x")}, AudioError, "open the file in mode 'rb'"),
        (
            {"audio": "talk.wav", "mode": "greedy"},
            ValueError,
            "unknown decode mode greedy; known: ",
        ),
        (
            {"audio": "talk.wav", "mode": "rnnt_beam_search"},
            ValueError,
            "trained with transducer_weight 0; it can do ",
        ),
        ({"audio": "talk.wav", "beem": 3}, TypeError, "beem"),
        (
            {"audio": "talk.wav", "channel": 4},
            AudioError,
            r"channel 4 \(counted from 0\) requested",
        ),
        (
            {"audio": "talk.wav", "hot_words": "abc"},
            ValueError,
            "hot_words: expected a list of phrases",
        ),
        (
            {"audio": "talk.wav", "hot_words": ["xyz"]},
            ValueError,
            "hot_words: the units can spell no phrase: xyz",
        ),
        (
            {"audio": "talk.wav", "hot_words": ["a"], "mode": "attention"},
            ValueError,
            "hot_words is not used by",
        ),
        (
            {"audio": "talk.wav", "decoding": {"beem": 3}},
            ValueError,
            "decoding: unknown beem; known: beam_size",
        ),
        (
            {"audio": "talk.wav", "device": "gpu"},
            ValueError,
            "device gpu: unknown; known: auto, cpu",
        ),
        ({"audio": "talk.wav", "batch_size": 0}, ValueError, "batch_size: expected 1 or more"),
    ],
)
def test_wrong_arguments_are_named(recogniser, arguments, error, message):
    with pytest.raises(error, match=message):
        recogniser.transcribe(**arguments)


def test_a_stream_gives_partial_texts_and_the_text_of_simulated_streaming(recogniser):
    samples = bursts(seconds=3, starts=(0, 1))
    decoding = {"decoding_chunk_size": 4, "num_decoding_left_chunks": 2, "simulate_streaming": True}
    for mode in recogniser.modes:
        options = {"mode": mode, "beam_size": 4}
        whole = recogniser.transcribe(
            samples=samples, sample_rate=RATE, pause=0, decoding=decoding, **options
        )
        stream = recogniser.stream(chunk_size=4, left_chunks=2, **PLAIN, **options)
        partial = []
        for start in range(0, len(samples), 1000):
            stream.accept(samples[start : start + 1000])
            partial.append(stream.partial)
        result = stream.finish()
        assert result.text == whole.text
        assert (result.seconds, len(result.segments)) == (3, 1)
        assert partial[0] == ""
        assert len(set(partial)) > 2
        assert partial[-1] != ""
    assert recogniser.stream().finish().text == ""
    with pytest.raises(
        ValueError, match="decoding_chunk_size 0: a stream needs 1 or more encoder frames"
    ):
        recogniser.stream(chunk_size=0)


@pytest.mark.parametrize("starts", [(0,), (1,), (0, 1), (1, 3)])
def test_the_final_text_of_a_stream_is_that_of_the_recording(recogniser, starts):
    samples = bursts(seconds=5, starts=starts)
    for mode in recogniser.modes:
        whole = recogniser.transcribe(samples=samples, sample_rate=RATE, mode=mode)
        stream = recogniser.stream(mode=mode)
        stream.accept(samples)
        result = stream.finish()
        times = [[word.start for word in each.words] for each in (result, whole)]
        assert result.text == whole.text
        assert times[0] == pytest.approx(times[1], abs=0.02)


def test_a_model_with_full_context_decodes_windows_again_and_says_so(tmp_path, caplog):
    folder = write_model(tmp_path / "whole", use_dynamic_chunk=False, causal=False)
    recogniser = wenet_uio.load_model(folder, device="cpu")
    samples = bursts()
    stream = recogniser.stream(window=2.0, mode="ctc_prefix_beam_search")
    assert (
        "no streaming, the newest window is decoded again and again: the model was trained with "
        "full con" in caplog.text
    )
    partial = []
    for start in range(0, len(samples), 1600):
        stream.accept(samples[start : start + 1600])
        partial.append(stream.partial)
    result = stream.finish()
    assert len(set(partial)) > 3
    assert result.text.startswith(partial[4][:1])
    times = [token.time for token in result.segments[0].tokens]
    assert times == sorted(times)
    assert 5 < times[-1] < 6
    assert recogniser.stream().finish().segments == ()


def test_audio_may_be_a_url(recogniser, tmp_path, monkeypatch):
    monkeypatch.setenv("WENET_UIO_CACHE", str(tmp_path / "cache"))
    expected = recogniser.transcribe("talk.wav").text
    with serving(tmp_path) as server:
        assert recogniser.transcribe(f"{server.url}/talk.wav").text == expected
        with pytest.raises(OSError, match=r"/none\.wav"):
            recogniser.transcribe(f"{server.url}/none.wav")


def test_other_file_objects_and_names_work_in_any_order(recogniser, tmp_path):
    first = recogniser.transcribe("talk.wav")
    stream = recogniser.stream()
    stream.accept(bursts()[: 2 * RATE])
    assert recogniser.transcribe("talk.wav") == first  # while a stream is open
    with_channel = recogniser.transcribe("talk.wav", channel=0, device="cpu")
    assert with_channel == first
    stream.accept(bursts()[2 * RATE :])
    assert stream.finish().seconds == 6
    (tmp_path / "folder.wav").mkdir()
    with pytest.raises(AudioError, match=r"folder\.wav: "):
        recogniser.transcribe("folder.wav")
    short = recogniser.transcribe(samples=np.ones(10, np.float32), sample_rate=RATE)
    assert (short.text, short.segments) == ("", ())
