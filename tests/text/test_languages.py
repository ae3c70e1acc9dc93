from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wenet_uio.text.languages import normaliser


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("german", "„Das heißt: GROẞE Straße!“ – 5,50 €", "das heißt große straße 5 50"),
        ("german", "Wie geht’s, 'Hans'?", "wie geht's hans"),
        ("german", "<NOISE>Öl-Mühle<unk>", "<NOISE> öl mühle <unk>"),
        ("french", "L’Été « c'est » déjà là…", "l'été c'est déjà là"),
        ("turkish", "ISPARTA'da İYİ Günler", "ısparta'da iyi günler"),
        ("spanish", "¿Qué? ¡Sí!", "qué sí"),
        ("greek", "Ο ΟΔΥΣΣΕΑΣ", "ο οδυσσεας"),
        ("russian", "Всё-таки, ёлка", "всё таки ёлка"),
        ("arabic", "مرحبـــا، بك؟", "مرحبا بك"),
        ("hindi", "नमस्ते, दुनिया।", "नमस्ते दुनिया"),
        ("thai", "สวัสดี ครับ", "สวัสดี ครับ"),
        ("vietnamese", "Tie\u0302\u0301ng Việt", "tiếng việt"),
        ("korean", "안녕, 세상!", "안녕 세상"),
        ("japanese", "東京 へ、行く ＡＢＣ。ラーメン", "東京へ行くabcラーメン"),
        ("cantonese", "你 好 嗎?", "你好嗎"),
    ],
)
def test_each_language_keeps_its_letters_and_loses_punctuation(language, text, expected):
    assert normaliser(language)(text) == expected


@pytest.mark.parametrize("language", ["german", "turkish", "arabic", "japanese", "thai"])
@settings(max_examples=50)
@given(text=st.text(max_size=40))
def test_normalised_texts_have_words_only_and_stay_as_they_are(language, text):
    once = normaliser(language)(text.replace("<", ""))
    assert normaliser(language)(once) == once
    assert once == " ".join(once.split())
    assert {unicodedata.category(letter)[0] for letter in once} <= set("LMNZP")
    assert not set(once) & set(',.;:!?-_"()„“')
