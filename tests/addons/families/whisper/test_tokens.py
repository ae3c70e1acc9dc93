"""The prompt of Whisper has the tokens that OpenAI and WeNet use."""

from __future__ import annotations

import pytest

from wenet_uio.addons.families.whisper.tokens import (
    LANGUAGES,
    NAMES,
    WhisperTokens,
    requested_prompt,
    special_tokens,
    text_language,
)

SMALL = {
    "eot": 40,
    "sot": 41,
    "translate": 44,
    "transcribe": 45,
    "sot_prev": 46,
    "no_speech": 47,
    "no_timestamps": 48,
    "timestamp_begin": 49,
}


def test_the_ids_of_large_v3_are_those_of_wenets_config() -> None:
    assert special_tokens(50257, 100) == {
        "eot": 50257,
        "sot": 50258,
        "translate": 50359,
        "transcribe": 50360,
        "sot_prev": 50362,
        "no_speech": 50363,
        "no_timestamps": 50364,
        "timestamp_begin": 50365,
    }


def test_there_are_100_languages_in_the_order_of_the_whisper_package() -> None:
    assert len(LANGUAGES) == len(set(LANGUAGES)) == 100
    assert LANGUAGES[:8] == ("en", "zh", "de", "es", "ru", "ko", "fr", "ja")
    assert LANGUAGES[-1] == "yue"


def test_the_prompt_has_language_task_and_no_timestamps() -> None:
    tokens = WhisperTokens(SMALL, 2)
    assert tokens.prompt("en") == (41, 42, 45, 48)
    assert tokens.prompt("zh", "translate") == (41, 43, 44, 48)
    assert tokens.prompt("zh", timestamps=True) == (41, 43, 45)


def test_the_prompt_of_an_english_model_has_neither_language_nor_task() -> None:
    tokens = WhisperTokens(special_tokens(50256, 99), 99, multilingual=False)
    assert tokens.prompt("en") == (50257, 50362)
    assert tokens.prompt("en", timestamps=True) == (50257,)
    with pytest.raises(ValueError, match=r"^language 'de': this model knows en$"):
        tokens.prompt("de")
    with pytest.raises(
        ValueError, match=r"^task 'translate': this model knows transcribe \(English only\)$"
    ):
        tokens.prompt("en", "translate")


@pytest.mark.parametrize(
    ("language", "task", "message"),
    [
        ("de", "transcribe", "language 'de': this model knows en, zh"),
        ("en", "sing", "task 'sing': this model knows"),
    ],
)
def test_what_the_model_does_not_know_is_an_error(language: str, task: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        WhisperTokens(SMALL, 2).prompt(language, task)


@pytest.mark.parametrize("name", NAMES)
def test_every_special_token_is_needed(name: str) -> None:
    with pytest.raises(ValueError, match=f"special_tokens: model whisper needs {name}; take "):
        WhisperTokens({key: value for key, value in SMALL.items() if key != name}, 2)


@pytest.mark.parametrize("count", [0, 101])
def test_the_number_of_languages_is_checked(count: int) -> None:
    with pytest.raises(ValueError, match=rf"num_languages {count}: expected 1 to 100"):
        WhisperTokens(SMALL, count)


@pytest.mark.parametrize(
    ("text", "languages", "expected"),
    [
        ("four", ("zh", "en"), "en"),
        ("打开 wifi", ("zh", "en"), "zh"),
        ("", ("ja", "zh"), "ja"),
        ("打", ("en",), "en"),
        ("x", ("ja",), "ja"),
    ],
)
def test_the_language_of_a_text_is_that_of_the_corpus_or_found_between_chinese_and_english(
    text: str, languages: tuple[str, ...], expected: str
) -> None:
    assert text_language(text, languages) == expected


def test_other_languages_must_be_named_by_the_data() -> None:
    with pytest.raises(
        ValueError, match=r"no language, and en, de are possible: add the field `lang`"
    ):
        text_language("x", ("en", "de"))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, (None, "transcribe")),
        ({"lang": "de"}, ("de", "transcribe")),
        # A wrong `lang` is an error, not passed over
        (
            {"lang": "xx", "source_lang": "de"},
            ("xx", "transcribe"),
        ),
        ({"source_lang": "de", "target_lang": "de", "task": "asr"}, ("de", "transcribe")),
        ({"source_lang": "de", "target_lang": "en"}, ("de", "translate")),
        (
            {"source_lang": "de", "target_lang": "en", "task": "s2t_translation", "pnc": "no"},
            ("de", "translate"),
        ),
        ({"source_lang": "de", "target_lang": "en", "task": "transcribe"}, ("de", "transcribe")),
        ({"language": "en"}, ("en", "transcribe")),
        ({"language": "zh-CN"}, (None, "transcribe")),
        ({"source_lang": None, "language": ""}, (None, "transcribe")),
    ],
)
def test_the_slots_of_nemos_prompts_and_kaldis_language_are_read(
    fields: dict[str, str | None], expected: tuple[str | None, str]
) -> None:
    assert requested_prompt(fields, LANGUAGES) == expected
