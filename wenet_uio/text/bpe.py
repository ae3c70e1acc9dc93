"""Splitter of the bpe tokenizer: pieces of a sentencepiece model, single characters for Chinese."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from wenet_uio.text.char import IDEOGRAPH, is_ideograph, split_symbols, starts_word
from wenet_uio.text.labels import OwnUnits
from wenet_uio.text.sampling import PieceSampler, Sampling
from wenet_uio.text.symbols import WORD_START

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor


@dataclass(frozen=True)
class BpeSplitter:
    """Cuts text into Chinese characters, non-language symbols, and sentencepiece pieces.

    As in WeNet, the text is converted to upper case first, unless the model has pieces with
    lower-case letters.

    Raises:
        OSError: there is no such model.
        ValueError: the file is not a sentencepiece model.
    """

    model_path: str
    non_lang_syms: tuple[str, ...] = ()
    sampling: Sampling | None = None
    """How `sampled` draws pieces."""

    exact_length = False

    def __call__(self, text: str) -> list[str]:
        """Cut a text into tokens."""
        return self._cut_text(text, lambda run: self._model.encode(run, out_type=str))

    def sampled(self, text: str, random: Random) -> list[str]:
        """Cut a text into tokens, with pieces that are drawn; needs `sampling`."""
        return self._cut_text(text, lambda run: self._sampler(run, random))

    def _cut_text(self, text: str, pieces_of: Callable[[str], list[str]]) -> list[str]:
        """Cut a text; `pieces_of` cuts a run between Chinese characters and symbols."""
        tokens: list[str] = []
        for part, is_symbol in split_symbols(text.strip(), self.non_lang_syms):
            if is_symbol:
                tokens.append(part)
                continue

            if self._is_upper_case:
                part = part.upper()
            for run in split_ideographs(part):
                if is_ideograph(run):
                    tokens.append(run)
                else:
                    tokens.extend(pieces_of(run))

        return tokens

    def starts_word(self, previous: str, token: str) -> bool:
        """Tell whether `token` starts a new word after `previous`, a token or the word so far."""
        return starts_word(previous, token, self.non_lang_syms)

    def join(self, tokens: Sequence[str]) -> str:
        """Return the text of the tokens; ▁ becomes a space."""
        return "".join(tokens).replace(WORD_START, " ").strip()

    def identity(self) -> bytes:
        """Return the content of the model and the non-language symbols."""
        return repr(self.non_lang_syms).encode() + Path(self.model_path).read_bytes()

    @cached_property
    def _model(self) -> SentencePieceProcessor:
        return _load_model(self.model_path)

    @cached_property
    def _sampler(self) -> PieceSampler:
        assert self.sampling is not None
        return PieceSampler(self._model, self.sampling)

    @cached_property
    def _is_upper_case(self) -> bool:
        """Whether the model has no piece with a lower-case letter."""
        model = self._model
        # Names such as <unk> and <0x0a> are no text.
        name_tests = (model.is_control, model.is_unknown, model.is_unused, model.is_byte)
        for unit in range(model.get_piece_size()):
            is_name = any(is_kind(unit) for is_kind in name_tests)
            if not is_name and any(char.islower() for char in model.id_to_piece(unit)):
                return False

        return True


@dataclass(frozen=True)
class SentencepieceSplitter(OwnUnits):
    """Cuts text into the pieces of a sentencepiece model, whose ids are those of the model.

    Raises:
        OSError: there is no such model.
        ValueError: the file is not a sentencepiece model, or a symbol is no piece.
    """

    path: str
    non_lang_syms: tuple[str, ...] = ()
    """Pieces that stay whole in a text."""
    sampling: Sampling | None = None
    """How `sampled` draws pieces."""

    exact_length = False

    def __call__(self, text: str) -> list[str]:
        """Cut a text into tokens."""
        return self._cut_text(text, lambda part: self._model.encode(part, out_type=int))

    def sampled(self, text: str, random: Random) -> list[str]:
        """Cut a text into tokens, with pieces that are drawn; needs `sampling`."""

        def units_of(part: str) -> Iterable[int]:
            return map(self._model.piece_to_id, self._sampler(part, random))

        return self._cut_text(text, units_of)

    def _cut_text(self, text: str, units_of: Callable[[str], Iterable[int]]) -> list[str]:
        """Cut a text; `units_of` gives the ids of a part without symbols."""
        tokens: list[str] = []
        for part, is_symbol in split_symbols(text.strip(), self.non_lang_syms):
            if is_symbol and part not in self.symbols:
                raise ValueError(f"non-language symbol {part!r} is no piece of {self.path}")
            if is_symbol:
                tokens.append(part)
            else:
                tokens.extend(self._model.id_to_piece(unit) for unit in units_of(part))

        return tokens

    def starts_word(self, previous: str, token: str) -> bool:
        """Tell whether `token` starts a new word after `previous`, a token or the word so far."""
        return starts_word(previous, token, self.non_lang_syms)

    def join(self, tokens: Sequence[str]) -> str:
        """Return the text of the tokens; ▁ becomes a space."""
        return self._model.decode_pieces(list(tokens)).strip()

    def identity(self) -> bytes:
        """Return the content of the model and the non-language symbols."""
        return repr(self.non_lang_syms).encode() + Path(self.path).read_bytes()

    @cached_property
    def _sampler(self) -> PieceSampler:
        assert self.sampling is not None
        return PieceSampler(self._model, self.sampling)

    @cached_property
    def symbols(self) -> dict[str, int]:
        """{piece: id} of the whole model."""
        return {self._model.id_to_piece(unit): unit for unit in range(self._model.get_piece_size())}

    @cached_property
    def _model(self) -> SentencePieceProcessor:
        return _load_model(self.path)


def _load_model(path: str) -> SentencePieceProcessor:
    """Load a model of sentencepiece."""
    from sentencepiece import SentencePieceProcessor

    if not Path(path).is_file():
        raise FileNotFoundError(
            f"{path}: no such sentencepiece model; train it with tools/spm_train.py"
        )

    try:
        return SentencePieceProcessor(model_file=path)
    except RuntimeError as error:
        raise ValueError(f"{path}: not a sentencepiece model ({str(error).strip()})") from None


def split_ideographs(text: str) -> list[str]:
    """Cut text into single Chinese characters and the text between them, without mere spaces."""
    return [run for run in IDEOGRAPH.split(text) if run.strip()]
