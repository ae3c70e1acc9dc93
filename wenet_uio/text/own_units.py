"""Splitters whose file has the ids of the tokens, so that there is no units file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar


class OwnUnits(ABC):
    """A splitter with a symbol table of its own; see `labels.Splitter` for its other methods."""

    path_key: ClassVar[str] = "model_path"
    """Key of tokenizer_conf with the path of the file."""
    exact_length = False
    path: str

    @property
    @abstractmethod
    def symbols(self) -> dict[str, int]:
        """{token: id} of the whole vocabulary."""

    @abstractmethod
    def __call__(self, text: str) -> list[str]:
        """Cut a text into tokens."""

    @abstractmethod
    def starts_word(self, previous: str, token: str) -> bool:
        """Tell whether `token` starts a new word after `previous`."""

    @abstractmethod
    def join(self, tokens: Sequence[str]) -> str:
        """Return the text of the tokens."""

    @abstractmethod
    def identity(self) -> bytes:
        """Return bytes that differ between splitters that may cut a text differently."""
