import pytest

from wenet_uio.dataset.data_list import ListError, RawLine, parse_raw_line, read_shard_list


def test_our_names_and_every_other_field_are_kept():
    line = parse_raw_line('{"key": "a", "wav": "a.wav", "txt": "hello", "lang": "en"}')
    assert line == RawLine("a", "a.wav", "hello", extra={"lang": "en"})


def test_a_line_written_is_the_line_read():
    line = RawLine("a", "a.wav", "你好", 0.5, 1.5, {"speaker": "b"})
    assert parse_raw_line(line.to_json()) == line


def test_nemo_names_are_read():
    line = parse_raw_line('{"audio_filepath": "x/a.wav", "text": "hi", "offset": 2.0, "duration": 1.5}')
    assert (line.key, line.wav, line.start, line.end) == ("a_2", "x/a.wav", 2.0, 3.5)


@pytest.mark.parametrize(
    ("line", "message"),
    [("{broken", "not JSON"), ("[1]", "expected an object"), ('{"key": "a", "wav": "a.wav"}', "lacks txt")],
)
def test_a_bad_line_says_what_is_wrong(line, message):
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


def test_a_glob_without_a_match_names_its_line(tmp_path):
    shards = tmp_path / "shards.list"
    shards.write_text("a.tar\nnone_*.tar\n")
    with pytest.raises(ListError, match=r"shards.list:2: none_\*.tar matches no file"):
        read_shard_list(shards)
