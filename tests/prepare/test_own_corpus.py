from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.support.data.transcripts import EXPECTED, read, with_audio, written
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.prepare.looking import detect_form
from wenet_uio.prepare.own_corpus import ReadOptions, into_parts, read_corpus, read_transcripts


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.tsv", "path\tsentence\nwav/utt0000.wav\tone two\nwav/utt0001.wav\tthree\n"),
        ("a.tsv", "wav/utt0000.wav\tone two\nwav/utt0001.wav\tthree\n"),
        ("a.TSV", "path\tsentence\nwav/utt0000.wav\tone two\nwav/utt0001.wav\tthree\n"),
        ("a.csv", '\ufeffText,Audio\none two,wav/utt0000.wav\n"three",wav/utt0001.wav\n'),
        ("a.json", '{"audio_filepath": "wav/utt0000.wav", "text": "one two", "duration": 0.5}\n'
                   '{"audio_filepath": "wav/utt0001.wav", "text": "three", "duration": 0.5}\n'),
    ],
)  # fmt: skip
def test_every_form_of_transcripts_gives_the_same_utterances(corpus, name, text):
    assert read(written(corpus / name, text)) == EXPECTED


def test_lhotse_cuts_are_known_by_their_content(corpus):
    lhotse = pytest.importorskip("lhotse")
    recording = lhotse.Recording.from_file(corpus / "wav" / "utt0000.wav")
    said = lhotse.SupervisionSegment(
        "utt0000", recording.id, 0.0, recording.duration, text="one two"
    )
    cut = lhotse.MonoCut("utt0000", 0.0, recording.duration, 0, [said], recording=recording)
    line = json.dumps(cut.to_dict()) + "\n"
    plain = written(corpus / "cuts.jsonl", line)
    packed = corpus / "cuts.jsonl.gz"
    packed.write_bytes(gzip.compress(line.encode()))
    assert detect_form(plain) == detect_form(packed) == "lhotse"
    assert read(plain) == read(packed) == EXPECTED[:1]


def test_parts_of_recordings_have_names_and_times(corpus):
    rows = "path\tstart\tend\ttext\tpart\n"
    rows += "wav/utt0000.wav\t0.1\t0.25\ta\ttrain\nwav/utt0001.wav\t\t\tb\tvalid\nwav/utt0002.wav\t\t\tc\ttest\n"
    parts = into_parts(read_transcripts(written(corpus / "a.tsv", rows)), "english")
    (train,), (dev,), (_,) = parts["train"], parts["dev"], parts["test"]
    assert (train.key, train.text, train.start, train.end) == ("utt0000_0000100", "A", 0.1, 0.25)
    assert (dev.key, dev.start, dev.end) == ("utt0001", 0.0, None)


def keys_of(path: Path) -> list[str]:
    parts = into_parts(read_transcripts(path), "keep")
    return sorted(one.key for of in parts.values() for one in of)


@pytest.mark.parametrize("form", ["tsv", "json"])
def test_equal_file_names_get_their_folders_in_the_key_and_keys_have_no_spaces(corpus, form):
    wavs = ("wav/speaker 1/001.wav", "wav/speaker2/001.wav", "wav/speaker2/my 2.wav")
    with_audio(corpus, *wavs)
    row = "{}\tx\n" if form == "tsv" else '{{"audio_filepath": "{}", "text": "x"}}\n'
    assert keys_of(written(corpus / f"a.{form}", "".join(map(row.format, wavs)))) == [
        "speaker2-001",
        "speaker2-my_2",
        "speaker_1-001",
    ]
    assert keys_of(
        written(corpus / f"b.{form}", "".join(map(row.format, (*wavs[1:], "wav/utt0000.wav"))))
    ) == [
        "001",
        "my_2",
        "utt0000",
    ]


def test_given_keys_stay_unchanged(corpus):
    with_audio(corpus, "wav/a/001.wav", "wav/b/001.wav")
    rows = (
        "path\ttext\tkey\nwav/a/001.wav\tx\tsame\nwav/b/001.wav\ty\tsame\nwav/utt0000.wav\tz\tz\n"
    )
    with pytest.raises(
        ListError, match=r"same: two utterances have this key, of .*a/001.wav and .*b/001.wav"
    ):
        keys_of(written(corpus / "a.tsv", rows))


def test_development_and_test_may_have_their_own_files(corpus):
    files = [
        written(corpus / f"{part}.tsv", f"path\ttext\nwav/utt000{n}.wav\tx\n")
        for n, part in enumerate(("train", "dev", "test"))
    ]
    parts = read_corpus(files[0], dev=files[1], test=files[2])
    assert {part: [one.key for one in of] for part, of in parts.items()} == {
        "train": ["utt0000"],
        "dev": ["utt0001"],
        "test": ["utt0002"],
    }
    other = written(corpus / "other.tsv", "path\ttext\tsplit\nwav/utt0003.wav\tx\ttest\n")
    with pytest.raises(
        ListError, match=r"other.tsv: utt0003: part .* says 'test' in the file of dev"
    ):
        read_corpus(files[0], dev=other, test=files[2])


@pytest.mark.parametrize(
    ("channel", "refused"), [(0, False), ("0", False), (None, False), (1, True), ("A", True)]
)
def test_only_the_first_channel_is_accepted(corpus, channel, refused):
    rows = [
        {"audio_filepath": f"wav/utt000{n}.wav", "text": "x", "channel": channel} for n in range(4)
    ]
    lines = read_transcripts(
        written(corpus / "a.json", "".join(json.dumps(row) + "\n" for row in rows))
    )
    if refused:
        with pytest.raises(
            ListError, match=f"channel {channel}; save the channel as a file of its own"
        ):
            into_parts(lines, "keep")
    else:
        assert sum(map(len, into_parts(lines, "keep").values())) == 4


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("", "a.tsv: empty"),
        ("a\tb\tc\n", "a.tsv:1: expected names of columns"),
        ("path\ttext\nx.wav\n", "a.tsv:2: expected 2 fields, found 1"),
        ("path\ttext\nx.wav\t \n", "a.tsv:2: no text"),
        ("path\ttext\tstart\tend\nx.wav\ta\t2\t1\n", "a.tsv:2: starts at 2.0 s and ends at 1.0 s"),
        ("path\ttext\tend\nx.wav\ta\tlate\n", "a.tsv:2: end: expected a number, found 'late'"),
        ("path\ttext\tpart\nx.wav\ta\ttrain\ny.wav\tb\t\n", "y: no part, but x has one"),
        (
            "path\ttext\tpart\nx.wav\ta\tmiddle\ny.wav\tb\ttrain\n",
            "x: part .* says 'middle'; known: train",
        ),
        (
            "path\ttext\nx.wav\ta\nx.wav\tb\n",
            r"x: two utterances are the same part of .*x.wav; remove one of them",
        ),
        (
            "path\ttext\tpart\nx.wav\ta\ttest\ny.wav\tb\tdev\n",
            "no utterance is for train: set the field part or split",
        ),
        (
            "recording\tspoken\nz\ta\n",
            "2 audio file.*: recording, z; .*columns that the first row may name are wav: wav, ",
        ),
    ],
)
def test_unusable_transcripts_are_named_with_line_or_key(tmp_path, rows, message):
    with_audio(tmp_path, "x.wav", "y.wav")
    path = written(tmp_path / "a.tsv", rows)
    with pytest.raises(ListError, match=message):
        into_parts(read_transcripts(path), "keep")


def test_missing_transcripts_are_named(tmp_path):
    with pytest.raises(
        ListError, match="none.tsv: not there; name a file of transcripts, or a folder"
    ):
        read_transcripts(tmp_path / "none.tsv")


def test_a_name_of_unknown_form_asks_for_the_option(tmp_path):
    with pytest.raises(
        ListError, match="a.doc: the name does not say the form of the file; give --form "
    ):
        detect_form(written(tmp_path / "a.doc", ""))


TABLE = "path\ttext\nwav/utt0000.wav\tone two\ngone/1.wav\tx\ngone/2.wav\ty\n"


def test_all_missing_audio_is_named_at_once(corpus):
    path = written(corpus / "a.tsv", TABLE)
    with pytest.raises(
        ListError, match=r"2 audio file\(s\) not found in .*: gone/1.wav, gone/2.wav; "
    ):
        read_transcripts(path)


def test_missing_audio_is_left_out_and_named_if_asked(corpus, capsys):
    path = written(corpus / "a.tsv", TABLE)
    lines = read_transcripts(path, ReadOptions(allow_bad=True))
    assert [line.key for line in lines] == ["utt0000"]
    assert capsys.readouterr().err.endswith(
        "audio files not found: 2 left out (gone/1.wav, gone/2.wav)\n"
    )
    path = written(corpus / "a.tsv", "path\ttext\ngone/1.wav\tx\n")
    with pytest.raises(ListError, match="no utterance in it whose audio exists"):
        read_transcripts(path, ReadOptions(allow_bad=True))


def test_two_names_of_a_table_never_share_a_file_that_is_found_by_name(corpus):
    path = written(corpus / "a.tsv", "path\ttext\nA/utt0000.wav\tx\nB/utt0000.wav\ty\n")
    with pytest.raises(ListError, match=r"2 audio file\(s\) not found"):
        read_transcripts(path)
    path = written(corpus / "a.tsv", "path\ttext\nA/utt0000.wav\tx\nB/utt0001.wav\ty\n")
    assert [Path(line.wav).name for line in read_transcripts(path)] == [
        "utt0000.wav",
        "utt0001.wav",
    ]


def test_the_audio_of_a_table_of_times_may_be_named(corpus):
    path = written(corpus / "talk.csv", "start,end,text\n0,0.1,one\n0.1,0.2,two\n")
    with pytest.raises(ListError, match=r"audio talk is not in .*; see --audio"):
        read_transcripts(path)
    audio = corpus / "wav" / "utt0001.wav"
    assert {line.wav for line in read_transcripts(path, ReadOptions(audio=audio))} == {str(audio)}
    path = written(corpus / "b.csv", "path,text\na.wav,one\nb.wav,two\n")
    with pytest.raises(
        ListError, match=r"has 2 recordings \(a.wav, b.wav\), and --audio .* is one"
    ):
        read_transcripts(path, ReadOptions(audio=audio))


def test_the_first_three_utterances_are_shown_as_they_were_understood(corpus, capsys):
    rows = "".join(f"wav/utt000{number}.wav\ttext {number}\n" for number in range(4))
    read_transcripts(written(corpus / "a.tsv", f"path\ttext\n{rows}"))
    shown = capsys.readouterr().out.splitlines()
    assert [line.rpartition("/")[2] for line in shown[-3:]] == [
        f'utt000{number}.wav: "text {number}"' for number in range(3)
    ]
