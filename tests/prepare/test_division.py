from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.data.transcripts import with_audio, written
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.prepare.own_corpus import into_parts, read_corpus, read_transcripts


@pytest.mark.parametrize("field", ["part", "split", "subset"])
def test_a_manifest_may_name_its_part_field_like_the_columns(corpus, field):
    rows = [
        {"audio_filepath": f"wav/utt000{n}.wav", "text": "x", field: part}
        for n, part in enumerate(("train", "Validation", "test"))
    ]
    path = written(corpus / "a.json", "".join(json.dumps(row) + "\n" for row in rows))
    parts = into_parts(read_transcripts(path), "keep")
    assert [[one.key for one in of] for of in parts.values()] == [
        ["utt0000"],
        ["utt0001"],
        ["utt0002"],
    ]


def test_cuts_may_name_parts_in_a_custom_field(corpus):
    lhotse = pytest.importorskip("lhotse")
    rows = []
    for n, part in enumerate(("train", "dev", "test")):
        recording = lhotse.Recording.from_file(corpus / "wav" / f"utt000{n}.wav")
        said = lhotse.SupervisionSegment(f"s{n}", recording.id, 0.0, recording.duration, text="x")
        cut = lhotse.MonoCut(
            f"c {n}",
            0.0,
            recording.duration,
            0,
            [said],
            recording=recording,
            custom={"split": part},
        )
        rows.append(json.dumps(cut.to_dict()) + "\n")
    parts = into_parts(read_transcripts(written(corpus / "cuts.jsonl", "".join(rows))), "keep")
    assert {part: [one.key for one in of] for part, of in parts.items()} == {
        "train": ["c_0"],
        "dev": ["c_1"],
        "test": ["c_2"],
    }


def test_an_unknown_part_is_ignored_with_a_message(corpus, capsys):
    rows = (
        json.dumps({"audio_filepath": f"wav/utt{n:04d}.wav", "text": "x", "subset": "XL"})
        for n in range(4)
    )
    parts = read_corpus(written(corpus / "manifest.json", "\n".join(rows)))
    assert sum(map(len, parts.values())) == 4
    assert "part or split or subset: unknown part 'XL' ignored" in capsys.readouterr().err


def test_development_is_taken_from_training_if_only_test_is_given(corpus, capsys):
    with_audio(corpus, *(f"wav/{n}.wav" for n in range(30)))
    train = written(corpus / "train.tsv", "".join(f"wav/{n}.wav\tx\n" for n in range(30)))
    test = written(corpus / "test.tsv", "wav/utt0000.wav\tx\n")
    parts = read_corpus(train, test=test)
    assert [one.key for one in parts["test"]] == ["utt0000"]
    assert 1 <= len(parts["dev"]) < 10
    assert len(parts["train"]) + len(parts["dev"]) == 30
    assert (
        f"no utterance is for dev: {len(parts['dev'])} utterances of train are used for dev"
        in capsys.readouterr().err
    )


def part_files(corpus: Path) -> dict[str, Path]:
    """Tables of train and of dev, and one of both that names the parts."""
    train, dev = "wav/utt0000.wav\tx{0}\nwav/utt0001.wav\tx{0}\n", "wav/utt0002.wav\tx{0}\n"
    tables = {"train": train.format(""), "dev": dev.format("")}
    tables["all"] = "path\ttext\tsplit\n" + train.format("\ttrain") + dev.format("\tdev")
    return {name: written(corpus / f"{name}.tsv", table) for name, table in tables.items()}


@pytest.mark.parametrize(
    ("transcripts", "dev", "test"),
    [
        ("train", "dev", None),
        ("train", "dev", "dev"),
        ("all", None, None),
        ("all", None, "dev"),
        ("all", None, "of_dev"),
    ],
)
def test_a_corpus_with_train_and_dev_only_decodes_dev_as_test_and_says_so(
    corpus, transcripts, dev, test, capsys
):
    files = part_files(corpus)
    files["of_dev"] = written(corpus / "o.tsv", "path\ttext\tsplit\nwav/utt0002.wav\tx\tdev\n")
    parts = read_corpus(files[transcripts], dev=dev and files[dev], test=test and files[test])
    assert {part: [one.key for one in of] for part, of in parts.items()} == {
        "train": ["utt0000", "utt0001"],
        "dev": ["utt0002"],
        "test": ["utt0002"],
    }
    assert (
        "no utterance is for test: the 1 utterances of dev are decoded as test"
        in capsys.readouterr().err
    )


def test_folders_train_and_dev_are_the_parts_of_a_corpus(corpus):
    names = ("train/a", "train/b", "dev/c")
    with_audio(corpus / "all", *(f"{name}.wav" for name in names))
    for name in names:
        written(corpus / "all" / f"{name}.txt", "x")
    parts = read_corpus(corpus / "all")
    assert {part: [one.wav.name for one in of] for part, of in parts.items()} == {
        "train": ["a.wav", "b.wav"],
        "dev": ["c.wav"],
        "test": ["c.wav"],
    }


def test_a_test_file_with_some_utterances_of_dev_is_refused(corpus):
    train = part_files(corpus)["train"]
    dev = written(corpus / "two.tsv", "wav/utt0002.wav\tx\nwav/utt0003.wav\tx\n")
    some = written(corpus / "some.tsv", "wav/utt0002.wav\tx\n")
    with pytest.raises(ListError, match="utt0002: two utterances"):
        read_corpus(train, dev=dev, test=some)


@pytest.mark.parametrize("number", [3, 4, 5, 7, 10, 12, 20, 50])
@pytest.mark.parametrize("column", ["key", "speaker"])
def test_no_part_is_empty_when_utterances_are_divided(corpus, number, column):
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


def test_few_speakers_are_in_all_parts_and_a_message_says_so(corpus, capsys):
    rows = "path\ttext\tkey\tclient_id\n" + "".join(
        f"wav/utt0000.wav\tx\tk{n}\ts{n % 6}\n" for n in range(300)
    )
    parts = into_parts(read_transcripts(written(corpus / "a.tsv", rows)), "keep")
    assert {int(one.key[1:]) % 6 for one in parts["test"]} == set(range(6))
    assert capsys.readouterr().err.startswith("only 6 speakers: utterances are divided")


def test_two_utterances_cannot_be_divided_into_three_parts(corpus):
    path = written(corpus / "a.tsv", "wav/utt0000.wav\tx\nwav/utt0001.wav\ty\n")
    with pytest.raises(ListError, match="2 utterances cannot be divided into train, dev, test"):
        into_parts(read_transcripts(path), "keep")


def test_a_speaker_is_in_one_part_only_and_the_division_is_repeatable(corpus):
    rows = "key\tpath\ttext\tspeaker\n" + "".join(
        f"k{n}\twav/utt0000.wav\ta\ts{n // 10}\n" for n in range(400)
    )
    lines = read_transcripts(written(corpus / "a.tsv", rows))
    parts = into_parts(lines, "keep")
    speakers = {part: {int(one.key[1:]) // 10 for one in of} for part, of in parts.items()}
    assert sum(len(of) for of in parts.values()) == 400
    assert sum(len(of) for of in speakers.values()) == 40
    assert all(speakers.values())
    assert parts == into_parts(lines, "keep")
