"""Draw the pieces of each word of a text at random, in training only: sub-word regularisation.

A unigram model draws one of the `nbest` best segmentations of a word with the normalised
probability P ** alpha (Kudo, arXiv:1804.10959). A BPE model leaves out each merge with the
probability alpha (BPE-dropout, Provilkov et al., arXiv:1910.13267).

The draws come from a generator of the caller. The sampling of sentencepiece itself has a generator
that differs between processes, so the same sample would have other labels after a resume.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from wenet_uio.text.symbols import WORD_START

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor

_MOST_WORDS = 1 << 16
"""Words whose segmentations are kept."""


class Sampling(NamedTuple):
    """How the pieces of a word are drawn."""

    alpha: float
    """Unigram: exponent of the probabilities; 0 draws uniformly. BPE: probability that a merge is
    left out."""
    nbest: int
    """Unigram: number of segmentations to draw from."""


class _Segmentations(NamedTuple):
    """Segmentations of a word with their cumulative weights."""

    pieces: list[tuple[str, ...]]
    weights: list[float]


@dataclass
class PieceSampler:
    """Draws the pieces of texts.

    Raises:
        ValueError: pieces of the model do not belong to single words, or alpha is no probability.
    """

    model: SentencePieceProcessor
    sampling: Sampling
    _kept: dict[str, _Segmentations | str] = field(default_factory=dict, repr=False)
    """{word: its segmentations; of a BPE model the normalised word}."""

    def __post_init__(self) -> None:
        model = self.model
        self._pieces = {model.id_to_piece(unit): unit for unit in range(model.get_piece_size())}
        spans_words = any(WORD_START in piece[1:] for piece in self._pieces)
        if spans_words or not model.normalize("a").startswith(WORD_START):
            raise ValueError(
                "tokenizer_conf.sample_alpha needs a sentencepiece model whose words begin with "
                f"{WORD_START} and whose pieces do not span words; this model has others"
            )

        # Only unigram models have n-best segmentations; others are BPE.
        try:
            model.nbest_encode_as_proto("a", 1)
            self._is_bpe = False
        except RuntimeError:
            self._is_bpe = True

        if self._is_bpe and self.sampling.alpha > 1:
            raise ValueError(
                f"tokenizer_conf.sample_alpha {self.sampling.alpha}: expected a probability from 0 "
                "to 1, because the model is BPE"
            )

    def __call__(self, text: str, random: Random) -> list[str]:
        """Draw the pieces of a text."""
        pieces: list[str] = []
        for word in text.split():
            choices = self._kept.get(word)
            if choices is None:
                if len(self._kept) >= _MOST_WORDS:
                    self._kept.clear()
                choices = self._kept[word] = self._find_choices(word)

            if isinstance(choices, str):
                pieces.extend(self._merge_characters(choices, random))
            else:
                pieces.extend(random.choices(choices.pieces, cum_weights=choices.weights)[0])

        return pieces

    def _find_choices(self, word: str) -> _Segmentations | str:
        """Return what the pieces of a word are drawn from.

        For a unigram model, segmentations. For a BPE model, the normalised word, whose characters
        are merged at each draw.
        """
        if not self._is_bpe:
            nbests = self.model.nbest_encode_as_proto(word, self.sampling.nbest).nbests
            pieces: list[tuple[str, ...]] = []
            weights: list[float] = []
            for nbest in nbests:
                pieces.append(tuple(piece.piece for piece in nbest.pieces))
                # Relative to the best score, so that exp() does not underflow.
                relative_score = nbest.score - nbests[0].score
                weights.append(math.exp(self.sampling.alpha * relative_score))

            return _Segmentations(pieces, list(accumulate(weights)))

        best = self.model.encode(word, out_type=str)
        normalised = self.model.normalize(word)
        if self._merge_characters(normalised) == best:
            return normalised

        # Words with bytes or symbols of the user are not made by merges alone: they keep their
        # pieces.
        return _Segmentations([tuple(best)], [1.0])

    def _merge_characters(self, word: str, random: Random | None = None) -> list[str]:
        """Merge the characters of a word by the scores of the pieces.

        Without `random`, no merge is left out.
        """
        pieces = list(word)
        while True:
            merges: list[tuple[float, int]] = []
            for index, (first, second) in enumerate(pairwise(pieces)):
                unit = self._pieces.get(first + second)
                if unit is None:
                    continue
                if random is None or random.random() >= self.sampling.alpha:
                    merges.append((self.model.get_score(unit), -index))

            if not merges:
                return pieces

            # The best score; of equal scores the first pair
            _, negative_index = max(merges)
            index = -negative_index
            pieces[index : index + 2] = [pieces[index] + pieces[index + 1]]
