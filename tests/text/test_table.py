import pytest

from wenet_uio.text.table import read_table


def test_keys_and_texts_are_read_in_order(tmp_path):
    path = tmp_path / "text"
    path.write_text("b 你 好 \n\na\thello\r\nc\n", encoding="utf-8")
    assert list(read_table(path).items()) == [("b", "你 好"), ("a", "hello"), ("c", "")]


def test_a_byte_order_mark_is_not_part_of_the_first_key(tmp_path):
    path = tmp_path / "text"
    path.write_text("a hello\nb \ufeffyou\n", encoding="utf-8-sig")
    assert read_table(path) == {"a": "hello", "b": "\ufeffyou"}


def test_a_repeated_key_is_reported_with_its_line(tmp_path):
    path = tmp_path / "text"
    path.write_text("a x\nb y\na z\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"text:3: utterance 'a' is there twice"):
        read_table(path)
