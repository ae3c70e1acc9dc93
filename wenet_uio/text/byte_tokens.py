"""Name tokens that are bytes instead of characters, as in the vocabularies of OpenAI.

A token may be a part of a character. Its name is readable text if it can be, with ▁ for a space,
and otherwise has each byte as <0xE4>, so that different tokens have different names, and files of
tokens have one on each line.
"""

from __future__ import annotations

import re

from wenet_uio.text.char import is_ideograph
from wenet_uio.text.symbols import WORD_START

RESERVED = (WORD_START, "<0x", "<|")
"""What only names have: the sign of a space, escaped bytes, and special tokens such as <|en|>."""
_FIRST_BYTES = (b"\xe4", b"\xe5", b"\xe6", b"\xe7", b"\xe8", b"\xe9")
"""First bytes of ideographs in UTF-8."""
_ESCAPE = re.compile(r"<0x([0-9A-F]{2})?>")


def name_of(token: bytes) -> str:
    """Return the name of a token; `bytes_of` is the inverse."""
    try:
        text = token.decode()
    except UnicodeDecodeError:
        text = ""

    if text.isprintable() and text and not any(mark in text for mark in RESERVED):
        return text.replace(" ", WORD_START)

    return "".join(f"<0x{byte:02X}>" for byte in token) or "<0x>"


def bytes_of(name: str) -> bytes:
    """Return the bytes of a name, or of several names in a row."""
    parts = _ESCAPE.split(name)  # text, digits, text, ..., text
    texts = [part.replace(WORD_START, " ").encode() for part in parts[::2]]
    escaped = [bytes.fromhex(digits or "") for digits in parts[1::2]]
    return b"".join(text + byte for text, byte in zip(texts, [*escaped, b""], strict=True))


def starts_word(previous: bytes, token: bytes) -> bool:
    """Tell whether `token` starts a word after the token `previous`.

    It does after a space, and before and after an ideograph.
    """
    if 0x80 <= token[0] < 0xC0:  # the token continues a character
        return False
    if token[:1].isspace():
        return True
    # A character has up to 4 bytes, and an ideograph has 3.
    return _has_ideograph(token[:4], 0) or _has_ideograph(previous[-3:], -1)


def _has_ideograph(token: bytes, index: int) -> bool:
    """Tell whether the first character (`index` 0) or the last (-1) is an ideograph.

    A token may end within a character: the first bytes of an ideograph count as one.
    """
    text = token.decode(errors="ignore")
    if text:
        return is_ideograph(text[index])
    return token[:1] in _FIRST_BYTES


def byte_of_char() -> dict[str, int]:
    """Return {character: byte} of GPT-2's files.

    Printable bytes stand for themselves, the others are from U+0100 on.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    not_printable = [byte for byte in range(256) if byte not in printable]
    return {
        **{chr(byte): byte for byte in printable},
        **{chr(256 + number): byte for number, byte in enumerate(not_printable)},
    }
