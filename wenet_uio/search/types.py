"""Options and results of searches."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

from wenet_uio.base.options import option
from wenet_uio.config.family import TASKS

DTYPES = ("fp32", "bf16", "fp16", "auto")
"""Arithmetic of a model that decodes."""
MOST_PENALTY = 1000.0
"""Largest size of the penalty of the blank: far beyond the difference of two logits."""
SCORES_TOGETHER = 2**28
"""Scores (sequences, positions, labels) that are computed together, unless one sequence has more:
1 GB in float32."""


class TimeSpan(NamedTuple):
    """A part of the tokens of a hypothesis between two timestamps."""

    start: float
    """Seconds from the start of the utterance."""
    end: float | None
    """None: the end of the utterance."""
    first: int
    """Index of its first token."""
    last: int
    """Index after its last token."""


@dataclass(frozen=True)
class Hypothesis:
    """A possible token sequence of an utterance."""

    tokens: tuple[int, ...]
    score: float
    """Log-probability; what it includes depends on the search."""
    frames: tuple[float, ...] | None = None
    """Encoder frame of each token: where CTC finds it most probable, where the transducer emits it,
    or where its predictor finds it, in parts of a frame. None without `token_times`, or if no
    CTC path exists."""
    confidences: tuple[float, ...] | None = None
    """Probability of each token at its frame; None exactly if `frames` is None."""
    decoder_confidences: tuple[float, ...] | None = None
    """Probability that the attention decoder gives each token after those before it; None in modes
    without the decoder."""
    spans: tuple[TimeSpan, ...] | None = None
    """Where the decoder places its text; None without `timestamps`."""
    language: str | None = None
    """Language of the prompt; None without a prompt, and in modes without the decoder."""
    decoder_confidence: float | None = None
    """Geometric mean of the probabilities that the attention decoder gives the tokens and eos; None
    in modes other than attention, and without tokens."""

    @property
    def token_confidences(self) -> tuple[float, ...] | None:
        """Probability of each token, of the part of the model that chose it; None: not known."""
        if self.decoder_confidences is not None:
            return self.decoder_confidences
        return self.confidences

    @property
    def confidence(self) -> float | None:
        """Geometric mean of the confidences of the tokens.

        None without confidences or without tokens.
        """
        if not self.confidences:
            return None
        logarithms = [math.log(max(value, 1e-30)) for value in self.confidences]
        return math.exp(sum(logarithms) / len(logarithms))


NBest = list[Hypothesis]
"""Hypotheses of one utterance, best first; at least one, which may have no tokens."""


@dataclass(frozen=True)
class RequestOptions:
    """What callers ask of a search at every entrance: command, Python and server.

    A tuple of languages has that of each utterance of a batch.
    """

    beam_size: int = 10
    """Hypotheses that a search keeps."""
    language: str | tuple[str | None, ...] | None = option(None, metavar="CODE", parse=str)
    """Models with a prompt: code of the language, such as `en`; None: the field `lang` of the data,
    else it is detected."""
    task: str = option("transcribe", choices=TASKS)
    """Models with a prompt: transcribe, or translate for a translation to English."""
    timestamps: bool = False
    """Models with a prompt, mode attention: the decoder says where its text starts and ends, and
    the segments of a transcription are these."""


@dataclass(frozen=True)
class DecodeOptions(RequestOptions):
    """Options of all searches.

    Raises:
        ValueError: a beam or `nbest` is below 1, a weight is outside of 0 to 1, the penalty of
            the blank is beyond MOST_PENALTY, or `dtype` is unknown.
    """

    ctc_weight: float = 0.3
    """Rescoring and joint search: weight of the CTC score."""
    reverse_weight: float | None = None
    """Rescoring: share of the right-to-left decoder in the decoder score, 0 for a model without
    one; None: as trained."""
    transducer_weight: float = 1.0
    """rnnt_beam_search: share of the transducer in the probability of each token; CTC has the rest.
    Below 1, a frame has at most one token."""
    blank_penalty: float = 0.0
    """Subtracted from CTC's logit of the blank; above 0: fewer blanks, so fewer deletions; below 0:
    more blanks, so fewer insertions."""
    length_penalty: float = option(0.0, others=["--penalty"])
    """Attention and joint search: hypotheses are compared by score / length ** length_penalty;
    above 0: longer hypotheses."""
    decoding_chunk_size: int = -1
    """Encoder frames of a chunk; below 0: full context."""
    num_decoding_left_chunks: int = -1
    """Chunks that a chunk sees to its left; below 0: all."""
    simulate_streaming: bool = False
    """Run the encoder chunk by chunk, as a streaming recogniser does."""
    token_times: bool = False
    """Find frame and confidence of every token."""
    itn: bool = False
    """Text with digits and punctuation (inverse normalisation), of models that can."""
    dtype: str | None = option(None, choices=DTYPES)
    """Arithmetic of the model; log-probabilities are fp32; auto: bf16 if the device is faster with
    it, else fp32; None: auto for a model that was trained in 16 bits or with auto, else fp32."""
    nbest: int | None = None
    """Most hypotheses of an utterance in the result; None: all."""

    def __post_init__(self) -> None:
        for name in ("beam_size", "nbest"):
            count = getattr(self, name)
            if count is not None and count < 1:
                raise ValueError(f"{name}: expected 1 or more, found {count}")

        for name in ("ctc_weight", "reverse_weight"):
            weight = getattr(self, name)
            if weight is not None and not 0 <= weight <= 1:
                raise ValueError(f"{name}: expected 0 to 1, found {weight}")

        if not abs(self.blank_penalty) <= MOST_PENALTY:  # NaN is refused too
            raise ValueError(
                f"blank_penalty: expected {-MOST_PENALTY:g} to {MOST_PENALTY:g}, found "
                f"{self.blank_penalty:g}"
            )

        if self.dtype not in (None, *DTYPES):
            raise ValueError(f"dtype: expected {', '.join(DTYPES)}, found {self.dtype}")

        if not 0 < self.transducer_weight <= 1:
            raise ValueError(
                f"transducer_weight: expected above 0 and up to 1, found {self.transducer_weight}"
            )

    def select_utterances(self, rows: slice) -> DecodeOptions:
        """Return the options of some utterances of a batch."""
        if not isinstance(self.language, tuple):
            return self
        return replace(self, language=self.language[rows])
