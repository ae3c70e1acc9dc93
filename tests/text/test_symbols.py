import pytest

from wenet_uio.text.symbols import read_non_lang_syms, read_symbols, write_symbols


def test_written_symbols_are_read_back_sorted_after_the_fixed_symbols(tmp_path):
    path = tmp_path / "units.txt"
    written = write_symbols(path, ["b", "a", "▁", "b", "<unk>"])
    assert path.read_text(encoding="utf-8") == "<blank> 0\n<unk> 1\n<sos/eos> 2\na 3\nb 4\n▁ 5\n"
    assert read_symbols(path) == written


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a 0\nb\n", ":2: expected `symbol id`, found 'b'"),
        ("a 0\na 1\n", ":2: symbol 'a' is already on line 1"),
        ("a 0\n\nb 0\n", ":3: id 0 is already on line 1"),
        ("a 0\nb -1\n", ":2: expected"),
        ("\n", "the file has no units"),
    ],
)
def test_a_faulty_units_file_is_reported_with_its_line(tmp_path, content, message):
    path = tmp_path / "units.txt"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        read_symbols(path)


def test_bytes_that_are_not_utf8_are_reported_with_their_line(tmp_path):
    path = tmp_path / "units.txt"
    path.write_bytes("a 0\n你 1\n".encode("gbk"))
    with pytest.raises(ValueError, match=r"units\.txt:2: not UTF-8"):
        read_symbols(path)


def test_a_space_of_full_width_can_be_a_symbol(tmp_path):
    path = tmp_path / "units.txt"
    path.write_text("\u3000 0\n<sos/eos>\t1\r\n", encoding="utf-8")
    assert read_symbols(path) == {"\u3000": 0, "<sos/eos>": 1}


def test_a_non_language_symbol_with_a_space_is_refused(tmp_path):
    path = tmp_path / "syms.txt"
    path.write_text("{NOISE}\n\n<SPOKEN NOISE>\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"syms\.txt:3"):
        read_non_lang_syms(path)
