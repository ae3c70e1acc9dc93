"""Names of tokens that are bytes."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wenet_uio.text.byte_tokens import byte_of_char, bytes_of, name_of, starts_word


@pytest.mark.parametrize(
    ("token", "name"),
    [
        (b" the", "▁the"),
        ("你好".encode(), "你好"),
        (b"\xe4\xbd", "<0xE4><0xBD>"),
        (b"\n", "<0x0A>"),
        ("▁".encode(), "<0xE2><0x96><0x81>"),
        (b"", "<0x>"),
    ],
)
def test_a_name_is_readable_if_it_can_be(token: bytes, name: str) -> None:
    assert name_of(token) == name
    assert bytes_of(name) == token


@given(st.one_of(st.binary(max_size=5), st.text("<0xE4>|▁ 你en", max_size=9).map(str.encode)))
def test_every_token_is_found_again_from_its_name(token: bytes) -> None:
    name = name_of(token)
    assert bytes_of(name) == token
    assert name == name.strip()
    assert len(name.split()) == 1
    assert not name.startswith("<|")


@given(st.lists(st.binary(min_size=1, max_size=5)))
def test_names_in_a_row_are_the_bytes_in_a_row(tokens: list[bytes]) -> None:
    assert bytes_of("".join(map(name_of, tokens))) == b"".join(tokens)


def test_the_alphabet_of_gpt2_has_a_character_for_each_byte() -> None:
    alphabet = byte_of_char()
    assert sorted(alphabet.values()) == list(range(256))
    assert (alphabet["Ġ"], alphabet["Ċ"], alphabet["a"], alphabet["Ń"]) == (0x20, 0x0A, 0x61, 0xAD)


@pytest.mark.parametrize(
    ("tokens", "starts"),
    [
        ([b"he", b"llo", b" wor", b"ld"], [False, True, False]),
        (["你".encode(), "好".encode(), b"a", b"b"], [True, True, False]),
        ([b"\xe4\xbd", b"\xa0", b"\xe5\xa5", b"\xbd"], [False, True, False]),
        ([b"caf", b"\xc3", b"\xa9"], [False, False]),
        ([b"a", b"\xe2\x98\x83"], [False]),
    ],
)
def test_words_start_after_spaces_and_at_ideographs(
    tokens: list[bytes], starts: list[bool]
) -> None:
    assert [starts_word(*pair) for pair in pairwise(tokens)] == starts
