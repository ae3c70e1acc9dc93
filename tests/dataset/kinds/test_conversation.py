"""Conversations of text and audio: read in order, planned by tokens, every turn once an epoch."""

import json
import math
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.data.loading import TOKENIZER, FakeConfig
from tests.support.data.tars import everything, wav
from tests.support.storage.servers import serving
from wenet_uio.audio.read import read_audio
from wenet_uio.bin.train import refuse_conversations
from wenet_uio.config.mixture import MixtureConf
from wenet_uio.config.source import parse_source
from wenet_uio.dataset.dataset import build_loader
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.kinds.conversation import ConversationCorpus
from wenet_uio.dataset.kinds.text import TextCorpus
from wenet_uio.dataset.options import LoaderOptions
from wenet_uio.dataset.types import AUDIO_TURN, SampleRef

TOKENS = 80
BATCH = {"batch_type": "dynamic", "batch_tokens": TOKENS}
SECONDS_OF_TOKEN = 0.08


def text(value, role="user"):
    return {"from": role, "value": value, "type": "text"}


def audio(path, seconds=None, role="assistant", **more):
    stated = {} if seconds is None else {"duration": seconds}
    return {"from": role, "value": path, "type": "audio", **stated, **more}


def write(path, conversations):
    lines = [
        {"id": f"c{number}", "conversations": turns} for number, turns in enumerate(conversations)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


@pytest.fixture(scope="module")
def audio_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("audio")
    for number in range(5):
        (folder / f"{number}.wav").write_bytes(wav(seconds_of(number), seed=number))
    return folder


def seconds_of(number):
    return 0.3 + number / 5


def loader(path, conf=None, **options):
    source = {
        "type": "multimodal_conversation",
        "manifest_filepath": path,
        "audio_locator_tag": ["audio"],
    }
    config = FakeConfig(batch_conf=BATCH, filter_conf={"min_length": 1}, **(conf or {}))
    mixture = MixtureConf.model_validate([source])
    return build_loader(
        mixture, "raw", config, TOKENIZER, training=True, options=LoaderOptions(**options)
    )


def test_a_batch_has_texts_and_features_in_the_order_of_the_turns(audio_folder):
    turns = [
        [text("ab"), audio("0.wav", 0.3), text("c"), audio("1.wav")],
        [audio("2.wav", 0.2, offset=0.1), text("abcab")],
        [text("abc")],
    ]
    path = write(audio_folder / "some.jsonl", turns)
    (batch,) = loader(path, {"speed_perturb": False, "spec_trim": False})
    assert batch.keys == ("c1", "c0", "c2")
    assert batch.feats_lengths.tolist() == [18, 28, 48]
    assert batch.feats.shape[:2] == (3, 48)
    rows = {key: row[row != -1].tolist() for key, row in zip(batch.keys, batch.target, strict=True)}
    labels = {value: TOKENIZER.tokenize(value)[1] for value in ("ab", "c", "abcab", "abc")}
    assert rows == {
        "c0": [*labels["ab"], AUDIO_TURN, *labels["c"], AUDIO_TURN],
        "c1": [AUDIO_TURN, *labels["abcab"]],
        "c2": labels["abc"],
    }
    texts = dict(zip(batch.keys, batch.texts, strict=True))
    assert texts == {"c0": "ab [audio] c [audio]", "c1": "[audio] abcab", "c2": "abc"}
    roles = {key: extra["roles"] for key, extra in zip(batch.keys, batch.extra, strict=True)}
    assert roles["c1"] == ["assistant", "user"]


def test_a_byte_order_mark_before_a_turn_is_no_part_of_it(tmp_path):
    path = write(tmp_path / "a.json", [[text("\ufeffone"), text("two")]])
    (only,) = everything(ConversationCorpus(path, 0.08, "[audio]"))
    assert only.turns == ("one", "two")


def test_the_length_of_a_conversation_counts_audio_in_tokens(audio_folder):
    path = write(
        audio_folder / "length.jsonl",
        [[text("ab"), audio("0.wav"), audio("x.wav", 0.81), text("c d")]],
    )
    corpus = ConversationCorpus(path, SECONDS_OF_TOKEN, "[audio]")
    assert corpus.rows(0).text_length.tolist() == [
        2 + math.ceil(0.3 / 0.08) + math.ceil(0.81 / 0.08) + 3
    ]
    assert corpus.audio_tokens(SampleRef(0, 0)) == 4 + 11
    assert corpus.texts(SampleRef(0, 0)).texts == ("ab", "c d")
    assert corpus.kinds == {"conversation"}
    assert corpus.has_text_only
    assert ConversationCorpus(path, 0.1, "[audio]").rows(0).text_length.tolist() == [2 + 3 + 9 + 3]


def test_the_length_of_a_turn_in_a_store_is_that_of_the_file(audio_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("WENET_UIO_CACHE", str(tmp_path / "cache"))
    (audio_folder / "long.wav").write_bytes(wav(10.0))
    lengths = []
    with serving(audio_folder) as server:
        for place in (str(audio_folder), server.url):
            turns = [audio(f"{place}/{name}.wav") for name in ("0", "long")]
            corpus = ConversationCorpus(write(tmp_path / "x.jsonl", [turns]), 0.08, "[audio]")
            lengths.append(corpus.rows(0).text_length.tolist())
        assert server.requests == {"/0.wav": 1, "/long.wav": 1}
    assert lengths[0] == lengths[1] == [4 + 125]
    assert not [path for path in (tmp_path / "cache").rglob("*.wav") if path.stat().st_size > 1e5]


def test_a_turn_in_a_store_sounds_as_the_local_file(audio_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("WENET_UIO_CACHE", str(tmp_path / "cache"))
    with serving(audio_folder) as server:
        local, remote = (
            ConversationCorpus(
                write(tmp_path / name, [[audio(f"{place}/2.wav", 0.2, offset=0.1)]]),
                0.08,
                "[audio]",
            ).read(SampleRef(0, 0))
            for name, place in (("a.jsonl", str(audio_folder)), ("b.jsonl", server.url))
        )
    sounds = [
        read_audio(turn.audio, turn.start, turn.end) for turn in (*local.turns, *remote.turns)
    ]
    assert sounds[0][1] == sounds[1][1]
    assert len(sounds[0][0]) == 0.2 * sounds[0][1]
    assert (sounds[0][0] == sounds[1][0]).all()


def turn_of(number):
    """Audio of that number, or a text of 1 to 3 letters for a negative number."""
    return (
        audio(f"{number}.wav", round(seconds_of(number), 3))
        if number >= 0
        else text("abc"[: -number % 3 + 1])
    )


@settings(max_examples=12)
@given(
    turns=st.lists(st.lists(st.integers(-6, 4), min_size=1, max_size=4), min_size=5, max_size=30),
    world_size=st.sampled_from([1, 2, 5]),
)
def test_every_turn_is_read_once_an_epoch_within_the_bound_in_equal_steps(
    audio_folder, turns, world_size
):
    conversations = [[turn_of(turn) for turn in each] for each in turns]
    path = write(audio_folder / "random.jsonl", conversations)
    seen, heard, steps = [], 0, []
    for rank in range(world_size):
        own = loader(path, rank=rank, world_size=world_size)
        batches = list(own)
        steps.append(sum(batch.closes_step for batch in batches))
        for batch in batches:
            assert (batch.target == AUDIO_TURN).sum() == len(batch.feats_lengths)
            lengths = [length_of(conversations[int(key[1:])]) for key in batch.keys]
            assert len(lengths) * max(lengths, default=0) <= TOKENS
            seen += batch.keys
            heard += len(batch.feats_lengths)
    assert sorted(seen) == sorted(f"c{number}" for number in range(len(conversations)))
    assert heard == sum(turn >= 0 for each in turns for turn in each)
    assert len(set(steps)) == 1


def length_of(turns):
    return sum(
        len(turn["value"])
        if turn["type"] == "text"
        else math.ceil(round(turn["duration"] / SECONDS_OF_TOKEN, 6))
        for turn in turns
    )


def test_conversations_resume_within_an_epoch(audio_folder):
    path = write(
        audio_folder / "resume.jsonl",
        [[text("ab"), audio(f"{n % 5}.wav", 0.3)] * 2 for n in range(30)],
    )
    whole = [batch.keys for batch in loader(path)]
    first = loader(path)
    begun = [next(iter(first)).keys]
    second = loader(path)
    second.load_state_dict(first.state_dict())
    assert begun + [batch.keys for batch in second] == whole


def test_bad_lines_are_listed_and_the_others_read(audio_folder):
    path = write(
        audio_folder / "bad.jsonl",
        [[text("ab")], [audio("gone.wav")], [{"from": "x", "type": "text"}], []],
    )
    with open(path, "a") as file:
        file.write('{"id": "c", "conversations": [{"from": "assistant": "value": "a"}]}\n')
        file.write(
            json.dumps({"id": "d", "conversations": [{"value": "x", "type": "video"}]}) + "\n"
        )
        file.write(json.dumps({"conversations": [text("x")]}) + "\n")
        file.write(json.dumps({"id": "e", "conversations": [audio("0.wav", "long")]}) + "\n")
    corpus = ConversationCorpus(path, SECONDS_OF_TOKEN, "[audio]")
    assert corpus.num_samples == 1
    reasons = dict(corpus.bad)
    for number, expected in {
        2: "gone.wav",
        3: "turn 1: needs a string under value",
        4: "needs a list of turns under conversations",
        5: "not JSON",
        6: "turn 1: type is text or audio, found 'video'",
        7: "needs id, a string",
        8: "offset and duration must be seconds",
    }.items():
        assert expected in reasons[f"{path}:{number}"]
    with pytest.raises(ListError, match="no such file of conversations"):
        ConversationCorpus("none.jsonl", SECONDS_OF_TOKEN, "")


def test_audio_that_is_gone_when_it_is_read_is_a_bad_sample(audio_folder):
    path = write(
        audio_folder / "gone.jsonl", [[text("abc"), audio("gone.wav", 0.3)], [text("abc")]]
    )
    (batch,) = loader(path)
    assert batch.keys == ("c1",)
    assert [(skipped.key, skipped.reason) for skipped in batch.skipped] == [("c0", "unreadable")]
    assert torch.equal(batch.feats_lengths, torch.zeros(0, dtype=torch.int64))


def test_a_turn_that_ends_after_its_audio_is_a_bad_sample(audio_folder):
    turns = [
        [audio("0.wav", 0.9)],
        [audio("0.wav", 0.2, offset=0.3)],
        [audio("0.wav", 0.2, offset=0.05)],
    ]
    (batch,) = loader(write(audio_folder / "late.jsonl", turns))
    assert batch.keys == ("c2",)
    assert sorted((skipped.key, skipped.reason) for skipped in batch.skipped) == [
        ("c0", "changed_length"),
        ("c1", "unreadable"),
    ]
    assert "c0/0: the segment ends at 0.90 s, the audio at 0.30 s" in {
        skipped.detail for skipped in batch.skipped
    }


def test_training_refuses_conversations_with_one_line(audio_folder):
    path = write(audio_folder / "train.jsonl", [[text("ab")]])
    with pytest.raises(
        ValueError, match="the models here do not learn conversations; remove the sources"
    ):
        refuse_conversations(loader(path).corpus)
    (audio_folder / "plain.txt").write_text("abc\n")
    refuse_conversations(TextCorpus(str(audio_folder / "plain.txt")))


def test_a_source_of_conversations_has_its_keys_only():
    with pytest.raises(ValueError, match=re.escape("multimodal_conversation has no paths")):
        parse_source({"type": "multimodal_conversation", "manifest_filepath": "a", "paths": "b"})
