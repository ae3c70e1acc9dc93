from __future__ import annotations

import pytest

from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.prepare.encodings import decode_file


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"]
)
@pytest.mark.parametrize("text", ["a.wav,schön\nb.wav,für\n", "1.wav\t你好\n2.wav\t谢谢\n", ""])
def test_unicode_is_no_guess_with_or_without_a_mark(tmp_path, encoding, text):
    path = tmp_path / "a.csv"
    path.write_bytes(text.encode(encoding))
    assert decode_file(path) == (text, None)


@pytest.mark.parametrize("content", [b"a\0b\n", b"PK\x03\x04" + b"\0" * 9])
def test_what_is_no_text_is_refused(tmp_path, content):
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(ListError, match=r"a.csv:1: (holds NUL characters|an archive)"):
        decode_file(tmp_path / "a.csv")
