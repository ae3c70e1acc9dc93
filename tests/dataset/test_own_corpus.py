from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from wenet_uio.dataset.data_list import ListError
from wenet_uio.dataset.own_corpus import form_of, into_parts, read_transcripts


@pytest.fixture
def corpus(tmp_path, make_utterances):
    """Folder with wav/utt0000.wav to utt0003.wav."""
    make_utterances(4)
    return tmp_path


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def read(path: Path, audio: Path | None = None) -> list[tuple]:
    lines = read_transcripts(path, None, audio)
    return [(line.key, Path(line.wav).name, line.text, line.start, line.end) for line in lines]


EXPECTED = [("utt0000", "utt0000.wav", "one two", 0.0, None), ("utt0001", "utt0001.wav", "three", 0.0, None)]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.tsv", "path\tsentence\nwav/utt0000.wav\tone two\nwav/utt0001.wav\tthree\n"),
        ("a.tsv", "wav/utt0000.wav\tone two\nwav/utt0001.wav\tthree\n"),
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
    said = lhotse.SupervisionSegment("utt0000", recording.id, 0.0, recording.duration, text="one two")
    cut = lhotse.MonoCut("utt0000", 0.0, recording.duration, 0, [said], recording=recording)
    line = json.dumps(cut.to_dict()) + "\n"
    plain = written(corpus / "cuts.jsonl", line)
    packed = corpus / "cuts.jsonl.gz"
    packed.write_bytes(gzip.compress(line.encode()))
    assert form_of(plain) == form_of(packed) == "lhotse"
    assert read(plain) == read(packed) == EXPECTED[:1]


def test_audio_is_found_in_its_folder_by_path_by_name_and_without_suffix(corpus):
    for name in ("wav/utt0000.wav", "utt0000.wav", "utt0000", "elsewhere/utt0000.mp3"):
        assert read(written(corpus / "a.tsv", f"{name}\tone two\n"), corpus) == EXPECTED[:1]
    with pytest.raises(ListError, match=r"a.tsv: utt9: audio utt9.wav is not there in .*wav"):
        read(written(corpus / "a.tsv", "utt9.wav\tx\n"), corpus / "wav")


def test_parts_of_recordings_have_names_and_times_and_whole_ones_get_an_end(corpus):
    rows = "path\tstart\tend\ttext\tpart\n"
    rows += "wav/utt0000.wav\t0.1\t0.25\ta\ttrain\nwav/utt0001.wav\t\t\tb\tvalid\nwav/utt0002.wav\t\t\tc\ttest\n"
    parts = into_parts(read_transcripts(written(corpus / "a.tsv", rows), None, None), "english")
    (train,), (dev,), (_,) = parts["train"], parts["dev"], parts["test"]
    assert (train.key, train.text, train.start, train.end) == ("utt0000_0000100", "A", 0.1, 0.25)
    assert dev.end > 0.25


def test_a_speaker_is_in_one_part_only_and_the_parts_do_not_change(corpus):
    rows = "key\tpath\ttext\tspeaker\n" + "".join(f"k{n}\twav/utt0000.wav\ta\ts{n // 10}\n" for n in range(400))
    lines = read_transcripts(written(corpus / "a.tsv", rows), None, None)
    parts = into_parts(lines, "keep")
    speakers = {part: {int(one.key[1:]) // 10 for one in of} for part, of in parts.items()}
    assert sum(len(of) for of in parts.values()) == 400
    assert sum(len(of) for of in speakers.values()) == 40
    assert all(speakers.values())
    assert parts == into_parts(lines, "keep")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("", "a.tsv: empty"),
        ("a\tb\tc\n", "a.tsv:1: expected names of columns"),
        ("path\ttext\nx.wav\n", "a.tsv:2: expected 2 fields, found 1"),
        ("path\ttext\nx.wav\t \n", "a.tsv:2: no text"),
        ("path\ttext\tstart\tend\nx.wav\ta\t2\t1\n", "a.tsv:2: starts at 2.0 s and ends at 1.0 s"),
        ("path\ttext\tend\nx.wav\ta\tlate\n", "a.tsv:2: could not convert"),
        ("path\ttext\tpart\nx.wav\ta\ttrain\ny.wav\tb\t\n", "y: no part, but x has one"),
        ("path\ttext\tpart\nx.wav\ta\tmiddle\n", "x: part 'middle'; known: train"),
        ("path\ttext\nx.wav\ta\nd/x.wav\tb\n", "x: two utterances have this key"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path, rows, message):
    path = written(tmp_path / "a.tsv", rows)
    with pytest.raises(ListError, match=message):
        into_parts(read_transcripts(path, None, None), "keep")


def test_a_name_that_says_nothing_asks_for_the_form(tmp_path):
    with pytest.raises(ListError, match="say --form"):
        form_of(written(tmp_path / "a.xls", ""))
