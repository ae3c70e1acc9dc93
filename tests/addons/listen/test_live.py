"""Streams that advance together: texts, ends of utterances, faults, memory."""

import random
import threading

import numpy as np
import pytest
import torch

import wenet_uio
from tests.addons.listen.conftest import RATE, bursts, write_model
from tests.addons.listen.tone_model import TONE, tones, write_tone_model
from wenet_uio.addons.listen.endpoint import WENET_RULES, EndpointRule
from wenet_uio.addons.listen.live import PARTIAL_MODES, Failed, Final, Partial, advance
from wenet_uio.addons.listen.speech_gate import SpeechGate
from wenet_uio.addons.runtimes.onnx_files import to_onnx
from wenet_uio.addons.runtimes.onnx_graphs import streams_graphs
from wenet_uio.dataset.chain.waveform import resample
from wenet_uio.search.recogniser import load_recogniser

SIMULATED = {"decoding_chunk_size": 4, "num_decoding_left_chunks": 2, "simulate_streaming": True}
CHUNKS = {"chunk_size": 4, "left_chunks": 2, "detector": "energy"}
"""Tones are no voice, so levels find them."""
PLAIN = {"holds_quiet": False, "second_pass": False}
"""Streams whose text is that of their chunks."""


@pytest.fixture(scope="module")
def babble_run(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("babble") / "model")


@pytest.fixture(scope="module")
def babble(babble_run):
    """A recogniser of random weights, whose text depends on every frame."""
    return wenet_uio.load_model(babble_run, device="cpu")


@pytest.fixture(scope="module")
def exported_babble(babble_run):
    """The same recogniser, exported for streams."""
    pytest.importorskip("onnxruntime")
    folder = babble_run / "onnx/streams"
    folder.mkdir(parents=True)
    model = load_recogniser(babble_run).model.eval()
    for name, graph in streams_graphs(model, 23).items():
        (folder / name).write_bytes(to_onnx(graph))
    return wenet_uio.load_model(babble_run / "onnx")


@pytest.fixture(scope="module")
def hears_tones(tmp_path_factory):
    return wenet_uio.load_model(
        write_tone_model(tmp_path_factory.mktemp("tones") / "model"), device="cpu"
    )


def run(streams, inputs, draw):
    """Feed each stream packets of random lengths in random order; advance now and then -> events of
    each stream.
    """
    events = [[] for _ in streams]
    left = dict(enumerate(inputs))
    while not all(stream.finished for stream in streams):
        for place in draw.sample(sorted(left), min(len(left), draw.randint(1, len(streams)))):
            size = draw.choice([0, 1, 160, 800, 1600, 9000])
            if not streams[place].finished:  # an error ended it
                streams[place].push(left[place][:size])
            left[place] = left[place][size:]
            if not len(left[place]):
                streams[place].end()
                del left[place]
        advance(draw.sample(streams, draw.randint(1, len(streams))))
        for place, stream in enumerate(streams):
            events[place] += stream.take()
    return events


def events_of(stream, samples, packet=1600):
    """All events of a stream that is alone."""
    events = []
    for start in range(0, len(samples), packet):
        stream.push(samples[start : start + packet])
        while stream.ready:
            advance([stream])
        events += stream.take()
    stream.end()
    while stream.ready:
        advance([stream])
    assert stream.finished
    return events + stream.take()


def finals(events):
    return [event for event in events if isinstance(event, Final)]


def test_twenty_streams_together_have_the_texts_of_simulated_streaming(babble):
    draw = random.Random(1)
    streams, inputs, expected = [], [], []
    for number in range(20):
        rate = (8000, RATE)[number % 2]
        mode = ("ctc_greedy_search", "ctc_prefix_beam_search", "attention_rescoring", "attention")[
            number % 4
        ]
        seconds = draw.randint(1, 4)
        samples = bursts(seconds, starts=range(seconds), seed=number)[: -draw.randint(1, 9000)]
        if rate != RATE:
            samples = resample(torch.from_numpy(samples), RATE, rate).numpy()
        options = {"mode": mode, "beam_size": 4}
        whole = babble.transcribe(
            samples=samples, sample_rate=rate, pause=0, decoding=SIMULATED, **options
        )
        expected.append(whole.text)
        streams.append(babble.live(sample_rate=rate, endpoints={}, **CHUNKS, **PLAIN, **options))
        inputs.append(samples)
    events = run(streams, inputs, draw)
    assert [finals(each)[-1].texts[0] for each in events] == expected
    assert all(len(finals(each)) == 1 and each[-1].rule == "end" for each in events)
    assert sum(isinstance(event, Partial) for each in events for event in each) > 60
    assert len(set(expected)) > 10


@pytest.mark.third
@pytest.mark.parametrize("second_pass", [True, False])
def test_streams_of_an_export_have_the_events_of_those_of_the_checkpoint(
    babble, exported_babble, second_pass
):
    draw = random.Random(2)
    assert exported_babble.obstacle == ""
    streams, exported, inputs = [], [], []
    for number in range(12):
        rate = (8000, RATE)[number % 2]
        mode = exported_babble.modes[number % 3]
        options = {
            "sample_rate": rate,
            "mode": mode,
            "partial_mode": PARTIAL_MODES[number // 6],
            "chunk_size": draw.choice([1, 4, 16]),
            "left_chunks": draw.choice([-1, 0, 2]),
            "endpoints": draw.choice([{}, WENET_RULES]),
            "hot_words": draw.choice([(), ("ab",)]) if mode != "ctc_greedy_search" else (),
            "second_pass": second_pass,
            "detector": "energy",
            "decoding": {"dtype": "fp32"},
        }
        seconds = draw.randint(1, 5)
        samples = bursts(seconds, starts=range(0, seconds, 2), seed=number)
        samples = samples[: draw.choice([100, len(samples), len(samples), len(samples) - 3000])]
        if rate != RATE:
            samples = resample(torch.from_numpy(samples), RATE, rate).numpy()

        streams.append(babble.live(**options))
        exported.append(exported_babble.live(**options))
        inputs.append(samples)

    def texts_and_rules(events):
        return [(type(event), event.texts, getattr(event, "rule", None)) for event in events]

    expected, found = (run(each, inputs, random.Random(3)) for each in (streams, exported))
    assert list(map(texts_and_rules, found)) == list(map(texts_and_rules, expected))
    assert sum(map(len, found)) > 50
    for events, others in zip(found, expected, strict=True):
        for final, other in zip(finals(events), finals(others), strict=True):
            segment, other_segment = final.segment, other.segment
            assert (segment.start, segment.end) == (other_segment.start, other_segment.end)
            assert [word.start for word in segment.words] == [
                word.start for word in other_segment.words
            ]


TALKS = {
    "bursts": bursts(seconds=6, starts=(1, 2, 4), seed=3),
    "pauses": np.concatenate([bursts(2, starts=(0,), seed=1), np.zeros(24_000, np.float32)] * 2),
    "rising noise": np.concatenate(
        [bursts(3, starts=(1,), seed=2), 0.02 * bursts(4, starts=(0, 1, 2), seed=4)]
    ),
}


@pytest.mark.third
@pytest.mark.parametrize("talk", TALKS)
@pytest.mark.parametrize("rate", [8000, RATE])
@pytest.mark.parametrize("second_pass", [False, True])
def test_what_a_stream_hears_does_not_depend_on_the_length_of_packets(
    babble, talk, rate, second_pass
):
    samples = TALKS[talk]
    if rate != RATE:
        samples = resample(torch.from_numpy(samples), RATE, rate).numpy()

    def events_with(packet):
        stream = babble.live(sample_rate=rate, second_pass=second_pass, **CHUNKS)
        return [
            (type(event), event.texts, getattr(event, "segment", None))
            for event in events_of(stream, samples, packet)
        ]

    expected = events_with(1600)
    assert len(expected) > 2
    for packet in (160, 4800, 9600, len(samples)):
        assert events_with(packet) == expected, packet


@pytest.mark.parametrize(
    "mode", ["ctc_greedy_search", "ctc_prefix_beam_search", "attention_rescoring"]
)
def test_utterances_end_after_pauses_and_their_times_are_those_of_the_stream(hears_tones, mode):
    events = events_of(hears_tones.live(mode=mode, **CHUNKS), tones("1ab2c7dd1"))
    found = finals(events)
    assert [(each.texts[0], each.rule) for each in found] == [
        ("ab", "rule2"),
        ("c", "rule2"),
        ("", "rule1"),
        ("dd", "end"),
    ]
    segments = [each.segment for each in found]
    assert segments[0].start == 0
    assert segments[-1].end == pytest.approx(13.0)
    assert [each.end for each in segments[:-1]] == [each.start for each in segments[1:]]
    assert [each.text for each in segments] == [each.texts[0] for each in found]
    times = [token.time for each in segments for token in each.tokens]
    assert times == pytest.approx([1.15, 1.55, 3.95, 11.35, 11.75], abs=TONE / 2 + 0.02)
    for each in segments:
        assert all(each.start <= word.start < word.end <= each.end + 1e-9 for word in each.words)


@pytest.mark.parametrize(("is_loud", "texts"), [(False, ["ab", "c", "d"]), (True, ["abc", "d"])])
def test_blank_ends_an_utterance_later_while_it_is_loud(hears_tones, monkeypatch, is_loud, texts):
    """A model of whole words finds blank between its peaks, though somebody speaks."""
    if is_loud:
        everywhere = property(lambda gate: gate._measured, lambda gate, position: None)
        monkeypatch.setattr(SpeechGate, "last_speech", everywhere, raising=False)
    options = {**CHUNKS, "second_pass": False}
    samples = np.concatenate((tones("1ab1"), tones("1")[: RATE // 2], tones("c3d1")))
    events = events_of(hears_tones.live(**options), samples)
    assert [event.texts[0] for event in finals(events) if event.texts[0]] == texts


def test_partial_texts_grow_and_are_only_reported_when_they_change(hears_tones):
    events = events_of(hears_tones.live(**CHUNKS), tones("1abc2d1"))
    assert [event.texts[0] for event in events] == ["a", "ab", "abc", "abc", "d", "d", ""]
    assert [type(event) for event in events[2:4]] == [Partial, Final]


def test_prefix_beam_search_gives_as_many_partial_texts_as_are_asked_for(babble):
    samples = bursts(seconds=2, starts=(0, 1))
    options = {
        "mode": "ctc_prefix_beam_search",
        "partial_mode": "ctc_prefix_beam_search",
        "hot_words": ["ab"],
        **PLAIN,
    }
    several = events_of(babble.live(nbest=3, endpoints={}, **CHUNKS, **options), samples)
    one = events_of(babble.live(endpoints={}, **CHUNKS, **options), samples)
    assert {len(event.texts) for event in several[2:]} == {3}
    assert {len(event.texts) for event in one} == {1}
    # Nothing is new at the end
    assert one[-1].texts == several[-1].texts[:1] == several[-2].texts[:1]
    with pytest.raises(
        ValueError, match="partial_mode: expected ctc_greedy_search or .*, found attention"
    ):
        babble.live(partial_mode="attention")
    with pytest.raises(ValueError, match="nbest: expected 1 or more, found 0"):
        babble.live(nbest=0)


def test_utterances_end_by_the_rules_that_their_stream_is_given(hears_tones):
    rules = {"quick": EndpointRule(needs_words=True, silence=0.3)}
    found = finals(events_of(hears_tones.live(endpoints=rules, **CHUNKS), tones("1a1b1")))
    assert [(each.texts[0], each.rule) for each in found] == [
        ("a", "quick"),
        ("b", "quick"),
        ("", "end"),
    ]
    found = finals(events_of(hears_tones.live(endpoints={}, **CHUNKS), tones("1a7b1")))
    assert [(each.texts[0], each.rule) for each in found] == [("ab", "end")]
    long = {"rule3": EndpointRule(needs_words=False, silence=0, length=2.0)}
    found = finals(events_of(hears_tones.live(endpoints=long, **CHUNKS), tones("abcdabcd")))
    assert [each.rule for each in found] == ["rule3", "end"]
    assert found[0].segment.end == pytest.approx(2.0, abs=0.2)


@pytest.mark.parametrize("penalty", [0.0, 4.0, -4.0])
def test_a_penalty_of_the_blank_does_not_change_where_utterances_end(hears_tones, penalty):
    decoding = {"blank_penalty": penalty}
    found = finals(events_of(hears_tones.live(decoding=decoding, **CHUNKS), tones("1ab2c2")))
    assert [each.rule for each in found] == ["rule2", "rule2", "end"]


def test_a_stream_without_samples_ends_with_one_final(babble):
    for given in (np.zeros(0), np.zeros(100, np.int16)):
        stream = babble.live(**CHUNKS)
        stream.push(given)
        assert not stream.ready
        stream.end()
        assert stream.ready
        advance([stream])
        assert stream.finished
        assert not stream.ready
        (event,) = stream.take()
        assert (event.texts, event.rule, event.segment.words) == (("",), "end", ())
        assert event.segment.end == len(given) / RATE
        assert stream.take() == []
        with pytest.raises(ValueError, match="the stream has ended"):
            stream.push(given)
    advance([])
    advance([stream])


def test_a_stream_is_ready_when_a_chunk_is_complete_and_knows_how_much_waits(babble):
    stream = babble.live(chunk_size=16, **PLAIN)
    advance([stream])
    pushed = 0
    while not stream.ready:
        stream.push(np.zeros(160, np.int16))
        pushed += 160
        assert stream.waiting == pytest.approx(pushed / RATE)
    assert pushed / RATE == pytest.approx(0.64 + 0.04, abs=0.03)
    advance([stream])
    assert not stream.ready
    assert stream.waiting == pytest.approx(pushed / RATE - 0.64)
    stream.push(np.zeros(100 * RATE, np.int16))
    assert stream.waiting > 100
    advance([stream])
    assert stream.waiting == pytest.approx(100 + pushed / RATE - 2 * 0.64)  # a step takes one chunk


class Broken:
    """A scorer that fails."""

    state_size, most = 1, 0.0

    def begin(self):
        return self

    def extend(self, states, tokens, wanted):
        raise RuntimeError("broken")

    def end(self, states):
        return torch.zeros(states.shape[:2], dtype=torch.float64)


def test_a_fault_in_one_stream_leaves_the_others_as_they_are(babble):
    samples = bursts(seconds=2, starts=(0, 1))
    options = {"mode": "ctc_prefix_beam_search", "endpoints": {}, **CHUNKS}
    expected = finals(events_of(babble.live(**options), samples))[0].texts
    streams = [babble.live(**options) for _ in range(5)]
    streams[1]._beam._scorers = [Broken()]
    with pytest.raises(ValueError, match="expected one channel"):
        streams[2].push(np.zeros((2, 9)))
    streams[3].push(np.full(RATE, 1e25, np.float32))  # its features are infinite
    streams[4].push(np.zeros(0, np.int16))
    events = run(streams, [samples] * 4 + [np.zeros(9, np.int16)], random.Random(1))
    assert finals(events[0])[0].texts == finals(events[2])[0].texts == expected
    assert [str(event.error) for event in events[1] if isinstance(event, Failed)] == ["broken"]
    assert events[1][-1] is events[1][0]
    assert streams[1].waiting == 0
    assert not finals(events[4])[0].segment.words


def test_a_caller_may_change_its_array_after_a_push(babble):
    samples = (bursts(seconds=2, starts=(0, 1)) * 32768).astype(np.int16)
    expected = finals(events_of(babble.live(**CHUNKS), samples))[-1].texts
    for given in (samples.copy(), torch.from_numpy(samples.copy())):
        stream = babble.live(**CHUNKS)
        stream.push(given)
        given[:] = 0
        assert finals(events_of(stream, samples[:0]))[-1].texts == expected
    read_only = np.frombuffer(samples.tobytes(), "<i2")
    assert finals(events_of(babble.live(**CHUNKS), read_only))[-1].texts == expected


def test_a_thread_that_pushes_while_another_one_advances_changes_no_text(babble):
    samples = bursts(seconds=4, starts=(0, 2))
    expected = finals(events_of(babble.live(endpoints={}, **CHUNKS), samples))[0].texts
    stream = babble.live(endpoints={}, **CHUNKS)

    def push():
        for start in range(0, len(samples), 111):
            stream.push(samples[start : start + 111])
        stream.end()

    thread = threading.Thread(target=push)
    thread.start()
    while not stream.finished:
        advance([stream])
    thread.join(60)
    assert finals(stream.take())[0].texts == expected


def held(value, seen=None):
    """Bytes of all tensors and arrays that a stream holds."""
    seen = set() if seen is None else seen
    if id(value) in seen or isinstance(value, (torch.nn.Module, str, int, float, type)):
        return 0
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        return value.untyped_storage().nbytes()
    if isinstance(value, np.ndarray):
        return value.nbytes
    parts = value if isinstance(value, (list, tuple, set)) or hasattr(value, "popleft") else ()
    parts = value.values() if isinstance(value, dict) else parts
    return 64 * len(list(parts)) + sum(
        held(part, seen) for part in (*parts, *getattr(value, "__dict__", {}).values())
    )


@pytest.mark.parametrize("text", ["ab2", pytest.param("9", marks=pytest.mark.all)])
def test_a_stream_holds_no_more_after_a_minute_than_after_half_of_it(hears_tones, text):
    rules = {**WENET_RULES, "rule3": EndpointRule(needs_words=False, silence=0, length=4.0)}
    stream = hears_tones.live(chunk_size=16, endpoints=rules)
    minute = tones(text * 22)[: 60 * RATE]
    sizes = []
    for start in range(0, len(minute), RATE):
        stream.push(minute[start : start + RATE])
        while stream.ready:
            advance([stream])
        stream.take()
        sizes.append(held(stream))
    assert len(sizes) == 60
    assert max(sizes[30:]) <= 1.1 * max(sizes[:30])


def test_streams_of_equal_hot_words_are_searched_together_and_others_apart(babble):
    options = {"mode": "ctc_prefix_beam_search", **CHUNKS}
    first, second, other = (
        babble.live(hot_words=words, **options) for words in (["ab"], ["ab"], ["ba"])
    )
    assert first._beam.kind == second._beam.kind != other._beam.kind
