from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from wenet_uio.dataset.formats.data_list import ListError
from wenet_uio.prepare.own_corpus import ReadOptions, form_of, into_parts, read_corpus, read_transcripts


@pytest.fixture
def corpus(tmp_path, make_utterances):
    """Folder with wav/utt0000.wav to utt0003.wav."""
    make_utterances(4)
    return tmp_path


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def read(path: Path, audio: Path | None = None) -> list[tuple]:
    lines = read_transcripts(path, ReadOptions(audio=audio))
    return [(line.key, Path(line.wav).name, line.text, line.start, line.end) for line in lines]


EXPECTED = [("utt0000", "utt0000.wav", "one two", 0.0, None), ("utt0001", "utt0001.wav", "three", 0.0, None)]


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
    with pytest.raises(ListError, match=r"a.tsv: utt9: audio utt9.wav is not in .*wav or .*; see --audio"):
        read(written(corpus / "a.tsv", "utt9.wav\tx\n"), corpus / "wav")


def test_audio_that_may_be_one_of_two_is_named(corpus):
    (corpus / "other").mkdir()
    (corpus / "other" / "utt0000.flac").touch()
    with pytest.raises(ListError, match=r"audio utt0000.wav may be .*other/utt0000.flac or .*wav/utt0000.wav"):
        read(written(corpus / "a.tsv", "utt0000.wav\tone two\n"), corpus)


@pytest.mark.parametrize("form", ["tsv", "nemo", "kaldi", "lhotse"])
def test_relative_paths_are_from_the_transcripts_or_else_from_the_folder_told(corpus, tmp_path, form, monkeypatch):
    wav = "wav/utt0000.wav"
    if form == "lhotse":
        lhotse = pytest.importorskip("lhotse")
        recording = lhotse.Recording.from_file(corpus / wav)
        said = lhotse.SupervisionSegment("utt0000", recording.id, 0.0, recording.duration, text="one two")
        cut = lhotse.MonoCut("utt0000", 0.0, recording.duration, 0, [said], recording=recording)
        content = json.dumps(cut.to_dict()).replace(f"{corpus}/", "") + "\n"
    elif form == "nemo":
        content = json.dumps({"audio_filepath": wav, "text": "one two"}) + "\n"
    else:
        content = f"{wav}\tone two\n"

    def transcripts(folder: Path) -> Path:
        folder.mkdir(exist_ok=True)
        if form != "kaldi":
            return written(folder / f"a.{'tsv' if form == 'tsv' else 'jsonl'}", content)
        written(folder / "wav.scp", f"utt0000 {wav}\n")
        written(folder / "text", "utt0000 one two\n")
        return folder

    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "wav").mkdir(parents=True)
    (elsewhere / wav).touch()
    monkeypatch.chdir(elsewhere)
    (line,) = read_transcripts(transcripts(corpus))
    assert line.wav == str(corpus / wav)
    apart = transcripts(tmp_path / "apart")
    assert read_transcripts(apart)[0].wav == str(elsewhere / wav)
    monkeypatch.chdir("/")
    assert read_transcripts(apart, ReadOptions(relative_to=corpus))[0].wav == str(corpus / wav)
    with pytest.raises(ListError, match=f"utt0000: audio {wav} is not in .*apart or /; see --audio"):
        read_transcripts(apart)


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


def with_audio(corpus: Path, *wavs: str) -> None:
    for wav in wavs:
        (corpus / wav).parent.mkdir(parents=True, exist_ok=True)
        (corpus / wav).touch()


@pytest.mark.parametrize("form", ["tsv", "json"])
def test_names_that_meet_get_their_folders_and_keys_have_no_spaces(corpus, form):
    wavs = ("wav/speaker 1/001.wav", "wav/speaker2/001.wav", "wav/speaker2/my 2.wav")
    with_audio(corpus, *wavs)
    row = "{}\tx\n" if form == "tsv" else '{{"audio_filepath": "{}", "text": "x"}}\n'
    assert keys_of(written(corpus / f"a.{form}", "".join(map(row.format, wavs)))) == [
        "speaker2-001",
        "speaker2-my_2",
        "speaker_1-001",
    ]
    assert keys_of(written(corpus / f"b.{form}", "".join(map(row.format, (*wavs[1:], "wav/utt0000.wav"))))) == [
        "001",
        "my_2",
        "utt0000",
    ]


def test_keys_that_are_given_stay_as_they_are(corpus):
    with_audio(corpus, "wav/a/001.wav", "wav/b/001.wav")
    rows = "path\ttext\tkey\nwav/a/001.wav\tx\tsame\nwav/b/001.wav\ty\tsame\nwav/utt0000.wav\tz\tz\n"
    with pytest.raises(ListError, match=r"same: two utterances have this key, of .*a/001.wav and .*b/001.wav"):
        keys_of(written(corpus / "a.tsv", rows))


@pytest.mark.parametrize("field", ["part", "split", "subset"])
def test_a_manifest_says_parts_by_the_names_that_columns_have(corpus, field):
    rows = [
        {"audio_filepath": f"wav/utt000{n}.wav", "text": "x", field: part}
        for n, part in enumerate(("train", "Validation", "test"))
    ]
    path = written(corpus / "a.json", "".join(json.dumps(row) + "\n" for row in rows))
    parts = into_parts(read_transcripts(path), "keep")
    assert [[one.key for one in of] for of in parts.values()] == [["utt0000"], ["utt0001"], ["utt0002"]]


def test_cuts_say_parts_in_a_field_of_their_own(corpus):
    lhotse = pytest.importorskip("lhotse")
    rows = []
    for n, part in enumerate(("train", "dev", "test")):
        recording = lhotse.Recording.from_file(corpus / "wav" / f"utt000{n}.wav")
        said = lhotse.SupervisionSegment(f"s{n}", recording.id, 0.0, recording.duration, text="x")
        cut = lhotse.MonoCut(f"c {n}", 0.0, recording.duration, 0, [said], recording=recording, custom={"split": part})
        rows.append(json.dumps(cut.to_dict()) + "\n")
    parts = into_parts(read_transcripts(written(corpus / "cuts.jsonl", "".join(rows))), "keep")
    assert {part: [one.key for one in of] for part, of in parts.items()} == {
        "train": ["c_0"],
        "dev": ["c_1"],
        "test": ["c_2"],
    }


def test_development_and_test_may_be_files_of_their_own(corpus):
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
    with pytest.raises(ListError, match="no utterance is for test: say so in part or split or subset, or give --test"):
        read_corpus(files[0], dev=files[1])
    other = written(corpus / "other.tsv", "path\ttext\tsplit\nwav/utt0003.wav\tx\ttest\n")
    with pytest.raises(ListError, match=r"other.tsv: utt0003: part .* says 'test' in the file of dev"):
        read_corpus(files[0], dev=other, test=files[2])


def test_a_subset_that_is_no_part_is_passed_over_and_said(corpus, capsys):
    rows = (json.dumps({"audio_filepath": f"wav/utt{n:04d}.wav", "text": "x", "subset": "XL"}) for n in range(4))
    parts = read_corpus(written(corpus / "manifest.json", "\n".join(rows)))
    assert sum(map(len, parts.values())) == 4
    assert "part or split or subset: unknown part 'XL' ignored" in capsys.readouterr().err


def test_development_is_taken_from_training_where_only_it_is_not_told(corpus, capsys):
    with_audio(corpus, *(f"wav/{n}.wav" for n in range(30)))
    train = written(corpus / "train.tsv", "".join(f"wav/{n}.wav\tx\n" for n in range(30)))
    test = written(corpus / "test.tsv", "wav/utt0000.wav\tx\n")
    parts = read_corpus(train, test=test)
    assert [one.key for one in parts["test"]] == ["utt0000"]
    assert 1 <= len(parts["dev"]) < 10
    assert len(parts["train"]) + len(parts["dev"]) == 30
    assert (
        f"no utterance is for dev: {len(parts['dev'])} utterances of train are used for dev" in capsys.readouterr().err
    )


@pytest.mark.parametrize("number", [3, 4, 5, 7, 10, 12, 20, 50])
@pytest.mark.parametrize("column", ["key", "speaker"])
def test_no_part_is_empty_where_parts_are_made(corpus, number, column):
    rows = f"path\ttext\tkey\t{column}\n" if column != "key" else "path\ttext\tkey\n"
    for n in range(number):
        for again in range(1 if column == "key" else 3):
            rows += f"wav/utt0000.wav\tx\tk{n}-{again}" + ("\n" if column == "key" else f"\ts{n}\n")
    parts = into_parts(read_transcripts(written(corpus / "a.tsv", rows)), "keep")
    assert all(parts.values())
    assert len(parts["train"]) >= max(len(parts["dev"]), len(parts["test"]))
    if column == "speaker" and number >= 10:
        speakers = [{one.key.split("-")[0] for one in of} for of in parts.values()]
        assert len(set.union(*speakers)) == sum(map(len, speakers))


def test_few_speakers_are_in_all_parts_and_this_is_said(corpus, capsys):
    rows = "path\ttext\tkey\tclient_id\n" + "".join(f"wav/utt0000.wav\tx\tk{n}\ts{n % 6}\n" for n in range(300))
    parts = into_parts(read_transcripts(written(corpus / "a.tsv", rows)), "keep")
    assert {int(one.key[1:]) % 6 for one in parts["test"]} == set(range(6))
    assert capsys.readouterr().err.startswith("6 speakers are few: utterances are divided")


def test_two_utterances_cannot_be_divided_into_three_parts(corpus):
    path = written(corpus / "a.tsv", "wav/utt0000.wav\tx\nwav/utt0001.wav\ty\n")
    with pytest.raises(ListError, match="2 utterances cannot be divided into train, dev, test"):
        into_parts(read_transcripts(path), "keep")


@pytest.mark.parametrize(("channel", "refused"), [(0, False), ("0", False), (None, False), (1, True), ("A", True)])
def test_the_first_channel_is_what_is_read_and_others_are_refused(corpus, channel, refused):
    rows = [{"audio_filepath": f"wav/utt000{n}.wav", "text": "x", "channel": channel} for n in range(4)]
    lines = read_transcripts(written(corpus / "a.json", "".join(json.dumps(row) + "\n" for row in rows)))
    if refused:
        with pytest.raises(ListError, match=f"channel {channel}; save the channel as a file of its own"):
            into_parts(lines, "keep")
    else:
        assert sum(map(len, into_parts(lines, "keep").values())) == 4


def test_a_speaker_is_in_one_part_only_and_the_parts_do_not_change(corpus):
    rows = "key\tpath\ttext\tspeaker\n" + "".join(f"k{n}\twav/utt0000.wav\ta\ts{n // 10}\n" for n in range(400))
    lines = read_transcripts(written(corpus / "a.tsv", rows))
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
        ("path\ttext\tend\nx.wav\ta\tlate\n", "a.tsv:2: end: expected a number, found 'late'"),
        ("path\ttext\tpart\nx.wav\ta\ttrain\ny.wav\tb\t\n", "y: no part, but x has one"),
        ("path\ttext\tpart\nx.wav\ta\tmiddle\ny.wav\tb\ttrain\n", "x: part .* says 'middle'; known: train"),
        ("path\ttext\nx.wav\ta\nx.wav\tb\n", "x: two utterances have this key"),
        ("path\ttext\tpart\nx.wav\ta\ttest\ny.wav\tb\tdev\n", "no utterance is for train: say so in part or split"),
        ("recording\twords\nx.wav\ta\n", "recording is not in .*; columns that the first row may name are wav: wav, "),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path, rows, message):
    with_audio(tmp_path, "x.wav", "y.wav")
    path = written(tmp_path / "a.tsv", rows)
    with pytest.raises(ListError, match=message):
        into_parts(read_transcripts(path), "keep")


def test_transcripts_that_are_not_there_are_named(tmp_path):
    with pytest.raises(ListError, match="none.tsv: not there; name a file of transcripts, or a Kaldi directory"):
        read_transcripts(tmp_path / "none.tsv")


def test_a_name_that_says_nothing_asks_for_the_form(tmp_path):
    with pytest.raises(ListError, match="say --form"):
        form_of(written(tmp_path / "a.xls", ""))
