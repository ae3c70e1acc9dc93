from __future__ import annotations

import pytest

from wenet_uio.prepare.encodings import decode_file

ROWS = {
    "cp1252": ["Das ist schön\nWir müssen über die Straße\n", "C'est déjà l'été\n", "grün\n"],
    "cp1250": ["Zażółć gęślą jaźń\n", "Příliš žluťoučký kůň\n"],
    "cp1251": ["Привет мир\nкак дела сегодня\n"],
    "cp1253": ["Καλημέρα κόσμε\n"],
    "gb18030": ["音频,文本\na.wav,你好\nb.wav,谢谢\n", "今天天气很好\n我们去公园\n"],
    "big5": ["今天天氣很好\n我們去公園玩\n"],
    "cp932": ["今日はいい天気です\n公園に行きます\n"],
    "cp949": ["오늘 날씨가 좋다\n공원에 가자\n"],
    "mac_roman": ["Das ist schön\nWir müssen über die Straße\n"],
}


@pytest.mark.parametrize(
    ("encoding", "text"), [(encoding, text) for encoding, texts in ROWS.items() for text in texts]
)
def test_a_code_page_is_guessed_by_the_letters_that_it_gives(tmp_path, encoding, text):
    path = tmp_path / "a.csv"
    path.write_bytes(text.encode(encoding))
    assert decode_file(path).text == text
    assert decode_file(path).guessed is not None
