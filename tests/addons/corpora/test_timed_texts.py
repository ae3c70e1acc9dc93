from __future__ import annotations

import pytest

from wenet_uio.addons.corpora.timed_texts import (
    TimedText,
    join_words,
    read_ctm,
    read_subtitles,
    read_textgrid,
)
from wenet_uio.dataset.formats.errors import ListError


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.srt", "1\n00:00:01,000 --> 00:00:02,500\none two\n\n2\n00:01:00,000 --> "
                  "01:00:01,000\nthree\n"),
        ("a.srt", "1\r\n00:00:01,000 --> 00:00:02,500\r\none\r\ntwo\r\n2\r\n00:01:00,000 --> "
                  "01:00:01,000\r\nthree"),
        ("a.srt", "\ufeff1\n0:00:01.0 --> 0:00:02.5 X1:40\n{\\an8}<i>one two\n\n\n2\n0:01:00,0 --> "
                  "1:00:01,0\nthree"),
        ("a.vtt", "WEBVTT - title\n\nSTYLE\n::cue { }\n\nx\n00:01.000 --> 00:02.500 "
                  "align:start\none <c.a>two</c>\n\n"
                  "NOTE\nno\n\n01:00.000 --> 01:00:01.000\n<00:01:00.500>three&lrm;\n\n"
                  "01:00:05.000 --> 01:00:06.000\n \n"),
    ],
)  # fmt: skip
def test_subtitles_of_every_habit_give_texts_and_times(name, text, tmp_path):
    (tmp_path / name).write_text(text, newline="")
    found = [
        TimedText(each.start, each.end, each.text.strip("\u200e"))
        for each in read_subtitles(tmp_path / name)
    ]
    assert found == [TimedText(1.0, 2.5, "one two"), TimedText(60.0, 3601.0, "three")]


def test_a_subtitle_may_have_blank_lines_in_its_text_and_times_without_fractions_or_with_microseconds(
    tmp_path,
):
    text = (
        "1\n100:00:01 --> 100:00:02.500000\n \none\n\ntwo\n\n2\n100:00:03,0 --> 100:00:04,0\n1984\n"
    )
    (tmp_path / "a.srt").write_text(text)
    start = 360000.0
    assert read_subtitles(tmp_path / "a.srt") == [
        TimedText(start + 1, start + 2.5, "one two"),
        TimedText(start + 3, start + 4, "1984"),
    ]
    vtt = "WEBVTT\n\n1\n00:01.000 --> 00:02.000\n \n1984\n \n00:03.000 --> 00:04.000\nx\n\nlost\n"
    (tmp_path / "a.vtt").write_text(vtt)
    assert read_subtitles(tmp_path / "a.vtt") == [
        TimedText(1.0, 2.0, "1984"),
        TimedText(3.0, 4.0, "x"),
    ]


def test_a_voice_is_the_speaker_and_signs_of_inequality_stay(tmp_path):
    (tmp_path / "a.vtt").write_text(
        "WEBVTT\n\n00:01.000 --> 00:02.000\n<v.loud Ann B>1 &lt; 2 &amp; 3\n"
    )
    assert read_subtitles(tmp_path / "a.vtt") == [TimedText(1.0, 2.0, "1 < 2 & 3", "Ann B")]
    (tmp_path / "a.srt").write_text("1\n00:00:01,000 --> 00:00:02,000\n1 < 2 > 0 &amp; <i>3</i>\n")
    assert read_subtitles(tmp_path / "a.srt") == [TimedText(1.0, 2.0, "1 < 2 > 0 &amp; 3")]


SHORT = '"ooTextFile"\n"TextGrid"\n0\n3\n<exists>\n2\n"IntervalTier"\n"words [1]"\n0\n3\n3\n0\n1\n"one ""two"""\n1\n2\n'
SHORT += '"sil"\n2\n3\n"3"\n"TextTier"\n"points"\n0\n3\n1\n0.5\n"x"\n'
LONG = """File type = "ooTextFile"
Object class = "TextGrid"

xmin = 0
xmax = 3
tiers? <exists>
size = 2
item []:
    item [1]:
        class = "IntervalTier"
        name = "words [1]"
        xmin = 0
        xmax = 3
        intervals: size = 3
        intervals [1]:
            xmin = 0
            xmax = 1
            text = "one ""two\"\""
        intervals [2]:
            xmin = 1
            xmax = 2
            text = "sil"
        intervals [3]:
            xmin = 2
            xmax = 3
            text = "3"
    item [2]:
        class = "TextTier"
        name = "points"
        xmin = 0
        xmax = 3
        points: size = 1
        points [1]:
            number = 0.5
            mark = "x"
"""


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
@pytest.mark.parametrize("text", [SHORT, LONG], ids=["short", "long"])
def test_both_forms_and_encodings_of_textgrids_give_their_intervals(text, encoding, tmp_path):
    (tmp_path / "a.TextGrid").write_text(text, encoding=encoding)
    (tier,) = read_textgrid(tmp_path / "a.TextGrid")
    assert tier.name == "words [1]"
    assert tier.intervals == [TimedText(0, 1, 'one "two"'), TimedText(2, 3, "3")]
    assert not tier.has_words


def test_words_of_a_ctm_are_joined_up_to_pauses_and_up_to_twenty_seconds(tmp_path):
    rows = [
        ";; a comment",
        "a A 1.0 0.5 one",
        "a A 0.2 0.3 zero",
        "a A 2.1 0.4 two 0.9",
        "a B 0.0 9 other",
        "",
    ]
    rows += ["a A 2.5 0.1 <eps>", *(f"long 1 {n} 1 word" for n in range(45))]
    (tmp_path / "a.ctm").write_text("\n".join(rows))
    words = read_ctm(tmp_path / "a.ctm")
    assert [(each.start, each.end, each.text) for each in join_words(words["a", "A"])] == [
        (0.2, 0.5, "zero"),
        (1.0, 1.5, "one"),
        (2.1, 2.5, "two"),
    ]
    assert [each.end - each.start for each in join_words(words["long", "1"])] == [20, 20, 5]
    assert [each.text for each in words["a", "B"]] == ["other"]


def test_a_subtitle_of_a_day_is_read_in_order(tmp_path):
    starts = range(0, 86400, 11)
    cues = [
        f"{n}\n{n // 3600:02}:{n // 60 % 60:02}:{n % 60:02},000 --> 99:00:00,000\nx {n}\n"
        for n in starts
    ]
    (tmp_path / "a.srt").write_text("\n".join(cues))
    found = read_subtitles(tmp_path / "a.srt")
    assert [each.start for each in found] == list(starts)


def test_a_cue_may_have_no_length_but_does_not_end_before_it_starts(tmp_path):
    times = "1\n00:00:01,000 --> 00:00:0{},000\none\n"
    (tmp_path / "a.srt").write_text(times.format(1))
    assert read_subtitles(tmp_path / "a.srt") == [TimedText(1.0, 1.0, "one")]
    (tmp_path / "a.srt").write_text(times.format(0))
    with pytest.raises(ListError, match=r"a.srt:2: a cue starts at 1.0 s and ends at 0.0 s"):
        read_subtitles(tmp_path / "a.srt")


@pytest.mark.parametrize("last", ["²", "½", "Ⅳ", "-2", "2."])
def test_only_decimal_digits_are_the_number_of_the_next_cue(tmp_path, last):
    (tmp_path / "a.srt").write_text(
        f"1\n00:00:01,000 --> 00:00:02,000\nx\n{last}\n00:00:03,000 --> 00:00:04,000\ny\n"
    )
    assert [cue.text for cue in read_subtitles(tmp_path / "a.srt")] == [f"x {last}", "y"]
