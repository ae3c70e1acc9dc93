from itertools import zip_longest

import numpy as np
import openai
import pytest

from tests.addons.serve.test_transcriptions import encoded
from tests.support.serve.clients import openai_client
from wenet_uio.addons.listen.tracks import parse_channel

NAMES = ["agent", "customer"]


@pytest.fixture
def client(server):
    return openai_client(server.url)


@pytest.fixture(scope="module")
def call(speech):
    """A recording with a speaker on each of its two channels."""
    return encoded(np.stack((speech, np.roll(speech, len(speech) // 6)), axis=1))


def diarized(client, content, **fields):
    return client.audio.transcriptions.create(
        model="any", file=("call.wav", content), response_format="diarized_json", **fields
    )


@pytest.mark.parametrize("names", [[], NAMES[:1], NAMES, [" ", NAMES[1]]])
def test_the_speakers_of_a_recording_are_its_channels(client, recogniser, call, names):
    expected = recogniser.transcribe(call)
    answer = diarized(client, call, **({"known_speaker_names": names} if names else {}))
    assert (answer.text, answer.duration, answer.task) == (expected.text, 6.0, "transcribe")
    own = ["left", "right"]
    speakers = [name.strip() or usual for name, usual in zip_longest(names, own, fillvalue="")]
    times = [(segment.start, segment.end) for segment in expected.segments]
    assert [(part.start, part.end) for part in answer.segments] == [
        pytest.approx(time, abs=1e-3) for time in times
    ]
    assert [(part.id, part.speaker, part.text) for part in answer.segments] == [
        (f"seg_{number}", speakers[segment.track.channel], segment.text)
        for number, segment in enumerate(expected.segments)
    ]
    assert {part.speaker for part in answer.segments} == set(speakers)
    assert {part.type for part in answer.segments} == {"transcript.text.segment"}


@pytest.mark.parametrize(
    ("channel", "names", "speaker"),
    [
        ("0", [], "channel 0"),
        ("1", NAMES, "customer"),
        ("mix", NAMES, "mix"),
    ],
)
def test_one_channel_is_one_speaker(client, recogniser, call, channel, names, speaker):
    fields = {"known_speaker_names": names} if names else {}
    answer = diarized(client, call, extra_body={"channel": channel}, **fields)
    assert answer.text == recogniser.transcribe(call, channel=parse_channel(channel)).text != ""
    assert {part.speaker for part in answer.segments} == {speaker}


def test_speakers_that_are_no_channels_are_refused(client, speech, call):
    with pytest.raises(openai.BadRequestError, match="3 names, the recording has 2 channel"):
        diarized(client, call, known_speaker_names=[*NAMES, "other"])
    with pytest.raises(openai.BadRequestError, match="2 names, the recording has 1 channel"):
        diarized(client, encoded(speech), known_speaker_names=NAMES)
    with pytest.raises(openai.BadRequestError, match="does not tell voices apart"):
        diarized(
            client,
            call,
            known_speaker_names=NAMES,
            known_speaker_references=["data:audio/wav;base64,AAAA"] * 2,
        )


def test_segments_with_speakers_are_streamed(client, call):
    whole = diarized(client, call)
    events = list(diarized(client, call, stream=True))
    segments = [event for event in events if event.type == "transcript.text.segment"]
    deltas = [event for event in events if event.type == "transcript.text.delta" and event.delta]
    assert [part.to_dict() for part in segments] == [part.to_dict() for part in whole.segments]
    assert [delta.segment_id for delta in deltas] == [part.id for part in segments]
    assert "".join(delta.delta for delta in deltas) == events[-1].text == whole.text
    assert [part["speaker"] for part in events[-1].segments] == [
        part.speaker for part in whole.segments
    ]
