"""Sub-word regularisation: the draws, their probabilities, and what they do not change."""

import pickle
import random
from collections import Counter
from random import Random

import pytest

from tests.support import preloaded
from wenet_uio.config import parse_config
from wenet_uio.text.bpe import BpeSplitter, SentencepieceSplitter
from wenet_uio.text.sampling import Sampling
from wenet_uio.text.spm import SentencepieceOptions, train_sentencepiece
from wenet_uio.text.tokenizer import build_tokenizer

WORDS = ["HELLO", "WORLD", "GO", "LEFT", "RIGHT", "HELL", "WORD", "LEFTOVER", "OVER", "RIGHTLY"]
DRAW = """
import sys
from random import Random
from wenet_uio.text.bpe import SentencepieceSplitter
from wenet_uio.text.sampling import Sampling
splitter = SentencepieceSplitter(sys.argv[1], (), Sampling(0.3, 8))
for seed in range(20):
    print(splitter.sampled("HELLO LEFTOVER WORLD", Random(f"pieces {seed}")))
"""


@pytest.fixture(scope="module", params=["unigram", "bpe"])
def model(request, tmp_path_factory):
    prefix = tmp_path_factory.mktemp("spm") / request.param
    chosen = random.Random(0)
    texts = [" ".join(chosen.choices(WORDS, k=4)) for _ in range(200)]
    train_sentencepiece(
        texts, prefix, SentencepieceOptions(vocab_size=26, model_type=request.param)
    )
    return f"{prefix}.model"


def drawn(splitter, text, number=60):
    return [splitter.sampled(text, Random(f"pieces {seed}")) for seed in range(number)]


def test_the_draws_of_a_seed_are_equal_in_every_process_and_order(model, tmp_path):
    (tmp_path / "draw.py").write_text(DRAW)
    runs = [preloaded.run([tmp_path / "draw.py", model]) for _ in range(2)]
    own = drawn(SentencepieceSplitter(model, (), Sampling(0.3, 8)), "HELLO LEFTOVER WORLD", 20)
    assert all(run.stdout.splitlines() == [str(each) for each in own] for run in runs), runs[
        0
    ].stderr
    splitter = pickle.loads(pickle.dumps(SentencepieceSplitter(model, (), Sampling(0.3, 8))))
    assert [
        splitter.sampled("HELLO LEFTOVER WORLD", Random(f"pieces {seed}"))
        for seed in range(19, -1, -1)
    ] == own[::-1]


def test_draws_differ_and_join_to_the_same_text(model):
    for splitter in (
        SentencepieceSplitter(model, (), Sampling(0.3, 8)),
        BpeSplitter(model, (), Sampling(0.3, 8)),
    ):
        found = drawn(splitter, "HELLO LEFTOVER WORLD")
        assert len({tuple(each) for each in found}) > 1
        assert {splitter.join(each) for each in found} == {"HELLO LEFTOVER WORLD"}
        assert all(
            token in SentencepieceSplitter(model).symbols for each in found for token in each
        )


def test_the_best_pieces_are_those_of_the_model_whatever_the_sampling(model):
    plain, sampling = (
        SentencepieceSplitter(model),
        SentencepieceSplitter(model, (), Sampling(0.3, 8)),
    )
    assert sampling("HELLO LEFTOVER") == plain("HELLO LEFTOVER")
    assert sampling.identity() == plain.identity()


def test_alpha_at_its_limit_gives_the_best_pieces(tmp_path, model):
    alpha = 0.0 if model.endswith("bpe.model") else 1e6
    splitter = SentencepieceSplitter(model, (), Sampling(alpha, 8))
    for word in [*WORDS, "HELLORIGHT", "OO", " HELLO  GO "]:
        assert splitter.sampled(word, Random(1)) == splitter(word)


def test_characters_without_a_piece_and_empty_texts_are_as_without_sampling(model):
    splitter = SentencepieceSplitter(model, (), Sampling(0.0 if "bpe.model" in model else 1e6, 8))
    for text in ("", "GO ?? GO", "?"):
        assert splitter.sampled(text, Random(1)) == splitter(text)


def test_symbols_and_ideographs_stay_whole(model):
    splitter = BpeSplitter(model, ("{NOISE}",), Sampling(0.9, 8))
    for tokens in drawn(splitter, "go {noise} 你好 left", 10):
        assert [token for token in tokens if token in ("{NOISE}", "你", "好")] == [
            "{NOISE}",
            "你",
            "好",
        ]


def test_segmentations_of_a_unigram_model_have_their_probabilities(model):
    if model.endswith("bpe.model"):
        pytest.skip("a BPE model has no probabilities")
    splitter = SentencepieceSplitter(model, (), Sampling(0.5, 2))
    best, other = splitter._model.nbest_encode_as_proto("LEFTOVER", 2).nbests
    odds = 2.718281828459045 ** (0.5 * (other.score - best.score))
    counts = Counter(map(tuple, drawn(splitter, "LEFTOVER", 4000)))
    assert len(counts) == 2
    assert counts[tuple(piece.piece for piece in other.pieces)] / 4000 == pytest.approx(
        odds / (1 + odds), abs=0.03
    )


def config(model, **conf):
    return parse_config(
        {"tokenizer": "sentencepiece", "tokenizer_conf": {"model_path": model, **conf}},
        "train.yaml",
    )


def test_a_tokenizer_samples_only_with_the_key_and_a_generator(model):
    tokenizer = build_tokenizer(config(model, sample_alpha=0.3))
    plain = build_tokenizer(config(model))
    assert tokenizer.samples
    assert not plain.samples
    text = "HELLO LEFTOVER WORLD"
    assert tokenizer.tokenize(text) == plain.tokenize(text) == plain.tokenize(text, Random(1))
    assert len({tuple(tokenizer.tokenize(text, Random(seed))[1]) for seed in range(30)}) > 1
    assert tokenizer.digest == plain.digest


def test_an_aggregate_samples_the_languages_that_have_the_key(model):
    languages = {"en": {"model_path": model, "sample_alpha": 0.3}, "de": {"model_path": model}}
    tokenizer = build_tokenizer(
        parse_config(
            {"tokenizer": "aggregate", "tokenizer_conf": {"languages": languages}}, "train.yaml"
        )
    )
    assert tokenizer.samples
    for language, several in (("en", True), ("de", False)):
        own = tokenizer.of({"lang": language})
        found = {tuple(own.tokenize("HELLO LEFTOVER", Random(seed))[1]) for seed in range(30)}
        assert (len(found) > 1) == several


def test_sampling_of_another_tokenizer_is_refused(model, tmp_path):
    (tmp_path / "units.txt").write_text("<unk> 0\na 1\n")
    conf = {"symbol_table_path": str(tmp_path / "units.txt"), "sample_alpha": 0.1}
    with pytest.raises(
        ValueError, match="tokenizer char has no sampling; bpe and sentencepiece have"
    ):
        build_tokenizer(parse_config({"tokenizer": "char", "tokenizer_conf": conf}, "train.yaml"))
    languages = {"en": {"model_path": model}}
    with pytest.raises(ValueError, match="in each section of languages"):
        build_tokenizer(
            parse_config(
                {
                    "tokenizer": "aggregate",
                    "tokenizer_conf": {"languages": languages, "sample_alpha": 0.1},
                },
                "train.yaml",
            )
        )
    if model.endswith("bpe.model"):
        with pytest.raises(ValueError, match=r"sample_alpha 1\.5: expected a probability"):
            build_tokenizer(config(model, sample_alpha=1.5)).tokenize("GO", Random(1))
