from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.support.data.transcripts import EXPECTED, read, with_audio, written
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.prepare.looking import form_of
from wenet_uio.prepare.own_corpus import into_parts, read_corpus, read_transcripts


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
    assert form_of(plain) == form_of(packed) == "lhotse"
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
    with pytest.raises(
        ListError,
        match="no utterance is for test: set the field part or split or subset, or give --test",
    ):
        read_corpus(files[0], dev=files[1])
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
            "recording\twords\nx.wav\ta\n",
            "recording is not in .*; columns that the first row may name are wav: wav, ",
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
        ListError, match="a.xls: the name does not say the form of the file; give --form "
    ):
        form_of(written(tmp_path / "a.xls", ""))
