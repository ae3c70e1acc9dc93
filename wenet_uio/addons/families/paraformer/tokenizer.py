"""Splitter of the paraformer tokenizer: a dictionary of words and their pieces, single characters
for Chinese.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from wenet_uio.config.text import PartConf
from wenet_uio.text.bpe import split_ideographs
from wenet_uio.text.char import is_ideograph
from wenet_uio.text.symbols import BLANK, EOS, SOS
from wenet_uio.text.table import numbered_lines

GOES_ON = "@@"
"""End of a piece that is not the last one of its word."""

_LETTERS = re.compile(r"(?:[^\W\d_\u4e00-\u9fff]|')+")
_TIGHT = re.compile(r"[\u4e00-\u9fff0-9@]+")
"""Tokens with no space before them: ideographs and, as in WeNet, digits."""


def read_seg_dict(path: str | Path) -> dict[str, list[str]]:
    """Read a dictionary (lines `word piece piece ...`) as {word: pieces}.

    Raises:
        OSError: the file cannot be read.
        ValueError: a line has no piece; the message has file and line.
    """
    pieces_by_word: dict[str, list[str]] = {}
    for number, line in numbered_lines(path):
        if not line.strip():
            continue
        word, *pieces = line.split()
        if not pieces:
            raise ValueError(f"{path}:{number}: expected `word piece piece ...`, found {line!r}")
        pieces_by_word[word] = pieces

    return pieces_by_word


@dataclass(frozen=True)
class SegDictSplitter:
    """Cuts text into Chinese characters, and words into their pieces; a word outside of the
    dictionary is one token.

    Raises:
        OSError: there is no such dictionary.
        ValueError: a line of the dictionary has another form.
    """

    path: str

    exact_length = False

    def __call__(self, text: str) -> list[str]:
        """Cut a text into tokens."""
        tokens: list[str] = []
        for run in split_ideographs(text):
            if is_ideograph(run):
                tokens.append(run)
                continue
            for word in run.split():
                tokens.extend(self._pieces.get(word, [word]))

        return tokens

    def starts_word(self, previous: str, token: str) -> bool:
        """Tell whether `token` starts a new word; `previous` is the token, or the word so far,
        before it.
        """
        return not previous.endswith(GOES_ON)

    def join(self, tokens: Sequence[str]) -> str:
        """Return the text of the tokens: pieces are joined to words, with a space between a word of
        letters and another. A piece that ends with `@@` is not the last one of its word.
        """
        text = ""
        after_letters = in_word = False  # what the token before it is
        for token in tokens:
            if token in (SOS, EOS, BLANK):
                continue
            if after_letters and not in_word and not _TIGHT.fullmatch(token):
                text += " "

            piece = token.replace(GOES_ON, "")
            text += piece
            in_word = token.endswith(GOES_ON)
            after_letters = in_word or _LETTERS.fullmatch(piece) is not None

        return text.strip()

    def identity(self) -> bytes:
        """Return the content of the dictionary."""
        return Path(self.path).read_bytes()

    @cached_property
    def _pieces(self) -> dict[str, list[str]]:
        return read_seg_dict(self.path)


def build(conf: PartConf, non_lang_syms: tuple[str, ...]) -> SegDictSplitter:
    """Build the splitter of `tokenizer: paraformer`, which has no non-language symbols.

    Raises:
        ValueError: there is no path of a dictionary.
    """
    if not conf.seg_dict_path:
        raise ValueError(
            "tokenizer paraformer needs the path of a dictionary (tokenizer_conf.seg_dict_path)"
        )
    return SegDictSplitter(conf.seg_dict_path)
