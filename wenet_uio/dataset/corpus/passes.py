"""Passes over the data: the corpus of each pass, and the state of a mixture's sources between
passes.

A plain corpus is the same in every pass and has no state. Only these functions know that a mixture
differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from wenet_uio.dataset.corpus.base import Corpus
from wenet_uio.dataset.corpus.mixture import Mixture, exact_quotas, wanted_of

NOTHING = 1e-6
"""Utterances; smaller debts are rounding."""


@dataclass(frozen=True)
class Passes:
    """The passes over a corpus. `starting_at` resumes from the state that `offsets` returned."""

    corpus: Corpus
    reshuffle: bool = True
    """False: every pass reads the shards of a source in the order of the first round."""
    first_pass: int = 0
    """The pass before which `starts` were counted."""
    starts: Mapping[str, int] = field(default_factory=dict)
    """Utterances that were read of each source; a source that is not listed starts at 0."""
    owed: Mapping[str, float] = field(default_factory=dict)
    """Utterances that sources had too little before `first_pass`, below 0 too much. So a source
    with a share of half an utterance has one in every second pass."""

    def corpus_of(self, data_pass: int) -> Corpus:
        """Return the corpus to plan for one pass: the corpus itself, or the part of a mixture that
        this pass takes.
        """
        if not isinstance(self.corpus, Mixture):
            return self.corpus

        offsets, owed = self._state_before(self.corpus, data_pass)
        quotas = _quotas_of_pass(self.corpus, owed)
        return self.corpus.part(offsets.tolist(), quotas, reshuffle=self.reshuffle)

    def offsets(self, data_pass: int) -> dict[str, int]:
        """Return utterances of each source of a mixture that were read before a pass; empty for a
        plain corpus.
        """
        if not isinstance(self.corpus, Mixture):
            return {}
        offsets, _ = self._state_before(self.corpus, data_pass)
        return dict(zip(self.corpus.state_names, offsets.tolist(), strict=True))

    def debts(self, data_pass: int) -> dict[str, float]:
        """Return `owed` before a pass, of the sources that are owed something."""
        if not isinstance(self.corpus, Mixture):
            return {}
        _, owed = self._state_before(self.corpus, data_pass)
        names = zip(self.corpus.state_names, owed.tolist(), strict=True)
        return {name: debt for name, debt in names if abs(debt) > NOTHING}

    def _state_before(self, mixture: Mixture, data_pass: int) -> tuple[np.ndarray, np.ndarray]:
        """Return (sources,) utterances that were read before a pass, and (sources,) utterances that
        are owed then.
        """
        names = mixture.state_names
        offsets = np.asarray([self.starts.get(name, 0) for name in names], np.int64)
        owed = np.asarray([self.owed.get(name, 0.0) for name in names])
        shares, total = [source.share for source in mixture.sources], sum(mixture.quotas)

        passes = data_pass - self.first_pass
        if passes < 0:
            offsets += passes * np.asarray(mixture.quotas)

        for _ in range(passes):
            quotas = np.asarray(_quotas_of_pass(mixture, owed))
            offsets += quotas
            owed = wanted_of(shares, total, owed) - quotas

        return offsets, owed

    def starting_at(
        self, data_pass: int, offsets: Mapping[str, int], owed: Mapping[str, float]
    ) -> Passes:
        """Return the same passes, with every source resumed in pass `data_pass`.

        Args:
            offsets: as `offsets` returned them for that pass; a source that is not listed starts
                at 0.
            owed: as `debts` returned it for that pass.
        """
        return replace(self, first_pass=data_pass, starts=dict(offsets), owed=dict(owed))


def _quotas_of_pass(mixture: Mixture, owed: np.ndarray) -> list[int]:
    """Return utterances of each source in a pass.

    Args:
        owed: (sources,) utterances that each source had too little in the passes before.
    """
    # The quotas of the mixture are those of a pass before which no source is owed anything.
    if np.abs(owed).max(initial=0.0) <= NOTHING:
        return mixture.quotas

    shares = [source.share for source in mixture.sources]
    return exact_quotas(shares, sum(mixture.quotas), owed)
