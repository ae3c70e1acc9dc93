"""Split text with a tokenizer.json, as most models of Hugging Face have one.

The package tokenizers reads the file; nothing is loaded from the network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from wenet_uio.base.imports import need_extra
from wenet_uio.text.byte_tokens import byte_of_char, starts_word
from wenet_uio.text.char import is_ideograph, split_symbols
from wenet_uio.text.labels import OwnUnits
from wenet_uio.text.symbols import WORD_START

if TYPE_CHECKING:
    from tokenizers import Tokenizer

FILE = "tokenizer.json"
UNKNOWN_PIECE = "[UNK]"
"""Word piece of words that have no pieces."""
SPECIAL_PIECES = (UNKNOWN_PIECE, "[PAD]", "[CLS]", "[SEP]", "[MASK]")
"""Word pieces that are no text."""
CONTINUES = "##"
"""In vocabularies of BERT: the token continues a word."""


def _load_word_pieces(path: str) -> Tokenizer | None:
    """Return the tokenizer of a vocab.txt, one word piece a line, as BERT with case and NeMo's type
    wpe cut texts; None if the file is JSON.
    """
    with open(path, encoding="utf-8") as file:
        pieces = [line.rstrip("\r\n") for line in file]
    if "".join(pieces[:1]).lstrip().startswith("{"):
        return None

    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    if UNKNOWN_PIECE not in pieces:
        raise ValueError(f"no word pieces: {UNKNOWN_PIECE} is missing")

    vocabulary = {piece: unit for unit, piece in enumerate(pieces)}
    model = Tokenizer(models.WordPiece(vocab=vocabulary, unk_token=UNKNOWN_PIECE))
    model.normalizer = normalizers.BertNormalizer(lowercase=False)
    model.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    model.decoder = decoders.WordPiece()
    model.add_special_tokens([piece for piece in SPECIAL_PIECES if piece in vocabulary])
    return model


def tokenizer_file(path: str) -> str:
    """Return the tokenizer.json at `path`, which is this file or its folder."""
    return str(Path(path) / FILE) if Path(path).is_dir() else path


@dataclass(frozen=True)
class HuggingFaceSplitter(OwnUnits):
    """Cuts text into the tokens of a tokenizer.json.

    Special tokens of the file are one token each in a text.

    Raises:
        OSError: there is no such file.
        ValueError: the file is no tokenizer.json, a symbol is no token, or the package tokenizers
            is not installed.
    """

    path: str
    non_lang_syms: tuple[str, ...] = ()
    """Tokens of the vocabulary that stay whole in a text."""

    exact_length = False

    def __call__(self, text: str) -> list[str]:
        """Cut a text into tokens."""
        tokens: list[str] = []
        for part, is_symbol in split_symbols(text.strip(), self.non_lang_syms):
            if not is_symbol:
                tokens.extend(self._model.encode(part, add_special_tokens=False).tokens)
            elif part in self.symbols:
                tokens.append(part)
            else:
                raise ValueError(f"non-language symbol {part!r} is no token of {self.path}")

        return tokens

    def starts_word(self, previous: str, token: str) -> bool:
        """Tell whether `token` starts a new word after `previous`, a token or the word so far."""
        if token in self._special or previous in self._special:
            return True
        if self._has_byte_tokens:
            # A token without bytes begins a word, as a space does.
            return starts_word(self._token_bytes(previous), self._token_bytes(token) or b" ")

        if token.startswith(WORD_START):
            return True
        if is_ideograph(previous[-1:]) or is_ideograph(token[:1]):
            return True

        return self._has_word_pieces and not token.startswith(CONTINUES)

    def join(self, tokens: Sequence[str]) -> str:
        """Return the text of the tokens without the special ones."""
        pieces = [token for token in tokens if token not in self._special]
        if self._has_byte_tokens:
            content = b"".join(map(self._token_bytes, pieces))
            return content.decode(errors="replace").strip()

        if self._has_word_pieces:  # a token may be a word whose pieces have been put together
            words = " ".join(pieces)
            pieces = words.replace(CONTINUES, f" {CONTINUES}").split()

        decoder = self._model.decoder
        text = " ".join(pieces) if decoder is None else decoder.decode(pieces)
        return text.strip()

    def identity(self) -> bytes:
        """Return the content of the file and the non-language symbols."""
        return repr(self.non_lang_syms).encode() + Path(self.path).read_bytes()

    @cached_property
    def symbols(self) -> dict[str, int]:
        """{token: id} of the whole vocabulary, in the order of the ids."""
        vocabulary = self._model.get_vocab(with_added_tokens=True)
        return dict(sorted(vocabulary.items(), key=itemgetter(1)))

    @cached_property
    def _special(self) -> frozenset[str]:
        """Tokens that are no text."""
        added = self._model.get_added_tokens_decoder().values()
        return frozenset(token.content for token in added if token.special)

    @cached_property
    def _has_byte_tokens(self) -> bool:
        """Whether characters of tokens stand for bytes, as in GPT-2."""
        return type(self._model.decoder).__name__ == "ByteLevel"

    @cached_property
    def _has_word_pieces(self) -> bool:
        """Whether tokens that continue a word begin with CONTINUES."""
        return type(self._model.decoder).__name__ == "WordPiece"

    @cached_property
    def _byte_of_char(self) -> dict[str, int]:
        return byte_of_char()

    def _token_bytes(self, token: str) -> bytes:
        """Return the bytes of a token, or of several in a row, in a vocabulary of bytes."""
        content = bytearray()
        for char in token:
            byte = self._byte_of_char.get(char)
            if byte is None:  # of a special token, which is text
                content += char.encode()
            else:
                content.append(byte)

        return bytes(content)

    @cached_property
    def _model(self) -> Tokenizer:
        """Load tokenizer.json, without its limits of length."""
        need_extra("huggingface", ("tokenizers",))
        from tokenizers import Tokenizer

        if not Path(self.path).is_file():
            raise FileNotFoundError(
                f"{self.path}: no such {FILE}; transformers writes it: "
                "AutoTokenizer.from_pretrained(folder).save_pretrained(folder)"
            )

        try:
            model = _load_word_pieces(self.path) or Tokenizer.from_file(self.path)
        except Exception as error:  # the package raises plain exceptions
            raise ValueError(f"{self.path}: not a {FILE} of Hugging Face ({error})") from None

        model.no_truncation()  # the file may have the limits of a text model
        model.no_padding()
        return model
