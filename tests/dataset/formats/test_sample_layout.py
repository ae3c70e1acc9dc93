import json

import pytest
import webdataset

from tests.support.data.tars import everything, wav, write_tar
from wenet_uio.audio.read import read_audio
from wenet_uio.config.source import parse_source
from wenet_uio.dataset.corpus.open_list import open_list
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.formats.sample_layout import Layout


@pytest.fixture
def open_tar(tmp_path):
    """Write a tar of members and open it as a shard list."""

    def opened(members, **layout):
        name = f"{len(list(tmp_path.glob('*.tar')))}"
        path = write_tar(tmp_path / f"{name}.tar", members)
        (tmp_path / f"{name}.list").write_text(f"{path}\n")
        return open_list(str(tmp_path / f"{name}.list"), "shard", Layout(**layout))

    return opened


def keys_and_texts(corpus):
    return [(utterance.key, utterance.text) for utterance in everything(corpus)]


def seconds(corpus):
    return [
        len(samples) / rate
        for samples, rate in (read_audio(utterance.audio) for utterance in everything(corpus))
    ]


def test_a_key_of_wenet_may_contain_dots(open_tar):
    names = [f"BAC009.S{number}" for number in range(3)]
    members = [item for name in names for item in ((f"{name}.txt", name), (f"{name}.wav", wav()))]
    assert keys_and_texts(open_tar(members)) == [(name, name) for name in names]


def test_a_field_of_webdataset_begins_at_the_first_dot(open_tar):
    members = [
        *(("d.1/a.audio.wav", wav()), ("d.1/a.text.txt", "one"), ("d.1/a.spk.txt", "x")),
        *(("d.1/b.audio.wav", wav()), ("d.1/b.text.txt", "two"), ("d.1/b.spk.txt", "y")),
    ]
    corpus = open_tar(members, text_field="text.txt")
    assert keys_and_texts(corpus) == [("d.1/a", "one"), ("d.1/b", "two")]
    assert [utterance.extra for utterance in everything(corpus)] == [
        {"spk.txt": "x"},
        {"spk.txt": "y"},
    ]


AMBIGUOUS = (("a.b.txt", "one"), ("a.b.wav", wav()), ("c.b.txt", "two"), ("c.b.wav", wav()))


@pytest.mark.parametrize(
    ("key_ends", "keys"),
    [("auto", ["a.b", "c.b"]), ("last", ["a.b", "c.b"]), ("first", ["a", "c"])],
)
def test_an_ambiguous_name_ends_its_key_at_the_last_dot_unless_the_user_chooses(
    open_tar, key_ends, keys
):
    assert keys_and_texts(open_tar(AMBIGUOUS, key_ends=key_ends)) == list(
        zip(keys, ("one", "two"), strict=True)
    )


def test_a_member_that_only_fits_webdataset_decides_the_layout(open_tar):
    members = [("a.wav", wav()), ("a.txt", "one"), ("a.meta.json", '{"lang": "en"}')]
    corpus = open_tar(members)
    assert keys_and_texts(corpus) == [("a", "one")]
    assert everything(corpus)[0].extra == {"lang": "en"}
    assert corpus.bad == []


def test_shards_that_webdataset_writes_are_read(tmp_path):
    with webdataset.ShardWriter(str(tmp_path / "set-%03d.tar"), maxcount=2, verbose=0) as writer:
        for number in range(5):
            fields = {
                "wav": wav(0.3 + number / 10, seed=number),
                "json": {"text": f"t{number}", "n": number},
            }
            writer.write({"__key__": f"part/utt{number}", **fields})
    (tmp_path / "set.list").write_text(f"{tmp_path}/set-{{000..002}}.tar\n")
    corpus = open_list(str(tmp_path / "set.list"), "shard")
    theirs = [
        (sample["__key__"], json.loads(sample["json"])["text"], sample["wav"])
        for number in range(3)
        for sample in webdataset.WebDataset(
            str(tmp_path / f"set-00{number}.tar"), shardshuffle=False
        )
    ]
    ours = [
        (utterance.key, utterance.text, bytes(utterance.audio)) for utterance in everything(corpus)
    ]
    assert ours == theirs
    assert [utterance.extra for utterance in everything(corpus)] == [
        {"n": number} for number in range(5)
    ]


MARK = "\ufeff"


@pytest.mark.parametrize(
    "text",
    [
        ("a.txt", f"{MARK}one"),
        ("a.txt", f"{MARK}{MARK}one"),
        ("a.json", json.dumps({"text": f"{MARK}one"})),
        ("a.json", f'{MARK}{{"text": "one"}}'),
        ("a.cls", f"{MARK}one"),
    ],
)
def test_a_byte_order_mark_before_a_text_is_no_part_of_it(open_tar, text):
    corpus = open_tar([text, ("a.wav", wav()), ("b.txt", f"two{MARK}"), ("b.wav", wav())])
    assert keys_and_texts(corpus) == [("a", "one"), ("b", f"two{MARK}")]
    assert corpus.rows(0).text_length.tolist() == [3, 4]


def test_a_byte_order_mark_before_another_field_is_no_part_of_it(open_tar):
    corpus = open_tar([("a.txt", "one"), ("a.spk", f"{MARK}anna"), ("a.wav", wav())])
    assert [utterance.extra for utterance in everything(corpus)] == [{"spk": "anna"}]


def test_a_class_is_read_as_text(open_tar):
    assert keys_and_texts(open_tar([("a.cls", "7"), ("a.wav", wav())])) == [("a", "7")]


def test_plain_text_is_preferred_to_json_and_json_to_a_class(open_tar):
    members = [("a.cls", "7"), ("a.json", '{"text": "json"}'), ("a.txt", "plain"), ("a.wav", wav())]
    assert keys_and_texts(open_tar(members)) == [("a", "plain")]
    assert keys_and_texts(open_tar(members[:2] + members[3:])) == [("a", "json")]
    extra = everything(open_tar(members))[0].extra
    assert extra == {"cls": "7", "text": "json"}


def test_the_plain_audio_field_is_taken_unless_the_user_chooses_another(open_tar):
    members = [
        ("a.far.wav", wav(0.2)),
        ("a.txt", "x"),
        ("a.wav", wav(0.3)),
        ("a.near.wav", wav(0.4)),
    ]
    assert seconds(open_tar(members)) == [0.3]
    assert seconds(open_tar(members, audio_field="near.wav")) == [0.4]
    assert seconds(open_tar([member for member in members if member[0] != "a.wav"])) == [0.2]


def test_the_text_may_have_another_name(open_tar):
    members = [("a.json", '{"text": "x", "caption": "y"}'), ("a.wav", wav())]
    assert keys_and_texts(open_tar(members, text_field="caption")) == [("a", "y")]
    assert keys_and_texts(open_tar(members)) == [("a", "x")]


def test_times_in_json_do_not_select_a_segment(open_tar):
    corpus = open_tar(
        [("a.json", '{"text": "x", "start": 0.1, "end": 0.2, "duration": 9}'), ("a.wav", wav(0.5))]
    )
    assert seconds(corpus) == [0.5]
    assert everything(corpus)[0].end is None
    assert everything(corpus)[0].extra == {"start": 0.1, "end": 0.2, "duration": 9}


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ([("bad.txt", "x")], "no audio among its members: txt"),
        (
            [("bad.audio.pyd", b"PK"), ("bad.txt", "x")],
            "no audio among its members: audio.pyd, txt",
        ),
        ([("bad.wav", wav())], "no text among its members: wav"),
        ([("bad.wav", b""), ("bad.txt", "x")], "empty: 0 bytes"),
        ([("bad.wav", b"noise" * 99), ("bad.txt", "x")], "no known format"),
        ([("bad.wav", wav(0)), ("bad.txt", "x")], "no samples"),
        ([("bad.wav", wav()), ("bad.txt", b"\xff\xfe")], "is not UTF-8"),
        ([("bad.wav", wav()), ("bad.json", "{")], "member json is not JSON"),
        ([("bad.wav", wav()), ("bad.json", '{"speaker": "x"}')], "no text among its members"),
        (
            [("bad.wav", wav()), ("bad.wav", wav()), ("bad.txt", "x")],
            "two members with the field wav",
        ),
    ],
)
def test_a_bad_sample_is_reported_and_the_others_are_read(open_tar, members, reason):
    around = [("a.txt", "one"), ("a.wav", wav())], [("z.txt", "two"), ("z.wav", wav())]
    corpus = open_tar([*around[0], *members, *around[1]])
    assert keys_and_texts(corpus) == [("a", "one"), ("z", "two")]
    ((key, found),) = corpus.bad
    assert key == "bad"
    assert reason in found


def test_a_member_without_a_key_is_named(tmp_path):
    names = ("d/x.txt", "d/x.wav", " .txt", " .wav", ".txt", ".wav")
    tar = write_tar(
        tmp_path / "a.tar", [(name, wav() if name.endswith("wav") else "x") for name in names]
    )
    (tmp_path / "a.list").write_text(f"{tar}\n")
    corpus = open_list(str(tmp_path / "a.list"), "shard")
    assert [each.key for each in everything(corpus)] == ["d/x"]
    assert [key for key, reason in corpus.bad if "the key is empty" in reason] == [" .txt", ".txt"]


def test_fields_are_renamed_as_in_webdataset_by_the_first_alternative_of_a_sample(tmp_path):
    with webdataset.TarWriter(str(tmp_path / "a.tar")) as writer:
        writer.write(
            {
                "__key__": "a",
                "far.wav": wav(0.5),
                "near.wav": wav(0.25),
                "spk.txt": b"ann",
                "said.txt": b"one",
            }
        )
        writer.write(
            {
                "__key__": "b",
                "far.wav": wav(0.5),
                "json": {"sentence": "two", "talker": "bob", "x": 1},
            }
        )
    (tmp_path / "a.list").write_text(f"{tmp_path}/a.tar\n")
    rename = {
        "audio": "near.wav;far.wav",
        "text": "said.txt;sentence",
        "speaker": "spk.txt;talker",
        "no": "none",
    }
    source = {"type": "shard", "data_list": f"{tmp_path}/a.list", "rename": rename}
    (corpus,) = parse_source(source).open()
    assert corpus.bad == []
    assert seconds(corpus) == [0.25, 0.5]
    assert [(found.text, found.extra) for found in everything(corpus)] == [
        ("one", {"speaker": "ann"}),
        ("two", {"speaker": "bob", "x": 1}),
    ]
    conf = parse_source(source)
    assert parse_source(conf.model_dump()) == conf  # as a run writes its config


def test_an_alternative_that_no_sample_has_is_named(open_tar):
    with pytest.raises(ListError, match=r"a: no near.wav or far.wav among its members: wav, txt"):
        open_tar([("a.wav", wav()), ("a.txt", b"x")], audio_field="near.wav;far.wav")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"type": "nemo", "manifest_filepath": "m"},
            "a source of type nemo has no rename; shard has",
        ),
        (
            {"type": "shard", "data_list": "l", "audio_field": "wav"},
            "rename and audio_field name the same field",
        ),
    ],
)
def test_a_rename_that_cannot_apply_is_refused(more, message):
    with pytest.raises(ValueError, match=message):
        parse_source(dict(rename={"audio": "flac"}, **more))


@pytest.mark.parametrize(
    ("rename", "message"),
    [
        (
            {"audio": "flac", "txt": "norm.txt"},
            "the text is named text: write text: norm.txt, not txt",
        ),
        (
            {"wav": "near.wav", "text": "txt"},
            "the audio is named audio: write audio: near.wav, not wav",
        ),
        ({"key": "id"}, "the key of a sample is the name that its members share"),
    ],
)
def test_a_rename_to_the_name_of_another_text_or_audio_is_refused(rename, message):
    with pytest.raises(ValueError, match=message):
        parse_source({"type": "shard", "data_list": "l", "rename": rename})


@pytest.mark.parametrize("name", ["txt", "wav"])
def test_such_a_name_is_free_if_audio_and_text_are_named(name):
    rename = {"audio": "a", "text": "b", name: "norm.txt"}
    parse_source({"type": "shard", "data_list": "l", "rename": rename})


def test_an_index_of_a_layout_without_renames_keeps_its_name():
    assert Layout("first", "mic2.wav", "txt").suffix == ".fdf1bade"
    assert Layout(rename=(("speaker", "spk"),)).suffix not in ("", Layout().suffix)


def test_pickles_are_never_opened(tmp_path):
    with webdataset.TarWriter(str(tmp_path / "a.tar")) as writer:
        writer.write({"__key__": "a", "pyd": [1], "txt": "x"})
    (tmp_path / "a.list").write_text(f"{tmp_path}/a.tar\n")
    with pytest.raises(ListError, match="a: no audio among its members: pyd, txt"):
        open_list(str(tmp_path / "a.list"), "shard")


def of_many_texts(order):
    """Ten utterances of a talk: dots in the keys, and texts in two languages."""
    members = []
    for number in range(10):
        key = f"ted.{number:04d}"
        utterance = {
            "wav": (f"{key}.wav", wav(0.2 + 0.1 * number)),
            "en": (f"{key}.en.txt", f"en {number}"),
            "de": (f"{key}.de.txt", f"de {number}"),
        }
        members += [utterance[name] for name in order]
    return members


@pytest.mark.parametrize("order", [("wav", "en", "de"), ("de", "en", "wav"), ("en", "wav", "de")])
@pytest.mark.parametrize("key_ends", ["auto", "audio"])
def test_a_key_with_dots_may_have_texts_with_dots(open_tar, order, key_ends):
    corpus = open_tar(of_many_texts(order), key_ends=key_ends, text_field="de.txt")
    assert keys_and_texts(corpus) == [(f"ted.{n:04d}", f"de {n}") for n in range(10)]
    assert seconds(corpus) == pytest.approx([0.2 + 0.1 * n for n in range(10)])
    assert [utterance.extra for utterance in everything(corpus)] == [
        {"en.txt": f"en {n}"} for n in range(10)
    ]


def test_several_texts_of_which_none_is_chosen_are_named(open_tar):
    members = [*of_many_texts(("wav", "en", "de")), ("last.wav", wav()), ("last.txt", "one text")]
    corpus = open_tar(members)
    assert keys_and_texts(corpus) == [("last", "one text")]
    assert [key for key, _ in corpus.bad] == [f"ted.{n:04d}" for n in range(10)]
    assert {reason for _, reason in corpus.bad} == {
        "several texts: en.txt, de.txt; text_field chooses one (in 0.tar)"
    }


def test_a_text_without_a_dot_is_preferred_to_others(open_tar):
    members = [("a.wav", wav()), ("a.norm.txt", "x"), ("a.txt", "one"), ("a.raw.txt", "y")]
    assert keys_and_texts(open_tar(members)) == [("a", "one")]


def test_a_tar_that_says_audio_where_no_text_continues_its_name_has_no_samples(open_tar):
    with pytest.raises(ListError, match="no usable utterance"):
        open_tar([("a.near.wav", wav()), ("a.txt", "one")], key_ends="audio")


def test_files_of_macos_beside_members_are_no_members(tmp_path):
    members = [
        (f"./{dot}a.{end}", data)
        for end, data in (("wav", wav()), ("txt", b"x"))
        for dot in ("._", "")
    ]
    write_tar(tmp_path / "a.tar", members)
    (tmp_path / "a.list").write_text(f"{tmp_path}/a.tar\n")
    corpus = open_list(str(tmp_path / "a.list"), "shard")
    assert [utterance.key for utterance in everything(corpus)] == ["a"]
    assert corpus.bad == []


def test_a_name_that_begins_so_is_a_member_where_no_other_member_has_the_rest(tmp_path):
    write_tar(tmp_path / "a.tar", [("._a.wav", wav()), ("._a.txt", b"x")])
    (tmp_path / "a.list").write_text(f"{tmp_path}/a.tar\n")
    assert open_list(str(tmp_path / "a.list"), "shard").num_samples == 1
