"""Characters that nobody sees are found by name, and mended without touching any other text."""

from __future__ import annotations

import unicodedata

import pytest

from wenet_uio.text.characters import (
    DECOMPOSED,
    INVISIBLE,
    LOOK_ALIKE,
    clean,
    in_one_script,
    oddities,
    visible,
    without_mark,
)

ODD = [
    ("foo\u200bbar", "foobar", INVISIBLE, "U+200B ZERO WIDTH SPACE"),
    ("a\ufeffb", "ab", INVISIBLE, "U+FEFF ZERO WIDTH NO-BREAK SPACE"),
    ("co\u00adop", "coop", INVISIBLE, "U+00AD SOFT HYPHEN"),
    ("\u202bab\u202c", "ab", INVISIBLE, "U+202B RIGHT-TO-LEFT EMBEDDING, U+202C POP"),
    ("\u0645\u200f a", "\u0645 a", INVISIBLE, "U+200F RIGHT-TO-LEFT MARK"),
    ("\u2764\ufe0f", "\u2764", INVISIBLE, "U+FE0F VARIATION SELECTOR-16"),
    ("a\x00b\x7f", "ab", INVISIBLE, "U+0000 control character, U+007F control character"),
    ("\x1b[1;31mred\x1b[0m", "red", INVISIBLE, "U+001B control character"),
    ("a\u200cb", "ab", INVISIBLE, "U+200C ZERO WIDTH NON-JOINER"),
    ("cafe\u0301", "caf\u00e9", DECOMPOSED, "U+0065 LATIN SMALL LETTER E + U+0301 COMBINING"),
    ("\u1112\u1161\u11ab", "\ud55c", DECOMPOSED, "HANGUL CHOSEONG HIEUH + U+1161"),
    ("\u0958", "\u0915\u093c", DECOMPOSED, "U+0958 DEVANAGARI LETTER QA"),
    ("\u212b", "\u00c5", DECOMPOSED, "U+212B ANGSTROM SIGN"),
    ("s\u0430fe", "safe", LOOK_ALIKE, "s\u0430fe (U+0430 CYRILLIC SMALL LETTER A)"),
    ("c\u043a\u043e\u0440\u043e", "\u0441\u043a\u043e\u0440\u043e", LOOK_ALIKE, "SMALL LETTER C"),
    ("\u039cax", "Max", LOOK_ALIKE, "U+039C GREEK CAPITAL LETTER MU"),
    ("e\u0308\u0436", "\u0451\u0436", LOOK_ALIKE, "U+00EB LATIN SMALL LETTER E WITH DIAERESIS"),
]
PLAIN = [
    *(
        "",
        "plain text",
        "it's 5\u20ac \u201cquoted\u201d",
        "tab\tand\u00a0space\u3000",
        "\u4f60\u597d",
    ),
    "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",  # Persian: a non-joiner between letters
    "\u0928\u0d4d\u200d",  # Malayalam: a joiner at the end of a word
    "\u1780\u200b\u1781",  # Khmer: a zero-width space between words
    "3D-\u043f\u0435\u0447\u0430\u0442\u044c IT \u041e\u041a",  # words of one script each
    "sms\u043a\u0430 \u0394t 5\u00b5m",  # letters without a twin
    "\ud55c\uad6d\uc5b4 caf\u00e9 \u0439",
]


@pytest.mark.parametrize(("text", "mended", "kind", "names"), ODD)
def test_an_odd_character_is_named_and_mended(text, mended, kind, names):
    named = {oddity.kind: oddity.names for oddity in oddities(text)}
    assert names in named[kind]
    assert clean(text) == mended
    assert oddities(mended) == []


@pytest.mark.parametrize("text", PLAIN)
def test_a_text_without_odd_characters_is_unchanged(text):
    assert clean(text) == text
    assert oddities(text) == []


@pytest.mark.parametrize("needed", ["\u0645\u200c\u0645", "\u1780\u200b\u1781"])
def test_of_a_run_of_needed_characters_one_stays(needed):
    run = needed[0] + needed[1] * 3 + needed[2]
    assert clean(run) == needed
    assert [oddity.kind for oddity in oddities(run)] == [INVISIBLE]


def test_a_text_with_all_kinds_is_named_by_each():
    text = "\u200bcafe\u0301 s\u0430fe"
    assert [oddity.kind for oddity in oddities(text)] == [INVISIBLE, DECOMPOSED, LOOK_ALIKE]
    assert clean(text) == "caf\u00e9 safe"


def test_a_word_that_either_script_can_write_gets_that_of_its_text_or_stays():
    either = "\u0441o"  # Cyrillic es, Latin o
    assert in_one_script(f"{either} on") == "co on"
    assert in_one_script(f"{either} \u043d\u0435") == "\u0441\u043e \u043d\u0435"
    assert in_one_script(either) == either


def test_cleaning_any_text_twice_changes_nothing_more():
    letters = (
        "ae\u0301\u200b\u200c\u200d\u0430\u0435\u0308\u0441c\u03bfx\u0645\u1780 \u00ad\u1161\u1112"
    )
    pairs = [f"{a}{b}{c}" for a in letters for b in letters for c in letters]
    for text in pairs:
        mended = clean(text)
        assert clean(mended) == mended
        assert unicodedata.is_normalized("NFC", mended)
        assert (mended != text) == bool(oddities(text)), ascii(text)


def test_only_the_mark_at_the_start_of_a_text_is_an_encoding_mark():
    assert without_mark("\ufeffa\ufeff") == "a\ufeff"
    assert visible("a\ufeffb\u200b") == "a<U+FEFF>b<U+200B>"


def test_a_text_with_many_odd_characters_names_a_few():
    (oddity,) = oddities("".join(chr(0x2060 + number) for number in range(7)))
    assert oddity.names.endswith("and 2 more")
