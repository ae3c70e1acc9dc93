"""Texts that are to be spoken: NeMo's manifests and plain text, read with their fields and a
planned length.
"""

import json
import pickle

import pytest

from tests.support.data.tars import everything
from wenet_uio.audio.decoders import MOST_SAMPLES
from wenet_uio.config.mixture import MixtureConf
from wenet_uio.config.source import parse_source
from wenet_uio.dataset.corpus.index import TEXT_ONLY
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.kinds.to_speak import PLANNED_RATE, TtsTextCorpus, speakers_of
from wenet_uio.dataset.open import open_corpus
from wenet_uio.dataset.types import SampleRef, UtteranceToSpeak
from wenet_uio.text.char import CharSplitter
from wenet_uio.text.labels import Tokenizer

NEMO = {"text": "one hundred", "tts_text": "One 100.", "tts_text_normalized": "One hundred."}


def write(path, *lines):
    written = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    path.write_text("\n".join(written) + "\n", encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("line", ["\ufeffone", {"text": "\ufeffone"}])
def test_a_byte_order_mark_before_a_text_is_no_part_of_it(tmp_path, line):
    (only,) = everything(TtsTextCorpus(write(tmp_path / "a.txt", line), 0.1))
    assert (only.text, only.to_speak) == ("one", "one")


def test_a_manifest_is_read_with_all_its_fields(tmp_path):
    path = write(
        tmp_path / "a.json",
        {**NEMO, "speaker": 7, "domain": "news"},
        "",
        {"key": "k 2", "text": " b "},
    )
    first, second = everything(TtsTextCorpus(path, 0.1))
    assert (first.key, first.text, first.to_speak) == ("a.json:1", "one hundred", "One hundred.")
    assert first.extra == {
        "tts_text": "One 100.",
        "tts_text_normalized": NEMO["tts_text_normalized"],
    } | {
        "speaker": 7,
        "domain": "news",
    }
    assert (second.key, second.text, second.to_speak) == ("k_2", "b", "b")
    assert isinstance(second, UtteranceToSpeak)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (NEMO, "One hundred."),
        ({**NEMO, "tts_text_normalized": None}, "One 100."),
        ({"text": "a b"}, "a b"),
    ],
)
def test_the_normalized_text_is_spoken_before_the_written_text_and_the_target(
    tmp_path, line, expected
):
    assert everything(TtsTextCorpus(write(tmp_path / "a.json", line), 0.1))[0].to_speak == expected


def test_plain_text_has_one_text_a_line_and_the_speakers_of_its_source(tmp_path):
    path = write(tmp_path / "a.txt", "\ufeffab", "  ", 'cde {"')
    write(tmp_path / "s1", "x y", "z"), write(tmp_path / "s2", "y", "w")
    conf = parse_source(
        {
            "type": "tts_text",
            "manifest_filepath": path,
            "speakers_filepath": str(tmp_path / "s{1,2}"),
        }
    )
    (corpus,) = conf.open()
    found = everything(corpus)
    assert [(each.key, each.text, each.to_speak) for each in found] == [
        ("a.txt:1", "ab", "ab"),
        ("a.txt:3", 'cde {"', 'cde {"'),
    ]
    assert {each.speakers for each in found} == {("x", "y", "z", "w")}
    assert everything(pickle.loads(pickle.dumps(corpus))) == found


def test_the_planned_length_is_stated_or_estimated_from_the_text_that_is_spoken(tmp_path):
    path = write(tmp_path / "a.json", {**NEMO, "duration": 2.5004}, NEMO, {"text": "日本語"})
    corpus = TtsTextCorpus(path, 0.25)
    rows = corpus.rows(0)
    assert rows.seconds.tolist() == [2.501, 0.5 + 3.0, 0.5 + 0.75]
    assert rows.text_length.tolist() == [11, 11, 3]
    assert (rows.sample_rate != TEXT_ONLY).all()
    assert not corpus.has_text_only
    assert corpus.kinds == {"to_speak"}
    assert corpus.texts(SampleRef(0, 2)).texts == ("日本語",)


def test_lines_that_cannot_be_used_are_named_and_the_others_are_read(tmp_path):
    bad = {
        '{"text": "cut': "not JSON",
        '{"tts_text": "a"}': "text must be a text, found None",
        '{"text": "  "}': "text must be a text, found '  '",
        '{"text": "a", "tts_text": ""}': "tts_text must be a text, found ''",
        '{"text": "a", "duration": -1}': "duration must be seconds, found -1",
        '{"text": "a", "duration": 1e12}': "is too long; split the text",
        '{"text": "a", "speaker": ["x"]}': "speaker must be a string or a number",
        '{"text": "a", "_skipme": "no rights"}': "no rights",
    }
    corpus = TtsTextCorpus(write(tmp_path / "a.json", '{"text": "good"}', *bad), 0.1)
    assert [each.text for each in everything(corpus)] == ["good"]
    assert [key for key, _ in corpus.bad] == [
        f"{tmp_path}/a.json:{number}" for number in range(2, 2 + len(bad))
    ]
    for (_, reason), expected in zip(corpus.bad, bad.values(), strict=True):
        assert expected in reason
    latin = tmp_path / "a.txt"
    latin.write_bytes("ok\nl\xe4rm\n".encode("latin-1"))
    assert "not UTF-8" in TtsTextCorpus(str(latin), 0.1).bad[0][1]


@pytest.mark.parametrize("content", ["", "\n\n", '{"text": ""}\n'])
def test_a_file_without_a_text_is_refused(tmp_path, content):
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(ListError, match=r"a\.json: holds no text to speak"):
        TtsTextCorpus(str(tmp_path / "a.json"), 0.1)


def test_missing_files_are_named(tmp_path):
    with pytest.raises(ListError, match=r"no\.json: no such file of texts to speak"):
        TtsTextCorpus(str(tmp_path / "no.json"), 0.1)
    with pytest.raises(ListError, match="no: speakers cannot be read"):
        speakers_of([str(tmp_path / "no")])
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(ListError, match="empty: names no speaker"):
        speakers_of([str(tmp_path / "empty")])


def test_other_types_of_sources_have_no_speakers(tmp_path):
    with pytest.raises(
        ValueError, match="a source of type txt has no speakers_filepath; tts_text has"
    ):
        parse_source({"type": "txt", "paths": "a.txt", "speakers_filepath": "s.txt"})


def test_other_words_lengths_or_speakers_are_other_data(tmp_path):
    path = write(tmp_path / "a.txt", "ab", "cd")
    digests = [
        TtsTextCorpus(path, *conf).digest for conf in ((0.1,), (0.2,), (0.1, ("x",)), (0.1, ("y",)))
    ]
    write(tmp_path / "a.txt", "ab", "ce")
    digests.append(TtsTextCorpus(path, 0.1).digest)
    assert len(set(digests)) == len(digests)
    write(tmp_path / "a.txt", "ab", "cd")
    assert TtsTextCorpus(path, 0.1).digest == digests[0]


def test_tokens_of_texts_to_speak_are_counted(tmp_path):
    path = write(tmp_path / "a.json", {"text": "one two three"}, {"text": "four"})
    words = Tokenizer(CharSplitter((), split_with_space=True), {"<unk>": 0})
    source = {"type": "tts_text", "manifest_filepath": path}
    corpus = open_corpus(MixtureConf.model_validate([source]), "raw", tokenizer=words)
    assert corpus.rows(0).text_length.tolist() == [3, 1]


def test_the_longest_speech_is_the_longest_that_an_index_can_state(tmp_path):
    longest = MOST_SAMPLES / PLANNED_RATE
    path = write(tmp_path / "a.json", {"text": "a", "duration": longest})
    assert TtsTextCorpus(path, 0.1).rows(0).seconds[0] == pytest.approx(longest)

    one_more = (MOST_SAMPLES + 1) / PLANNED_RATE
    path = write(tmp_path / "b.json", {"text": "a", "duration": one_more}, {"text": "b"})
    corpus = TtsTextCorpus(path, 0.1)
    assert [sample.text for sample in everything(corpus)] == ["b"]
