import json
import pickle
from collections import Counter

import pytest
import torch

from tests.support.data.loading import TOKENIZER, FakeConfig
from wenet_uio.config.mixture import MixtureConf
from wenet_uio.dataset.dataset import build_loader
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.kinds.text import TextCorpus, questions_of
from wenet_uio.dataset.options import LoaderOptions
from wenet_uio.dataset.types import SampleRef

BATCH = {"batch_type": "dynamic", "max_frames_in_batch": 400, "batch_tokens": 60}


@pytest.fixture
def write(tmp_path):
    def to_file(name, lines):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
        return str(tmp_path / name)

    return to_file


@pytest.fixture
def texts(write):
    return write("texts.txt", ["abc" * (1 + number % 7) for number in range(100)])


def read_all(corpus):
    refs = [
        SampleRef(shard, row)
        for shard in range(corpus.num_shards)
        for row in range(corpus.samples[shard])
    ]
    return [corpus.read(ref) for ref in refs]


def loader(sources, conf=None, training=True, **options):
    config = FakeConfig(**{"batch_conf": BATCH, **(conf or {})})
    mixture = MixtureConf.model_validate(sources)
    return build_loader(
        mixture, "raw", config, TOKENIZER, training=training, options=LoaderOptions(**options)
    )


def test_every_line_with_text_is_a_sample_with_its_own_key(write):
    corpus = TextCorpus(write("some.txt", ["ab", "", " c ", "ä b"]))
    assert [(one.key, one.text) for one in read_all(corpus)] == [
        ("some.txt:1", "ab"),
        ("some.txt:3", "c"),
        ("some.txt:4", "ä b"),
    ]
    assert corpus.rows(0).text_length.tolist() == [2, 1, 3]
    assert corpus.has_text_only


def test_a_byte_order_mark_at_the_start_of_a_file_is_no_part_of_a_text(write):
    corpus = TextCorpus(write("some.txt", ["\ufeffab", "c"]))
    assert [one.text for one in read_all(corpus)] == ["ab", "c"]
    assert corpus.rows(0).text_length.tolist() == [2, 1]
    blank = TextCorpus(write("blank.txt", ["\ufeff", "c"]))
    assert [one.key for one in read_all(blank)] == ["blank.txt:2"]
    pair = TextCorpus(write("a.txt", ["\ufeffab", "c"]), write("b.txt", ["\ufeffx", "y"]))
    assert [(one.source, one.text) for one in read_all(pair)] == [("x", "ab"), ("y", "c")]
    assert questions_of([write("q.txt", ["\ufeffWhat?"])]) == ("What?",)


def test_every_pair_has_one_of_the_questions(write):
    pair = write("b.txt", "xyz" * 5), write("a.txt", "klm" * 5)
    corpus = TextCorpus(*pair, questions_of([write("q.txt", ["What?", "", "Why?"])]))
    questions = [one.extra["question"] for one in read_all(corpus)]
    assert set(questions) == {"What?", "Why?"}
    assert questions == [
        one.extra["question"] for one in read_all(pickle.loads(pickle.dumps(corpus)))
    ]
    with pytest.raises(ListError, match=r"q.txt: holds no question; write one a line"):
        questions_of([write("q.txt", [""])])
    with pytest.raises(ListError, match=r"none.txt: questions cannot be read"):
        questions_of(["none.txt"])


def test_a_changed_file_is_indexed_again(write):
    before = TextCorpus(write("some.txt", ["ab", "c"])).digest
    after = TextCorpus(write("some.txt", ["ab", "b"]))
    assert [one.text for one in read_all(after)] == ["ab", "b"]
    assert after.digest != before


def test_pairs_are_formed_line_by_line_and_half_blank_pairs_are_named(write):
    target, source = write("t.txt", ["a", "", "b", ""]), write("s.txt", ["x", "y", "z", ""])
    corpus = TextCorpus(target, source)
    assert [(one.source, one.text) for one in read_all(corpus)] == [("x", "a"), ("z", "b")]
    assert corpus.bad == [("t.txt:2", "blank in one file of the pair")]
    with pytest.raises(ListError, match="s2.txt: ends before line 3"):
        TextCorpus(target, write("s2.txt", ["x", "y"]))


@pytest.mark.parametrize("lines", [None, []])
def test_a_file_without_text_is_refused(write, tmp_path, lines):
    path = str(tmp_path / "missing.txt") if lines is None else write("empty.txt", lines)
    with pytest.raises(ListError, match=path):
        TextCorpus(path)


def test_text_is_batched_by_tokens_and_never_with_audio(texts, make_lists):
    sources = [
        {"type": "raw", "data_list": make_lists(30)["raw"]},
        {"type": "txt", "paths": texts, "tags": {"x": 1}, "language": "en"},
    ]
    for workers in (0, 2):
        batches = list(loader(sources, num_workers=workers))
        text = [batch for batch in batches if batch.text_only]
        assert all(batch.target.numel() <= 60 for batch in text)
        assert sum(map(len, text)) == 100
        assert sum(map(len, batches)) == 130
        assert len(text) < 40
        assert text[0].feats.shape == (len(text[0]), 0, 20)
        assert text[0].extra[0] == {"x": 1, "language": "en"}
        assert max(Counter(key for batch in batches for key in batch.keys).values()) == 1


def test_with_a_quadratic_factor_batches_of_long_texts_are_smaller(texts):
    batches = list(
        loader([{"type": "txt", "paths": texts}], {"batch_conf": {**BATCH, "quadratic_factor": 30}})
    )
    for batch in batches:
        longest = int(batch.target_lengths.max())
        assert len(batch) * (longest + longest**2 // 30) <= 60
    assert sum(map(len, batches)) == 100


def test_a_text_longer_than_a_batch_or_the_bounds_on_tokens_is_filtered(write):
    path = write("long.txt", ["a" * 70, "a" * 50, "a" * 5])
    one = loader(
        [{"type": "txt", "paths": path}],
        {"filter_conf": {"token_max_length": 65, "token_min_length": 6}},
    )
    assert one.cursor.plan.filtered() == {"token_max_length": 1, "token_min_length": 1}
    one = loader([{"type": "txt", "paths": path}])
    assert one.cursor.plan.filtered() == {"fits_no_batch": 1}


def test_batches_of_pairs_hold_both_texts_padded(write):
    sources = {
        "type": "txt_pair",
        "source_paths": write("s.txt", ["aab", "b"]),
        "target_paths": write("t.txt", "ca"),
    }
    (batch,) = loader([sources])
    order = sorted(range(2), key=lambda row: batch.keys[row])
    assert batch.source[order].tolist() == [[3, 3, 4], [4, -1, -1]]
    assert batch.source_lengths[order].tolist() == [3, 1]
    assert batch.target[order].tolist() == [[5], [3]]
    assert torch.equal(batch.to("cpu").source, batch.source)


def test_text_without_batch_tokens_is_an_error(texts):
    with pytest.raises(ListError, match="needs batch_conf.batch_tokens"):
        loader([{"type": "txt", "paths": texts}], {"batch_conf": {"batch_type": "dynamic"}})


def test_every_line_of_a_source_of_several_files_is_read_once(write, tmp_path):
    for number in range(3):
        write(f"part.{number}.txt", ["abc"] * (number + 1))
    one = loader(
        [{"type": "txt", "paths": [str(tmp_path / "part.{0..1}.txt"), str(tmp_path / "part.2*")]}]
    )
    assert sorted(key for batch in one for key in batch.keys) == [
        f"part.{number}.txt:{line}" for number in range(3) for line in range(1, number + 2)
    ]


def test_an_input_cfg_of_nemo_with_text_is_opened(texts, tmp_path, make_lists):
    path = tmp_path / "input_cfg.yaml"
    raw = {"type": "nemo", "manifest_filepath": make_lists(5)["raw"], "weight": 0.5}
    path.write_text(
        json.dumps([raw, {"type": "txt", "paths": texts, "language": "en", "weight": 0.5}])
    )
    one = build_loader(str(path), "raw", FakeConfig(batch_conf=BATCH), TOKENIZER, training=True)
    assert one.corpus.quotas == [53, 52]
