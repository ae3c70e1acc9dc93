import pytest

from wenet_uio.config import ConfigError, parse_config
from wenet_uio.search.context_graph import tokenize_phrases
from wenet_uio.text.aggregate import AggregateTokenizer, UnknownLanguageError
from wenet_uio.text.spm import SentencepieceOptions, train_sentencepiece
from wenet_uio.text.tokenizer import build_tokenizer

ENGLISH = ["hello world", "love and words", "held old wood", "we do well"]
CHINESE = {"<blank>": 0, "<unk>": 1, "<sos/eos>": 2, "你": 3, "好": 4, "▁": 5}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("aggregate")
    train_sentencepiece(ENGLISH * 5, folder / "en", SentencepieceOptions(vocab_size=22))
    (folder / "zh.txt").write_text(
        "".join(f"{name} {unit}\n" for name, unit in CHINESE.items()), encoding="utf-8"
    )
    return {
        "en": {"tokenizer": "sentencepiece", "model_path": str(folder / "en.model")},
        "zh": {"tokenizer": "char", "symbol_table_path": str(folder / "zh.txt")},
    }


def aggregate(languages, **keys) -> AggregateTokenizer:
    conf = {"languages": languages, **keys}
    tokenizer = build_tokenizer(
        parse_config({"tokenizer": "aggregate", "tokenizer_conf": conf}, "test")
    )
    assert isinstance(tokenizer, AggregateTokenizer)
    return tokenizer


def test_units_are_the_sum_of_all_languages_then_blank_and_sos_eos(files):
    tokenizer = aggregate(files)
    english = build_tokenizer(
        parse_config({"tokenizer": "sentencepiece", "tokenizer_conf": plain(files["en"])}, "test")
    )
    assert tokenizer.vocab_size == english.vocab_size + len(CHINESE) + 2
    assert tokenizer.symbols["<blank>"] == tokenizer.vocab_size - 2
    assert tokenizer.symbols["<sos/eos>"] == tokenizer.vocab_size - 1
    assert tokenizer.of({"lang": "en"}).tokenize("hello")[1] == english.tokenize("hello")[1]
    assert tokenizer.of({"lang": "zh"}).tokenize("你好")[1] == [
        english.vocab_size + 3,
        english.vocab_size + 4,
    ]


def plain(part):
    return {key: value for key, value in part.items() if key != "tokenizer"}


def test_ids_become_the_text_again_also_where_languages_mix(files):
    tokenizer = aggregate(files)
    english, chinese = tokenizer.of({"lang": "en"}), tokenizer.of({"lang": "zh"})
    hello, ni_hao = english.tokenize("hello world")[1], chinese.tokenize("你好")[1]
    assert tokenizer.detokenize(hello) == english.detokenize(hello) == "hello world"
    assert tokenizer.detokenize(ni_hao) == "你好"
    assert tokenizer.detokenize([*ni_hao, *hello]) == "你好 hello world"
    assert tokenizer.detokenize([*hello, *ni_hao]) == "hello world你好"
    assert [word for word, _, _ in tokenizer.words([*hello, *ni_hao])] == [
        "hello",
        "world",
        "你",
        "好",
    ]
    assert tokenizer.detokenize([]) == ""
    # <sos/eos> has no text
    assert tokenizer.detokenize([tokenizer.vocab_size - 1, *ni_hao]) == "你好"


def test_languages_that_share_a_file_have_ids_of_their_own(files):
    tokenizer = aggregate({"gb": files["en"], "us": files["en"]})
    first, second = (tokenizer.of({"lang": each}).tokenize("hello")[1] for each in ("gb", "us"))
    assert not set(first) & set(second)
    assert tokenizer.detokenize(first) == tokenizer.detokenize(second) == "hello"
    assert tokenizer.detokenize([*first, *second]) == "hello hello"


def test_the_language_is_that_of_lang_field_then_that_of_nemos_and_kaldis_names(files):
    tokenizer = aggregate(files, lang_field="spoken")
    first = [tokenizer.symbols[f"⟨{each}⟩{token}"] for each, token in (("en", "▁we"), ("zh", "你"))]
    for fields in (
        {"spoken": "zh", "language": "en"},
        {"target_language": "zh"},
        {"target_lang": "zh", "source_lang": "en"},
        {"language": "zh", "lang": "en"},
    ):
        assert tokenizer.of(fields).tokenize("你")[1] == [first[1]]
    pair = {"source_language": "en", "target_language": "zh"}
    assert tokenizer.of(pair, "source").tokenize("we")[1] == [first[0]]
    assert tokenizer.of(pair).tokenize("你")[1] == [first[1]]
    assert tokenizer.with_tags({"spoken": "zh"}).of({"spoken": "en"}).tokenize("你")[1] == [
        first[1]
    ]
    digests = {
        each.digest for each in (tokenizer, tokenizer.with_tags({"spoken": "zh"}), aggregate(files))
    }
    assert len(digests) == 3


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {},
            "none of the fields lang, target_language, target_lang, language says the language; "
            "known: en, zh",
        ),
        ({"lang": None, "language": "fr"}, "language 'fr' has no tokenizer; known: en, zh"),
    ],
)
def test_a_text_without_a_known_language_is_refused(files, fields, said):
    tokenizer = aggregate(files)
    with pytest.raises(UnknownLanguageError, match=said):
        tokenizer.of(fields)
    with pytest.raises(UnknownLanguageError, match="language of 'hello' is not stated"):
        tokenizer.tokenize("hello")


def test_an_unknown_token_becomes_the_unk_of_its_language(files):
    tokenizer = aggregate(files)
    tokens, ids = tokenizer.of({"lang": "zh"}).tokenize("你x")
    assert tokens == ["⟨zh⟩你", "⟨zh⟩x"]
    assert ids == [tokenizer.symbols["⟨zh⟩你"], tokenizer.symbols["⟨zh⟩<unk>"]]


def test_a_context_phrase_is_spelled_in_every_language_that_has_its_units(files):
    tokenizer = aggregate(files)
    phrases, _ = tokenize_phrases(["你好"], tokenizer)
    assert [tokenizer.detokenize(phrase.tokens) for phrase in phrases] == ["你好"]
    phrases, _ = tokenize_phrases(["hello"], tokenizer)
    assert "hello" in [tokenizer.detokenize(phrase.tokens) for phrase in phrases]


@pytest.mark.parametrize(
    ("conf", "said"),
    [
        (None, "tokenizer aggregate needs tokenizer_conf.languages, such as {en: "),
        ({}, "languages is empty: write `en: {model_path: en.model}` for each language"),
        (
            {"en": {"model_pth": "x"}},
            "languages.en.model_pth: unknown key; did you mean 'model_path'?",
        ),
        ({"en/us": {"model_path": "x"}}, "String should match pattern"),
        (
            {"en": {"tokenizer": "whisper"}},
            "expected 'char', 'bpe', 'huggingface' or 'sentencepiece'",
        ),
        (
            {"en": {}},
            "tokenizer_conf.languages.en: tokenizer_conf.model_path is missing: the path of a "
            "sentencepiece",
        ),
    ],
)
def test_a_section_that_cannot_be_used_is_answered_in_one_line(conf, said):
    with pytest.raises((ConfigError, ValueError)) as error:
        aggregate(conf)
    assert said in str(error.value)
