import pytest

from wenet_uio.text.normalize import english, english_of_calls, mandarin


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("而 对 楼市 成交  抑制", "而对楼市成交抑制"),
        ("打开 t 恤 ok 吗", "打开T恤OK吗"),
        ("我 在 new york 的 家", "我在NEW YORK的家"),
        ("\uff2f\uff2b\u3000了", "OK了"),
        ("要及时'关停并转'", "要及时关停并转"),
        ("帮我放一首歌Let\u2019s go", "帮我放一首歌LET'S GO"),
        ("他说（你好），t-恤？", "他说你好T恤"),
        ("<NOISE> 好 的", "<NOISE>好的"),
        ("Beyonce\u0301\u2019s 歌 l'\u00e9t\u00e9'", "BEYONC\u00c9'S歌L'\u00c9T\u00c9"),
        ("", ""),
    ],
)
def test_mandarin_has_no_spaces_except_between_other_words(text, expected):
    assert mandarin(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I'm ready, Mr. O\u2019Neill!", "I'M READY MR O'NEILL"),
        ("a well-known t._v. show", "A WELL KNOWN T V SHOW"),
        ("the t._v.'s off", "THE T V'S OFF"),
        ("<NOISE> yes <laughter>", "<NOISE> YES <LAUGHTER>"),
        ("'tis the dogs' ' bowl", "'TIS THE DOGS' BOWL"),
        ("caf\u00e9 24", "CAF\u00c9 24"),
        ("...", ""),
    ],
)
def test_english_has_upper_case_words_with_apostrophes_and_marks(text, expected):
    assert english(text) == expected


@pytest.mark.parametrize("invisible", ["\u00ad", "\u200b", "\ufeff", "\u2060", "\u200e"])
def test_invisible_characters_part_no_words(invisible):
    assert (
        english(f"{invisible}co{invisible}operate{invisible} it{invisible}'s") == "COOPERATE IT'S"
    )
    assert mandarin(f"{invisible}\u4f60{invisible}\u597d o{invisible}k") == "\u4f60\u597dOK"
    assert english_of_calls(f"uh{invisible}-huh") == "UHHUH"


def test_backchannels_of_calls_become_one_word_and_hesitations_stay():
    assert english_of_calls("uh-huh um-hum, uh i- i'm mm-hm") == "UHHUH UMHUM UH I I'M MMHM"
