import json
from dataclasses import replace

import pytest

from wenet_uio.dataset.formats.data_list import (
    RawLine,
    ShardFiles,
    pair_manifests,
    parse_raw_line,
    read_shard_list,
    reason_to_skip,
)
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.storage.containers import part_of


def test_our_names_are_read_and_all_other_fields_are_kept():
    line = parse_raw_line('{"key": "a", "wav": "a.wav", "txt": "hello", "lang": "en"}')
    assert line == RawLine("a", "a.wav", "hello", extra={"lang": "en"})


def test_a_written_line_is_read_back_unchanged():
    line = RawLine("a", "a.wav", "你好", 0.5, 1.5, {"speaker": "b"})
    assert parse_raw_line(line.to_json()) == line


def test_nemo_names_are_read():
    line = parse_raw_line(
        '{"audio_filepath": "x/a.wav", "text": "hi", "offset": 2.0, "duration": 1.5}'
    )
    assert (line.key, line.wav, line.start, line.end) == ("a_2", "x/a.wav", 2.0, 3.5)


def test_a_duration_ends_a_segment_that_starts_at_0():
    line = parse_raw_line(
        '{"audio_filepath": "a.wav", "text": "hi", "offset": 0.0, "duration": 1.5}'
    )
    assert (line.key, line.start, line.end) == ("a", 0.0, 1.5)
    whole = parse_raw_line('{"audio_filepath": "a.wav", "text": "hi", "duration": 1.5}')
    assert (whole.start, whole.end) == (0.0, None)


def test_other_fields_do_not_replace_audio_text_and_segment_of_a_written_line():
    line = RawLine("a", "a.wav", "hi", extra={"start": 3, "wav": "b.wav", "x": 1})
    read = parse_raw_line(line.to_json())
    assert (read.wav, read.start, read.end, read.extra) == ("a.wav", 0.0, None, {"x": 1})


def test_the_text_may_have_another_name():
    line = '{"wav": "a.wav", "text": "x", "answer": "y"}'
    assert parse_raw_line(line, "answer").text == "y"
    with pytest.raises(ListError, match="lacks reply"):
        parse_raw_line(line, "reply")


@pytest.mark.parametrize(
    ("mark", "reason"), [("true", "left out: _skipme is set"), ('"noisy"', "noisy"), ("0", None)]
)
def test_a_line_with_a_skip_mark_gives_its_reason(mark, reason):
    assert (
        reason_to_skip(parse_raw_line(f'{{"wav": "a.wav", "txt": "x", "_skipme": {mark}}}').extra)
        == reason
    )


def test_a_shard_may_have_its_texts_in_a_manifest(tmp_path):
    shards = tmp_path / "shards.list"
    shards.write_text(
        "a_{0..1}.tar\tm_{0..1}.json\na_{2..3}.tar\tall.json\na.tar\tall.json\nb.tar\tall.json\t7\n"
    )
    assert [ShardFiles.parse(shard) for shard in read_shard_list(shards)] == [
        ShardFiles("a_0.tar", "m_0.json"),
        ShardFiles("a_1.tar", "m_1.json"),
        ShardFiles("a_2.tar", "all.json", 2),
        ShardFiles("a_3.tar", "all.json", 3),
        ShardFiles("a.tar", "all.json"),
        ShardFiles("b.tar", "all.json", 7),
    ]


@pytest.mark.parametrize("line", ["a.tar\tall.json\tseven", "a.tar\tall.json\t7\t8"])
def test_a_shard_line_with_other_fields_is_refused(tmp_path, line):
    (tmp_path / "shards.list").write_text(f"{line}\n")
    with pytest.raises(
        ListError, match=r"shards.list:1: expected a tar, a manifest and a shard_id"
    ):
        read_shard_list(tmp_path / "shards.list")


@pytest.mark.parametrize(
    ("tar", "manifest", "plain"),
    [
        ("a.tar", None, True),
        ("file:///a.tar", "m.json", True),
        ("a.tar.gz", None, False),
        ("s3://b/a.tar", None, False),
        ("a.tar", "s3://b/m.json", False),
    ],
)
def test_a_shard_is_plain_if_tar_and_manifest_are_local_and_not_packed(tar, manifest, plain):
    shard = ShardFiles(tar, manifest)
    assert shard.is_plain == plain
    assert ShardFiles.parse(str(shard)) == shard


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{broken", "not JSON"),
        ("[1]", "expected an object"),
        ('{"key": "a", "wav": "a.wav"}', "lacks txt"),
        ('{"wav": "a", "txt": "b", "start": "x"}', "must be seconds"),
    ],
)
def test_the_error_of_a_bad_line_says_what_is_wrong(line, message):
    with pytest.raises(ListError, match=message):
        parse_raw_line(line)


def test_ranges_and_globs_expand_in_order(tmp_path):
    for name in ("b_1.tar", "b_0.tar"):
        (tmp_path / name).touch()
    shards = tmp_path / "shards.list"
    shards.write_text(f"s_{{008..010}}.tar\n\nt__OP_0..1_CL_.tar\n{tmp_path}/b_*.tar\n")
    assert read_shard_list(shards) == [
        *("s_008.tar", "s_009.tar", "s_010.tar", "t_0.tar", "t_1.tar"),
        *(f"{tmp_path}/b_0.tar", f"{tmp_path}/b_1.tar"),
    ]


@pytest.mark.parametrize("folder", ["my [ab] shards", "{0..1} *", "?"])
def test_the_name_of_an_existing_tar_is_not_expanded(tmp_path, folder):
    (tmp_path / folder).mkdir()
    for number in range(2):
        (tmp_path / folder / f"{number}.tar").touch()
    names = [str(tmp_path / folder / f"{number}.tar") for number in range(2)]
    (tmp_path / "shards.list").write_text("".join(f"{name}\n" for name in names))
    assert read_shard_list(tmp_path / "shards.list") == names


def test_a_glob_without_a_match_names_its_line(tmp_path):
    shards = tmp_path / "shards.list"
    shards.write_text("a.tar\nnone_*.tar\n")
    with pytest.raises(ListError, match=r"shards.list:2: none_\*.tar matches no file"):
        read_shard_list(shards)


def test_the_number_of_a_signed_tar_is_that_of_its_name_and_not_of_its_signature():
    tars = [f"https://host/audio_{number}.tar?Expires=9&sig=a7" for number in (3, 4)]
    assert [shard.shard_id for shard in pair_manifests(tars, ["manifest.json"])] == [3, 4]


@pytest.mark.parametrize("name", ["txt", "text"])
def test_a_byte_order_mark_before_a_text_is_no_part_of_it(name):
    line = parse_raw_line(json.dumps({"key": "a", "wav": "a.wav", name: "\ufeffone\ufeff"}))
    assert line.text == "one\ufeff"
    assert replace(line, text="\ufefftwo").text == "two"


@pytest.mark.parametrize("digits", [19, 4300, 4301, 100_000])
def test_a_number_of_thousands_of_digits_is_named_and_not_converted(digits):
    number = "9" * digits
    with pytest.raises(ListError, match="has more than 18 digits") as raised:
        pair_manifests([f"audio_{number}.tar", "audio_1.tar"], ["manifest.json"])
    assert len(str(raised.value)) < 200
    assert part_of(f"corpus.parquet/{number}.tar") is None
