from wenet_uio.text.char import CharSplitter


def test_each_character_is_a_token_and_a_space_becomes_a_sign():
    splitter = CharSplitter()
    assert splitter(" 你好 ab\n") == ["你", "好", "▁", "a", "b"]
    assert splitter.join(["你", "好", "▁", "a", "b"]) == "你好 ab"


def test_length_is_exact_for_plain_characters_only():
    text = " go  left　now "
    assert CharSplitter().exact_length
    assert len(CharSplitter()(text)) == len(text.strip())
    assert not CharSplitter(split_with_space=True).exact_length
    assert not CharSplitter(("{NOISE}",)).exact_length


def test_non_language_symbols_stay_whole_in_any_case():
    splitter = CharSplitter(("{NOISE}", "<A>", "<AB>"))
    assert splitter("x {noise} y<AB>[z]") == ["x", "{NOISE}", "y", "<AB>", "[", "z", "]"]


def test_words_between_spaces_are_tokens_with_split_with_space():
    splitter = CharSplitter(("{NOISE}",), split_with_space=True)
    assert splitter("sil  b r{NOISE} ih") == ["sil", "b", "r", "{NOISE}", "ih"]
    assert splitter.join(["b", "r"]) == "b r"


def test_an_empty_text_has_no_tokens():
    assert CharSplitter()("  ") == []
    assert CharSplitter(("{NOISE}",))("") == []
