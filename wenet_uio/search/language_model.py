"""An n-gram language model for shallow fusion in beam searches."""

from __future__ import annotations

import logging
import math
import re
from array import array
from collections.abc import Callable, Iterable
from copy import copy
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
import torch

from wenet_uio.text.labels import Tokenizer
from wenet_uio.text.ngrams import LmUnit

if TYPE_CHECKING:
    import kenlm

log = logging.getLogger(__name__)

_OF_KENLM = re.compile(r"^Cannot read model '.*?' \(|\S*\.(?:cc|hh):\d+ in .* threw \w+")
"""What messages of KenLM say of its own code."""
_MARK = re.compile(r"<.*>")
"""Units that stand for no text, such as <blank>."""
MOST_EXTENSIONS = 2_000_000
"""Size of the table of extensions above which new searches begin with an empty table."""


class LanguageModel:
    """A PrefixScorer that adds the log-probabilities of an n-gram model.

    The bonus is `weight` x ln P(unit | units before) + `bonus` for each unit, and at the end
    `weight` x ln P(</s>). Units are the recogniser's tokens as in the units file, or words. A word
    is scored when the next word starts, or at the end. Results of the n-gram model are kept in a
    table, because the same extensions come up often.
    """

    state_size = 1

    def __init__(
        self, path: str | Path, tokenizer: Tokenizer, weight: float, bonus: float, unit: LmUnit
    ) -> None:
        """Load `path`, an ARPA file or a KenLM binary.

        Args:
            weight: of the log-probability of a unit.
            bonus: added for each unit.
            unit: whether units are tokens of the units file, or words.

        Raises:
            ValueError: the package kenlm is not installed, the file has another format, or the
                model has no token of the units file.
            OSError: the file does not exist.
        """
        self._weight = weight * math.log(10.0)  # KenLM has logarithms to the base 10
        self._bonus, self._unit = bonus, unit
        self._symbol_of, self._splitter = tokenizer.symbol, tokenizer.splitter
        self.most = max(0.0, bonus) if weight >= 0 else torch.inf  # ln P is never above 0
        self._model = _load_model(path)
        if unit == "token":
            _check_units(self._model, path, tokenizer.symbols)
        self._lock = Lock()  # a server decodes streams and recordings in two threads
        self._clear_tables()
        self._newest: LanguageModel | None = None
        """The copy whose table of extensions new searches share."""

    def begin(self) -> LanguageModel:
        """As PrefixScorer.begin: a copy with a table of extensions.

        Searches share the table until it is large. A new search then gets a new one; searches that
        run keep theirs, because their states are numbers in it.
        """
        with self._lock:
            if self._newest is None or len(self._newest._extensions) > MOST_EXTENSIONS:
                self._newest = None
                newest = copy(self)
                newest._clear_tables()
                self._newest = newest
            return self._newest

    def extend(
        self, states: torch.Tensor, tokens: torch.Tensor, wanted: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """As PrefixScorer.extend: states (B, N, 1), tokens (B, K), wanted (B, N, K)."""
        # A state and a token are one key of 64 bits, so that one look-up finds the extension.
        keys_of_all = (states << 32 | tokens.unsqueeze(1)).flatten()  # (B * N * K,)
        rows = wanted.flatten().nonzero().squeeze(1)
        keys = keys_of_all[rows].tolist()
        next_states = torch.zeros(wanted.numel(), dtype=torch.int64, device=states.device)
        gains = torch.zeros(wanted.numel(), dtype=torch.float64, device=states.device)

        if keys:
            # `map` calls the table in C: Python code runs for extensions that are not in it.
            with self._lock:
                numbers = np.fromiter(map(self._extensions.__getitem__, keys), np.int64, len(keys))
                known_states = np.frombuffer(self._next_states, np.int64)[numbers]
                known_gains = np.frombuffer(self._gains)[numbers]

            next_states[rows] = torch.from_numpy(known_states).to(states.device)
            gains[rows] = torch.from_numpy(known_gains).to(states.device)

        return next_states.view(*wanted.shape, 1), gains.view(wanted.shape)

    def end(self, states: torch.Tensor) -> torch.Tensor:
        """As PrefixScorer.end."""
        gains = torch.tensor(
            [self._score_end(state) for state in states.flatten().tolist()], dtype=torch.float64
        )
        return gains.view(states.shape[:2]).to(states.device)

    def _clear_tables(self) -> None:
        """Begin empty tables of states and extensions."""
        import kenlm

        start = kenlm.State()
        self._model.BeginSentenceWrite(start)
        self._states: list[tuple[kenlm.State, str]] = [(start, "")]
        """N-gram state, and the letters of the word that has not ended."""
        self._state_numbers = {self._states[0]: 0}

        self._extensions = _Memo(self._score_extension)
        """{state << 32 | token: number of the extension}."""
        self._next_states, self._gains = array("q"), array("d")
        """Of each extension."""

    def _score_extension(self, key: int) -> int:
        """Score the extension `state << 32 | token`; returns its number."""
        context, word = self._states[key >> 32]
        symbol = self._symbol_of(key & 0xFFFFFFFF)
        gain = 0.0

        if self._unit == "token":
            context, gain = self._score_unit(context, symbol)
        else:
            if word and self._splitter.starts_word(word, symbol):
                unit = self._splitter.join([word])
                if unit:
                    context, gain = self._score_unit(context, unit)
                word = ""
            word += symbol

        state = (context, word)
        number = self._state_numbers.setdefault(state, len(self._states))
        if number == len(self._states):
            self._states.append(state)

        self._next_states.append(number)
        self._gains.append(gain)
        return len(self._gains) - 1

    def _score_end(self, number: int) -> float:
        """Score the last word and the end of a sequence in state `number`."""
        context, word = self._states[number]
        gain = 0.0
        unit = self._splitter.join([word])
        if unit:
            context, gain = self._score_unit(context, unit)

        # `_score_unit` adds the bonus for a unit, which </s> is not.
        return gain + self._score_unit(context, "</s>")[1] - self._bonus

    def _score_unit(self, context: kenlm.State, unit: str) -> tuple[kenlm.State, float]:
        import kenlm

        next_context = kenlm.State()
        log10 = self._model.BaseScore(context, unit, next_context)
        return next_context, self._weight * log10 + self._bonus


class _Memo(dict):
    """Results of a function by argument; a missing result is computed."""

    def __init__(self, function: Callable[[int], int]) -> None:
        super().__init__()
        self._function = function

    def __missing__(self, key: int) -> int:
        self[key] = value = self._function(key)
        return value


def _load_model(path: str | Path) -> kenlm.Model:
    """Load a language model; the process keeps it for as long as its file does not change."""
    try:
        import kenlm  # noqa: F401 - `_shared_model` uses the package
    except ModuleNotFoundError:
        raise ValueError(
            "--lm_path needs the package kenlm: pip install kenlm (or wenet_uio[lm])"
        ) from None

    if not Path(path).is_file():
        raise FileNotFoundError(f"{path}: no such language model")

    status = Path(path).stat()
    return _shared_model(str(path), status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=1)
def _shared_model(path: str, changed: int, size: int) -> kenlm.Model:
    """Load the n-gram model, or return the one in memory if the file has not changed.

    All streams and recordings share it. `changed` is the time of the last change, `size` in bytes.
    """
    import kenlm

    config = kenlm.Config()
    config.show_progress, config.arpa_complain = False, kenlm.ARPALoadComplain.NONE
    try:
        return kenlm.Model(path, config)
    except (OSError, UnicodeDecodeError) as error:  # a message may quote bytes of the file
        reason = _OF_KENLM.sub("", " ".join(str(error).split())).strip("(). ")
        raise ValueError(
            f"{path}: KenLM reads neither an ARPA file nor a binary of its own there ({reason})"
        ) from None


def _check_units(model: kenlm.Model, path: str | Path, symbols: Iterable[str]) -> None:
    """Warn of a language model that has few of the units.

    Raises:
        ValueError: it has none.
    """
    units = [symbol for symbol in symbols if not _MARK.fullmatch(symbol)]
    known = sum(unit in model for unit in units)
    if units and not known:
        raise ValueError(
            f"{path}: none of the {len(units)} units of the recogniser is in this language model; "
            "estimate it with make_lm.py and the train.yaml of the recogniser, or state that its "
            "units are words (lm_unit)"
        )

    if 2 * known < len(units):
        log.warning(
            "%s: only %d of the %d units of the recogniser are in this language model",
            path,
            known,
            len(units),
        )
