"""Kinds of findings of a check, the report that gathers the findings, and distributions of numbers
in bounded memory.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from wenet_uio.dataset.chain.tokens import NO_CTC_PATH
from wenet_uio.dataset.ledger import NOT_INDEXED
from wenet_uio.text.characters import DECOMPOSED, INVISIBLE, LOOK_ALIKE

LOWEST, HIGHEST = -6.0, 6.0
"""Ends of the scale, as powers of ten; values beyond are counted in the first and the last bin."""
BINS = 2400
"""Bins of the scale: 200 per power of ten, so that quantiles are exact to 1.2 %."""


class LogHistogram:
    """Counts in bins of equal width on a logarithmic scale."""

    def __init__(self) -> None:
        self.counts = np.zeros(BINS, np.int64)
        """(bins,) values in each bin."""

    def add(self, values: np.ndarray) -> None:
        """Count some values; 0 and negative values fall into the lowest bin."""
        logarithms = np.log10(np.maximum(values, 10**LOWEST))
        bins = ((logarithms - LOWEST) * (BINS / (HIGHEST - LOWEST))).astype(np.int64)
        self.counts += np.bincount(bins.clip(0, BINS - 1), minlength=BINS)

    def merge(self, other: LogHistogram) -> None:
        """Add the counts of another histogram."""
        self.counts += other.counts

    def quantile(self, share: float) -> float:
        """Return the value below which this share (0 to 1) of all values lies; NaN without values."""
        total = int(self.counts.sum())
        if not total:
            return float("nan")

        bin_index = int(np.searchsorted(np.cumsum(self.counts), max(1, share * total)))
        lower, upper = self.edges()[bin_index : bin_index + 2]
        return float((lower * upper) ** 0.5)  # the middle of the bin on the logarithmic scale

    def edges(self) -> np.ndarray:
        """Return (bins + 1,) borders of the bins."""
        return np.logspace(LOWEST, HIGHEST, BINS + 1)

    def summary(self) -> dict[str, float]:
        """Return quantiles by share, to three digits; empty without values."""
        if not self.counts.any():
            return {}
        return {
            f"{share:g}": float(f"{self.quantile(share):.3g}")
            for share in (0.01, 0.25, 0.5, 0.75, 0.99)
        }


CHARACTERS = {
    INVISIBLE: "texts with characters that show nothing, such as zero-width spaces and soft "
    "hyphens: --fix removes them",
    DECOMPOSED: "texts with letters that Unicode can write in another way (NFD beside NFC): --fix "
    "composes them",
    LOOK_ALIKE: "texts with words that mix Latin with Cyrillic or Greek letters of the same look: "
    "--fix writes each word in one script",
}
"""Kinds of findings of characters in texts, which would be units of their own."""
LOSSES = {
    "broken_shard": "shards that are missing or damaged",
    "empty_shard": "shards without samples",
    "changed_shard": "shards that hold other samples than when their list was indexed: other data "
    "was packed over them",
    NOT_INDEXED: "missing or unreadable audio, audio without text, text without audio, lines that "
    "are not JSON",
    "unreadable": "audio that cannot be decoded",
    "changed_length": "audio whose length differs from its header or from the data list",
    "duplicate_key": "keys that occur more than once; results hold one utterance per key",
    "empty_text": "audio with an empty text",
    NO_CTC_PATH: "texts with more labels than the model has frames of CTC: training leaves them out",
    "unknown_language": "texts whose language is not stated, or has no tokenizer in "
    "tokenizer_conf.languages",
}
"""Kinds of findings that cost training a sample or a shard, with their meaning."""
SUSPECTS = {
    "stale_index": "shards whose index had other samples than the tar: the check made the index "
    "again",
    "silent": "audio below -60 dB of full scale",
    "clipped": "audio with more than 0.1 % of its samples at full scale",
    "past_the_end": "segments that end after their audio: training reads the part that there is, "
    "with the whole text",
    "other_channel": "audio whose other channels have sound where the read channel is quiet, such as "
    "the second speaker of a call: give lines a `channel`, or read `mix`",
    "other_rate": "sample rates that differ from the majority",
    "duration": "audio far shorter or longer than the other utterances",
    "characters_per_second": "far fewer or more characters per second than in the other utterances",
    "space_to_unknown": "texts with spaces, although no unit is a space: remove the spaces, or add "
    "a unit for them",
    "unknown_unit": "texts with tokens that are not in the units file",
    **CHARACTERS,
}
"""Kinds of findings that are unusual but usable, with their meaning."""
KEPT = 1000
"""A report names this many findings of each suspect kind; it counts all of them."""


class Finding(NamedTuple):
    """A sample or shard with something wrong or unusual."""

    kind: str
    """A key of `LOSSES` or `SUSPECTS`."""
    key: str
    """Key of the sample, or path of the shard."""
    detail: str
    place: tuple[int, int] | None = None
    """Shard and row of the sample; None if the sample is not in the index."""


@dataclass
class Report:
    """The result of a check."""

    utterances: int
    """Utterances in the index."""
    hours: float
    findings: list[Finding] = field(default_factory=list)
    """All losses, and the first `KEPT` findings of each suspect kind."""
    counts: Counter[str] = field(default_factory=Counter)
    """Number of findings by kind."""
    filtered: Counter[str] = field(default_factory=Counter)
    """Utterances that filter_conf leaves out, by reason. They are not losses: the config asks for
    it."""
    rates: Counter[int] = field(default_factory=Counter)
    """Number of utterances by sample rate in Hz."""
    unknown: Counter[str] = field(default_factory=Counter)
    """Tokens that are not in the units file, with their number of occurrences."""
    unseen: list[str] = field(default_factory=list)
    """Units that occur in no text."""
    seconds: LogHistogram = field(default_factory=LogHistogram)
    """Durations of the utterances."""
    speech: LogHistogram = field(default_factory=LogHistogram)
    """Characters per second."""
    level: LogHistogram = field(default_factory=LogHistogram)
    """Root mean square of the audio; 1 is full scale."""

    @property
    def losses(self) -> int:
        """Number of findings of all kinds in `LOSSES`."""
        return sum(self.counts[kind] for kind in LOSSES)

    def add(self, finding: Finding) -> None:
        """Count a finding, and keep it unless `KEPT` of its suspect kind are kept already."""
        self.counts[finding.kind] += 1
        if finding.kind in LOSSES or self.counts[finding.kind] <= KEPT:
            self.findings.append(finding)

    def as_dict(self) -> dict[str, object]:
        """Return the report as JSON-able values.

        `counts` has every kind, also those without findings.
        """
        distributions = {
            "duration": self.seconds,
            "characters_per_second": self.speech,
            "level": self.level,
        }
        return {
            "utterances": self.utterances,
            "hours": round(self.hours, 4),
            "losses": self.losses,
            "counts": {kind: self.counts[kind] for kind in (*LOSSES, *SUSPECTS)},
            "filtered": dict(self.filtered),
            "rates": {str(rate): count for rate, count in self.rates.most_common()},
            "quantiles": {name: histogram.summary() for name, histogram in distributions.items()},
            "unknown_units": dict(self.unknown.most_common(KEPT)),
            "unseen_units": self.unseen,
            "findings": [
                {"kind": finding.kind, "key": finding.key, "detail": finding.detail}
                for finding in self.findings
            ],
        }
