from __future__ import annotations

import tracemalloc

import pytest

from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.prepare.kaldi_tables import (
    check_row,
    read_audio_lines,
    read_filled_table,
    read_utterances,
    recording_names,
    write_audio_tables,
    write_table,
)


@pytest.fixture
def segmented(tmp_path):
    def write(segments: str) -> tuple[str, str]:
        (tmp_path / "wav.scp").write_text("call /wav/call.wav\n")
        (tmp_path / "segments").write_text(segments)
        return str(tmp_path / "wav.scp"), str(tmp_path / "segments")

    return write


def test_an_end_of_minus_one_is_the_end_of_the_recording_as_in_kaldi(segmented):
    lines = read_audio_lines(*segmented("a call 0 -1\nb call 1.5 -1\nc call 0.5 1.5\n"))
    assert [(line.start, line.end) for line in lines] == [(0.0, None), (1.5, None), (0.5, 1.5)]


def test_a_segment_may_name_its_channel(segmented):
    lines = read_audio_lines(*segmented("a call 0 -1 1\nb call 0 1.5 0\nc call 0.5 1.5\n"))
    assert [line.extra for line in lines] == [{"channel": 1}, {"channel": 0}, {}]


@pytest.mark.parametrize("channel", ["-1", "left", "0 1", "0.5"])
def test_a_channel_that_is_none_is_named(segmented, channel):
    with pytest.raises(ListError, match="segments: a: "):
        read_audio_lines(*segmented(f"a call 0 1 {channel}\n"))


@pytest.mark.parametrize("times", ["2 1", "1 1", "-1 2", "0 -2", "nan -1"])
def test_times_out_of_order_are_named(segmented, times):
    with pytest.raises(ListError, match="segments: a: starts at"):
        read_audio_lines(*segmented(f"a call {times}\n"))


def test_names_of_recordings_are_unique_and_have_no_spaces():
    names = recording_names(["/x/a.wav", "/y/a.wav", "/x/my call.wav", "/x/a.wav"])
    assert names == {"/x/a.wav": "a", "/y/a.wav": "a-2", "/x/my call.wav": "my_call"}


@pytest.fixture
def tables(tmp_path):
    def write(**contents):
        for name, text in contents.items():
            (tmp_path / name).write_text(text)
        return [str(tmp_path / name) for name in ("wav_scp", "text")]

    return write


def test_utterances_come_in_the_order_of_the_text(tables, capsys):
    lines = read_utterances(
        *tables(wav_scp="a /a.wav\nb /b.wav\nc /c.wav\n", text="b  two words\na one\n")
    )
    assert lines == [RawLine("b", "/b.wav", "two words"), RawLine("a", "/a.wav", "one")]
    told = "wav_scp: 1 utterance(s) without text in "
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("keys", [list("abcde"), list("edcba")])
def test_the_first_utterances_without_text_are_named(tables, capsys, keys):
    wav_scp = "".join(f"{key} /{key}.wav\n" for key in [*keys[:2], "x", *keys[2:]])
    wav_scp, text = tables(wav_scp=wav_scp, text="x one\n")
    assert [line.key for line in read_utterances(wav_scp, text)] == ["x"]
    told = f"{wav_scp}: 5 utterance(s) without text in {text} are left out: {', '.join(keys[:3])}"
    assert f"{told} and 2 more\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ({"wav_scp": "a /a.wav\n", "text": "a x\nb y\n"}, "text: b without audio in .*wav_scp"),
        (
            {"wav_scp": "a /a.wav\na /b.wav\n", "text": "a x\n"},
            "wav_scp:2: utterance 'a' is there twice",
        ),
        ({"wav_scp": "a sox a.sph - |\n", "text": "a x\n"}, "commands are not run"),
        ({"wav_scp": "", "text": "a x\n"}, "wav_scp: empty"),
    ],
)
def test_tables_that_do_not_fit_together_are_refused(tables, contents, message):
    with pytest.raises(ValueError, match=message):
        read_utterances(*tables(**contents))


@pytest.mark.parametrize(
    ("segments", "message"),
    [
        ("s r 0.5\n", "expected `recording start end`"),
        ("s r 2 1\n", "starts at"),
        ("s q 0 1\n", "without a recording"),
    ],
)
def test_segments_that_do_not_fit_their_recordings_are_refused(tables, tmp_path, segments, message):
    (tmp_path / "segments").write_text(segments)
    with pytest.raises(ListError, match=message):
        read_utterances(*tables(wav_scp="r /r.wav\n", text="s x\n"), str(tmp_path / "segments"))


def test_rows_are_written_in_their_order_and_an_error_leaves_the_file_as_it_was(tmp_path):
    write_table(tmp_path / "new" / "table", ((f"k{number}", number) for number in range(3)))
    assert (tmp_path / "new" / "table").read_text() == "k0 0\nk1 1\nk2 2\n"
    with pytest.raises(ValueError, match="invalid literal"):
        write_table(tmp_path / "new" / "table", (("k", int("stop")) for _ in range(1)))
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["table"]
    assert (tmp_path / "new" / "table").read_text().startswith("k0 0\n")


@pytest.mark.parametrize(("key", "value"), [("a b", "x"), ("", "x"), ("a", "x\ny")])
def test_a_row_that_does_not_fit_into_a_table_is_refused(key, value):
    with pytest.raises(
        ListError,
        match="folder/text: the key .* must have no space, and the value .* no line break",
    ):
        check_row("folder/text", key, value)


def test_recordings_and_their_parts_are_ordered_by_the_bytes_of_their_names(tmp_path):
    lines = [RawLine("a", "/x/é.wav", "", 0.0, 1.0), RawLine("b", "/x/z.wav", "", 1.0, 2.0)]
    write_audio_tables(
        tmp_path, lines, lambda line: line.wav, lambda line: f"{line.start} {line.end}"
    )
    assert (tmp_path / "wav.scp").read_text() == "z /x/z.wav\né /x/é.wav\n"
    assert (tmp_path / "segments").read_text() == "a é 0.0 1.0\nb z 1.0 2.0\n"
    write_audio_tables(tmp_path, lines, lambda line: line.wav)
    assert (tmp_path / "wav.scp").read_text() == "a /x/é.wav\nb /x/z.wav\n"
    assert not (tmp_path / "segments").exists()


def test_a_key_with_a_control_character_is_refused_with_the_word_to_write(tmp_path):
    (tmp_path / "wav.scp").write_text("a\x1bb /a.wav\n")
    with pytest.raises(
        ListError, match=r"wav.scp: the key 'a\\x1bb' holds a control character; write 'a_b'"
    ):
        read_filled_table(str(tmp_path / "wav.scp"))


def test_several_tables_are_named_by_one_pattern(tmp_path):
    for part in ("a", "b", "c"):
        (tmp_path / part).mkdir()
        (tmp_path / part / "wav.scp").write_text(f"{part}1 /{part}1.wav\n{part}2 /{part}2.wav\n")
    (tmp_path / "a/text").write_text("a1 x\nb1 y\n")
    (tmp_path / "c/text").write_text("c2 z\n")
    lines = read_utterances(f"{tmp_path}/{{a,b,c}}/wav.scp", f"{tmp_path}/*/text")
    assert [(line.key, line.wav, line.text) for line in lines] == [
        ("a1", "/a1.wav", "x"),
        ("b1", "/b1.wav", "y"),
        ("c2", "/c2.wav", "z"),
    ]
    (tmp_path / "c/wav.scp").write_text("a2 /other.wav\n")
    with pytest.raises(
        ValueError, match=r"c/wav.scp: a2 also in an earlier file of \S+/\*/wav.scp"
    ):
        read_audio_lines(f"{tmp_path}/*/wav.scp")
    with pytest.raises(ListError, match=r"gone\*.scp matches no file"):
        read_audio_lines(f"{tmp_path}/gone*.scp")


def test_features_of_segments_are_not_cut_again_and_features_of_recordings_are(
    segmented, tmp_path, capsys
):
    _, segments = segmented("a call 0 1\nb call 1 2\n")
    scp = tmp_path / "feats.scp"
    scp.write_text("a /f.ark:5\n")  # the features of b could not be computed
    assert read_audio_lines(str(scp), segments) == [RawLine("a", "/f.ark:5", "")]
    assert "holds features of the utterances of" in capsys.readouterr().err
    scp.write_text("call /f.ark:5[0:299]\n")
    assert read_audio_lines(str(scp), segments) == [
        RawLine("a", "/f.ark:5[0:299]", "", 0.0, 1.0),
        RawLine("b", "/f.ark:5[0:299]", "", 1.0, 2.0),
    ]
    scp.write_text("a copy-feats ark:x.ark ark:- |\n")
    with pytest.raises(ListError, match="commands are not run"):
        read_audio_lines(str(scp), segments)


def test_tables_take_about_a_kilobyte_of_memory_for_each_line(tmp_path):
    count = 5000
    numbers = range(count)
    (tmp_path / "feats.scp").write_text(
        "".join(f"speaker-utt{n:08d} /data/feats/raw.{n}.ark:{n}\n" for n in numbers)
    )
    (tmp_path / "text").write_text(
        "".join(f"speaker-utt{n:08d} a sentence of some words {n}\n" for n in numbers)
    )
    tracemalloc.start()
    try:
        lines = read_utterances(str(tmp_path / "feats.scp"), str(tmp_path / "text"))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(lines) == count
    assert peak / count < 1024


def test_utt2lang_sets_the_language_of_every_utterance_and_lacks_none(tables, tmp_path):
    paths = tables(wav_scp="a /a.wav\nb /b.wav\n", text="a x\nb y\n")
    (tmp_path / "utt2lang").write_text("b zh\na en\nc fr\n")
    found = read_utterances(*paths, utt2lang=str(tmp_path / "utt2lang"))
    assert [line.extra for line in found] == [{"language": "en"}, {"language": "zh"}]
    (tmp_path / "utt2lang").write_text("a en\n")
    with pytest.raises(ListError, match="utt2lang: b of .*text without a language; add the lines"):
        read_utterances(*paths, utt2lang=str(tmp_path / "utt2lang"))
