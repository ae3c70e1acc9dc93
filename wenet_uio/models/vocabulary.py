"""The vocabulary of a model: its size, and the labels with a fixed meaning."""

from __future__ import annotations

from dataclasses import dataclass

from wenet_uio.config import Config
from wenet_uio.text.special_ids import sos_and_eos
from wenet_uio.text.symbols import EOS, SOS
from wenet_uio.text.tokenizer import build_tokenizer


@dataclass(frozen=True)
class Vocabulary:
    """The size of the vocabulary, and the labels with a fixed meaning.

    Raises:
        ValueError: a label is not below `size`.
    """

    size: int
    blank: int
    sos: int
    eos: int

    def __post_init__(self) -> None:
        for name, label in (("ctc_blank_id", self.blank), ("<sos>", self.sos), ("<eos>", self.eos)):
            if label >= self.size:
                raise ValueError(f"{name} {label} is outside of the vocabulary of {self.size}")


def vocabulary_of(config: Config) -> Vocabulary:
    """Return the size and labels from the config; what is missing there from the units file."""
    special = config.tokenizer_conf.special_tokens or {}
    size, symbols = config.vocabulary_size, {}
    if size is None or SOS not in special or EOS not in special:
        tokenizer = build_tokenizer(config)
        size, symbols = size or tokenizer.vocab_size, tokenizer.symbols

    ids = sos_and_eos(config.tokenizer_conf, symbols, size)
    return Vocabulary(size, config.ctc_conf.ctc_blank_id, ids[SOS], ids[EOS])
