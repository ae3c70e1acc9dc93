import json

import pytest

from tests.support.data.tars import everything, wav, write_tar
from wenet_uio.dataset.corpus.open_list import open_list
from wenet_uio.dataset.formats.data_list import RawLine, parse_raw_line
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.formats.keys import distinct_keys, key_of_audio, one_word
from wenet_uio.dataset.types import SampleRef


@pytest.mark.parametrize("key", ["a", "a.b", "d1/a", "说话人-1", "é", "a_2.5", "\u200d", "\ue000"])
def test_a_key_that_is_one_word_stays(key):
    assert one_word(key) == key


@pytest.mark.parametrize(
    ("key", "word"),
    [
        ("a b", "a_b"),
        ("a\nevil words", "a_evil_words"),
        (" a \t\r\n b ", "a_b"),
        ("a\u3000b\u2028c\x85d\xa0e", "a_b_c_d_e"),
        ("a\x00b\x1bc\x7fd", "a_b_c_d"),
    ],
)
def test_blanks_line_ends_and_control_characters_become_a_dash_below(key, word):
    assert one_word(key) == word
    assert f"{word} text".split() == [word, "text"]


@pytest.mark.parametrize("key", ["", " ", "\n"])
def test_an_empty_key_is_refused(key):
    with pytest.raises(ListError, match="the key is empty"):
        one_word(key)


@pytest.mark.parametrize(
    ("wav", "start", "key"),
    [
        ("d/a.b.wav", 0, "a.b"),
        ("a", 2.5, "a_2.5"),
        ("my 2.wav", 0, "my_2"),
        ("s3://b/d/a.wav", 0, "a"),
        ("https://host/d/a.wav?token=x/y.z", 0, "a"),
        ("https://host/d/a.wav?X-Amz-Signature=b/c.d", 1.5, "a_1.5"),
        ("what? yes.wav", 0, "what?_yes"),
        ("d/a?b.wav", 0, "a?b"),
        ("file:///d/a?b.wav", 0, "a?b"),
    ],
)
def test_a_key_of_audio_is_its_name_and_its_start(wav, start, key):
    assert key_of_audio(wav, start) == key


@pytest.mark.parametrize(
    ("audio", "keys"),
    [
        ([("d1/a.wav", 0), ("d2/a.wav", 0)], ["d1-a", "d2-a"]),
        ([("/x/d 1/a.wav", 0), ("/x/a.wav", 0), ("/x/d2/b.wav", 0)], ["d_1-a", "a", "d2-b"]),
        ([("a.wav", 0), ("./b.wav", 0)], ["a", "b"]),
        ([("d1/a.wav", 0), ("d1/a.wav", 0)], ["a", "a-sub1"]),
        ([("d/a.wav", 10000.01), ("d/a.wav", 10000.02)], ["a_10000.01", "a_10000.02"]),
        ([("s3://b/x/a.wav", 0), ("s3://b/y/a.wav", 0)], ["x-a", "y-a"]),
        ([("d1/a.wav", 0), None, ("d2/a.wav", 0)], ["d1-a", "stated", "d2-a"]),
        ([("d1/a.wav", 0), None], ["a", "stated"]),
        ([], []),
    ],
)
def test_folders_are_part_of_a_key_only_if_names_clash(audio, keys):
    own = [key_of_audio(*each) if each else "stated" for each in audio]
    assert distinct_keys(own, [each and (*each, None) for each in audio]) == keys


@pytest.mark.parametrize(
    ("segments", "keys"),
    [
        ([(0, 1), (0, 2), (3, 4)], ["a_0-1", "a_0-2", "a_3"]),
        ([(2.5, 4), (2.5, 5.25), (2.5, None)], ["a_2.5-4", "a_2.5-5.25", "a_2.5"]),
        ([(0, None), (0, None), (0, None)], ["a", "a-sub1", "a-sub2"]),
        ([(1, 2), (1, 2), (1, 3)], ["a_1-2", "a_1-2-sub1", "a_1-3"]),
        ([(1.1, 1.1 + 0.3), (1.1, 2)], ["a_1.1-1.4", "a_1.1-2"]),
    ],
)
def test_segments_at_one_start_are_told_apart_by_their_end_then_by_a_number(segments, keys):
    audio = [("d/a.wav", *each) for each in segments]
    own = [key_of_audio(wav, start) for wav, start, _ in audio]
    assert distinct_keys(own, audio) == keys


def test_a_number_does_not_give_a_key_that_another_line_has():
    audio = [("a.wav", 0, None), ("a-sub1.wav", 0, None), ("a.wav", 0, None)]
    assert distinct_keys(["a", "a-sub1", "a"], audio) == ["a", "a-sub1", "a-sub2"]


def test_stated_keys_stay_although_they_are_the_same():
    lines = [
        parse_raw_line(f'{{"key": "a", "wav": "{folder}/a.wav", "txt": ""}}') for folder in "xy"
    ]
    assert [line.key for line in lines] == ["a", "a"]
    assert distinct_keys(["a", "a"], [line.audio_of_key for line in lines]) == ["a", "a"]


@pytest.fixture
def folder(tmp_path):
    for name in ("d1/a.wav", "d2/a.wav", "d2/my 2.wav"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(wav(seed=len(name)))
    entries = [
        {"audio_filepath": name, "text": "x"}
        for name in ("d1/a.wav", "none/a.wav", "d2/a.wav", "d2/my 2.wav")
    ]
    (tmp_path / "nemo.json").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return tmp_path


KEYS = ["d1-a", "d2-a", "d2-my_2"]


def test_index_and_samples_of_a_list_have_the_same_distinct_keys(folder):
    corpus = open_list(str(folder / "nemo.json"), "raw")
    assert [each.key for each in everything(corpus)] == KEYS
    assert [corpus.key(SampleRef(0, row)) for row in range(3)] == KEYS
    ((_, reason),) = corpus.bad
    assert "none/a.wav" in reason


def test_the_keys_of_a_list_do_not_depend_on_which_audio_is_there(folder):
    (folder / "d2" / "a.wav").unlink()
    assert [each.key for each in everything(open_list(str(folder / "nemo.json"), "raw"))] == [
        "d1-a",
        "d2-my_2",
    ]


def test_a_list_without_poor_utterances_is_made_by_the_keys_of_the_index(folder):
    from wenet_uio.addons.listen.alignment import write_clean_list

    assert write_clean_list(folder / "nemo.json", folder / "clean.json", {"d2-a": "poor"}) == 3
    assert "d1/a.wav" in (folder / "clean.json").read_text()
    assert "d2/a.wav" not in (folder / "clean.json").read_text()


def test_entries_of_a_tarred_set_follow_the_same_rule(folder):
    members = [("d1/a.wav", wav()), ("d2/a.wav", wav(seed=1)), ("d2/my 2.wav", wav(seed=2))]
    tar = write_tar(folder / "a.tar", members)
    (folder / "nemo.list").write_text(f"{tar}\t{folder}/nemo.json\n")
    assert [each.key for each in everything(open_list(str(folder / "nemo.list"), "shard"))] == KEYS


def test_names_with_blanks_and_line_ends_in_a_tar_are_one_word(tmp_path):
    names = ("my a", "b\nevil words")
    members = [item for name in names for item in ((f"{name}.txt", "x"), (f"{name}.wav", wav()))]
    (tmp_path / "a.list").write_text(write_tar(tmp_path / "a.tar", members) + "\n")
    corpus = open_list(str(tmp_path / "a.list"), "shard")
    assert [each.key for each in everything(corpus)] == ["my_a", "b_evil_words"]


def test_a_line_that_is_written_states_its_key():
    line = parse_raw_line('{"audio_filepath": "d/my a.wav", "text": "x"}')
    assert line.is_named_by_audio
    assert parse_raw_line(line.to_json()) == RawLine("my_a", "d/my a.wav", "x")
    assert not parse_raw_line(line.to_json()).is_named_by_audio
